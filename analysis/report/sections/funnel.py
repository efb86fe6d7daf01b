"""Where the true value of a page is lost on its way through the stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import (
    ARM_MEASURES,
    OF_PAGES,
    Measure,
    after_step,
    routes_of,
    stages_of,
)
from cascade_sim.analysis.report.comparisons import ordered_arms
from cascade_sim.analysis.report.figures.funnel import funnel
from cascade_sim.analysis.report.readings import detail_requests
from cascade_sim.analysis.report.section import Columns, Figure, Section, Stack, TablePart, Text, titled
from cascade_sim.analysis.report.tables import LIFT, Row, Table, arm_rows, column, value_column
from cascade_sim.analysis.report.text_helpers import stage_name
from cascade_sim.analysis.report.value_loss import irreducible_share, losses, perfect_gains, perfect_stage
from cascade_sim.analysis.statistics.estimates import Estimate, arm_value, estimate, percent_text, scaled


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
                "Recall of pages of the whole corpus, stage by stage",
                recall_table(metrics),
                Text(ABOUT_RECALL, "small"),
            ),
            *titled("Each stage by itself", alone_table(metrics), Text(ABOUT_ALONE, "small")),
            *titled("By route", routes_table(metrics), Text(ABOUT_ROUTES, "small")),
            *titled(
                f"One stage of {metrics['baseline']} made perfect, the others unmodified",
                perfect_table(metrics),
                Text(ABOUT_PERFECT, "small"),
            ),
        ),
        rests_on_data=True,
        short="Value loss",
    )


ABOUT_RECALL = (
    "The ideal page is what an arm's own ranking stage would show, had it scored every ad of the corpus: how "
    "consistent the stages before it are. Arms with different rankers have different ones. The best page is "
    "that by true CTR × bid, whatever the ranker. Each column is the share of the page that is left after a "
    "stage; the last is what is shown."
)
ABOUT_ALONE = (
    "Of the ads of these pages that reach a stage, the share that it lets through. Multiplied, they are the "
    "share that is shown. Ranking shows all that reach it of the page that it would choose itself."
)
ABOUT_ROUTES = "Shares of these pages that a route brings, and that no other route brings."
ABOUT_PERFECT = (
    "Each row serves the same requests with one stage choosing by all that features tell, and the other "
    "stages unmodified. The losses above are sequential, so a stage is judged by what the stages before it "
    "left; here each is judged in the cascade as it is, and the gains need not add up."
)


def recall_table(metrics: Mapping[str, Any]) -> Table | None:
    """What is left of the ideal and of the best page of the corpus after each stage; None if not measured."""
    stages = stages_of(metrics)
    names = {page: [*(after_step(page, stage) for stage in stages[:-1]), page] for page in OF_PAGES}
    headings = [*(f"after {stage_name(stage)}" for stage in stages[:-1]), "shown"]
    return _of_pages(metrics, "Recall of pages of the corpus", names, headings)


def alone_table(metrics: Mapping[str, Any]) -> Table | None:
    """What each stage lets through of what reaches it of these pages; None if not measured."""
    stages = stages_of(metrics)
    names = {
        page: [*(after_step(page, stage) for stage in stages[:1]), *(f"{page}_of_{s}" for s in stages[1:])]
        for page in OF_PAGES
    }
    return _of_pages(metrics, "Each stage by itself", names, [stage_name(stage) for stage in stages])


def _of_pages(
    metrics: Mapping[str, Any], title: str, names: Mapping[str, list[str]], headings: list[str]
) -> Table | None:
    """Measures of both pages, page by page; None where no arm has them."""
    arms = ordered_arms(metrics)
    listed = [name for of_page in names.values() for name in of_page]
    if all(arm_value(metrics, arm, name).value is None for arm in arms for name in listed):
        return None
    columns = [value_column(metrics, arms, name) for name in listed]
    groups = [(_page_heading(page), len(of_page)) for page, of_page in names.items()]
    return Table(title, "Arm", headings * len(names), arm_rows(metrics, arms, columns), groups)


def _page_heading(page: str) -> str:
    return ARM_MEASURES[page].heading


def routes_table(metrics: Mapping[str, Any]) -> Table | None:
    """What each route of retrieval brings of these pages, alone and with others; None without routes.

    Arms that retrieve as the baseline does, for the same ranker, are left out.
    """
    kinds = ("by", "only_by")

    def values(arm: str, route: str) -> list[Estimate]:
        return [arm_value(metrics, arm, f"{page}_{kind}_{route}") for page in OF_PAGES for kind in kinds]

    routes = routes_of(metrics)
    arms = sorted(ordered_arms(metrics), key=lambda arm: arm != metrics["baseline"])
    found: dict[tuple[str, tuple[Estimate, ...]], str] = {}
    for arm in arms:
        for route in routes:
            if (own := tuple(values(arm, route)))[0].value is not None:
                found.setdefault((route, own), arm)
    if not found:
        return None
    measure = Measure("share", "percent", "", 1)
    columns = [column(measure, list(cells)) for cells in zip(*(own for _, own in found), strict=True)]
    rows = [
        Row(f"{arm}: {route}", [cells[i] for cells in columns])
        for i, ((route, _), arm) in enumerate(found.items())
    ]
    groups = [(_page_heading(page), len(kinds)) for page in OF_PAGES]
    return Table("By route", "Arm and route", ["brought", "by it alone"] * len(OF_PAGES), rows, groups)


def perfect_words(metrics: Mapping[str, Any]) -> str:
    """Which stage alone, made perfect, would gain most; empty if not measured."""
    gains = perfect_gains(metrics)
    if not gains:
        return ""
    top = max(gains, key=lambda stage: gains[stage].value or 0.0)
    text = percent_text(gains[top])
    if not gains[top].is_above_zero:
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
