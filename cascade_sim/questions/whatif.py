"""What-ifs: the evaluation served again with some knobs turned and everything else as it was.

Requests, users, luck (each draw is keyed by request and ad), world, trained models and the advertisers' bids
are the same on both sides, so what is left of a difference is the knob's own. `what_if_study` asks a finished
run, `what_if_section` a study that has just been evaluated; both go through `ask`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cascade_sim.cascade.serve import Arm
from cascade_sim.errors import UserError
from cascade_sim.phases.results import combine_sections
from cascade_sim.phases.simulation import Simulation
from cascade_sim.progress import Progress
from cascade_sim.questions.reopen import reopen
from cascade_sim.questions.whatif_evaluation import WhatIfEvaluation
from cascade_sim.scenario.changes import Point, parse_points, turn
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.schema import ArmSpec, Scenario, resolved_arms
from cascade_sim.storage.folder import open_run
from cascade_sim.suggest import unknown_name
from cascade_sim.version import SEMANTICS

TODAY = "today"
HELD_FIXED = (
    "the world, and the models as they were trained",
    "the traffic: the same requests by the same users",
    "the luck: an ad that both sides show in the same slot of a request is clicked on both or on neither",
    "the advertisers' bids: nobody reacts to the change",
    "budgets: endless, as in the evaluation",
)
NO_EXPOSURE = "the run's log is gone, so measures split by exposure are left out"

SeatArm = Callable[[str, ArmSpec, Scenario], Arm]  # an arm ready to serve, with the scenario's fusions


@dataclass(frozen=True)
class Question:
    """One or more ways to serve, each held against the arm as it is."""

    points: tuple[Point, ...]

    @property
    def knob(self) -> str | None:
        """The knob that has several values; None if there is one way only."""
        if len(self.points) < 2:
            return None
        varied = zip(*self.points, strict=True)
        return next(changes[0].path for changes in varied if len({repr(c.value) for c in changes}) > 1)


@dataclass(frozen=True)
class Setting:
    """Where what-ifs are asked: a simulation with its logs, the arm, and how arms get their seats."""

    sim: Simulation
    logs: Path
    arm: str
    spec: ArmSpec
    seat: SeatArm


def ask(
    where: Setting, questions: Mapping[str, Question], progress: Progress, n_requests: int = 0
) -> dict[str, dict[str, Any]]:
    """Serve once for all questions together. {name of the question: its answer, as JSON holds it}.

    Raises Refused (whatif_knobs) for a change that the scenario's rules forbid, before anything is served.
    """
    scenario = where.sim.scenario
    arms = {TODAY: where.seat(where.arm, where.spec, scenario)}
    turned = {
        (name, i): turn(scenario, where.spec, point, where.logs)
        for name, question in questions.items()
        for i, point in enumerate(question.points)
    }
    served: dict[tuple[str, int], str] = {}  # ways to serve that are asked about twice are served once
    for place, (changed, spec) in turned.items():
        same = next(
            (p for p in served if turned[p][1] == spec and turned[p][0].fusions == changed.fusions), None
        )
        served[place] = served[same] if same else f"point {len(arms)}"
        if same is None:
            arms[served[place]] = where.seat(where.arm, spec, changed)
    baseline = scenario.report.baseline
    ruler = where.seat(baseline, resolved_arms(scenario)[baseline], scenario)
    evaluation = WhatIfEvaluation(where.sim, where.logs, arms, ruler, n_requests)
    evaluation.serve(progress)
    with progress.stage("intervals", 1, "tables"):
        measured = evaluation.metrics(TODAY)
        return {
            name: {
                "arm": where.arm,
                "requests": evaluation.n_requests,
                "knob": question.knob,
                "today": {
                    "settings": _settings_today(scenario, where.spec, question),
                    "metrics": measured[TODAY],
                },
                "points": [
                    {
                        "settings": {change.path: change.value for change in point},
                        "metrics": measured[served[name, i]],
                        "pairing": _logarithms(evaluation.pairing(TODAY, served[name, i])),
                    }
                    for i, point in enumerate(question.points)
                ],
                "held_fixed": list(HELD_FIXED),
                "notes": [] if evaluation.has_exposure else [NO_EXPOSURE],
            }
            for name, question in questions.items()
        }


def _logarithms(worths: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Natural logarithms: over several worlds the mean is then one of factors, with an interval above 0."""
    return {
        kind: {"log_times": {key: None if x is None else math.log(x) for key, x in worth.items()}}
        for kind, worth in worths.items()
    }


def _settings_today(scenario: Scenario, spec: ArmSpec, question: Question) -> dict[str, Any]:
    """What the turned knobs are in the arm as it is; None for what it does not have."""
    from cascade_sim.scenario.changes import overrides_of

    now: dict[str, Any] = {**overrides_of(spec), "fusions": scenario.model_dump(mode="json")["fusions"]}
    found = {}
    for change in question.points[0]:
        value: Any = now
        for step in change.knob:
            value = value.get(step) if isinstance(value, dict) else None
        found[change.path] = value
    return found


def what_if_section(sim: Simulation, logs: Path, progress: Progress) -> dict[str, Any]:
    """The scenario's own questions, of its baseline, for metrics.json."""
    scenario = sim.scenario
    baseline = scenario.report.baseline
    questions = {
        name: Question(tuple(parse_points(words, scenario, baseline)))
        for name, words in scenario.what_if.items()
    }

    def seat(name: str, spec: ArmSpec, changed: Scenario) -> Arm:
        return _with_scenario(sim, changed).arm(name, spec)

    return ask(Setting(sim, logs, baseline, resolved_arms(scenario)[baseline], seat), questions, progress)


def what_if_study(
    run: Path,
    read_points: Callable[[Scenario, str], list[Point]],
    arm: str | None = None,
    n_requests: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """One question to a finished run, or to every world of a study over several.

    `read_points` turns the user's words into points once scenario and arm are known. The answer of `ask` with
    the run's name, seed and semantics; over several worlds means, with intervals between worlds.
    """
    answers = []
    folders = worlds_of(run)
    _check(folders[0], read_points, arm)  # before a world is built
    for folder in folders:
        opened = reopen(folder)
        scenario = opened.scenario
        name = arm or scenario.report.baseline
        specs = resolved_arms(scenario)
        question = Question(tuple(read_points(scenario, name)))

        def seat(name: str, spec: ArmSpec, changed: Scenario, opened: Any = opened) -> Arm:
            opened.load_models(spec)
            return _with_scenario(opened.sim, changed).arm(name, spec)

        where = Setting(opened.sim, folder, name, specs[name], seat)
        answer = ask(where, {"": question}, progress or Progress(quiet=True), n_requests)[""]
        head = {"run": scenario.name, "seed": scenario.seed, "semantics": SEMANTICS}
        answers.append({**head, "baseline": scenario.report.baseline, **answer})
    if len(answers) == 1:
        return answers[0]
    seeds = [answer["seed"] for answer in answers]
    return {**combine_sections(answers), "seed": None, "seeds": {"n": len(seeds), "seeds": seeds}}


def _check(folder: Path, read_points: Callable[[Scenario, str], list[Point]], arm: str | None) -> None:
    """UserError or Refused for a question that the run cannot answer."""
    open_run(folder)
    scenario = load_scenario(folder / "scenario.yaml")
    specs = resolved_arms(scenario)
    name = arm or scenario.report.baseline
    if name not in specs:
        raise UserError(f"{folder / 'scenario.yaml'}: --arm: {unknown_name('arm', name, specs)}")
    for point in read_points(scenario, name):
        turn(scenario, specs[name], point, folder)


def worlds_of(run: Path) -> list[Path]:
    """The folder itself, or those of its worlds, by seed."""
    found = [folder for folder in run.glob("seed-*") if folder.name[5:].isdecimal()]
    return sorted(found, key=lambda folder: int(folder.name[5:])) or [run]


def _with_scenario(sim: Simulation, scenario: Scenario) -> Simulation:
    """The same world and seats under a scenario that names other fusions."""
    twin = copy.copy(sim)
    twin.scenario = scenario
    return twin
