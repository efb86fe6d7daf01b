"""Drawing all figures takes seconds: once for all test processes, as they are and with hostile names."""

import json

import pytest

from answers.report import hostile_metrics, make_metrics
from cascade_sim.analysis.report.page import draw_all
from effort import built_once


@pytest.fixture(scope="session")
def figures(tmp_path_factory):
    """The figures of make_metrics(), name → SVG."""
    return drawn_once("figures", make_metrics(), tmp_path_factory)


@pytest.fixture(scope="session")
def hostile_figures(tmp_path_factory):
    """The figures of hostile_metrics(), name → SVG."""
    return drawn_once("hostile", hostile_metrics(), tmp_path_factory)


def drawn_once(name: str, metrics: dict, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    def draw(folder):
        (folder / "figures.json").write_text(json.dumps(draw_all(metrics)))

    return json.loads((built_once(name, draw, tmp_path_factory) / "figures.json").read_text())
