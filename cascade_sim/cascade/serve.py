"""The way of a request through the cascade, top to bottom.

`serve` is the only code path: online serving, the shadow, the ablation, what-if replay
and `trace` all call it, with other stages or other parameters.
"""

from collections.abc import Iterator

import numpy as np

from cascade_sim.cascade.bids import BidRules, Rates
from cascade_sim.cascade.cache import of_pairs, of_sets, once
from cascade_sim.cascade.fused import is_fused, ranked_fused
from cascade_sim.cascade.fusion import Fusion, fused_quality
from cascade_sim.cascade.logged import LoggedBids
from cascade_sim.cascade.page import Page, auctioned
from cascade_sim.cascade.randomisation import reserve_of, rules_of
from cascade_sim.cascade.request import Arm, Block, Decision, Pass, Platform, Retrieve, Scores, Stage, View
from cascade_sim.cascade.retrievers.routes import at_bids
from cascade_sim.cascade.retrievers.similarity import Retriever
from cascade_sim.cascade.scorers import Scorer, is_probability
from cascade_sim.cascade.sizes import select_sizes
from cascade_sim.cascade.timeout import answered_earlier
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.kernels import is_full, select_top
from cascade_sim.world.availability import AdAvailability

__all__ = [
    "Arm",
    "Block",
    "Decision",
    "Pass",
    "Platform",
    "Retrieve",
    "Scores",
    "Stage",
    "admitted",
    "bids",
    "each_pass",
    "passes",
    "predicted",
    "retrieve",
    "retriever_of",
    "score",
    "serve",
    "shadow",
]


def serve(block: Block, arm: Arm, platform: Platform, served_by_stage: np.ndarray | None = None) -> Decision:
    """The whole cascade for a block of requests. Decides; changes nothing.

    Fewer candidates than slots leave slots empty (-1). An ad with zero bid, zero pCTR, or below a
    reserve is never shown. Equal scores go to the smaller ad id.
    `served_by_stage` [R] is the place of the last stage that each request had time for (`late`); None: all.
    A block with `parameters` has a reserve or squashing of each request (not for late answers).
    """
    if served_by_stage is not None and block.parameters is not None:
        raise ValueError("requests that run out of time are answered with the arm's own parameters")
    made = passes(block, arm, platform)
    decision = Decision(made, priced(block, made[-1], arm, platform, may_fuse=served_by_stage is None))
    return (
        decision
        if served_by_stage is None
        else answered_earlier(decision, block, arm, platform, served_by_stage)
    )


def passes(block: Block, arm: Arm, platform: Platform) -> tuple[Pass, ...]:
    """The candidates of every scoring stage; a stage that chooses nothing is not asked."""
    return tuple(each_pass(block, arm, platform))


def each_pass(block: Block, arm: Arm, platform: Platform) -> Iterator[Pass]:
    """The passes one by one: between two of them a stage scores and hands on."""
    ids, columns = retrieve(block, arm, platform), None
    for at, stage in enumerate(arm.stages, 1):
        made = Pass(ids, _view(block, ids, stage, arm, platform), columns)
        yield made
        if at < len(arm.stages):
            ids, columns = handed_on(block, made, stage)


def retrieve(block: Block, arm: Arm, platform: Platform) -> np.ndarray:
    """The candidates of the first scoring stage.  [R, n] ad ids, ascending"""
    retriever, size = retriever_of(arm, platform), arm.retrieval.size
    if is_fused(block, arm, platform):  # who alone never looks at a set by itself
        return retriever.retrieve(block, size, platform.lives)
    return _retrieved(block, retriever, size, platform.lives)


def retriever_of(arm: Arm, platform: Platform) -> Retriever:
    """Who retrieves for an arm, at the bids of the platform."""
    return at_bids(arm.retrieval.retriever, platform.bids)


@of_sets
def _retrieved(block: Block, retriever: Retriever, size: int, lives: AdAvailability | None) -> np.ndarray:
    """Candidates whose rows are rows in memory too."""
    return np.ascontiguousarray(retriever.retrieve(block, size, lives))


def handed_on(block: Block, made: Pass, stage: Stage) -> tuple[np.ndarray, np.ndarray]:
    """The ads that a stage hands on, and their places among its candidates.  [R, c], [R, c]"""
    ids, n, size = made.ids, made.ids.shape[1], stage.size
    assert size is not None, f"{stage.name} is not the last stage, and has no size"
    if stage.size_rule is not None:
        return select_sizes(ids, made.order, stage.size_rule.sizes(block.requests, made.order), size)
    if size < n:
        return _best(block, ids, made.order, size)
    places = np.arange(n, dtype=np.int32)  # nothing to choose
    return ids, np.broadcast_to(places, ids.shape) if is_full(ids) else np.where(ids >= 0, places, -1)


def priced(block: Block, made: Pass, arm: Arm, platform: Platform, may_fuse: bool = True) -> Page:
    """The auction among the candidates of the last stage."""
    page = None
    if may_fuse and is_fused(block, arm, platform):
        page = ranked_fused(block, made.ids, arm, platform)
    if page is None:
        rank = made.scores
        page = auctioned(made.ids, rank.prediction, rank.bid, rank.quality, rules_of(block, arm, platform))
    return page


def _view(block: Block, ids: np.ndarray, stage: Stage, arm: Arm, platform: Platform) -> View:
    """What a stage says of these candidates, once it is asked."""

    def order(scores: Scores) -> np.ndarray:
        return _order(block, scores.bid, scores.quality, *bars(stage, arm, reserve_of(block, arm)))

    return View(lambda: score(block, ids, stage, arm, platform), order)


def score(block: Block, ids: np.ndarray, stage: Stage, arm: Arm, platform: Platform) -> Scores:
    """Predict, bid and fuse for the candidates of one stage."""
    try:
        prediction = predicted(block, ids, stage.scorer)
    except UserError as error:
        raise UserError(f"arm {arm.name!r}, {stage.name.replace('_', '-')} stage: {error}") from error
    # A score that is only an order already stands for the whole quality: no exponents on it.
    fusion = stage.fusion if is_probability(stage.scorer) or stage.fusion.is_bid_alone else Fusion()
    if block.parameters is not None and is_probability(stage.scorer) and not fusion.is_bid_alone:
        fusion = block.parameters.squashed(fusion)
    quality = _quality(block, prediction, ids, fusion, platform.bids, stage.rates)
    return Scores(prediction, bids(block, ids, stage, arm, platform), quality)


def bids(block: Block, ids: np.ndarray, stage: Stage, arm: Arm, platform: Platform) -> np.ndarray:
    """What the candidates bid for a click in a stage, by the arm's bid rule.  [R, m]"""
    rates = stage.rates if stage.bid == "opt" else None
    try:
        return _bid(block, ids, platform.bids, stage.bid, arm.bid_rule, arm.bid_range, rates)
    except UserError as error:
        raise UserError(f"arm {arm.name!r}, bids: {error}") from error


@of_pairs(lambda scorer: getattr(scorer, "by_pair", False))
def predicted(block: Block, ids: np.ndarray, scorer: Scorer) -> np.ndarray:
    """What a scorer predicts of these candidates.  [R, m]"""
    return scorer.predict(block, ids)


@of_pairs(lambda bids, kind, rule, reach, rates: rates is None or rates.by_pair)
def _bid(
    block: Block,
    ids: np.ndarray,
    bids: BidRules | LoggedBids,
    kind: str,
    rule: str,
    reach: float,
    rates: Rates | None,
) -> np.ndarray:
    return bids.bid(kind, block, ids, rule, reach, rates)


@once
def _quality(
    block: Block,
    prediction: np.ndarray,
    ids: np.ndarray,
    fusion: Fusion,
    bids: BidRules | LoggedBids,
    rates: Rates | None,
) -> np.ndarray:
    return fused_quality(fusion, prediction, lambda: bids.pcvr(block, ids, rates))


@once
def _order(
    block: Block, bid: np.ndarray, quality: np.ndarray, reserve: float | np.ndarray | None, floor: float
) -> np.ndarray:
    return barred_last(bid, bid * quality, reserve, floor).astype(np.float32)


@once
def _best(block: Block, ids: np.ndarray, order: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    return select_top(ids, order, size)


def admitted(
    scores: Scores, stage: Stage, arm: Arm, reserve_cpc: float | np.ndarray | None = None
) -> np.ndarray:
    """A stage's score, negative for ads that this stage knows the auction will not admit.  [R, m]

    They come last, in their own order, so that they never push out an ad that can win. A stage knows
    the CPC reserve's verdict when it uses the last stage's bid, and the score floor's when it scores as
    that one does; otherwise it does not guess. `reserve_cpc`: one, or one a request [R], in place of the
    arm's.
    """
    reserve = arm.reserve_cpc if reserve_cpc is None else reserve_cpc
    return barred_last(scores.bid, scores.score, *bars(stage, arm, reserve))


def barred_last(
    bid: np.ndarray, score: np.ndarray, reserve: float | np.ndarray | None, floor: float
) -> np.ndarray:
    """The scores, negative where the bid is below the reserve or the score below the floor.  [R, m]"""
    barred = None
    if reserve is not None:
        barred = bid < np.asarray(reserve)[..., None]
    if floor:
        barred = (score < floor) if barred is None else barred | (score < floor)
    if barred is None:
        return score
    with np.errstate(divide="ignore"):
        return np.where(barred, -1.0 / score, score)


def bars(stage: Stage, arm: Arm, reserve_cpc: float | np.ndarray) -> tuple[float | np.ndarray | None, float]:
    """The reserve and the score floor as far as a stage knows their verdict; None and 0 where it does not."""
    knows_reserve = bool(np.any(reserve_cpc)) and stage.bids_like(arm.last)
    return reserve_cpc if knows_reserve else None, arm.score_floor if stage.scores_like(arm.last) else 0.0


def shadow(arm: Arm) -> Arm:
    """The arm of the online simulator: the last stage scores all that is retrieved.

    Its win set is the ideal win set.
    """
    return arm.ranking_only(f"shadow of {arm.name}")
