"""Runs held against each other: tables, words and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import PAGE_MEASURES, Measure, is_reference
from cascade_sim.analysis.report.cells import LIFT, Cell, Row, Table, column
from cascade_sim.analysis.report.sections.whatif import MEASURES as WHAT_IF_MEASURES
from cascade_sim.analysis.report.sections.whatif import difference_cell, toned
from cascade_sim.analysis.statistics.estimates import estimate

MEASURES: dict[str, Measure] = {
    **WHAT_IF_MEASURES,
    "conversions_per_request": PAGE_MEASURES["conversions_per_request"],
}
MAIN = 18  # rows in the terminal
PARTS = ("before", "after", "difference", "lift")
CSV_COLUMNS = (
    *("first", "other", "arm", "metric"),
    *(f"{part}{end}" for part in PARTS for end in ("", "_low", "_high")),
    "is_paired",
)
PAIRED_BY = {
    "request": "Differences are paired by request: both runs met the same requests with the same luck.",
    "world": "Differences are paired by world; intervals are Student t intervals between worlds.",
    "none": "Differences are unpaired.",
}


def arm_table(found: Mapping[str, Any], arm: str, most: int | None = None) -> Table:
    """One arm in both runs: before, after, the difference and the lift; what is unpaired is marked.

    Measures that neither run has are left out.
    """
    rows = []
    table = found["arms"][arm]
    known = {name for name, entry in table.items() if _is_known(entry)}
    names = [name for name in MEASURES if name in known] + sorted(known - set(MEASURES))
    for name in names[:most]:
        measure, entry = MEASURES.get(name, Measure(name, "number", "")), table[name]
        values = column(measure, [estimate(entry["before"]), estimate(entry["after"])])
        is_ratio = not measure.is_signed_or_near_zero
        lift = Cell("")
        if is_ratio:
            lift = toned(column(LIFT, [estimate(entry["lift"])], signed=True)[0], measure)
        tag = "" if entry["is_paired"] or found["paired_by"] == "none" else "unpaired"
        rows.append(
            Row(
                measure.heading,
                [*values, difference_cell(measure, entry), lift],
                hint=measure.meaning,
                tag=tag,
            )
        )
    return Table(f"Arm {arm}", "measure", ["first", "other", "difference", "lift %"], rows)


def _is_known(entry: Mapping[str, Any]) -> bool:
    """Whether a measure is defined in at least one of the runs."""
    return any(estimate(entry[part]).value is not None for part in ("before", "after"))


def scenario_table(found: Mapping[str, Any]) -> Table | None:
    """The keys whose values differ; None if there are none."""
    if not found["scenario"]:
        return None
    rows = [Row(one["key"], [Cell(_text(one["old"])), Cell(_text(one["new"]))]) for one in found["scenario"]]
    return Table("Scenario", "key", ["first", "other"], rows)


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def compare_rows(comparisons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every measure of every arm of every comparison, as plain data."""
    rows = []
    for found in comparisons:
        for arm, table in found["arms"].items():
            for metric, entry in table.items():
                row = {"first": found["first"], "other": found["other"], "arm": arm, "metric": metric}
                for part in PARTS:
                    one = estimate(entry[part])
                    row |= {part: one.value, f"{part}_low": one.low, f"{part}_high": one.high}
                rows.append({**row, "is_paired": entry["is_paired"]})
    return rows


def compare_csv(comparisons: list[dict[str, Any]]) -> str:
    """The same as CSV, unrounded; undefined numbers are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in compare_rows(comparisons):
        writer.writerow(["" if row[name] is None else row[name] for name in CSV_COLUMNS])
    return out.getvalue()


def compare_page(comparisons: list[dict[str, Any]]) -> str:
    """One HTML page of all comparisons."""
    from cascade_sim.analysis.report.short_page import page

    tables, words, cautions = [], [], []
    for found in comparisons:
        pair = f"{found['first']} → {found['other']}"
        changed = scenario_table(found)
        if changed is None:
            words.append(f"{pair}: the scenarios are the same.")
        else:
            tables.append((f"Scenario, {pair}", changed))
        words.append(f"{pair}: {PAIRED_BY[found['paired_by']]}")
        cautions += found["notes"]
        arms = sorted(found["arms"], key=is_reference)  # those of the scenario first
        tables += [(f"{arm}, {pair}", arm_table(found, arm)) for arm in arms]
    return page(
        eyebrow="Compared runs",
        title=" and ".join([comparisons[0]["first"], *(found["other"] for found in comparisons)]),
        facts=[], words=words, cautions=cautions, figure="", caption="", side_title="", side=[],
        tables=tables, foot="",
    )  # fmt: skip
