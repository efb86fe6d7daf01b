"""The shorter way through ranking and auction, where nothing between the net and the page is asked for.

A two-tower ranker says a dot product of each pair, init-bids are of ads alone, and eCPM needs no more than
the two: then a request is scored, ordered and priced at once (`auction.dot_auction`), and no caller ever sees
the scores of those who lost. `serve` decides the same, to the last bit, without it.
"""

import numpy as np

from cascade_sim.auction import dot_auction
from cascade_sim.cascade.bids import BidRules
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.page import Page
from cascade_sim.cascade.request import Arm, Block, Platform
from cascade_sim.cascade.scorers import TowersScorer
from cascade_sim.foundation.kernels import is_full, is_one_row


def is_fused(block: Block, arm: Arm, platform: Platform) -> bool:
    """Whether the last stage of these requests may go the shorter way.

    A block with a memo wants to know the scores, and one with parameters has an auction of its own each
    request.
    """
    stage = arm.last
    return (
        type(stage.scorer) is TowersScorer
        and stage.scorer.link == "sigmoid"
        and stage.fusion == Fusion()
        and (stage.bid != "opt" or arm.bid_rule == "none")
        and type(platform.bids) is BidRules
        and block.memo is None
        and block.parameters is None
    )


def ranked_fused(block: Block, ids: np.ndarray, arm: Arm, platform: Platform) -> Page | None:
    """The page of the candidates [R, n], ascending by id; None where something has to be said of them."""
    scorer, n_ads = arm.last.scorer, len(platform.bids.init_bid)
    assert isinstance(scorer, TowersScorer)
    if ids.size == 0:
        return None
    are_all = ids.shape[1] == n_ads and is_full(ids)  # so many different ads: all
    bid = np.ones(n_ads) if arm.last.bid == "none" else platform.bids.init_bid
    found = dot_auction(
        scorer.request_code(block),
        scorer.ad_code,
        scorer.tiles if are_all else None,
        np.ascontiguousarray(ids[:1] if are_all and is_one_row(ids) else ids),
        bid,
        **arm.rules(platform.slot_effects).keywords,
    )
    return None if found is None else Page(found.ads, found.pctr, found.bid, found.pctr, found.cpc_micros)
