"""Known gaps: what a world does not have of its log, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import arm_measure
from cascade_sim.analysis.report.readings import settings_text
from cascade_sim.analysis.statistics.estimates import estimate, number_text, percent_text
from cascade_sim.logs.fidelity.two_sample import telling_features

MOST = 12  # sentences of one kind
MAX_SHIFT = 0.05  # share of the traffic that would have to come at another hour
NAMES = {
    "bid": "bid", "init_bid": "init-bid", "pctr": "pCTR", "pcvr": "pCVR", "pre_score": "pre-ranking score",
    "slot": "slot", "price_micros": "price", "click": "click",
}  # fmt: skip


NOTHING = "Nothing was found that the world does not have, with as many requests as were compared."
UNSEEN = (
    "What the log does not show, such as what a request is after: no comparison finds it, and a world that "
    "was fitted to the log cannot say what better predictions would bring."
)


def known_gaps(found: Mapping[str, Any]) -> list[str]:
    """Sentences, the gravest kind first, and what no comparison can find."""
    said = [*_by_classifier(found), *_what_ifs(found), *_statistics(found), *_pairs(found)]
    said += [*_hours(found), *_columns(found)]
    return [*(said or [NOTHING]), UNSEEN]


def _by_classifier(found: Mapping[str, Any]) -> list[str]:
    said = []
    for what, name in (("requests", "requests"), ("shown", "shown ads")):
        test = found["two_sample"][what]
        features = telling_features(test)[:MOST]
        excess = test.get("excess_auc") or {}
        if not features or not (excess.get("low") is not None and excess["low"] > 0):
            continue
        named = ", ".join(
            f"{f['name']}{_higher(f)} ({f['permutation_importance']:.3f} of AUC)" for f in features[:5]
        )
        said.append(f"By these a classifier tells {name} of the world from those of the log: {named}.")
    return said


def _higher(feature: Mapping[str, Any]) -> str:
    """Which way it differs by itself, where it does."""
    auc = feature.get("single_feature_auc")
    if auc is None or abs(auc - 0.5) < 0.01:
        return ""
    return " (higher in the world)" if auc > 0.5 else " (lower in the world)"


def _what_ifs(found: Mapping[str, Any]) -> list[str]:
    wrong = [row for row in found["whatifs"] if not row["overlaps"]]
    return [
        f"{settings_text(row['settings'])}: the lift of “{arm_measure(row['metric']).label}” is "
        f"{percent_text(estimate(row['world']))} in the world and {percent_text(estimate(row['log']))} in "
        "the log."
        for row in wrong[:MOST]
    ]


def _statistics(found: Mapping[str, Any]) -> list[str]:
    rows = [row for row in found["statistics"] if row["differs"]]
    if not any(row["is_relative"] for row in rows):
        rows = sorted(rows, key=lambda row: -abs(row["gap"]["value"]))
    said = []
    for row in rows[:MOST]:
        values = [_value(row[side]["value"], row["unit"]) for side in ("log", "world")]
        words = row["words"][:1].upper() + row["words"][1:]
        said.append(f"{words} in the world ({row['label']}: {values[1]} for {values[0]}).")
    return said


def _value(value: float, unit: str) -> str:
    if unit == "percent":
        return f"{number_text(100 * value, 2)} %"
    if unit == "seconds":
        return f"{number_text(value, 0)} s"
    return number_text(value, 3)


def _pairs(found: Mapping[str, Any]) -> list[str]:
    rows = [row for row in found["pairs"] if row["differs"]]
    return [
        f"{_column(row['columns'][0])} and {_column(row['columns'][1])} of {_rows(row)} go together "
        f"{'more' if row['gap']['value'] > 0 else 'less'} in the world (rank correlation "
        f"{number_text(row['world']['value'], 2)} for {number_text(row['log']['value'], 2)})."
        for row in rows[:MOST]
    ]


def _column(name: str) -> str:
    return NAMES.get(name, name)


def _rows(row: Mapping[str, Any]) -> str:
    return "shown ads" if row["of"] == "shown" else "candidates"


def _hours(found: Mapping[str, Any]) -> list[str]:
    shift, days = found["hours"]["traffic_shift"], found["hours"]["days"]
    if shift <= MAX_SHIFT or days["log"] < 1:
        return []
    if days["world"] < 1:
        return [
            f"The traffic of the day: the world's requests span {days['world']:.2f} days, the log's "
            f"{days['log']:.1f}."
        ]
    return [f"The traffic of the day: {shift:.0%} of the requests would have to come at another hour."]


def _columns(found: Mapping[str, Any]) -> list[str]:
    missing = found["missing_columns"]
    if not missing:
        return []
    more = f" and {len(missing) - MOST} more" if len(missing) > MOST else ""
    return [f"Columns of the log that the world does not have: {', '.join(missing[:MOST])}{more}."]
