"""The answer that a page begins with: what to ship, what users and advertisers get, how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.published import out_of_published_range
from cascade_sim.analysis.report.comparisons import (
    candidates,
    is_about_candidates,
    lift_measure,
    revenue_lift,
)
from cascade_sim.analysis.report.decision import BRACKETS, IDEAL, Recommendation, decide
from cascade_sim.analysis.report.guardrails import (
    FINE,
    arm_changes_of,
    guardrail_table,
    guardrail_tiles,
    level_text,
    lift_tile,
)
from cascade_sim.analysis.report.section import (
    Columns,
    Heading,
    Part,
    Section,
    Stack,
    TablePart,
    Text,
    Tiles,
)
from cascade_sim.analysis.report.sections.asked import asked_kinds
from cascade_sim.analysis.report.value_loss import value_lost
from cascade_sim.analysis.statistics.estimates import arm_value

MAX_ROWS = 6  # arms whose guardrails are on the card
DECIDES = "Revenue per request"


def answer_section(metrics: Mapping[str, Any]) -> Section | None:
    """The recommendation with its reasons and what to be careful of: the page's headline unless the scenario
    asks something else. Then, without another arm, only what the first answer does not say is left.
    """
    answer = decide(metrics)
    is_first = not asked_kinds(metrics)
    reasons: list[Part] = [Text(reason) for reason in answer.reasons]
    reasons += [Text(finding, "finding") for finding in answer.findings]
    lost, seeds = value_lost(metrics) if is_about_candidates(metrics) else None, metrics.get("seeds")
    care: list[Part] = [Heading(lost[0]), *map(Text, lost[1:])] if lost else []
    if seeds:
        care.append(
            Text(
                f"Values are means over {seeds['n']} simulated worlds; intervals are 95 % t intervals "
                "between worlds, so they hold for a new world of this kind and not only for this one.",
                "note",
            )
        )
    care += [Text(warning, "caution") for warning in (*answer.warnings, *out_of_published_range(metrics))]
    care += [Text(note, "small") for note in answer.notes]
    if not is_first and not candidates(metrics):
        title, rest = (lost[0], care[1:]) if lost else ("Limitations", care)
        findings = [Text(finding, "finding") for finding in answer.findings]
        return Section("ship", title, parts=[*findings, *rest], short="Value lost") if rest else None
    return Section(
        "ship",
        answer.headline,
        parts=(
            *guarded(metrics, answer),
            Columns((Stack(reasons), Stack(care)), "sides"),
        ),
        kind="answer" if is_first else "answer second",
        label="Answer" if is_first else "Which arm to ship",
        short="Answer" if is_first else "Which arm to ship",
    )


def guarded(metrics: Mapping[str, Any], answer: Recommendation) -> list[Part]:
    """The decision measure and the guardrails: tiles of the one arm to ship, else a row for each arm."""
    costs: list[Part] = [
        Text(line, "caution") for line in answer.guardrails if line and not line.startswith(FINE)
    ]
    if answer.arm:
        return [tiles(metrics, answer.arm)]
    arms = (answer.arms or candidates(metrics))[:MAX_ROWS]
    if len(arms) == 1:
        return [tiles(metrics, arms[0])]
    rows = {arm: (revenue_lift(metrics, arm), arm_changes_of(metrics, arm)) for arm in arms}
    return [TablePart(guardrail_table(rows, metrics["baseline"], DECIDES)), *costs]


def tiles(metrics: Mapping[str, Any], arm: str) -> Tiles:
    """The arm's lift of the measure that decides, then its guardrails."""
    base = arm_value(metrics, metrics["baseline"], lift_measure(metrics, "revenue_per_request"))
    made = [lift_tile(DECIDES, revenue_lift(metrics, arm), level_text(base, "baseline"))]
    made += guardrail_tiles(arm_changes_of(metrics, arm))
    where = f", {IDEAL[0].lower()}{IDEAL[1:]}" if metrics.get("market") else ""
    return Tiles(made, f"Lifts of {arm} over the baseline, {metrics['baseline']}{where}; {BRACKETS}")
