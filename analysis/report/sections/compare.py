"""Runs held against each other: tables, words and CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import PAGE_MEASURES, Measure, is_reference
from cascade_sim.analysis.report.figures.compare import TITLE, compare_figure
from cascade_sim.analysis.report.figures.style import drawn
from cascade_sim.analysis.report.readings import WHAT_IF_MEASURES
from cascade_sim.analysis.report.section import Columns, Figure, Section, Text
from cascade_sim.analysis.report.sections.whatif import difference_cell
from cascade_sim.analysis.report.short_page import short_page, table_section
from cascade_sim.analysis.report.tables import LIFT, Cell, Row, Table, column, csv_text, toned
from cascade_sim.analysis.report.words import listed
from cascade_sim.analysis.statistics.estimates import (
    NBSP,
    Estimate,
    estimate,
    interval_text,
    number_text,
    scaled,
)

MEASURES: dict[str, Measure] = {
    **WHAT_IF_MEASURES,
    "conversions_per_request": PAGE_MEASURES["conversions_per_request"],
}
MAIN = 18  # rows in the terminal
MOST_TOLD = 3  # arms in the headline
REVENUE = "expected_revenue_per_request"
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


def arm_table(comparison: Mapping[str, Any], arm: str, most: int | None = None) -> Table:
    """One arm in both runs: before, after, the difference and the lift; what is unpaired is marked.

    Measures that neither run has are left out.
    """
    rows = []
    table = comparison["arms"][arm]
    known = {name for name, entry in table.items() if _is_known(entry)}
    names = [name for name in MEASURES if name in known] + sorted(known - set(MEASURES))
    for name in names[:most]:
        measure, entry = MEASURES.get(name, Measure(name, "number", "")), table[name]
        values = column(measure, [estimate(entry["before"]), estimate(entry["after"])])
        is_ratio = not measure.is_signed_or_near_zero
        lift = Cell("")
        if is_ratio:
            lift = toned(column(LIFT, [estimate(entry["lift"])], signed=True)[0], measure)
        tag = "" if entry["is_paired"] or comparison["paired_by"] == "none" else "unpaired"
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


def scenario_table(comparison: Mapping[str, Any], width: int | None = None) -> Table | None:
    """The keys whose values differ; None if there are none. In a terminal's width keys stay whole."""
    if not comparison["scenario"]:
        return None
    most = 60
    if width is not None:
        most = min(
            most, max(10, (width - max(len(change["key"]) for change in comparison["scenario"]) - 6) // 2)
        )
    rows = [
        Row(change["key"], [Cell(_text(change["old"], most)), Cell(_text(change["new"], most))])
        for change in comparison["scenario"]
    ]
    return Table("Scenario", "key", ["first", "other"], rows)


def _text(value: Any, most: int) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def compare_rows(comparisons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every measure of every arm of every comparison, as plain data."""
    rows = []
    for comparison in comparisons:
        for arm, table in comparison["arms"].items():
            for metric, entry in table.items():
                row = {
                    "first": comparison["first"],
                    "other": comparison["other"],
                    "arm": arm,
                    "metric": metric,
                }
                for part in PARTS:
                    own = estimate(entry[part])
                    row |= {part: own.value, f"{part}_low": own.low, f"{part}_high": own.high}
                rows.append({**row, "is_paired": entry["is_paired"]})
    return rows


def compare_csv(comparisons: list[dict[str, Any]]) -> str:
    """The same as CSV, unrounded; undefined numbers are empty."""
    return csv_text(CSV_COLUMNS, compare_rows(comparisons))


def compare_figures(comparisons: list[dict[str, Any]]) -> dict[str, str]:
    """Name → SVG, a figure per comparison that has a lift to show."""
    svgs = {
        name: drawn(figure.draw, comparison, name, figure.title)
        for comparison, (name, figure) in zip(comparisons, _figures(comparisons).items(), strict=True)
    }
    return {name: svg for name, svg in svgs.items() if svg is not None}


def _figures(comparisons: list[dict[str, Any]]) -> dict[str, Figure]:
    figures = {}
    for i, comparison in enumerate(comparisons, 1):
        caption = (
            f"Lifts of {comparison['other']} over {comparison['first']}, with 95 % intervals, by arm. "
            "Measures that are unpaired or perfect at 0 or 1 are in the tables below."
        )
        figures[f"compare_{i}"] = Figure(f"compare_{i}", compare_figure, TITLE, caption)
    return figures


def compare_headline(comparisons: list[dict[str, Any]]) -> str:
    """Of each other run, the arms that earn clearly more or less per request than in the first run."""
    said = []
    for comparison in comparisons:
        lifts = {
            arm: scaled(estimate(table[REVENUE]["lift"]), 100.0)
            for arm, table in comparison["arms"].items()
            if not is_reference(arm) and table.get(REVENUE)
        }
        moved = {arm: lift for arm, lift in lifts.items() if lift.is_above_zero or lift.is_below_zero}
        told = [f"{arm} {interval_words(lift)}" for arm, lift in list(moved.items())[:MOST_TOLD]]
        told += [f"{len(moved) - MOST_TOLD} more arms"] if len(moved) > MOST_TOLD else []
        other = comparison["other"]
        if not lifts:
            said.append(f"{other} has no revenue per request to compare")
        elif not moved:
            said.append(
                f"In {other} no arm earns clearly more or less per request than in {comparison['first']}"
            )
        else:
            said.append(f"Revenue per request in {other}: {listed(told)}")
    return f"{'; '.join(said)}."


def interval_words(lift: Estimate) -> str:
    """A lift in percent with its interval."""
    interval = interval_text(lift, 1, signed=True)
    return f"{number_text(lift.value, 1, signed=True)}{NBSP}%" + (f" {interval}" if interval else "")


def compare_page(comparisons: list[dict[str, Any]], svgs: Mapping[str, str] | None = None) -> str:
    """One HTML page of all comparisons. `svgs` come from compare_figures; all else is escaped."""
    is_only = len(comparisons) == 1
    tables: list[Section] = []
    words: list[str] = []
    cautions: list[Text] = []
    for comparison in comparisons:
        pair = f"{comparison['first']} → {comparison['other']}"
        changed = scenario_table(comparison)
        if changed is None:
            words.append(f"{pair}: the scenarios are the same.")
        else:
            tables.append(table_section(f"Scenario, {pair}", changed, "Scenario" if is_only else ""))
        words.append(f"{pair}: {PAIRED_BY[comparison['paired_by']]}")
        cautions += [Text(note, "caution") for note in comparison["notes"]]
        arms = sorted(comparison["arms"], key=is_reference)  # those of the scenario first
        tables += [
            table_section(f"{arm}, {pair}", arm_table(comparison, arm), arm if is_only else "")
            for arm in arms
        ]
    return short_page(
        "Compared runs",
        " and ".join([comparisons[0]["first"], *(comparison["other"] for comparison in comparisons)]),
        [],
        [
            Section(
                "",
                compare_headline(comparisons),
                words,
                (*cautions, Columns(list(_figures(comparisons).values()))),
                short="Answer",
            ),
            *tables,
        ],
        svgs=svgs,
    )
