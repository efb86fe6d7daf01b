import json

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.analysis.report.figures.style import style
from cascade_sim.analysis.theory import report as theory_report
from cascade_sim.analysis.theory.measures import gppms
from cascade_sim.analysis.theory.study import BoundCheck, study_bounds

MISORDERS = {"DCG@3": {"share": 0.5, "regret": 0.02}}


@pytest.fixture(scope="module")
def outcomes():
    return study_bounds(2, measures={name: gppms(3)[name] for name in ("DCG@3", "AUC")})


def test_the_figure_has_a_panel_per_loss_and_every_point_below_its_line(outcomes):
    with style("test"):
        figure = theory_report.regret_figure(outcomes)
        figure.canvas.draw()
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == list(outcomes)
    for axes in panels:
        *clouds, line = axes.get_lines()
        assert len(clouds) == 2
        np.testing.assert_allclose(line.get_ydata() ** 2, line.get_xdata())
        for cloud in clouds:
            x, y = cloud.get_data()
            assert len(x) > 5 and (y <= np.sqrt(x) * (1 + 1e-6)).all()
    labels = [text.get_text() for text in panels[-1].get_xticklabels()]
    assert "0.0001" in labels and not any("$" in label for label in labels)


def test_the_text_says_what_was_found(outcomes):
    text = theory_report.text(outcomes, MISORDERS)
    points = sum(o.regret.size for found in outcomes.values() for o in found.values())
    assert tells(text.splitlines()[0], f"{points:,} points", 0)
    for part in (*outcomes, "50.0%", "2.00%", "+1/48", "-1/24", "in every mixture: 0.4 0.4 0.6"):
        assert part in text


def test_a_broken_bound_is_said():
    broken = BoundCheck(np.array([1.0]), np.array([3.0]), np.array([1e-12]), 0.0, 0.0)
    assert ", 1 above their bound." in theory_report.text({"loss": {"measure": broken}}, MISORDERS)


def test_numbers_are_plain_json(outcomes):
    found = json.loads(json.dumps(theory_report.numbers(outcomes, MISORDERS), allow_nan=False))
    assert found["bounds"]["pairwise squared"]["AUC"]["violations"] == 0
    gap = found["equal_utilities"]["ERR"]["1-3-2-4"] - found["equal_utilities"]["ERR"]["1-2-3-4"]
    assert gap == pytest.approx(1 / 48)
    assert found["ranknet_misorders"] == MISORDERS
    assert len(found["regression_and_ranking"]["SoftmaxCE"]) == 4
