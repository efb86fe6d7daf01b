"""A world fitted to a log: its requests drawn again, and a click model in place of its clicks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.agents.conversions import DelayMixture
from cascade_sim.agents.traffic_profiles import HOUR, Profile
from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES, Metric
from cascade_sim.cascade.ledger import NO_BUDGET
from cascade_sim.cascade.logged import LoggedBids, LoggedRetrieval
from cascade_sim.cascade.scorers import TruthScorer
from cascade_sim.cascade.serve import Arm, Block, Platform
from cascade_sim.environments.arrivals import ResampledArrivals
from cascade_sim.environments.base import Environment
from cascade_sim.environments.evaluators.truth import TruthEvaluator
from cascade_sim.environments.logs import logged_scorers, store_of
from cascade_sim.environments.market_inputs import LoggedVisits
from cascade_sim.environments.page_columns import Log, by_request
from cascade_sim.environments.uncertainty.replicates import ReplicateUncertainty
from cascade_sim.logs.replay.budgets import LoggedBudgets
from cascade_sim.logs.replay.fitted import FittedTruth, FittedWorld, ResampledReplay, open_click_model
from cascade_sim.scenario.log_support import about_of, find_click_model
from cascade_sim.scenario.market import Budgets, Market
from cascade_sim.scenario.schema import Route, Scenario
from cascade_sim.scenario.sections import Fitted as FittedSpec
from cascade_sim.scenario.sections import ReplayedLog


class Fitted(Environment):
    """Requests of a log, drawn in blocks of time, and clicks as they were fitted to it."""

    def __init__(
        self, scenario: Scenario, seed: int, logged: ReplayedLog, fitted: FittedSpec, workers: int, home: Path
    ):
        super().__init__(scenario, seed)
        store, folder = store_of(logged, home), find_click_model(fitted.click_model, home)
        response = open_click_model(
            folder or Path(fitted.click_model), store, about_of(scenario.world, home)[1]
        )
        self.replay = ResampledReplay(store, response, fitted.block, seed)
        self._truth: FittedTruth = FittedTruth(self.replay)
        self.world: FittedWorld = FittedWorld(self.replay, seed)
        self.arrivals: ResampledArrivals = ResampledArrivals(
            self.replay, self.world, scenario.traffic, workers, scenario.auction.reserve_cpc
        )
        self.scorers = {"truth": TruthScorer(self._truth), **logged_scorers(self.replay)}

    def retriever(self, route: Route, find: Callable[[str], type[Any]]) -> LoggedRetrieval:
        return LoggedRetrieval(self.replay)

    def _make_platform(self) -> Platform:
        response = self.replay.response
        return Platform(
            bids=LoggedBids(self.replay, self.world, lambda: response.whole("cvr").astype(np.float64)),
            slot_effects=self.world.slot_effects,
        )

    @property
    def delays(self) -> DelayMixture | None:
        own = self.replay.response.about["delay"]
        if own is None:
            return None
        return DelayMixture(tuple(own["weights"]), tuple(own["means"]), own["window"])

    def corpus(self, block: Block) -> NDArray[np.int32]:
        return np.arange(self.world.n_ads, dtype=np.int32)

    @property
    def is_timed(self) -> bool:
        return True

    def page_columns(self, log: Log, n_requests: int, charging: str) -> dict[str, NDArray[np.float64]]:
        """With how uncertain the click model is."""
        (ctr, expected), unsure = self._expected(log), self.uncertainty(n_requests)
        charged = self.charged(log, expected, charging)
        made = by_request(log, expected, n_requests, charged)
        sums = unsure.page_sums(log, ctr, expected, charged, charging, sorted(made))
        return made if sums is None else unsure.widened({"": made}, {"": sums}, None)[""]

    def evaluator(self, baseline: Arm, exposed: NDArray[np.bool_]) -> TruthEvaluator:
        world = self.world
        return TruthEvaluator(
            self.platform, self._truth, self.seed, baseline, exposed, world.advertiser, world.n_advertisers
        )

    def traffic_profile(self, spec: Market, home: Path) -> Profile:
        return Profile(self.replay.resampling.hourly_rates(), HOUR)

    def budgets(self, spec: Budgets | None) -> NDArray[np.int64]:
        """Drawn, or those of the log."""
        is_logged = spec is not None and spec.logged
        return LoggedBudgets(self.replay.store).usual(int(NO_BUDGET)) if is_logged else super().budgets(spec)

    def visits(self) -> LoggedVisits:
        return LoggedVisits(self.arrivals)

    def uncertainty(self, n_requests: int) -> ReplicateUncertainty:
        return ReplicateUncertainty(self.replay, n_requests)

    def measures(self, columns: set[str]) -> Mapping[str, Metric]:
        """Without those of pre-ranking, where the log has none."""
        return {
            name: metric
            for name, metric in ARM_MEASURES.items()
            if not metric.is_ratio or {*metric.parts} <= columns
        }
