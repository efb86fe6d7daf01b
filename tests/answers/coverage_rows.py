"""Rows of a coverage table with invented numbers."""

import numpy as np

from answers.coverage import normal_answers
from cascade_sim.analysis.off_policy.coverage import coverage_of

NOTHING = np.full(4000, np.nan)


def some_rows(claimed=1.0):
    right, short = coverage_of(*normal_answers(), 10.0), coverage_of(*normal_answers(claimed=claimed), 10.0)
    refused = coverage_of(NOTHING, NOTHING, NOTHING, 10.0)
    biased = coverage_of(*normal_answers(bias=2), 10.0)
    return {"near": {"ips": right, "snips": short, "direct_method": biased}, "far": {"ips": refused}}
