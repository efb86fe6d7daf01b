"""A sweep: every cell of a grid in every world, and what each cell brings against the first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cascade_sim.analysis.report.sections.sweep import NEITHER, known_measures
from cascade_sim.analysis.statistics.bootstrap import seed_spread
from cascade_sim.analysis.statistics.moves import paired_move
from cascade_sim.errors import UserError
from cascade_sim.grid import Axis, Cell
from cascade_sim.revenue.blocks import METRICS as IN_BLOCKS
from cascade_sim.revenue.blocks import read_blocks
from cascade_sim.scenario.file import scenario_hash
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.suggest import unknown_name
from cascade_sim.variants import folder_name, run_worlds

MARKET = "market."
Metrics = dict[str, Any]


def check_sweep(cells: Sequence[Cell], arm: str | None, measures: Sequence[str]) -> None:
    """Whether every cell has the arm and can be measured so; UserError before any work starts."""
    for cell in cells:
        arms = resolved_arms(cell.scenario)
        if arm is not None and arm not in arms:
            raise UserError(f"--arm: {unknown_name('arm', arm, arms)} (in the cell {cell.name})")
    known = known_measures(has_market=all(cell.scenario.market is not None for cell in cells))
    for measure in measures:
        if measure in NEITHER:
            raise UserError(f"measure {measure!r} has no better end, so no cell is better by it than another")
        if measure not in known:
            raise UserError(unknown_name("measure", measure, known))


def cell_folder(out: Path, cell: Cell) -> Path:
    """Named by what the cell is, not by its place: a grid that grows keeps what is finished."""
    return out / "cells" / f"{folder_name(cell.name)[:60]}-{scenario_hash(cell.scenario)[:6]}"


def run_sweep(
    axes: Sequence[Axis],
    cells: Sequence[Cell],
    out: Path,
    *,
    arm: str | None,
    seeds: int,
    workers: int,
    device: str,
    quiet: bool,
) -> dict[str, Any]:
    """What analysis.sweep_tables, plots_sweep and the page are made from; plain data."""
    folders = {cell.name: cell_folder(out, cell) for cell in cells}
    scenarios = {cell.name: cell.scenario for cell in cells}
    done = run_worlds(scenarios, folders, seeds, workers, device, quiet, "cells")
    first, measured = cells[0], {}
    for cell in cells:
        own, base = ([_flat(world, arm) for world in done[one.name]] for one in (cell, first))
        entries = {name: _entry(name, own, base, is_first=cell is first) for name in own[0]}
        if seeds == 1 and cell is not first:
            _add_paired(entries, _blocks(folders, cell, arm), _blocks(folders, first, arm))
        measured[cell.name] = entries
    start = cells[0].scenario
    return {
        "name": start.name,
        "arm": arm or start.report.baseline,
        "axes": [{"path": axis.path, "values": list(axis.values)} for axis in axes],
        "seeds": [start.seed + i for i in range(seeds)],
        "requests": start.phases.evaluate,
        "cells": [
            {"name": cell.name, "settings": cell.settings, "measures": measured[cell.name]} for cell in cells
        ],
    }


def _flat(metrics: Metrics, arm: str | None) -> dict[str, Metrics]:
    """{measure: {"value", "low", "high"}} of the arm; those of its market have no interval of their own."""
    name = arm or metrics["baseline"]
    found = dict(metrics["arms"][name])
    market = metrics.get("market", {}).get("arms", {}).get(name, {})
    for measure, value in market.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[MARKET + measure] = {"value": value, "low": None, "high": None}
    return found


def _entry(name: str, own: list[Metrics], base: list[Metrics], is_first: bool) -> Metrics:
    """The measure over worlds, and its lift over the first cell, world by world."""
    if len(own) == 1:
        entry = {key: own[0][name].get(key) for key in ("value", "low", "high")}
    else:
        entry = seed_spread([_value(world, name) for world in own])
    if not is_first:
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
        blocks = read_blocks(folders[cell.name] / f"seed-{cell.scenario.seed}")
    except UserError:
        return None
    return blocks.arms.get(arm or cell.scenario.report.baseline)


def _add_paired(entries: dict[str, Metrics], own: Any, base: Any) -> None:
    """In one world: intervals of the lifts from pairing groups of requests (see analysis.paired_change)."""
    if own is None or base is None:
        return
    for name in IN_BLOCKS:
        if name not in entries or entries[name]["lift"]["value"] is None:
            continue
        before, after = base.parts(name), own.parts(name)
        if len(before[0]) == len(after[0]):
            low, high = paired_move(before, after).interval()
            entries[name]["lift"] |= {"low": low, "high": high}
