"""Rankers that are trained on and on for different objectives: whose level drifts, in words and a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.metrics.stability import LAST
from cascade_sim.analysis.report.figures.drift import drift_calibrator, drift_order, drift_scale
from cascade_sim.analysis.report.readings import RANKER_GROUPS, arms_of, drift_arms, group_of, learning_of
from cascade_sim.analysis.report.section import Columns, Figure, Section, TablePart, Text
from cascade_sim.analysis.report.sections.markets.learning import final
from cascade_sim.analysis.report.tables import LIFT, Cell, Row, Table, column
from cascade_sim.analysis.statistics.estimates import (
    MISSING,
    NBSP,
    Estimate,
    estimate,
    finite,
    lift_of,
    number_text,
    scaled,
)
from cascade_sim.analysis.statistics.levels import RETURNING

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
    "deployment shows. “Moved” is the mean of the last ten deployments less that of the first ten. All that "
    "follows rests on the {judged} deployments past the transient, for which the first {left_out} are left "
    "out, but for the paper's mark. The slope is that of a line by generalised least squares with "
    "correlated errors; it sees a steady rise. Persistence is the part of a departure that is left at the "
    "next deployment; a random walk has 1, and no slope. A ranker is drifting if a level that returns "
    "(persistence of {returning} or less, no slope) is rejected at 5 %, by the slope or by the persistence; "
    "it is stationary if that is not rejected and a random walk is, by the unit-root test of Dickey and "
    "Fuller (about −2.9 or lower); else the test is inconclusive: too few deployments. The paper's mark: "
    "stable if over the last {last} deployments the ends of a fitted line differ by at most the points' "
    "mean distance from it; it takes neighbouring deployments for independent, and calls noise that lasts "
    "unstable. “Off by” is the factor by which the mean prediction typically misses the mean true CTR, on "
    "all ads or on those that the ranker shows. AUC, against the true CTR, is per request and averaged over "
    "requests, or of all requests pooled; on pages: those that {baseline} shows before the market starts, "
    "the same for all, of five or so ads that were chosen for their scores; on candidates: the pre-ranking "
    "sets. LogLoss and ECE are on candidates. A ranker learns from what it shows, so none is exact on all "
    "ads. {spread}"
)
UNIT_ROOT = Measure("", "ratio", "", 1)
AUC = Measure("", "ratio", "", 4)
LOSS = Measure("", "ratio", "", 4)
PER = 100  # deployments that a slope is told for


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
        "Score drift under continual training",
        (drift_words(metrics),),
        (TablePart(drift_table(metrics), margins=True), Columns(figures), Text(_about(metrics), "small")),
        short="Drift",
    )


def drift_of(metrics: Mapping[str, Any], arm: str, measure: str) -> Estimate:
    """An entry of an arm's summary of drift."""
    return estimate((learning_of(metrics, arm).get("drift") or {}).get(measure))


def settled(metrics: Mapping[str, Any], arm: str, measure: str) -> Estimate:
    """A mean over the deployments past the transient; of the last one, where a file has no such means."""
    means = learning_of(metrics, arm).get("settled") or {}
    return estimate(means[measure]) if measure in means else final(metrics, arm, measure)


def auc_gap(metrics: Mapping[str, Any], arm: str, measure: str) -> Estimate:
    """A ranker's mean past the transient less the baseline's, on the same requests."""
    means = learning_of(metrics, arm).get("settled") or {}
    return estimate((means.get("difference") or {}).get(measure))


def drift_table(metrics: Mapping[str, Any], *, narrow: bool = False) -> Table:
    """A row per ranker: where its score began and ended, whether it drifts, its scale and its order.

    `narrow`: the columns that answer the question, for a terminal.
    """
    rankers = drift_arms(metrics)
    made = [entry for entry in _columns(metrics, list(rankers)) if entry[3] or not narrow]
    rows = [
        Row(
            arm,
            [cells[i] for _, _, cells, _ in made],
            "baseline" if arm == metrics["baseline"] else "",
            hint=how(ranker),
            tag="" if narrow else RANKER_GROUPS[group_of(ranker)],
            arm=arm,
        )
        for i, (arm, ranker) in enumerate(rankers.items())
    ]
    groups = [(group, len(list(same))) for group, same in groupby(entry[0] for entry in made)]
    title = f"Score stationarity: slope per {PER} deployments; AUC per request or pooled"
    return Table(
        title if narrow else "Score stationarity",
        "Ranker",
        [short if narrow else heading for _, heading, _, short in made],
        rows,
        [] if narrow else groups,
    )


def _columns(metrics: Mapping[str, Any], arms: Sequence[str]) -> list[tuple[str, str, list[Cell], str]]:
    """Of each column: group, heading, cells by arm, heading in a terminal or nothing."""

    def entries(measure: str, factor: float = 1.0) -> list[Estimate]:
        return [scaled(drift_of(metrics, arm, measure), factor) for arm in arms]

    def means(measure: str, shown: Measure) -> list[Cell]:
        return column(shown, [settled(metrics, arm, measure) for arm in arms])

    def against_base(cells: Sequence[Cell]) -> list[Cell]:
        base = metrics["baseline"]
        return [Cell("0") if arm == base else made for arm, made in zip(arms, cells, strict=True)]

    first = [estimate((learning_of(metrics, arm).get("mean_score") or [None])[0]) for arm in arms]
    gaps = column(AUC, [auc_gap(metrics, arm, "page_gauc") for arm in arms], signed=True)
    lifts = [lift_of(learning_of(metrics, arm).get("revenue_per_request")) for arm in arms]
    per = f"slope/{PER}"
    return [
        ("Mean score", "start", column(FACTOR, first), ""),
        ("Mean score", "end", column(FACTOR, [final(metrics, arm, "mean_score") for arm in arms]), ""),
        ("Mean score", "moved", _untoned(column(FACTOR, entries("moved"), signed=True)), ""),
        ("Mean score", per, _untoned(column(FACTOR, entries("slope", PER), signed=True)), per),
        ("Mean score", "persistence", column(FACTOR, entries("persistence")), "persistence"),
        ("Mean score", "unit root", column(UNIT_ROOT, entries("unit_root")), "unit root"),
        ("Mean score", "level", [_verdict(metrics, arm) for arm in arms], "level"),
        ("Mean score", "paper's mark", [_mark(metrics, arm) for arm in arms], "paper's mark"),
        ("pCTR / true CTR", "off by, shown", column(FACTOR, entries("shown_scale_off")), "off by, shown"),
        ("pCTR / true CTR", "off by, all ads", column(FACTOR, entries("scale_off")), ""),
        ("AUC per request", "AUC/request, pages", means("page_gauc", AUC), "AUC/req. pages"),
        ("AUC per request", "less baseline's", against_base(gaps), "less base"),
        ("AUC per request", "AUC/request, candidates", means("gauc", AUC), "AUC/req. all ads"),
        ("AUC pooled", "AUC pooled, pages", means("page_auc", AUC), ""),
        ("AUC pooled", "AUC pooled, candidates", means("auc", AUC), "AUC pooled"),
        ("Candidates", "LogLoss", means("logloss", LOSS), ""),
        ("Candidates", "ECE", means("ece", LOSS), ""),
        ("Revenue", "lift %", against_base(column(LIFT, lifts, signed=True)), ""),
    ]


def how(ranker: Mapping[str, Any]) -> str:
    """ "softmax, then platt, fitted anew each time"."""
    text = str(ranker.get("objective"))
    if ranker.get("batching"):
        text += f", batches of {'whole pages' if ranker['batching'] == 'lists' else 'single impressions'}"
    if ranker.get("logged_scores_from"):
        text += f", beside the scores of {ranker['logged_scores_from']}"
    if ranker.get("calibrator"):
        when = "fitted anew each time" if ranker.get("refit") else "fitted once"
        when = "trained with it" if ranker.get("fit") == "joint" else when
        text += f", then {ranker['calibrator']}, {when}"
    return text


def _untoned(cells: Sequence[Cell]) -> list[Cell]:
    """A change of level is neither good nor bad by its sign."""
    return [Cell(made.text, made.interval, made.margin) for made in cells]


def _verdict(metrics: Mapping[str, Any], arm: str) -> Cell:
    """Drifting, stationary or inconclusive, with its p-value; over several worlds, how many of each."""
    drifting, stationary = (drift_of(metrics, arm, name).value for name in ("drifting", "stationary"))
    worlds = n_worlds(metrics)
    if drifting is None or stationary is None:
        return Cell(MISSING)
    tone = "down" if drifting >= 0.5 else ""
    if worlds > 1:
        n_drift, n_hold = round(drifting * worlds), round(stationary * worlds)
        return Cell(f"drifting {n_drift}, stationary {n_hold} of {worlds}", tone=tone)
    if drifting:
        p = drift_of(metrics, arm, "drift_p").value
        return Cell("drifting" if p is None else f"drifting, p {number_text(p, 3)}", tone=tone)
    return Cell("stationary" if stationary else "inconclusive")


def _mark(metrics: Mapping[str, Any], arm: str) -> Cell:
    share, worlds = drift_of(metrics, arm, "paper_stable").value, n_worlds(metrics)
    if share is None:
        return Cell(MISSING)
    if worlds == 1:
        return Cell("stable" if share else "unstable")
    return Cell(f"stable in {round(share * worlds)} of {worlds}")


def n_worlds(metrics: Mapping[str, Any]) -> int:
    """How many worlds the study has."""
    return int((metrics.get("seeds") or {}).get("n") or 1)


def _counted(metrics: Mapping[str, Any], group: str, measure: str) -> str:
    """ "3 of 10" rankers of a group, times worlds, whose measure of 0 or 1 is 1; empty if none is judged."""
    worlds = n_worlds(metrics)
    shares = [drift_of(metrics, arm, measure).value for arm in arms_of(metrics, group)]
    known = [share for share in shares if share is not None]
    return f"{round(sum(known) * worlds)} of {len(known) * worlds}" if known else ""


def _counted_what(metrics: Mapping[str, Any]) -> str:
    return "rankers" if n_worlds(metrics) == 1 else f"rankers times {n_worlds(metrics)} worlds"


def level_words(metrics: Mapping[str, Any]) -> str:
    """How many rankers of each group drift; empty where none can be judged."""
    counts = {group: _counted(metrics, group, "drifting") for group in RANKER_GROUPS}
    parts = [f"{RANKER_GROUPS[group]} {count}" for group, count in counts.items() if count]
    return f"The level of scores drifts, of {_counted_what(metrics)} {', '.join(parts)}." if parts else ""


def drift_words(metrics: Mapping[str, Any]) -> str:
    """Two sentences: whose level drifts and whose scale is off, by group; and who orders best."""
    if not drift_arms(metrics):
        return ""
    said: list[str] = []
    for group, text in RANKER_GROUPS.items():
        arms = arms_of(metrics, group)
        off = [value for arm in arms if (value := drift_of(metrics, arm, "shown_scale_off").value)]
        if not arms:
            continue
        count = _counted(metrics, group, "drifting") or "(too few to judge)"
        factor = math.exp(math.fsum(map(math.log, off)) / len(off)) if off else None
        size = number_text(factor, 2)
        moved = [value for arm in arms if (value := drift_of(metrics, arm, "moved_by").value) is not None]
        way = f", score moved by {number_text(math.fsum(moved) / len(moved), 2)}" if moved else ""
        if not said:
            said.append(f"{text} {count} (predictions of what is shown: off by a factor of {size}{way})")
        else:
            said.append(f"{text} {count} ({size}{way})")
    judged, _ = _deployments(metrics)
    over = f"Level drifts over the {number_text(judged, 0)} deployments past the transient"
    text = f"{over}: of the {_counted_what(metrics)} {', '.join(said)}."
    auc = {
        arm: value
        for arm in drift_arms(metrics)
        if (value := settled(metrics, arm, "page_gauc").value) is not None
    }
    if auc:
        best, worst = max(auc, key=lambda arm: auc[arm]), min(auc, key=lambda arm: auc[arm])
        text += (
            f" Per request, on the same pages, {best} has the highest AUC ({number_text(auc[best], 3)}) and "
            f"{worst} the lowest ({number_text(auc[worst], 3)})"
        )
        base = metrics["baseline"]
        text += (
            f"; {base} has{NBSP}{number_text(auc[base], 3)}."
            if base in auc and base not in (best, worst)
            else "."
        )
    return text


def _deployments(metrics: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """How many deployments are judged, and how many are left out before them."""
    first = learning_of(metrics, next(iter(drift_arms(metrics)))).get("drift") or {}
    judged, whole = finite(first.get("judged")), finite(first.get("deployments"))
    return judged, None if judged is None or whole is None else whole - judged


def _about(metrics: Mapping[str, Any]) -> str:
    first = learning_of(metrics, next(iter(drift_arms(metrics))))
    spread = (
        f"± is half the 95{NBSP}% Student t interval between {n_worlds(metrics)} worlds."
        if n_worlds(metrics) > 1
        else f"± is the longer half of the 95{NBSP}% interval from resampling the panel's requests, where "
        "there is one; what another world would give, it does not say."
    )
    judged, left_out = _deployments(metrics)
    return ABOUT.format(
        requests=number_text(finite(first.get("requests")), 0), last=LAST, spread=spread,
        judged=number_text(judged, 0), left_out=number_text(left_out, 0), returning=RETURNING,
        baseline=metrics["baseline"],
    )  # fmt: skip
