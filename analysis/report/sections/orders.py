"""In how many worlds each order of arms holds, for a study over several."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure, arm_measure
from cascade_sim.analysis.report.section import Details, Section, TablePart, Text, titled
from cascade_sim.analysis.report.tables import Cell, Row, Table, column
from cascade_sim.analysis.statistics.estimates import estimate, finite

ABLATION = "ablation"  # of `orders` in metrics.json: the rows of the ablation table, by RCS
GAP = Measure("Ahead by, %", "percent", "", 2)
ALIKE = 1e-9  # a pair that nowhere differs by more is no order, but one arm under two names


def orders_section(metrics: Mapping[str, Any]) -> Section | None:
    """Neighbouring orders with the number of worlds that keep them; None without any, as in one world."""
    orders = metrics.get("orders") or {}
    neighbours = {name: table for name in orders if (table := orders_table(metrics, name)) is not None}
    if not neighbours:
        return None
    return Section(
        "orders",
        "Order stability across seeds",
        parts=(
            Text(
                "Arms by their mean over worlds, best first. A row is kept in a world where its first is "
                "strictly ahead of its second there. By how much is paired within worlds, with a Student t "
                "interval between them: in points for shares, relative to the second for CTR and RPM."
            ),
            *(part for name, table in neighbours.items() for part in titled(table.title, table)),
            Details(
                summary="Every pair of arms",
                parts=tuple(TablePart(orders_table(metrics, name, every_pair=True)) for name in orders),
            ),
        ),
        short="Orders",
    )


def order_label(name: str) -> str:
    """What is put in order, and by which measure."""
    return "Ablation rows by RCS" if name == ABLATION else arm_measure(name).label


def _title(name: str, order: Mapping[str, Any], is_whole: bool) -> str:
    """With the worlds that keep the whole order; not if some neighbours are alike, as then none does."""
    kept = f": the whole order in {order['whole']} of {order['worlds']} worlds" if is_whole else ""
    return f"{order_label(name)}{kept}"


def _is_apart(pair: Mapping[str, Any]) -> bool:
    """Whether a pair differs in some world; one without a difference (no ratio anywhere) counts as such."""
    gap = pair["difference"]
    ends = [finite(gap.get(end)) for end in ("value", "low", "high")]
    return all(end is None for end in ends) or any(end is not None and abs(end) > ALIKE for end in ends)


def orders_table(metrics: Mapping[str, Any], name: str, *, every_pair: bool = False) -> Table | None:
    """Neighbours in the order by one measure, or every pair, without those that are alike in every world.

    None where the study has no such order, or no pair is left. Files of older versions have such pairs.
    """
    order = (metrics.get("orders") or {}).get(name)
    if not order:
        return None
    neighbours = set(pairwise(order["order"]))
    asked = [p for p in order["pairs"] if every_pair or (p["first"], p["second"]) in neighbours]
    pairs = [pair for pair in asked if _is_apart(pair)]
    if not pairs:
        return None
    ahead = column(GAP, [estimate(pair["difference"]) for pair in pairs], signed=True)
    rows = [
        Row(f"{pair['first']} > {pair['second']}", [Cell(f"{pair['kept']} of {order['worlds']}"), gap])
        for pair, gap in zip(pairs, ahead, strict=True)
    ]
    unit = "Ahead by, %" if order["is_relative"] else "Ahead by, points"
    return Table(_title(name, order, len(pairs) == len(asked)), "Order", ["worlds", unit], rows)
