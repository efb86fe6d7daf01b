"""What one arm did with one block: a column of numbers per request, to be summed and compared later.

Every metric is a ratio of sums over requests (RATIOS), or a function of summed vectors (bins,
payments by advertiser), so blocks may be measured anywhere and intervals come from resampling requests.
"""

from dataclasses import dataclass

import numpy as np

from analysis import calibration, consistency, money
from cascade_sim.auction import MICROS, reprice, to_micros
from cascade_sim.cascade import Arm, Block, Decision, Platform, Stage, serve, shadow
from cascade_sim.fusion import quality
from cascade_sim.outcome import Outcome, outcome
from cascade_sim.seats import TruthScorer
from cascade_sim.truth import Truth

# metric -> (numerator column, denominator column); None as denominator: the mean over requests.
RATIOS: dict[str, tuple[str, str | None]] = {
    **{
        f"{name}{part}": (f"{name}{part}", None)
        for name in ("rcs", "single_objective_rcs", "true_value_recall")
        for part in ("", "_exposed", "_unexposed")
    },
    "ctr": ("clicks", "impressions"),
    "expected_ctr": ("expected_clicks", "impressions"),
    "rpm": ("revenue_per_mille", "impressions"),
    "expected_rpm": ("expected_revenue_per_mille", "impressions"),
    "revenue_per_request": ("revenue", None),
    "expected_revenue_per_request": ("expected_revenue", None),
    "cpc": ("revenue", "clicks"),
    "cpc_error": ("cpc_error", "cpc_true"),
    "cpc_bias": ("cpc_bias", "cpc_true"),
    "revenue_pcoc": ("forecast_revenue", "expected_revenue"),
    "welfare": ("welfare", "oracle_welfare"),
    "revenue_vs_oracle": ("expected_revenue", "oracle_revenue"),
}


@dataclass(frozen=True)
class Yardstick:
    """What an arm is held against: the shadow's and the oracle's answer to the same requests."""

    ideal: Decision  # by the arm's own ranking stage, on the whole pre-ranking set
    oracle: Decision  # by the true CTR
    oracle_outcome: Outcome
    best_pctr: np.ndarray  # [R, k] ad ids: the ranker's best by pCTR alone
    best_value: np.ndarray  # [R, k] ad ids: best by true CTR * bid


def oracle_arm(arm: Arm, truth: Truth) -> Arm:
    """The arm with the true CTR in every seat and nothing cut before the auction."""
    seat = Stage(TruthScorer(truth), arm.ranking.bid, arm.ranking.fusion)
    return Arm(
        f"oracle of {arm.name}", arm.retrieval_size, seat, arm.retrieval_size, seat, arm.slots,
        arm.pricing, arm.reserve_cpc, arm.score_floor, arm.bid_rule, arm.bid_range,
    )  # fmt: skip


def yardstick(block: Block, arm: Arm, platform: Platform, truth: Truth, seed: int) -> Yardstick:
    """Shared by all arms that differ in pre-ranking only."""
    ideal = serve(block, shadow(arm), platform)
    oracle = serve(block, oracle_arm(arm, truth), platform)
    ids = ideal.pre_ranking_set
    return Yardstick(
        ideal=ideal,
        oracle=oracle,
        oracle_outcome=outcome(block, oracle, truth, platform.slot_effects, seed),
        best_pctr=consistency.top_ids(ids, ideal.pre_prediction, arm.slots),
        best_value=consistency.top_ids(oracle.pre_ranking_set, oracle.pre_score, arm.slots),
    )


def columns(
    decision: Decision, result: Outcome, arm: Arm, yard: Yardstick, truth: Truth, block: Block,
    platform: Platform, is_exposed: np.ndarray,
) -> dict[str, np.ndarray]:  # fmt: skip
    """The per-request numbers behind RATIOS.  {name: [R] float64}"""
    return {
        **_consistency_columns(decision, arm, yard, is_exposed),
        **_money_columns(decision, result, arm, yard, truth, block, platform),
    }


def _consistency_columns(decision, arm, yard, is_exposed) -> dict[str, np.ndarray]:
    own_best = consistency.top_ids(decision.pre_ranking_set, decision.pre_prediction, arm.pre_ranking_size)
    pairs = {
        "rcs": (yard.ideal.win_set, decision.competitive_set),
        "single_objective_rcs": (yard.best_pctr, own_best),
        "true_value_recall": (yard.best_value, decision.competitive_set),
    }
    if arm.pre_ranking.scorer.name == "constant":
        del pairs["single_objective_rcs"]  # a seat without an opinion has no order of its own
    found = {}
    for name, (best, reached) in pairs.items():
        found[name] = consistency.rcs(best, reached)
        found[f"{name}_exposed"], found[f"{name}_unexposed"] = consistency.rcs_split(
            best, reached, is_exposed
        )
    return found


def _money_columns(decision, result, arm, yard, truth, block, platform) -> dict[str, np.ndarray]:
    shown = decision.win_set >= 0
    cpc = decision.cpc_micros / MICROS
    bid, effects = decision.ranked_bid[:, :-1], platform.slot_effects[: arm.slots]
    cpc_true = true_cpc(decision, arm, truth, block, platform)
    expected = result.expected_clicks
    oracle = yard.oracle
    oracle_shown = oracle.win_set >= 0
    error, true_cost = money.cpc_error(cpc, cpc_true, expected, shown)
    welfare, oracle_welfare = money.welfare(
        bid, expected, shown, oracle.ranked_bid[:, :-1], yard.oracle_outcome.expected_clicks, oracle_shown
    )
    revenue = result.charges_micros.sum(axis=1) / MICROS
    expected_revenue = money.slot_sum(cpc, expected, shown)
    return {
        "impressions": shown.sum(axis=1).astype(np.float64),
        "clicks": result.clicks.sum(axis=1).astype(np.float64),
        "expected_clicks": expected.sum(axis=1),
        "revenue": revenue,
        "expected_revenue": expected_revenue,
        "revenue_per_mille": 1000.0 * revenue,
        "expected_revenue_per_mille": 1000.0 * expected_revenue,
        "cpc_error": error,
        "cpc_bias": money.cpc_bias(cpc, cpc_true, expected, shown)[0],
        "cpc_true": true_cost,
        "forecast_revenue": money.slot_sum(cpc, effects * decision.ranked_pctr[:, :-1], shown),
        "welfare": welfare,
        "oracle_welfare": oracle_welfare,
        "oracle_revenue": money.slot_sum(
            oracle.cpc_micros / MICROS, yard.oracle_outcome.expected_clicks, oracle_shown
        ),
    }


def true_cpc(decision: Decision, arm: Arm, truth: Truth, block: Block, platform: Platform) -> np.ndarray:
    """c*: what the same ranked list would have been charged had the pCTRs been true.  [R, k]

    Rounded like a real price, so that an oracle cascade has a CPC error of exactly 0.
    """
    true_quality = quality(
        arm.ranking.fusion,
        truth.ctr(block, decision.ranked_set),
        lambda: platform.bids.pcvr(block, decision.ranked_set),
    )
    cpc = reprice(
        decision.ranked_bid,
        true_quality,
        slots=arm.slots,
        reserve_cpc=arm.reserve_cpc,
        score_floor=arm.score_floor,
        pricing=arm.pricing,
        slot_effects=platform.slot_effects[: arm.slots],
    )
    return to_micros(cpc, decision.ranked_bid[:, :-1]) / MICROS


def proxy_sums(decision: Decision, arm: Arm, yard: Yardstick) -> np.ndarray | None:
    """Bins of the pre-ranking prediction against the ranker's, per request; None if it is no probability."""
    if arm.pre_ranking.scorer.link != "sigmoid":
        return None
    valid = decision.pre_ranking_set >= 0
    return calibration.proxy_bins(decision.pre_prediction, yard.ideal.pre_prediction, valid=valid)


def payments(
    decision: Decision, result: Outcome, advertiser: np.ndarray, n: int, group: np.ndarray, n_groups: int
):
    """Expected payment by (group of requests, advertiser).  [G, n] float64"""
    shown = decision.win_set >= 0
    owner = advertiser[np.maximum(decision.win_set, 0)]
    paid = np.where(shown, decision.cpc_micros / MICROS * result.expected_clicks, 0.0)
    cell = (group[:, None] * n + owner)[shown]
    return np.bincount(cell, paid[shown], n_groups * n).reshape(n_groups, n)
