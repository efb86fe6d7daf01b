import copy
import re

import pytest

from answers.critical_bids import make_critical_bids
from answers.report import make_metrics, minimal_metrics
from cascade_sim.analysis.report.figures.critical_bids import critical_bids
from cascade_sim.analysis.report.figures.style import style, svg_text


def drawn(metrics):
    with style("critical_bids"):
        figure = critical_bids(metrics)
        return None if figure is None else svg_text(figure, "critical_bids", "title")


@pytest.fixture(scope="module")
def metrics():
    return make_metrics()


def test_every_arm_has_a_panel_with_its_gap(metrics, figures):
    svg = figures["critical_bids"]
    for arm, row in metrics["critical_bids"]["arms"].items():
        assert f">{arm}<" in svg
        gap = row["gap_share"]["value"]
        assert (f">gap {100 * gap:.1f} %<" if gap else ">no gap<") in svg
    assert all(f">{name}<" in svg for name in ("in the auction", "through the cascade", "gap"))


def test_curves_and_area_are_those_of_the_data(metrics):
    with style("critical_bids"):
        axes = critical_bids(metrics).axes
    for panel in axes:
        arm = next(name for name in metrics["critical_bids"]["arms"] if name == panel.get_title(loc="left"))
        distribution = metrics["critical_bids"]["arms"][arm]["distribution"]
        local, cascade = (line.get_ydata() for line in panel.get_lines())
        assert list(local) == pytest.approx([100 * y for y in distribution["local"]])
        assert list(cascade) == pytest.approx([100 * y for y in distribution["cascade"]])
        assert panel.get_xlim() == (60.0, 100.0)  # below, nobody needs so little


def test_arms_without_impressions_or_numbers_are_left_out(metrics):
    other = copy.deepcopy(metrics)
    other["critical_bids"]["arms"]["ltr"]["impressions"] = 0
    other["critical_bids"]["arms"]["random"]["distribution"]["local"][3] = None
    other["critical_bids"]["arms"]["ranker"] = None
    svg = drawn(other)
    assert not re.search(">(ltr|random|ranker)<", svg) and ">logloss<" in svg


def test_one_arm_alone_and_none(metrics):
    alone = {**metrics, "critical_bids": make_critical_bids(["logloss"])}
    assert drawn(alone).count(">no gap<") == 0
    assert drawn(minimal_metrics()) is None
    assert drawn({**metrics, "critical_bids": {"requests": 200, "arms": {}}}) is None
