"""What an answer from a replayed log rests on: its evidence, what was observed, what intervals resample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cascade_sim.logged.format import what_it_says
from cascade_sim.phases.budgets import budget_facts
from cascade_sim.phases.replayed import model_facts, model_quality

if TYPE_CHECKING:
    from cascade_sim.phases.evaluate import Evaluation

HELD_FIXED = (
    "the log: the same requests with the same candidates, bids, predictions and pages of as many slots",
    "the clicks: logged ones where the same ad stands in the same slot of the same request, else the click "
    "model's, cross-fitted on the log",
    "the advertisers' bids: nobody reacts to the change",
)
REPLAYED_BUDGETS = "the logged budgets: who has spent the day's takes part in no later auction of the day"
FELT_BUDGETS = "budgets: as they were felt in the log; nobody runs dry earlier or later"
NO_BUDGETS = "Budgets were not replayed: the market has none, or is told to ignore them."
ENOUGH_ALIKE = 0.99  # of the pages: below, a replay is called another system than the logged one


def evidence(evaluation: Evaluation, today: str) -> dict[str, Any]:
    """What is known of the log behind an answer, as JSON holds it; `today` is the arm as it was deployed."""
    sim, units = evaluation.sim, evaluation.units
    assert sim.replay is not None and units is not None
    about = sim.replay.store.about
    sums = {name: float(column.sum()) for name, column in evaluation.tallies[today].columns.items()}
    return {
        "market": about.name,
        "starts": about.starts,
        "currency": about.currency,
        "charging": about.charging,
        "level": about.level,
        "says": list(what_it_says(about)),
        "resampled": units.as_json(),
        "click_model": model_facts(sim),
        "replayed": {
            "pages_as_logged": sums["logged_pages"] / max(sums["requests"], 1.0),
            "prices_as_logged": sums["logged_prices"] / sums["known_prices"]
            if sums["known_prices"]
            else None,
        },
        "budgets": budget_facts(evaluation.spending, evaluation.arms, today),
    }


def held_fixed(facts: dict[str, Any]) -> tuple[str, ...]:
    """What is the same on both sides of an answer."""
    return (*HELD_FIXED, FELT_BUDGETS if facts["budgets"] is None else REPLAYED_BUDGETS)


def budget_notes(facts: dict[str, Any], today: str, others: Mapping[str, str]) -> list[str]:
    """What budgets did, in sentences. `others` {arm: what to call it} beside the arm as deployed, `today`."""
    budgets = facts["budgets"]
    if budgets is None:
        return [NO_BUDGETS]
    ran_out = budgets["ran_out"]
    told = [f"{ran_out[today]['advertisers']:,} as deployed"]
    told += [f"{ran_out[arm]['advertisers']:,} with {words}" for arm, words in others.items()]
    lines = [
        f"Budgets of {budgets['advertisers']:,} advertisers were replayed day by day ({budgets['zone']}). Of "
        f"them ran out: {', '.join(told)}. Intervals are for these days: pages are held as they came out."
    ]
    if budgets["left_out_shown"]:
        lines.append(
            f"Warning: {budgets['left_out_shown']:,} ads that the log shows are of advertisers whose budget "
            "was spent by then. Are the budgets in another unit or of other days, or is the log a sample of "
            "the traffic? `world.logged.budgets: ignore` leaves them out."
        )
    elif ran_out[today]["advertisers"] and not budgets["left_out"]:
        lines.append(
            "Ads of advertisers that had run out are no candidates in the log, so they are missing where "
            "another setting would have left them money."
        )
    return lines


def notes(facts: dict[str, Any]) -> list[str]:
    """What a reader of an answer from a log must know, in sentences."""
    resampled, replayed, model = facts["resampled"], facts["replayed"], facts["click_model"]
    lines = [f"Intervals resample {resampled['by']}s ({resampled['units']:,} of them): {resampled['why']}."]
    if facts["level"] == "bids":
        lines.append(
            "Ads that pre-ranking left out are not in the log: the answer is for the logged auctions."
        )
    pages, prices = replayed["pages_as_logged"], replayed["prices_as_logged"]
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
        "intervals."
    )
    off = model["calibration"]["off"]
    if off:
        shown = ", ".join(off[:5]) + (f" and {len(off) - 5} more" if len(off) > 5 else "")
        lines.append(
            f"Warning: the click model is off by more than 5 % for {shown}; what it says there is not to be "
            "relied on."
        )
    return lines


def run_evidence(evaluation: Evaluation) -> dict[str, Any]:
    """The same for a study that replays a log, with the quality of the logged models on its clicks."""
    baseline = evaluation.sim.scenario.report.baseline
    facts = evidence(evaluation, baseline)
    others = {name: name for name in evaluation.sim.scenario.arms if name != baseline}
    told = [*notes(facts), *budget_notes(facts, baseline, others)]
    return {**facts, "notes": told, "models": model_quality(evaluation.sim)}
