"""What one arm did with one block: a column of numbers per request, to be summed and compared later.

Every metric is a ratio of sums over requests, or a function of summed vectors (bins, payments by advertiser),
as analysis.metrics.catalogue declares it; so blocks may be measured anywhere and intervals come from
resampling requests.
"""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from cascade_sim.analysis.metrics import consistency, money, scale
from cascade_sim.analysis.metrics.catalogue import with_factors
from cascade_sim.analysis.metrics.ratio import mean_parts
from cascade_sim.auction import MICROS
from cascade_sim.cascade.fusion import fused_quality
from cascade_sim.cascade.knobs import rules_of
from cascade_sim.cascade.memo import Memo, made_once
from cascade_sim.cascade.outcome import Outcome, outcome, ranked_ctr
from cascade_sim.cascade.page import cpc_in_order
from cascade_sim.cascade.seats import TruthScorer, is_probability
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, bids, serve, shadow
from cascade_sim.kernels import admitted_worth
from cascade_sim.world.observed import ObservedClicks
from cascade_sim.world.truth import Truth


@dataclass(frozen=True)
class Yardstick:
    """What an arm's pre-ranking is measured by: answers to the same requests from the whole set."""

    ideal: Decision  # by the arm's own ranking stage
    best_pctr: np.ndarray  # [R, k] ad ids: the ranker's best by pCTR alone
    best_value: np.ndarray  # [R, k] ad ids: best by true CTR * bid


@dataclass(frozen=True)
class Oracle:
    """What the baseline's cascade would do if it knew the true CTR; the same for all arms."""

    decision: Decision
    outcome: Outcome


@dataclass(frozen=True)
class Ruler:
    """Measures decisions. Welfare, payments and revenue are held against one oracle, the baseline's:
    an arm with a reserve of its own must not be excused by an oracle that has it too."""

    platform: Platform
    truth: Truth | ObservedClicks
    seed: int
    baseline: Arm
    is_exposed: np.ndarray  # [A] bool

    def yardstick(self, block: Block, arm: Arm) -> Yardstick:
        """The best ads by the arm's ranking stage and by the truth; the same for any pre-ranking stage."""
        ideal = serve(block, shadow(arm), self.platform)
        ids = ideal.pre_ranking_set
        return Yardstick(
            ideal=ideal,
            best_pctr=made_once(
                block.memo,
                ("best", arm.slots),
                (ids, ideal.pre_prediction),
                lambda: consistency.top_ids(ids, ideal.pre_prediction, arm.slots),
            ),
            best_value=consistency.top_ids(ids, self.true_value(block, ids, arm), arm.slots),
        )

    def oracle(self, block: Block) -> Oracle:
        """The true CTR in every seat of the baseline, and nothing cut before the auction."""
        arm = self.baseline
        seat = replace(arm.ranking, scorer=TruthScorer(self.truth))
        known = replace(
            arm,
            name="oracle",
            pre_ranking=seat,
            pre_ranking_size=arm.retrieval_size,
            size_rule=None,
            ranking=seat,
        )
        decision = serve(block, known, self.platform)
        effects = self.platform.slot_effects
        return Oracle(decision, outcome(block, decision, self.truth, effects, self.seed, arm.charging))

    def true_value(self, block: Block, ids: np.ndarray, arm: Arm) -> np.ndarray:
        return true_value(block, ids, arm, self.platform, self.truth)

    def columns(
        self, block: Block, arm: Arm, decision: Decision, result: Outcome, yard: Yardstick, oracle: Oracle
    ) -> dict[str, np.ndarray]:
        """What is summed over requests: the catalogue's COLUMNS, never NaN.  {name: [R] float64}"""
        columns = {
            **self._consistency(block, arm, decision, yard),
            **self._prices(block, arm, decision, result),
            **self._welfare(block, decision, result, oracle),
        }
        return with_factors(columns)

    def _consistency(
        self, block: Block, arm: Arm, decision: Decision, yard: Yardstick
    ) -> dict[str, np.ndarray]:
        best = {
            "ideal": yard.ideal.win_set,
            "single_objective": yard.best_pctr,
            "true_value": yard.best_value,
        }
        if arm.pre_ranking.scorer.name == "constant":
            del best["single_objective"]  # a seat that predicts the same for all has no order of its own
        columns = {}
        for name, ideal in best.items():
            if name == "single_objective":
                hit = _among_own_best(block, arm, decision, ideal)
            else:
                hit = consistency.membership(ideal, decision.competitive_set)
            shares = consistency.hit_shares(ideal, hit, self.is_exposed)
            for part, share in zip(("", "_exposed", "_unexposed"), shares, strict=True):
                sides = mean_parts(share)
                columns[f"{name}_reached{part}"], columns[f"{name}_requests{part}"] = sides
        return columns

    def _prices(self, block: Block, arm: Arm, decision: Decision, result: Outcome) -> dict[str, np.ndarray]:
        shown, cpc = decision.win_set >= 0, decision.cpc_micros / MICROS
        expected = result.expected_clicks
        ranked = decision.ranked_set
        cpc_true = self._repriced(block, arm, decision, ranked_ctr(block, decision, self.truth))
        without_noise = cast(Truth, self.truth).ctr_without_noise(block, ranked)
        cpc_known = self._repriced(block, arm, decision, without_noise)
        error, true_cost = money.cpc_error(cpc, cpc_true, expected, shown)
        predicted = self.platform.slot_effects[: arm.slots] * decision.ranked_pctr[:, :-1]
        predicted = predicted if result.impressions is None else result.charged
        forecast, expected_revenue = money.revenue_pcoc(cpc, predicted, result.charged, shown)
        revenue = result.charges_micros.sum(axis=1) / MICROS
        return {
            "requests": np.ones(len(block)),
            "impressions": shown.sum(axis=1).astype(np.float64),
            "clicks": result.clicks.sum(axis=1).astype(np.float64),
            "expected_clicks": expected.sum(axis=1),
            "revenue": revenue,
            "expected_revenue": expected_revenue,
            "cpc_error": error,
            "cpc_error_floor": money.cpc_error(cpc_known, cpc_true, expected, shown)[0],
            "cpc_bias": money.cpc_bias(cpc, cpc_true, expected, shown)[0],
            "cpc_true": true_cost,
            "forecast_revenue": forecast,
        }

    def value(self, block: Block, decision: Decision) -> np.ndarray:
        """What a click on a page is worth, in one currency for all arms.  [R, k]"""
        base = self.baseline
        return self.platform.bids.bid(
            base.ranking.bid, block, decision.win_set, base.bid_rule, base.bid_range, base.ranking.rates
        )

    def _welfare(
        self, block: Block, decision: Decision, result: Outcome, oracle: Oracle
    ) -> dict[str, np.ndarray]:
        """Value of clicks, here and by the oracle: the bid of the baseline's ranking stage."""
        best, value = oracle.decision, self.value(block, decision)
        oracle_clicks, oracle_shown = oracle.outcome.charged, best.win_set >= 0
        welfare, oracle_welfare = money.welfare(
            value, result.charged, decision.win_set >= 0,
            best.ranked_bid[:, :-1], oracle_clicks, oracle_shown,
        )  # fmt: skip
        return {
            "welfare": welfare,
            "oracle_welfare": oracle_welfare,
            "oracle_revenue": money.slot_sum(best.cpc_micros / MICROS, oracle_clicks, oracle_shown),
        }

    def _repriced(self, block: Block, arm: Arm, decision: Decision, ctr: np.ndarray) -> np.ndarray:
        """What the same ranked list would have been charged had the pCTRs been these.  [R, k]

        Rounded like a real price, so that an oracle cascade has a CPC error of exactly 0.
        """
        quality = _ranking_quality(block, decision.ranked_set, arm, self.platform, ctr)
        return cpc_in_order(decision.ranked_bid, quality, rules_of(block, arm, self.platform)) / MICROS


def _among_own_best(block: Block, arm: Arm, decision: Decision, ideal: np.ndarray) -> np.ndarray:
    """Which of these ads [R, k] are among the pre-ranking model's best by its prediction alone.

    It chooses as many as the stage hands on: of each request, where a rule chooses their number.
    """
    ids, prediction, size = decision.pre_ranking_set, decision.pre_prediction, arm.pre_ranking_size
    if arm.size_rule is not None:
        handed_on = (decision.competitive_set >= 0).sum(axis=1)
        return consistency.among_top(ideal, ids, prediction, handed_on)
    return made_once(
        block.memo,
        ("among own best", size),
        (ideal, ids, prediction),
        lambda: consistency.among_top(ideal, ids, prediction, size),
    )


def ranking_of(arm: Arm) -> Arm:
    """What an arm does after pre-ranking; equal for arms that differ in pre-ranking only."""
    return replace(arm, name="", pre_ranking=arm.ranking, pre_ranking_size=1, size_rule=None)


def true_value(
    block: Block, ids: np.ndarray, arm: Arm, platform: Platform, truth: Truth | ObservedClicks
) -> np.ndarray:
    """True CTR * bid of the ranking stage; -inf for what the auction would not admit.  [R, m]"""
    true_ctr = TruthScorer(truth).predict(block, ids)
    bid = bids(block, ids, arm.ranking, arm, platform)
    quality = _ranking_quality(block, ids, arm, platform, true_ctr)
    return admitted_worth(ids, true_ctr, bid, quality, arm.reserve_cpc, arm.score_floor)


def _ranking_quality(
    block: Block, ids: np.ndarray, arm: Arm, platform: Platform, ctr: np.ndarray
) -> np.ndarray:
    return fused_quality(arm.ranking.fusion, ctr, lambda: platform.bids.pcvr(block, ids, arm.ranking.rates))


def proxy_sums(
    decision: Decision, arm: Arm, yard: Yardstick, group: np.ndarray, n_groups: int, memo: Memo | None = None
) -> np.ndarray | None:
    """Bins of the pre-ranking prediction against the ranker's, by group of requests.  [G, 3, bins]

    None if it is no probability.
    """
    if not is_probability(arm.pre_ranking.scorer):
        return None
    ids, own, rankers = decision.pre_ranking_set, decision.pre_prediction, yard.ideal.pre_prediction

    def sums() -> np.ndarray:
        return by_group(scale.bin_sums(own, rankers, scale.PROXY_BINS, ids >= 0), group, n_groups)

    return made_once(memo, ("proxy bins", n_groups), (ids, own, rankers, group), sums)


def by_group(per_request: np.ndarray, group: np.ndarray, n_groups: int) -> np.ndarray:
    """Sums over the requests of each group, request after request.  [R, ...] -> [G, ...]"""
    total = np.zeros((n_groups, *per_request.shape[1:]))
    np.add.at(total, group, per_request)
    return total


def payments(
    decision: Decision, result: Outcome, owner: np.ndarray, n: int, group: np.ndarray, n_groups: int
) -> np.ndarray:
    """Expected payment by (group of requests, advertiser).  [R, k] -> [G, n] float64"""
    shown = decision.win_set >= 0
    paid = np.where(shown, decision.cpc_micros / MICROS * result.charged, 0.0)
    cell = (group[:, None] * n + owner[np.maximum(decision.win_set, 0)])[shown]
    return np.bincount(cell, paid[shown], n_groups * n).reshape(n_groups, n)
