"""Models that learn from their own exposure, in words and a table: what they find, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.report.figures.learning import learning_recall, learning_revenue
from cascade_sim.analysis.report.readings import learning_arms, learning_of, market_baseline
from cascade_sim.analysis.report.section import Columns, Figure, Section, TablePart, Text
from cascade_sim.analysis.report.tables import LIFT, Cell, Table, arm_rows, column
from cascade_sim.analysis.report.text_helpers import percent
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
MANY = 6  # arms beside the baseline that a sentence can hold
LEVELS: dict[str, Measure] = {
    "recall": Measure("Recall", "percent", "", 1),
    "win_recall": Measure("Recall", "percent", "", 1),
    "rcs": Measure("RCS", "percent", "", 1),
    "gauc": Measure("GAUC", "ratio", "", 3),
    "pcoc": Measure("PCOC, all ads", "ratio", "", 2),
    "shown_pcoc": Measure("PCOC, shown", "ratio", "", 2),
}


def learning_section(metrics: Mapping[str, Any]) -> Section | None:
    """The report's section on learning; None for a study whose models stay as they are."""
    if not learning_arms(metrics):
        return None
    return Section(
        "learning",
        "Continual training (feedback loop)",
        (learning_words(metrics),),
        (
            TablePart(arms_table(metrics), margins=True),
            Columns(
                (
                    Figure(
                        "learning_recall",
                        learning_recall,
                        "True-value recall and ranking consistency of every deployment over time, by arm",
                        "Share of the truly most valuable ads that each deployment lets through to ranking, "
                        f"its difference to {metrics['baseline']} on the same requests, the share that is "
                        "shown, and RCS: how much of what its own ranker would show it lets through, with "
                        "95 % bands.",
                    ),
                    Figure(
                        "learning_revenue",
                        learning_revenue,
                        "Revenue per request by day, by arm",
                        "Revenue per request of each day, with 95 % intervals between worlds where there are "
                        "several: what exploration costs, and what it brings in later.",
                    ),
                )
            ),
            Text(_about(metrics), "small"),
        ),
        short="Learning",
    )


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
        return [Cell("0") if arm == metrics["baseline"] else gap for arm, gap in zip(arms, made, strict=True)]

    explored = [Estimate(finite(learning_of(metrics, arm).get("exploration"))) for arm in arms]
    whole = [learning_of(metrics, arm).get("revenue_per_request") for arm in arms]
    last_day = [(learning_of(metrics, arm).get("revenue_by_day") or [None])[-1] for arm in arms]
    has_rcs = any(final(metrics, arm, "rcs").value is not None for arm in arms)  # older runs have none
    columns = [
        column(Measure("", "percent", "", 1), explored),
        *(cells for measure in ("recall", "win_recall") for cells in (levels(measure), gaps(measure))),
        *(cells for cells in (levels("rcs"), gaps("rcs")) if has_rcs),
        *(levels(measure) for measure in ("gauc", "pcoc", "shown_pcoc")),
        column(Measure("", "money", "", digits=4), [estimate(entry) for entry in whole]),
        *(
            [
                Cell("0") if arm == metrics["baseline"] else made
                for arm, made in zip(
                    arms, column(LIFT, [lift_of(entry) for entry in entries], signed=True), strict=True
                )
            ]
            for entries in (whole, last_day)
        ),
    ]
    return Table(
        "Final deployments",
        "Arm",
        [
            "%", "Recall %", POINTS.label, "Recall %", POINTS.label, *(["RCS %", POINTS.label] * has_rcs),
            *(LEVELS[measure].heading for measure in ("gauc", "pcoc", "shown_pcoc")),
            "all days", "lift %", "last day, lift %",
        ],
        arm_rows(metrics, arms, columns),
        [
            ("Explored", 1), ("Ranked", 2), ("Shown", 2), *([("Consistency", 2)] * has_rcs), ("Ranker", 3),
            ("Revenue per request", 3),
        ],
    )  # fmt: skip


def learning_words(metrics: Mapping[str, Any]) -> str:
    """Two sentences: what share of the best ads each arm's last models let through, and what it earned."""
    arms = learning_arms(metrics)
    base = market_baseline(metrics)
    if not arms or base not in arms:
        return ""
    others = [arm for arm in arms if arm != base]
    lifts = {arm: lift_of(learning_of(metrics, arm).get("revenue_per_request")) for arm in others}
    text = recall_words(metrics)
    if others:
        told, rest = _worth_telling(lifts)
        earned = [f"{arm} {_earned_text(lifts[arm])}" for arm in told]
        earned += [f"{rest} others not significantly different from it"] if rest else []
        text += f" Revenue per request over all days, against {base}: {'; '.join(earned)}."
    return text


def recall_words(metrics: Mapping[str, Any]) -> str:
    """What share of the best ads each arm's last models let through; empty without the baseline."""
    arms, base = learning_arms(metrics), market_baseline(metrics)
    if base not in arms:
        return ""
    gaps = {arm: difference(metrics, arm, "recall") for arm in arms if arm != base}
    told, rest = _worth_telling(gaps)
    level = percent(final(metrics, base, "recall").value)
    return (
        f"At the end, {base} lets {level} of the truly most valuable ads through to ranking"
        + "".join(f"; {arm} {_gap_text(gaps[arm])}" for arm in told)
        + (f"; {rest} others about as many" if rest else "")
        + "."
    )


def _worth_telling(gaps: Mapping[str, Estimate]) -> tuple[list[str], int]:
    """All arms or, of more than MANY, those that clearly differ from the baseline; how many are left out."""
    clear = [arm for arm, gap in gaps.items() if gap.is_above_zero or gap.is_below_zero]
    told = clear if len(gaps) > MANY else list(gaps)
    return told, len(gaps) - len(told)


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


def _about(metrics: Mapping[str, Any]) -> str:
    """What the columns mean and what the intervals are."""
    first = learning_of(metrics, learning_arms(metrics)[0])
    requests, interval = finite(first.get("requests")), finite(first.get("interval"))
    seeds = metrics.get("seeds")
    spread = (
        f"Intervals are Student t intervals between {seeds.get('n')} worlds."
        if seeds
        else "Intervals resample the panel's requests, the same in every arm, as if these were independent; "
        "they hold for this world and these models, and say nothing of others. Revenue has one from five "
        "days on, paired by day."
    )
    hours = None if interval is None else interval / 3600
    return (
        f"Every {number_text(hours, 1).removesuffix('.0')} hours each arm trains its own models on what it "
        f"has shown, and redeploys them. Every deployment answers the same {number_text(requests, 0)} "
        "requests at the bids of the start. Recall is the share of the ads with the highest true CTR × bid "
        "of the pre-ranking set, as many as there are slots, that reach ranking or are shown. RCS is the "
        "share of what the deployed ranker would show, if it saw the whole pre-ranking set, that reaches "
        "ranking: agreement with the ranker, be that right or wrong. GAUC and PCOC (mean prediction over "
        "mean true CTR) are the ranker's on the pre-ranking set, or on what it shows. "
        f"{spread}"
    )
