"""How finished runs differ: in their scenarios key by key, and in what each arm brought.

Runs of the same world, traffic and seed meet the same requests, so differences are paired: by request where
the evaluation's logs are there, by world for studies over several. All else is the difference of two numbers
whose intervals are taken as independent, which is too wide for what was in truth paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.analysis.report.decision import decide
from cascade_sim.analysis.statistics.bootstrap import ratio_differences, ratio_intervals, seed_spread
from cascade_sim.diagnostics.reopen import RATIOS, charging_of, page_columns
from cascade_sim.environments.build import environment_of
from cascade_sim.environments.statement import Statement, uncontrolled
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.logs.audit.reproduction import reproduction, require_reproduced
from cascade_sim.scenario.diff import scenario_diff, sections_of_one
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.schema import Scenario
from cascade_sim.storage import checksums
from cascade_sim.storage.environment import stack_notes
from cascade_sim.storage.files import below
from cascade_sim.storage.folder import IMPORTED, Run, open_run, require_measures
from cascade_sim.storage.tables import tables as table_names

SAME_TRAFFIC = ("seed", "world", "traffic")  # sections that decide which requests an evaluation meets
NORMAL = 1.959963984540054  # 97.5 % quantile
NOTHING: dict[str, Any] = {"value": None, "low": None, "high": None}


@dataclass(frozen=True)
class Side:
    """One of the runs that are compared."""

    run: Run
    scenario: Scenario

    @property
    def seeds(self) -> list[int]:
        """The seeds of a study over several worlds; empty for one world."""
        return list((self.run.metrics.get("seeds") or {}).get("seeds") or [])

    @property
    def path(self) -> Path:
        return self.run.path


def compare_runs(
    paths: Sequence[Path], arm: str | None = None, unpaired: bool = False
) -> list[dict[str, Any]]:
    """Every other run against the first. UserError for what cannot be compared, before anything is read."""
    if len(paths) < 2:
        raise UserError("give at least two runs to compare")
    sides = [_open(path) for path in paths]
    for other in sides[1:]:
        _refuse(sides[0], other, arm, unpaired)
    return [_compare(sides[0], other, arm) for other in sides[1:]]


def _open(path: Path) -> Side:
    run = open_run(path)  # refuses other semantics
    if run.manifest.get("kind") == IMPORTED:
        raise UserError(
            f"{path} is an imported log, of which nothing was run yet: `run {path}/scenario.yaml` "
            "replays it, "
            "and runs that replay the same market are compared request by request"
        )
    require_measures(run)
    scenario = load_scenario(below(path, "scenario.yaml"))
    require_reproduced(scenario, path)
    return Side(run, scenario)


def _different(first: Side, other: Side) -> list[str]:
    """Which of seed, world and traffic are not the same."""
    sides = [first.scenario, other.scenario]
    apart = [part for part in SAME_TRAFFIC if getattr(sides[0], part) != getattr(sides[1], part)]
    seals = {scenario.world.seals for scenario in sides}
    if "world" in apart and len(seals) == 1 and None not in seals:
        apart.remove("world")  # the same wherever it lies
    return apart


def _differ(parts: Sequence[str]) -> str:
    """Which names differ, in words: `seed differs`, `seed and world differ`."""
    return f"{' and '.join(parts)} {'differ' if len(parts) > 1 else 'differs'}"


def _refuse(first: Side, other: Side, arm: str | None, unpaired: bool) -> None:
    if bool(first.seeds) != bool(other.seeds):
        many, single = (first, other) if first.seeds else (other, first)
        raise UserError(
            f"{many.path} is a study over {len(many.seeds)} worlds and {single.path} of one; "
            f"give the folder of one world: {many.path / f'seed-{many.seeds[0]}'}"
        )
    arms = [name for name in first.run.metrics["arms"] if name in other.run.metrics["arms"]]
    if arm is not None and arm not in arms:
        raise UserError(f"--arm: {unknown_name('arm of both runs', arm, arms)}")
    apart = _different(first, other)
    if apart and not unpaired:
        keys = [
            change.line() for change in scenario_diff(first.scenario, other.scenario)
            if change.path.split(".")[0] in SAME_TRAFFIC
        ]  # fmt: skip
        shown = "; ".join(keys[:5]) + (f"; and {len(keys) - 5} more" if len(keys) > 5 else "")
        raise UserError(
            f"{first.path} and {other.path} did not meet the same requests: {_differ(apart)} "
            f"({shown}). A difference is not the arms' alone; --unpaired compares them all the same"
        )


def _compare(first: Side, other: Side, arm: str | None) -> dict[str, Any]:
    apart = _different(first, other)
    own, others = first.run.metrics["arms"], other.run.metrics["arms"]
    common = [name for name in own if name in others and arm in (None, name)]
    notes = [
        f"{side.path} alone has the arms {', '.join(only)}"
        for side, only in (
            (first, [a for a in own if a not in others]),
            (other, [a for a in others if a not in own]),
        )
        if only and arm is None
    ]
    made = [side.run.manifest for side in (first, other)]
    apart_in = ["made with another version of the code"] if made[0].get("code") != made[1].get("code") else []
    apart_in += stack_notes(*made)
    notes += [f"they were {what}: a difference may come from there" for what in apart_in]
    markets = [str(side.path) for side in (first, other) if side.run.metrics.get("market")]
    if markets:
        whose = f"{markets[0]} alone has a market" if len(markets) == 1 else "both runs have a market"
        notes.append(f"{whose}: its days are not compared, only the evaluation with fixed bids")
    tables = {name: _unpaired(own[name], others[name]) for name in common}
    paired = "none"
    if apart:
        notes.append(
            f"{_differ(apart)}, so the runs did not meet the same requests: differences are "
            "unpaired, and intervals cover each run's own evaluation, not the spread between worlds"
        )
    elif first.seeds:
        paired = _pair_worlds(first, other, tables, notes)
    else:
        paired = _pair_requests(first, other, tables, notes)
    trained = _trained_again(first, other)
    stated = models_statement(trained, is_same_traffic=not apart)
    return {
        "first": str(first.path),
        "other": str(other.path),
        "names": [first.scenario.name, other.scenario.name],
        "paired_by": paired,
        "apart": apart,
        "scenario": [
            {"key": change.path, "old": change.old, "new": change.new}
            for change in scenario_diff(first.scenario, other.scenario)
        ],
        "sections": dict(
            zip(("first", "other"), sections_of_one(first.scenario, other.scenario), strict=True)
        ),
        "arms": tables,
        "lead": _lead(first, other, common),
        "trained_again": trained,
        "notes": notes,
        "held_fixed": list(stated.held_fixed or ()),
        "learned_again": list(stated.learned_again),
        **uncontrolled(first.scenario.world.has("fresh_requests")),
        **_reproduced(first, other),
    }


def _reproduced(first: Side, other: Side) -> dict[str, Any]:
    """How much of their log comes out in the run where that is less; nothing where no log is opened."""
    found = [reproduction(side.scenario, side.path) for side in (first, other)]
    known = sorted((one for one in found if one is not None), key=lambda one: one.is_enough)
    return {"replay": {"reproduced": known[0].as_json()}} if known else {}


def _lead(first: Side, other: Side, common: Sequence[str]) -> dict[str, str | None]:
    """The arm that a comparison is about and why: recommended by both runs, or else their baseline."""
    chosen = [decide(side.run.metrics).arm for side in (first, other)]
    if chosen[0] == chosen[1] and chosen[0] in common:
        return {"arm": chosen[0], "why": "recommended by both runs"}
    base = [side.run.metrics["baseline"] for side in (first, other)]
    if base[0] == base[1] and base[0] in common:
        return {"arm": base[0], "why": "baseline of both runs"}
    return {"arm": None, "why": None}


def _trained_again(first: Side, other: Side) -> dict[str, bool] | None:
    """Trained models of both runs: whether their weights differ; None where a run does not say."""
    common = [name for name in first.scenario.models if name in other.scenario.models]
    seeds = [seed for seed in first.seeds if seed in other.seeds]
    own, others = (_weights(side, seeds) for side in (first, other))
    if common and not (own and others):
        return None
    return {name: own.get(name) != others.get(name) for name in common}


def _weights(side: Side, seeds: Sequence[int]) -> dict[str, dict[str, str]]:
    """{model: digests of its files by world}, as the run sealed them; empty if it did not."""
    folders = [below(side.path, f"seed-{seed}") for seed in seeds] or [side.path]
    found: dict[str, dict[str, str]] = {}
    for i, folder in enumerate(folders):
        for file, digest in (checksums.known(folder) or {}).items():
            place, _, name = file.rpartition("/")
            if place == "models" and not name.endswith(".py"):
                found.setdefault(name.partition(".")[0], {})[f"{i}/{name}"] = digest
    return found


def models_statement(trained: Mapping[str, bool] | None, *, is_same_traffic: bool) -> Statement:
    """Which of the models that both runs have are bit-identical, by the digests of their weights."""
    held: tuple[str, ...] = ("the requests, and the draws of users and clicks",) if is_same_traffic else ()
    if trained is None:
        unsealed = "it cannot be told: the weights of a run's models are not sealed"
        return Statement(held, learned_again=(unsealed,))
    if not trained:
        return Statement(held, learned_again=("nothing: the runs have no trained model in common",))
    again = [name for name, differs in trained.items() if differs]
    same = [name for name, differs in trained.items() if not differs]
    if same:
        held += (f"models with the same weights in both runs: {', '.join(same)}",)
    if not again:
        return Statement(held, learned_again=("nothing: both runs have the same models, to the byte",))
    learned = (
        f"{', '.join(again)}: in each run from the log of its own cascade. A difference is that of setting "
        "and training together; `whatif` and `sweep` keep the models of one setting",
    )
    return Statement(held, learned_again=learned)


def _unpaired(before: dict[str, Any], after: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The difference of two numbers, their intervals taken as independent; none where one is missing."""
    table = {}
    for metric in dict.fromkeys((*before, *after)):
        earlier, later = before.get(metric, NOTHING), after.get(metric, NOTHING)
        gap = dict(NOTHING)
        if earlier["value"] is not None and later["value"] is not None:
            gap["value"] = later["value"] - earlier["value"]
            errors = [_standard_error(node) for node in (earlier, later)]
            if None not in errors:
                half = NORMAL * math.hypot(*errors)  # type: ignore[arg-type]
                gap |= {"low": gap["value"] - half, "high": gap["value"] + half}
        lift = dict(NOTHING)
        if gap["value"] is not None and earlier["value"]:
            lift["value"] = gap["value"] / abs(earlier["value"])
            if gap["low"] is not None:
                # d(b / a) = db / a - b da / a^2: what is divided by is as uncertain as the rest
                noise = (errors[1], errors[0] * later["value"] / earlier["value"])  # type: ignore[operator]
                half = NORMAL * math.hypot(*noise) / abs(earlier["value"])  # type: ignore[arg-type]
                lift |= {"low": lift["value"] - half, "high": lift["value"] + half}
        table[metric] = _entry(earlier, later, gap, lift, False)
    return table


def _standard_error(node: dict[str, Any]) -> float | None:
    """The standard error behind a 95 % interval, from its width; None without one."""
    if node.get("low") is None or node.get("high") is None:
        return None
    return float(node["high"] - node["low"]) / (2.0 * NORMAL)


def _entry(before: dict, after: dict, difference: dict, lift: dict, is_paired: bool) -> dict[str, Any]:
    def plain(node: dict) -> dict[str, Any]:
        return {key: node.get(key) for key in ("value", "low", "high")}

    return {
        "before": plain(before), "after": plain(after), "difference": plain(difference), "lift": plain(lift),
        "is_paired": is_paired,
    }  # fmt: skip


def _pair_requests(first: Side, other: Side, tables: dict[str, dict], notes: list[str]) -> str:
    """Put differences paired by request into the tables, for arms whose logs are there on both sides."""
    scenario = first.scenario
    n = min(first.scenario.phases.evaluate, other.scenario.phases.evaluate)
    if first.scenario.phases.evaluate != other.scenario.phases.evaluate:
        notes.append(f"phases.evaluate differs: paired on the first {n:,} requests, which both served")
    logs = [(side, set(table_names(side.path))) for side in (first, other)]
    missing = [
        f"{side.path}/logs/evaluate-{arm}"
        for arm in tables
        for side, known in logs
        if f"evaluate-{arm}" not in known
    ]
    paired = [arm for arm in tables if all(f"evaluate-{arm}" in known for _, known in logs)]
    if missing:
        notes.append(
            f"no log at {', '.join(missing[:4])}{' and elsewhere' if len(missing) > 4 else ''}: what rests "
            "on it is compared by metrics.json alone, with intervals as for other requests (too wide)"
        )
    if not paired:
        return "none"
    resamples = scenario.report.resamples
    columns_of = _columns_of(first, n, notes)
    for arm in paired:
        columns = {name: columns_of(side, arm) for name, side in (("before", first), ("after", other))}
        known = {name: parts for name, parts in RATIOS.items() if {*parts} <= set(columns["before"])}
        intervals = ratio_intervals(columns, known, "before", resamples, scenario.seed)
        gaps = ratio_differences(columns, known, "before", resamples, scenario.seed)
        for metric in known:
            before, after = intervals["before"][metric], intervals["after"][metric]
            tables[arm][metric] = _entry(before, after, gaps["after"][metric], after["lift"], True)
    return "request"


def _columns_of(first: Side, n: int, notes: list[str]) -> Callable[[Side, str], dict[str, np.ndarray]]:
    """What finds the columns of an arm of either side, by request."""
    environment = environment_of(first.scenario, first.scenario.seed, home=first.path)
    clusters, unsure = environment.clusters(n), environment.uncertainty(n).words
    if clusters is not None:
        notes.append(f"intervals resample {clusters.kind}s: {clusters.why}")
    if unsure is not None:
        notes.append(unsure)
    known = require_reproduced(first.scenario, first.path)
    if known is not None:
        notes.insert(0, known.words)
    return lambda side, arm: page_columns(environment, side.path, arm, n, charging_of(side.scenario, arm))


def _pair_worlds(first: Side, other: Side, tables: dict[str, dict], notes: list[str]) -> str:
    """Differences world by world, with Student t intervals between the worlds that both have."""
    common = [seed for seed in first.seeds if seed in other.seeds]
    folders = [[below(side.path, f"seed-{seed}") for seed in common] for side in (first, other)]
    if len(common) < 2 or not all(folder.is_dir() for side in folders for folder in side):
        notes.append(
            "fewer than two worlds in common, or their folders are gone: compared by metrics.json alone, "
            "with intervals as if the worlds were others"
        )
        return "none"
    if first.seeds != other.seeds:
        notes.append(f"paired on the worlds that both have: seeds {', '.join(str(seed) for seed in common)}")
    own, others = ([open_run(folder).metrics["arms"] for folder in side] for side in folders)
    for arm, table in tables.items():
        for metric in table:
            a, b = (
                [world[arm].get(metric, NOTHING)["value"] for world in worlds] for worlds in (own, others)
            )
            pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
            gaps = seed_spread([y - x for x, y in pairs])
            lifts = seed_spread([y / x - 1.0 for x, y in pairs if x])
            table[metric] = _entry(seed_spread(a), seed_spread(b), gaps, lifts, True)
    return "world"
