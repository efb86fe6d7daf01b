"""Every arm against the baseline: lifts, consistency, the spread between worlds, and all measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from cascade_sim.analysis.metrics.catalogue import Measure, arm_measure, measure_names, reference_arms
from cascade_sim.analysis.report.comparisons import is_about_pre_ranking, lift_measure, ordered_arms
from cascade_sim.analysis.report.figures.arms import lifts, rcs_vs_revenue
from cascade_sim.analysis.report.figures.style import CROWD
from cascade_sim.analysis.report.section import (
    Columns,
    Details,
    Figure,
    Heading,
    Section,
    TablePart,
    Text,
)
from cascade_sim.analysis.report.tables import (
    Cell,
    Row,
    Table,
    arm_rows,
    column,
    comparison_texts,
    lift_column,
    value_column,
)
from cascade_sim.analysis.statistics.estimates import Estimate, arm_lift, arm_value

# (group, [(heading, measure, whether its lift or its level is shown)])
ARM_COLUMNS: list[tuple[str, list[tuple[str, str, bool]]]] = [
    (
        "Revenue per request, lift %",
        [("expected", "expected_revenue_per_request", True), ("realised", "revenue_per_request", True)],
    ),
    (
        "Guardrails, lift %",
        [
            ("impressions", "impressions_per_request", True),
            ("clicks", "expected_clicks_per_request", True),
            ("CPC", "cpc", True),
            ("surplus", "surplus_per_request", True),
        ],
    ),
    ("RPM lift %", [("expected", "expected_rpm", True)]),
    ("CTR lift %", [("expected", "expected_ctr", True), ("realised", "ctr", True)]),
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

OF_PRE_RANKING = ("Consistency %", "Proxy")


def arms_section(metrics: Mapping[str, Any]) -> Section:
    """The arms with both figures of their lifts; every other measure is folded away."""
    baseline = metrics["baseline"]
    return Section(
        "arms",
        "Arms",
        parts=(
            Text(
                f"Lifts are relative to {baseline}, paired on the same requests. {_clicks(metrics)} Brackets "
                "hold 95 % intervals; a coloured lift has an interval that excludes zero. Best expected "
                "revenue per request first."
            ),
            TablePart(arms_table(metrics)),
            Text(_reference_words(metrics), "small"),
            Columns(
                (
                    _consistency_figure(metrics),
                    Figure(
                        "lifts",
                        lifts,
                        "Lifts of revenue per request and CTR over the baseline, with 95 % intervals",
                        "Lifts over the baseline with 95 % intervals: filled, expected clicks; hollow, "
                        "clicks drawn. Arrows point to arms beyond the axis.",
                    ),
                )
            ),
            *_spread_parts(metrics),
            Details(
                summary="All measures of all arms",
                parts=(
                    Text(
                        f"Each cell: value, its 95 % interval, and how it compares with {baseline}: the "
                        "relative lift, or the difference for measures that are perfect at 0 or 1.",
                        "small",
                    ),
                    TablePart(all_measures_table(metrics)),
                ),
            ),
        ),
    )


def _consistency_figure(metrics: Mapping[str, Any]) -> Figure | None:
    """Does consistency pay? None where arms do not differ in pre-ranking."""
    if not is_about_pre_ranking(metrics):
        return None
    crowded = " Where there is no room, names are left out." if len(metrics["arms"]) > CROWD else ""
    return Figure(
        "rcs_vs_revenue",
        rcs_vs_revenue,
        "Ranking consistency against the revenue lift of each arm",
        "Does consistency pay? Each arm's RCS against its lift of revenue per request. The hollow point is "
        f"the baseline. Bars are 95 % intervals.{crowded}",
    )


def _clicks(metrics: Mapping[str, Any]) -> str:
    """What expected and realised measures rest on."""
    if metrics.get("replay"):
        return (
            "“Expected” takes each click that was logged where the same ad is in the same slot, and "
            "elsewhere the click model's probability; “realised” draws by the latter."
        )
    return "“Expected” replaces each click by its true probability; “realised” is what was drawn."


def _reference_words(metrics: Mapping[str, Any]) -> str:
    """What the arms are that cannot be shipped; empty without any."""
    shown = ordered_arms(metrics)
    known = [(arm, text) for arm, text in reference_arms(metrics).items() if arm in shown]
    told = Markup("; ").join(Markup("<b>{}</b>, {}").format(arm, text) for arm, text in known)
    return Markup("Reference arms, not for shipping: {}.").format(told) if known else ""


def _spread_parts(metrics: Mapping[str, Any]) -> list[Any]:
    spread = spread_table(metrics)
    if spread is None:
        return []
    about = (
        f"Standard deviation over {metrics['seeds']['n']} seeds, in percentage points: how much the result "
        "moves when the world is drawn anew."
    )
    return [Heading("Spread between worlds"), Text(about), TablePart(spread)]


def arms_table(metrics: Mapping[str, Any]) -> Table:
    """Every arm with its lifts over the baseline (expected and realised) and the measures behind them."""
    arms = ordered_arms(metrics)
    known = measure_names(metrics)
    left_out = () if is_about_pre_ranking(metrics) else OF_PRE_RANKING
    grouped = [
        (group, kept)
        for group, entries in ARM_COLUMNS
        if group not in left_out
        if (kept := [entry for entry in entries if entry[1] in known or _is_always_shown(metrics, group)])
    ]
    shown = [entry for _, entries in grouped for entry in entries]
    columns = [
        lift_column(metrics, arms, name) if is_lift else value_column(metrics, arms, name)
        for _, name, is_lift in shown
    ]
    groups = [(group, len(entries)) for group, entries in grouped]
    return Table(
        "Arms",
        "Arm",
        [heading for heading, _, _ in shown],
        arm_rows(metrics, arms, columns, with_changes=True),
        groups,
    )


def _is_always_shown(metrics: Mapping[str, Any], group: str) -> bool:
    """Whether a group of columns is shown where no arm has its measures, too."""
    return not metrics.get("replay") and not group.startswith("Guardrails")


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
    return Table("All measures", "Measure", arms, rows, columns_are_arms=True)
