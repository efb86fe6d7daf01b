import copy

import pytest

from answers.report import make_metrics, minimal_metrics
from answers.section_text import says
from answers.with_objectives import RANKERS, with_objectives
from cascade_sim.analysis.report.figures.objectives import (
    miscalibration,
    objective_reliability,
    reliability_points,
)
from cascade_sim.analysis.report.figures.style import drawn
from cascade_sim.analysis.report.sections.objectives import (
    model_value,
    objective_arms,
    objectives_money_table,
    objectives_section,
    objectives_words,
    quality_table,
    rank_correlation,
)
from cascade_sim.study.results import combine_seeds


@pytest.fixture
def metrics():
    return with_objectives(make_metrics())


def test_a_study_of_one_objective_has_no_section():
    plain_study = make_metrics()
    del plain_study["objectives"]
    for plain in (plain_study, minimal_metrics()):
        assert objectives_section(plain) is None
        assert miscalibration(plain) is None and objective_reliability(plain) is None


def test_rows_are_rankers_with_what_they_are_trained_for(metrics):
    table = quality_table(metrics)
    assert [(row.label, row.kind, row.hint) for row in table.rows] == [
        ("logloss", "baseline", "pointwise"),
        ("distill-pre", "", "softmax, then platt"),
        ("ltr", "", "softmax"),
    ]  # the least LogLoss first
    assert sum(width for _, width in table.groups) == len(table.columns) == len(table.rows[0].cells)
    cells = dict(zip(table.columns[:5], (cell.text for cell in table.rows[2].cells), strict=False))
    assert cells["GAUC"] == "0.6400" and cells["PCOC"] == "7.800" and cells["LogLoss"] == "2.5000"
    assert table.rows[0].cells[table.columns.index("ECE")].text == "0.0040"  # beside one of 0.54


def test_prices_stand_beside_what_was_shown(metrics):
    table = objectives_money_table(metrics)
    assert table.columns[:3] == ["RCS %", "CTR lift %", "RPM lift %"] and len(table.columns) == 6
    assert table.rows[0].cells[1].text == "0"  # the baseline's lift over itself


def test_words_name_the_best_and_who_is_off_the_scale(metrics):
    words = objectives_words(metrics)
    assert says(words, "ltr", "best", "GAUC", "logloss", "least LogLoss")
    assert says(words, "Off the scale: ltr (PCOC 7.80)")  # 0.70 is within a factor of 1.5
    assert not says(words, "Off the scale", "distill-pre")
    assert says(words, "CPC error", "ECE", "+1.00") and says(words, "welfare", "CPC error", "−1.00")


def test_a_rank_correlation_needs_three_pairs_that_differ():
    assert rank_correlation([1, 2, 3, None], [1, 4, 9, 0]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert (
        rank_correlation([1, 2, None], [3, 2, 1]) is None and rank_correlation([1, 1, 1], [3, 2, 1]) is None
    )


def test_reliability_is_the_mean_truth_by_bin_of_the_prediction(metrics):
    """Bins 0.05 and 0.2; the bin of 0.1 impressions is too small to be drawn, the empty one has no mean."""
    assert reliability_points(metrics, "ltr") == [
        (pytest.approx(0.05), pytest.approx(0.05 / 7.8)),
        (pytest.approx(0.2), pytest.approx(0.2 / 7.8)),
    ]
    assert reliability_points(metrics, "nobody") == []


def test_small_bins_are_pooled_until_they_mean_something(metrics):
    """Two bins of 1 in 102 are 1.96 % and wait for the third: (0.1 + 0.3 + 20) / 102 predicted."""
    curve = {"count": [1.0, 1.0, 100.0], "predicted": [0.1, 0.3, 20.0], "truth": [1.0, 0.0, 10.0]}
    metrics["objectives"]["reliability"]["ltr"] = curve
    assert reliability_points(metrics, "ltr") == [(pytest.approx(20.4 / 102), pytest.approx(11 / 102))]


def test_figures_hold_every_ranker(metrics):
    for draw in (objective_reliability, miscalibration):
        svg = drawn(draw, metrics, "x", "title")
        assert all(arm in svg for arm in RANKERS)


def test_a_ranker_whose_scale_is_unknown_is_left_out_of_the_figure_and_shown_as_missing(metrics):
    metrics["models"]["ltr"]["win_set"]["ece"] = None
    assert model_value(metrics, "ltr", "ece").value is None
    assert "ltr" not in drawn(miscalibration, metrics, "x", "title")
    assert objectives_section(metrics) is not None


def test_several_worlds_keep_the_section(metrics):
    worlds = [{"objectives": copy.deepcopy(metrics["objectives"]), "seed": seed} for seed in (1, 2)]
    worlds[1]["objectives"]["reliability"]["ltr"]["count"][0] = 300.0
    combined = combine_seeds(worlds)
    assert objective_arms({**metrics, **combined}) == objective_arms(metrics)
    assert combined["objectives"]["reliability"]["ltr"]["count"][0] == (100 + 300) / 2
