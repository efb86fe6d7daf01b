"""Effort of the tests: share of examples and cases in `make test`, and folders built once in a session.

`make drill` tries all examples and cases.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from places import TESTS

USUAL, REDUCED = 100, 20  # examples of a Hypothesis test that asks for no number, and in `make test`
CASES = 12  # of a sweep in `make test`
WHOLE = (TESTS / "house", TESTS / "golden")  # rules that hold for every file, results: all cases, always


def load_profile(is_reduced: bool) -> None:
    """The same examples every time, and no limit that a busy machine could miss."""
    settings.register_profile(
        "steady",
        max_examples=REDUCED if is_reduced else USUAL,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("steady")


def examples(n: int) -> settings:
    """Settings with n examples, in `make test` with a fifth of them, at least 20."""
    share = settings().max_examples / USUAL
    return settings(max_examples=max(int(n * share), min(n, REDUCED)))


def spread(items: list[pytest.Item], expression: str) -> None:
    """Mark as drill what `make test` leaves to `make drill`.

    Of the cases of a test function these are all but CASES, or but n where it is marked few(n). A Hypothesis
    test is in both, with fewer examples in `make test`.
    """
    swept = defaultdict(list)
    for item in items:
        if expression == "drill" and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("drill")
        if hasattr(item, "callspec") and not item.get_closest_marker("drill"):
            swept[item.nodeid.partition("[")[0]].append(item)
    for cases in swept.values():
        few = cases[0].get_closest_marker("few")
        if few or not any(cases[0].path.is_relative_to(folder) for folder in WHOLE):
            for item in _rest(cases, few.args[0] if few else CASES):
                item.add_marker("drill")


def _rest(cases: list[pytest.Item], n: int) -> list[pytest.Item]:
    """All cases but n, in which the values of each parameter come up about equally often.

    The choice depends on the names of the cases alone.
    """
    left = sorted(cases, key=lambda item: crc32(item.name.encode()))
    used: Counter[tuple[str, int]] = Counter()
    for _ in range(min(n, len(left))):
        chosen = min(left, key=lambda item: sum(used[value] for value in item.callspec.indices.items()))
        used.update(chosen.callspec.indices.items())
        left.remove(chosen)
    return left


def built_once(name: str, build: Callable[[Path], object], factory: pytest.TempPathFactory) -> Path:
    """A folder of this process with what `build` writes into an empty one, once in a pytest session.

    The first test process that asks builds it, the others copy it.
    """
    own = factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / f"once-{name}"
    with FileLock(f"{shared}.lock"):
        if not shared.is_dir():
            part = factory.mktemp(name)
            build(part)
            part.rename(shared)
    return shutil.copytree(shared, factory.mktemp(name) / name)
