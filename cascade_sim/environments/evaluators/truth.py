"""What one arm did with one block: a column of numbers per request, to be summed and compared later.

Every metric is a ratio of sums over requests, or a function of summed vectors (bins, payments by advertiser),
as analysis.metrics.catalogue declares it; so blocks may be measured anywhere and intervals come from
resampling requests.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cascade_sim.analysis.metrics import calibration, consistency, money
from cascade_sim.analysis.metrics.catalogue import after_step, with_factors
from cascade_sim.analysis.metrics.ratio import mean_parts
from cascade_sim.auction import MICROS
from cascade_sim.cascade.cache import once
from cascade_sim.cascade.fusion import fused_quality
from cascade_sim.cascade.outcome import Outcome, outcome, ranked_ctr
from cascade_sim.cascade.page import cpc_in_order
from cascade_sim.cascade.randomisation import rules_of
from cascade_sim.cascade.scorers import TruthScorer, is_probability
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, bids, serve, shadow
from cascade_sim.environments.evaluators.base import Context, ReferenceSets
from cascade_sim.foundation.kernels import admitted_worth
from cascade_sim.logs.replay.observed import ObservedClicks
from cascade_sim.world.truth import GroundTruth


@dataclass(frozen=True)
class Oracle:
    """What the baseline's cascade would do if it knew the true CTR; the same for all arms."""

    decision: Decision
    outcome: Outcome


@dataclass(frozen=True)
class TruthContext(Context[ReferenceSets]):
    """With the oracle, and what it pays by advertiser.  [G, advertisers]"""

    baseline: Arm
    oracle: Oracle
    oracle_paid: np.ndarray

    def click_value(self, decision: Decision) -> np.ndarray:
        """What a click on a page is worth, in one currency for all arms.  [R, k]"""
        base = self.baseline
        return self.platform.bids.bid(
            base.last.bid, self.block, decision.win_set, base.bid_rule, base.bid_range, base.last.rates
        )


@dataclass(frozen=True)
class TruthEvaluator:
    """Measures decisions by the ground truth. Welfare, payments and revenue have one oracle, the baseline's:
    an arm with a reserve of its own must not be excused by an oracle that has it too."""

    platform: Platform
    truth: GroundTruth
    seed: int
    baseline: Arm
    is_exposed: np.ndarray  # [A] bool
    owner: np.ndarray  # [A] the advertiser of each ad
    n_advertisers: int

    def context(self, block: Block, group: np.ndarray, n_groups: int) -> TruthContext:
        oracle = self._oracle(block)
        paid = self._payments(oracle.decision, oracle.outcome, group, n_groups)
        return TruthContext(block, group, n_groups, self.platform, {}, self.baseline, oracle, paid)

    def prepare(self, context: TruthContext, arm: Arm) -> None:
        self.reference_sets(context, arm)

    def best(self, context: TruthContext, arm: Arm) -> np.ndarray:
        return self.reference_sets(context, arm).best_value

    def reference_sets(self, context: TruthContext, arm: Arm) -> ReferenceSets:
        """The best ads by the arm's ranking stage and by the truth; the same for any pre-ranking stage."""
        key = ranking_of(arm)
        if key not in context.references:
            context.references[key] = self._reference_sets(context.block, arm)
        return context.references[key]

    def _reference_sets(self, block: Block, arm: Arm) -> ReferenceSets:
        ideal = serve(block, shadow(arm), self.platform)
        ids = ideal.retrieved
        return ReferenceSets(
            ideal=ideal,
            best_pctr=_best(block, ids, ideal.passes[0].scores.prediction, arm.slots),
            best_value=consistency.top_ids(ids, self.true_value(block, ids, arm), arm.slots),
        )

    def _oracle(self, block: Block) -> Oracle:
        """The true CTR in the baseline's last stage, and nothing cut before the auction."""
        arm = self.baseline
        known = arm.ranking_only("oracle").with_stage(-1, scorer=TruthScorer(self.truth))
        decision = serve(block, known, self.platform)
        effects = self.platform.slot_effects
        return Oracle(decision, outcome(block, decision, self.truth, effects, self.seed, arm.charging))

    def true_value(self, block: Block, ids: np.ndarray, arm: Arm) -> np.ndarray:
        return true_value(block, ids, arm, self.platform, self.truth)

    def columns(
        self, context: TruthContext, arm: Arm, decision: Decision, result: Outcome
    ) -> dict[str, np.ndarray]:
        """What is summed over requests: the catalogue's COLUMNS, never NaN.  {name: [R] float64}"""
        block = context.block
        columns = {
            **self._consistency(block, arm, decision, self.reference_sets(context, arm)),
            **self._prices(block, arm, decision, result),
            **self._welfare(context, decision, result),
        }
        return with_factors(columns)

    def vectors(
        self, context: TruthContext, arm: Arm, decision: Decision, result: Outcome
    ) -> dict[str, np.ndarray]:
        """Payments by advertiser, here and by the oracle, and bins of the pre-ranking prediction."""
        paid = self._payments(decision, result, context.group, context.n_groups)
        vectors = {"payments": np.stack([paid, context.oracle_paid], axis=1)}
        return vectors | proxy_bins(context, decision, arm, self.reference_sets(context, arm))

    def _payments(self, decision: Decision, result: Outcome, group: np.ndarray, n_groups: int) -> np.ndarray:
        return payments(decision, result, self.owner, self.n_advertisers, group, n_groups)

    def _consistency(
        self, block: Block, arm: Arm, decision: Decision, yard: ReferenceSets
    ) -> dict[str, np.ndarray]:
        best = {
            "ideal": yard.ideal.win_set,
            "single_objective": yard.best_pctr,
            "true_value": yard.best_value,
        }
        if arm.stages[-2].scorer.name == "constant":
            del best["single_objective"]  # a model that predicts the same for all has no order of its own
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
        return columns | self._after_steps(block, arm, decision, yard)

    def _after_steps(
        self, block: Block, arm: Arm, decision: Decision, yard: ReferenceSets
    ) -> dict[str, np.ndarray]:
        """Of how much is still there after each step of pre-ranking but the last, after which RCS counts."""
        columns = {}
        for at, stage in enumerate(arm.stages[:-2]):
            hits = {
                "ideal": (
                    yard.ideal.win_set,
                    consistency.membership(yard.ideal.win_set, decision.passes[at + 1].ids),
                )
            }
            if stage.scorer.name != "constant":
                hits["single_objective"] = (
                    yard.best_pctr,
                    _among_own_best(block, arm, decision, yard.best_pctr, at),
                )
            for name, (best, hit) in hits.items():
                sides = mean_parts(consistency.hit_shares(best, hit, self.is_exposed)[0])
                for what, column in zip(("reached", "requests"), sides, strict=True):
                    columns[after_step(f"{name}_{what}", stage.name)] = column
        return columns

    def _prices(self, block: Block, arm: Arm, decision: Decision, result: Outcome) -> dict[str, np.ndarray]:
        shown, cpc = decision.win_set >= 0, decision.cpc_micros / MICROS
        expected = result.expected_clicks
        ranked = decision.ranked_set
        cpc_true = repriced(self.platform, block, arm, decision, ranked_ctr(block, decision, self.truth))
        without_noise = self.truth.ctr_without_noise(block, ranked)
        cpc_known = repriced(self.platform, block, arm, decision, without_noise)
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
            "cpc_error_irreducible": money.cpc_error(cpc_known, cpc_true, expected, shown)[0],
            "cpc_bias": money.cpc_bias(cpc, cpc_true, expected, shown)[0],
            "cpc_true": true_cost,
            "forecast_revenue": forecast,
        }

    def _welfare(self, context: TruthContext, decision: Decision, result: Outcome) -> dict[str, np.ndarray]:
        """Value of clicks, here and by the oracle: the bid of the baseline's ranking stage."""
        oracle = context.oracle
        best, value = oracle.decision, context.click_value(decision)
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


def repriced(platform: Platform, block: Block, arm: Arm, decision: Decision, ctr: np.ndarray) -> np.ndarray:
    """What the same ranked list would have been charged had the pCTRs been these.  [R, k]

    Rounded like a real price, so that an oracle cascade has a CPC error of exactly 0.
    """
    quality = _ranking_quality(block, decision.ranked_set, arm, platform, ctr)
    return cpc_in_order(decision.ranked_bid, quality, rules_of(block, arm, platform)) / MICROS


def _among_own_best(
    block: Block, arm: Arm, decision: Decision, ideal: np.ndarray, at: int = -2
) -> np.ndarray:
    """Which of these ads [R, k] are among the best of a stage by its model's prediction alone.

    It chooses as many as the stage hands on: of each request, where a rule chooses their number.
    """
    own, stage = decision.passes[at], arm.stages[at]
    assert stage.size is not None, "the last stage hands nothing on"
    size = decision.passes[at + 1].counts if stage.size_rule is not None else stage.size
    return _among_top(block, ideal, own.ids, own.scores.prediction, size)


@once
def _among_top(
    block: Block, ideal: np.ndarray, ids: np.ndarray, prediction: np.ndarray, size: int | np.ndarray
) -> np.ndarray:
    return consistency.among_top(ideal, ids, prediction, size)


@once
def _best(block: Block, ids: np.ndarray, prediction: np.ndarray, slots: int) -> np.ndarray:
    return consistency.top_ids(ids, prediction, slots)


def ranking_of(arm: Arm) -> Arm:
    """What an arm does in its last stage; equal for arms that differ in the stages before it only."""
    return arm.ranking_only()


def true_value(
    block: Block, ids: np.ndarray, arm: Arm, platform: Platform, truth: GroundTruth | ObservedClicks
) -> np.ndarray:
    """True CTR * bid of the ranking stage; -inf for what the auction would not admit.  [R, m]"""
    return value_at(block, ids, arm, platform, TruthScorer(truth).predict(block, ids))


def value_at(block: Block, ids: np.ndarray, arm: Arm, platform: Platform, ctr: np.ndarray) -> np.ndarray:
    """These CTRs * bid of the ranking stage; -inf for what the auction would not admit with them.  [R, m]"""
    bid = bids(block, ids, arm.last, arm, platform)
    quality = _ranking_quality(block, ids, arm, platform, ctr)
    return admitted_worth(ids, ctr, bid, quality, arm.reserve_cpc, arm.score_floor)


def _ranking_quality(
    block: Block, ids: np.ndarray, arm: Arm, platform: Platform, ctr: np.ndarray
) -> np.ndarray:
    return fused_quality(arm.last.fusion, ctr, lambda: platform.bids.pcvr(block, ids, arm.last.rates))


def proxy_bins(
    context: Context[Any], decision: Decision, arm: Arm, yard: ReferenceSets
) -> dict[str, np.ndarray]:
    """The vectors of the pre-ranking prediction; none if it is no probability.  {name: [G, 3, bins]}"""
    sums = proxy_sums(context.block, decision, arm, yard, context.group, context.n_groups)
    return {} if sums is None else {"proxy_bins": sums}


def proxy_sums(
    block: Block, decision: Decision, arm: Arm, yard: ReferenceSets, group: np.ndarray, n_groups: int
) -> np.ndarray | None:
    """Bins of the pre-ranking prediction against the ranker's, by group of requests.  [G, 3, bins]

    None if it is no probability.
    """
    if not is_probability(arm.stages[-2].scorer):
        return None
    own, whole = decision.passes[-2], yard.ideal.passes[0]
    rankers = whole.scores.prediction
    if len(decision.passes) > 2:  # of all that was retrieved, those that came to pre-ranking
        rankers = _of_part(whole.ids, own.ids, rankers)
    return _bins(block, own.ids, own.scores.prediction, rankers, group, n_groups)


@once
def _bins(
    block: Block, ids: np.ndarray, own: np.ndarray, rankers: np.ndarray, group: np.ndarray, n_groups: int
) -> np.ndarray:
    return by_group(calibration.bin_sums(own, rankers, calibration.PROXY_BINS, ids >= 0), group, n_groups)


def _of_part(whole: np.ndarray, part: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of values of `whole` [R, n] those of `part` [R, m], rows ascending; 0 for padding."""
    row, column = np.nonzero(part >= 0)
    n_ads = int(whole.max(initial=0)) + 1
    key = np.where(whole >= 0, np.arange(len(whole))[:, None] * n_ads + whole, -1)
    there = np.flatnonzero(key.ravel() >= 0)
    found = np.zeros(part.shape, values.dtype)
    at = np.searchsorted(key.ravel()[there], row * n_ads + part[row, column])
    found[row, column] = values.ravel()[there[at]]
    return found


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
