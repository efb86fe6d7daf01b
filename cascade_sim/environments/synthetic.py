"""A world that is drawn from a scenario: all of it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.analysis.metrics.catalogue import Metric, arm_measures
from cascade_sim.cascade.bids import BidRules
from cascade_sim.cascade.retrievers.custom import CustomRetrieval
from cascade_sim.cascade.retrievers.similarity import Retrieval, Retriever
from cascade_sim.cascade.scorers import TruthScorer
from cascade_sim.cascade.serve import Arm, Block, Platform
from cascade_sim.engines import Engine
from cascade_sim.environments.arrivals import Arrivals
from cascade_sim.environments.base import Environment
from cascade_sim.environments.evaluators.truth import TruthEvaluator, value_at
from cascade_sim.scenario.schema import Route, Scenario, requests_by_phase
from cascade_sim.scenario.sections import SIMILARITY
from cascade_sim.world.truth import GroundTruth
from cascade_sim.world.world import build_world


class Synthetic(Environment):
    """Users, ads and their tastes, drawn."""

    def __init__(self, scenario: Scenario, seed: int, workers: int = 1, engine: Engine | None = None):
        super().__init__(scenario, seed)
        self.world = build_world(scenario.world, seed)
        self._truth: GroundTruth = GroundTruth(self.world, scenario.world)
        self.arrivals = Arrivals(self.world, scenario.traffic, workers, engine, requests_by_phase(scenario))
        self.scorers = {"truth": TruthScorer(self._truth)}

    def retriever(self, route: Route, find: Callable[[str], type[Any]]) -> Retriever:
        if route.kind == SIMILARITY:
            return Retrieval(self.world, route, self._scenario.world.popularity)
        return CustomRetrieval(route.kind, find(route.kind), route.options, self.world)

    def _make_platform(self) -> Platform:
        return Platform(
            bids=BidRules(self.world, self._scenario.world.conversion),
            slot_effects=self.world.slot_effects,
            lives=self.world.lives,
        )

    def ctr_without_noise(self, block: Block, ads: NDArray[np.int32]) -> NDArray[np.float64]:
        """The CTRs, with what no feature shows at its mean.  [R, m]"""
        return self._truth.ctr_without_noise(block, ads)

    def known_value(self, block: Block, ids: NDArray[np.int32], arm: Arm) -> NDArray[np.float64]:
        """The ranking stage's bid times the CTR that the best model of features could know.  [R, m]"""
        return value_at(block, ids, arm, self.platform, self.ctr_without_noise(block, ids))

    def corpus(self, block: Block) -> NDArray[np.int32]:
        if self.world.lives is None:
            return np.arange(self.world.n_ads, dtype=np.int32)
        there = self.world.lives.corpus(block.times)[0]
        return there[there >= 0]

    def evaluator(self, baseline: Arm, exposed: NDArray[np.bool_]) -> TruthEvaluator:
        world = self.world
        return TruthEvaluator(
            self.platform, self._truth, self.seed, baseline, exposed, world.advertiser, world.n_advertisers
        )

    def measures(self, columns: set[str]) -> Mapping[str, Metric]:
        return arm_measures(columns)
