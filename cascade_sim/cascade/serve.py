"""The way of a request through the cascade, top to bottom.

`serve` is the only code path: online serving, the shadow, the search for the culprit, what-if replay
and `trace` all call it, with other seats or other knobs.
"""

from dataclasses import replace

import numpy as np

from cascade_sim.cascade.fusion import Fusion, fused_quality
from cascade_sim.cascade.knobs import reserve_of, rules_of
from cascade_sim.cascade.late import BY_PRE_RANKING, by_pre_ranking, by_retrieval
from cascade_sim.cascade.logged import LoggedRetrieval
from cascade_sim.cascade.memo import made_once, remembered
from cascade_sim.cascade.one_pass import is_in_one_pass, ranked_in_one_pass
from cascade_sim.cascade.page import auctioned
from cascade_sim.cascade.request import Arm, Block, Decision, Platform, PreRanked, PreView, Scores, Stage
from cascade_sim.cascade.seats import is_probability
from cascade_sim.cascade.sizes import select_sizes
from cascade_sim.errors import UserError
from cascade_sim.kernels import is_full, select_top

__all__ = [
    "Arm",
    "Block",
    "Decision",
    "Platform",
    "PreRanked",
    "Scores",
    "Stage",
    "admitted",
    "bids",
    "pre_rank",
    "rank",
    "score",
    "serve",
    "shadow",
]


def serve(block: Block, arm: Arm, platform: Platform, answered_by: np.ndarray | None = None) -> Decision:
    """The whole cascade for a block of requests. Decides; changes nothing.

    Fewer candidates than slots leave slots empty (-1). An ad with zero bid, zero pCTR, or below a
    reserve is never shown. Equal scores go to the smaller ad id.
    `answered_by` [R] names the last stage that each request had time for (`late`); None: all three.
    A block with `knobs` has a reserve or squashing of each request (not for late answers).
    """
    if answered_by is not None and block.knobs is not None:
        raise ValueError("requests that run out of time are answered with the arm's own knobs")
    return rank(block, pre_rank(block, arm, platform), arm, platform, answered_by)


def pre_rank(block: Block, arm: Arm, platform: Platform) -> PreRanked:
    """Retrieval and pre-ranking: the first half of `serve`."""
    pre_ranking_set = retrieve(block, arm, platform)

    def find() -> Scores:
        return score(block, pre_ranking_set, arm.pre_ranking, arm, platform)

    def order(scores: Scores) -> np.ndarray:
        reserve, floor = bars(arm.pre_ranking, arm, reserve_of(block, arm))
        own = (reserve,) if isinstance(reserve, np.ndarray) else ()
        return made_once(
            block.memo,
            ("order", floor, None if own else reserve),
            (scores.bid, scores.quality, *own),
            lambda: admitted(scores, arm.pre_ranking, arm, reserve_of(block, arm)).astype(np.float32),
        )

    view, n, size = PreView(find, order), pre_ranking_set.shape[1], arm.pre_ranking_size
    if arm.size_rule is None and arm.pre_ranking_size == n and is_full(pre_ranking_set):
        competitive_set = pre_ranking_set  # nothing to choose
        columns = np.broadcast_to(np.arange(n, dtype=np.int32), competitive_set.shape)
    elif (
        arm.size_rule is None
        and isinstance(platform.retrieval, LoggedRetrieval)
        and arm.pre_ranking_size >= n
    ):
        competitive_set = pre_ranking_set  # of a log, where requests differ in size: all go on
        columns = np.where(competitive_set >= 0, np.arange(n, dtype=np.int32), -1)
    elif arm.size_rule is None:
        competitive_set, columns = made_once(
            block.memo,
            ("best by order", size),
            (pre_ranking_set, view.order),
            lambda: select_top(pre_ranking_set, view.order, size),
        )
    else:
        sizes = arm.size_rule.sizes(block.requests, view.order)
        competitive_set, columns = select_sizes(pre_ranking_set, view.order, sizes, arm.pre_ranking_size)
    return PreRanked(pre_ranking_set, view, competitive_set, columns)


def retrieve(block: Block, arm: Arm, platform: Platform) -> np.ndarray:
    """The pre-ranking set.  [R, n] ad ids, ascending"""

    def find() -> np.ndarray:
        found = platform.retrieved(block, arm.retrieval_size)
        # Only who ranks in one pass never looks at a set by itself: for others a row is a row.
        return found if is_in_one_pass(block, arm, platform) else np.ascontiguousarray(found)

    return (
        find()
        if block.memo is None
        else block.memo.candidates((platform.retrieval, arm.retrieval_size), find)
    )


def rank(
    block: Block, passed: PreRanked, arm: Arm, platform: Platform, answered_by: np.ndarray | None = None
) -> Decision:
    """Ranking and the auction: the second half of `serve`."""
    ids = passed.competitive_set
    # The shadow's stages are one: what it says of all candidates is said once.
    is_same = ids is passed.pre_ranking_set and arm.ranking == arm.pre_ranking
    page = None
    if answered_by is None and not is_same and is_in_one_pass(block, arm, platform):
        page = ranked_in_one_pass(block, ids, arm, platform)
    if page is None:
        rank = passed.scores if is_same else score(block, ids, arm.ranking, arm, platform)
        if answered_by is not None:
            rank = by_pre_ranking(rank, block, passed, arm, platform, answered_by == BY_PRE_RANKING)
        page = auctioned(ids, rank.prediction, rank.bid, rank.quality, rules_of(block, arm, platform))
    decision = Decision(passed.pre_ranking_set, passed.view, ids, page)
    return decision if answered_by is None else by_retrieval(decision, block, arm, platform, answered_by)


def score(block: Block, ids: np.ndarray, stage: Stage, arm: Arm, platform: Platform) -> Scores:
    """Predict, bid and fuse for the candidates of one stage."""
    try:
        by_pair = getattr(stage.scorer, "by_pair", False)
        prediction = remembered(
            block.memo, stage.scorer, ids, lambda: stage.scorer.predict(block, ids), by_pair
        )
    except UserError as error:
        seat = "pre-ranking" if stage is arm.pre_ranking else "ranking"
        raise UserError(f"arm {arm.name!r}, {seat} stage: {error}") from error
    # A score that is only an order already stands for the whole quality: no exponents on it.
    fusion = stage.fusion if is_probability(stage.scorer) or stage.fusion.is_bid_alone else Fusion()
    if block.knobs is not None and is_probability(stage.scorer) and not fusion.is_bid_alone:
        fusion = block.knobs.squashed(fusion)
    return Scores(
        prediction=prediction,
        bid=bids(block, ids, stage, arm, platform),
        quality=made_once(
            None if block.knobs is not None else block.memo,  # exponents of each request are no key
            ("quality", fusion, platform.bids, stage.rates),
            (prediction,),
            lambda: fused_quality(fusion, prediction, lambda: platform.bids.pcvr(block, ids, stage.rates)),
        ),
    )


def bids(block: Block, ids: np.ndarray, stage: Stage, arm: Arm, platform: Platform) -> np.ndarray:
    """What the candidates bid for a click in a stage, by the arm's bid rule.  [R, m]"""
    rule, reach, rates = arm.bid_rule, arm.bid_range, stage.rates if stage.bid == "opt" else None

    def compute() -> np.ndarray:
        try:
            return platform.bids.bid(stage.bid, block, ids, rule, reach, rates)
        except UserError as error:
            raise UserError(f"arm {arm.name!r}, bids: {error}") from error

    key = (platform.bids, stage.bid, rule, reach, rates)
    return remembered(block.memo, key, ids, compute, rates is None or rates.by_pair)


def admitted(
    scores: Scores, stage: Stage, arm: Arm, reserve_cpc: float | np.ndarray | None = None
) -> np.ndarray:
    """The pre-ranking score, negative for ads that this stage knows the auction will not admit.  [R, m]

    They come last, in their own order, so that they never push out an ad that can win. A stage knows
    the CPC reserve's verdict when it uses the ranking stage's bid, and the score floor's when it is
    the ranking stage's equal; otherwise it does not guess. `reserve_cpc`: one, or one a request [R], in
    place of the arm's.
    """
    score = scores.score
    barred = None
    reserve, floor = bars(stage, arm, arm.reserve_cpc if reserve_cpc is None else reserve_cpc)
    if reserve is not None:
        barred = scores.bid < np.asarray(reserve)[..., None]
    if floor:
        barred = (score < floor) if barred is None else barred | (score < floor)
    if barred is None:
        return score
    with np.errstate(divide="ignore"):
        return np.where(barred, -1.0 / score, score)


def bars(stage: Stage, arm: Arm, reserve_cpc: float | np.ndarray) -> tuple[float | np.ndarray | None, float]:
    """The reserve and the score floor as far as a stage knows their verdict; None and 0 where it does not."""
    knows_reserve = bool(np.any(reserve_cpc)) and stage.bids_like(arm.ranking)
    return reserve_cpc if knows_reserve else None, arm.score_floor if stage == arm.ranking else 0.0


def shadow(arm: Arm) -> Arm:
    """The arm of the online simulator: the ranking stage scores the whole pre-ranking set.

    Its win set is the ideal win set.
    """
    return replace(
        arm,
        name=f"shadow of {arm.name}",
        pre_ranking=arm.ranking,
        pre_ranking_size=arm.retrieval_size,
        size_rule=None,
    )
