"""Where the true value of a page is lost on its way through the stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.report.comparisons import ordered_arms
from cascade_sim.analysis.report.decision import irreducible_share, losses
from cascade_sim.analysis.report.figures.funnel import funnel
from cascade_sim.analysis.report.readings import detail_requests
from cascade_sim.analysis.report.section import Columns, Figure, Section, Stack, TablePart, Text, titled
from cascade_sim.analysis.report.tables import LIFT, Row, Table, arm_rows, column
from cascade_sim.analysis.report.text_helpers import stage_name
from cascade_sim.analysis.statistics.estimates import Estimate, estimate, percent_text, scaled


def funnel_section(metrics: Mapping[str, Any]) -> Section:
    """Stage sizes and losses, for a study that has either; of a replayed log the sizes alone."""
    if metrics.get("replay"):
        return _sizes_section()
    table = attribution_table(metrics)
    return Section(
        "funnel",
        "Value loss by stage",
        parts=(
            Text(
                "Value is the bid times the true CTR, kept or paid; revenue is what advertisers pay of it. "
                "The best page from the ads that enter a stage is compared with the best from those "
                "that leave it. “Irreducible” is the noise of user and ad pairs, which no feature shows; "
                "“avoidable” is the rest: what a stage loses although features tell it. Irreducible and "
                "avoidable losses add up to all that is lost."
            ),
            Text(perfect_words(metrics), "finding"),
            Columns(
                (
                    Figure(
                        "funnel",
                        funnel,
                        "Ads per stage, and value lost by stage",
                        "Stage sizes, and the true value per request that each arm shows or loses, in "
                        "percent of the best possible.",
                    ),
                    Stack((TablePart(table, margins=True), Text(_about(metrics), "small")))
                    if table
                    else None,
                ),
                "figures wide",
            ),
            *titled(
                f"One stage of {metrics['baseline']} made perfect, the others unmodified",
                perfect_table(metrics),
                Text(ABOUT_PERFECT, "small"),
            ),
        ),
        rests_on_data=True,
        short="Value loss",
    )


ABOUT_PERFECT = (
    "Each row serves the same requests with one stage choosing by all that features tell, and the other "
    "stages unmodified. The losses above are sequential, so a stage is judged by what the stages before it "
    "left; here each is judged in the cascade as it is, and the gains need not add up."
)


def perfect_stage(metrics: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """(stage, gains) of the baseline with that stage made perfect, in their order; empty if not measured."""
    own = (metrics.get("attribution") or {}).get(metrics["baseline"]) or {}
    gains = own.get("perfect_stage") or {}
    return [(row["stage"], gains[row["stage"]]) for row in own.get("stages") or [] if row["stage"] in gains]


def perfect_words(metrics: Mapping[str, Any]) -> str:
    """Which stage alone, made perfect, would gain most; empty if not measured."""
    gains = {stage: estimate(entry["ecpm_gain"]) for stage, entry in perfect_stage(metrics)}
    shown = (metrics.get("attribution") or {}).get(metrics["baseline"], {}).get("ecpm_shown")
    known = {stage: gain for stage, gain in gains.items() if gain.value is not None}
    if not known or not shown:
        return ""
    top = max(known, key=lambda stage: known[stage].value or 0.0)
    text = percent_text(scaled(known[top], 1.0 / shown))
    if not known[top].is_above_zero:
        return (
            "Made perfect alone, no stage would raise the value shown significantly; "
            f"{stage_name(top)} changes it by {text}."
        )
    return f"Made perfect alone, {stage_name(top)} would raise the value shown most: {text}."


def perfect_table(metrics: Mapping[str, Any]) -> Table | None:
    """What value and revenue gain where one stage is perfect; None if not measured."""
    stages = perfect_stage(metrics)
    if not stages:
        return None
    own = metrics["attribution"][metrics["baseline"]]
    money = Measure("gain", "money", "")
    bases = {"ecpm_gain": estimate(own["ecpm_shown"]), "revenue_gain": estimate(own["revenue"])}
    columns = []
    for name, base in bases.items():
        gains = [estimate(entry[name]) for _, entry in stages]
        columns.append(column(money, gains, signed=True))
        lifts = [scaled(gain, 1.0 / base.value) if base.value else Estimate() for gain in gains]
        columns.append(column(LIFT, lifts, signed=True))
    rows = [Row(stage_name(stage), [cells[i] for cells in columns]) for i, (stage, _) in enumerate(stages)]
    groups = [("Value shown", 2), ("Revenue", 2)]
    return Table("One stage perfect", "Perfect stage", ["gain", "gain %"] * 2, rows, groups)


def _sizes_section() -> Section:
    return Section(
        "funnel",
        "Candidates per stage",
        parts=(
            Text(
                "How many ads each stage hands on. What a stage loses would take true CTRs, which a log does "
                "not have."
            ),
            Figure("funnel", funnel, "Ads per stage", "Ads per request at each stage of the arm as logged."),
        ),
        rests_on_data=True,
        short="Stages",
    )


def _about(metrics: Mapping[str, Any]) -> str:
    requests = detail_requests(metrics, "corpus_requests")
    measured = f"Measured on {requests}, against the whole corpus. " if requests else ""
    return (
        "Value and revenue per 1,000 requests, summed over slots; “winners %” is the share of would-be "
        f"winners dropped at the stage. {measured}± is the longer half of the 95 % interval."
    )


def attribution_table(metrics: Mapping[str, Any]) -> Table | None:
    """Value lost at each stage, the avoidable part, and would-be winners dropped; None if unknown."""
    by_arm = metrics.get("attribution") or {}
    arms = [arm for arm in ordered_arms(metrics) if by_arm.get(arm)]
    if not arms:
        return None
    stages = [stage for stage, _, _ in losses(metrics, arms[0])]
    is_split = all("ecpm_avoidable" in by_arm[arm] for arm in arms)
    money = Measure("value", "money", "")
    columns = [column(money, [estimate(by_arm[arm].get("ecpm_shown")) for arm in arms])]
    groups, headings = [("Shown", 1)], ["value"]
    if is_split:
        noise = [Estimate(irreducible_share(metrics, arm)) for arm in arms]
        columns.append(column(money, [estimate(by_arm[arm].get("revenue")) for arm in arms]))
        columns.append(column(Measure("noise", "percent", "", 1), noise))
        groups, headings = [("Shown", 2), ("Irreducible", 1)], ["value", "revenue", "% of the best"]
    for stage in stages:
        of_stage: list[Any] = [
            next((row for row in by_arm[arm]["stages"] if row["stage"] == stage), {}) for arm in arms
        ]
        parts = {"value": [estimate(row.get("ecpm_lost")) for row in of_stage]}
        if is_split:
            parts["avoidable"] = [estimate(by_arm[arm]["ecpm_avoidable"].get(stage)) for arm in arms]
        columns += [column(money, values) for values in parts.values()]
        columns.append(
            column(Measure("dropped", "percent", "", 1), [estimate(row.get("dropped")) for row in of_stage])
        )
        headings += [*parts, "winners %"]
        groups.append((f"Lost at {stage_name(stage)}", len(parts) + 1))
    return Table("Losses", "Arm", headings, arm_rows(metrics, arms, columns), groups)
