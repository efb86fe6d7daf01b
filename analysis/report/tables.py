"""The study's numbers as tables of plain data, which report and terminal render, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import (
    ARM_MEASURES,
    MODEL_MEASURES,
    Measure,
    arm_measure,
    measure_names,
)
from cascade_sim.analysis.report.cells import (
    LIFT,
    Cell,
    Row,
    Table,
    arm_rows,
    column,
    comparison_texts,
    lift_column,
    value_column,
)
from cascade_sim.analysis.report.comparisons import lift_measure, ordered_arms
from cascade_sim.analysis.report.culprit import ROLES, culprit_measures, role_of, score_label
from cascade_sim.analysis.report.decision import losses, stage_name
from cascade_sim.analysis.statistics.estimates import Estimate, arm_lift, arm_value, estimate, lift_of

MODEL_SETS = {"win_set": "Win set", "pre_ranking_set": "Pre-ranking set"}
MONEY_MEASURES = (
    "cpc",
    "cpc_error",
    "cpc_error_floor",
    "cpc_bias",
    "revenue_pcoc",
    "payment_error",
    "welfare",
    "revenue_vs_oracle",
)
CSV_COLUMNS = ("arm", "metric", "value", "low", "high", "lift", "lift_low", "lift_high")


# (group, [(heading, measure, whether its lift or its level is shown)])
ARM_COLUMNS: list[tuple[str, list[tuple[str, str, bool]]]] = [
    (
        "Revenue per request, lift %",
        [("expected", "expected_revenue_per_request", True), ("clicked", "revenue_per_request", True)],
    ),
    ("RPM lift %", [("expected", "expected_rpm", True)]),
    ("CTR lift %", [("expected", "expected_ctr", True), ("clicked", "ctr", True)]),
    (
        "Consistency %",
        [
            ("RCS", "rcs", False),
            ("one objective", "single_objective_rcs", False),
            ("true value", "true_value_recall", False),
        ],
    ),
    ("CTR %", [("expected", "expected_ctr", False)]),
    ("Proxy", [("ECE", "proxy_ece", False), ("PCOC", "proxy_pcoc", False)]),
]


def arms_table(metrics: Mapping[str, Any]) -> Table:
    """Every arm with its lifts over the baseline (expected and clicked) and the measures behind them."""
    arms = ordered_arms(metrics)
    shown = [one for _, columns in ARM_COLUMNS for one in columns]
    columns = [
        lift_column(metrics, arms, name) if is_lift else value_column(metrics, arms, name)
        for _, name, is_lift in shown
    ]
    groups = [(group, len(columns)) for group, columns in ARM_COLUMNS]
    return Table(
        "Arms", "Arm", [heading for heading, _, _ in shown], arm_rows(metrics, arms, columns), groups
    )


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
    ctr, revenue = culprit_measures(metrics)
    columns = [
        column(ARM_MEASURES["rcs"], [estimate(row.get("rcs")) for row in found]),
        column(LIFT, [lift_of(row.get(ctr)) for row in found], signed=True),
        column(LIFT, [lift_of(row.get(revenue)) for row in found], signed=True),
    ]
    rows = [
        Row(score_label(row), [made[i] for made in columns], tag=ROLES[role_of(row, found[0])])
        for i, row in enumerate(found)
    ]
    money = "Revenue lift %" if "revenue" in revenue else "RPM lift %"
    return Table("Finding the culprit", "Pre-ranking score", ["RCS %", "CTR lift %", money], rows)


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
    lifts = [lift_measure(metrics, name) for name in ("revenue_per_request", "rpm", "ctr")]
    spreads = [[arm_lift(metrics, arm, name).sd for arm in arms] for name in lifts]
    spreads += [
        [arm_value(metrics, arm, name).sd for arm in arms] for name in ("rcs", "single_objective_rcs")
    ]
    columns = [column(Measure("SD", "percent", "", 2), [Estimate(sd) for sd in sds]) for sds in spreads]
    return Table(
        "Spread between worlds",
        "Arm",
        ["Revenue per request lift", "RPM lift", "CTR lift", "RCS", "Single-objective RCS"],
        arm_rows(metrics, arms, columns),
    )


def all_measures_table(metrics: Mapping[str, Any]) -> Table:
    """Every measure of every arm, measures down and arms across, compared with the baseline."""
    arms = ordered_arms(metrics)
    rows = []
    for name in measure_names(metrics):
        values = value_column(metrics, arms, name)
        compared = comparison_texts(metrics, arms, name)
        cells = [
            Cell(value.text, value.interval, lift=text) for value, text in zip(values, compared, strict=True)
        ]
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
