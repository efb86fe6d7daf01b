import pytest

from answers.compute import with_compute, without_compute
from answers.report import make_metrics, minimal_metrics
from cascade_sim.analysis.report.figures.compute import (
    busiest_stage,
    compute_hours,
    compute_latency,
    compute_value,
)
from cascade_sim.analysis.report.figures.style import style

DRAWN = (compute_latency, compute_hours, compute_value)


def made():
    return with_compute(make_metrics())


def drawn(draw, metrics):
    with style("test"):
        return draw(metrics)


def lines(axes):
    """(x, y) of the thick lines, one per arm."""
    return [line.get_xydata().T for line in axes.get_lines() if line.get_linewidth() > 1.5]


def test_the_share_answered_rises_to_all_that_were_in_time():
    (axes,) = drawn(compute_latency, made()).axes
    ends = [(x[-1], y[-1]) for x, y in lines(axes)]
    in_time = [(40.0, 100.0), (40.0, 100.0), (100.0, 90.0), (100.0, 80.0), (100.0, 70.0)]
    assert ends == [pytest.approx(end) for end in in_time]
    for x, y in lines(axes):
        assert (x[0], y[0]) == (0.0, 0.0) and all(a <= b for a, b in zip(y, y[1:], strict=False))
    hours, share = lines(axes)[2]
    assert share[hours == 20.0] == pytest.approx(45.0)  # half of the 90 % in time


def test_the_deadline_is_marked():
    (axes,) = drawn(compute_latency, made()).axes
    upright = [line.get_xdata()[0] for line in axes.get_lines() if line.get_linewidth() <= 1.5]
    assert upright == [100.0]


def test_load_is_that_of_the_busiest_servers_of_the_baseline():
    metrics = made()
    assert busiest_stage(metrics) == "ranking"
    load, late = drawn(compute_hours, metrics).axes
    assert "ranking servers" in load.get_title("left") and len(load.patches) == 5
    assert list(load.patches[0].get_data().values) == pytest.approx([30.0] * 24)
    assert late.patches[2].get_data().values[12] == pytest.approx(20.0)  # twice 10 % at noon
    for stage in ("ranking", "pre_ranking"):
        metrics["market"]["arms"]["logloss"]["compute"]["stages"][stage]["utilisation"] = 0.01
    assert "retrieval servers" in drawn(compute_hours, metrics).axes[0].get_title("left")


def test_every_arm_is_a_point_of_cost_and_revenue_with_its_late_requests():
    metrics = made()
    (axes,) = drawn(compute_value, metrics).axes
    points = [line.get_xydata()[0].tolist() for line in axes.get_lines()]
    arms = metrics["market"]["arms"]
    wanted = [[10 + 0.2 * a["compute"]["mean_size"], 1000 * a["revenue_per_request"]] for a in arms.values()]
    assert sorted(points) == [pytest.approx(point) for point in sorted(wanted)]
    assert any(text.get_text() == "distill-pre (30.0 % late)" for text in axes.texts)


def test_hours_run_on_over_the_days():
    metrics = made()
    for arm in metrics["market"]["arms"].values():
        hours = arm["compute"]["hours"]
        hours["late"] *= 2
        hours["utilisation"] = {name: values * 2 for name, values in hours["utilisation"].items()}
    assert all(axes.get_xlim() == (0.0, 48.0) for axes in drawn(compute_hours, metrics).axes)


@pytest.mark.parametrize("draw", DRAWN)
def test_nothing_is_drawn_without_data(draw):
    assert drawn(draw, minimal_metrics()) is None
    assert drawn(draw, without_compute(make_metrics())) is None
    metrics = made()
    for arm in metrics["market"]["arms"].values():
        arm["compute"] = {"latency": None, "hours": {}, "stages": None}
    assert drawn(draw, metrics) is None
