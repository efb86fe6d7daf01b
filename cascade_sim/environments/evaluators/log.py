"""How decisions on a replayed log are measured: by what was logged, and by the click model where nothing was.

A log has no ground truth, so what needs one (welfare and payments against an oracle, the best ads by true
value, the corpus) is left out. Prices are compared with those of the click model's CTRs, under names that
say so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cascade_sim.analysis.metrics import consistency, money
from cascade_sim.analysis.metrics.catalogue import with_factors
from cascade_sim.analysis.metrics.ratio import mean_parts
from cascade_sim.auction import MICROS
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, serve, shadow
from cascade_sim.environments.evaluators.base import Context, ReferenceSets
from cascade_sim.environments.evaluators.truth import proxy_bins, ranking_of, repriced
from cascade_sim.logs.replay.observed import ObservedClicks, PageClicks
from cascade_sim.logs.replay.replay import Replay

LogContext = Context[ReferenceSets | None]  # a log has no oracle


@dataclass(frozen=True)
class LogEvaluator:
    """Measures decisions on a replayed log."""

    platform: Platform
    clicks: ObservedClicks
    replay: Replay
    n_ads: int

    def context(self, block: Block, group: np.ndarray, n_groups: int) -> LogContext:
        return Context(block, group, n_groups, self.platform, {})

    def prepare(self, context: LogContext, arm: Arm) -> None:
        self._reference_sets(context, arm)

    def best(self, context: LogContext, arm: Arm) -> np.ndarray | None:
        """By the ranker: a log knows no better."""
        yard = self._reference_sets(context, arm)
        return None if yard is None else yard.ideal.win_set

    def _reference_sets(self, context: LogContext, arm: Arm) -> ReferenceSets | None:
        """What ranking would choose from the whole set; None where nothing is left out before ranking."""
        key = ranking_of(arm)
        if key not in context.references:
            context.references[key] = _ideal(context, arm) if has_pre_ranking(arm) else None
        return context.references[key]

    def columns(
        self, context: LogContext, arm: Arm, decision: Decision, result: Outcome
    ) -> dict[str, np.ndarray]:
        """What is summed over requests, never NaN.  {name: [R] float64}"""
        columns, yard = self._paid(context.block, arm, decision, result), self._reference_sets(context, arm)
        if yard is not None:
            columns |= self._reached(arm, decision, yard)
        return with_factors(columns)

    def vectors(
        self, context: LogContext, arm: Arm, decision: Decision, result: Outcome
    ) -> dict[str, np.ndarray]:
        """Bins of the pre-ranking prediction against the ranker's."""
        yard = self._reference_sets(context, arm)
        return {} if yard is None else proxy_bins(context, decision, arm, yard)

    def _reached(self, arm: Arm, decision: Decision, yard: ReferenceSets) -> dict[str, np.ndarray]:
        handed_on, pre = decision.passes[-1].counts[:, None], decision.passes[-2]
        own = consistency.top_ids(pre.ids, pre.scores.prediction, arm.most_auctioned)
        own = np.where(np.arange(own.shape[1]) < handed_on, own, -1)
        pairs = {"ideal": (yard.ideal.win_set, decision.competitive_set)}
        if arm.stages[-2].scorer.name != "constant":
            pairs["single_objective"] = (yard.best_pctr, own)
        columns = {}
        everyone = np.ones(self.n_ads, bool)
        for name, (best, reached) in pairs.items():
            share = consistency.rcs_shares(best, reached, everyone)[0]
            columns[f"{name}_reached"], columns[f"{name}_requests"] = mean_parts(share)
        return columns

    def _paid(self, block: Block, arm: Arm, decision: Decision, result: Outcome) -> dict[str, np.ndarray]:
        shown, price = decision.win_set >= 0, result.price_micros(decision) / MICROS
        pages = result.observed
        assert pages is not None
        is_clicked = arm.charging == "click"
        charged = result.charged
        is_known = pages.is_observed if is_clicked else (charged == 0) | (charged == 1)
        columns = {
            "requests": np.ones(len(block)),
            "impressions": money.over_slots(shown.astype(np.float64)),
            "revenue": money.over_slots(result.charges_micros) / MICROS,
            "expected_revenue": money.slot_sum(price, charged, shown),
            "observed_revenue": money.slot_sum(price, charged, shown & is_known),
            "slots": self._slots(block, arm),
            **self._agreement(block, decision, pages),
        }
        if not self.clicks.has_clicks:
            return columns
        columns |= {
            "clicks": money.over_slots(result.clicks.astype(np.float64)),
            "expected_clicks": money.over_slots(result.expected_clicks),
            "observed_clicks": money.over_slots(np.where(pages.is_observed, result.expected_clicks, 0.0)),
            "control_clicks": money.over_slots(pages.beyond),
            "control_revenue": money.slot_sum(price, pages.beyond * is_clicked, shown),
        }
        return columns | (self._prices(block, arm, decision, result) if is_clicked else {})

    @staticmethod
    def _slots(block: Block, arm: Arm) -> np.ndarray:
        """Places of the pages.  [R]"""
        slots = None if block.parameters is None else block.parameters.slots
        if slots is None:
            return np.full(len(block), float(arm.slots))
        return np.minimum(slots, arm.slots).astype(np.float64)

    def _prices(self, block: Block, arm: Arm, decision: Decision, result: Outcome) -> dict[str, np.ndarray]:
        """Against the click model's CTRs."""
        shown, price, expected = decision.win_set >= 0, decision.cpc_micros / MICROS, result.expected_clicks
        assert result.observed is not None
        beyond = self.replay.places(block.requests, decision.ranked_set[:, -1:])
        place = np.concatenate([result.observed.place, beyond], axis=1)
        ctr = self.clicks.ctr(block, decision.ranked_set, place)
        said = repriced(self.platform, block, arm, decision, ctr)
        error, cost = money.cpc_error(price, said, expected, shown)
        predicted = self.platform.slot_effects[: arm.slots] * decision.ranked_pctr[:, :-1]
        return {
            "model_cpc_error": error,
            "model_cpc_bias": money.cpc_bias(price, said, expected, shown)[0],
            "model_cpc": cost,
            "forecast_revenue": money.slot_sum(price, predicted, shown),
        }

    def _agreement(self, block: Block, decision: Decision, pages: PageClicks) -> dict[str, np.ndarray]:
        """How much of the page is the logged one: pages, and prices of ads in their logged slots."""
        shown, is_logged = decision.win_set >= 0, pages.is_logged
        n_logged = self.replay.shown[self.replay.rows(block.requests)]
        n_alike, n_shown = (money.over_slots(places.astype(np.int64)) for places in (is_logged, shown))
        same = (n_alike == n_shown) & (n_shown == n_logged)
        (price,) = self.replay.at(block.requests, pages.place, {"price_micros": -1})
        is_known = is_logged & shown & (price >= 0)
        return {
            "logged_pages": same.astype(np.float64),
            "known_prices": money.over_slots(is_known.astype(np.float64)),
            "logged_prices": money.over_slots((is_known & (price == decision.cpc_micros)).astype(np.float64)),
        }


def _ideal(context: LogContext, arm: Arm) -> ReferenceSets:
    ideal = serve(context.block, shadow(arm), context.platform)
    best = consistency.top_ids(ideal.retrieved, ideal.passes[0].scores.prediction, arm.slots)
    return ReferenceSets(ideal=ideal, best_pctr=best, best_value=best)


def has_pre_ranking(arm: Arm) -> bool:
    """Whether anything may be left out before ranking."""
    return not (arm.stages[-2].scorer.name == "constant" and arm.most_auctioned >= arm.retrieval.size)
