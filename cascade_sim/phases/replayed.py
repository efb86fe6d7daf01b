"""How decisions on a replayed log are measured: by what was logged, and by the click model where nothing was.

A log has no hidden truth, so what needs one (welfare and payments against an oracle, the best ads by true
value, the corpus) is left out. Prices are held against those of the click model's CTRs, under names that
say so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cascade_sim.analysis.metrics import consistency, money
from cascade_sim.analysis.metrics.catalogue import MODELLED, with_factors
from cascade_sim.analysis.metrics.ratio import mean_parts
from cascade_sim.auction import MICROS
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.seats import is_probability
from cascade_sim.cascade.serve import Arm, Block, Decision, serve, shadow
from cascade_sim.phases.measure import Oracle, Ruler, Yardstick
from cascade_sim.phases.model_quality import ModelQuality
from cascade_sim.phases.simulation import Simulation
from cascade_sim.phases.units import Units
from cascade_sim.world.observed import ObservedClicks, PageClicks
from cascade_sim.world.replay import Replay

# Columns that modelled clicks have a part in, and the sum whose gradient they move by.
FACTORS = {"1000 revenue": ("revenue", 1000.0), "1000 expected_revenue": ("expected_revenue", 1000.0)}
QUALITY_GROUPS, QUALITY_RESAMPLES = 128, 200
GRADIENT = "click_model"  # of a tally's vectors: gradients of modelled clicks and revenue


@dataclass(frozen=True)
class ReplayRuler(Ruler):
    """Measures decisions on a replayed log."""

    replay: Replay = field(kw_only=True)

    @property
    def clicks(self) -> ObservedClicks:
        assert isinstance(self.truth, ObservedClicks)
        return self.truth

    def yardstick(self, block: Block, arm: Arm) -> Yardstick | None:  # type: ignore[override]
        """What ranking would choose from the whole set; None where nothing is left out before ranking."""
        if not has_pre_ranking(arm):
            return None
        ideal = serve(block, shadow(arm), self.platform)
        ids = ideal.pre_ranking_set
        best = consistency.top_ids(ids, ideal.pre_prediction, arm.slots)
        return Yardstick(ideal=ideal, best_pctr=best, best_value=best)

    def oracle(self, block: Block) -> Oracle | None:  # type: ignore[override]
        return None  # nobody knows all in a log

    def columns(  # type: ignore[override]
        self,
        block: Block,
        arm: Arm,
        decision: Decision,
        result: Outcome,
        yard: Yardstick | None,
        oracle: Oracle | None,
    ) -> dict[str, np.ndarray]:
        """What is summed over requests, never NaN.  {name: [R] float64}"""
        columns = self._paid(block, arm, decision, result)
        if yard is not None:
            columns |= self._reached(block, arm, decision, yard)
        return with_factors(columns)

    def _reached(self, block: Block, arm: Arm, decision: Decision, yard: Yardstick) -> dict[str, np.ndarray]:
        handed_on = (decision.competitive_set >= 0).sum(axis=1, keepdims=True)
        own = consistency.top_ids(decision.pre_ranking_set, decision.pre_prediction, arm.pre_ranking_size)
        own = np.where(np.arange(own.shape[1]) < handed_on, own, -1)
        pairs = {"ideal": (yard.ideal.win_set, decision.competitive_set)}
        if arm.pre_ranking.scorer.name != "constant":
            pairs["single_objective"] = (yard.best_pctr, own)
        columns = {}
        everyone = np.ones(len(self.is_exposed), bool)
        for name, (best, reached) in pairs.items():
            share = consistency.rcs_shares(best, reached, everyone)[0]
            columns[f"{name}_reached"], columns[f"{name}_requests"] = mean_parts(share)
        return columns

    def _paid(self, block: Block, arm: Arm, decision: Decision, result: Outcome) -> dict[str, np.ndarray]:
        shown, price = decision.win_set >= 0, result.price_micros(decision) / MICROS
        pages = result.observed
        assert pages is not None
        is_clicked = arm.charging == "click"
        charged = result.expected_clicks if is_clicked else shown.astype(np.float64)
        is_known = pages.is_observed if is_clicked else np.ones_like(shown)
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
        }
        return columns | (self._prices(block, arm, decision, result) if is_clicked else {})

    @staticmethod
    def _slots(block: Block, arm: Arm) -> np.ndarray:
        """Places of the pages.  [R]"""
        slots = None if block.knobs is None else block.knobs.slots
        if slots is None:
            return np.full(len(block), float(arm.slots))
        return np.minimum(slots, arm.slots).astype(np.float64)

    def _prices(self, block: Block, arm: Arm, decision: Decision, result: Outcome) -> dict[str, np.ndarray]:
        """Against the click model's CTRs."""
        shown, price, expected = decision.win_set >= 0, decision.cpc_micros / MICROS, result.expected_clicks
        assert result.observed is not None
        beyond = self.replay.places(block.requests, decision.ranked_set[:, -1:])
        place = np.concatenate([result.observed.place, beyond], axis=1)
        said = self._repriced(block, arm, decision, self.clicks.ctr(block, decision.ranked_set, place))
        error, cost = money.cpc_error(price, said, expected, shown)
        predicted = self.platform.slot_effects[: arm.slots] * decision.ranked_pctr[:, :-1]
        return {
            "model_cpc_error": error,
            "model_cpc_bias": money.cpc_bias(price, said, expected, shown)[0],
            "model_cpc": cost,
            "forecast_revenue": money.slot_sum(price, predicted, shown),
        }

    def _agreement(self, block: Block, decision: Decision, pages: PageClicks) -> dict[str, np.ndarray]:
        """How much of the page is the logged one: pages, and prices of ads that stand where they stood."""
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


def has_pre_ranking(arm: Arm) -> bool:
    """Whether anything may be left out before ranking."""
    return not (arm.pre_ranking.scorer.name == "constant" and arm.pre_ranking_size >= arm.retrieval_size)


def gradients(arm: Arm, decision: Decision, result: Outcome) -> dict[str, np.ndarray]:
    """Of modelled clicks and revenue by the click model's coefficients: {GRADIENT: [FOLDS, p, 2]}."""
    pages = result.observed
    if pages is None or pages.said is None:
        return {}
    price = result.price_micros(decision) / MICROS * (arm.charging == "click")
    return {GRADIENT: pages.gradient(np.ones(price.shape), price)}


def with_influence(
    tables: dict[str, dict[str, np.ndarray]], gradient: dict[str, np.ndarray], sim: Simulation, units: Units
) -> dict[str, dict[str, np.ndarray]]:
    """The columns of each arm with how its modelled clicks move with each unit: only their spread grows."""
    assert isinstance(sim.truth, ObservedClicks) and sim.replay is not None
    model, arms = sim.truth.model, list(gradient)
    if model is None or not arms:
        return tables
    unit = np.zeros(sim.replay.store.n_requests, np.int64)
    unit[: len(units.of_request)] = units.of_request
    whole = np.concatenate([gradient[arm] for arm in arms], axis=2)
    moved = model.influence(whole, unit, units.n)
    made = dict(tables)
    for i, arm in enumerate(arms):
        columns = dict(tables[arm])
        for name, at in MODELLED.items():
            if name in columns:
                columns[name] = columns[name] + moved[:, 2 * i + at]
        for name, (of, factor) in FACTORS.items():
            if name in columns:
                columns[name] = columns[name] + factor * moved[:, 2 * i + MODELLED[of]]
        made[arm] = columns
    return made


def model_facts(sim: Simulation) -> dict[str, Any] | None:
    """The click model and its calibration, as JSON holds it; None without one."""
    assert isinstance(sim.truth, ObservedClicks) and sim.replay is not None
    model = sim.truth.model
    if model is None:
        return None
    return {
        "terms": dict(zip(model.terms.names, model.whole.tolist(), strict=True)),
        "impressions": len(model.impressions["click"]),
        "clicks": model.n_clicks,
        "folds_by": model.folds_by,
        "calibration": model.calibration(sim.replay.store),
    }


def model_quality(sim: Simulation) -> dict[str, dict[str, Any]]:
    """How well each logged prediction fits the logged clicks: {model: {measure: {"value", "low", "high"}}}.

    On the impressions that the click model learned from, with the examination of slots taken into account.
    """
    assert isinstance(sim.truth, ObservedClicks) and sim.replay is not None
    model = sim.truth.model
    if model is None:
        return {}
    part, store = model.impressions, sim.replay.store
    effects = sim.world.slot_effects[part["slot"]]
    group = part["row"] * QUALITY_GROUPS // max(store.n_requests, 1)
    found: dict[str, dict[str, Any]] = {}
    for name, scorer in sim.scorers.items():
        column = getattr(scorer, "column", None)
        if column is None or not is_probability(scorer) or column not in part:
            continue
        quality = ModelQuality(True, QUALITY_GROUPS)
        predicted = effects * np.asarray(part[column], np.float64)
        clicked, is_there = part["click"][:, None].astype(np.float64), np.ones((len(group), 1), bool)
        quality.add(predicted[:, None], clicked, is_there, group)
        found[name] = {
            metric: value
            for metric, value in quality.metrics(QUALITY_RESAMPLES, sim.seed).items()
            if metric in ("auc", "logloss", "ece", "pcoc", "mean_prediction")
        }
    return found
