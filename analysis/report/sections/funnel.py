"""Where the true value of a page is lost on its way through the stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.report.comparisons import ordered_arms
from cascade_sim.analysis.report.decision import losses
from cascade_sim.analysis.report.figures.funnel import funnel
from cascade_sim.analysis.report.readings import detail_requests
from cascade_sim.analysis.report.section import Columns, Figure, Section, Stack, TablePart, Text
from cascade_sim.analysis.report.tables import Table, arm_rows, column
from cascade_sim.analysis.report.text_helpers import stage_name
from cascade_sim.analysis.statistics.estimates import estimate


def funnel_section(metrics: Mapping[str, Any]) -> Section:
    """Stage sizes and losses, for a study that has either; of a replayed log the sizes alone."""
    if metrics.get("evidence"):
        return _sizes_section()
    table = attribution_table(metrics)
    return Section(
        "funnel",
        "Where the money is lost",
        parts=(
            Text(
                "The best page that the ads entering a stage could give, by true CTR and bid, is compared "
                "with the best that the ads leaving it can still give. The difference is what the stage "
                "loses; the differences add up to all that is lost."
            ),
            Columns(
                (
                    Figure(
                        "funnel",
                        funnel,
                        "Ads per stage, and where the true eCPM is lost",
                        "Stage sizes, and the true eCPM per request that each arm shows or loses, in percent "
                        "of the best possible.",
                    ),
                    Stack((TablePart(table, margins=True), Text(_about(metrics), "small")))
                    if table
                    else None,
                ),
                "figures wide",
            ),
        ),
        rests_on_data=True,
        short="Money lost",
    )


def _sizes_section() -> Section:
    return Section(
        "funnel",
        "From candidates to the page",
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
        "True eCPM per request, summed over slots; “winners %” is the share of would-be winners dropped at "
        f"the stage. {measured}± is the longer half of the 95 % interval."
    )


def attribution_table(metrics: Mapping[str, Any]) -> Table | None:
    """True eCPM lost at each stage and the share of would-be winners dropped there; None if unknown."""
    by_arm = metrics.get("attribution") or {}
    arms = [arm for arm in ordered_arms(metrics) if by_arm.get(arm)]
    if not arms:
        return None
    stages = [stage for stage, _, _ in losses(metrics, arms[0])]
    money = Measure("eCPM", "money", "")
    columns = [column(money, [estimate(by_arm[arm].get("ecpm_shown")) for arm in arms])]
    for stage in stages:
        of_stage: list[Any] = [
            next((row for row in by_arm[arm]["stages"] if row["stage"] == stage), {}) for arm in arms
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
