"""Pages of requests that ran out of time: decided by the last stage that was done.

`answered_by` [R] int8 says which: ranking (2), pre-ranking (1), retrieval (0), or none (-1).
"""

from dataclasses import replace

import numpy as np

from cascade_sim.cascade.page import at_reserve
from cascade_sim.cascade.request import Arm, Block, Decision, Platform, PreRanked, Scores
from cascade_sim.cascade.seats import is_probability
from cascade_sim.world.lives import ascending

NOT_ANSWERED, BY_RETRIEVAL, BY_PRE_RANKING, BY_RANKING = -1, 0, 1, 2


def by_pre_ranking(
    rank: Scores, block: Block, passed: PreRanked, arm: Arm, platform: Platform, is_late: np.ndarray
) -> Scores:
    """The auction's view of the competitive set: in late rows, pre-ranking's own bids and qualities.

    The same auction then orders and prices them. A pre-ranking stage that scores without bids is given the
    init-bids: an auction needs some. Where its model predicts no probability, the pCTR is 0.
    """
    if not is_late.any():
        return rank
    ids, column = passed.competitive_set, np.maximum(passed.columns, 0)

    def merged(own: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        return np.where(is_late[:, None], np.where(ids >= 0, earlier, 0.0), own)

    pre = passed.scores
    bid = np.take_along_axis(pre.bid, column, 1)
    if arm.pre_ranking.bid == "none":
        bid = platform.bids.bid("init", block, ids, arm.bid_rule, arm.bid_range)
    pctr = np.take_along_axis(pre.prediction, column, 1)
    if not is_probability(arm.pre_ranking.scorer):
        pctr = np.zeros_like(pctr)
    return replace(
        rank,
        prediction=merged(rank.prediction, pctr),
        bid=merged(rank.bid, bid),
        quality=merged(rank.quality, np.take_along_axis(pre.quality, column, 1)),
    )


def by_retrieval(
    decision: Decision, block: Block, arm: Arm, platform: Platform, answered_by: np.ndarray
) -> Decision:
    """The decision with the rows that had no time for pre-ranking answered by retrieval, or not at all.

    Retrieval's page is the nearest ads first; its competitive set is the nearest `pre_ranking_size`. An ad
    must still bid (its init-bid is what retrieval can look up), and no less than the reserve. No auction
    took place, so a click costs the reserve, whatever the pricing rule; whoever settles the list later has
    to treat it as not auctioned. Its bids are the init-bids, its qualities 1, and its pCTRs, which nobody
    predicted, 0. Rows without an answer are empty.
    """
    rows = np.nonzero(answered_by < BY_PRE_RANKING)[0]
    if not len(rows):
        return decision
    late, is_answered = block.take(rows), (answered_by[rows] >= BY_RETRIEVAL)[:, None]
    depth, size = decision.ranked_set.shape[1], decision.competitive_set.shape[1]
    nearest = platform.retrieval.nearest_first(late.users, decision.pre_ranking_set[rows])[:, :size]
    nearest = np.where(is_answered, nearest, np.int32(-1))
    bid = platform.bids.bid("init", late, nearest, arm.bid_rule, arm.bid_range)
    may_show = (nearest >= 0) & (bid > 0) & (bid >= arm.reserve_cpc)
    place = np.argsort(~may_show, axis=1, kind="stable")[:, :depth]
    ads, page_bid = np.full((len(rows), depth), -1, np.int32), np.zeros((len(rows), depth))
    ads[:, : place.shape[1]] = np.take_along_axis(np.where(may_show, nearest, np.int32(-1)), place, 1)
    page_bid[:, : place.shape[1]] = np.take_along_axis(np.where(may_show, bid, 0.0), place, 1)
    pctr, quality = np.zeros(ads.shape, np.float32), (ads >= 0).astype(np.float32)
    page = at_reserve(ads, pctr, page_bid, quality, arm.reserve_cpc)
    competitive_set = decision.competitive_set.copy()
    competitive_set[rows] = -1
    competitive_set[rows, : nearest.shape[1]] = ascending(nearest)
    return replace(decision, competitive_set=competitive_set, page=decision.page.with_rows(rows, page))
