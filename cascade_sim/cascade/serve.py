"""The way of a request through the cascade, top to bottom.

`serve` is the only code path: online serving, the shadow, the search for the culprit, what-if replay
and `trace` all call it, with other seats or other knobs.
"""

from dataclasses import dataclass, replace

import numpy as np

from cascade_sim.auction import auction, to_micros
from cascade_sim.cascade.bids import BidRules
from cascade_sim.cascade.fusion import Fusion, quality
from cascade_sim.cascade.knobs import Knobs, reserve_of
from cascade_sim.cascade.late import BY_PRE_RANKING, by_pre_ranking, by_retrieval
from cascade_sim.cascade.retrieval import Retrieval
from cascade_sim.cascade.seats import Scorer, is_probability
from cascade_sim.cascade.sizes import SizeRule, select_sizes
from cascade_sim.errors import UserError
from cascade_sim.kernels import select_top


@dataclass(frozen=True)
class Block:
    """Requests served together. Arrays of one length R."""

    requests: np.ndarray  # int64 ids
    users: np.ndarray  # int32
    context: np.ndarray  # float32
    times: np.ndarray  # float64, seconds of simulated time
    knobs: Knobs | None = None  # the auction's, request by request; None: those of the arm

    def __len__(self) -> int:
        return len(self.requests)

    def take(self, rows) -> "Block":
        """The requests of these rows (a slice, a mask or indices)."""
        knobs = None if self.knobs is None else self.knobs.take(rows)
        return Block(self.requests[rows], self.users[rows], self.context[rows], self.times[rows], knobs)


@dataclass(frozen=True)
class Stage:
    """Who sits in a stage: the model, the kind of bid it is multiplied with, and how they are fused."""

    scorer: Scorer
    bid: str  # init | opt | none
    fusion: Fusion


@dataclass(frozen=True)
class Arm:
    """What an experiment varies."""

    name: str
    retrieval_size: int
    pre_ranking: Stage
    pre_ranking_size: int
    ranking: Stage
    slots: int
    pricing: str = "gsp"
    reserve_cpc: float = 0.0
    score_floor: float = 0.0
    bid_rule: str = "ocpc"
    bid_range: float = 0.4
    size_rule: SizeRule | None = None  # chooses each request's size; pre_ranking_size is then the largest

    def with_pre_ranking(self, stage: Stage, name: str | None = None) -> "Arm":
        """The same arm with another pre-ranking seat."""
        return replace(self, pre_ranking=stage, name=name or self.name)


@dataclass(frozen=True)
class Platform:
    """What all arms share while serving: the retrieval index, the bids, the slots on the page."""

    retrieval: Retrieval
    bids: BidRules
    slot_effects: np.ndarray


@dataclass(frozen=True)
class Decision:
    """What the cascade decided for a block. Columns of sets ascend by ad id; slots are in page order."""

    pre_ranking_set: np.ndarray  # [R, n] ad ids
    pre_prediction: np.ndarray  # [R, n] of the pre-ranking model
    pre_score: np.ndarray  # [R, n] fused, float32
    competitive_set: np.ndarray  # [R, c] ad ids, -1 = empty
    ranked_set: np.ndarray  # [R, k+1] ad ids: the win set, then the runner-up
    ranked_pctr: np.ndarray  # [R, k+1] 0 where empty
    ranked_bid: np.ndarray  # [R, k+1] 0 where empty
    ranked_quality: np.ndarray  # [R, k+1]
    cpc_micros: np.ndarray  # [R, k] int64

    @property
    def win_set(self) -> np.ndarray:
        return self.ranked_set[:, :-1]


def serve(block: Block, arm: Arm, platform: Platform, answered_by: np.ndarray | None = None) -> Decision:
    """The whole cascade for a block of requests. Decides; changes nothing.

    Fewer candidates than slots leave slots empty (-1). An ad with zero bid, zero pCTR, or below a
    reserve is never shown. Equal scores go to the smaller ad id.
    `answered_by` [R] names the last stage that each request had time for (late_answers); None: all three.
    A block with `knobs` has a reserve or squashing of each request (not for late answers).
    """
    if answered_by is not None and block.knobs is not None:
        raise ValueError("requests that run out of time are answered with the arm's own knobs")
    return rank(block, pre_rank(block, arm, platform), arm, platform, answered_by)


def pre_rank(block: Block, arm: Arm, platform: Platform) -> "PreRanked":
    """Retrieval and pre-ranking: the first half of `serve`."""
    pre_ranking_set = platform.retrieval(block.users, arm.retrieval_size)
    scores = score(block, pre_ranking_set, arm.pre_ranking, arm, platform)
    pre_score = admitted(scores, arm.pre_ranking, arm, reserve_of(block, arm)).astype(np.float32)
    if arm.size_rule is None:
        competitive_set, columns = select_top(pre_ranking_set, pre_score, arm.pre_ranking_size)
    else:
        sizes = arm.size_rule.sizes(block.requests, pre_score)
        competitive_set, columns = select_sizes(pre_ranking_set, pre_score, sizes, arm.pre_ranking_size)
    return PreRanked(pre_ranking_set, scores, pre_score, competitive_set, columns)


def rank(
    block: Block, passed: "PreRanked", arm: Arm, platform: Platform, answered_by: np.ndarray | None = None
) -> Decision:
    """Ranking and the auction: the second half of `serve`."""
    competitive_set = passed.competitive_set
    rank = score(block, competitive_set, arm.ranking, arm, platform)
    if answered_by is not None:
        rank = by_pre_ranking(rank, block, passed, arm, platform, answered_by == BY_PRE_RANKING)
    result = auction(
        rank.bid,
        rank.quality,
        slots=arm.slots,
        pricing=arm.pricing,
        reserve_cpc=reserve_of(block, arm),
        score_floor=arm.score_floor,
        slot_effects=platform.slot_effects[: arm.slots],
    )
    shown = result.ranked >= 0
    column = np.maximum(result.ranked, 0)
    ranked_bid = np.where(shown, np.take_along_axis(rank.bid, column, 1), 0.0)
    decision = Decision(
        pre_ranking_set=passed.pre_ranking_set,
        pre_prediction=passed.scores.prediction,
        pre_score=passed.pre_score,
        competitive_set=competitive_set,
        ranked_set=np.where(shown, np.take_along_axis(competitive_set, column, 1), -1),
        ranked_pctr=np.where(shown, np.take_along_axis(rank.prediction, column, 1), 0.0),
        ranked_bid=ranked_bid,
        ranked_quality=np.where(shown, np.take_along_axis(rank.quality, column, 1), 0.0),
        cpc_micros=to_micros(result.cpc, ranked_bid[:, :-1]),
    )
    return decision if answered_by is None else by_retrieval(decision, block, arm, platform, answered_by)


@dataclass(frozen=True)
class Scores:
    """A stage's view of its candidates, each [R, m]; score = bid * quality."""

    prediction: np.ndarray
    bid: np.ndarray
    quality: np.ndarray

    @property
    def score(self) -> np.ndarray:
        return self.bid * self.quality


@dataclass(frozen=True)
class PreRanked:
    """What pre-ranking hands on."""

    pre_ranking_set: np.ndarray  # [R, n] ad ids
    scores: Scores  # [R, n]
    pre_score: np.ndarray  # [R, n] fused, float32
    competitive_set: np.ndarray  # [R, c] ad ids, -1 = empty
    columns: np.ndarray  # [R, c] their places in the pre-ranking set, -1 = empty

    @property
    def sizes(self) -> np.ndarray:
        """Ads handed on per request.  [R]"""
        return (self.competitive_set >= 0).sum(axis=1)


def score(block: Block, ids: np.ndarray, stage: Stage, arm: Arm, platform: Platform) -> Scores:
    """Predict, bid and fuse for the candidates of one stage."""
    try:
        prediction = stage.scorer.predict(block, ids)
    except UserError as error:
        seat = "pre-ranking" if stage is arm.pre_ranking else "ranking"
        raise UserError(f"arm {arm.name!r}, {seat} stage: {error}") from error
    # A score that is only an order already stands for the whole quality: no exponents on it.
    fusion = stage.fusion if is_probability(stage.scorer) else Fusion()
    if block.knobs is not None and is_probability(stage.scorer):
        fusion = block.knobs.squashed(fusion)
    return Scores(
        prediction=prediction,
        bid=platform.bids.bid(stage.bid, block, ids, arm.bid_rule, arm.bid_range),
        quality=quality(fusion, prediction, lambda: platform.bids.pcvr(block, ids)),
    )


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
    reserve = np.asarray(arm.reserve_cpc if reserve_cpc is None else reserve_cpc)
    if reserve.any() and stage.bid == arm.ranking.bid:
        barred = scores.bid < reserve[..., None]
    if arm.score_floor > 0 and stage == arm.ranking:
        barred = (score < arm.score_floor) if barred is None else barred | (score < arm.score_floor)
    if barred is None:
        return score
    with np.errstate(divide="ignore"):
        return np.where(barred, -1.0 / score, score)


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
