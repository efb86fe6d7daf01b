"""One study under many settings, each in several worlds: which setting is best, where do conclusions hold?

The settings are the cells of a grid (every combination of some keys' values), or the variants that a file
names, each with the keys it overrides:

    scenario: ranking_consistency.yaml
    common: [phases.evaluate=4096]          # overrides of every variant; may be left out
    variants:
      as it is: []
      wide bids: [world.bids.sigma=0.7]

All are checked before any work starts. Each (cell, seed) is a run folder of its own; one that is complete, of
the same scenario and made by the same code is taken as it is, so that a stopped sweep goes on where it was.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cascade_sim.analysis.report.sections.sweep import COST, COST_MEASURES, NEITHER, known_measures
from cascade_sim.analysis.statistics.bootstrap import seed_spread
from cascade_sim.analysis.statistics.moves import paired_change
from cascade_sim.context import RunContext
from cascade_sim.environments.statement import Statement, uncontrolled
from cascade_sim.foundation.errors import ScenarioError, UserError, did_you_mean, unknown_name
from cascade_sim.foundation.workers import Job
from cascade_sim.logs.audit.reproduction import require_reproduced
from cascade_sim.regression.blocks import METRICS as IN_BLOCKS
from cascade_sim.regression.blocks import read_blocks
from cascade_sim.scenario.assignments import key_and_value, split_values
from cascade_sim.scenario.file import load_scenario, scenario_data, scenario_hash, shipped_variants
from cascade_sim.scenario.overrides import Point, Refused, apply_overrides, parse_points, refuse
from cascade_sim.scenario.plugins import refuse_registered, require_options, shipped_file
from cascade_sim.scenario.schema import Scenario, resolved_arms
from cascade_sim.scenario.yaml import Document, KeyPath, Mark, Problem, parse
from cascade_sim.storage.files import below, read_file

MAX_CELLS = 1000
MARKET = "market."
UNSET = "unset"  # of a key that the scenario alone does not have
FIXED_AT_A_TIME = 50  # cells that are served together by the models of the reference
SERVED = ("cascade", "fusions", "auction", "bidding", "arms", "report", "market", "what_if", "off_policy")
Metrics = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """A key of the scenario and the values it takes, as text."""

    path: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One setting: its name (`squashing=0.5, slots=3`), the values by path, and the scenario they make."""

    name: str
    settings: dict[str, str]
    scenario: Scenario


def parse_axes(options: Sequence[str]) -> list[Axis]:
    """An axis from each `path=a,b,c`. UserError for what is no such list."""
    axes = [_axis(option) for option in options]
    for i, axis in enumerate(axes):
        if axis.path in [other.path for other in axes[:i]]:
            raise UserError(f"--over {axis.path}: given twice; write all its values in one list")
    n_cells = 1
    for axis in axes:
        n_cells *= len(axis.values)
    if n_cells > MAX_CELLS:
        raise UserError(f"--over: {n_cells:,} cells; at most {MAX_CELLS:,}, so leave out some values")
    return axes


def _axis(option: str) -> Axis:
    try:
        path, text = key_and_value(option)
    except ValueError as reason:
        raise UserError(f"--over {option}: {reason}; expected path.to.key=value,value,…") from None
    if path == "seed":
        raise UserError(f"--over {option}: worlds are not swept; give their number with --seeds")
    values = tuple(split_values(text))
    if not all(values):
        raise UserError(f"--over {option}: a value is empty; write path.to.key=value,value,…")
    twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
    if twice is not None:
        raise UserError(f"--over {option}: {twice} is given twice")
    return Axis(path, values)


def load_grid(path: Path, axes: Sequence[Axis], overrides: Sequence[str] = ()) -> list[Cell]:
    """All cells in order, the last axis fastest. ScenarioError naming the cells that are not valid."""
    short = _short_names([axis.path for axis in axes])
    cells: list[Cell] = []
    problems: dict[str, list[str]] = {}  # problem -> the cells that have it
    for values in itertools.product(*(axis.values for axis in axes)):
        settings = dict(zip((axis.path for axis in axes), values, strict=True))
        name = ", ".join(f"{short[key]}={value}" for key, value in settings.items())
        changes = {key: f"{key}={value}" for key, value in settings.items()}
        try:
            cells.append(Cell(name, settings, load_scenario(path, (*overrides, *changes.values()))))
        except ScenarioError as error:
            for problem in error.problems:
                for key, change in changes.items():  # the value is in the cell's name
                    problem = problem.replace(f"--set {change}", f"--over {key}", 1)
                problems.setdefault(problem, []).append(name)
    if problems:
        n = len(cells) + len({name for names in problems.values() for name in names})
        raise ScenarioError([text + _in_cells(names, n) for text, names in problems.items()])
    return cells


def with_reference(
    path: Path, axes: Sequence[Axis], cells: Sequence[Cell], overrides: Sequence[str] = ()
) -> tuple[list[Axis], list[Cell]]:
    """The grid with the scenario's own setting as its first cell: moved there, or added.

    Of a scenario that is not valid without the values of the axes, the first cell stays.
    """
    try:
        own = load_scenario(path, overrides)
    except ScenarioError:
        return list(axes), list(cells)
    digest = scenario_hash(own)
    same = next((cell for cell in cells if scenario_hash(cell.scenario) == digest), None)
    if same is not None:
        return list(axes), [same, *(cell for cell in cells if cell is not same)]
    settings = {axis.path: _own_text(path, axis, own, overrides) for axis in axes}
    short = _short_names([axis.path for axis in axes])
    name = ", ".join(f"{short[key]}={text}" for key, text in settings.items())
    grown = [Axis(a.path, tuple(dict.fromkeys((settings[a.path], *a.values)))) for a in axes]
    return grown, [Cell(name, settings, own), *cells]


def _own_text(path: Path, axis: Axis, own: Scenario, overrides: Sequence[str]) -> str:
    """What a scenario alone has for the key of an axis: as the axis writes it, else as the scenario does."""
    for text in axis.values:
        try:
            changed = load_scenario(path, (*overrides, f"{axis.path}={text}"))
        except ScenarioError:
            continue
        if scenario_hash(changed) == scenario_hash(own):
            return text
    value: Any = scenario_data(own)
    for step in axis.path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return UNSET
    return value if isinstance(value, str) else json.dumps(value)


def fixed_points(cells: Sequence[Cell], arm: str | None) -> list[Point]:
    """The cells but the first as changes of the first one's arm, as a what-if takes them.

    UserError for what is settled before serving: the models of the first cell cannot answer for that.
    """
    scenario = cells[0].scenario
    name = arm or scenario.report.baseline
    own, points = resolved_arms(scenario)[name], []
    for cell in cells[1:]:
        words = [f"{key}={text}" for key, text in cell.settings.items() if text != UNSET]
        try:
            (point,) = parse_points(words, scenario, name)
            changed, spec = apply_overrides(scenario, own, point, Path("."))
        except Refused as reason:
            error = refuse(reason, words, "--over ")
            raise UserError(f"{error} (--fixed-models serves, and trains nothing again)") from None
        cell_spec = resolved_arms(cell.scenario)[name]
        if (spec, changed.fusions) != (cell_spec, cell.scenario.fusions):
            raise UserError(
                f"--fixed-models: arm {name} has keys of its own, so it is not served with "
                f"{', '.join(words)} in the cell {cell.name}; sweep those keys, as arms.{name}.KEY"
            )
        points.append(point)
    return points


def _short_names(paths: Sequence[str]) -> dict[str, str]:
    """The shortest end of each path that no other path has."""
    short = {}
    for path in paths:
        steps = path.split(".")
        for n in range(1, len(steps) + 1):
            end = ".".join(steps[-n:])
            if sum(other == end or other.endswith(f".{end}") for other in paths) == 1:
                break
        short[path] = end
    return short


def _in_cells(names: list[str], n: int, what: str = "cell") -> str:
    if len(names) == n:
        return ""  # it is the scenario's, or the path's: no cell is to blame
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f" (in the {what} {names[0]}{more})"


def load_variants(path: Path, overrides: Sequence[str] = ()) -> list[Cell]:
    """The variants of a file in its order, all checked.

    ScenarioError with all problems, `file:line:column variants.NAME: key=value: what is wrong`.
    """
    shipped = shipped_variants()
    if not path.exists():
        path = shipped.get(str(path), shipped_file(path) or path)
    try:
        document = parse(read_file(path, follows=True).decode("utf-8"))
    except FileNotFoundError:
        beside = sorted(str(file) for file in path.parent.glob("*.y*ml"))
        hint = did_you_mean(str(path), [*beside, *shipped]) or "; give the path of a variants file (.yaml)"
        raise UserError(f"{path}: no such file{hint}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: {error}") from error
    if not document.problems:
        document.problems += _variants_faults(document.data)
    if document.problems:
        raise ScenarioError(
            [_at(path, document, fault.path, fault.text, fault.mark) for fault in document.problems]
        )
    content = document.data
    common = content.get("common") or []
    scenario = path.parent / content["scenario"]
    cells: list[Cell] = []
    problems: dict[str, list[str]] = {}  # problem -> the variants that have it
    for name, changes in content["variants"].items():
        # Where the text of each override is; of the same text in two places the later one counts.
        places: dict[str, KeyPath] = {change: ("common", i) for i, change in enumerate(common)}
        places |= {change: ("variants", name, i) for i, change in enumerate(changes)}
        places = {change: place for change, place in places.items() if change not in overrides}
        try:
            loaded = load_scenario(scenario, (*common, *changes, *overrides))
            cells.append(Cell(str(name), dict(key_and_value(change) for change in changes), loaded))
        except ScenarioError as error:
            for problem in error.problems:
                place = next((p for text, p in places.items() if problem.startswith(f"--set {text}: ")), None)
                if place is not None:
                    problem = _at(path, document, place, problem.removeprefix("--set "))
                named = problems.setdefault(problem, [])
                if place is None or place[0] == "common":  # the place of others names the variant
                    named.append(str(name))
    if problems:
        n = len(content["variants"])
        raise ScenarioError(
            [text + (_in_cells(names, n, "variant") if names else "") for text, names in problems.items()]
        )
    folders = {folder_name(cell.name): cell.name for cell in cells}
    for cell in cells:
        if folders[folder_name(cell.name)] != cell.name:
            fault = "differs from another name only in punctuation; rename it"
            raise ScenarioError([_at(path, document, ("variants", cell.name), fault)])
    return cells


def _variants_faults(content: Any) -> Iterator[Problem]:
    """What is wrong with the form of a file of variants."""
    keys = ("scenario", "variants", "common")
    expected = "expected the keys scenario, variants and optionally common"
    if not isinstance(content, dict):
        yield Problem((), f"{expected}, found {content!r}")
        return
    for key in (key for key in content if key not in keys):
        yield Problem((key,), f"{expected}{did_you_mean(str(key), keys)}")
    for key in (key for key in keys[:2] if key not in content):
        yield Problem((), f"{expected}; {key} is missing")
    if not isinstance(content.get("scenario", ""), str):
        yield Problem(("scenario",), f"expected the path of a scenario, found {content['scenario']!r}")
    lists: list[tuple[KeyPath, Any]] = [(("common",), content.get("common") or [])]
    variants = content.get("variants", {"": []})
    if not isinstance(variants, dict) or not variants:
        yield Problem(("variants",), "expected NAME: [key=value, …], at least one")
    else:
        lists += [(("variants", name), changes) for name, changes in variants.items()]
    for at, changes in lists:
        if not isinstance(changes, list):
            yield Problem(at, f"expected a list of key=value, not {changes!r}")
            continue
        for i, change in enumerate(changes):
            if not isinstance(change, str):
                yield Problem((*at, i), f"expected key=value, not {change!r}")


def _at(path: Path, document: Document, place: KeyPath, text: str, mark: Mark | None = None) -> str:
    """`file:line:column variants.NAME: what is wrong`; positions in lists are told by line and column."""
    line, column = mark or document.mark(place)
    name = ".".join(str(step) for step in place if not isinstance(step, int))
    return f"{path}:{line}:{column} {name + ': ' if name else ''}{text}"


def run_worlds(
    cells: Sequence[Cell],
    folders: Mapping[str, Path],
    what: str,
    context: RunContext,
    *,
    seeds: int,
    keep_logs: bool = False,
    logged_by: Cell | None = None,
) -> dict[str, list[Metrics]]:
    """The metrics of each cell in each of its worlds, seed after seed; complete ones are not run again.

    Each world leaves a run folder, FOLDER/seed-N. `logged_by`: the cell whose cascade writes the log that the
    models of all cells learn from; its worlds come first, and what is trained there is not trained again.
    """
    from cascade_sim.study.run import refuse_worlds, run_world, taken_or_run

    for cell in cells:
        refuse_worlds(cell.scenario, seeds)
        refuse_registered(cell.scenario)
        require_options(cell.scenario, context.home)
        require_reproduced(cell.scenario, context.home)
    worlds = {
        (cell.name, i): cell.scenario.model_copy(update={"seed": cell.scenario.seed + i})
        for cell in cells
        for i in range(seeds)
    }
    with context.engine as engine, context.progress:
        placed = {name: engine.place(folder) for name, folder in folders.items()}
        engine.require_folder(*placed.values())
        jobs = {
            key: Job(
                f"{key[0]}, seed {world.seed}",
                run_world,
                (world, below(placed[key[0]], f"seed-{world.seed}"), context.device),
                {"keep_logs": keep_logs, "logged_by": logged_by and scenario_data(logged_by.scenario)},
            )
            for key, world in worlds.items()
        }
        teachers = [job for key, job in jobs.items() if logged_by is None or key[0] == logged_by.name]
        others = [job for job in jobs.values() if job not in teachers]
        done = taken_or_run((teachers, others), what, context, go_on="the same command resumes them")
    return {cell.name: [done[jobs[cell.name, i].name] for i in range(seeds)] for cell in cells}


def folder_name(variant: str) -> str:
    """A variant's name as the name of a folder."""
    return "".join(c if c.isalnum() else "-" for c in variant.lower()).strip("-")


def check_sweep(
    cells: Sequence[Cell],
    arm: str | None,
    measures: Sequence[str],
    *,
    retrain: bool = False,
    fixed_models: bool = False,
) -> None:
    """Whether every cell has the arm and can be measured so; UserError before any work starts."""
    if retrain and fixed_models:
        raise UserError("--retrain and --fixed-models: models learn again, or they do not; give one of them")
    for cell in cells:
        arms = resolved_arms(cell.scenario)
        if arm is not None and arm not in arms:
            raise UserError(f"--arm: {unknown_name('arm', arm, arms)} (in the cell {cell.name})")
    known = known_measures(
        has_market=all(cell.scenario.market is not None for cell in cells),
        has_cost=all(cell.scenario.world.has("corpus") for cell in cells),
    )
    if fixed_models:
        fixed_points(cells, arm)
    for measure in measures:
        if fixed_models and measure.startswith(MARKET):
            raise UserError(
                f"measure {measure!r}: --fixed-models serves the evaluation again, and no days of a market"
            )
        if measure in NEITHER:
            raise UserError(f"measure {measure!r} has no better end, so no cell is better by it than another")
        if measure not in known:
            raise UserError(unknown_name("measure", measure, known))


def cell_folder(out: Path, cell: Cell) -> Path:
    """A folder named by the cell's content, not its place: a grid that grows keeps what is finished."""
    return below(out, "cells", f"{folder_name(cell.name)[:60]}-{scenario_hash(cell.scenario)[:6]}")


def run_sweep(
    axes: Sequence[Axis],
    cells: Sequence[Cell],
    context: RunContext,
    *,
    arm: str | None,
    seeds: int,
    retrain: bool = False,
    keep_logs: bool = False,
    fixed_models: bool = False,
) -> dict[str, Any]:
    """What tables, figure and page of a sweep are made from, as plain data.

    The first cell is the reference. The models of all cells learn from the log of its cascade, so that a
    parameter of the auction is not mixed with the seed variance of another training; with `retrain` each
    cell's learn from its own. With `fixed_models` only the reference is run; the others are what-ifs of it.
    """
    folders = {cell.name: cell_folder(context.out, cell) for cell in cells}
    first = cells[0]
    if fixed_models:
        done, stated = _serve_fixed(cells, folders[first.name], context, arm, seeds, keep_logs)
    else:
        logged_by = None if retrain else first
        made = run_worlds(
            cells, folders, "cells", context, seeds=seeds, keep_logs=keep_logs, logged_by=logged_by
        )
        done = {name: [_flat(world, arm) for world in worlds] for name, worlds in made.items()}
        stated = replace(sweep_statement(cells, retrain), facts=made[first.name][0].get("replay"))
    measured = {}
    for cell in cells:
        own, base = done[cell.name], done[first.name]
        entries = {name: _entry(name, own, base, is_first=cell is first) for name in own[0]}
        if seeds == 1 and cell is not first and not fixed_models:
            _add_paired(entries, _blocks(folders, cell, arm), _blocks(folders, first, arm))
        measured[cell.name] = entries
    start = first.scenario
    replay_facts = stated.facts or {}
    return {
        **({"replay": {"reproduced": replay_facts["reproduced"]}} if "reproduced" in replay_facts else {}),
        "name": start.name,
        "arm": arm or start.report.baseline,
        "axes": [{"path": axis.path, "values": list(axis.values)} for axis in axes],
        "seeds": [start.seed + i for i in range(seeds)],
        "requests": start.phases.evaluate,
        "cells": [
            {"name": cell.name, "settings": cell.settings, "measures": measured[cell.name]} for cell in cells
        ],
        "reference": first.name,
        "held_fixed": list(stated.held_fixed or ()),
        "learned_again": list(stated.learned_again),
        **({} if fixed_models else uncontrolled(start.world.has("fresh_requests"))),
    }


def _of_training(scenario: Scenario) -> dict[str, Any]:
    """A scenario as data, without the length of the evaluation, from which nothing is learned."""
    data = scenario_data(scenario)
    return {**data, "phases": {name: n for name, n in data["phases"].items() if name != "evaluate"}}


def sweep_statement(cells: Sequence[Cell], retrain: bool) -> Statement:
    """What the cells of a sweep share with the first, and what their models learned again."""
    first, others = cells[0], cells[1:]
    data = {cell.name: _of_training(cell.scenario) for cell in cells}
    own = data[first.name]

    def differs(cell: Cell, keys: Iterable[str]) -> bool:
        return any(data[cell.name].get(key) != own.get(key) for key in keys)

    traffic = [cell for cell in others if differs(cell, ("world", "traffic"))]
    held = ["the requests, and the draws of users and clicks"]
    if traffic:
        held = [f"{held[0]}, but in {_some(traffic, cells)}: another world or other traffic"]
    if not first.scenario.models or not first.scenario.world.has("training"):
        return Statement((*held, "models: none is trained"), learned_again=("nothing",))
    if retrain:
        of_own = "the models of every cell, from the log of its own cascade, as `run --set` does"
        return Statement(tuple(held), learned_again=(of_own,))
    from cascade_sim.study.prepare import is_logged_alike, logging_scenario

    alone = [
        cell
        for cell in others
        if not is_logged_alike(data[cell.name], own) and logging_scenario(cell.scenario, own) is None
    ]
    again = [c for c in others if c not in alone and differs(c, {*own, *data[c.name]} - {*SERVED, "name"})]
    held.append(f"the cascade that writes the log which models learn from: that of {first.name}")
    learned = []
    if again:
        learned.append(
            f"the models of {_some(again, cells)}, whose world, traffic, phases or models differ, from a log "
            f"that the cascade of {first.name} writes there"
        )
    if alone:
        learned.append(f"the models of {_some(alone, cells)}, from the log of its own cascade")
    if any(cell.scenario.market and cell.scenario.market.training for cell in cells):
        learned.append("in the days of a market each cell's models, from what they show")
    if not learned:
        return Statement(tuple(held))
    return Statement(tuple(held), learned_again=tuple(learned))


def _some(some: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """How many of the cells, or which one."""
    return some[0].name if len(some) == 1 else f"{len(some)} of {len(cells)} cells"


def _serve_fixed(
    cells: Sequence[Cell], folder: Path, context: RunContext, arm: str | None, seeds: int, keep_logs: bool
) -> tuple[dict[str, list[Metrics]], Statement]:
    """{cell: its measures in each world}, the models of the first cell serving all of them."""
    from cascade_sim.counterfactual.whatif import Question, Setting, ask_run
    from cascade_sim.diagnostics.reopen import reopen

    first, points = cells[0], fixed_points(cells, arm)
    run_worlds([first], {first.name: folder}, "reference", context, seeds=seeds, keep_logs=keep_logs)
    done: dict[str, list[Metrics]] = {cell.name: [] for cell in cells}
    held: list[str] = []
    for i in range(seeds):
        world = below(folder, f"seed-{first.scenario.seed + i}")
        opened = reopen(world, trust=True)  # as it was run here
        where = Setting(opened, world, arm or first.scenario.report.baseline)
        for start in range(0, len(points), FIXED_AT_A_TIME):
            asked = Question(tuple(points[start : start + FIXED_AT_A_TIME]))
            answer = ask_run(where, asked, context.progress)
            held = answer["held_fixed"]
            if start == 0:
                done[first.name].append(_with_cost(answer["current"]))
            for cell, point in zip(cells[1 + start :], answer["points"], strict=False):
                done[cell.name].append(_with_cost(point))
        if not points:
            done[first.name].append(_flat(opened.run.metrics, arm))
    return done, Statement(tuple(held), facts=opened.run.metrics.get("replay"))


def write_sweep(findings: dict[str, Any], folder: Path, across: str, up: str) -> list[Path]:
    """Write sweep.csv and sweep.html into a folder; returns their paths."""
    from cascade_sim.analysis.report.figures.sweep import sweep_svg
    from cascade_sim.analysis.report.sections.sweep import csv_text
    from cascade_sim.analysis.report.short_page import sweep_page
    from cascade_sim.storage.files import write_file

    page = sweep_page(findings, across, up, sweep_svg(findings, across, up))
    files = {"sweep.csv": csv_text(findings, across, up), "sweep.html": page}
    for name, text in files.items():
        write_file(folder / name, text.encode())
    return [folder / name for name in files]


def _flat(metrics: Metrics, arm: str | None) -> dict[str, Metrics]:
    """{measure: {"value", "low", "high"}} of the arm; those of its market have no interval of their own."""
    name = arm or metrics["baseline"]
    cost = (metrics.get("cost") or {}).get(name) or {}
    flat = _with_cost({"metrics": metrics["arms"][name], "cost": cost})
    market = metrics.get("market", {}).get("arms", {}).get(name, {})
    for measure, value in market.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            flat[MARKET + measure] = {"value": value, "low": None, "high": None}
    return flat


def _with_cost(served: Metrics) -> dict[str, Metrics]:
    """The measures of an arm as it was served, with what a request costs; that has no interval in a world."""
    known = {name: (served.get("cost") or {}).get(name.removeprefix(COST)) for name in COST_MEASURES}
    costs = {
        name: {"value": value, "low": None, "high": None}
        for name, value in known.items()
        if value is not None
    }
    return {**served["metrics"], **costs}


def _entry(name: str, own: list[Metrics], base: list[Metrics], is_first: bool) -> Metrics:
    """The measure over worlds, and its lift over the first cell, world by world.

    The lift of one world has an interval where the measure came with one.
    """
    if len(own) == 1:
        entry = {key: own[0][name].get(key) for key in ("value", "low", "high")}
    else:
        entry = seed_spread([_value(world, name) for world in own])
    if not is_first and len(own) == 1 and own[0][name].get("difference") is not None:
        entry["lift"] = {key: (own[0][name].get("lift") or {}).get(key) for key in ("value", "low", "high")}
    elif not is_first:
        entry["lift"] = seed_spread(
            [_lift(_value(a, name), _value(b, name)) for a, b in zip(own, base, strict=True)]
        )
    return entry


def _value(world: Metrics, name: str) -> float | None:
    return world[name]["value"] if name in world else None


def _lift(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None or base <= 0 else value / base - 1.0


def _blocks(folders: dict[str, Path], cell: Cell, arm: str | None) -> Any:
    """The sums by group of requests that the run kept; None where they are too few."""
    try:
        blocks = read_blocks(below(folders[cell.name], f"seed-{cell.scenario.seed}"))
    except UserError:
        return None
    return blocks.arms.get(arm or cell.scenario.report.baseline)


def _add_paired(entries: dict[str, Metrics], own: Any, base: Any) -> None:
    """In one world: intervals of the lifts from pairing groups of requests."""
    if own is None or base is None:
        return
    for name in IN_BLOCKS:
        if name not in entries or entries[name]["lift"]["value"] is None:
            continue
        before, after = base.parts(name), own.parts(name)
        if len(before[0]) == len(after[0]):
            low, high = paired_change(before, after).interval()
            entries[name]["lift"] |= {"low": low, "high": high}


def run_variants(cells: Sequence[Cell], context: RunContext, *, seeds: int) -> dict[str, Metrics]:
    """The combined metrics of every variant over its seeds."""
    from cascade_sim.study.results import combine_seeds

    folders = {cell.name: context.out / folder_name(cell.name) for cell in cells}
    done = run_worlds(cells, folders, "variants", context, seeds=seeds)
    return {name: combine_seeds(worlds) for name, worlds in done.items()}


def variants_table(results: Mapping[str, Metrics], arms: list[str], metric: str, lift: bool) -> str:
    """A Markdown table: a row per variant, a column per arm, mean ± half the interval."""
    lines = ["| variant | " + " | ".join(arms) + " |", "|---|" + "---|" * len(arms)]
    for name, metrics in results.items():
        cells = []
        for arm in arms:
            node = metrics["arms"].get(arm, {}).get(metric, {})
            cells.append(_cell(node.get("lift") if lift else node, lift))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ablation_table(results: Mapping[str, Metrics]) -> str:
    """A Markdown table of the ablation: RCS with parts of pre-ranking replaced, a row per variant.

    A variant that has no such step, bid or model leaves the cell empty.
    """
    tables = {
        name: {_parts(row): _cell(row["rcs"], False) for row in metrics["ablation"]}
        for name, metrics in results.items()
    }
    heads = list(dict.fromkeys(head for table in tables.values() for head in table))
    lines = ["| variant | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for name, table in tables.items():
        lines.append(f"| {name} | " + " | ".join(table.get(head, "–") for head in heads) + " |")
    return "\n".join(lines)


def _parts(row: Mapping[str, Any]) -> str:
    """Bid and model of a row of the ablation, after their step where there are several."""
    step = f"{row['stage']}: " if "stage" in row else ""
    pcvr = f" ({row['pcvr']})" if row.get("pcvr") else ""
    return f"{step}{row['bid']}{pcvr} × {row['model']}"


def orders_kept(results: Mapping[str, Metrics], metric: str) -> str:
    """A Markdown table: the order of each variant's arms by a metric, and how many worlds keep it.

    Between two neighbours is in how many worlds the first is ahead. Empty for one world.
    """
    rows = []
    for name, metrics in results.items():
        order = (metrics.get("orders") or {}).get(metric)
        if order is None:
            continue
        kept = {(pair["first"], pair["second"]): pair["kept"] for pair in order["pairs"]}
        text = order["order"][0]
        for first, second in itertools.pairwise(order["order"]):
            text += f" >({kept[first, second]}) {second}"
        rows.append(f"| {name} | {text} | {order['whole']} of {order['worlds']} |")
    return (
        "\n".join(["| variant | order, best first (worlds) | whole order |", "|---|---|---|", *rows])
        if rows
        else ""
    )


def _cell(node: dict[str, Any] | None, signed: bool) -> str:
    """Percent with half the width of the interval; – where undefined."""
    if not node or node.get("value") is None:
        return "–"
    text = f"{100 * node['value']:+.1f}" if signed else f"{100 * node['value']:.1f}"
    if node.get("low") is not None:
        text += f" ± {50 * (node['high'] - node['low']):.1f}"
    return text
