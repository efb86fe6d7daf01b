import re

import pytest

from answers.ltr import made_findings
from answers.told import tells
from cascade_sim.analysis.report.figures.ltr import drift_figure, pareto_figure
from cascade_sim.analysis.report.figures.style import LEAST, style, svg_text


def drawn(make, findings):
    with style("x"):
        figure = make(findings)
        return figure, svg_text(figure, "x", "title")


def test_the_pareto_plot_has_every_objective_and_the_frontier():
    figure, svg = drawn(pareto_figure, made_findings())
    axes = figure.axes[0]
    assert axes.get_xscale() == "log" and "LogLoss" in axes.get_xlabel()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["pointwise", "rcr", "frontier"]
    lines = {line.get_label(): line for line in axes.lines}
    pieces = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata())]
    assert "frontier" in lines and pieces == []  # it is a single point
    assert lines["rcr"].get_xydata().tolist() == [[0.4, 0.6]]  # its cell at (0.5, 0.4) is beaten
    points = [tuple(p) for line in axes.lines for p in line.get_xydata()]
    assert (0.5, 0.4) in points and "<svg" in svg


def test_objectives_beyond_the_palette_differ_in_their_marker():
    findings = made_findings()
    findings["cells"] = [
        {"objective": f"o{i}", "alpha": None, "learning_rate": 1, "seed": 1, "ndcg": 0.5, "loss": 1.0 + i}
        for i in range(16)
    ]
    figure, _ = drawn(pareto_figure, findings)
    looks = {
        line.get_label(): (line.get_color(), line.get_marker())
        for line in figure.axes[0].lines
        if line.get_label().startswith("o")
    }
    assert len(looks) == 16 and len(set(looks.values())) == 16


def test_the_drift_plot_has_a_panel_per_objective_and_a_line_per_seed():
    curve = {"points": [0.0, 1.0, None], "stable": False}
    flat = {"points": [1.0, 1.0, 1.0], "stable": True}
    short = {"points": [1.0], "stable": None}
    findings = {"curves": {"softmax": {"1": curve, "2": flat}, "rcr": {"1": short}}}
    figure, svg = drawn(drift_figure, findings)
    panels = [axes for axes in figure.axes if axes.axison]
    assert tells(panels[0].get_title(loc="left"), "1 of 2") and tells(
        panels[1].get_title(loc="left"), "too short"
    )
    assert [len(axes.lines) for axes in panels] == [2, 1]
    assert "softmax" in svg


@pytest.mark.parametrize("make", [pareto_figure])
def test_figures_repeat_to_the_byte(make):
    assert drawn(make, made_findings())[1] == drawn(make, made_findings())[1]


def test_what_is_drawn_of_an_objective_is_marked_with_its_name():
    findings = made_findings()
    findings["cells"].append({**findings["cells"][0], "ndcg": 0.3, "loss": 0.2})
    curves = {name: {"1": {"points": [1.0, 1.0], "stable": True}} for name in ("pointwise", "rcr")}
    _, pareto = drawn(pareto_figure, findings)
    _, drift = drawn(drift_figure, {"curves": curves})
    for svg in (pareto, drift):
        assert set(re.findall(r'<g data-arm="([^"]+)">', svg)) == {"pointwise", "rcr"}
    assert re.findall(r'<g data-arms="([^"]+)">', pareto)  # the frontier joins two objectives


@pytest.mark.parametrize("make", [pareto_figure, drift_figure])
def test_a_phone_can_read_the_lettering(make):
    """Figures as wide as those of the reports, and no lettering below theirs."""
    curve = {"points": [0.0, 1.0], "stable": False}
    findings = {**made_findings(), "curves": {f"o{i}": {"1": curve} for i in range(5)}}
    figure, svg = drawn(make, findings)
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", svg)]
    assert figure.get_size_inches()[0] < 4.5 and min(sizes) >= LEAST
