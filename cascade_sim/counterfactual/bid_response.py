"""What an ad's own bid decides: whether it passes pre-ranking, and which place of the auction it can hold.

Everything else stays as it was, also what models see. Where a stage hands the ad on, the other ads that it
hands on do not depend on the ad's bid: they are the best c - 1 of the others. So it passes each step of
pre-ranking if and only if it beats the best ad that the step leaves out, and holds its place in the auction
if and only if it is admitted and beats the ad ranked next. Scores are computed by the operations of
`cascade.serve`, so the answers are those of serving again with the other bid, to the bit. Where a rule
chooses each request's size c by its pre-ranking scores, "everything else" includes that size: see
`with_sizes_of`.
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cascade_sim.cascade.randomisation import reserve_of
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, Scores, Stage, admitted, score
from cascade_sim.cascade.sizes import SizeRule


@dataclass(frozen=True)
class OwnStep:
    """What a step of pre-ranking says of ads that it hands on, and of the best that it leaves out; [I]."""

    stage: Stage
    prediction: NDArray[np.float64]
    quality: NDArray[np.float64]
    factor: NDArray[np.float64]  # bid of the stage per unit of init-bid
    has_outsider: NDArray[np.bool_]  # whether it left any ad out
    outsider: NDArray[np.int64]  # the best of those
    outsider_key: NDArray[np.int64]

    def hands_on(self, own: "OwnBid", init_bid: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether it hands the ad on with this init-bid.  [..., I]"""
        bid = stage_bid(self.stage, self.factor, init_bid)
        # A column per entry: the reserve is one of each request.
        one = (self.prediction[:, None], bid[..., None], self.quality[:, None])
        order = admitted(Scores(*one), self.stage, own.arm, own.reserve)[..., 0]
        key = order_key(order.astype(np.float32))
        is_tied = (key == self.outsider_key) & (own.ad < self.outsider)
        return ~self.has_outsider | (key > self.outsider_key) | is_tied


@dataclass(frozen=True)
class OwnBid:
    """Ads of competitive sets, one per entry; arrays [I]. Bids are asked about as [..., I]."""

    arm: Arm
    row: NDArray[np.int64]  # in the block
    ad: NDArray[np.int64]
    steps: tuple[OwnStep, ...]  # of pre-ranking, in their order
    quality: NDArray[np.float64]  # in the auction
    factor: NDArray[np.float64]
    next_ad: NDArray[np.int64]  # ranked next in the auction, -1 if none is
    next_score: NDArray[np.float64]
    reserve: NDArray[np.float64]  # per click, of the ad's request

    def passes_pre_ranking(self, init_bid: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether the ad reaches the auction with this init-bid.  [..., I]"""
        return np.logical_and.reduce([step.hands_on(self, init_bid) for step in self.steps])

    def keeps_place(self, init_bid: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether the ad, once in the auction, gets its place or better with this init-bid.  [..., I]"""
        bid = stage_bid(self.arm.last, self.factor, init_bid)
        own = bid * self.quality
        is_in = (bid > 0) & (self.quality > 0) & (bid >= self.reserve) & (own >= self.arm.score_floor)
        is_tied = (own == self.next_score) & (self.ad < self.next_ad)
        return is_in & ((self.next_ad < 0) | (own > self.next_score) | is_tied)


def own_bids(
    block: Block,
    arm: Arm,
    platform: Platform,
    decision: Decision,
    row: NDArray[np.int64],
    place: NDArray[np.int64],
) -> OwnBid:
    """The ads in these places of the ranked lists of a block as it was served; no place is empty."""
    ad = decision.ranked_set[row, place]
    ranked_score = decision.ranked_bid * decision.ranked_quality.astype(np.float64)
    last = decision.ranked_set.shape[1] - 1
    below = np.minimum(place + 1, last)
    # On a page with fewer slots than others the runner-up comes right after its last one.
    below = np.where(decision.ranked_set[row, below] < 0, last, below)
    has_next = below > place
    return OwnBid(
        arm=arm,
        row=row,
        ad=ad.astype(np.int64),
        steps=tuple(
            _own_step(block, arm, platform, decision, at, row, ad) for at in range(len(arm.stages) - 1)
        ),
        quality=decision.ranked_quality[row, place].astype(np.float64),
        factor=bid_factor(block, arm.last, arm, platform, decision.ranked_set)[row, place],
        next_ad=np.where(has_next, decision.ranked_set[row, below], -1),
        next_score=np.where(has_next, ranked_score[row, below], 0.0),
        reserve=np.broadcast_to(np.asarray(reserve_of(block, arm), np.float64), len(block))[row],
    )


def _own_step(
    block: Block, arm: Arm, platform: Platform, decision: Decision, at: int, row: np.ndarray, ad: np.ndarray
) -> OwnStep:
    """What the scoring stage in place `at` says of these ads, which it hands on."""
    stage, ids = arm.stages[at], decision.passes[at].ids
    column = np.argmax(ids[row] == ad[:, None], axis=1)
    # The whole set once more, because a net's last bits may depend on how many ads it is asked about.
    said = score(block, ids, stage, arm, platform)
    has_outsider, outsider, key = best_outsider(decision, at)
    return OwnStep(
        stage=stage,
        prediction=said.prediction[row, column],
        quality=said.quality[row, column],
        factor=bid_factor(block, stage, arm, platform, ids)[row, column],
        has_outsider=has_outsider[row],
        outsider=outsider[row],
        outsider_key=key[row],
    )


@dataclass(frozen=True)
class KeptSizes:
    """Stands in for a size rule: the sizes that it chose for a block, whatever the scores are now."""

    of_block: np.ndarray  # [R]

    def sizes(self, requests: np.ndarray, pre_score: np.ndarray) -> np.ndarray:
        return self.of_block


def with_sizes_of(decision: Decision, arm: Arm) -> Arm:
    """The arm with the sizes of a block as it was served; itself if its size is the same for all requests."""
    for at, stage in enumerate(arm.stages):
        if stage.size_rule is not None:
            sizes = KeptSizes(decision.passes[at + 1].counts)
            arm = arm.with_stage(at, size_rule=cast(SizeRule, sizes))
    return arm


def bid_factor(block: Block, stage: Stage, arm: Arm, platform: Platform, ids: np.ndarray) -> np.ndarray:
    """The stage's bid per unit of init-bid: the bid is their product, in one rounding.  [R, m]"""
    unit = platform.bids.with_bids(np.ones_like(platform.bids.init_bid))
    return unit.bid(stage.bid, block, ids, arm.bid_rule, arm.bid_range, stage.rates)


def stage_bid(stage: Stage, factor: np.ndarray, init_bid: np.ndarray) -> np.ndarray:
    """What a stage multiplies with the quality; a stage that ignores bids takes 1 for all."""
    return np.ones(np.broadcast(factor, init_bid).shape) if stage.bid == "none" else init_bid * factor


def best_outsider(decision: Decision, at: int = -2) -> tuple[Any, Any, Any]:
    """Of each request: whether a scoring stage left out any ad, the best of those, and its key.  each [R]"""
    ids = decision.passes[at].ids
    is_out = ids >= 0
    row, column = _places(ids, decision.passes[at + 1].ids)
    is_out[row, column] = False
    key = np.where(is_out, order_key(decision.passes[at].order), np.iinfo(np.int64).min)
    best = np.argmax(key, axis=1)  # the first of equals has the smallest id
    rows = np.arange(len(ids))
    return np.any(is_out, axis=1), ids[rows, best].astype(np.int64), key[rows, best]


def order_key(scores: np.ndarray) -> NDArray[np.int64]:
    """Whole numbers in the order in which pre-ranking's selection compares float32 scores."""
    raw = np.ascontiguousarray(scores, np.float32).view(np.int32).astype(np.int64)
    return np.where(raw < 0, raw ^ 0x7FFFFFFF, raw)


def _places(ids: np.ndarray, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) in `ids` of the ads in `some`; rows of both ascend, padding at the end."""
    n_rows, n = ids.shape
    stride = np.int64(max(int(ids.max(initial=0)), 0)) + 2
    start = stride * np.arange(n_rows)[:, None]
    keys = (start + np.where(ids < 0, stride - 1, ids)).ravel()
    wanted = (start + some)[some >= 0]
    return np.divmod(np.searchsorted(keys, wanted), n)
