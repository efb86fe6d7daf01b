"""The least init-bid that would have changed a decision, found by deciding again.

More bid never hurts: the score of an ad is its bid times what does not depend on it, and reserves only
admit more. So whether an ad passes is a step in its bid, and the step can be searched to the micro-unit.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from cascade_sim.auction import MICROS
from cascade_sim.cascade.retrieval import Retrieval
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, serve

MOST = 10**10 * MICROS  # beyond any bid a scenario can hold; money still fits its integers


def given_retrieval(platform: Platform, ids: np.ndarray) -> Platform:
    """The platform with a retrieval that answers these ids, whatever it is asked.  ids [R, n]"""
    return replace(platform, retrieval=cast(Retrieval, lambda users, size: ids))


def least_passing(passes: Callable[[int], bool], guess: int) -> int | None:
    """The least bid in micro-units, 1 to MOST, that passes; None if not even MOST does.

    `passes` must be a step: false below some bid, true from there on. A good guess saves most of the calls.
    """
    if not passes(MOST):
        return None
    low, high = 0, MOST  # low does not pass (a bid of 0 is no bid), high does
    probe, step = min(max(guess, 1), MOST - 1), 1
    while high - low > 1:
        if passes(probe):
            high, probe = probe, probe - step
        else:
            low, probe = probe, probe + step
        # Wider and wider steps away from the guess; halving once they leave what is still open.
        step *= 4
        if not low < probe < high:
            probe = (low + high) // 2
    return high


def least_bids(
    block: Block,
    row: int,
    arm: Arm,
    platform: Platform,
    candidates: np.ndarray,
    competitors: np.ndarray,
    ad: int,
    stages: list[dict[str, Any]],
) -> dict[str, Any]:
    """What the ad would have had to bid, all else equal: for pre-ranking alone, the auction alone, and both.

    candidates [R, n] and competitors [R, c] hold the ad in this row of the block, by right or by courtesy.
    """
    _, pre_ranked, ranked = stages
    c = competitors.shape[1]
    everyone_passes = replace(arm, retrieval_size=c, pre_ranking_size=c, size_rule=None)

    def decide(bid_micros: int, given: np.ndarray | None, used: Arm) -> Decision:
        changed = replace(platform, bids=platform.bids.with_bid(ad, bid_micros / MICROS))
        if given is not None:
            changed = given_retrieval(changed, given)
        return serve(block, used, changed)

    def wins_pre_ranking(bid: int) -> bool:
        return ad in decide(bid, candidates, arm).competitive_set[row]

    def wins_auction(bid: int) -> bool:
        return ad in decide(bid, competitors, everyone_passes).win_set[row]

    def wins_cascade(bid: int) -> bool:
        return ad in decide(bid, None, arm).win_set[row]

    now = float(platform.bids.init_bid[ad])
    to_pass = least_passing(wins_pre_ranking, _guess(now, pre_ranked))
    to_win = least_passing(wins_auction, _guess(now, ranked))
    both = least_passing(wins_cascade, max(to_pass or 1, to_win or 1))
    found: dict[str, Any] = {"pre_ranking": to_pass, "auction": to_win, "cascade": both}
    found = {name: None if bid is None else bid / MICROS for name, bid in found.items()}
    found["why_none"] = None if both is not None else _why_none(arm, stages, to_pass, to_win)
    if both is not None:
        page = decide(both, None, arm)
        slot = int(np.flatnonzero(page.win_set[row] == ad)[0])
        found["slot"], found["cpc_micros"] = slot + 1, int(page.cpc_micros[row, slot])
        found["bid"] = float(page.ranked_bid[row, slot])
    return found


def _guess(now: float, stage: dict[str, Any]) -> int:
    """Scores are in proportion to the bid, so this is the step but for rounding, ties and reserves."""
    line = stage["first_out"] if stage["passed"] else stage["last_in"]
    if not stage["score"] or line is None:
        return 1
    return int(min(np.ceil(now * line / stage["score"] * MICROS), MOST))


def _why_none(arm: Arm, stages: list[dict[str, Any]], to_pass: int | None, to_win: int | None) -> str:
    retrieved, pre_ranked, ranked = stages
    if not retrieved["passed"]:
        return "retrieval did not return it, and retrieval does not look at bids"
    if to_pass is None and arm.pre_ranking.bid == "none":
        return "pre-ranking dropped it, and pre-ranking does not look at bids in this arm"
    if to_pass is None:
        return f"its pre-ranking score is {pre_ranked['score']:g} and does not grow with the bid"
    if to_win is None:
        return f"its ranking score is {ranked['score']:g} and does not grow with the bid"
    return "no bid passes both stages"
