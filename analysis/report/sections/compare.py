"""Runs compared with each other: tables, words and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure, is_reference
from cascade_sim.analysis.report.compare_verdict import (
    MEASURES,
    REVENUE,
    compare_verdict,
    lead_arm,
    lead_changes,
    revenue_change,
)
from cascade_sim.analysis.report.figures.compare import TITLE, compare_figure
from cascade_sim.analysis.report.figures.style import drawn
from cascade_sim.analysis.report.guardrails import guardrail_tiles, level_text, lift_tile
from cascade_sim.analysis.report.section import (
    Details,
    Figure,
    Part,
    Section,
    TablePart,
    Text,
    Tiles,
    titled,
)
from cascade_sim.analysis.report.sections.whatif import difference_cell
from cascade_sim.analysis.report.short_page import answer_section, short_page, table_section
from cascade_sim.analysis.report.statement import statement_parts
from cascade_sim.analysis.report.tables import LIFT, Cell, Row, Table, column, csv_text, toned
from cascade_sim.analysis.report.text_helpers import listed
from cascade_sim.analysis.statistics.estimates import estimate

MAIN = 18  # rows in the terminal
FIRST = "first run"
FEW_KEYS = 8  # of a scenario: as many are beside the verdict
LIFTS = (
    *(REVENUE, "revenue_per_request", "expected_rpm", "expected_ctr", "ctr", "cpc"),
    *("impressions_per_request", "rcs"),
)
PAIRED = {"is_paired": True}
PARTS = ("before", "after", "difference", "lift")
CSV_COLUMNS = (
    *("first", "other", "arm", "metric"),
    *(f"{part}{end}" for part in PARTS for end in ("", "_low", "_high")),
    "is_paired",
)
PAIRED_BY = {
    "request": "Differences are paired by request: both runs met the same requests with common random "
    "numbers.",
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


def lifts_table(comparison: Mapping[str, Any], arms: Sequence[str]) -> Table | None:
    """The lifts of the main measures, a row per arm; None where no arm has any."""
    known = {
        name: [estimate((comparison["arms"][arm].get(name) or {}).get("lift")) for arm in arms]
        for name in LIFTS
    }
    shown = {name: lifts for name, lifts in known.items() if any(lift.value is not None for lift in lifts)}
    if not shown:
        return None
    columns = [
        [toned(cell, MEASURES[name]) for cell in column(LIFT, lifts, signed=True)]
        for name, lifts in shown.items()
    ]
    rows = [
        Row(arm, [cells[i] for cells in columns], "reference" if is_reference(arm) else "", arm=arm)
        for i, arm in enumerate(arms)
    ]
    unpaired = {
        name
        for name in shown
        for arm in arms
        if comparison["paired_by"] != "none" and not comparison["arms"][arm].get(name, PAIRED)["is_paired"]
    }
    headings = [MEASURES[name].label + ", unpaired" * (name in unpaired) for name in shown]
    return Table("Lifts", "Arm", headings, rows, [("Lift over the first run, %", len(shown))])


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


def compare_page(comparisons: list[dict[str, Any]], svgs: Mapping[str, str] | None = None) -> str:
    """One page: the verdict on every pair, then tables. `svgs` are compare_figures'; all else is escaped."""
    is_only = len(comparisons) == 1
    answers: list[Section] = []
    tables: list[Section] = []
    for comparison, figure in zip(comparisons, _figures(comparisons).values(), strict=True):
        pair = "" if is_only else f"{comparison['first']} → {comparison['other']}"
        answers.append(_answer(comparison, figure, pair))
        tables += _tables(comparison, f", {pair}" if pair else "")
    every = dict.fromkeys(arm for comparison in comparisons for arm in comparison["arms"])
    return short_page(
        "Compared runs",
        " and ".join([comparisons[0]["first"], *(comparison["other"] for comparison in comparisons)]),
        ["the first run against the other" if is_only else "the first run against each of the others"],
        [*answers, *tables],
        svgs=svgs,
        arms=sorted(every, key=is_reference),
    )


def _answer(comparison: Mapping[str, Any], figure: Figure, pair: str) -> Section:
    """The verdict on a pair, what to be careful of and what was changed, beside the figure of its lifts."""
    headline, *more = compare_verdict(comparison)
    same = "" if comparison["scenario"] else "The scenarios are the same. "
    words: list[Part] = [
        *_guarded(comparison),
        *(Text(sentence) for sentence in more),
        Text(f"{same}{PAIRED_BY[comparison['paired_by']]}", "small"),
        *(Text(f"{note[:1].upper()}{note[1:]}.", "caution") for note in comparison["notes"]),
    ]
    if len(comparison["scenario"]) <= FEW_KEYS:
        words += titled("What differs in the scenario", scenario_table(comparison))
    words += statement_parts(comparison)
    return answer_section(headline, words, figure, pair)


def _guarded(comparison: Mapping[str, Any]) -> list[Part]:
    """Tiles of the arm that the verdict leads with; none where runs have no arm or nothing in common."""
    if not comparison["arms"]:
        return []
    arm, found = lead_arm(comparison), lead_changes(comparison)
    name, lift = revenue_change(comparison, arm)
    if not name and not found:
        return []
    table, tiles = comparison["arms"][arm], []
    if name:
        level = level_text(estimate(table[name]["before"]), FIRST)
        tiles.append(lift_tile("Revenue per request", lift, level))
    about = f"Arm {arm}: lifts over the first run; brackets hold 95 % intervals"
    apart = comparison["paired_by"] != "none"
    unpaired = [c.guardrail.label for c in found if apart and not _is_paired(table, c.guardrail.names)]
    if unpaired:
        about += f", of {listed(unpaired)} unpaired (wider)"
    return [Tiles([*tiles, *guardrail_tiles(found, FIRST)], about)]


def _is_paired(table: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether the first of these measures that an arm has is paired."""
    return next((bool(table[name]["is_paired"]) for name in names if name in table), True)


def by_place(comparison: Mapping[str, Any]) -> list[str]:
    """The arms as they are shown: the one that the verdict leads with, the scenario's, reference arms."""
    lead = lead_arm(comparison) if comparison["arms"] else ""
    return sorted(comparison["arms"], key=lambda arm: (arm != lead, is_reference(arm)))


def _tables(comparison: Mapping[str, Any], pair: str) -> list[Section]:
    """The lifts of all arms, the keys of the scenario where they are many, and every measure, an arm each."""
    arms = by_place(comparison)
    sections = []
    lifts, changed = lifts_table(comparison, arms), scenario_table(comparison)
    if lifts is not None:
        sections.append(table_section(f"Lifts of all arms{pair}", lifts))
    if changed is not None and len(changed.rows) > FEW_KEYS:
        title = f"What differs in the scenario{pair}"
        sections.append(replace(table_section(title, changed, f"Scenario{pair}"), is_folded=True))
    tables: dict[str, Part] = {arm: TablePart(arm_table(comparison, arm)) for arm in arms}
    if len(tables) > 1:
        tables = {arm: Details((table,), f"Arm {arm}", arm) for arm, table in tables.items()}
    if tables:
        sections.append(Section("", f"Every measure{pair}", parts=list(tables.values())))
    return sections
