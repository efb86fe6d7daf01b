"""A finished run made concrete again: its world, its trained models as scorers, its evaluation, its log.

`reopen` gives the run; `evaluation_blocks` its requests in the blocks they came in, and `logged` and
`page_columns` what an arm showed them. Blocks are whole, because what a net predicts may differ in the last
bit with the requests beside it. Times are the logged ones only where the world changes with time.

This is the one place where code that came with a run may be run, and only for who trusts it
(docs/security.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from torch import nn

from cascade_sim.analysis.metrics.catalogue import (
    ARM_MEASURES,
    PAGE_MEASURES,
    ratio_parts,
)
from cascade_sim.cascade.links import calibrator_file, load_calibrator
from cascade_sim.cascade.retrievers.custom import find_retriever
from cascade_sim.cascade.serve import Arm, Block
from cascade_sim.environments.arrivals import FIRST_REQUEST
from cascade_sim.environments.base import Environment
from cascade_sim.environments.page_columns import COLUMNS, PHASE
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.plugins import (
    MODEL_KINDS,
    RETRIEVER_KINDS,
    code_of_file,
    is_file_reference,
    kept_retrievers,
)
from cascade_sim.scenario.schema import ArmSpec, Scenario, resolved_arms
from cascade_sim.storage import checksums, user_code
from cascade_sim.storage.files import below
from cascade_sim.storage.folder import LATE_CODE, USER_CODE, Run, open_run
from cascade_sim.storage.model_store import load_file
from cascade_sim.storage.tables import iterate_table, read_table, tables
from cascade_sim.study.simulation import Simulation
from cascade_sim.training.modules import build_module, served_scorer
from cascade_sim.world.world import World

# Whether code of a run's folder may be run, or who is asked: gets a question, gives an answer.
Trust: TypeAlias = bool | Callable[[str], bool]

# What pages give by request, and the metrics that need nothing else.
SUMS = (
    *("requests", "impressions", "clicks", "conversions", "expected_clicks"),
    *("revenue", "expected_revenue"),
)

PAGE_METRICS = [
    metric
    for metric in (*ARM_MEASURES.values(), *PAGE_MEASURES.values())
    if {metric.top, metric.bottom} <= {*SUMS}
]

RATIOS = ratio_parts(PAGE_METRICS)


@dataclass(frozen=True)
class ReopenedRun:
    """A run of one world. The world is built, and models are loaded, when they are first asked for.

    Classes of one's own among them are run only for who trusts the folder.
    """

    run: Run
    scenario: Scenario
    trust: Trust = False

    @cached_property
    def sim(self) -> Simulation:
        sim = Simulation(self.scenario, self.scenario.seed, home=self.path)
        sim.find_retriever = self.retriever_class
        return sim

    def forget(self) -> None:
        """Give up the world, which may be large; it is built again when it is asked for."""
        self.__dict__.pop("sim", None)

    @property
    def path(self) -> Path:
        return self.run.path

    def arm(self, name: str | None = None) -> Arm:
        """An arm as it served the evaluation; default: the baseline. UserError if unknown."""
        specs = resolved_arms(self.scenario)
        name = name or self.scenario.report.baseline
        if name not in specs:
            raise UserError(f"--arm: {unknown_name('arm', name, specs)}")
        self.load_models(specs[name])
        return self.sim.arm(name, specs[name])

    def load_models(self, spec: ArmSpec) -> None:
        """Have the trained models that an arm asks among the simulation's scorers."""
        for model in spec.seats:
            if model not in self.sim.scorers:
                self._seat(model)

    def _seat(self, name: str) -> None:
        """Put a trained model into the simulation's scorers."""
        spec, view = self.scenario.models[name], self.sim.view(self.scenario.models[name].features)
        if spec.kind not in MODEL_KINDS.known:  # else the class is this project's, or of this process
            spec = spec.model_copy(update={"kind": self._trusted_kind("model", name, spec.kind)})
        module = build_module(name, spec, view, seed=0, home=self.path)
        file = below(self.path, "models", f"{name}.safetensors")
        checksums.check_file(self.path, f"models/{file.name}")
        load_weights(file, module)
        calibrator = None
        if spec.has_calibrator:
            checksums.check_file(self.path, f"models/{calibrator_file(file).name}")
            calibrator = load_calibrator(calibrator_file(file))
        self.sim.scorers[name] = served_scorer(name, spec, view, module, calibrator)

    def retriever_class(self, kind: str) -> type[Any]:
        """The class of a retriever that is not built in; UserError if its code is not trusted."""
        if kind in RETRIEVER_KINDS.known:
            return find_retriever(kind)
        kept = {own: name for name, own in kept_retrievers(self.scenario).items()}
        if kind in kept:
            return find_retriever(self._trusted_kind("retriever", kept[kind], kind), self.path)
        self._require_trust("retriever", kind, kind, kind.rpartition(":")[0])  # one that a what-if names
        return find_retriever(kind, self.path)

    def _trusted_kind(self, what: str, name: str, kind: str) -> str:
        """The kind of a class of the user's own, for its code as it was in the run; UserError if not trusted.

        The file that was kept with the run, else what the scenario names.
        """
        kept = below(self.path, "models", f"{name}.py")
        is_kept = is_file_reference(kind) and kept.is_file()
        where = str(kept) if is_kept else kind.rpartition(":")[0]
        self._require_trust(what, name, kind, where)
        if is_kept:
            sealed = self.run.manifest.get(checksums.SEALS)
            if isinstance(sealed, dict) and f"models/{kept.name}" not in sealed:
                raise UserError(f"{kept} was not written by the run, so it is not its {what}'s code")
            checksums.check_file(self.path, f"models/{kept.name}")
            kind = f"{kept}:{kind.rpartition(':')[2]}"
        self._require_code(kind, where, is_kept)
        return kind

    def _require_trust(self, what: str, name: str, kind: str, where: str) -> None:
        who = f"model {name!r} is of the class {kind}" if what == "model" else f"{kind} is a custom {what}"
        words = f"{self.path}: {who}, and its code would be run: {where}"
        if self.trust is True or (callable(self.trust) and self.trust(words)):
            return
        raise UserError(
            f"{words}. A run's folder may come from anywhere, so that is not done unasked: look at the code, "
            "then give --trust (in Python trust=True)"
        )

    def _require_code(self, kind: str, where: str, is_kept: bool) -> None:
        """UserError if a module that the class brings in is not what it was in the run. Nothing is run.

        A file may have another path now, from another working folder: then what it holds decides.
        """
        manifest = self.run.manifest
        then = {**(manifest.get(USER_CODE) or {}), **(manifest.get(LATE_CODE) or {})}
        if not then:
            return  # of an older version
        now = code_of_file(kind, self.path) if is_file_reference(kind) else user_code.code_from(where)
        if is_kept:
            now.pop(where, None)  # sealed
        known = set(then.values())
        changed = [
            label for label, digest in now.items() if digest != then.get(label, digest) or digest not in known
        ]
        if changed:
            raise UserError(
                f"{self.path}: {', '.join(changed)}, which {kind} needs, is not what it was in the run; "
                "put it back as it was, or run the scenario again"
            )


def reopen(path: Path, trust: Trust = False) -> ReopenedRun:
    """Open a finished run of one world. UserError if it is none, or holds several worlds.

    `trust`: whether the code of classes that came with the run may be run.
    """
    run = open_run(path)
    worlds = sorted(run.path.glob("seed-*"), key=lambda folder: (len(folder.name), folder.name))
    if worlds:
        listed = ", ".join(str(folder) for folder in worlds)
        raise UserError(
            f"{path} is a study over {len(worlds)} worlds; give the folder of one of them: {listed}"
        )
    scenario = load_scenario(below(run.path, "scenario.yaml"))
    return ReopenedRun(run, scenario, trust)


def load_weights(path: Path, module: nn.Module) -> None:
    """Put the weights of a file into a module of the same names, shapes and dtypes; else UserError."""
    if not path.is_file():
        beside = sorted(file.name for file in path.parent.glob("*.safetensors"))
        raise UserError(
            f"{path} is missing, so a trained model is not there (found: {', '.join(beside) or 'none'}); "
            "run the scenario again"
        )
    try:
        load_file(path, module)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} does not fit {type(module).__name__}: {error}; "
            "the model's code or the file has changed since the run"
        ) from error


def evaluation_blocks(sim: Simulation, n_requests: int) -> Iterator[tuple[Block, int]]:
    """The blocks that hold the first n requests of the evaluation, and how many of each block are meant."""
    total = sim.scenario.phases.evaluate
    left = min(n_requests, total)
    index = 0
    while left > 0:
        block = sim.arrivals.block(PHASE, index, total)
        yield block, min(len(block), left)
        left -= len(block)
        index += 1


def logged(
    folder: Path, arm: str, n_requests: int, columns: Sequence[str], world: World | None = None
) -> dict[str, np.ndarray] | None:
    """Columns of the impressions that an arm's first n requests left in the log; None if the log is gone.

    UserError for a user, an ad or a slot that the `world` does not have.
    """
    name = f"{PHASE}-{arm}"
    if name not in tables(folder):
        return None
    first = FIRST_REQUEST[PHASE]
    end, sizes = first + n_requests, None if world is None else _sizes(world)
    parts = []
    for rows in iterate_table(folder, name, list(dict.fromkeys([*columns, "request"])), sizes=sizes):
        if len(rows["request"]) and rows["request"][0] < first:
            raise UserError(
                f"{folder}, table {name!r}: request {rows['request'][0]} is not of the evaluation, which "
                f"begins with {first}; run the scenario again"
            )
        parts.append({column: rows[column][rows["request"] < end] for column in columns})
        if len(rows["request"]) and rows["request"][-1] >= end:
            break
    if not parts:  # the arm showed nothing at all: a table without a row comes in no batch
        return read_table(folder, name, columns)
    return {column: np.concatenate([part[column] for part in parts]) for column in columns}


def _sizes(world: World) -> dict[str, int]:
    """How long the axes of a world are that a log's codes count along."""
    return {
        "users": world.n_users,
        "ads": world.n_ads,
        "advertisers": world.n_advertisers,
        "slots": len(world.slot_effects),
    }


def charging_of(scenario: Scenario, arm: str) -> str:
    """What an arm of a scenario charges for: click, or impression."""
    return resolved_arms(scenario)[arm].auction.charging


def page_columns(
    environment: Environment, folder: Path, arm: str, n_requests: int, charging: str = "click"
) -> dict[str, np.ndarray]:
    """What an arm's pages brought, by what intervals resample; UserError if the log is gone."""
    log = logged(folder, arm, n_requests, COLUMNS, environment.world)
    if log is None:
        raise UserError(f"{folder} has no log of what arm {arm!r} showed")
    return environment.page_columns(log, n_requests, charging)
