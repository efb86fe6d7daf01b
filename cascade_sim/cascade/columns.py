"""What is written down of a served block: a row per shown ad, and a row per request."""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

import numpy as np

from cascade_sim.cascade.exploration import Explored
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.request import Block
from cascade_sim.cascade.retrievers.routes import route_column
from cascade_sim.foundation.kernels import is_full, n_filled
from cascade_sim.world.world import World

NO_ROUTES: Mapping[str, np.ndarray] = MappingProxyType({})


class _Shown:
    """Where ads are shown on pages [R, k], in request and slot order."""

    def __init__(self, win_set: np.ndarray):
        self._shape, self._places = win_set.shape, None
        if not is_full(win_set):
            self._places = np.nonzero(win_set >= 0)

    def of_slots(self, values: np.ndarray) -> np.ndarray:
        """Of values [R, k] those of the ads shown."""
        return values.reshape(-1) if self._places is None else values[self._places]

    def of_requests(self, values: np.ndarray) -> np.ndarray:
        """Values [R], each as often as its request shows an ad."""
        return np.repeat(values, self._shape[1]) if self._places is None else values[self._places[0]]

    def of_places(self, values: np.ndarray) -> np.ndarray:
        """Values [k] of the slots."""
        if self._places is None:
            return np.tile(values[: self._shape[1]], self._shape[0])
        return values[self._places[1]]


def impression_columns(
    world: World,
    block: Block,
    explored: Explored,
    result: Outcome,
    arrives: np.ndarray | None = None,
    routes: Mapping[str, np.ndarray] = NO_ROUTES,
) -> dict[str, np.ndarray]:
    """One row per shown ad, in request and slot order.

    With `arrives` [R, k], when its conversion is seen; with `routes` {name: [R, k]}, whether each brought it.
    """
    decision = explored.decision
    shown, slots = _Shown(decision.win_set), np.arange(decision.win_set.shape[1], dtype=np.int8)
    ad = shown.of_slots(decision.win_set)
    late = {} if arrives is None else {"conversion_time": shown.of_slots(arrives)}
    return {
        "request": shown.of_requests(block.requests),
        "time": shown.of_requests(block.times),
        "user": shown.of_requests(block.users),
        "context": shown.of_requests(block.context),
        "slot": shown.of_places(slots),
        "ad": ad,
        "advertiser": world.advertiser[ad],
        "examination": shown.of_places(world.slot_effects.astype(np.float32)),
        "init_bid": world.init_bid[ad],
        "bid": shown.of_slots(decision.ranked_bid[:, :-1]),
        "pctr": shown.of_slots(decision.ranked_pctr[:, :-1]).astype(np.float32),
        "cpc_micros": shown.of_slots(decision.cpc_micros),
        "click": shown.of_slots(result.clicks),
        "conversion": shown.of_slots(result.conversions),
        **late,
        "charge_micros": shown.of_slots(result.charges_micros),
        "is_explored": shown.of_requests(explored.is_explored),
        "propensity": shown.of_slots(explored.propensity),
        **{route_column(name): shown.of_slots(is_brought) for name, is_brought in routes.items()},
    }


def request_columns(block: Block, explored: Explored, rate: float) -> dict[str, np.ndarray]:
    """One row per request, also of those whose page stayed empty.

    The runner-up is the ad that priced the last slot (-1: none). page_propensity is the probability of
    this very page: (1 - rate) * [it is the cascade's own] + rate * [as full as can be] * (n - k)! / n!,
    with n ads that random pages are drawn from.
    """
    decision = explored.decision
    shown = n_filled(decision.win_set)
    n = explored.n_pool
    slots = decision.win_set.shape[1]
    orders = prod(np.maximum(n - i, 1).astype(np.float64) for i in range(slots))
    by_chance = np.where(shown == np.minimum(n, slots), rate / orders, 0.0)
    return {
        "request": block.requests,
        "time": block.times,
        "user": block.users,
        "context": block.context,
        "n_candidates": n_filled(decision.retrieved).astype(np.int32),
        "n_shown": shown.astype(np.int8),
        "is_explored": explored.is_explored,
        "page_propensity": (1.0 - rate) * explored.is_own_page + by_chance,
        "runner_up": decision.ranked_set[:, -1],
        "runner_up_bid": decision.ranked_bid[:, -1],
        "runner_up_pctr": decision.ranked_pctr[:, -1].astype(np.float32),
    }
