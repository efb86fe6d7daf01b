"""Rankers that are trained on and on for different objectives: whose level drifts, in words and a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.metrics.stability import LAST
from cascade_sim.analysis.report.figures.drift import drift_calibrator, drift_order, drift_scale
from cascade_sim.analysis.report.readings import RANKER_GROUPS, arms_of, drift_arms, group_of, learning_of
from cascade_sim.analysis.report.section import Columns, Figure, Section, TablePart, Text
from cascade_sim.analysis.report.sections.learning import final
from cascade_sim.analysis.report.tables import LIFT, Cell, Row, Table, column
from cascade_sim.analysis.statistics.estimates import (
    MISSING,
    NBSP,
    Estimate,
    estimate,
    finite,
    lift_of,
    number_text,
)

FACTOR = Measure("", "ratio", "", 2)
# How each group's figure is drawn, and what it is called aloud.
DRAWN: dict[str, tuple[Callable[[Mapping[str, Any]], Any], str]] = {
    "order": (drift_order, "Mean score, scale and AUC over time, rankers trained for order alone"),
    "calibrator": (drift_calibrator, "Mean score, scale and AUC over time, rankers with a calibrator"),
    "scale": (drift_scale, "Mean score, scale and AUC over time, rankers with a regression part"),
}
ABOUT = (
    "Every deployment is measured on the same {requests} requests, so that a curve moves with its model "
    "alone. The score is what the model gives before link and calibrator, on the ads that the first "
    "deployment shows; all else is measured on the pre-ranking sets, unless said otherwise. “Moved” is the "
    "mean of the last ten deployments less that of the first ten. Stable "
    "means that over the last {last} deployments the ends of a fitted line differ by at most the points' "
    "mean distance from it; {last} deployments are needed, for a steady level with independent noise would "
    "be called unstable once in fifty times (one whose noise lasts for some deployments, more often). “Off "
    "by” is the factor by which the mean prediction typically misses the mean true CTR over the same "
    "deployments, on all ads or on those that the ranker shows; AUC, GAUC, LogLoss and ECE are those of the "
    "last deployment, against the true CTR. A ranker learns from what it shows, so none is exact on all ads. "
    "{spread}"
)


def drift_section(metrics: Mapping[str, Any]) -> Section | None:
    """The report's section on drift; None unless rankers trained in different ways learn in the market."""
    if not drift_arms(metrics):
        return None
    there = {group: text for group, text in RANKER_GROUPS.items() if arms_of(metrics, group)}
    figures = [
        Figure(
            f"drift_{group}",
            *DRAWN[group],
            f"Rankers {text}: mean score, mean prediction relative to the mean true CTR, and AUC of every "
            "deployment on the same requests. Axes are the same in all these figures; the baseline is grey "
            "where it is of another group.",
        )
        for group, text in there.items()
    ]
    return Section(
        "drift",
        "Does a ranker's level hold while it learns?",
        (drift_words(metrics),),
        (TablePart(drift_table(metrics), margins=True), Columns(figures), Text(_about(metrics), "small")),
        short="Drift",
    )


def drift_of(metrics: Mapping[str, Any], arm: str, measure: str) -> Estimate:
    """An entry of an arm's summary of drift."""
    return estimate((learning_of(metrics, arm).get("drift") or {}).get(measure))


def drift_table(metrics: Mapping[str, Any]) -> Table:
    """A row per ranker: where its score began and ended, whether it settled, its scale and its order."""
    rankers = drift_arms(metrics)
    arms = list(rankers)
    first = [estimate((learning_of(metrics, arm).get("mean_score") or [None])[0]) for arm in arms]
    lifts = [lift_of(learning_of(metrics, arm).get("revenue_per_request")) for arm in arms]
    earned = column(LIFT, lifts, signed=True)
    columns = [
        column(FACTOR, first),
        column(FACTOR, [final(metrics, arm, "mean_score") for arm in arms]),
        *(
            [_untoned(cell) for cell in column(FACTOR, _entries(metrics, arms, name), signed=True)]
            for name in ("moved", "change")
        ),
        [_mark(metrics, arm) for arm in arms],
        column(FACTOR, [final(metrics, arm, "pcoc") for arm in arms]),
        *(column(FACTOR, _entries(metrics, arms, name)) for name in ("scale_off", "shown_scale_off")),
        *(
            column(Measure("", "ratio", "", decimals), [final(metrics, arm, name) for arm in arms])
            for name, decimals in (("auc", 3), ("gauc", 3), ("logloss", 4), ("ece", 4))
        ),
        [Cell("0") if arm == metrics["baseline"] else lift for arm, lift in zip(arms, earned, strict=True)],
    ]
    rows = [
        Row(
            arm,
            [cells[i] for cells in columns],
            "baseline" if arm == metrics["baseline"] else "",
            hint=how(ranker),
            tag=RANKER_GROUPS[group_of(ranker)],
            arm=arm,
        )
        for i, (arm, ranker) in enumerate(rankers.items())
    ]
    return Table(
        "Does the level hold?",
        "Ranker",
        [
            *("start", "end", "moved", f"line, last {LAST}", "level"),
            *("PCOC at the end", "off by, all ads", "off by, shown"),
            *("AUC", "GAUC", "LogLoss", "ECE"),
            "lift %",
        ],
        rows,
        [("Mean score", 5), ("pCTR / true CTR", 3), ("Last deployment", 4), ("Revenue", 1)],
    )


def how(ranker: Mapping[str, Any]) -> str:
    """ "softmax, then platt, fitted anew each time"."""
    text = str(ranker.get("objective"))
    if ranker.get("batching"):
        text += f", batches of {'whole pages' if ranker['batching'] == 'lists' else 'single impressions'}"
    if ranker.get("dumped_by"):
        text += f", beside the scores of {ranker['dumped_by']}"
    if ranker.get("calibrator"):
        when = "fitted anew each time" if ranker.get("refit") else "fitted once"
        when = "trained with it" if ranker.get("fit") == "joint" else when
        text += f", then {ranker['calibrator']}, {when}"
    return text


def _entries(metrics: Mapping[str, Any], arms: Sequence[str], measure: str) -> list[Estimate]:
    return [drift_of(metrics, arm, measure) for arm in arms]


def _untoned(made: Cell) -> Cell:
    """A change of level is neither good nor bad by its sign."""
    return Cell(made.text, made.interval, made.margin)


def _mark(metrics: Mapping[str, Any], arm: str) -> Cell:
    share, worlds = drift_of(metrics, arm, "stable").value, n_worlds(metrics)
    if share is None:
        return Cell(MISSING)
    tone = "down" if share < 0.5 else ""
    if worlds == 1:
        return Cell("stable" if share else "unstable", tone=tone)
    return Cell(f"stable in {round(share * worlds)} of {worlds}", tone=tone)


def n_worlds(metrics: Mapping[str, Any]) -> int:
    """How many worlds the study has."""
    return int((metrics.get("seeds") or {}).get("n") or 1)


def level_words(metrics: Mapping[str, Any]) -> str:
    """Of how many rankers of each group the level held; empty where none can be judged."""
    worlds, parts = n_worlds(metrics), []
    for group, text in RANKER_GROUPS.items():
        stable = [drift_of(metrics, arm, "stable").value for arm in arms_of(metrics, group)]
        marks = [share for share in stable if share is not None]
        if marks:
            parts.append(f"{text} {round(sum(marks) * worlds)} of {len(marks) * worlds}")
    what = "rankers" if worlds == 1 else f"rankers times {worlds} worlds"
    return f"The level of scores held, of {what} {', '.join(parts)}." if parts else ""


def drift_words(metrics: Mapping[str, Any]) -> str:
    """Two sentences: who keeps the level and the scale, by group; and who orders best at the end."""
    if not drift_arms(metrics):
        return ""
    worlds = n_worlds(metrics)
    said: list[str] = []
    for group, text in RANKER_GROUPS.items():
        arms = arms_of(metrics, group)
        marks = [share for arm in arms if (share := drift_of(metrics, arm, "stable").value) is not None]
        off = [value for arm in arms if (value := drift_of(metrics, arm, "shown_scale_off").value)]
        if not arms:
            continue
        kept = f"{round(sum(marks) * worlds)} of {len(marks) * worlds}" if marks else "(too few to judge)"
        factor = math.exp(math.fsum(map(math.log, off)) / len(off)) if off else None
        size = number_text(factor, 2)
        moved = [value for arm in arms if (value := drift_of(metrics, arm, "moved_by").value) is not None]
        way = f", score moved by {number_text(math.fsum(moved) / len(moved), 2)}" if moved else ""
        if not said:
            said.append(f"{text} {kept} (predictions of what is shown: off by a factor of {size}{way})")
        else:
            said.append(f"{text} {kept} ({size}{way})")
    what = "rankers" if worlds == 1 else f"rankers times {worlds} worlds"
    deployments = finite(
        (learning_of(metrics, next(iter(drift_arms(metrics)))).get("drift") or {}).get("deployments")
    )
    auc = {
        arm: value for arm in drift_arms(metrics) if (value := final(metrics, arm, "auc").value) is not None
    }
    over = f"Level held over the last {number_text(deployments, 0)} deployments"
    text = f"{over}: of the {what} {', '.join(said)}."
    if auc:
        best, worst = max(auc, key=lambda arm: auc[arm]), min(auc, key=lambda arm: auc[arm])
        text += (
            f" At the end {best} has the highest AUC ({number_text(auc[best], 3)}) and {worst} the lowest "
            f"({number_text(auc[worst], 3)})"
        )
        base = metrics["baseline"]
        text += (
            f"; {base} has{NBSP}{number_text(auc[base], 3)}."
            if base in auc and base not in (best, worst)
            else "."
        )
    return text


def _about(metrics: Mapping[str, Any]) -> str:
    first = learning_of(metrics, next(iter(drift_arms(metrics))))
    spread = (
        f"± is half the 95{NBSP}% Student t interval between {n_worlds(metrics)} worlds."
        if n_worlds(metrics) > 1
        else f"± is the longer half of the 95{NBSP}% interval from resampling the panel's requests, where "
        "there is one; what another world would give, it does not say."
    )
    return ABOUT.format(requests=number_text(finite(first.get("requests")), 0), last=LAST, spread=spread)
