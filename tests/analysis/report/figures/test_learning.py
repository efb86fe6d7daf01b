import pytest

from answers.learning import fixed_metrics, learning_metrics
from answers.report import minimal_metrics
from cascade_sim.analysis.report.figures.learning import learning_recall, learning_revenue
from cascade_sim.analysis.report.figures.style import style

DRAWN = [learning_recall, learning_revenue]


def drawn(draw, metrics):
    with style("learning"):
        return draw(metrics)


def test_recall_is_a_line_per_arm_with_its_band_in_ranking_and_on_the_page():
    ranked, gap, shown = drawn(learning_recall, learning_metrics()).axes
    lines = [line for line in ranked.get_lines() if len(line.get_xdata()) == 3]
    assert [list(line.get_ydata()) for line in lines] == [[20, 60, 50], [20, 65, 60]]
    assert list(lines[0].get_xdata()) == [0, 24, 48] and ranked.get_xlim() == (0, 48)
    assert len(ranked.collections) == len(shown.collections) == 2
    assert [list(line.get_ydata()) for line in gap.get_lines() if len(line.get_xdata()) == 3] == [[0, 5, 10]]
    assert len(gap.collections) == 1 and "than logloss" in gap.get_title("left")
    edges = ranked.collections[0].get_paths()[0].vertices[:, 1]
    assert (edges.min(), edges.max()) == (pytest.approx(18), pytest.approx(62))


def test_revenue_is_a_point_per_day_with_its_interval():
    (axes,) = drawn(learning_revenue, learning_metrics()).axes
    points = [line for line in axes.get_lines() if line.get_marker() == "o"]
    assert [list(line.get_ydata()) for line in points] == [[1.5, 2.5], [1.5 * 0.96, 2.5 * 0.96]]
    assert len(axes.get_lines()) == 2 + 4  # a bar for every arm and day
    assert points[0].get_xdata()[0] < 1 < points[1].get_xdata()[0]  # side by side


def test_values_without_an_interval_have_no_band():
    metrics = learning_metrics()
    for arm in ("logloss", "ltr"):
        section = metrics["market"]["arms"][arm]["learning"]
        section["recall"] = [{"value": r["value"], "low": None, "high": None} for r in section["recall"]]
        section["revenue_by_day"] = [{"value": day["value"]} for day in section["revenue_by_day"]]
    ranked, _, shown = drawn(learning_recall, metrics).axes
    assert len(ranked.collections) == 0 and len(shown.collections) == 2
    assert len(drawn(learning_revenue, metrics).axes[0].get_lines()) == 2


@pytest.mark.parametrize("draw", DRAWN)
def test_nothing_is_drawn_where_models_stay(draw):
    assert drawn(draw, fixed_metrics()) is None and drawn(draw, minimal_metrics()) is None
