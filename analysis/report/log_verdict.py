"""What a log alone says of the policies asked about, in a sentence.

A lift, where the log gives one; else the value with its interval, beside that of what was logged. Pages have
no lift, and that of a launch may be refused for the current values alone: what the policy earns is known
still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cascade_sim.analysis.report.readings import ESS_OF, ESTIMATOR_NAMES, is_launch, shown_estimate
from cascade_sim.analysis.statistics.estimates import (
    NBSP,
    Estimate,
    decimals_for,
    estimate,
    finite,
    interval_text,
    number_text,
    percent_text,
)


@dataclass(frozen=True)
class LogAnswer:
    """What the estimator that speaks for a question says of it; `value` and `lift` are empty where unknown.

    policy: what it changes, or its name. beside: what is known to compare it with where there is no lift.
    """

    policy: str
    estimator: str
    value: Estimate
    lift: Estimate
    decimals: int
    beside: str

    @property
    def is_refused(self) -> bool:
        """Whether neither is known."""
        return self.value.value is None and self.lift.value is None

    @property
    def has_lift(self) -> bool:
        return self.lift.value is not None

    @property
    def value_text(self) -> str:
        """0.0925 [0.0767, 0.1096], on one line."""
        return _level(self.value, self.decimals)

    @property
    def by(self) -> str:
        """The estimator, where it is not the one that usually speaks."""
        if self.estimator in ESS_OF:
            return ""
        doubt = ", its bias unknown" if self.estimator == "direct_method" else ""
        return f" ({ESTIMATOR_NAMES.get(self.estimator, self.estimator)}{doubt})"


@dataclass(frozen=True)
class LogVerdict:
    """The headline, and the targets that it tells the numbers of."""

    headline: str
    named: tuple[str, ...] = ()


def log_answers(targets: Mapping[str, Mapping[str, Any]], reward: str = "revenue") -> dict[str, LogAnswer]:
    """The answers to the targets that change something; where none does, to all of them.

    Without those that none of the estimators asked for can answer.
    """
    fit = {name: target for name, target in targets.items() if target["rewards"][reward]["estimators"]}
    asked = {name: target for name, target in fit.items() if target["changes"]} or fit
    return {name: _answer(name, target, reward) for name, target in asked.items()}


def log_verdict(answers: Mapping[str, LogAnswer], reward: str = "revenue") -> LogVerdict:
    """Of a single question its answer, of several the best that the log vouches for; empty without any."""
    if not answers:
        return LogVerdict("")
    what = f"{reward} per request"
    if len(answers) == 1:
        ((name, only),) = answers.items()
        return LogVerdict(f"From the log alone, {only.policy}: {_answer_text(only, what)}.", (name,))
    n_refused = sum(answer.is_refused for answer in answers.values())
    n_alone = sum(not answer.is_refused and not answer.has_lift for answer in answers.values())
    refused = f"{n_refused} of {len(answers)} targets without an estimate" if n_refused else ""
    if n_refused == len(answers):
        return LogVerdict(f"From the log alone, no answer: {refused}.")
    if n_refused + n_alone == len(answers):
        named = tuple(name for name, answer in answers.items() if not answer.is_refused)
        told = _values_text([answers[name] for name in named], refused)
        return LogVerdict(f"From the log alone, {what}: {told}.", named)
    alone = f"{n_alone} of {len(answers)} answered without a lift" if n_alone else ""
    rest = "".join(f"; {part}" for part in (refused, alone) if part)
    clear = [name for name, answer in answers.items() if answer.lift.is_above_zero]
    if not clear:
        return LogVerdict(f"From the log alone, no change asked about significantly raises {what}{rest}.")
    best = max(clear, key=lambda name: answers[name].lift.value or 0.0)
    top = answers[best]
    brings = f"{top.policy} has the highest lift: {percent_text(top.lift)} {what}{top.by}"
    return LogVerdict(f"From the log alone, {brings}{rest}.", (best,))


def _answer(name: str, target: Mapping[str, Any], reward: str) -> LogAnswer:
    answer = target["rewards"][reward]
    estimators = answer["estimators"]
    speaks = next(key for key in (*ESS_OF, *ESTIMATOR_NAMES, *estimators) if key in estimators)
    row: Mapping[str, Any] = estimators[speaks]
    decimals = decimals_for([estimate(answer["logged"]).value], 4)
    value, lift = Estimate(), Estimate()
    if (finite(row.get("no_estimate")) or 0.0) < 1 and row.get("verdict") != "refuse":
        value = shown_estimate(row, estimate(answer.get("truth")).value)
        # against itself a policy has a lift of zero, which says nothing
        if target["changes"] and row.get("lift_verdict") != "refuse":
            lift = estimate(row.get("lift"))
    policy = target["changes"].replace("=", " = ") or name
    known = lift if lift.value is not None else Estimate()
    return LogAnswer(policy, speaks, value, known, decimals, _beside(target, answer, row, decimals))


def _beside(
    target: Mapping[str, Any], answer: Mapping[str, Any], row: Mapping[str, Any], decimals: int
) -> str:
    """What was logged or, of a launch, the current values without the log's noise; empty where unknown."""
    if not target["changes"]:
        return ""
    label, entry = ("current", row.get("current")) if is_launch(target) else ("as logged", answer["logged"])
    start = estimate(entry)
    return "" if start.value is None else f"{label} {_level(start, decimals)}"


def _level(own: Estimate, decimals: int) -> str:
    return f"{number_text(own.value, decimals)} {interval_text(own, decimals)}".strip().replace(" ", NBSP)


def _answer_text(answer: LogAnswer, what: str) -> str:
    """The answer to a single question."""
    if answer.has_lift:
        is_clear = answer.lift.is_above_zero or answer.lift.is_below_zero
        return f"{'' if is_clear else 'no clear change, '}{percent_text(answer.lift)} {what}{answer.by}"
    text = f"{answer.value_text} {what}{answer.by}"
    if answer.is_refused:
        text = f"{what}: no estimate by {ESTIMATOR_NAMES.get(answer.estimator, answer.estimator)}"
    return f"{text}; {answer.beside}" if answer.beside else text


def _values_text(answers: Sequence[LogAnswer], refused: str) -> str:
    """Values one after another, what they are all seen against, and how many questions were refused."""
    values = ", ".join(f"{answer.value_text} under {answer.policy}{answer.by}" for answer in answers)
    against = {answer.beside for answer in answers}
    shared = against.pop() if len(against) == 1 else ""
    return "; ".join(part for part in (values, shared, refused) if part)
