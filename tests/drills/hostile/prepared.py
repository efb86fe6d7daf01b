"""What all cases start from, made once: tiny scenarios, finished and stopped runs, the steps they take."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drills.hostile.commands import OPTIONS, Answer, Process, here, no_figures
from drills.hostile.steps import Steps, kill
from worlds.stoppable_runs import contents, differences

PLAIN = """\
name: plain
seed: 3
world: {users: 60, ads: 150, advertisers: 15, base_logit: -2.0, slot_effects: [1.0, 0.7]}
cascade: {retrieval: {size: 20}, pre_ranking: {model: small, size: 6}, slots: 2}
traffic: {block: 64}
models:
  rank:
    {kind: coaction, features: [user, quality, G1], hidden: 8, dims: 4, epochs: 1, calibrator: platt,
     held_out: 0.3}
  small: {features: [user, quality], dims: 4, hidden: 4, epochs: 1, data: [log]}
phases: {cold_start: 128, log: 128, exploration: 0.2, shadow: 0, evaluate: 64}
arms:
  now: {}
  first: {auction: {pricing: first}}
report: {baseline: now, resamples: 5, detail_requests: 4}
"""
MARKET = (
    PLAIN.replace("name: plain", "name: market")
    + """\
market: {days: 0.05, requests_per_second: 0.05, window: 600, update: 600, checkpoint: 1200}
"""
)
SCENARIOS = {"plain": PLAIN, "market": MARKET}


@dataclass
class Prepared:
    """The folder of a drill, and what has been made in it so far."""

    folder: Path
    whole: dict[str, dict[str, bytes]] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)  # of the steps of a run, by scenario
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        """Trained models of undisturbed runs."""
        return self.folder / "cache"

    def scenario(self, name: str) -> Path:
        path = self.folder / f"{name}.yaml"
        if not path.exists():
            path.write_text(SCENARIOS[name])
        return path

    def words(self, name: str, out: Path, *more: str) -> list[str]:
        """The command that runs a scenario."""
        return ["run", str(self.scenario(name)), "--out", str(out), *OPTIONS, *more]

    def finished(self, name: str) -> Path:
        """The folder of an undisturbed run. The first one compiles in this process what later ones need."""
        out = self.folder / f"whole-{name}"
        if name not in self.whole:
            no_figures()
            os.environ["CASCADE_SIM_CACHE"] = str(self.cache)
            answer = here(self.words(name, out))
            assert answer.code == 0, answer.err
            self.whole[name] = contents(out)
        return out

    def steps(self, name: str) -> list[str]:
        """The steps of writing of an undisturbed run with nothing trained before, in order."""
        if name not in self.labels:
            self.finished(name)
            place = self.place(f"steps-{name}")
            out, cache, log = place / "out", place / "cache", place / "steps.json"
            steps = Steps([out, cache], set(), lambda what: None)
            answer = Process(
                self.words(name, out), place, cache=cache, first=steps.plant,
                last=lambda: log.write_text(json.dumps(steps.labels)) and None,
            ).answer()  # fmt: skip
            assert answer.code == 0, answer.err
            assert differences(contents(out), self.whole[name]) == []
            self.labels[name] = json.loads(log.read_text())
            shutil.rmtree(place)
        return self.labels[name]

    def stopped(self, name: str, at: int) -> Path:
        """A run that was killed before this step; its models are in the cache of undisturbed runs."""
        place = self.folder / f"stopped-{name}-{at}"
        if not place.exists():
            place.mkdir()
            out, cache = place / "out", place / "cache"
            steps = Steps([out, cache], {at}, kill)
            answer = Process(self.words(name, out), place, cache=cache, first=steps.plant).answer()
            assert answer.code == -9, answer
        return place / "out"

    def place(self, name: str) -> Path:
        """A new, empty folder."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def make(self, name: str, how: Callable[[], Any]) -> Any:
        """Something that one kind of case needs, made once."""
        if name not in self.kept:
            self.kept[name] = how()
        return self.kept[name]


def left_behind(place: Path) -> list[str]:
    """Temporary files and folders that an ended command has left."""
    found = [path for path in place.rglob("*") if path.name.endswith(".tmp") or path.name == ".lock"]
    return sorted(str(path.relative_to(place)) for path in (*found, *(place / "tmp").glob("*")))


def check_same(prepared: Prepared, name: str, out: Path, answer: Answer) -> str:
    """What is not as in the undisturbed run; empty if all is."""
    if answer.code != 0:
        return f"exit code {answer.code}"
    other = differences(contents(out), prepared.whole[name])
    return f"differs: {', '.join(other[:4])}" if other else ""
