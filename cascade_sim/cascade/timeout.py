"""Pages of requests that ran out of time: decided by the last stage that was done.

`served_by_stage` [R] int8 says which, by its place in `arm.stage_names`: 0 is retrieval, -1 none.
"""

from dataclasses import replace

import numpy as np

from cascade_sim.cascade.page import Page, at_reserve, auctioned
from cascade_sim.cascade.randomisation import rules_of
from cascade_sim.cascade.request import Arm, Block, Decision, Pass, Platform
from cascade_sim.cascade.retrievers.routes import at_bids
from cascade_sim.cascade.retrievers.similarity import best_first
from cascade_sim.cascade.scorers import is_probability
from cascade_sim.world.availability import ascending

NOT_ANSWERED, BY_RETRIEVAL = -1, 0


def answered_earlier(
    decision: Decision, block: Block, arm: Arm, platform: Platform, served_by_stage: np.ndarray
) -> Decision:
    """The decision, with rows that had no time for all stages answered by an earlier one, or not at all."""
    for at in range(1, len(arm.stages)):
        rows = np.nonzero(served_by_stage == at)[0]
        if len(rows):
            page = _by_stage(at, rows, decision, block, arm, platform)
            reached, later = decision.passes[: at + 1], decision.passes[at + 1 :]
            passes = (*reached, *(_unreached(one, rows) for one in later))
            decision = Decision(passes, decision.page.with_rows(rows, page))
    return _by_retrieval(decision, block, arm, platform, served_by_stage)


def _unreached(one: Pass, rows: np.ndarray) -> Pass:
    """A pass without candidates in these rows."""
    ids = one.ids.copy()
    ids[rows] = -1
    return replace(one, ids=ids)


def _by_stage(
    at: int, rows: np.ndarray, decision: Decision, block: Block, arm: Arm, platform: Platform
) -> Page:
    """The auction among what stage number `at` hands on, by its own bids and qualities.

    A stage that scores without bids is given the init-bids: an auction needs some. Where its model predicts
    no probability, the pCTR is 0. Scores are those of the whole block: a net's may change in the last bit
    with the rows beside them.
    """
    stage, said, handed = arm.stages[at - 1], decision.passes[at - 1].scores, decision.passes[at]
    assert handed.columns is not None
    late, ids, column = block.take(rows), handed.ids[rows], np.maximum(handed.columns[rows], 0)

    def of(values: np.ndarray) -> np.ndarray:
        return np.where(ids >= 0, np.take_along_axis(values[rows], column, 1), 0.0)

    bid = of(said.bid)
    if stage.bid == "none":
        bid = platform.bids.bid("init", late, ids, arm.bid_rule, arm.bid_range)
    pctr = of(said.prediction)
    if not is_probability(stage.scorer):
        pctr = np.zeros_like(pctr)
    return auctioned(ids, pctr, bid, of(said.quality), rules_of(late, arm, platform))


def _by_retrieval(
    decision: Decision, block: Block, arm: Arm, platform: Platform, served_by_stage: np.ndarray
) -> Decision:
    """The decision with the rows that had no time for any scoring answered by retrieval, or not at all.

    Retrieval's page is its best ads first; its competitive set is as many of them as are auctioned
    otherwise. An ad must still bid (its init-bid is what retrieval can look up), and no less than the
    reserve. No auction took place, so a click costs the reserve, whatever the pricing rule; who settles the
    list later has to treat it as not auctioned. Its bids are the init-bids, its qualities 1, and its pCTRs,
    which were not predicted, 0. Rows without an answer are empty.
    """
    rows = np.nonzero(served_by_stage <= BY_RETRIEVAL)[0]
    if not len(rows):
        return decision
    late, is_answered = block.take(rows), (served_by_stage[rows] >= BY_RETRIEVAL)[:, None]
    depth, size = decision.ranked_set.shape[1], decision.competitive_set.shape[1]
    nearest = best_first(
        at_bids(arm.retrieval.retriever, platform.bids.init_bid), late, decision.retrieved[rows]
    )[:, :size]
    nearest = np.where(is_answered, nearest, np.int32(-1))
    bid = platform.bids.bid("init", late, nearest, arm.bid_rule, arm.bid_range)
    may_show = (nearest >= 0) & (bid > 0) & (bid >= arm.reserve_cpc)
    place = np.argsort(~may_show, axis=1, kind="stable")[:, :depth]
    ads, page_bid = np.full((len(rows), depth), -1, np.int32), np.zeros((len(rows), depth))
    ads[:, : place.shape[1]] = np.take_along_axis(np.where(may_show, nearest, np.int32(-1)), place, 1)
    page_bid[:, : place.shape[1]] = np.take_along_axis(np.where(may_show, bid, 0.0), place, 1)
    pctr, quality = np.zeros(ads.shape, np.float32), (ads >= 0).astype(np.float32)
    page = at_reserve(ads, pctr, page_bid, quality, arm.reserve_cpc)
    first, *later = decision.passes
    passes = [first, *(_unreached(one, rows) for one in later)]
    ids = passes[-1].ids.copy()
    ids[rows] = -1
    ids[rows, : nearest.shape[1]] = ascending(nearest)
    passes[-1] = replace(passes[-1], ids=ids)
    return Decision(tuple(passes), decision.page.with_rows(rows, page))
