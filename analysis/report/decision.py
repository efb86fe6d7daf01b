"""What the numbers say, in words: which arm to ship, and what a simpler change would bring.

Every sentence is computed from metrics.json; where the data do not decide, the sentence says so. An arm is
shipped only if its 95 % interval of revenue per request lies above the baseline's, and alone only if it
differs significantly from every other such arm (report.ties). An arm without a gain in the run's own market
is not shipped, whatever the evaluation says. Reference arms are never shipped. Intervals are not adjusted for
the number of arms compared with the baseline; a note says what that means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cascade_sim.analysis.metrics.catalogue import is_reference, steps_of
from cascade_sim.analysis.report.comparisons import (
    candidates,
    contrast,
    ctr_lift,
    is_about_pre_ranking,
    revenue_lift,
    rpm_lift,
)
from cascade_sim.analysis.report.guardrails import (
    arm_changes_of,
    guardrail_words,
    worse,
    worse_clause,
)
from cascade_sim.analysis.report.market_verdict import denied_by_the_market, is_denied, under_budgets
from cascade_sim.analysis.report.readings import no_evidence
from cascade_sim.analysis.report.sections.whatif import what_if_words
from cascade_sim.analysis.report.text_helpers import listed
from cascade_sim.analysis.report.ties import more_data, tie_breakers, tied_with
from cascade_sim.analysis.statistics.estimates import (
    NBSP,
    Estimate,
    number_text,
    percent_text,
)

MAX_RIVALS = 6  # named in a sentence
MAX_NAMED = 4  # in the headline
IDEAL = "With fixed bids and unlimited budgets"  # what the evaluation has, and a market has not
BRACKETS = f"brackets hold 95{NBSP}% intervals"
# Reference arms that could be had at once: the change, and what it tells of the baseline when it pays.
SIMPLER = {
    "pctr_only": ("Dropping the bid from pre-ranking", "bid × pCTR is worse than its pCTR"),
    "bid_only": ("Pre-ranking by the bid", "bid × pCTR is worse than its bid"),
    "random": ("Drawing the competitive set at random", "pre-ranking is worse than chance"),
}
# The same where pre-ranking has several steps, of which they replace the last.
SIMPLER_IN_LAST_STEP = {
    "pctr_only": (
        "Dropping the bid from the last step of pre-ranking",
        "bid × pCTR there is worse than its pCTR",
    ),
    "bid_only": (
        "Going by the bid in the last step of pre-ranking",
        "bid × pCTR there is worse than its bid",
    ),
    "random": (
        "Drawing the competitive set at random from what the last step of pre-ranking receives",
        "last step is worse than chance",
    ),
}


@dataclass(frozen=True)
class Recommendation:
    """The arms to ship, any of them: none where no arm is significantly better than the baseline; and why.

    `gain`: what they bring, in numbers, which a page has in tiles; empty without an arm to ship.
    `guardrails`: what users and advertisers get. `findings`: reference arms that pay. `notes`: how to read
    the intervals.
    """

    arms: tuple[str, ...]
    headline: str
    reasons: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gain: str = ""
    guardrails: list[str] = field(default_factory=list)

    @property
    def arm(self) -> str | None:
        """The one arm to ship; None where none is, or several are not significantly different."""
        return self.arms[0] if len(self.arms) == 1 else None


def decide(metrics: Mapping[str, Any]) -> Recommendation:
    """Ship the arm with the best revenue per request among those whose 95 % interval lies above 0.

    Where others of them are not significantly different from it, any of them may be shipped, but none that
    the market denies.
    """
    if headline := no_evidence(metrics):
        return Recommendation((), headline, warnings=world_warnings(metrics))
    contenders = candidates(metrics)
    better = [arm for arm in contenders if revenue_lift(metrics, arm).is_above_zero]
    warnings = world_warnings(metrics)
    if not contenders:
        return _nothing_to_compare(metrics, warnings)
    if not better:
        return _keep_the_baseline(metrics, contenders, warnings)
    tied = tied_with(metrics, better[0], better)
    confirmed = [arm for arm in tied if not is_denied(metrics, arm)]
    if not confirmed:
        return _not_confirmed(metrics, tied, contenders, warnings)
    denied = denied_by_the_market(metrics, tied)
    if len(confirmed) > 1:
        return _ship_any(metrics, confirmed, contenders, [*denied, *warnings])
    best = confirmed[0]
    ahead = [arm for arm in _simpler(metrics) if contrast(metrics, best, arm).is_below_zero]
    return Recommendation(
        (best,),
        f"Ship {best}{_but(ahead)}{worse_clause(arm_changes_of(metrics, best))}.",
        [
            *rivals(metrics, best, contenders),
            *ceiling(metrics, best),
            *worse_arms(metrics),
        ],
        simpler_changes(metrics, best),
        [*trade_offs(metrics, best), *under_budgets(metrics, best), *denied, *warnings],
        comparison_notes(metrics),
        f"Against {metrics['baseline']} it brings {_gain(metrics, best)}; {BRACKETS}.",
        [guardrail_words(arm_changes_of(metrics, best), best)],
    )


def _simpler(metrics: Mapping[str, Any]) -> Mapping[str, tuple[str, str]]:
    """The simpler changes of pre-ranking that a study may speak of: none where it is about something else."""
    if not is_about_pre_ranking(metrics):
        return {}
    return SIMPLER_IN_LAST_STEP if steps_of(metrics) else SIMPLER


def _but(simpler: list[str]) -> str:
    """The end of a headline where simpler changes than the scenario's earn more."""
    return (
        f", but the simpler {listed(simpler)} earn{'s' if len(simpler) == 1 else ''} more" if simpler else ""
    )


def _gain(metrics: Mapping[str, Any], arm: str) -> str:
    """What an arm brings against the baseline, with intervals."""
    revenue, rpm = (percent_text(lift(metrics, arm)) for lift in (revenue_lift, rpm_lift))
    per_mille = "the same" if rpm == revenue else rpm  # as many ads shown
    return (
        f"{revenue} revenue per request, {per_mille} per 1,000 impressions (RPM) and "
        f"{percent_text(ctr_lift(metrics, arm))} CTR"
    )


def _ship_any(
    metrics: Mapping[str, Any], tied: list[str], contenders: list[str], warnings: list[str]
) -> Recommendation:
    """Several arms are significantly better than the baseline, and do not differ significantly."""
    ahead = [
        arm for arm in _simpler(metrics) if all(contrast(metrics, own, arm).is_below_zero for own in tied)
    ]  # of every one of them
    names = _either(tied)
    gains = [f"{percent_text(revenue_lift(metrics, arm))} with {arm}" for arm in tied[:MAX_RIVALS]]
    found = {arm: arm_changes_of(metrics, arm) for arm in tied}
    costly = [arm for arm in tied if worse(found[arm])]
    clause = ""
    if costly:
        clause = (
            f"; guardrails get worse with {listed(costly) if len(costly) < len(tied) else 'each of them'}"
        )
    return Recommendation(
        tuple(tied),
        f"Ship {names}: no significant difference between them{_but(ahead)}{clause}.",
        [
            *rivals(metrics, tied[0], contenders),
            *tie_breakers(metrics, tied),
            *ceiling(metrics, tied[0]),
            *worse_arms(metrics),
        ],
        simpler_changes(metrics, None),
        [
            *(line for arm in tied for line in trade_offs(metrics, arm)),
            *warnings,
        ],
        comparison_notes(metrics),
        f"Revenue per request changes against {metrics['baseline']} by {listed(gains)}; {BRACKETS}.",
        [guardrail_words(found[arm], arm) for arm in costly[:MAX_RIVALS]]
        or [guardrail_words(found[tied[0]], "any of them")],
    )


def _either(arms: list[str]) -> str:
    """a; a or b; any of 5 arms."""
    if len(arms) > MAX_NAMED:
        return f"any of {len(arms)} arms"
    return arms[0] if len(arms) == 1 else f"{', '.join(arms[:-1])} or {arms[-1]}"


def _not_confirmed(
    metrics: Mapping[str, Any], tied: list[str], contenders: list[str], warnings: list[str]
) -> Recommendation:
    """Arms that are best in the evaluation and have no gain in the market: none is shipped."""
    best = tied[0]
    costs = worse_clause(arm_changes_of(metrics, best), f"with {best} " if len(tied) > 1 else "")
    denied = under_budgets(metrics, best) if len(tied) == 1 else denied_by_the_market(metrics, tied)
    return Recommendation(
        (),
        f"Do not ship {_either(tied)}: the market does not confirm the gain{costs}.",
        [*rivals(metrics, best, contenders), *ceiling(metrics, best), *worse_arms(metrics)],
        simpler_changes(metrics, best),
        [*denied, *trade_offs(metrics, best), *warnings],
        comparison_notes(metrics),
        f"{IDEAL} {best} brings {_gain(metrics, best)} against {metrics['baseline']}; {BRACKETS}.",
        [guardrail_words(arm_changes_of(metrics, best), best)],
    )


def _nothing_to_compare(metrics: Mapping[str, Any], warnings: list[str]) -> Recommendation:
    """A scenario of one arm, or arms whose revenue per request cannot be compared with the baseline's."""
    baseline = metrics["baseline"]
    others = [arm for arm in metrics["arms"] if arm != baseline and not is_reference(arm)]
    headline = f"No other arm to compare with {baseline}."
    reason = "Add a second arm to the scenario to compare it with."
    if others:
        headline = f"No arm can be compared with {baseline}."
        reason = f"The lift of revenue per request is undefined for {listed(others)}."
    elif metrics.get("what_if"):
        headline = f"What would other settings of {baseline} bring?"
        told = [f"{name}: {what_if_words(answer)}" for name, answer in metrics["what_if"].items()]
        return Recommendation((), headline, told, simpler_changes(metrics, None), warnings)
    return Recommendation((), headline, [reason], simpler_changes(metrics, None), warnings)


def _keep_the_baseline(
    metrics: Mapping[str, Any], contenders: list[str], warnings: list[str]
) -> Recommendation:
    """No arm of the scenario is clearly better; a reference arm may be."""
    baseline, best = metrics["baseline"], contenders[0]
    lift = revenue_lift(metrics, best)
    worse = [arm for arm in contenders if revenue_lift(metrics, arm).is_below_zero]
    paying = [arm for arm in _simpler(metrics) if revenue_lift(metrics, arm).is_above_zero]
    why = "no arm is significantly better"
    if not worse:
        why = "no arm differs significantly from it"
    elif len(worse) == len(contenders):
        why = f"{worse[0]} earns less" if len(worse) == 1 else "every other arm earns less"
    chance = "revenue falls significantly" if lift.is_below_zero else "the revenue change is not significant"
    reason = (
        f"The best of the others, {best}, changes revenue per request by {percent_text(lift)} and CTR by "
        f"{percent_text(ctr_lift(metrics, best))}; {chance}."
    )
    is_open = not lift.is_below_zero and (lift.value or 0.0) > 0
    otherwise = under_budgets(metrics, None)
    headline = f"Keep {baseline}: {why}{_but(paying)}."
    if otherwise:
        headline = f"{IDEAL} keep {baseline}: {why}{_but(paying)}; the market disagrees."
    return Recommendation(
        (),
        headline,
        [reason, *(more_data(metrics, [lift]) if is_open else []), *worse_arms(metrics)],
        simpler_changes(metrics, None),
        [*otherwise, *warnings],
        comparison_notes(metrics),
        guardrails=[guardrail_words(arm_changes_of(metrics, best), best)],
    )


def rivals(metrics: Mapping[str, Any], best: str, contenders: list[str]) -> list[str]:
    """The best arm against each other one that is not significantly below the baseline, paired.

    Of many, only those nearest to it are named; the others are counted.
    """
    others = [arm for arm in contenders if arm != best and not revenue_lift(metrics, arm).is_below_zero]
    gaps = {arm: contrast(metrics, best, arm) for arm in others}
    gaps = {arm: gap for arm, gap in gaps.items() if gap.value is not None}
    if not gaps:
        return _without_contrasts(metrics, best, others)
    nearest = sorted(gaps, key=lambda arm: gaps[arm].value or 0.0)[:MAX_RIVALS]
    told = [_gap_words(arm, gap) for arm, gap in gaps.items() if arm in nearest]
    if len(gaps) > len(nearest):
        told.append(f"further ahead of {len(gaps) - len(nearest)} others")
    return [f"In revenue per request on the same traffic {best} is {listed(told)}."]


def _gap_words(arm: str, gap: Estimate) -> str:
    if gap.is_above_zero:
        return f"ahead of {arm} by {percent_text(gap)}"
    if gap.is_below_zero:
        return f"behind {arm} ({percent_text(gap)})"
    return f"not significantly different from {arm} ({percent_text(gap)})"


def _without_contrasts(metrics: Mapping[str, Any], best: str, others: list[str]) -> list[str]:
    """For a run without contrasts: arms that it cannot tell from the best one."""
    close = [
        f"{arm} ({percent_text(revenue_lift(metrics, arm))})" for arm in tied_with(metrics, best, others)
    ]
    if not close:
        return []
    verb = "is" if len(close) == 1 else "are"
    return [f"{listed(close)} {verb} close, and this run holds no paired comparison of them."]


def ceiling(metrics: Mapping[str, Any], best: str) -> list[str]:
    """How much of the ranker-as-pre-ranker's gain the arm brings, where that gain is clear."""
    top, own = revenue_lift(metrics, "ranker"), revenue_lift(metrics, best)
    if (
        not is_about_pre_ranking(metrics)
        or not top.is_above_zero
        or top.value is None
        or own.value is None
        or own.value > top.value
    ):
        return []
    where = "in the last step of pre-ranking" if steps_of(metrics) else "as the pre-ranking model"
    return [
        f"Upper bound: with the ranker {where} (usually too slow to serve) the lift is {percent_text(top)}; "
        f"{best} captures {number_text(100 * own.value / top.value, 0)}{NBSP}% of it."
    ]


def simpler_changes(metrics: Mapping[str, Any], best: str | None) -> list[str]:
    """Reference arms that earn significantly more than the baseline or than the arm to ship."""
    sentences = []
    for arm, (change, moral) in _simpler(metrics).items():
        lift = revenue_lift(metrics, arm)
        against = contrast(metrics, best, arm) if best else Estimate()
        if not lift.is_above_zero and not against.is_below_zero:
            continue
        text = f"{change} ({arm}) alone would bring {percent_text(lift)} revenue per request"
        text += f": the baseline's {moral}." if lift.is_above_zero else "."
        if against.is_below_zero:
            text += f" That is more than {best} brings: {percent_text(against)} against it."
        elif against.is_above_zero:
            text += f" {best} is ahead of it by {percent_text(against)}."
        elif against.value is not None:
            text += f" {best} is not significantly different from it ({percent_text(against)})."
        sentences.append(text)
    return sentences


def worse_arms(metrics: Mapping[str, Any]) -> list[str]:
    """Candidates whose whole interval lies below zero, and those that a rising RPM would hide."""
    worse = [arm for arm in candidates(metrics) if revenue_lift(metrics, arm).is_below_zero]
    if not worse:
        return []
    sentences = [
        f"{listed(worse)} earn{'s' if len(worse) == 1 else ''} significantly less than {metrics['baseline']}."
    ]
    for arm in worse:
        if rpm_lift(metrics, arm).is_above_zero:
            sentences.append(
                f"{arm} raises revenue per impression (RPM {percent_text(rpm_lift(metrics, arm))}) but shows "
                f"fewer ads: revenue per request {percent_text(revenue_lift(metrics, arm))}."
            )
    return sentences


def trade_offs(metrics: Mapping[str, Any], best: str) -> list[str]:
    """What the revenue lift hides: a falling CTR, or more ads shown at less revenue each."""
    sentences = []
    ctr, rpm = ctr_lift(metrics, best), rpm_lift(metrics, best)
    if ctr.is_below_zero:
        sentences.append(
            f"{best} lowers CTR ({percent_text(ctr)}): the revenue comes from dearer clicks or more ads, "
            "not from ads that users click more often."
        )
    if rpm.is_below_zero:
        sentences.append(
            f"Revenue per impression falls with {best} (RPM {percent_text(rpm)}): it earns more by showing "
            "more ads."
        )
    return sentences


def comparison_notes(metrics: Mapping[str, Any]) -> list[str]:
    """What several comparisons do to the meaning of 95 %; empty for a single one."""
    n = len(candidates(metrics))
    if n < 2:
        return []
    chance = number_text(min(2.5 * n, 100.0), 1 if n % 2 else 0)
    return [
        f"Intervals are not adjusted for the number of arms compared: if none of the {n} were better than "
        f"{metrics['baseline']}, one would still look better in up to {chance}{NBSP}% of such studies."
    ]


def world_warnings(metrics: Mapping[str, Any]) -> list[str]:
    """The caution that belongs to a study of a single world."""
    if metrics.get("replay"):
        return list(metrics["replay"].get("notes") or [])
    if metrics.get("seeds") or len(metrics["arms"]) < 2:
        return []
    return [
        f"This is one simulated world (seed {metrics.get('seed', '?')}). The intervals cover the noise of "
        "this evaluation only; the spread between worlds is larger. Run with `--seeds 5` to measure it."
    ]
