"""What a comparison of two runs comes to, in a sentence, and what of it needs no row of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import PAGE_MEASURES, REPLAY_MEASURES, Measure, is_reference
from cascade_sim.analysis.report.readings import WHAT_IF_MEASURES
from cascade_sim.analysis.report.text_helpers import listed
from cascade_sim.analysis.statistics.estimates import Estimate, estimate, percent_text

MEASURES: dict[str, Measure] = {
    **WHAT_IF_MEASURES,
    "conversions_per_request": PAGE_MEASURES["conversions_per_request"],
}
REVENUE = "expected_revenue_per_request"


def judged_arms(comparison: Mapping[str, Any]) -> list[str]:
    """The arms that a verdict is about: reference arms only where there are no others."""
    return [arm for arm in comparison["arms"] if not is_reference(arm)] or list(comparison["arms"])


def compare_verdict(comparison: Mapping[str, Any]) -> list[str]:
    """What it comes to, the first sentence as a headline: identical; or what moved most, and whether it is
    told apart; or not comparable.
    """
    arms = judged_arms(comparison)
    if not arms:
        return ["Not comparable: the runs have no arm in common."]
    shared = f"arm {arms[0]}" if len(arms) == 1 else f"the {len(arms)} arms"
    moved = [arm for arm in arms if not is_identical(comparison["arms"][arm])]
    apart = comparison.get("apart") or []
    keys = len(comparison["scenario"])
    if not moved and not apart:
        given = f", although {keys} {'key' if keys == 1 else 'keys'} of the scenario differ" if keys else ""
        given = given.replace("1 key of the scenario differ", "1 key of the scenario differs")
        both = " that both runs have" if only_in_one(comparison, arms) else ""
        return [f"Identical: no measure of {shared}{both} differs{given}."]
    start = []
    if apart:
        what = " and ".join(apart)
        start = [
            f"Not comparable as they stand: {what} {'differs' if len(apart) == 1 else 'differ'}, so the runs "
            "met other requests, and a difference is not the arms' alone."
        ]
    return start + _moved_most(comparison, moved or arms)


def _moved_most(comparison: Mapping[str, Any], arms: Sequence[str]) -> list[str]:
    """The arm whose revenue moved most, and the measure that did where it is another one."""
    lifts = {
        (arm, name): estimate(entry["lift"])
        for arm in arms
        for name, entry in comparison["arms"][arm].items()
        if name in MEASURES
        and name not in REPLAY_MEASURES  # how like the log is no aim
        and not MEASURES[name].is_signed_or_near_zero
        and is_shared(entry)
    }
    lifts = {key: lift for key, lift in lifts.items() if lift.value is not None}
    if not lifts:
        return ["What differs has no lift: see the table."]
    revenues = {key: lift for key, lift in lifts.items() if key[1] == REVENUE}
    top = max(lifts, key=lambda key: (_is_told(lifts[key]), abs(lifts[key].value or 0.0)))
    chosen = f", the largest of {len(lifts):,} lifts" if len(lifts) > 1 else ""
    if not revenues:
        return [f"What moved most is {_what(*top)}: {_reading(lifts[top])}{chosen}."]
    lead = max(revenues, key=lambda key: abs(revenues[key].value or 0.0))
    most = " most" if len(arms) > 1 else ""
    if revenues[lead].value == 0.0:
        said = [f"{MEASURES[REVENUE].label}, did not move."]
    else:
        said = [f"{MEASURES[REVENUE].label}, moved{most} in arm {lead[0]}: {_reading(revenues[lead])}."]
    if top != lead and lifts[top].value != 0.0:
        said.append(f"What moved most of all is {_what(*top)}: {_reading(lifts[top])}{chosen}.")
    return said


def _what(arm: str, metric: str) -> str:
    return f"{MEASURES.get(metric, Measure(metric, 'number', '')).label} in arm {arm}"


def _reading(lift: Estimate) -> str:
    return f"{percent_text(lift)}, {'' if _is_told(lift) else 'not '}told apart from no change"


def _is_told(lift: Estimate) -> bool:
    return lift.is_above_zero or lift.is_below_zero


def is_identical(table: Mapping[str, Any]) -> bool:
    """Whether an arm has every measure that both runs know to the last digit as it was; where it is paired,
    request by request."""
    return all(
        entry["before"] == entry["after"]
        and (not entry["is_paired"] or not any(entry["difference"].values()))
        for entry in table.values()
        if is_shared(entry)
    )


def is_shared(entry: Mapping[str, Any]) -> bool:
    """Whether both runs have a measure."""
    return all(estimate(entry[part]).value is not None for part in ("before", "after"))


def only_in_one(comparison: Mapping[str, Any], arms: Sequence[str]) -> list[str]:
    """A line for the measures that one of the runs alone has, the same ones of several arms together."""
    lines: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for arm in arms:
        table = comparison["arms"][arm]
        for part, gone, run in (("before", "after", "first"), ("after", "before", "other")):
            alone = tuple(
                metric
                for metric, entry in table.items()
                if estimate(entry[part]).value is not None and estimate(entry[gone]).value is None
            )
            if alone:
                lines.setdefault((comparison[run], alone), []).append(arm)
    return [
        f"Only in {run}, {'arm' if len(having) == 1 else 'arms'} {listed(having)}: {', '.join(metrics)}."
        for (run, metrics), having in lines.items()
    ]


def shared_measures(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """The comparison without measures that one run alone has, for a table without half-empty rows."""
    arms = {
        arm: {metric: entry for metric, entry in table.items() if is_shared(entry)}
        for arm, table in comparison["arms"].items()
    }
    return {**comparison, "arms": arms}


def folded_keys(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """The comparison with a single row for each section of the scenario that one run alone has."""
    rows: list[dict[str, Any]] = []
    sections = [(path, run) for run, paths in comparison["sections"].items() for path in paths]
    counts = {
        path: sum(change["key"].startswith(f"{path}.") for change in comparison["scenario"])
        for path, _ in sections
    }
    for change in comparison["scenario"]:
        inside = next(
            (
                each
                for each in sections
                if change["key"] == each[0] or change["key"].startswith(f"{each[0]}.")
            ),
            None,
        )
        if inside is None:
            rows.append(change)
            continue
        path, run = inside
        said = f"{counts[path]} {'key' if counts[path] == 1 else 'keys'}"
        row = {"key": path, "old": said if run == "first" else "absent"}
        row["new"] = said if run == "other" else "absent"
        if row not in rows:
            rows.append(row)
    return {**comparison, "scenario": rows}
