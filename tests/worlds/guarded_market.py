"""A market without training whose revenue can be guarded: the truth ranks, chance pre-ranks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

PLAIN = """\
name: plain
world: {users: 150, ads: 600, advertisers: 60, base_logit: -3.0, slot_effects: [1.0, 0.8, 0.6]}
cascade:
  retrieval: {size: 60}
  pre_ranking: {size: 15, model: random, bid: none}
  ranking: {model: truth}
  slots: 3
traffic: {block: 128}
phases: {cold_start: 0, log: 0, exploration: 0, shadow: 0, evaluate: 512}
arms:
  production: {}
  cheap: {pre_ranking: {size: 8}}
report: {resamples: 50, detail_requests: 32}
"""


def write_plain(folder: Path, name: str = "plain.yaml") -> Path:
    """The scenario file of that market."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(PLAIN)
    return file


def measure_plain(folder: Path, *overrides: str, stretch: int = 0) -> Any:
    """The market run for its sums."""
    from cascade_sim.context import scratch_context
    from cascade_sim.regression.serving import measure_scenario
    from cascade_sim.scenario.file import load_scenario

    file = write_plain(folder)
    with scratch_context() as context:
        return measure_scenario(load_scenario(file, overrides), str(file), context, stretch=stretch)


_FOLDER: TemporaryDirectory = TemporaryDirectory(prefix="revenue-tests-")  # gone when the tests are


def plain_home() -> Path:
    """A folder with the scenario file, shared by the tests of a process."""
    write_plain(Path(_FOLDER.name))
    return Path(_FOLDER.name)


@cache
def plain_measured() -> Any:
    """The market, run once."""
    return measure_plain(plain_home())


@cache
def plain_baseline() -> Path:
    """Its baseline file."""
    from cascade_sim.regression.baseline import write_baseline

    file = plain_home() / "plain.json"
    write_baseline(plain_measured(), file)
    return file


@cache
def plain_run() -> Path:
    """The run folder of the same market."""
    from cascade_sim.cli import main

    out = plain_home() / "run"
    words = ["run", str(plain_home() / "plain.yaml"), "--out", str(out), "--workers", "1", "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cascade_sim.study.run.write_report", lambda *_: None)  # nobody looks at the page
        assert main(words) == 0
    return out
