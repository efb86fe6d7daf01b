"""What-ifs: the evaluation served again with some parameters changed and everything else as it was.

Requests, users, draws (each is keyed by request and ad), world, trained models and the advertisers' bids
are the same on both sides, so what is left of a difference is the parameter's own. `WhatIfStudy` asks a
finished run, `what_if_section` a study that has just been evaluated; both go through `ask`, which measures as
the study did and logs nothing. `write_answer` puts the answer into a folder: JSON, CSV, a page and its
figure.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cascade_sim.analysis.metrics.catalogue import PAGE_MEASURES, REPLAY_MEASURES, arm_measures
from cascade_sim.analysis.statistics.bootstrap import variance_reduction
from cascade_sim.cascade.serve import Arm, Block
from cascade_sim.counterfactual.bounds import refuse_winners
from cascade_sim.diagnostics.reopen import ReopenedRun, Trust, reopen
from cascade_sim.environments.evaluators.base import Context
from cascade_sim.environments.statement import Statement
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.foundation.progress import Progress
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.overrides import (
    Mistyped,
    Point,
    Refused,
    apply_overrides,
    check_words,
    checked_points,
    given_points,
    parse_points,
)
from cascade_sim.scenario.schema import ArmSpec, Scenario, resolved_arms
from cascade_sim.scenario.serving_parameters import arm_parameters
from cascade_sim.storage.files import below, storage_errors, write_file
from cascade_sim.storage.folder import json_text, open_run
from cascade_sim.storage.tables import tables
from cascade_sim.study.cost import cost_section, totals
from cascade_sim.study.evaluate import ArmBlock, ArmEvaluation, Served
from cascade_sim.study.results import arm_metrics, combine_sections, ratio_sample, vector_samples
from cascade_sim.study.simulation import Simulation
from cascade_sim.version import SEMANTICS

CURRENT = "current"

HELD_FIXED = (
    "the world, and the models as they were trained",
    "the traffic: the same requests by the same users",
    "the draws: an ad that both sides show in the same slot of a request is clicked on both or on neither",
    "the bids: advertisers do not react to the change",
    "budgets: unlimited, as in the evaluation",
)

NO_EXPOSURE = "the run's log is gone, so measures split by exposure are left out"

PAIRED = {"realised": "revenue", "expected": "expected_revenue"}  # columns of the tallies


LONGEST_NAME = 80


@dataclass(frozen=True)
class Question:
    """One or more points, i.e. ways to serve, each compared with the arm as it is."""

    points: tuple[Point, ...]

    @property
    def parameter(self) -> str | None:
        """The parameter that has several values; None if there is one way only."""
        if len(self.points) < 2:
            return None
        varied = zip(*self.points, strict=True)
        return next(changes[0].path for changes in varied if len({repr(c.value) for c in changes}) > 1)


class ServedWorld(Protocol):
    """A world that arms serve in: of a finished run (`ReopenedRun`), or of a study that is under way."""

    @property
    def scenario(self) -> Scenario: ...

    @property
    def sim(self) -> Simulation: ...

    def load_models(self, spec: ArmSpec) -> None:
        """Have the models that an arm asks among the simulation's scorers."""


@dataclass(frozen=True)
class TrainedWorld:
    """The world of a study that is under way: its models are there."""

    sim: Simulation

    @property
    def scenario(self) -> Scenario:
        return self.sim.scenario

    def load_models(self, spec: ArmSpec) -> None:
        pass


@dataclass(frozen=True)
class Setting:
    """Where what-ifs are asked: a world, the folder of its logs, and the arm whose parameters are turned."""

    world: ServedWorld
    logs: Path
    arm: str

    @property
    def scenario(self) -> Scenario:
        return self.world.scenario

    @property
    def spec(self) -> ArmSpec:
        return resolved_arms(self.scenario)[self.arm]

    def serving(self, name: str, spec: ArmSpec, changed: Scenario) -> Arm:
        """An arm ready to serve, with the fusions of a changed scenario."""
        self.world.load_models(spec)
        return _with_scenario(self.world.sim, changed).arm(name, spec)


@dataclass(frozen=True)
class WhatIfStudy:
    """A finished run that is asked, by one of its arms: its world, or all of a study over several.

    study = WhatIfStudy.of(Path("runs/quick"), arm="ltr")
    study.answer(study.question(["auction.reserve_cpc=0.1,0.2"]))
    """

    run: Path
    folders: tuple[Path, ...]  # of the worlds
    first: ReopenedRun  # whose scenario is that of all but for the seed
    arm: str

    @classmethod
    def of(cls, run: Path, arm: str | None = None, trust: Trust = False) -> WhatIfStudy:
        """Open a run; by default its baseline is asked. UserError if there is no such run, or arm."""
        folders = worlds_of(run)
        if folders != [run]:
            open_run(run)  # finished as a whole
        first = reopen(folders[0], trust)
        name, known = arm or first.scenario.report.baseline, resolved_arms(first.scenario)
        if name not in known:
            file = below(folders[0], "scenario.yaml")
            raise UserError(f"{file}: --arm: {unknown_name('arm', name, known)}")
        return cls(run, tuple(folders), first, name)

    @classmethod
    def asked(
        cls,
        run: Path,
        changes: Sequence[str] | Mapping[str, Any],
        arm: str | None = None,
        trust: Trust = False,
    ) -> tuple[WhatIfStudy, Question]:
        """Open a run with a question to it, which is checked first: by itself, then by the run's scenario.

        Raises `scenario.overrides.Refused` with all that is wrong with the changes, also where the run is
        unfinished or damaged; then UserError as `of`.
        """
        if not isinstance(changes, Mapping):
            check_words(changes)
        question = None
        scenario = _scenario_beside(run)
        if scenario is not None and (arm or scenario.report.baseline) in resolved_arms(scenario):
            question = _checked_question(changes, scenario, arm or scenario.report.baseline, run)
        study = cls.of(run, arm, trust)
        return study, question or study.question(changes)

    @property
    def metrics(self) -> dict[str, Any]:
        """What the run itself measured."""
        return (self.first.run if self.folders == (self.run,) else open_run(self.run)).metrics

    def question(self, changes: Sequence[str] | Mapping[str, Any]) -> Question:
        """What some `path=value`, or values by path, ask. Raises `scenario.overrides.Refused`."""
        return _question(changes, self.first.scenario, self.arm)

    def answer(
        self, question: Question, n_requests: int = 0, progress: Progress | None = None
    ) -> dict[str, Any]:
        """The answer of `ask` with the run's name, seed and semantics.

        Over several worlds means, with intervals between worlds. Raises `scenario.overrides.Refused` before a
        world is built.
        """
        answers = []
        for folder in self.folders:
            opened = self.first if folder == self.folders[0] else reopen(folder, self.first.trust)
            where = Setting(opened, folder, self.arm)
            answers.append(ask_run(where, question, progress or Progress(quiet=True), n_requests))
            opened.forget()
        if len(answers) == 1:
            return answers[0]
        seeds = [answer["seed"] for answer in answers]
        return {**combine_sections(answers), "seed": None, "seeds": {"n": len(seeds), "seeds": seeds}}


def what_if_study(
    run: Path,
    changes: Sequence[str] | Mapping[str, Any],
    arm: str | None = None,
    n_requests: int = 0,
    progress: Progress | None = None,
    trust: Trust = False,
) -> dict[str, Any]:
    """One question to a finished run, opened, asked and answered."""
    study, question = WhatIfStudy.asked(run, changes, arm, trust)
    return study.answer(question, n_requests, progress)


def _question(changes: Sequence[str] | Mapping[str, Any], scenario: Scenario, arm: str) -> Question:
    if isinstance(changes, Mapping):
        return Question(tuple(given_points(changes, scenario, arm)))
    return Question(tuple(parse_points(changes, scenario, arm)))


def _checked_question(
    changes: Sequence[str] | Mapping[str, Any], scenario: Scenario, arm: str, folder: Path
) -> Question:
    """The question; Refused with all that is wrong: names, and the values of those whose names are right."""
    try:
        question = _question(changes, scenario, arm)
    except Mistyped as refused:
        places = [at for at in range(len(changes)) if at not in {at for _, at in refused.reasons}]
        if places:
            listed = list(changes.items()) if isinstance(changes, Mapping) else list(changes)
            rest: Any = [listed[at] for at in places]
            try:
                _checked_question(dict(rest) if isinstance(changes, Mapping) else rest, scenario, arm, folder)
            except Refused as more:
                others = [(text, places[at]) for text, at in more.reasons]
                (text, at), *others = sorted((*refused.reasons, *others), key=lambda reason: reason[1])
                raise Mistyped(text, at, *others) from None
        raise
    checked_points(question.points, scenario, arm, folder)
    return question


def _scenario_beside(run: Path) -> Scenario | None:
    """The scenario of a run that may be unfinished; None where it cannot be read, which `of` explains."""
    try:
        return load_scenario(below(run, "scenario.yaml"))
    except UserError:
        return None


def ask_run(where: Setting, question: Question, progress: Progress, n_requests: int = 0) -> dict[str, Any]:
    """One question to one world: the answer of `ask` with the run's name, seed and semantics."""
    scenario = where.scenario
    head = {"run": scenario.name, "seed": scenario.seed, "semantics": SEMANTICS}
    answer = ask(where, {"": question}, progress, n_requests)[""]
    learned = list(Statement().learned_again)
    return {**head, "baseline": scenario.report.baseline, **answer, "learned_again": learned}


def what_if_section(sim: Simulation, logs: Path, progress: Progress) -> dict[str, Any]:
    """The scenario's own questions, of its baseline, for metrics.json."""
    scenario = sim.scenario
    baseline = scenario.report.baseline
    questions = {
        name: Question(tuple(parse_points(words, scenario, baseline)))
        for name, words in scenario.what_if.items()
    }
    return ask(Setting(TrainedWorld(sim), logs, baseline), questions, progress)


def worlds_of(run: Path) -> list[Path]:
    """The folders of a study's worlds by seed, or the run itself if it has one world."""
    names = [folder.name for folder in run.glob("seed-*") if folder.name[5:].isdecimal()]
    folders = [below(run, name) for name in names]
    return sorted(folders, key=lambda folder: int(folder.name[5:])) or [run]


def _with_scenario(sim: Simulation, scenario: Scenario) -> Simulation:
    """The same world and stage models under a scenario that names other fusions."""
    twin = copy.copy(sim)
    twin.scenario = scenario
    return twin


def ask(
    where: Setting, questions: Mapping[str, Question], progress: Progress, n_requests: int = 0
) -> dict[str, dict[str, Any]]:
    """Serve once for all questions together. {name of the question: its answer, as JSON holds it}.

    Raises `scenario.overrides.Refused` for a change that the rules forbid, before anything is served.
    """
    scenario, own = where.scenario, where.spec
    turned = {
        (name, i): apply_overrides(scenario, own, point, where.logs)
        for name, question in questions.items()
        for i, point in enumerate(question.points)
    }
    for question in questions.values():
        refuse_winners(scenario, own, question.points, where.logs)
    arms = {CURRENT: where.serving(where.arm, own, scenario)}  # only now a world is built
    served: dict[tuple[str, int], str] = {}  # ways to serve that are asked about twice are served once
    for place, (changed, spec) in turned.items():
        same = next(
            (p for p in served if turned[p][1] == spec and turned[p][0].fusions == changed.fusions), None
        )
        served[place] = served[same] if same else f"point {len(arms)}"
        if same is None:
            arms[served[place]] = where.serving(where.arm, spec, changed)
    baseline = scenario.report.baseline
    ruler, sim = where.serving(baseline, resolved_arms(scenario)[baseline], scenario), where.world.sim
    evaluation = WhatIfEvaluation(sim, where.logs, arms, ruler, n_requests)
    evaluation.serve(progress)
    with progress.stage("intervals", 1, "tables"):
        measured = evaluation.metrics(CURRENT)
        stated = sim.environment.statement(evaluation.measured(CURRENT))
        unsure = evaluation.uncertainty.words
        notes = [*([] if evaluation.has_exposure else [NO_EXPOSURE]), *([unsure] if unsure else [])]
        known = {} if stated.facts is None else {"replay": stated.facts}
        costs = {arm: {"cost": totals(own)} for arm, own in cost_section(evaluation).get("cost", {}).items()}
        return {
            name: {
                "arm": where.arm,
                "requests": evaluation.n_requests,
                "parameter": question.parameter,
                "current": {
                    "settings": _settings_current(scenario, own, question),
                    "metrics": measured[CURRENT],
                    **costs.get(CURRENT, {}),
                },
                "points": [
                    {
                        "settings": {change.path: change.value for change in point},
                        "metrics": measured[served[name, i]],
                        **costs.get(served[name, i], {}),
                        "variance_reduction": _logarithms(
                            evaluation.variance_reduction(CURRENT, served[name, i])
                        ),
                    }
                    for i, point in enumerate(question.points)
                ],
                "held_fixed": list(stated.held_fixed or HELD_FIXED),
                "notes": [*notes, *stated.notes, *_budget_notes(stated, name, question, served)],
                **known,
            }
            for name, question in questions.items()
        }


def _budget_notes(
    stated: Statement, name: str, question: Question, served: Mapping[tuple[str, int], str]
) -> list[str]:
    """Of a replayed log: who ran out of a budget at each point of a question."""
    words = {
        served[name, i]: ", ".join(f"{change.path}={change.value}" for change in point)
        for i, point in enumerate(question.points)
    }
    return stated.budget_notes(CURRENT, words)


def _logarithms(worths: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Natural logarithms: over several worlds the mean is then one of factors, with an interval above 0."""
    return {
        kind: {"log_times": {key: None if x is None else math.log(x) for key, x in worth.items()}}
        for kind, worth in worths.items()
    }


def _settings_current(scenario: Scenario, spec: ArmSpec, question: Question) -> dict[str, Any]:
    """What the turned parameters are in the arm as it is; None for what it does not have."""
    from cascade_sim.scenario.overrides import overrides_of

    now: dict[str, Any] = {**overrides_of(spec), "fusions": scenario.model_dump(mode="json")["fusions"]}
    settings = {}
    for change in question.points[0]:
        value: Any = now
        for step in change.parameter:
            value = value.get(step) if isinstance(value, dict) else None
        settings[change.path] = value
    return settings


class WhatIfEvaluation(ArmEvaluation):
    """Some arms on the evaluation's own traffic and random draws.

    `ruler_arm` is the run's baseline: welfare and oracle stay those of the run. Without the log of the run
    the ads that were exposed are not known, and measures that are split by exposure are left out.
    """

    def __init__(
        self, sim: Simulation, logs: Path, arms: dict[str, Arm], ruler_arm: Arm, n_requests: int = 0
    ) -> None:
        block, total = sim.scenario.traffic.block, sim.scenario.phases.evaluate
        # Whole blocks: what a net predicts may differ in the last bit with the requests beside it.
        whole = min(-(-(n_requests or total) // block) * block, total)
        self.has_exposure = not sim.scenario.phases.log or "log" in tables(logs)
        super().__init__(sim, logs, arms, ruler_arm, n_requests=whole, has_exposure=self.has_exposure)

    def serve_on(self, context: Context[Any], arm: Arm) -> Served:
        """As in an evaluation, with the places of a page: an arm may have more of them."""
        served = super().serve_on(context, arm)
        served.columns.setdefault("slots", arm.slots * served.columns["requests"])
        return served

    def serve(self, progress: Progress) -> None:
        """Serve and measure the traffic once, for all arms."""
        with progress.stage("what if", self.n_requests) as bar:

            def finish(block: Block, by_arm: dict[str, ArmBlock]) -> None:
                for name, served in by_arm.items():
                    self._add(name, served)
                bar.advance(len(block))

            self._let_arrive(finish)

    def metrics(self, current: str) -> dict[str, dict[str, dict[str, Any]]]:
        """{arm: {metric: {"value", "low", "high"} and, but for `current`, "lift" and "difference"}}."""
        resamples, seed = self.sim.scenario.report.resamples, self.sim.seed
        joined = {name: tally.joined("columns") for name, tally in self.tallies.items()}
        known = {column for columns in joined.values() for column in columns}
        # Without those of the whole corpus, which are too dear to repeat for every value of a parameter.
        metrics = {
            name: metric
            for name, metric in {**arm_measures(known), **PAGE_MEASURES, **REPLAY_MEASURES}.items()
            if not metric.is_ratio or {*metric.parts} <= known
        }
        sample = ratio_sample(self, resamples, seed, metrics)
        samples = vector_samples(self, resamples, seed)
        table = arm_metrics(self, sample, current, resamples, seed, metrics, samples)
        differences = sample.differences(current)
        for functions in samples:
            gaps = functions.differences(current)
            for name in differences:
                for metric in functions.functions:
                    nothing = {"value": None, "low": None, "high": None}
                    differences[name][metric] = gaps.get(metric, {}).get(name, nothing)
        dropped = {m for m in table[current] if m.endswith("exposed") and not self.has_exposure}
        for name in table:
            table[name] = {m: entry for m, entry in table[name].items() if m not in dropped}
            if name != current:
                for metric, entry in table[name].items():
                    entry["difference"] = differences[name][metric]
        return table

    def variance_reduction(self, current: str, name: str) -> dict[str, dict[str, Any]]:
        """How many times the same requests and draws shrink the variance of a difference in revenue."""
        resamples, seed = self.sim.scenario.report.resamples, self.sim.seed
        tables = self._resampled
        if self.uncertainty.is_common:
            tables = {arm: self.tallies[arm].joined("columns") for arm in (current, name)}
        before, after = tables[current], tables[name]
        return {
            kind: variance_reduction(before[column], after[column], resamples, seed)
            for kind, column in PAIRED.items()
        }

    @property
    def reference(self) -> str:
        return CURRENT if CURRENT in self.arms else super().reference

    def resampled(self) -> dict[str, dict[str, np.ndarray]]:
        return self._resampled

    @cached_property
    def _resampled(self) -> dict[str, dict[str, np.ndarray]]:
        return super().resampled()


def answer_name(points: Sequence[Point], arm: str | None, requests: int | None = None) -> str:
    """A folder's name that says what was asked: `reserve_cpc-0.2`, `slots-2_3_4-distill`.

    Where the words leave something out (values in the middle, signs that no file's name can have), the
    beginning of a hash of them all follows: no two questions share a folder.
    """
    parameters = arm_parameters()
    ends = [parameter[-1] for parameter in parameters]
    parts, asked, is_whole = [], [], True
    for changes in zip(*points, strict=True):
        parameter, values = changes[0].parameter, list(dict.fromkeys(str(change.value) for change in changes))
        shown = [values[0], f"to-{values[-1]}"] if len(values) > 4 else values
        is_whole &= shown == values
        is_short = (
            parameter in parameters and ends.count(parameter[-1]) == 1
        )  # two stages have a size, and a model
        own = parameter[-1] if is_short else "-".join(parameter)
        parts.append(f"{own}-{'_'.join(shown)}")
        asked.append([parameter, values])
    name = "-".join([*parts, *([arm] if arm else []), *([f"first-{requests}"] if requests else [])])
    safe = "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in name)
    short = safe[:LONGEST_NAME].strip(".-")
    if is_whole and short == name:
        return short
    return f"{short}-{hashlib.sha256(json.dumps([asked, arm, requests]).encode()).hexdigest()[:6]}"


def check_out(out: Path) -> None:
    """Refuse a place that cannot be written to before any work is done."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file; give a folder")
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)


def write_answer(answer: Mapping[str, Any], out: Path) -> list[Path]:
    """whatif.json, whatif.csv, whatif.html, whatif.svg and whatif.png in `out`; returns their paths."""
    from cascade_sim.analysis.report.figures.whatif import answer_image
    from cascade_sim.analysis.report.sections.whatif import what_if_csv
    from cascade_sim.analysis.report.short_page import what_if_page

    check_out(out)
    svg = answer_image(answer, "svg")
    contents = {
        "whatif.json": json_text(answer).encode(),
        "whatif.csv": what_if_csv(answer).encode(),
        "whatif.html": what_if_page(answer, svg.decode()).encode(),
        "whatif.svg": svg,
        "whatif.png": answer_image(answer, "png"),
    }
    for name, content in contents.items():
        write_file(out / name, content)
    return [out / name for name in contents]
