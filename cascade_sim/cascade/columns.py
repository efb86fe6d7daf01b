"""What is written down of a served block: a row per shown ad, and a row per request."""

from math import prod

import numpy as np

from cascade_sim.cascade.exploration import Explored
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.request import Block
from cascade_sim.kernels import n_filled
from cascade_sim.world.world import World


def impression_columns(
    world: World, block: Block, explored: Explored, result: Outcome
) -> dict[str, np.ndarray]:
    """One row per shown ad, in request and slot order."""
    decision = explored.decision
    win_set = decision.win_set
    row, slot = np.nonzero(win_set >= 0)
    ad = win_set[row, slot]
    return {
        **block.columns(row),
        "slot": slot.astype(np.int8),
        "ad": ad,
        "advertiser": world.advertiser[ad],
        "examination": world.slot_effects[slot].astype(np.float32),
        "init_bid": world.init_bid[ad],
        "bid": decision.ranked_bid[row, slot],
        "pctr": decision.ranked_pctr[row, slot].astype(np.float32),
        "cpc_micros": decision.cpc_micros[row, slot],
        "click": result.clicks[row, slot],
        "conversion": result.conversions[row, slot],
        "charge_micros": result.charges_micros[row, slot],
        "is_explored": explored.is_explored[row],
        "propensity": explored.propensity[row, slot],
    }


def request_columns(block: Block, explored: Explored, rate: float) -> dict[str, np.ndarray]:
    """One row per request, also of those whose page stayed empty.

    The runner-up is the ad that priced the last slot (-1: none). page_propensity is the probability of
    this very page: (1 - rate) * [it is the cascade's own] + rate * [as full as can be] * (n - k)! / n!.
    """
    decision = explored.decision
    shown = (decision.win_set >= 0).sum(axis=1)
    n = n_filled(decision.pre_ranking_set)
    slots = decision.win_set.shape[1]
    orders = prod(np.maximum(n - i, 1).astype(np.float64) for i in range(slots))
    by_chance = np.where(shown == np.minimum(n, slots), rate / orders, 0.0)
    return {
        "request": block.requests,
        "time": block.times,
        "user": block.users,
        "context": block.context,
        "n_candidates": n.astype(np.int32),
        "n_shown": shown.astype(np.int8),
        "is_explored": explored.is_explored,
        "page_propensity": (1.0 - rate) * explored.is_own_page + by_chance,
        "runner_up": decision.ranked_set[:, -1],
        "runner_up_bid": decision.ranked_bid[:, -1],
        "runner_up_pctr": decision.ranked_pctr[:, -1].astype(np.float32),
    }
