"""Drawing all figures takes seconds: once a session for the made-up study, and once with hostile names."""

import pytest

from answers.report import hostile_metrics, make_metrics
from cascade_sim.analysis.report.page import draw_all


@pytest.fixture(scope="session")
def figures():
    """The figures of make_metrics(), name → SVG."""
    return draw_all(make_metrics())


@pytest.fixture(scope="session")
def hostile_figures():
    """The figures of hostile_metrics(), name → SVG."""
    return draw_all(hostile_metrics())
