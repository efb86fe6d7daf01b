"""What an answer rests on: what both sides share, what learned again; of a replayed log its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cascade_sim.cascade.scorers import Scorer, is_probability
from cascade_sim.environments.clusters import Clusters
from cascade_sim.environments.evaluators.model_quality import ModelQuality
from cascade_sim.logs.replay.imputation import ClickModel
from cascade_sim.logs.replay.observed import ObservedClicks
from cascade_sim.logs.store.answers import supported_queries
from cascade_sim.logs.store.store import LogStore

HELD_FIXED = (
    "the log: the same requests with the same candidates, bids, predictions and pages of as many slots",
    "the clicks: logged ones where the same ad is in the same slot of the same request, else the click "
    "model's, cross-fitted on the log",
    "the bids: advertisers do not react to the change",
)
REPLAYED_BUDGETS = "the logged budgets: an exhausted one is in no later auction of its day"
FELT_BUDGETS = "budgets: implicit in the logged auctions; none is exhausted earlier or later"
SAME_EXPOSURE = "which slots of a request are seen, whatever ad is there"
UNCONTROLLED = (
    "Differences between runs on a log are taken without its click model as control variate, which `whatif` "
    "uses: for the same change its lift is another number, mostly with a shorter interval."
)
NO_BUDGETS = "Budgets were not replayed: the log has none, or is told to ignore them."
QUALITY_GROUPS, QUALITY_RESAMPLES = 128, 200
ENOUGH_ALIKE = 0.99  # of the pages: below, a replay is called another system than the logged one


class Reproduced(Protocol):
    """How much of a log its rule reproduces (`logs.audit.reproduction`)."""

    def as_json(self) -> dict[str, Any]: ...


def uncontrolled(has_fresh_requests: bool) -> dict[str, list[str]]:
    """What answers from two runs on a log say of their intervals; nothing where none is replayed."""
    return {} if has_fresh_requests else {"intervals": [UNCONTROLLED]}


@dataclass(frozen=True)
class Measured:
    """What an evaluation found that a statement speaks of."""

    sums: Mapping[str, float]  # the columns of the arm as it was deployed
    clusters: Clusters | None
    budgets: dict[str, Any] | None  # as `budget_facts` has them


NOTHING_LEARNED = (
    "nothing: models serve as they were trained. What a setting brings once models have learned from its own "
    "traffic is another question: `sweep --retrain`, or `run --set` and `compare`",
)


@dataclass(frozen=True)
class Statement:
    """What answers rest on: what both sides share, what else to know, and facts as JSON holds them."""

    held_fixed: tuple[str, ...] | None = None  # None: the usual
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] | None = None
    learned_again: tuple[str, ...] = NOTHING_LEARNED  # which models differ between the sides, and why

    def budget_notes(self, current: str, others: Mapping[str, str]) -> list[str]:
        """What budgets did. `others` {arm: what to call it} beside the deployed one, `current`."""
        return [] if self.facts is None else budget_notes(self.facts, current, others)


def log_statement(
    store: LogStore,
    clicks: ObservedClicks,
    clusters: Clusters,
    measured: Measured,
    reproduced: Reproduced | None = None,
) -> Statement:
    """What an answer from a replayed log rests on."""
    about, sums = store.about, measured.sums
    replayed = sums["logged_pages"] / max(sums["requests"], 1.0)
    facts = {
        "log": about.name,
        "starts": about.starts,
        "currency": about.currency,
        "charging": about.charging,
        **({"has_exposure": True} if clicks.exposure is not None else {}),
        "level": about.level,
        "says": list(supported_queries(store, None if about.is_randomised else replayed)),
        **({} if reproduced is None else {"reproduced": reproduced.as_json()}),
        "resampled": clusters.as_json(),
        "imputation_model": model_facts(store, clicks.model),
        "replayed": {
            "page_match_rate": replayed,
            "price_match_rate": sums["logged_prices"] / sums["known_prices"]
            if sums["known_prices"]
            else None,
        },
        "budgets": measured.budgets,
    }
    return Statement(held_fixed(facts), tuple(notes(facts)), facts)


def held_fixed(facts: dict[str, Any]) -> tuple[str, ...]:
    """What is the same on both sides of an answer."""
    is_seen = facts["charging"] == "impression" and "has_exposure" in facts
    held = (*HELD_FIXED, *([SAME_EXPOSURE] if is_seen else []))
    return (*held, FELT_BUDGETS if facts["budgets"] is None else REPLAYED_BUDGETS)


def budget_notes(facts: dict[str, Any], current: str, others: Mapping[str, str]) -> list[str]:
    """What budgets did, in sentences. `others` {arm: what to call it} beside the deployed one, `current`."""
    budgets = facts["budgets"]
    if budgets is None:
        return [NO_BUDGETS]
    ran_out = budgets["exhausted"]
    told = [f"{ran_out[current]['advertisers']:,} as deployed"]
    told += [f"{ran_out[arm]['advertisers']:,} with {words}" for arm, words in others.items()]
    lines = [
        f"Budgets of {budgets['advertisers']:,} advertisers were replayed day by day ({budgets['zone']}). Of "
        f"them ran out: {', '.join(told)}. Intervals are for these days: pages are held as they came out."
    ]
    if budgets["left_out_shown"]:
        lines.append(
            f"Warning: {budgets['left_out_shown']:,} ads that the log shows are of advertisers whose budget "
            "was spent by then. Are the budgets in another unit or of other days, or is the log a sample of "
            "the traffic? `world.replay.budgets: ignore` leaves them out."
        )
    elif ran_out[current]["advertisers"] and not budgets["left_out"]:
        lines.append(
            "Ads of advertisers that had run out are no candidates in the log, so they are missing where "
            "another setting would have left them money."
        )
    return lines


def notes(facts: dict[str, Any]) -> list[str]:
    """What a reader of an answer from a log must know, in sentences."""
    resampled, replayed, model = facts["resampled"], facts["replayed"], facts["imputation_model"]
    lines = [f"Intervals resample {resampled['by']}s ({resampled['units']:,} of them): {resampled['why']}."]
    if "reproduced" in facts:
        words = facts["reproduced"]["words"]
        lines.insert(0, f"{words[:1].upper()}{words[1:]}.")
    if facts["level"] == "bids":
        lines.append(
            "Ads that pre-ranking left out are not in the log: the answer is for the logged auctions."
        )
    pages, prices = replayed["page_match_rate"], replayed["price_match_rate"]
    said = f"Replayed as deployed, {100 * pages:.2f} % of the pages are the logged ones"
    said += "." if prices is None else f", and {100 * prices:.2f} % of the prices on them."
    if pages < ENOUGH_ALIKE:
        said += (
            " Its rule is not the one that was in force, so differences are those of another system than the "
            "logged one: `audit-logs` says where they part."
        )
    lines.append(said)
    if model is None:
        lines.append("The log has too few clicks for a click model, so measures of clicks are left out.")
        return lines
    lines.append(
        f"Clicks that were not observed come from a click model of {model['impressions']:,} impressions with "
        f"{model['clicks']:,} clicks, cross-fitted by {model['folds_by']}; its uncertainty is in the "
        "intervals. For logged ones it is a control variate of lifts."
    )
    off = model["calibration"]["off"]
    if off:
        shown = ", ".join(off[:5]) + (f" and {len(off) - 5} more" if len(off) > 5 else "")
        lines.append(
            f"Warning: the click model is off by more than 5 % for {shown}; what it says there is not to be "
            "relied on."
        )
    return lines


def model_facts(store: LogStore, model: ClickModel | None) -> dict[str, Any] | None:
    """The click model and its calibration, as JSON holds it; None without one."""
    if model is None:
        return None
    return {
        "terms": dict(zip(model.terms.names, model.whole.tolist(), strict=True)),
        "impressions": len(model.impressions["click"]),
        "clicks": model.n_clicks,
        "folds_by": model.folds_by,
        "calibration": model.calibration(store),
    }


def model_quality(
    store: LogStore,
    model: ClickModel | None,
    scorers: Mapping[str, Scorer],
    effects: np.ndarray,
    seed: int,
) -> dict[str, dict[str, Any]]:
    """How well each logged prediction fits the logged clicks: {model: {measure: {"value", "low", "high"}}}.

    On the impressions that the click model learned from; `effects` [k]: how often slots are examined.
    """
    if model is None:
        return {}
    part = model.impressions
    seen = effects[part["slot"]]
    group = part["row"] * QUALITY_GROUPS // max(store.n_requests, 1)
    found: dict[str, dict[str, Any]] = {}
    for name, scorer in scorers.items():
        column = getattr(scorer, "column", None)
        if column is None or not is_probability(scorer) or column not in part:
            continue
        quality = ModelQuality(True, QUALITY_GROUPS)
        predicted = seen * np.asarray(part[column], np.float64)
        clicked, is_there = part["click"][:, None].astype(np.float64), np.ones((len(group), 1), bool)
        quality.add(predicted[:, None], clicked, is_there, group)
        found[name] = {
            metric: value
            for metric, value in quality.metrics(QUALITY_RESAMPLES, seed).items()
            if metric in ("auc", "logloss", "ece", "pcoc", "mean_prediction")
        }
    return found
