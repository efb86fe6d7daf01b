import pytest

from answers.alpha_sweep import with_sweep, without_sweep
from answers.report import SCENARIO_TEXT, make_manifest, make_metrics
from answers.section_text import clauses, says, section_text
from cascade_sim.analysis.metrics.pareto import sweep_points
from cascade_sim.analysis.report.figures.pareto import pareto
from cascade_sim.analysis.report.page import render
from cascade_sim.analysis.report.sections.pareto import best_table, pareto_section, pareto_words, wins_table


@pytest.fixture
def metrics():
    return with_sweep(make_metrics())


def row_of(table, label):
    return next(row for row in table.rows if row.label.endswith(label))


def test_a_study_without_a_sweep_has_no_section(metrics):
    assert pareto_section(without_sweep(make_metrics())) is None
    for arm in ("rcr-b", "mo-b"):  # one point left in every family
        del metrics["objectives"]["sweep"]["points"][arm]
    assert pareto_section(metrics) is None and pareto(metrics) is None


def test_words_name_the_frontier_and_who_wins(metrics):
    words = pareto_words(metrics, sweep_points(metrics))
    assert says(clauses(words)[0], "frontier", "GAUC", "LogLoss", "softmax", "rcr (α 0.1, 0.9)")
    assert "pointwise" not in words and "multi_objective" not in words
    assert says(words, "Beyond noise", "no point", "beaten")
    # 3 of 2 + 2 + 4
    assert says(words, "2 families", "rcr", "wins the most", "38 %", "loses the fewest", "0 %")


def test_words_name_a_family_that_is_beaten_at_every_point(metrics):
    gaps = metrics["objectives"]["sweep"]["gaps"]
    gaps["point"]["rcr-a"]["logloss"]["low"] = 0.001  # pointwise is behind in both
    words = pareto_words(metrics, sweep_points(metrics))
    assert says(words, "Beyond noise", "pointwise", "beaten at every point")
    assert says(words, "5 of the 6", "unbeaten", "softmax", "rcr", "multi_objective")


def test_the_table_of_wins_counts_games_and_marks_what_is_beyond_noise(metrics):
    table = wins_table(metrics)
    assert sum(width for _, width in table.groups) == len(table.columns) == len(table.rows[0].cells)
    cells = [cell.text for cell in row_of(table, "rcr").cells]
    assert cells[:4] == ["8", "38", "0", "62"]  # 3 won and 5 neither, of 8
    assert cells[4:7] == ["8", "0", "0"]
    assert cells[7:] == ["50", "0", "·", "50"]  # 1 of 2, 0 of 2, itself, 2 of 4
    metrics["objectives"]["sweep"]["gaps"]["point"]["rcr-a"]["logloss"]["low"] = 0.001
    sure = wins_table(metrics)
    assert [c.tone for c in row_of(sure, "rcr").cells[7:]] == ["up", "", "", ""]
    assert [c.tone for c in row_of(sure, "pointwise").cells[7:]] == ["", "", "down", ""]


def test_each_family_is_shown_at_its_best_point_the_least_loss_first(metrics):
    table = best_table(metrics, sweep_points(metrics))
    assert [(row.label, row.hint, row.tag) for row in table.rows] == [
        ("pointwise", "point", ""),
        ("rcr", "rcr-b", "frontier"),
        ("multi_objective", "mo-b", ""),
        ("softmax", "soft", "frontier"),
    ]
    assert sum(width for _, width in table.groups) == len(table.columns) == len(table.rows[0].cells)
    assert table.rows[1].cells[0].text == "α 0.9" and table.rows[1].cells[1].text == "0.6500"
    shown = metrics["arms"]["rcr-b"]["welfare_vs_oracle"]["value"]
    assert float(table.rows[1].cells[-1].text) == pytest.approx(100 * shown, abs=0.1)  # in percent


def test_the_page_states_the_rule_and_where_the_noise_comes_from(metrics):
    def page():
        return render(metrics, make_manifest(), SCENARIO_TEXT, {"pareto": "<svg></svg>"})

    alone = section_text(page(), "pareto")
    assert says(alone, "as good in both", "GAUC", "LogLoss")
    assert "resampling requests" in alone and "between worlds" not in alone
    assert 'id="figure-pareto"' in page()
    metrics["seeds"] = {"n": 5, "seeds": [1, 2, 3, 4, 5]}
    several = section_text(page(), "pareto")
    assert "in each world" in several and says(several, "better side in both", "between worlds")
