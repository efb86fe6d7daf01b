"""What is not captured is told in the words of the tables: metrics by their labels, never by their keys."""

import pytest

from answers.told import tells
from cascade_sim.analysis.metrics.catalogue import arm_measure
from cascade_sim.analysis.report.sections.realism import whatif_table
from cascade_sim.logs.fidelity.gaps import NOTHING, UNSEEN, known_gaps
from cascade_sim.logs.fit.realism import WHATIF_MEASURES, matching_whatifs


def answer(lift):
    """What whatif.json holds of a reserve that lifts every measure alike."""
    entry = {"lift": {"value": lift, "low": lift - 0.01, "high": lift + 0.01}}
    metrics = dict.fromkeys(WHATIF_MEASURES, entry)
    return {"points": [{"settings": {"auction.reserve_cpc": 0.5}, "metrics": metrics}]}


@pytest.fixture(scope="module")
def found():
    alone = {"features": [], "excess_auc": {}, "within_log": {"features": []}}
    return {
        "two_sample": {"requests": alone, "shown": alone},
        "whatifs": matching_whatifs([answer(0.02)], [answer(0.10)]),
        "statistics": [],
        "pairs": [],
        "hours": {"traffic_shift": 0.0, "days": {"log": 1.0, "world": 1.0}},
        "missing_columns": [],
    }


def test_rows_of_what_ifs_have_the_labels_that_every_table_has(found):
    labels = [row.label.removeprefix("auction.reserve_cpc = 0.5: ") for row in whatif_table(found).rows]
    assert labels == [arm_measure(name).label for name in WHATIF_MEASURES]
    assert labels[0] == arm_measure("expected_revenue_per_request").label


def test_a_lift_that_differs_is_told_with_its_label(found):
    said = known_gaps(found)
    assert len(said) == len(WHATIF_MEASURES) + 1 and said[-1] == UNSEEN
    label = f"“{arm_measure('expected_revenue_per_request').label}”"
    assert label in said[0] and tells(said[0], "+10.0", "+2.0")
    assert len([line for line in said if label in line]) == 1


def test_where_nothing_is_found_that_is_said_and_what_cannot_be_found(found):
    assert known_gaps({**found, "whatifs": []}) == [NOTHING, UNSEEN]
