"""Exploration: now and then a page is filled at random, and the log says how likely that was.

With probability `rate` a request shows a uniform draw of k ads of its pre-ranking set in random
order, at the CPC reserve or the init-bid, whichever is less (they did not win an auction; the ranker
was not asked, so their pCTR is NaN). The logged propensity of an ad in its slot is
exact: (1 - rate) * [the cascade puts it there] + rate / n.
"""

from dataclasses import dataclass, replace

import numpy as np

from cascade_sim import draws
from cascade_sim.auction import to_micros
from cascade_sim.cascade import Arm, Block, Decision


@dataclass(frozen=True)
class Explored:
    decision: Decision
    is_explored: np.ndarray  # [R] bool
    propensity: np.ndarray  # [R, k] float64, 1 when there is no exploration; 0 in an empty slot


def explore(
    block: Block, decision: Decision, arm: Arm, rate: float, seed: int, init_bid: np.ndarray
) -> Explored:
    """Replace the pages of explored requests. rate 0 changes nothing; rate 1 replaces every page.

    init_bid: of every ad, [A].
    """
    is_explored = draws.uniform(seed, "explore", block.requests) < rate
    n = (decision.pre_ranking_set >= 0).sum(axis=1)
    win_set, cpc = decision.win_set.copy(), decision.cpc_micros.copy()
    pctr, bid, quality = (
        a.copy() for a in (decision.ranked_pctr, decision.ranked_bid, decision.ranked_quality)
    )
    rows = np.nonzero(is_explored)[0]
    if len(rows):
        ids = decision.pre_ranking_set[rows]
        luck = draws.uniform(seed, "explored page", block.requests[rows, None], ids)
        order = np.argsort(np.where(ids >= 0, luck, 2.0), axis=1, kind="stable")[:, : arm.slots]
        page = np.take_along_axis(ids, order, 1)
        win_set[rows, : page.shape[1]] = page
        win_set[rows, page.shape[1] :] = -1
        is_shown = win_set[rows] >= 0
        bid[rows, :-1] = np.where(is_shown, init_bid[win_set[rows]], 0.0)
        pctr[rows, :-1] = quality[rows, :-1] = np.where(is_shown, np.nan, 0.0)
        cpc[rows] = to_micros(np.full(is_shown.shape, arm.reserve_cpc), bid[rows, :-1])
    chosen = (win_set == decision.win_set) & (win_set >= 0)
    propensity = (1.0 - rate) * chosen + rate / np.maximum(n, 1)[:, None]
    shown = replace(
        decision,
        ranked_set=np.concatenate([win_set, decision.ranked_set[:, -1:]], axis=1),
        ranked_pctr=pctr,
        ranked_bid=bid,
        ranked_quality=quality,
        cpc_micros=cpc,
    )
    return Explored(shown, is_explored, np.where(win_set >= 0, propensity, 0.0))
