"""Baselines: what a run earned, small enough to lie beside a test, and what a later run must share with it.

A baseline can be compared with a run of the same traffic: seed, world, traffic and the number of evaluated
requests. Everything else may differ: that is what a check is for.
"""

import math
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Any

from cascade_sim.foundation.errors import Notice, UserError, unknown_name
from cascade_sim.regression.blocks import (
    ALL_METRICS,
    MARKET_METRICS,
    MIN_GROUPS,
    Blocks,
    blocks_from,
    expect,
    json_lines,
    read_blocks,
)
from cascade_sim.scenario.file import load_scenario, scenario_data, scenario_hash
from cascade_sim.scenario.schema import AUTOMATIC_ARMS, Scenario
from cascade_sim.storage.checksums import SEAL, has_checksum, with_checksum
from cascade_sim.storage.files import below, refuse_other, storage_errors, write_file
from cascade_sim.storage.folder import open_run, read_object
from cascade_sim.version import SEMANTICS, __version__

KIND = "cascade_sim revenue baseline"
FORMAT = 1
MAX_SUMS = 6 * 256  # arms * groups; keeps the file below about 200 kB
SAME = 1e-6  # relative; sums are written with fewer digits than values
STACK = ("packages", "processor")  # in files since they are told
SHARED = ("seed", "world", "traffic", "requests")  # what makes the requests the same


@dataclass(frozen=True)
class Baseline:
    """A baseline file as read."""

    file: str
    name: str
    scenario_hash: str
    scenario: dict[str, Any]  # resolved, as scenario.yaml of the run has it
    traffic: dict[str, Any]  # SHARED
    blocks: Blocks
    stack: dict[str, Any]  # packages and processor; empty in a file of an earlier version


@dataclass(frozen=True)
class Measured:
    """A run to be compared with a baseline: of a run folder, or made for it."""

    where: str
    scenario: Scenario
    blocks: Blocks
    stack: Mapping[str, Any]  # the packages and the processor that made it
    is_fresh: bool = False  # other requests of the same world
    has_held_models: bool = False  # which learned from the log of the baseline's cascade


def traffic_data(scenario: Scenario) -> dict[str, Any]:
    """What two runs must share to meet the same requests."""
    data = scenario_data(scenario)
    return {
        "seed": scenario.seed,
        "world": _without_place(data["world"]),
        "traffic": data["traffic"],
        "requests": scenario.phases.evaluate,
    }


def _without_place(world: dict[str, Any]) -> dict[str, Any]:
    """A world as what it is: of a replayed log its seal, wherever it lies."""
    logged = world.get("replay")
    if not isinstance(logged, dict) or "digest" not in logged:
        return world
    return {**world, "replay": {key: value for key, value in logged.items() if key != "log"}}


def traffic_hash(traffic: Mapping[str, Any]) -> str:
    """16 hex digits of the SHA-256 of seed, world, traffic and requests as canonical JSON."""
    return sha256(dumps(traffic, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def measured_run(folder: Path) -> Measured:
    """The blocks of a finished run of one world; UserError if the folder holds none."""
    run = open_run(folder)
    scenario = load_scenario(below(run.path, "scenario.yaml"))
    return Measured(str(folder), scenario, read_blocks(run.path), _stack_of(run.manifest))


def _stack_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a manifest or a baseline says of the packages and the processor."""
    return {key: content[key] for key in STACK if key in content}


def baseline_text(measured: Measured, arms: Iterable[str] = ()) -> str:
    """The content of a baseline file; default: the scenario's arms, without those added to every study."""
    blocks, scenario = measured.blocks, measured.scenario
    refuse_unknown_arms(arms, blocks.arms)
    if blocks.groups < MIN_GROUPS:
        raise UserError(
            f"{measured.where}: phases.evaluate is {blocks.requests}; a baseline needs at least "
            f"{MIN_GROUPS} requests, and some hundreds to say anything"
        )
    names = list(arms) or [name for name in blocks.arms if name not in AUTOMATIC_ARMS]
    blocks = blocks.only(names)
    groups = blocks.groups
    while len(names) * groups > MAX_SUMS and groups > 32:
        groups //= 2
    traffic = traffic_data(scenario)
    data = scenario_data(scenario)
    return json_lines(
        with_checksum(
            {
                "kind": KIND,
                "format": FORMAT,
                "semantics": SEMANTICS,
                "version": __version__,
                "name": scenario.name,
                "seed": scenario.seed,
                "traffic_hash": traffic_hash(traffic),
                "scenario_hash": scenario_hash(scenario),
                **blocks.with_groups(groups).data(),
                **measured.stack,
                "scenario": data,
            }
        )
    )


def refuse_unknown_arms(arms: Iterable[str], known: Collection[str]) -> None:
    """UserError if a baseline is to keep an arm that there is not."""
    for name in arms:
        if name not in known:
            raise UserError(f"--arm: {unknown_name('arm', name, known)}")


def refuse_other_file(file: Path) -> None:
    """UserError if a baseline would replace a file that is none."""
    refuse_other(file, "baseline", KIND.encode())


def write_baseline(measured: Measured, file: Path, arms: Iterable[str] = ()) -> None:
    """Write it whole. A file that is no baseline, a scenario perhaps, is not replaced."""
    refuse_other_file(file)
    text = baseline_text(measured, arms)
    with storage_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, text.encode())


def read_baseline(file: Path) -> Baseline:
    """Read and check; UserError with the file, the key's path and what was expected."""
    if not file.exists() or file.is_dir():
        raise UserError(f"{file} {'is a folder' if file.is_dir() else 'does not exist'}; {HOW_TO_MAKE}")
    data, where = read_object(file, follows=True), str(file)
    if data.get("kind") != KIND:
        raise UserError(f"{where}: kind is {data.get('kind')!r}; expected {KIND!r}; {HOW_TO_MAKE}")
    for key, now in (("format", FORMAT), ("semantics", SEMANTICS)):
        version = expect(data, key, int, where)
        if version != now:
            raise UserError(
                f"{where}: {key} is {version}, this version has {now}: its figures do not compare "
                "(CHANGELOG.md says what has changed); make it anew with `cascade_sim baseline RUN`"
            )
    known = {"kind", "format", "semantics", "version", "name", "seed", "traffic_hash", "scenario_hash"}
    known |= {"requests", "groups", "arms", "scenario", SEAL, *STACK}
    for key in data:
        if key not in known:
            raise UserError(f"{where}: {unknown_name('key', key, sorted(known))}")
    blocks = blocks_from(data, where)
    if not blocks.arms:
        raise UserError(f"{where}: arms is empty; expected at least one arm")
    _refuse_edited_values(blocks, where)
    scenario = expect(data, "scenario", dict, where)
    traffic = {
        "seed": expect(data, "seed", int, where),
        "world": _without_place(expect(scenario, "world", dict, where, "scenario")),
        "traffic": expect(scenario, "traffic", dict, where, "scenario"),
        "requests": blocks.requests,
    }
    if expect(data, "traffic_hash", str, where) != traffic_hash(traffic):
        raise UserError(
            f"{where}: traffic_hash is {data['traffic_hash']!r}, but seed, scenario.world, scenario.traffic "
            f"and requests have {traffic_hash(traffic)!r}: the file was edited by hand; make it anew"
        )
    name, digest = (expect(data, key, str, where) for key in ("name", "scenario_hash"))
    for key in STACK:
        if key in data:
            expect(data, key, dict, where)
    _refuse_edited(data, where)  # last: what is said above is nearer to the digit
    return Baseline(where, name, digest, scenario, traffic, blocks, _stack_of(data))


def _refuse_edited(data: Mapping[str, Any], where: str) -> None:
    """UserError if a file is not what was written. One of an earlier version cannot tell, which is noted."""
    if SEAL not in data:
        text = "a changed digit would not be noticed; `cascade_sim baseline RUN --out FILE` makes it anew"
        warnings.warn(f"{where} has no {SEAL}, for it is of an earlier version: {text}", Notice, stacklevel=3)
    elif not has_checksum(data):
        raise UserError(
            f"{where}: {SEAL} does not match the rest: the file was edited or damaged since it was written; "
            f"put it back as it was, or {HOW_TO_MAKE}"
        )


def _refuse_edited_values(blocks: Blocks, where: str) -> None:
    """UserError if a value is not what its groups or days add up to: moves are measured from those."""
    for arm, own in blocks.arms.items():
        for metric, value in own.values.items():
            if value is None or (metric in MARKET_METRICS and not own.days):
                continue
            top, bottom = (float(part.sum()) for part in own.parts(metric))
            given = ALL_METRICS[metric].factor * top / bottom if bottom else value
            if not math.isclose(value, given, rel_tol=SAME):
                raise UserError(
                    f"{where}: arms.{arm}.values.{metric} is {value:.10g}, but its sums give {given:.10g}: "
                    "the file was edited by hand; make it anew"
                )


HOW_TO_MAKE = "make one with `cascade_sim baseline RUN --out FILE` from a finished run"


def refuse_other_traffic_of(baseline: Baseline, scenario: Scenario, where: str, is_fresh: bool) -> None:
    """UserError unless a scenario meets the baseline's requests, or (fresh) others of the same world."""
    for path, before, now in differences(baseline.traffic, traffic_data(scenario)):
        if path == "requests" and is_fresh:
            continue  # other requests anyway, so there may be more of them
        key = {"requests": "phases.evaluate"}.get(path, path)
        hint = f"use --set {key}={dumps(before)}, or make a new baseline"
        raise UserError(
            f"{where}: {key} is {dumps(now)}, but {dumps(before)} in {baseline.file}: "
            f"other traffic or another world cannot be compared; {hint}"
        )


def differences(before: Any, now: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """(path, before, now) of every leaf that differs between two plain data; None where it is absent."""
    if isinstance(before, dict) and isinstance(now, dict):
        leaves = []
        for key in dict.fromkeys([*before, *now]):
            inner = f"{path}.{key}" if path else key
            leaves += differences(before.get(key), now.get(key), inner)
        return leaves
    return [] if before == now else [(path, before, now)]


def known_metrics(blocks: Blocks) -> list[str]:
    """Metrics that some arm of the baseline has, in the usual order."""
    return [metric for metric in ALL_METRICS if any(metric in arm.values for arm in blocks.arms.values())]
