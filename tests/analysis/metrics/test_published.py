"""Runs far from what is published of real markets are told so, others are not."""

import pytest

from answers.told import tells
from cascade_sim.analysis.metrics.published import PUBLISHED, out_of_published_range


def run(ctr=0.05, spread=0.5, cpc=1.0):
    arm = {"ctr": {"value": ctr, "low": ctr, "high": ctr}, "cpc": {"value": cpc, "low": cpc, "high": cpc}}
    return {"baseline": "production", "arms": {"production": arm}, "bids": {"spread": spread}}


def test_a_believable_run_gets_no_note():
    assert out_of_published_range(run()) == []


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"ctr": 0.4}, "CTR 40 above"),
        ({"ctr": 0.00001}, "CTR below"),
        ({"spread": 0.0}, "bids"),
        ({"cpc": 200.0}, "click 200, above"),
    ],
)
def test_a_figure_outside_its_range_is_named_with_its_source(figures, words):
    (told,) = out_of_published_range(run(**figures))
    assert tells(told, *words.split()) and any(known.source in told for known in PUBLISHED)


def test_what_a_run_does_not_have_is_not_missed():
    assert out_of_published_range({"baseline": "production", "arms": {"production": {}}}) == []
