"""A finished run made concrete again: its world, its trained models in their seats, its evaluation, its log.

`reopen` gives the run; `evaluation_blocks` its requests in the blocks they came in, and `logged` and
`page_columns` what an arm showed them. Blocks are whole, because what a net predicts may differ in the last
bit with the requests beside it. Times are the logged ones only where the world changes with time.

This is the one place where code that came with a run may be run, and only for who trusts it
(docs/security.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from torch import nn

from cascade_sim.analysis.metrics.catalogue import (
    ARM_MEASURES,
    PAGE_MEASURES,
    ratio_parts,
    with_factors,
)
from cascade_sim.auction import MICROS
from cascade_sim.cascade.links import calibrator_file, load_calibrator
from cascade_sim.cascade.serve import Arm, Block
from cascade_sim.errors import UserError, unknown_name
from cascade_sim.phases.doubt import Page, drawn, replicate_sums, with_doubt
from cascade_sim.phases.evaluate import units_of
from cascade_sim.phases.replayed import with_influence
from cascade_sim.phases.simulation import Simulation
from cascade_sim.phases.traffic import Arrivals
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.plugins import MODEL_KINDS, code_of_file, is_file_reference
from cascade_sim.scenario.schema import ArmSpec, Scenario, resolved_arms
from cascade_sim.storage import own_code, seals
from cascade_sim.storage.folder import LATE_CODE, OWN_CODE, Run, open_run
from cascade_sim.storage.model_store import load_file
from cascade_sim.storage.tables import iterate_table, read_table, tables
from cascade_sim.training.modules import build_module, served_scorer
from cascade_sim.world.observed import ObservedClicks
from cascade_sim.world.truth import Truth
from cascade_sim.world.world import World

# Whether code of a run's folder may be run, or who is asked: gets a question, gives an answer.
Trust: TypeAlias = bool | Callable[[str], bool]

PHASE = "evaluate"

COLUMNS = (
    "request",
    "time",
    "user",
    "context",
    "slot",
    "ad",
    "click",
    "conversion",
    "cpc_micros",
    "charge_micros",
)

MAX_ROWS = 32_768  # rows kept for resampling; in a longer evaluation a row is a few requests

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
    """A run of one world. Models are loaded when an arm asks for them.

    Classes of one's own among them are run only for who trusts the folder.
    """

    run: Run
    scenario: Scenario
    sim: Simulation
    trust: Trust = False

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
            spec = spec.model_copy(update={"kind": self._trusted_kind(name, spec.kind)})
        module = build_module(name, spec, view, seed=0, home=self.path)
        file = self.path / "models" / f"{name}.safetensors"
        seals.check_file(self.path, f"models/{file.name}")
        load_weights(file, module)
        calibrator = None
        if spec.has_map:
            seals.check_file(self.path, f"models/{calibrator_file(file).name}")
            calibrator = load_calibrator(calibrator_file(file))
        self.sim.scorers[name] = served_scorer(name, spec, view, module, calibrator)

    def _trusted_kind(self, name: str, kind: str) -> str:
        """The kind of a model of the user's own, for its code as it was in the run; UserError if not trusted.

        The file that was kept with the run, else what the scenario names.
        """
        kept = self.path / "models" / f"{name}.py"
        is_kept = is_file_reference(kind) and kept.is_file()
        where = str(kept) if is_kept else kind.rpartition(":")[0]
        self._require_trust(name, kind, where)
        if is_kept:
            sealed = self.run.manifest.get(seals.SEALS)
            if isinstance(sealed, dict) and f"models/{kept.name}" not in sealed:
                raise UserError(f"{kept} was not written by the run, so it is not its model's code")
            seals.check_file(self.path, f"models/{kept.name}")
            kind = f"{kept}:{kind.rpartition(':')[2]}"
        self._require_code(kind, where, is_kept)
        return kind

    def _require_trust(self, name: str, kind: str, where: str) -> None:
        words = f"{self.path}: model {name!r} is of the class {kind}, and its code would be run: {where}"
        if self.trust is True or (callable(self.trust) and self.trust(words)):
            return
        raise UserError(
            f"{words}. A run's folder may come from anybody, so that is not done unasked: look at the code, "
            "then give --trust (in Python trust=True)"
        )

    def _require_code(self, kind: str, where: str, is_kept: bool) -> None:
        """UserError if a module that the class brings in is not what it was in the run. Nothing is run.

        A file may have another path now, from another working folder: then what it holds decides.
        """
        manifest = self.run.manifest
        then = {**(manifest.get(OWN_CODE) or {}), **(manifest.get(LATE_CODE) or {})}
        if not then:
            return  # of an older version
        now = code_of_file(kind, self.path) if is_file_reference(kind) else own_code.code_from(where)
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

    `trust`: whether the code of model classes that came with the run may be run.
    """
    run = open_run(path)
    worlds = sorted(run.path.glob("seed-*"), key=lambda folder: (len(folder.name), folder.name))
    if worlds:
        listed = ", ".join(str(folder) for folder in worlds)
        raise UserError(
            f"{path} is a study over {len(worlds)} worlds; give the folder of one of them: {listed}"
        )
    scenario = load_scenario(run.path / "scenario.yaml")
    return ReopenedRun(run, scenario, Simulation(scenario, scenario.seed, home=run.path), trust)


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


def logged(folder: Path, arm: str, n_requests: int, columns: Sequence[str]) -> dict[str, np.ndarray] | None:
    """Columns of the impressions that an arm's first n requests left in the log; None if the log is gone."""
    name = f"{PHASE}-{arm}"
    if name not in tables(folder):
        return None
    end = Arrivals.first_request(PHASE) + n_requests
    parts = []
    for rows in iterate_table(folder, name, [*columns, "request"]):
        parts.append({column: rows[column][rows["request"] < end] for column in columns})
        if len(rows["request"]) and rows["request"][-1] >= end:
            break
    if not parts:  # the arm showed nothing at all: a table without a row comes in no batch
        return read_table(folder, name, columns)
    return {column: np.concatenate([part[column] for part in parts]) for column in columns}


def charging_of(scenario: Scenario, arm: str) -> str:
    """What an arm of a scenario charges for: click, or impression."""
    return resolved_arms(scenario)[arm].auction.charging


class LoggedPages:
    """What runs showed that replay the same log, by what intervals resample."""

    def __init__(self, sim: Simulation, n_requests: int):
        self._sim, self._n = sim, n_requests
        units = units_of(sim, n_requests)
        assert units is not None
        self.units = units

    def columns(self, folder: Path, arm: str, scenario: Scenario) -> dict[str, np.ndarray]:
        """As `page_columns`, of an arm of a run's scenario."""
        log = logged(folder, arm, self._n, COLUMNS)
        if log is None:
            raise UserError(f"{folder} has no log of what arm {arm!r} showed")
        truth, is_clicked = self._sim.truth, charging_of(scenario, arm) == "click"
        assert isinstance(truth, ObservedClicks)
        block = Block(log["request"], log["user"], log["context"], log["time"])
        pages = truth.page_clicks(block, log["ad"][:, None], log["slot"][:, None].astype(np.int16))
        local = log["request"] - Arrivals.first_request(PHASE)
        made = _summed(log, pages.expected[:, 0], self.units.of_request[local], self.units.n, is_clicked)
        made["requests"] = np.bincount(self.units.of_request, minlength=self.units.n) * 1.0
        if pages.said is None:
            return {name: column for name, column in made.items() if "clicks" not in name}
        price = (log["cpc_micros"] / MICROS * is_clicked)[:, None]
        gradient = {arm: pages.gradient(np.ones(price.shape), price)}
        return with_influence({arm: made}, gradient, self._sim, self.units)[arm]


def page_columns(
    folder: Path, arm: str, n_requests: int, world: World, truth: Truth, charging: str = "click"
) -> dict[str, np.ndarray]:
    """What each request brought, summed over its page; UserError if the log is gone.  {column: [rows]}

    Expected figures replace a click by its true probability: slot effect * true CTR.
    """
    shown = _shown(folder, arm, n_requests)
    return _by_row(shown, _expected(shown, world, truth)[1], n_requests, charging == "click")


def _shown(folder: Path, arm: str, n_requests: int) -> dict[str, np.ndarray]:
    log = logged(folder, arm, n_requests, COLUMNS)
    if log is None:
        raise UserError(f"{folder} has no log of what arm {arm!r} showed")
    return log


def _expected(log: dict[str, np.ndarray], world: World, truth: Truth) -> tuple[np.ndarray, np.ndarray]:
    """True CTRs of impressions in the first slot, and clicks to be expected of them.  [n], [n]"""
    block = Block(log["request"], log["user"], log["context"], log["time"])
    ctr = truth.ctr(block, log["ad"][:, None])[:, 0]
    return ctr, world.slot_effects[log["slot"]] * ctr


def _by_row(
    log: dict[str, np.ndarray], expected: np.ndarray, n_requests: int, is_clicked: bool
) -> dict[str, np.ndarray]:
    n_rows = min(n_requests, MAX_ROWS)
    row = (log["request"] - Arrivals.first_request(PHASE)) * n_rows // n_requests
    brought = _summed(log, expected, row, n_rows, is_clicked)
    brought["requests"] = np.bincount(np.arange(n_requests) * n_rows // n_requests, minlength=n_rows) * 1.0
    return brought


AT_ONCE = 200_000  # impressions


class FittedPages:
    """What runs showed in the same world fitted to a log, with how uncertain its response is."""

    def __init__(self, sim: Simulation, n_requests: int):
        assert sim.fitted is not None
        self._sim, self._fitted, self._n = sim, sim.fitted, n_requests

    def columns(self, folder: Path, arm: str, scenario: Scenario) -> dict[str, np.ndarray]:
        """As `page_columns`, of an arm of a run's scenario."""
        log, charging = _shown(folder, arm, self._n), charging_of(scenario, arm)
        ctr, expected = _expected(log, self._sim.world, self._sim.truth)  # type: ignore[arg-type]
        made = _by_row(log, expected, self._n, charging == "click")
        if not self._fitted.response.n_replicates:
            return made
        everyone = np.arange(self._n) + Arrivals.first_request(PHASE)
        sums = np.zeros((self._fitted.response.n_replicates, len(made)))
        sums[:, sorted(made).index("requests")] = drawn(self._fitted, everyone, self._n).sum(axis=0)
        for start in range(0, len(ctr), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            part = {name: values[some] for name, values in log.items()}
            sums += self._sums(part, ctr[some], expected[some], charging)
        return with_doubt({arm: made}, {arm: sums}, self._sim, None)[arm]

    def _sums(
        self, log: dict[str, np.ndarray], ctr: np.ndarray, expected: np.ndarray, charging: str
    ) -> np.ndarray:
        """Of these impressions, columns by name; the requests are counted elsewhere.  [K, columns]"""
        ads, slots, price = (log[name][:, None] for name in ("ad", "slot", "cpc_micros"))
        page = Page.at(self._fitted, log["request"], ads, slots, ctr[:, None], expected[:, None])
        moved = page.moved(price / MICROS, price / MICROS, charging)
        columns = {**_impressions(log, expected, charging == "click"), "requests": np.zeros(len(ctr))}
        return replicate_sums(self._fitted, log["request"], columns, moved, self._n)


def _impressions(log: dict[str, np.ndarray], expected: np.ndarray, is_clicked: bool) -> dict[str, np.ndarray]:
    """What each impression brought.  {column: [n]}"""
    charge, cpc = log["charge_micros"] / MICROS, log["cpc_micros"] / MICROS
    return with_factors(
        {
            "impressions": np.ones(len(expected)),
            "clicks": log["click"],
            "conversions": log["conversion"],
            "expected_clicks": expected,
            "revenue": charge,
            "expected_revenue": expected * cpc if is_clicked else cpc,
        }
    )


def _summed(
    log: dict[str, np.ndarray], expected: np.ndarray, row: np.ndarray, n_rows: int, is_clicked: bool
) -> dict[str, np.ndarray]:
    """Impressions added up by row.  {column: [n_rows]}"""
    found = _impressions(log, expected, is_clicked)
    return {name: np.bincount(row, values, n_rows) for name, values in found.items()}
