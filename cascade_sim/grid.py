"""A grid of scenarios: every combination of some keys' values, each checked before any work starts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cascade_sim.errors import ScenarioError, UserError
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.schema import Scenario

MOST_CELLS = 1000
_OPEN, _CLOSE = "[{", "]}"


@dataclass(frozen=True)
class Axis:
    """A key of the scenario and the values it takes, as text."""

    path: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """A combination: its name (`squashing=0.5, slots=3`), the values by path, and the scenario they make."""

    name: str
    settings: dict[str, str]
    scenario: Scenario


def parse_axes(options: Sequence[str]) -> list[Axis]:
    """Of `path=a,b,c`, one each. UserError for what is no such list."""
    axes = [_axis(option) for option in options]
    for i, axis in enumerate(axes):
        if axis.path in [other.path for other in axes[:i]]:
            raise UserError(f"--over {axis.path}: given twice; write all its values in one list")
    n_cells = 1
    for axis in axes:
        n_cells *= len(axis.values)
    if n_cells > MOST_CELLS:
        raise UserError(f"--over: {n_cells:,} cells; at most {MOST_CELLS:,}, so leave out some values")
    return axes


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


def _axis(option: str) -> Axis:
    path, equals, text = option.partition("=")
    path = path.strip()
    if not equals or not path:
        raise UserError(f"--over {option}: expected path.to.key=value,value,…")
    if path == "seed":
        raise UserError(f"--over {option}: worlds are not swept; give their number with --seeds")
    values = tuple(_split(text))
    if not all(values):
        raise UserError(f"--over {option}: a value is empty; write path.to.key=value,value,…")
    twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
    if twice is not None:
        raise UserError(f"--over {option}: {twice} is given twice")
    return Axis(path, values)


def _split(text: str) -> list[str]:
    """At commas that are in no brackets and no quotes: `[1, 0.5],[1, 0.8]` are two values."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        if char == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _short_names(paths: Sequence[str]) -> dict[str, str]:
    """The shortest end of each path that no other path has."""
    found = {}
    for path in paths:
        steps = path.split(".")
        for n in range(1, len(steps) + 1):
            end = ".".join(steps[-n:])
            if sum(other == end or other.endswith(f".{end}") for other in paths) == 1:
                break
        found[path] = end
    return found


def _in_cells(names: list[str], n: int) -> str:
    if len(names) == n:
        return ""  # it is the scenario's, or the path's: no cell is to blame
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f" (in the cell {names[0]}{more})"
