"""What a page begins with: the answer to what its scenario asks (what-ifs, questions to the log, a market).

A scenario that asks nothing of its own is about its arms, and begins with which of them to ship.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cascade_sim.analysis.metrics.catalogue import reference_arms
from cascade_sim.analysis.report.comparisons import revenue_lift
from cascade_sim.analysis.report.guardrails import (
    Change,
    guardrail_table,
    guardrail_tiles,
    guardrail_words,
    level_text,
    lift_tile,
    point_changes,
    worse,
    worse_clause,
)
from cascade_sim.analysis.report.log_verdict import LogAnswer, log_answers, log_verdict
from cascade_sim.analysis.report.market_verdict import (
    is_gain,
    lift_text,
    market_changes,
    market_contrast,
    market_level,
    market_lift,
)
from cascade_sim.analysis.report.readings import (
    DESIGN_NAMES,
    WHAT_IF_REVENUE,
    bidder_kinds,
    compute_arms,
    design_effect,
    design_kinds,
    designs_of,
    drift_arms,
    has_budget,
    learning_arms,
    market_arms,
    market_baseline,
    no_evidence,
    ordered_targets,
    parameter_text,
    targets_of,
)
from cascade_sim.analysis.report.section import Heading, Part, Section, TablePart, Text, Tile, Tiles
from cascade_sim.analysis.report.sections.markets.compute import earned_most_words
from cascade_sim.analysis.report.sections.markets.designs import design_headline
from cascade_sim.analysis.report.sections.markets.drift import level_words
from cascade_sim.analysis.report.sections.markets.learning import recall_words
from cascade_sim.analysis.report.sections.whatif import best_point, budget_words
from cascade_sim.analysis.report.tables import Table
from cascade_sim.analysis.statistics.days import MIN_DAYS
from cascade_sim.analysis.statistics.estimates import (
    NBSP,
    Estimate,
    decimals_for,
    estimate,
    lift_of,
    number_text,
    percent_text,
    scaled,
)

MAX_TILES = 4
NO_INTERVALS = (
    f"The market ran too short for intervals, so small differences may be noise: give {MIN_DAYS} simulated "
    "days or more, or several worlds (`--seeds`)."
)
MAX_ROWS = 6  # arms whose guardrails are on the card
REVENUE = "revenue per request"


@dataclass(frozen=True)
class Answer:
    """A question's answer: a headline, the numbers beside it, guardrails, and what else is to be known."""

    headline: str
    tiles: Tiles = field(default_factory=lambda: Tiles(()))
    lines: Sequence[str] = ()
    guardrails: Table | None = None  # of several arms; those of one are tiles
    caution: str = ""  # what gets worse


def asked_section(metrics: Mapping[str, Any]) -> Section | None:
    """The answers of a study that asks something of its own, the first as the headline; None without any."""
    answers = asked_answers(metrics)
    if not answers:
        return None
    first, *others = answers
    parts: list[Part] = [first.tiles, TablePart(first.guardrails), Text(first.caution, "caution")]
    parts += [Text(line) for line in first.lines]
    for other in others:
        parts += [Heading(other.headline), other.tiles, TablePart(other.guardrails)]
        parts.append(Text(other.caution, "caution"))
        parts += [Text(line) for line in other.lines]
    return Section("asked", first.headline, parts=parts, kind="answer", label="Answer", short="Answer")


def asked_answers(metrics: Mapping[str, Any]) -> list[Answer]:
    """The answers of a study that asks something of its own, in the order of their kinds."""
    found = [answer for kind in asked_kinds(metrics) if (answer := QUESTIONS[kind](metrics)) is not None]
    headline = no_evidence(metrics)
    return [replace(answer, headline=headline) for answer in found] if headline else found


def asked_kinds(metrics: Mapping[str, Any]) -> list[str]:
    """What a scenario asks beyond its arms, by the names of its sections."""
    return [kind for kind in QUESTIONS if metrics.get(kind)]


def what_if_answer(metrics: Mapping[str, Any]) -> Answer | None:
    """The best of the settings asked about; of several questions the one with most settings leads."""
    answers: Mapping[str, Any] = metrics["what_if"]
    first = max(answers, key=lambda name: len(answers[name]["points"]))  # of as many, the first
    lead, best = answers[first], best_point(answers[first])
    others = [name for name in answers if best_point(answers[name])["settings"] != best["settings"]]
    tiles = [_what_if_tile(name, answers[name]) for name in others[:MAX_TILES]]
    about = f"Lift of {REVENUE}, the other questions"
    found = what_if_changes(lead)
    if not others and best["settings"] != lead["current"]["settings"]:
        about = f"Guardrails, lifts over the current setting, {parameter_text(best['settings'])}"
        tiles = guardrail_tiles(found, "current")
    caution = guardrail_words(found, parameter_text(best["settings"])) if others and worse(found) else ""
    return Answer(what_if_headline(lead), Tiles(tiles, about), [_held_against(lead)], caution=caution)


def what_if_changes(answer: Mapping[str, Any]) -> list[Change]:
    """The guardrails of the best setting against the current one; none where that is the best."""
    best = best_point(answer)
    if stays(answer):
        return []
    return point_changes(answer["current"]["metrics"], best["metrics"])


def stays(answer: Mapping[str, Any]) -> bool:
    """Whether none of several values is better than the current one."""
    best, parameter = best_point(answer), answer.get("parameter")
    if not parameter:
        return False
    lift = lift_of(best["metrics"].get(WHAT_IF_REVENUE))
    is_current = answer["current"]["settings"].get(parameter) == best["settings"][parameter]
    return is_current or (lift.value or 0.0) <= 0.0


def _held_against(answer: Mapping[str, Any]) -> str:
    """What the settings are compared with, in a sentence."""
    parameter = answer.get("parameter")
    current = (
        f" ({parameter_text({parameter: answer['current']['settings'].get(parameter)})})" if parameter else ""
    )
    held = f"on the same requests; bidders do not react, and {budget_words(answer)}"
    n = len(answer["points"])
    chosen = f" The best of {n} values: its interval is not adjusted for selection." if n > 1 else ""
    return f"Compared with the unmodified arm {answer['arm']}{current}, {held}.{chosen}"


def what_if_headline(answer: Mapping[str, Any]) -> str:
    """The best setting and what it brings: `Reserve 0.6: +9.7 % [+9.1, +10.2] revenue per request.`"""
    return no_evidence(answer) or _what_if_claim(answer)


def _what_if_claim(answer: Mapping[str, Any]) -> str:
    best, parameter = best_point(answer), answer.get("parameter")
    lift, what = lift_of(best["metrics"].get(WHAT_IF_REVENUE)), parameter_text(best["settings"])
    if parameter and stays(answer):
        now = parameter_text({parameter: answer["current"]["settings"].get(parameter)})
        return f"{now} stays best: none of the {len(answer['points'])} values has a higher {REVENUE}."
    costs = worse_clause(what_if_changes(answer))
    if lift.is_above_zero or lift.is_below_zero:
        return f"{what}: {percent_text(lift)} {REVENUE}{costs}."
    return f"{what}: no significant change in {REVENUE}, {percent_text(lift)}{costs}."


def _what_if_tile(name: str, answer: Mapping[str, Any]) -> Tile:
    best = best_point(answer)
    lift = lift_of(best["metrics"].get(WHAT_IF_REVENUE))
    return lift_tile(name, lift, parameter_text(best["settings"]))


def off_policy_answer(metrics: Mapping[str, Any]) -> Answer | None:
    """The best change that the log can vouch for, beside every other one asked about and its truth.

    Of parameters, whose lifts can be compared with each other; of pages where no other parameter was asked
    about.
    """
    part = metrics["off_policy"]
    if not part.get("targets"):
        return None
    by_log = [targets_of(part, log) for log in ("parameters", "slates")]
    changed = [targets for targets in by_log if any(target["changes"] for target in targets.values())]
    asked = next(iter(changed), ordered_targets(part))
    answers = log_answers(asked)
    verdict = log_verdict(answers)
    told = [_truth_text(asked[name]) for name in verdict.named]
    truth = f"The simulator's own answer to it: {told[0]}." if len(told) == 1 and told[0] else ""
    tiles = [_log_tile(asked[name], answer) for name, answer in answers.items() if name not in verdict.named]
    has_lifts = any(answer.has_lift for answer in answers.values())
    about = f"Lift of {REVENUE}" if has_lifts else REVENUE.capitalize()
    others = ", the other questions" if verdict.named else ""
    return Answer(verdict.headline, Tiles(tiles[:MAX_TILES], f"{about} from the log{others}"), [truth])


def _log_tile(target: Mapping[str, Any], answer: LogAnswer) -> Tile:
    label, truth = target["changes"] or answer.policy, _truth_text(target)
    if answer.has_lift:
        return lift_tile(label, answer.lift, truth)
    if answer.is_refused:
        return Tile(label, "no estimate", "", truth)
    return Tile(label, "no lift", f"value {answer.value_text}", truth)


def _truth_text(target: Mapping[str, Any]) -> str:
    """The simulator's lift; its value, where there is none."""
    own = target["rewards"]["revenue"]
    lift, value = (estimate(own.get(key)).value for key in ("true_lift", "truth"))
    if lift is not None:
        return f"truth {number_text(100 * lift, 1, signed=True)}{NBSP}%"
    return "" if value is None else f"truth {number_text(value, decimals_for([value], 4))}"


def market_answer(metrics: Mapping[str, Any]) -> Answer | None:
    """What the arms earn where budgets run out and bidders adapt."""
    base, references = market_baseline(metrics), reference_arms(metrics)
    if base is None:
        return None
    others = [arm for arm in market_arms(metrics) if arm != base and arm not in references]
    lifts = {arm: market_lift(metrics, arm) for arm in others}
    known = sorted(
        (arm for arm in others if lifts[arm].value is not None), key=lambda arm: -(lifts[arm].value or 0.0)
    )
    if not known:
        return Answer(f"In {_market_name(metrics)}: {base}, no other arm to compare it with.")
    top = known[0]
    headline = _market_headline(metrics, base, known, lifts)
    where = "With fixed bids and unlimited budgets" if has_budgets(metrics) else "In the evaluation"
    told = f"{where} the lift of {top} is {percent_text(revenue_lift(metrics, top))}."
    if designs_of(metrics):
        found = market_changes(metrics, top)
        caution = guardrail_words(found, top) if worse(found) else ""
        return Answer(design_headline(metrics), _design_tiles(metrics), [headline, told], caution=caution)
    leading = LEADING.get(market_question(metrics), lambda _: "")(metrics)
    by_arm = {arm: market_changes(metrics, arm) for arm in known}
    lines, about = [headline, told] if leading else [told], f"Lifts over {base} in the market"
    if lifts[top].low is None:
        lines.append(NO_INTERVALS)
    caution = guardrail_words(by_arm[top], top) if worse(by_arm[top]) else ""
    if len(known) == 1:
        base_level = market_level(metrics, "revenue_per_request")
        tiles = [lift_tile("Revenue per request", lifts[top], level_text(base_level, "baseline"))]
        tiles += guardrail_tiles(by_arm[top])
        return Answer(leading or headline, Tiles(tiles, f"{about}, {top}; by request"), lines)
    table = guardrail_table({arm: (lifts[arm], by_arm[arm]) for arm in known[:MAX_ROWS]}, base)
    if table is None:
        tiles = [lift_tile(arm, lifts[arm]) for arm in known[:MAX_TILES]]
        return Answer(leading or headline, Tiles(tiles, f"{about}, {REVENUE}"), lines)
    return Answer(leading or headline, Tiles(()), lines, table, caution)


def has_budgets(metrics: Mapping[str, Any]) -> bool:
    """Whether money can run out in the market."""
    return any(has_budget(kind) for kind in bidder_kinds(metrics).values())


def market_question(metrics: Mapping[str, Any]) -> str:
    """What a market is there for: designs, compute, drift or learning of its models, or else its arms."""
    if designs_of(metrics):
        return "designs"
    if compute_arms(metrics):
        return "compute"
    return "drift" if drift_arms(metrics) else "learning" if learning_arms(metrics) else "market"


# What leads the page of a market that asks more than what the arms earn.
LEADING: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "compute": earned_most_words,
    "drift": level_words,
    "learning": recall_words,
}


def _design_tiles(metrics: Mapping[str, Any]) -> Tiles:
    """What each trial says, beside its bias."""
    tiles = []
    for kind in design_kinds(metrics):
        bias = scaled(design_effect(metrics, kind, "lift_bias"), 100.0).value
        off = "" if bias is None else f"bias {number_text(bias, 1, signed=True)} pp"
        tiles.append(lift_tile(DESIGN_NAMES[kind], design_effect(metrics, kind, "lift"), off))
    return Tiles(tiles[:MAX_TILES], f"Lift of {REVENUE} by experiment design")


def _market_headline(
    metrics: Mapping[str, Any], base: str, known: Sequence[str], lifts: Mapping[str, Estimate]
) -> str:
    top = known[0]
    text = lift_text(metrics, lifts[top])
    where = _market_name(metrics)
    if is_gain(lifts[top]):
        contrasts = {arm: market_contrast(metrics, top, arm) for arm in known[1:] if is_gain(lifts[arm])}
        close = [arm for arm, gap in contrasts.items() if gap.low is not None and not gap.is_above_zero]
        tied = f", not significantly different from {' or '.join(close)}" if close and len(close) <= 2 else ""
        costs = worse_clause(market_changes(metrics, top), "its " if tied else "")
        return f"In {where} {top} earns {text}{tied}{costs}."
    if all(lift.is_below_zero for lift in lifts.values()):
        return f"In {where} {base} earns most; next is {top}, {text}."
    costs = worse_clause(market_changes(metrics, top), "its ")
    significantly = "significantly " if lifts[top].low is not None else ""
    return f"In {where} no arm earns {significantly}more: {top} has {text}{costs}."


def _market_name(metrics: Mapping[str, Any]) -> str:
    return "the market with budgets" if has_budgets(metrics) else "the market"


QUESTIONS: dict[str, Callable[[Mapping[str, Any]], Answer | None]] = {
    "what_if": what_if_answer,
    "off_policy": off_policy_answer,
    "market": market_answer,
}
