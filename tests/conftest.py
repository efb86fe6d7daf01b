"""Fixtures of the engine's tests: a tiny market, and one finished study of it per test process."""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch: tests share the machine

import numpy as np
import pytest

from effort import load_profile, spread
from worlds.tiny_market import Study, run_phases, tiny_scenario


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-case", action="store_true", help='shorten no sweep, also with -m "not drill"')


def pytest_configure(config: pytest.Config) -> None:
    load_profile(config.option.markexpr == "not drill" and not config.option.every_case)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.option.every_case:
        spread(items, config.option.markexpr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """CPU time of the session; `make test` should stay under 8 minutes.

    The test processes of xdist have ended by now, so they are among the children.
    """
    user, system, of_children, in_system, _ = os.times()
    minutes = (user + system + of_children + in_system) / 60
    terminalreporter.write_line(f"CPU time of all processes: {minutes:.1f} minutes")


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not look at it again.

    Of what comes later it looks at more at a time: trees of sources and figures are many small objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@cache
def _has_device() -> bool:
    import torch

    return torch.cuda.is_available() or torch.backends.mps.is_available()


def _rewind() -> None:
    """The generators that a library shares begin at the same point, whatever ran before in this process."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        # Without a device the one of the CPU: torch.manual_seed formats the stack for each kind of device,
        # which takes most of a millisecond, several times in a test.
        (torch.manual_seed if _has_device() else torch.default_generator.manual_seed)(0)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup() -> None:
    _rewind()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    _rewind()


@pytest.fixture(autouse=True, scope="session")
def no_shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test, and no fixture of a module, reads or leaves trained models in the home of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CASCADE_SIM_CACHE", str(tmp_path_factory.getbasetemp() / "models"))
        yield


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The tiny market after all its phases."""
    return run_phases(tiny_scenario(), tmp_path_factory.mktemp("study"), tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tiny market before any training: world, truth, platform and the built-in seats."""
    from cascade_sim.study.simulation import Simulation

    scenario = tiny_scenario()
    return Simulation(scenario, scenario.seed)


@pytest.fixture(scope="session")
def block(sim: Any) -> Any:
    """The first 128 requests of the evaluation."""
    return sim.arrivals.block("evaluate", 0, 500)
