"""Tables as plain data, which report and terminal render: cells with an interval, rows, columns of a measure.

The measures of all arms as CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure, arm_measure, reference_arms
from cascade_sim.analysis.statistics.estimates import (
    MISSING,
    Estimate,
    arm_lift,
    arm_value,
    decimals_for,
    estimate,
    interval_text,
    lift_of,
    number_text,
    scaled,
)


@dataclass(frozen=True)
class Cell:
    """What a cell shows: the value, its interval, and the tone of a gain ("up") or a loss ("down")."""

    text: str
    interval: str = ""
    margin: str = ""  # the interval as ± half width, for a terminal's narrow columns
    tone: str = ""
    lift: str = ""  # the comparison with the baseline, where it has no column of its own


@dataclass(frozen=True)
class Row:
    """A labelled row; `kind` is "baseline", "reference" (added by the engine) or empty."""

    label: str
    cells: list[Cell]
    kind: str = ""
    hint: str = ""
    tag: str = ""  # a word under the label; the kind, where there is none
    arm: str = ""  # whose row it is: a page can switch it off
    about: str = ""  # a line under the label, e.g. what an arm does otherwise than the baseline


@dataclass(frozen=True)
class Table:
    """Columns may be grouped: `groups` lists (heading, number of columns) over all columns, or is empty."""

    title: str
    corner: str
    columns: list[str]
    rows: list[Row]
    groups: list[tuple[str, int]] = field(default_factory=list)
    columns_are_arms: bool = False


def cell(what: Estimate, decimals: int, *, signed: bool = False) -> Cell:
    """A value with its interval; lifts (`signed`) are toned when they clearly differ from zero."""
    tone = ""
    if signed:
        tone = "up" if what.is_above_zero else "down" if what.is_below_zero else ""
    half = what.half_width
    margin = "" if half is None else f"±{number_text(half, decimals)}"
    return Cell(
        number_text(what.value, decimals, signed=signed),
        interval_text(what, decimals, signed=signed),
        margin,
        tone,
    )


def column(measure: Measure, values: Sequence[Estimate], *, signed: bool = False) -> list[Cell]:
    """A column of one measure: percent where people read percent, the same decimals top to bottom."""
    shown = [scaled(value, 100.0) for value in values] if measure.unit == "percent" else list(values)
    decimals = measure.decimals
    if decimals is None:
        decimals = decimals_for((value.value for value in shown), measure.digits)
    return [cell(value, decimals, signed=signed) for value in shown]


def toned(cell: Cell, measure: Measure) -> Cell:
    """A difference in the colour of a gain or a loss; in none where more is neither better nor worse."""
    if measure.better == "lower":
        return replace(cell, tone={"up": "down", "down": "up"}.get(cell.tone, ""))
    return cell if measure.better == "higher" else replace(cell, tone="")


CSV_COLUMNS = ("arm", "metric", "value", "low", "high", "lift", "lift_low", "lift_high")
LIFT = Measure("lift", "percent", "", 1)


def lift_column(metrics: Mapping[str, Any], arms: Sequence[str], measure: str) -> list[Cell]:
    """Lifts of one measure in percent, toned as gain or loss; the baseline shows what it is."""
    lifts = column(LIFT, [arm_lift(metrics, arm, measure) for arm in arms], signed=True)
    cells = [toned(lift, arm_measure(measure)) for lift in lifts]
    return [Cell("0") if arm == metrics["baseline"] else made for arm, made in zip(arms, cells, strict=True)]


def value_column(metrics: Mapping[str, Any], arms: Sequence[str], measure: str) -> list[Cell]:
    """One measure of each arm, in its unit."""
    return column(arm_measure(measure), [arm_value(metrics, arm, measure) for arm in arms])


def arm_rows(
    metrics: Mapping[str, Any],
    arms: Sequence[str],
    columns: Sequence[Sequence[Cell]],
    *,
    with_changes: bool = False,
) -> list[Row]:
    """Columns turned into rows, each marked as baseline, reference or neither.

    `with_changes`: under each name is what the arm does otherwise than the baseline, where that is known.
    """
    rows, references = [], reference_arms(metrics)
    changes = (metrics.get("arm_changes") or {}) if with_changes else {}
    for i, arm in enumerate(arms):
        kind = "baseline" if arm == metrics["baseline"] else "reference" if arm in references else ""
        own = [cells[i] for cells in columns]
        about = "; ".join(changes.get(arm) or [])
        rows.append(Row(arm, own, kind, references.get(arm, ""), arm=arm, about=about))
    return rows


def comparison_texts(metrics: Mapping[str, Any], arms: Sequence[str], name: str) -> list[str]:
    """How each arm compares with the baseline in one measure: "lift +3.7 %", "difference −0.02", or nothing.

    Where zero or one is perfect a relative lift misleads (from 0.1 to 0.2 % is a lift of 100 %), so those
    measures show the difference, in percentage points for a share.
    """
    baseline = metrics["baseline"]
    measure = arm_measure(name)
    if not measure.is_signed_or_near_zero:
        texts = [made.text for made in lift_column(metrics, arms, name)]
        compared = [f"lift {text} %" if text != MISSING else "" for text in texts]
    else:
        base = arm_value(metrics, baseline, name).value
        values = [arm_value(metrics, arm, name).value for arm in arms]
        gaps = [Estimate(None if v is None or base is None else v - base) for v in values]
        unit = " points" if measure.unit == "percent" else ""
        texts = [made.text for made in column(measure, gaps, signed=True)]
        compared = [f"difference {text}{unit}" if text != MISSING else "" for text in texts]
    return ["" if arm == baseline else text for arm, text in zip(arms, compared, strict=True)]


def csv_text(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows by column as CSV, unrounded; what is None is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if row[name] is None else row[name] for name in columns])
    return out.getvalue()


def metrics_csv(metrics: Mapping[str, Any]) -> str:
    """Every measure of every arm, one a line, unrounded; undefined numbers are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for arm, values in metrics["arms"].items():
        for name, entry in values.items():
            own, lift = estimate(entry), lift_of(entry)
            writer.writerow(
                [arm, name]
                + [
                    "" if x is None else repr(x)
                    for what in (own, lift)
                    for x in (what.value, what.low, what.high)
                ]
            )
    return out.getvalue()
