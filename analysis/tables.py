"""The study's numbers as tables of plain data, which report and terminal render, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.catalogue import (
    ARM_MEASURES,
    MODEL_MEASURES,
    REFERENCE_ARMS,
    Measure,
    arm_measure,
    is_reference,
    measure_names,
)
from analysis.decision import lift_measure, losses, ordered_arms, stage_name
from analysis.estimates import (
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

MODEL_SETS = {"win_set": "Win set", "pre_ranking_set": "Pre-ranking set"}
MONEY_MEASURES = (
    "cpc",
    "cpc_error",
    "cpc_bias",
    "revenue_pcoc",
    "payment_error",
    "welfare",
    "revenue_vs_oracle",
)
CSV_COLUMNS = ("arm", "metric", "value", "low", "high", "lift", "lift_low", "lift_high")


@dataclass(frozen=True)
class Cell:
    """What a cell shows: the value, its interval, and "up"/"down" when the interval excludes zero."""

    text: str
    interval: str = ""
    margin: str = ""  # the interval as ± half width, for a terminal's narrow columns
    tone: str = ""
    lift: str = ""  # the lift over the baseline, where it has no column of its own


@dataclass(frozen=True)
class Row:
    """A labelled row; `kind` is "baseline", "reference" (added by the engine) or empty."""

    label: str
    cells: list[Cell]
    kind: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Table:
    """Columns may be grouped: `groups` lists (heading, number of columns) over all columns, or is empty."""

    title: str
    corner: str
    columns: list[str]
    rows: list[Row]
    groups: list[tuple[str, int]] = field(default_factory=list)


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


LIFT = Measure("lift", "percent", "", 1)


def lift_column(metrics: Mapping[str, Any], arms: Sequence[str], measure: str) -> list[Cell]:
    """Lifts of one measure in percent; the baseline shows what it is."""
    cells = column(LIFT, [arm_lift(metrics, arm, measure) for arm in arms], signed=True)
    return [Cell("0") if arm == metrics["baseline"] else made for arm, made in zip(arms, cells, strict=True)]


def value_column(metrics: Mapping[str, Any], arms: Sequence[str], measure: str) -> list[Cell]:
    """One measure of each arm, in its unit."""
    return column(arm_measure(measure), [arm_value(metrics, arm, measure) for arm in arms])


def arm_rows(metrics: Mapping[str, Any], arms: Sequence[str], columns: Sequence[Sequence[Cell]]) -> list[Row]:
    """Columns turned into rows, each marked as baseline, reference or neither."""
    rows = []
    for i, arm in enumerate(arms):
        kind = "baseline" if arm == metrics["baseline"] else "reference" if is_reference(arm) else ""
        rows.append(Row(arm, [cells[i] for cells in columns], kind, REFERENCE_ARMS.get(arm, "")))
    return rows


def arms_table(metrics: Mapping[str, Any]) -> Table:
    """Every arm with its lifts over the baseline (expected and clicked) and the measures behind them."""
    arms = ordered_arms(metrics)
    lifts = ["expected_rpm", "rpm", "expected_ctr", "ctr"]
    values = [
        "rcs",
        "single_objective_rcs",
        "true_value_recall",
        "expected_ctr",
        "expected_rpm",
        "proxy_ece",
        "proxy_pcoc",
    ]
    columns = [lift_column(metrics, arms, name) for name in lifts] + [
        value_column(metrics, arms, name) for name in values
    ]
    headings = [
        "expected",
        "clicked",
        "expected",
        "clicked",
        "RCS",
        "one objective",
        "true value",
        "CTR %",
        "RPM",
        "ECE",
        "PCOC",
    ]
    groups = [("RPM lift %", 2), ("CTR lift %", 2), ("Consistency %", 3), ("Expected level", 2), ("Proxy", 2)]
    return Table("Arms", "Arm", headings, arm_rows(metrics, arms, columns), groups)


def money_table(metrics: Mapping[str, Any]) -> Table | None:
    """How rightly advertisers are charged, and how far from an all-knowing cascade; None if unknown."""
    arms = ordered_arms(metrics)
    if all(arm_value(metrics, arm, name).value is None for arm in arms for name in MONEY_MEASURES):
        return None
    columns = [value_column(metrics, arms, name) for name in MONEY_MEASURES]
    return Table(
        "Money",
        "Arm",
        [ARM_MEASURES[name].heading for name in MONEY_MEASURES],
        arm_rows(metrics, arms, columns),
    )


def culprit_table(metrics: Mapping[str, Any]) -> Table | None:
    """The baseline's pre-ranking stage with seats replaced by ranking's own; None if not measured."""
    found = metrics.get("culprit")
    if not found:
        return None
    columns = [
        column(ARM_MEASURES["rcs"], [estimate(row.get("rcs")) for row in found]),
        column(LIFT, [lift_of(row.get("ctr")) for row in found], signed=True),
        column(LIFT, [lift_of(row.get("rpm")) for row in found], signed=True),
    ]
    rows = [
        Row(f"{row['bid']}-bid × {row['model']}", [made[i] for made in columns])
        for i, row in enumerate(found)
    ]
    return Table("Finding the culprit", "Pre-ranking score", ["RCS %", "CTR lift %", "RPM lift %"], rows)


def models_table(metrics: Mapping[str, Any]) -> Table | None:
    """Quality of every model against the truth, on the win set and the pre-ranking set; None if unknown."""
    models = metrics.get("models")
    if not models:
        return None
    columns, groups = [], []
    for part, heading in MODEL_SETS.items():
        for name, measure in MODEL_MEASURES.items():
            columns.append(
                column(measure, [estimate(((of or {}).get(part) or {}).get(name)) for of in models.values()])
            )
        groups.append((heading, len(MODEL_MEASURES)))
    rows = [Row(model, [made[i] for made in columns]) for i, model in enumerate(models)]
    return Table(
        "Models", "Model", [m.heading for m in MODEL_MEASURES.values()] * len(MODEL_SETS), rows, groups
    )


def attribution_table(metrics: Mapping[str, Any]) -> Table | None:
    """True eCPM lost at each stage and the share of would-be winners dropped there; None if unknown."""
    found = metrics.get("attribution") or {}
    arms = [arm for arm in ordered_arms(metrics) if found.get(arm)]
    if not arms:
        return None
    stages = [stage for stage, _, _ in losses(metrics, arms[0])]
    money = Measure("eCPM", "money", "")
    columns = [column(money, [estimate(found[arm].get("ecpm_shown")) for arm in arms])]
    for stage in stages:
        of_stage: list[Any] = [
            next((row for row in found[arm]["stages"] if row["stage"] == stage), {}) for arm in arms
        ]
        columns.append(column(money, [estimate(row.get("ecpm_lost")) for row in of_stage]))
        columns.append(
            column(Measure("dropped", "percent", "", 1), [estimate(row.get("dropped")) for row in of_stage])
        )
    groups = [("Shown", 1)] + [(f"Lost at {stage_name(stage)}", 2) for stage in stages]
    return Table(
        "Losses",
        "Arm",
        ["eCPM"] + ["eCPM", "winners %"] * len(stages),
        arm_rows(metrics, arms, columns),
        groups,
    )


def spread_table(metrics: Mapping[str, Any]) -> Table | None:
    """Standard deviation between worlds, in percent points; None for a study of one world."""
    if not metrics.get("seeds"):
        return None
    arms = ordered_arms(metrics)
    rpm, ctr = lift_measure(metrics, "rpm"), lift_measure(metrics, "ctr")
    spreads = [
        [arm_lift(metrics, arm, rpm).sd for arm in arms],
        [arm_lift(metrics, arm, ctr).sd for arm in arms],
        [arm_value(metrics, arm, "rcs").sd for arm in arms],
        [arm_value(metrics, arm, "single_objective_rcs").sd for arm in arms],
    ]
    columns = [column(Measure("SD", "percent", "", 2), [Estimate(sd) for sd in sds]) for sds in spreads]
    return Table(
        "Spread between worlds",
        "Arm",
        ["RPM lift", "CTR lift", "RCS", "Single-objective RCS"],
        arm_rows(metrics, arms, columns),
    )


def all_measures_table(metrics: Mapping[str, Any]) -> Table:
    """Every measure of every arm, measures down and arms across, with its lift where it has one."""
    arms = ordered_arms(metrics)
    rows = []
    for name in measure_names(metrics):
        values = value_column(metrics, arms, name)
        lifts = lift_column(metrics, arms, name)
        cells = []
        for arm, value, lift in zip(arms, values, lifts, strict=True):
            has_lift = arm != metrics["baseline"] and lift.text != MISSING
            cells.append(Cell(value.text, value.interval, lift=f"lift {lift.text} %" if has_lift else ""))
        measure = arm_measure(name)
        rows.append(Row(measure.heading, cells, hint=measure.meaning))
    return Table("All measures", "Measure", arms, rows)


def metrics_csv(metrics: Mapping[str, Any]) -> str:
    """Every measure of every arm, one a line, unrounded; undefined numbers are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for arm, values in metrics["arms"].items():
        for name, found in values.items():
            own, lift = estimate(found), lift_of(found)
            writer.writerow(
                [arm, name]
                + [
                    "" if x is None else repr(x)
                    for what in (own, lift)
                    for x in (what.value, what.low, what.high)
                ]
            )
    return out.getvalue()
