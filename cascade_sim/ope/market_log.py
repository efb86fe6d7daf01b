"""Off-policy answers from an imported log whose pages were drawn, with the propensities that it logged.

A target draws pages from the list that the log drew from, best first by rank score^(1/T) without
replacement (as `slates` has it), with the logged ranker's scores or a further model's. The list is the head
of the ranking order, down to the deepest ad that any page shows. What the log's own policy was need not be
known: its propensities were logged. The price of an ad is taken as it was charged, whatever ad is next to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.auction import MICROS
from cascade_sim.cascade.randomisation import reserve_of
from cascade_sim.cascade.serve import Arm, Block, score
from cascade_sim.environments.replayed import Replayed
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.foundation.limits import MAX_ESTIMATED
from cascade_sim.logs.replay.replay import Replay
from cascade_sim.logs.store.answers import Known
from cascade_sim.logs.store.format import RANKED, RETRIEVED, charged
from cascade_sim.ope.estimates import Evidence
from cascade_sim.ope.log import LoggedRequests, SlateLog, baseline_spec
from cascade_sim.ope.slates import SlateList, log_odds, log_propensities, page_values
from cascade_sim.ope.study import answer_of
from cascade_sim.ope.winners_log import require_drawn
from cascade_sim.scenario.schema import LOGGED, LOGGED_SCORE
from cascade_sim.scenario.targets import Target
from cascade_sim.study.simulation import Simulation

ESTIMATORS = ("slate_ips", "reward_interaction_ips", "cascade_dr", "direct_method")
DEEPEST = 12  # candidates of a request: beyond, sums over all sets of them take too long


def require_randomised(sim: Simulation, targets: Sequence[Target]) -> None:
    """UserError where the log cannot answer, with what would have to be logged."""
    require_drawn(Replayed.of(sim.environment).replay.store.about, targets)
    for target in targets:
        known = [name for name in sim.scorers if name == LOGGED or name.startswith(LOGGED_SCORE)]
        if target.model is not None and target.model not in known:
            raise UserError(
                f"--set ranking.model={target.model}: {unknown_name('model', target.model, known)}"
            )


def market_log(sim: Simulation, arm: Arm) -> SlateLog:
    """All requests of the log whose pages have propensities."""
    replay, slots = Replayed.of(sim.environment).replay, arm.slots
    parts: list[dict[str, Any]] = []
    deepest = slots
    n = min(sim.scenario.phases.evaluate, MAX_ESTIMATED)
    for index in range(-(-n // sim.scenario.traffic.block)):
        block = sim.arrivals.block("evaluate", index, n)
        ids = _in_ranking_order(sim, replay, block, arm)
        wanted = {"slot": -1, "propensity": np.nan, "price_micros": 0, "click": 0}
        if replay.has("exposed"):
            wanted["exposed"] = -1
        known = dict(zip(wanted, replay.several(block.requests, ids, wanted), strict=True))
        slot, propensity, price, click = (
            known[name] for name in ("slot", "propensity", "price_micros", "click")
        )
        deepest = max(deepest, int(np.flatnonzero((slot >= 0).any(axis=0)).max(initial=0)) + 1)
        scores = score(block, ids, arm.last, arm, sim.platform)
        places = np.full((len(block), slots), -1, np.int64)
        shown = {name: np.zeros((len(block), slots)) for name in ("clicks", "revenue")}
        chance = np.ones((len(block), slots))
        row, column = np.nonzero((slot >= 0) & (slot < slots))
        at = row, slot[row, column]
        places[at] = column
        chance[at] = propensity[row, column]
        shown["clicks"][at] = np.maximum(click[row, column], 0)
        paid = np.maximum(price[row, column], 0) / MICROS
        shown["revenue"][at] = paid * charged(arm.charging, known)[row, column]
        kept = np.isfinite(chance).all(axis=1) & (chance > 0).all(axis=1)
        parts.append(
            {
                "visits": [
                    values[kept] for values in (block.requests, block.users, block.context, block.times)
                ],
                "listed": [
                    values[kept]
                    for values in (
                        *(ids, scores.bid, scores.prediction.astype(np.float32)),
                        *(np.where(ids >= 0, scores.score, 0.0), np.maximum(price, 0)),
                    )
                ],
                "others": [places[kept], chance[kept], shown["revenue"][kept], shown["clicks"][kept]],
            }
        )
    joined = {
        key: [np.concatenate(values) for values in zip(*(part[key] for part in parts), strict=True)]
        for key in ("visits", "listed", "others")
    }
    places, chance, revenue, clicks = joined["others"]
    return SlateLog(
        visits=LoggedRequests(*joined["visits"]),
        listed=SlateList(*(values[:, :deepest] for values in joined["listed"])),
        places=places,
        propensity=chance,
        reward={"revenue": revenue, "clicks": clicks},
        slot_effects=np.asarray(sim.world.slot_effects[:slots], np.float64),
    )


def _in_ranking_order(sim: Simulation, replay: Replay, block: Block, arm: Arm) -> NDArray[np.int32]:
    """Ads that were ranked at no less than the reserve, and those that were shown; best first, -1 after them.

    As many columns for every block.  [R, d]
    """
    found = replay.candidates(block.requests)
    scores = score(block, found, arm.last, arm, sim.platform)
    reserve = np.reshape(np.asarray(reserve_of(block, arm), np.float64), (-1, 1))
    is_in = ~(scores.bid < reserve)
    if replay.has("stage"):
        is_in &= replay.values(block.requests, found, "stage", RETRIEVED) >= RANKED
    is_in |= replay.values(block.requests, found, "slot", -1) >= 0
    is_in &= found >= 0
    order = np.argsort(np.where(is_in, -scores.score, np.inf), axis=1, kind="stable")  # ties: by ad
    ids = np.full((len(found), max(replay.store.about.largest_request, arm.slots)), -1, np.int32)
    ids[:, : found.shape[1]] = np.take_along_axis(np.where(is_in, found, -1), order, 1)
    return ids


def market_answers(
    sim: Simulation, arm: Arm, targets: Sequence[Target], names: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """As `study.answers` has them, for targets that draw pages from the logged candidates."""
    require_randomised(sim, targets)
    log = market_log(sim, arm)
    if not len(log):
        raise UserError("no request of the log has a propensity for every ad that it shows")
    store = Replayed.of(sim.environment).replay.store
    known_rewards = Known.of(store).rewards(store.about)  # "as logged 0" is no answer where none was logged
    if not known_rewards:
        raise UserError(f"{store.about.name}: neither clicks nor prices were logged, so no reward is known")
    by_target = {}
    for target in targets:
        odds = _odds(sim, arm, log, target)
        rewards = {}
        for reward in known_rewards:
            evidence = _evidence(log, odds, reward)
            known = [name for name in ESTIMATORS if (name in PLAIN or "q_logged" in evidence.columns)]
            rewards[reward] = answer_of(evidence, [name for name in known if not names or name in names])
        by_target[target.name] = {"log": "slates", "changes": target.words, "rewards": rewards}
    return by_target


PLAIN = ("slate_ips", "reward_interaction_ips")  # need nothing but the propensities


def _evidence(log: SlateLog, odds: np.ndarray, reward: str) -> Evidence:
    columns: dict[str, Any] = {
        "reward": log.reward[reward],
        "conditional": np.exp(log_propensities(odds, log.places)) / log.propensity,
    }
    if (
        reward == "clicks" and odds.shape[1] <= DEEPEST
    ):  # what an ad that was not shown would pay is not known
        gain = log.listed.pctr.astype(np.float64)
        q_logged, v_target = page_values(odds, gain, log.slot_effects, log.places)
        columns |= {"q_logged": q_logged, "v_target": v_target, "predicted_target": v_target[:, 0]}
    return Evidence(columns, {}, None)


def _odds(sim: Simulation, arm: Arm, log: SlateLog, target: Target) -> np.ndarray:
    """The target's log odds of the candidates.  [R, d]"""
    assert target.temperature is not None
    if target.model is None:
        return log_odds(log.listed.score, target.temperature)
    spec = baseline_spec(sim.scenario)
    stage = sim.stage(spec.ranking.model_copy(update={"model": target.model}), spec)
    parts = []
    for cut, block in log.visits.blocks(sim):
        ads = log.listed.ads[cut]
        made = score(block, ads, stage, arm, sim.platform).score
        parts.append(np.where(ads >= 0, made, 0.0))
    return log_odds(np.concatenate(parts), target.temperature)
