"""Models that learn from their own exposure, in words and a table: what they find, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.report.cells import Cell, Table, arm_rows, column
from cascade_sim.analysis.report.sections.market import market_arms, market_baseline
from cascade_sim.analysis.statistics.estimates import (
    NBSP,
    Estimate,
    estimate,
    finite,
    interval_text,
    lift_of,
    number_text,
    scaled,
)

POINTS = Measure("difference, points", "percent", "", 1)  # of shares: shown in hundredths without a "%"
LIFT = Measure("lift", "percent", "", 1)
MANY = 6  # arms beside the baseline that a sentence can hold
LEVELS: dict[str, Measure] = {
    "recall": Measure("Recall", "percent", "", 1),
    "win_recall": Measure("Recall", "percent", "", 1),
    "gauc": Measure("GAUC", "ratio", "", 3),
    "pcoc": Measure("PCOC, all ads", "ratio", "", 2),
    "shown_pcoc": Measure("PCOC, shown", "ratio", "", 2),
}


@dataclass(frozen=True)
class LearningSection:
    """What the report shows of models that learn in the market."""

    words: str
    about: str
    arms: Table


def learning_section(metrics: Mapping[str, Any]) -> LearningSection | None:
    """The report's section on learning; None for a study whose models stay as they are."""
    if not learning_arms(metrics):
        return None
    return LearningSection(learning_words(metrics), _about(metrics), arms_table(metrics))


def learning_of(metrics: Mapping[str, Any], arm: str) -> Mapping[str, Any]:
    """An arm's learning section; empty where it has none."""
    found = ((metrics.get("market") or {}).get("arms") or {}).get(arm) or {}
    return found.get("learning") or {}


def learning_arms(metrics: Mapping[str, Any]) -> list[str]:
    """The arms whose models learn in the market, those that explore least first."""
    arms = [arm for arm in market_arms(metrics) if learning_of(metrics, arm).get("recall")]
    return sorted(arms, key=lambda arm: (finite(learning_of(metrics, arm).get("exploration")) or 0.0, arm))


def final(metrics: Mapping[str, Any], arm: str, measure: str) -> Estimate:
    """A measure of the last deployment."""
    values = learning_of(metrics, arm).get(measure) or []
    return estimate(values[-1]) if values else Estimate()


def difference(metrics: Mapping[str, Any], arm: str, measure: str) -> Estimate:
    """The last deployment's measure less the baseline's; empty for the baseline itself."""
    return estimate((learning_of(metrics, arm).get("difference") or {}).get(measure))


def arms_table(metrics: Mapping[str, Any]) -> Table:
    """A row per arm: how much it explores, what its last models find, and what it earned."""
    arms = learning_arms(metrics)

    def levels(measure: str) -> list[Cell]:
        return column(LEVELS[measure], [final(metrics, arm, measure) for arm in arms])

    def gaps(measure: str) -> list[Cell]:
        made = column(POINTS, [difference(metrics, arm, measure) for arm in arms], signed=True)
        return [Cell("0") if arm == metrics["baseline"] else one for arm, one in zip(arms, made, strict=True)]

    explored = [Estimate(finite(learning_of(metrics, arm).get("exploration"))) for arm in arms]
    whole = [learning_of(metrics, arm).get("revenue_per_request") for arm in arms]
    last_day = [(learning_of(metrics, arm).get("revenue_by_day") or [None])[-1] for arm in arms]
    columns = [
        column(Measure("", "percent", "", 1), explored),
        *(cells for measure in ("recall", "win_recall") for cells in (levels(measure), gaps(measure))),
        *(levels(measure) for measure in ("gauc", "pcoc", "shown_pcoc")),
        column(Measure("", "money", "", digits=4), [estimate(one) for one in whole]),
        *(
            [
                Cell("0") if arm == metrics["baseline"] else made
                for arm, made in zip(
                    arms, column(LIFT, [lift_of(one) for one in entries], signed=True), strict=True
                )
            ]
            for entries in (whole, last_day)
        ),
    ]
    return Table(
        "What the last models find",
        "Arm",
        [
            "%", "Recall %", POINTS.label, "Recall %", POINTS.label,
            *(LEVELS[measure].heading for measure in ("gauc", "pcoc", "shown_pcoc")),
            "all days", "lift %", "last day, lift %",
        ],
        arm_rows(metrics, arms, columns),
        [("Explored", 1), ("Ranked", 2), ("Shown", 2), ("Ranker", 3), ("Revenue per request", 3)],
    )  # fmt: skip


def learning_words(metrics: Mapping[str, Any]) -> str:
    """Two sentences: what share of the best ads each arm's last models let through, and what it earned."""
    arms = learning_arms(metrics)
    base = market_baseline(metrics)
    if not arms or base not in arms:
        return ""
    level = number_text(_percent(final(metrics, base, "recall").value), 1)
    others = [arm for arm in arms if arm != base]
    gaps = {arm: difference(metrics, arm, "recall") for arm in others}
    lifts = {arm: lift_of(learning_of(metrics, arm).get("revenue_per_request")) for arm in others}
    told, rest = _worth_telling(gaps)
    text = (
        f"At the end, {base} lets {level}{NBSP}% of the truly most valuable ads through to ranking"
        + "".join(f"; {arm} {_gap_text(gaps[arm])}" for arm in told)
        + (f"; {rest} others about as many" if rest else "")
        + "."
    )
    if others:
        told, rest = _worth_telling(lifts)
        earned = [f"{arm} {_earned_text(lifts[arm])}" for arm in told]
        earned += [f"{rest} others not told apart from it"] if rest else []
        text += f" Revenue per request over all days, against {base}: {'; '.join(earned)}."
    return text


def _worth_telling(found: Mapping[str, Estimate]) -> tuple[list[str], int]:
    """All arms or, of more than MANY, those that clearly differ from the baseline; how many are left out."""
    clear = [arm for arm, one in found.items() if one.is_above_zero or one.is_below_zero]
    told = clear if len(found) > MANY else list(found)
    return told, len(found) - len(told)


def _gap_text(gap: Estimate) -> str:
    """ "8.9 points more [+6.8, +10.9]"."""
    points = scaled(gap, 100.0)
    if points.value is None:
        return "cannot be compared"
    interval = interval_text(points, 1, signed=True)
    size = number_text(abs(points.value), 1)
    if not (gap.is_above_zero or gap.is_below_zero):
        return f"about as many ({number_text(points.value, 1, signed=True)} points {interval})".replace(
            " )", ")"
        )
    return f"{size} points {'more' if points.value > 0 else 'fewer'} {interval}".strip()


def _earned_text(lift: Estimate) -> str:
    percent = scaled(lift, 100.0)
    interval = interval_text(percent, 1, signed=True)
    return f"{number_text(percent.value, 1, signed=True)}{NBSP}% {interval}".strip()


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _about(metrics: Mapping[str, Any]) -> str:
    """What the columns mean and what the intervals are."""
    one = learning_of(metrics, learning_arms(metrics)[0])
    requests, every = finite(one.get("requests")), finite(one.get("every"))
    seeds = metrics.get("seeds")
    spread = (
        f"Intervals are Student t intervals between {seeds.get('n')} worlds."
        if seeds
        else "Intervals resample the panel's requests, the same in every arm, as if these were independent; "
        "they hold for this world and these models, and say nothing of others. Revenue has one from five "
        "days on, paired by day."
    )
    hours = None if every is None else every / 3600
    return (
        f"Every {number_text(hours, 1).removesuffix('.0')} hours each arm trains its own models on what it "
        f"has shown, and redeploys them. Every deployment answers the same {number_text(requests, 0)} "
        "requests at the bids of the start. Recall is the share of the ads with the highest true CTR × bid "
        "of the pre-ranking set, as many as there are slots, that reach ranking or are shown. GAUC and PCOC "
        "(mean prediction over mean true CTR) are the ranker's on the pre-ranking set, or on what it shows. "
        f"{spread}"
    )
