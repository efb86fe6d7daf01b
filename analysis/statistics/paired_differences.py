"""Differences between arms that served the same requests, with paired 95 % intervals.

The same resamples as the intervals of the arms themselves (analysis.intervals): a difference is taken inside
each resample, so what arms have in common cancels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cascade_sim.analysis.statistics.bootstrap import (
    Floats,
    Statistic,
    _interval,
    _ratio_replicates,
    _replicate,
)


def ratio_differences(
    columns: Mapping[str, Mapping[str, ArrayLike]],
    ratios: Mapping[str, tuple[str, str | None]],
    baseline: str,
    resamples: int,
    seed: int,
) -> dict[str, dict[str, dict[str, Any]]]:
    """metric(arm) - metric(baseline) of every other arm: {arm: {metric: {"value", "low", "high"}}}.

    Arguments, and what is undefined (None): as in ratio_intervals.
    """
    values = _ratio_replicates(columns, ratios, resamples, seed)
    return {
        arm: {metric: _interval(replicates[:, i] - values[baseline][:, i]) for i, metric in enumerate(ratios)}
        for arm, replicates in values.items()
        if arm != baseline
    }


def function_differences(
    sums_by_group: Mapping[str, ArrayLike], function: Statistic, baseline: str, resamples: int, seed: int
) -> dict[str, dict[str, Any]]:
    """function(sums of an arm) - function(sums of the baseline), by resampling groups of requests.

    Arguments as in paired_function_intervals; without the baseline among the arms there is no difference.
    """
    tables = {arm: np.asarray(sums, np.float64) for arm, sums in sums_by_group.items()}
    if baseline not in tables:
        return {}
    if len({table.shape for table in tables.values()}) != 1:
        raise ValueError("arms differ in the shape of their sums")
    shape = tables[baseline].shape

    def evaluate(sums: Floats) -> Floats:
        return np.asarray(function(sums.reshape(-1, *shape[1:])), np.float64)[:, None]

    flat = {arm: table.reshape(shape[0], -1) for arm, table in tables.items()}
    values = _replicate(flat, dict.fromkeys(flat, evaluate), resamples, seed)
    return {
        arm: _interval(table[:, 0] - values[baseline][:, 0])
        for arm, table in values.items()
        if arm != baseline
    }
