"""What the numbers say, in words: which arm to ship, where the money is lost, which seat is the culprit.

Every sentence is computed from metrics.json; where the data do not decide, the sentence says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.catalogue import is_reference
from analysis.estimates import NBSP, Estimate, arm_lift, arm_value, estimate, number_text, percent_text

STAGE_NAMES = {"retrieval": "retrieval", "pre_ranking": "pre-ranking", "ranking": "ranking"}


@dataclass(frozen=True)
class Decision:
    """The arm to ship (None when no arm is clearly better than the baseline) and why."""

    arm: str | None
    headline: str
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def stage_name(stage: str) -> str:
    """The stage as people write it."""
    return STAGE_NAMES.get(stage, stage)


def lift_measure(metrics: Mapping[str, Any], measure: str) -> str:
    """`expected_` + measure where any arm has a lift of it, else the clicked measure."""
    expected = f"expected_{measure}"
    has_expected = any(arm_lift(metrics, arm, expected).value is not None for arm in metrics["arms"])
    return expected if has_expected else measure


def rpm_lift(metrics: Mapping[str, Any], arm: str) -> Estimate:
    """The lift the decision rests on: expected RPM where known."""
    return arm_lift(metrics, arm, lift_measure(metrics, "rpm"))


def ctr_lift(metrics: Mapping[str, Any], arm: str) -> Estimate:
    """The lift of expected CTR where known, else of the clicked CTR."""
    return arm_lift(metrics, arm, lift_measure(metrics, "ctr"))


def ordered_arms(metrics: Mapping[str, Any]) -> list[str]:
    """Arms by RPM lift, best first, the baseline at its own 0; reference arms after all others."""

    def place(arm: str) -> tuple[bool, float, str]:
        lift = 0.0 if arm == metrics["baseline"] else rpm_lift(metrics, arm).value
        return (
            is_reference(arm) and arm != metrics["baseline"],
            -lift if lift is not None else float("inf"),
            arm,
        )

    return sorted(metrics["arms"], key=place)


def candidates(metrics: Mapping[str, Any]) -> list[str]:
    """Arms that could be shipped instead of the baseline and have an RPM lift, best first."""
    return [
        arm
        for arm in ordered_arms(metrics)
        if arm != metrics["baseline"] and not is_reference(arm) and rpm_lift(metrics, arm).value is not None
    ]


def decide(metrics: Mapping[str, Any]) -> Decision:
    """Ship the arm with the best expected RPM lift among those whose 95 % interval lies above 0."""
    baseline = metrics["baseline"]
    contenders = candidates(metrics)
    better = [arm for arm in contenders if rpm_lift(metrics, arm).is_above_zero]
    warnings = world_warnings(metrics)
    if not contenders:
        return Decision(
            None,
            f"No other arm to compare with {baseline}.",
            ["Add a second arm to the scenario to learn whether another pre-ranking stage earns more."],
            warnings,
        )
    if not better:
        best = contenders[0]
        reason = (
            f"The best of the others, {best}, changes revenue per 1,000 impressions (RPM) by "
            f"{percent_text(rpm_lift(metrics, best))} and CTR by {percent_text(ctr_lift(metrics, best))}; "
            "the RPM interval does not lie above zero."
        )
        return Decision(
            None, f"No arm is clearly better than {baseline}.", [reason, *worse_arms(metrics)], warnings
        )
    best = better[0]
    reasons = [
        f"Against {baseline} it brings {percent_text(rpm_lift(metrics, best))} revenue per 1,000 impressions "
        f"(RPM) and {percent_text(ctr_lift(metrics, best))} CTR; brackets hold 95{NBSP}% intervals.",
        *close_rivals(metrics, best, better[1:]),
        *ceiling(metrics, best),
        *worse_arms(metrics),
    ]
    return Decision(best, f"Ship {best}.", reasons, [*trade_offs(metrics, best), *warnings])


def close_rivals(metrics: Mapping[str, Any], best: str, others: list[str]) -> list[str]:
    """Arms also better than the baseline whose interval reaches into the best one's: not told apart."""
    floor = rpm_lift(metrics, best).low
    close = []
    for arm in others:
        lift = rpm_lift(metrics, arm)
        if lift.high is not None and floor is not None and lift.high >= floor:
            close.append(f"{arm} (RPM {percent_text(lift)})")
    if not close:
        return []
    verb = "is" if len(close) == 1 else "are"
    return [f"{listed(close)} {verb} close: the intervals overlap, so this study does not tell them apart."]


def ceiling(metrics: Mapping[str, Any], best: str) -> list[str]:
    """How much of the ranker-as-pre-ranker's gain the arm brings, where that gain is clear."""
    top, own = rpm_lift(metrics, "ranker"), rpm_lift(metrics, best)
    if not top.is_above_zero or top.value is None or own.value is None or own.value > top.value:
        return []
    return [
        f"The ranker itself in the pre-ranking seat, usually too slow to serve there, would bring "
        f"{percent_text(top)}: {best} gets {number_text(100 * own.value / top.value, 0)}{NBSP}% of that."
    ]


def worse_arms(metrics: Mapping[str, Any]) -> list[str]:
    """Candidates whose whole RPM interval lies below zero."""
    worse = [arm for arm in candidates(metrics) if rpm_lift(metrics, arm).is_below_zero]
    if not worse:
        return []
    return [f"{listed(worse)} earn{'s' if len(worse) == 1 else ''} clearly less than {metrics['baseline']}."]


def trade_offs(metrics: Mapping[str, Any], best: str) -> list[str]:
    """What the RPM lift hides: a falling CTR, or fewer ads shown so that revenue per request falls."""
    found = []
    ctr, revenue = (
        ctr_lift(metrics, best),
        arm_lift(metrics, best, lift_measure(metrics, "revenue_per_request")),
    )
    if ctr.is_below_zero:
        found.append(
            f"{best} lowers CTR ({percent_text(ctr)}): the revenue comes from dearer clicks, not from more."
        )
    if revenue.is_below_zero:
        found.append(
            f"Revenue per request falls with {best} ({percent_text(revenue)}) although revenue per "
            "impression rises: it shows fewer ads."
        )
    return found


def world_warnings(metrics: Mapping[str, Any]) -> list[str]:
    """The caution that belongs to a study of a single world."""
    if metrics.get("seeds") or len(metrics["arms"]) < 2:
        return []
    return [
        f"This is one simulated world (seed {metrics.get('seed', '?')}). The intervals cover the noise of "
        f"this evaluation only; the spread between worlds is larger. Run with --seeds{NBSP}5 to measure it."
    ]


def losses(metrics: Mapping[str, Any], arm: str) -> list[tuple[str, Estimate, float | None]]:
    """(stage, true eCPM lost per request, its share of the best possible), in the cascade's order."""
    found = (metrics.get("attribution") or {}).get(arm) or {}
    best = estimate(found.get("ecpm_best")).value
    rows = []
    for row in found.get("stages") or []:
        lost = estimate(row.get("ecpm_lost"))
        rows.append((row["stage"], lost, lost.value / best if best and lost.value is not None else None))
    return rows


def money_lost(metrics: Mapping[str, Any]) -> tuple[str, str] | None:
    """(headline, sentence) on the stage that loses most with the baseline; None without an attribution."""
    baseline = metrics["baseline"]
    rows = [(stage, share) for stage, _, share in losses(metrics, baseline) if share is not None]
    if not rows:
        return None
    found = metrics["attribution"][baseline]
    shown = number_text(100 * found["ecpm_shown"] / found["ecpm_best"], 1)
    worst, most = max(rows, key=lambda row: row[1])
    if most <= 0:
        return (
            "No stage loses money today.",
            f"{baseline} shows {shown}{NBSP}% of the true eCPM that the corpus could give.",
        )
    parts = [f"{stage_name(stage)} {number_text(100 * share, 1)}{NBSP}%" for stage, share in rows]
    return (
        f"{stage_name(worst).capitalize()} loses the most money today.",
        f"With {baseline}, users see {shown}{NBSP}% of the true eCPM that the best ads of the whole corpus "
        f"would give. Lost on the way: {listed(parts)}.",
    )


def culprit_corners(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]] | None:
    """The rows "today", "bid" and "model" (one seat replaced) and "both" of the culprit table.

    "both" is the consistent corner (highest RCS, opt-bid on a tie) and "today" the one that differs from it
    in both seats. None if a row is missing.
    """
    rows = [row for row in metrics.get("culprit") or [] if estimate(row.get("rcs")).value is not None]
    if len(rows) != 4:
        return None
    both = max(rows, key=lambda row: (estimate(row["rcs"]).value, row["bid"] == "opt"))
    corners = {}
    for row in rows:
        same_bid, same_model = row["bid"] == both["bid"], row["model"] == both["model"]
        corners[
            "both" if same_bid and same_model else "bid" if same_bid else "model" if same_model else "today"
        ] = row
    return corners if len(corners) == 4 else None


def culprit_words(metrics: Mapping[str, Any]) -> str:
    """Which seat of the baseline's pre-ranking stage breaks consistency more; empty if not measured."""
    corners = culprit_corners(metrics)
    if corners is None:
        return ""
    level = {name: 100 * (estimate(row["rcs"]).value or 0.0) for name, row in corners.items()}
    gain = {seat: level[seat] - level["today"] for seat in ("model", "bid")}
    today, both = corners["today"], corners["both"]
    shown = {name: f"{number_text(percent, 1)}{NBSP}%" for name, percent in level.items()}
    text = (
        f"Today ({today['bid']}-bid × {today['model']}) RCS is {shown['today']}. Giving pre-ranking the "
        f"ranker's model ({both['model']}) makes it {shown['model']}, giving it the ranker's bid "
        f"({both['bid']}-bid) {shown['bid']}, both {shown['both']}. "
    )
    if abs(gain["model"] - gain["bid"]) < 1.0:
        return text + "Model and bid are about equally to blame."
    seat = "model" if gain["model"] > gain["bid"] else "bid"
    fix = "A better pre-ranking model" if seat == "model" else "Bringing the optimised bid to pre-ranking"
    return text + f"The {seat} is the main culprit. {fix} is the first thing to try."


def listed(parts: list[str]) -> str:
    """a; a and b; a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def key_figures(metrics: Mapping[str, Any], arm: str) -> list[tuple[str, Estimate, Estimate]]:
    """(label, lift or value of the arm, the baseline's value) for the tiles under the headline."""
    baseline = metrics["baseline"]
    return [
        ("RPM", rpm_lift(metrics, arm), arm_value(metrics, baseline, lift_measure(metrics, "rpm"))),
        ("CTR", ctr_lift(metrics, arm), arm_value(metrics, baseline, lift_measure(metrics, "ctr"))),
        ("RCS", arm_value(metrics, arm, "rcs"), arm_value(metrics, baseline, "rcs")),
    ]
