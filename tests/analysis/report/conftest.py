"""Drawing all figures takes seconds: once for all test processes, as they are and with hostile names."""

import json
import os

import pytest
from filelock import FileLock

from answers.report import hostile_metrics, make_metrics
from cascade_sim.analysis.report.page import draw_all


@pytest.fixture(scope="session")
def figures(tmp_path_factory):
    """The figures of make_metrics(), name → SVG."""
    return drawn_once("figures", make_metrics(), tmp_path_factory)


@pytest.fixture(scope="session")
def hostile_figures(tmp_path_factory):
    """The figures of hostile_metrics(), name → SVG."""
    return drawn_once("hostile", hostile_metrics(), tmp_path_factory)


def drawn_once(name: str, metrics: dict, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Drawn by the first process that asks; the others of the same pytest run read them."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / f"{name}.json"
    with FileLock(f"{shared}.lock"):
        if not shared.is_file():
            shared.write_text(json.dumps(draw_all(metrics)))
    return json.loads(shared.read_text())
