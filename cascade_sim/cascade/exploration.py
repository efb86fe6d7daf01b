"""Exploration: now and then a page is filled at random, and the log says how likely that was.

With probability `rate` a request shows a uniform draw of k ads of its pre-ranking set in random
order, at the CPC reserve or the bid, whichever is less: they did not win an auction, and have no
runner-up. The ranker's pCTR and bid for them are logged all the same (NaN when the ranking seat predicts
no probability). The logged propensity of an ad in its slot is exact:
(1 - rate) * [the cascade puts it there] + rate / n.
"""

from dataclasses import dataclass, replace

import numpy as np

from cascade_sim import draws
from cascade_sim.auction import to_micros
from cascade_sim.cascade.seats import is_probability
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, score


@dataclass(frozen=True)
class Explored:
    decision: Decision
    is_explored: np.ndarray  # [R] bool
    propensity: np.ndarray  # [R, k] float64, 1 when there is no exploration; 0 in an empty slot
    is_own_page: np.ndarray  # [R] bool: the page is the cascade's own, be it by exploration


def explore(
    block: Block, decision: Decision, arm: Arm, rate: float, seed: int, platform: Platform
) -> Explored:
    """Replace the pages of explored requests. rate 0 changes nothing; rate 1 replaces every page."""
    is_explored = draws.uniform(seed, "explore", block.requests) < rate
    n = (decision.pre_ranking_set >= 0).sum(axis=1)
    ranked, cpc = decision.ranked_set.copy(), decision.cpc_micros.copy()
    pctr, bid, quality = (
        a.copy() for a in (decision.ranked_pctr, decision.ranked_bid, decision.ranked_quality)
    )
    rows = np.nonzero(is_explored)[0]
    if len(rows):
        page = random_page(block.requests[rows], decision.pre_ranking_set[rows], arm.slots, seed)
        rank = score(block.take(rows), page, arm.ranking, arm, platform)
        ranked[rows] = page
        bid[rows], quality[rows] = rank.bid, np.where(page >= 0, rank.quality, 0.0)
        pctr[rows] = np.where(
            page >= 0, rank.prediction if is_probability(arm.ranking.scorer) else np.nan, 0.0
        )
        cpc[rows] = to_micros(np.full((len(rows), arm.slots), arm.reserve_cpc), bid[rows, :-1])
    win_set = ranked[:, :-1]
    chosen = (win_set == decision.win_set) & (win_set >= 0)
    propensity = (1.0 - rate) * chosen + rate / np.maximum(n, 1)[:, None]
    shown = replace(
        decision,
        ranked_set=ranked,
        ranked_pctr=pctr,
        ranked_bid=bid,
        ranked_quality=quality,
        cpc_micros=cpc,
    )
    is_own_page = (win_set == decision.win_set).all(axis=1)
    return Explored(shown, is_explored, np.where(win_set >= 0, propensity, 0.0), is_own_page)


def random_page(requests: np.ndarray, ids: np.ndarray, slots: int, seed: int) -> np.ndarray:
    """A uniform draw of ads in random order, and no runner-up.  [R, n] -> [R, slots + 1]"""
    luck = draws.uniform(seed, "explored page", requests[:, None], ids)
    order = np.argsort(np.where(ids >= 0, luck, 2.0), axis=1, kind="stable")[:, :slots]
    page = np.full((len(ids), slots + 1), -1, np.int32)
    page[:, : order.shape[1]] = np.take_along_axis(ids, order, 1)
    return page
