"""What a run leaves for later comparison: sums over groups of consecutive requests, arm by arm.

blocks.json of a run folder holds them, with the metrics they add up to. Groups halve by adding neighbours, so
a run can be compared with a baseline of fewer groups. Of a market, sums by day are kept: hours share budgets.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES, MARKET_MEASURES, MODELLED, Metric, columns_of
from cascade_sim.foundation.errors import UserError
from cascade_sim.storage.renamed import KEYS

if TYPE_CHECKING:
    from cascade_sim.study.evaluate import Evaluation

BLOCKS = "blocks.json"
MAX_GROUPS = 256
MIN_GROUPS = 8  # below, nothing can be said of what moves by chance
DIGITS = 10

# What is guarded. Positive by nature, so that a relative change has a meaning.
METRICS: dict[str, Metric] = {
    name: ARM_MEASURES[name]
    for name in (
        *("revenue_per_request", "expected_revenue_per_request", "rpm", "expected_rpm"),
        *("ctr", "expected_ctr", "cpc", "rcs", "welfare_vs_oracle"),
    )
}
# The same of a market, by day.
MARKET_METRICS: dict[str, Metric] = {
    f"market_{name}": MARKET_MEASURES[name] for name in ("revenue_per_request", "rpm", "ctr", "cpc")
}
ALL_METRICS = {**METRICS, **MARKET_METRICS}
COLUMNS, DAY_COLUMNS = columns_of(METRICS.values()), columns_of(MARKET_METRICS.values())
HOURS = 24


@dataclass(frozen=True)
class ArmBlocks:
    """One arm: metrics (None: undefined), and the sums of each column by group of requests [G] and by day."""

    values: dict[str, float | None]
    sums: dict[str, np.ndarray]
    days: dict[str, np.ndarray] = field(default_factory=dict)  # of its market; empty: none

    def parts(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Numerator and denominator of a metric, by group or by day, without the metric's factor."""
        return ALL_METRICS[metric].split(self.days if metric in MARKET_METRICS else self.sums)

    def with_groups(self, n: int) -> "ArmBlocks":
        """Neighbouring groups added up until n are left."""
        sums = {name: column.reshape(n, -1).sum(axis=1) for name, column in self.sums.items()}
        return ArmBlocks(self.values, sums, self.days)


@dataclass(frozen=True)
class Blocks:
    """What every arm of a run brought, by group of requests and by day."""

    requests: int
    groups: int
    arms: dict[str, ArmBlocks]

    def only(self, names: Iterable[str]) -> "Blocks":
        return Blocks(self.requests, self.groups, {name: self.arms[name] for name in names})

    def with_groups(self, n: int) -> "Blocks":
        return Blocks(self.requests, n, {name: arm.with_groups(n) for name, arm in self.arms.items()})

    def data(self) -> dict[str, Any]:
        """The blocks as plain data: sums to ten digits, integers as integers."""
        return {
            "requests": self.requests,
            "groups": self.groups,
            "arms": {
                name: {
                    "values": arm.values,
                    "sums": {column: _short(sums) for column, sums in arm.sums.items()},
                    **({"days": {key: _short(sums) for key, sums in arm.days.items()}} if arm.days else {}),
                }
                for name, arm in self.arms.items()
            },
        }


def n_groups(requests: int) -> int:
    """A power of 2, so that groups can be halved; at most MAX_GROUPS and not more than requests."""
    return min(MAX_GROUPS, 2 ** int(math.log2(max(requests, 1))))


def evaluation_blocks(evaluation: "Evaluation", market: Mapping[str, Any] | None = None) -> Blocks:
    """The sums of a finished evaluation, of every arm it compares, and of the `market` section of metrics."""
    n, groups = evaluation.n_requests, n_groups(min(evaluation.n_requests, evaluation.n_rows))
    # Group floor(i G / n) of request i: a row is a few requests in a row, of which there are n or k G.
    group = np.arange(evaluation.n_rows, dtype=np.int64) * groups // evaluation.n_rows
    plain = evaluation.controlled()
    # A fitted world is the same on both sides of a check: its uncertainty is no reason for revenue to differ.
    arms, resampled = {}, plain if evaluation.uncertainty.is_common else evaluation.resampled()
    for name in evaluation.arms:
        columns = plain[name]
        known = [column for column in COLUMNS if column in columns]  # a log has no oracle
        # What was brought, and sums that vary by as much as it is uncertain, a click model's among it.
        sums = arm_blocks({column: resampled[name][column] for column in known}, group, groups).sums
        arms[name] = ArmBlocks(_values(METRICS, {column: columns[column] for column in known}), sums)
    for name, section in (market or {}).get("arms", {}).items():
        arms[name] = with_days(arms[name], section["hours"])
    return Blocks(n, groups, arms)


def arm_blocks(columns: Mapping[str, np.ndarray], group: np.ndarray, groups: int) -> ArmBlocks:
    """The sums of an arm from columns by request [R] and the group of each request [R]."""
    sums = {name: np.bincount(group, column, groups) for name, column in columns.items()}
    return ArmBlocks(_values(METRICS, columns), sums)


def with_days(arm: ArmBlocks, hours: Mapping[str, Sequence[float]]) -> ArmBlocks:
    """The arm with its market's metrics and their sums by day; the last day may be a part of one."""
    starts = range(0, len(hours["requests"]), HOURS)
    days = {
        name: np.array([math.fsum(hours[name][start : start + HOURS]) for start in starts])
        for name in DAY_COLUMNS
    }
    return ArmBlocks({**arm.values, **_values(MARKET_METRICS, days)}, arm.sums, days)


def _values(metrics: Mapping[str, Metric], columns: Mapping[str, np.ndarray]) -> dict[str, float | None]:
    """The metrics that can be formed from these columns, over all their rows."""
    totals = {name: math.fsum(column) for name, column in columns.items()}
    return {
        name: metric.of(totals)
        for name, metric in metrics.items()
        if metric.top in totals and metric.bottom in totals
    }


def write_blocks(evaluation: "Evaluation", market: Mapping[str, Any] | None, folder: Path) -> None:
    """Write blocks.json into a run folder."""
    from cascade_sim.storage.files import below, write_file

    write_file(below(folder, BLOCKS), json_lines(evaluation_blocks(evaluation, market).data()).encode())


def read_blocks(run: Path) -> Blocks:
    """blocks.json of a finished run of one world. UserError if it is not there or damaged."""
    from cascade_sim.storage.files import below
    from cascade_sim.storage.folder import read_object

    file = below(run, BLOCKS)
    if not file.exists():
        worlds = sorted(folder.name for folder in run.glob("seed-*"))
        if worlds:
            raise UserError(
                f"{run} is a study over {len(worlds)} worlds; give the folder of one: {run / worlds[0]}"
            )
        raise UserError(
            f"{file} is missing: the run was made before runs kept sums by group, or was tidied up; "
            "run the scenario again"
        )
    return blocks_from(read_object(file), str(file))


def blocks_from(data: Mapping[str, Any], where: str) -> Blocks:
    """Checked blocks from plain data; UserError with the key's path and what was expected."""
    requests, groups = (expect(data, key, int, where) for key in ("requests", "groups"))
    if not MIN_GROUPS <= groups <= MAX_GROUPS or groups & (groups - 1):
        raise UserError(
            f"{where}: groups is {groups}; expected a power of 2 from {MIN_GROUPS} to {MAX_GROUPS}"
            + (f" ({requests} requests are too few to compare)" if requests < MIN_GROUPS else "")
        )
    arms = {}
    for name, arm in expect(data, "arms", dict, where).items():
        path = f"arms.{name}"
        if not isinstance(arm, dict):
            raise UserError(f"{where}: {path} is {_kind(arm)}; expected an object with values and sums")
        values = {KEYS.get(name, name): one for name, one in expect(arm, "values", dict, where, path).items()}
        sums = expect(arm, "sums", dict, where, path)
        days = expect(arm, "days", dict, where, path) if "days" in arm else {}
        n_days = len(days["requests"]) if isinstance(days.get("requests"), list) else 0
        for metric in values:
            if metric not in ALL_METRICS:
                from cascade_sim.foundation.errors import unknown_name

                raise UserError(f"{where}: {path}.values: {unknown_name('metric', metric, ALL_METRICS)}")
            if not (values[metric] is None or _is_number(values[metric])):
                raise UserError(
                    f"{where}: {path}.values.{metric} is {_kind(values[metric])}; expected a number or null"
                )
            section, held = ("days", days) if metric in MARKET_METRICS else ("sums", sums)
            for column in (ALL_METRICS[metric].top, ALL_METRICS[metric].bottom):
                expect(held, column, list, where, f"{path}.{section}")
        arms[name] = ArmBlocks(
            dict(values),
            {
                key: _column(sums[key], groups, "group", f"{where}: {path}.sums.{key}", key in MODELLED)
                for key in sums
            },
            {key: _column(days[key], n_days, "day", f"{where}: {path}.days.{key}") for key in days},
        )
    return Blocks(requests, groups, arms)


def expect(data: Mapping[str, Any], key: str, kind: type, where: str, path: str = "") -> Any:
    """data[key] of this type, or a UserError with the whole path of the key."""
    full = f"{path}.{key}" if path else key
    if key not in data:
        raise UserError(f"{where}: {full} is missing; expected {_ARTICLES[kind]}")
    value = data[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{where}: {full} is {_kind(value)}; expected {_ARTICLES[kind]}")
    return value


_ARTICLES = {int: "an integer", str: "a text", dict: "an object", list: "a list"}


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return json.dumps(value)
    return _ARTICLES.get(type(value), type(value).__name__)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _column(values: Any, n: int, each: str, where: str, may_fall: bool = False) -> np.ndarray:
    """Checked numbers; below 0 only where they include the uncertainty of a click model."""
    if not isinstance(values, list) or len(values) != n:
        fault = f"has {len(values)} numbers" if isinstance(values, list) else f"is {_kind(values)}"
        raise UserError(f"{where} {fault}; expected a list of {n}, one for each {each}")
    for i, value in enumerate(values):
        if not _is_number(value) or (value < 0 and not may_fall):
            least = "" if may_fall else ", 0 or more"
            raise UserError(f"{where}[{i}] is {_kind(value)}; expected a number{least}")
    return np.array(values, np.float64)


def _short(column: np.ndarray) -> list[float | int]:
    rounded = (float(f"{x:.{DIGITS}g}") for x in column)
    return [int(x) if x == int(x) else x for x in rounded]


def json_lines(content: Any, indent: str = "") -> str:
    """JSON with objects over lines and each list on one line; the same bytes for the same content."""
    if not isinstance(content, dict):
        return json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    inner = indent + " "
    lines = [
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {json_lines(content[key], inner)}" for key in content
    ]
    text = "{\n" + ",\n".join(lines) + f"\n{indent}}}" if lines else "{}"
    return text if indent else text + "\n"
