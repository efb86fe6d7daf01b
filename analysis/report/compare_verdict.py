"""What a comparison of two runs comes to, in a sentence, and what of it needs no row of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import PAGE_MEASURES, Measure, is_reference
from cascade_sim.analysis.report.guardrails import Change, changes, guardrail_words, worse, worse_clause
from cascade_sim.analysis.report.readings import WHAT_IF_MEASURES, no_evidence
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
    """What it comes to, the first sentence as a headline: identical; or revenue per request of the arm that
    matters, and its guardrails; or not comparable. Never the largest of many changes.
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
    if headline := no_evidence(comparison):
        return [headline]
    start = []
    if apart:
        what = " and ".join(apart)
        start = [
            f"Not comparable: {what} {'differs' if len(apart) == 1 else 'differ'}, so the runs "
            "met other requests, and a difference is not the arms' alone."
        ]
    return [*start, *_revenue_words(comparison, arms), *_training_words(comparison)]


def lead_arm(comparison: Mapping[str, Any]) -> str:
    """The arm that a verdict leads with: recommended by both runs, else their baseline, else the first."""
    lead = (comparison.get("lead") or {}).get("arm")
    return str(lead if lead in comparison["arms"] else judged_arms(comparison)[0])


def lead_changes(comparison: Mapping[str, Any]) -> list[Change]:
    """The guardrails of that arm."""
    table = comparison["arms"][lead_arm(comparison)]
    shared = {name: entry for name, entry in table.items() if is_shared(entry)}
    return changes(
        lambda name: estimate((shared.get(name) or {}).get("lift")),
        lambda name: estimate((shared.get(name) or {}).get("before")),
    )


def revenue_change(comparison: Mapping[str, Any], arm: str) -> tuple[str, Estimate]:
    """The measure of revenue per request that both runs have of an arm, and its lift; empty without one."""
    for name in (REVENUE, "revenue_per_request"):
        entry = comparison["arms"][arm].get(name)
        if entry and is_shared(entry) and estimate(entry["lift"]).value is not None:
            return name, estimate(entry["lift"])
    return "", Estimate()


def _revenue_words(comparison: Mapping[str, Any], arms: Sequence[str]) -> list[str]:
    """Revenue per request of the arm that matters with what gets worse, then how many other arms changed."""
    arm = lead_arm(comparison)
    name, lift = revenue_change(comparison, arm)
    if not name:
        return [f"Arm {arm} has no revenue per request in both runs: see the table."]
    found = lead_changes(comparison)
    costs = worse_clause(found)
    if is_identical(comparison["arms"][arm]) or lift.value == 0.0:
        said = [f"Revenue per request of {arm} is the same{costs}."]
    elif _is_significant(lift):
        said = [f"Revenue per request of {arm}: {percent_text(lift)}{costs}."]
    else:
        said = [f"Revenue per request of {arm}: no significant change, {percent_text(lift)}{costs}."]
    why = (comparison.get("lead") or {}).get("why")
    rows = [f"{arm} is {'the arm ' * (why != 'baseline of both runs')}{why}"] if why and len(arms) > 1 else []
    others = {other: revenue_change(comparison, other)[1] for other in arms if other != arm}
    known = [lift for lift in others.values() if lift.value is not None]
    if known:
        n = sum(_is_significant(lift) for lift in known)
        of = f"{n} of {len(known)} other {'arms' if len(known) > 1 else 'arm'}"
        rows.append(f"{of} changed significantly")
    if rows:
        text = "; ".join(rows)
        said.append(f"{text[0].upper() if not why else text[0]}{text[1:]} (5 %, unadjusted).")
    if worse(found):
        said.append(guardrail_words(found, f"{arm} in {comparison['other']}"))
    return said


def _training_words(comparison: Mapping[str, Any]) -> list[str]:
    """Whether models were trained again between the runs; empty where it is not known."""
    trained = comparison.get("trained_again")
    if trained is None:
        return []
    again = [name for name, differs in trained.items() if differs]
    if not trained:
        return ["No trained model is in both runs."]
    if not again:
        return [f"Models have the same weights in both runs ({listed(list(trained))})."]
    of = "all" if len(again) == len(trained) else f"{len(again)} of {len(trained)}"
    which = f" ({listed(again)})" if len(again) <= MAX_MODELS else ""
    return [
        f"Models were trained again: {of}{which} have other weights, so differences include what they "
        "learned anew."
    ]


MAX_MODELS = 6  # named in a sentence


def _is_significant(lift: Estimate) -> bool:
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
