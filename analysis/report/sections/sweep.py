"""A sweep over a grid of settings as tables, CSV and words.

`findings`: {"name", "arm", "axes": [{"path", "values"}], "seeds", "requests", "cells": [{"name", "settings",
"measures": {measure: {"value", "low", "high"[, "lift"]}}}], "reference", "held_fixed", "learned_again"}. The
first cell is the reference, the scenario's own setting: it has no lifts, all others are compared with it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES, Measure, arm_measure
from cascade_sim.analysis.report.guardrails import (
    Change,
    guardrail_table,
    guardrail_words,
    point_changes,
    worse_clause,
)
from cascade_sim.analysis.report.readings import no_evidence
from cascade_sim.analysis.report.tables import LIFT, Cell, Row, Table, column, toned
from cascade_sim.analysis.report.text_helpers import listed
from cascade_sim.analysis.statistics.estimates import NBSP, Estimate, estimate, lift_of, percent_text
from cascade_sim.analysis.statistics.moves import frontier as unbeaten

MARKET = "market."
MARKET_MEASURES: dict[str, Measure] = {
    "market.revenue": Measure("Revenue, market", "money", ""),
    "market.revenue_per_request": Measure("Revenue per request, market", "money", ""),
    "market.rpm": Measure("RPM, market", "money", ""),
    "market.ctr": Measure("CTR, market", "percent", "", 2),
    "market.clicks": Measure("Clicks, market", "number", ""),
    "market.conversions": Measure("Conversions, market", "number", ""),
    "market.click_value": Measure("Value of clicks, market", "money", ""),
    "market.surplus": Measure("Advertisers' surplus, market", "money", ""),
}
COST = "cost."
COST_MEASURES: dict[str, Measure] = {
    "cost.flops": Measure("FLOPs per request", "number", "", better="lower"),
    "cost.scoring_flops": Measure("Scoring FLOPs per request", "number", "", better="lower"),
    "cost.bytes": Measure("Bytes read per request", "number", "", better="lower"),
}
LESS_IS_BETTER = tuple(
    name for name, measure in {**ARM_MEASURES, **COST_MEASURES}.items() if measure.better == "lower"
)
# Perfect at a point between more and less, or good for one side and bad for the other.
NEITHER = tuple(name for name, m in ARM_MEASURES.items() if m.better not in ("higher", "lower"))
SHORT = {
    **{"expected_revenue_per_request": "rev./request", "revenue_per_request": "rev./request, realised"},
    **{"expected_ctr": "CTR %", "ctr": "CTR %, realised", "expected_rpm": "RPM", "rpm": "RPM, realised"},
    "welfare_vs_oracle": "welfare %",
    **{"cost.flops": "FLOPs", "cost.scoring_flops": "scoring FLOPs", "cost.bytes": "bytes"},
}
SHOWN = ("expected_revenue_per_request", "expected_ctr", "welfare_vs_oracle", "rcs")


def known_measures(has_market: bool, has_cost: bool = False) -> list[str]:
    """What an axis of the plot may show: measures with a better and a worse end."""
    names = [name for name in ARM_MEASURES if name not in NEITHER]
    return [*names, *(COST_MEASURES if has_cost else ()), *(MARKET_MEASURES if has_market else ())]


def measure_of(name: str) -> Measure:
    return MARKET_MEASURES.get(name) or COST_MEASURES.get(name) or arm_measure(name)


def values_of(findings: Mapping[str, Any], name: str) -> list[Estimate]:
    """One measure, cell by cell."""
    return [estimate(cell["measures"].get(name)) for cell in findings["cells"]]


def lifts_of(findings: Mapping[str, Any], name: str) -> list[Estimate]:
    """Lifts of one measure over the reference, which has none."""
    return [lift_of(cell["measures"].get(name)) for cell in findings["cells"]]


def frontier(findings: Mapping[str, Any], x: str, y: str) -> list[int]:
    """Cells that no other beats: none is as good in both measures and better in one. By falling y.

    By the point estimates; a cell in which one of the two is undefined is not among them.
    """
    points = []
    for a, b in zip(values_of(findings, x), values_of(findings, y), strict=True):
        across, up = _upward(x, a.value), _upward(y, b.value)
        points.append({"y": up, "less": -across})
    defined = [i for i, point in enumerate(points) if all(v == v for v in point.values())]
    return [defined[i] for i in unbeaten([points[i] for i in defined], "y", "less")]


def _upward(name: str, value: float | None) -> float:
    if value is None:
        return float("nan")
    return -value if name in LESS_IS_BETTER else value


def cells_table(findings: Mapping[str, Any], x: str, y: str, narrow: bool = False) -> Table:
    """A row per cell: y and x with their lifts, then the other usual measures; `narrow` for a terminal."""
    others = [name for name in SHOWN if name not in (x, y)] if not narrow else []
    columns: list[list[Cell]] = []
    headings: list[str] = []
    for name in (*dict.fromkeys((y, x)), *others):
        measure = measure_of(name)
        values = values_of(findings, name)
        if all(value.value is None for value in values):
            continue
        columns += [column(measure, values)]
        headings += [SHORT.get(name, measure.heading) if narrow else measure.heading]
        if name in (x, y):
            lifts = [toned(lift, measure) for lift in column(LIFT, lifts_of(findings, name), signed=True)]
            columns += [[Cell("0"), *lifts[1:]]]
            headings += ["lift %"]
    on_it = set(frontier(findings, x, y))
    columns.append([Cell("yes" if i in on_it else "") for i in range(len(findings["cells"]))])
    rows = [
        Row(
            cell["name"],
            [cells[i] for cells in columns],
            "baseline" if i == 0 else "",
            tag=("", "reference")[i == 0],
        )
        for i, cell in enumerate(findings["cells"])
    ]
    title = f"Lifts over the reference, the scenario's own setting; 95{NBSP}% intervals"
    return Table(title, "cell", [*headings, "frontier"], rows)


def cells_guardrails(findings: Mapping[str, Any]) -> Table | None:
    """Revenue per request and the guardrails of every cell against the reference; None if unknown."""
    decides = "expected_revenue_per_request"
    rows = {
        cell["name"]: (lift_of(cell["measures"].get(decides)), cell_changes(findings, i))
        for i, cell in enumerate(findings["cells"])
        if i
    }
    made = guardrail_table(rows, f"the reference, {findings['cells'][0]['name']}")
    return None if made is None else replace(made, corner="cell")


def csv_text(findings: Mapping[str, Any], x: str, y: str) -> str:
    """A line per cell: its settings, whether it is on the frontier, each measure with interval and lift."""
    names = list(dict.fromkeys(name for cell in findings["cells"] for name in cell["measures"]))
    paths = [axis["path"] for axis in findings["axes"]]
    ends = ("", " low", " high", " lift", " lift low", " lift high")
    on_it = set(frontier(findings, x, y))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["cell", *paths, "frontier", *(name + end for name in names for end in ends)])
    for i, cell in enumerate(findings["cells"]):
        numbers: list[float | None] = []
        for name in names:
            for shown in (estimate(cell["measures"].get(name)), lift_of(cell["measures"].get(name))):
                numbers += [shown.value, shown.low, shown.high]
        settings = [cell["settings"][path] for path in paths]
        texts = ["" if number is None else repr(number) for number in numbers]
        writer.writerow([cell["name"], *settings, int(i in on_it), *texts])
    return out.getvalue()


BY_ESTIMATES = (
    "Cells are compared with each other by their estimates; only differences from the reference have "
    "intervals."
)


def sweep_headline(findings: Mapping[str, Any], x: str, y: str) -> str:
    """The best cells; of a log that its rule does not reproduce, nothing but that."""
    return no_evidence(findings) or _best_cells(findings, x, y)


def _best_cells(findings: Mapping[str, Any], x: str, y: str) -> str:
    """Which cell is best in each of the two measures, its lift in y, and what gets worse there."""
    best = frontier(findings, x, y)
    if not best:
        return f"No cell has both {in_sentence(y)} and {in_sentence(x)}."
    tops = {name: best_cell(findings, x, y, name) for name in (y, x)}
    cells, top = findings["cells"], tops[y]
    lift = lift_of(cells[top]["measures"].get(y))
    told = ""
    if top and lift.value is not None:
        sure = "" if lift.is_above_zero or lift.is_below_zero else ", not significant"
        told = f" ({percent_text(lift)}{sure})"
    costs = worse_clause(cell_changes(findings, top), "there ")
    names = {i: cells[i]["name"] if i else f"{cells[i]['name']}, the reference" for i in tops.values()}
    if len(set(tops.values())) == 1:
        both = in_sentence(y) if x == y else f"{in_sentence(y)} and {in_sentence(x)}"
        return f"Best in {both}: {names[top]}{told}{costs}."
    said = f"Best in {in_sentence(y)}: {names[top]}{told}{costs}"
    return f"{said}; best in {in_sentence(x)}: {names[tops[x]]}."


def best_cell(findings: Mapping[str, Any], x: str, y: str, name: str) -> int:
    """The place of the cell of the frontier that is best in one of the two measures."""
    sign, values = -1.0 if name in LESS_IS_BETTER else 1.0, values_of(findings, name)
    return max(frontier(findings, x, y), key=lambda i: sign * (values[i].value or 0.0))


def guardrails_of_best(findings: Mapping[str, Any], x: str, y: str) -> str:
    """The guardrails of the cell that is best in y, in words; empty of the reference."""
    if not frontier(findings, x, y):
        return ""
    top = best_cell(findings, x, y, y)
    return guardrail_words(cell_changes(findings, top), findings["cells"][top]["name"])


def cell_changes(findings: Mapping[str, Any], i: int) -> list[Change]:
    """The guardrails of a cell against the reference; none of the reference itself."""
    cells = findings["cells"]
    return point_changes(cells[0]["measures"], cells[i]["measures"]) if i else []


def sweep_words(findings: Mapping[str, Any], x: str, y: str) -> list[str]:
    """Which cells are Pareto-optimal, and what that rests on."""
    cells = findings["cells"]
    best = frontier(findings, x, y)
    across, up = (in_sentence(name) for name in (x, y))
    if not best:
        return [f"No cell has both {up} and {across}."]
    names = _and([cells[i]["name"] for i in best])
    if len(best) == 1:
        return [
            f"Of {len(cells)} cells {names} is best in both.",
            BY_ESTIMATES,
        ]
    return [
        f"On the frontier of {up} and {across}: {names}.",
        f"{len(best)} of {len(cells)} cells are Pareto-optimal; every other one is dominated in "
        f"both measures by one of them. {BY_ESTIMATES}",
    ]


def in_sentence(name: str) -> str:
    """A measure as a sentence has it.

    >>> in_sentence("expected_revenue_per_request"), in_sentence("market.ctr"), in_sentence("rcs")
    ('expected revenue per request', 'CTR in the market', 'RCS')
    """
    label, _, kind = measure_of(name).label.partition(", ")
    text = label if label[:2].isupper() else label[0].lower() + label[1:]
    return f"{text} in the market" if kind == "market" else f"{kind} {text}".strip()


def _and(names: Sequence[str]) -> str:
    return listed([f"({name})" if "," in name else name for name in names])
