"""A scenario and a seed made concrete: world, truth, platform, market and the stages of its arms."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascade_sim.agents.conversions import DelayMixture
from cascade_sim.auction import Rounding
from cascade_sim.cascade.bids import Rates, learned_rates
from cascade_sim.cascade.fusion import named_fusion
from cascade_sim.cascade.retrievers.custom import find_retriever
from cascade_sim.cascade.retrievers.learned import LearnedRetrieval
from cascade_sim.cascade.retrievers.routes import MergedRoutes, Quota, brought_by
from cascade_sim.cascade.retrievers.similarity import Retriever
from cascade_sim.cascade.retrievers.uniform import UniformRetrieval
from cascade_sim.cascade.scorers import ConstantScorer, ModelScorer, RandomScorer, Scorer
from cascade_sim.cascade.serve import (
    Arm,
    Block,
    Decision,
    Platform,
    Retrieve,
    Stage,
    retriever_of,
    serve,
)
from cascade_sim.engines import Engine
from cascade_sim.environments.build import environment_of
from cascade_sim.logs.audit.reproduction import require_reproduced
from cascade_sim.models.features import FeatureView
from cascade_sim.scenario.memory import require_memory
from cascade_sim.scenario.schema import (
    KNOWN,
    ArmSpec,
    PreRankingStep,
    Ranking,
    Retrieval,
    Route,
    Scenario,
)
from cascade_sim.study.size_fit import with_size_rule

ScorerOf = Callable[[str], Scorer]

MAX_RETRIEVERS = 16  # kept at once: what-ifs may ask for many, and each has an index


class Simulation:
    """Everything a phase needs. Scorers of trained models are added as training goes on."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        workers: int = 1,
        home: Path = Path("."),
        engine: Engine | None = None,
        device: torch.device | None = None,
        *,
        is_part: bool = False,
    ):
        """`is_part`: of a run whose log, where it has one, was looked at already."""
        require_memory(scenario, workers)  # every command that makes a world comes through here
        # One thread: sums of floats would otherwise depend on how many cores there are.
        torch.set_num_threads(1)
        self.scenario, self.seed, self.home = scenario, seed, home
        self.device = device or torch.device("cpu")  # where models are trained; all else is of the CPU
        self.scorers: dict[str, Scorer] = {"random": RandomScorer(seed), "constant": ConstantScorer()}
        self._rates: dict[Scorer, Rates] = {}
        self._retrievers: dict[tuple[str, Scorer | None], Retriever] = {}  # by what they look at
        self.find_retriever: Callable[[str], type[Any]] = partial(find_retriever, home=home)
        self.environment = environment_of(scenario, seed, workers, home, engine)
        self.environment.reproduced = None if is_part else require_reproduced(scenario, home)
        self.world, self.platform = self.environment.world, self.environment.platform
        self.arrivals = self.environment.arrivals
        self.scorers.update(self.environment.scorers)
        self._built_in = tuple(self.scorers)

    @property
    def retriever(self) -> Retriever:
        """Who brings the candidates of the deployed cascade."""
        return self.retriever_of(self.scenario.cascade.retrieval)

    def retriever_of(self, spec: Retrieval, scorer_of: ScorerOf | None = None) -> Retriever:
        """Who brings candidates, by a section; made when it is first asked for, whatever the sizes.

        `scorer_of`: the scorers of its models by name, if not the trained ones.
        """
        if not spec.routes:
            return self.route_retriever(spec, scorer_of)
        quotas = (
            Quota(name, self.route_retriever(route, scorer_of), route.size)
            for name, route in spec.routes.items()
        )
        return MergedRoutes(tuple(quotas))

    def route_retriever(self, route: Route, scorer_of: ScorerOf | None = None) -> Retriever:
        """Who brings the ads of one route."""
        if not self.environment.has("corpus"):
            route = Route()  # all look at the logged candidates
        scorer = None if route.model is None else (scorer_of or self.scorers.__getitem__)(route.model)
        key = (json.dumps({**route.spelled_out, "size": 0}, sort_keys=True, default=str), scorer)
        if key not in self._retrievers:
            while len(self._retrievers) >= MAX_RETRIEVERS:
                del self._retrievers[next(iter(self._retrievers))]
            self._retrievers[key] = (
                self.environment.retriever(route, self.find_retriever)
                if scorer is None
                else LearnedRetrieval(
                    scorer, self.world.init_bid, route.bid_weight, route.probes, self.world.seed
                )
            )
        return self._retrievers[key]

    @property
    def any_ads(self) -> Retriever:
        """Who brings candidates before the models of retrieval have been trained: any ads of the corpus."""
        return UniformRetrieval(self.world.n_ads, self.seed)

    @property
    def built_in(self) -> tuple[str, ...]:
        """Those who sit in a stage without being trained."""
        return self._built_in

    def view(self, features: tuple[str, ...]) -> FeatureView:
        return self.world.view(features)

    @property
    def delays(self) -> DelayMixture | None:
        """How late conversions are; None where the scenario does not say."""
        return self.environment.delays

    def rates(self, pcvr: str) -> Rates | None:
        """The conversion rates of a trained model, one object a model; None: the known ones."""
        if pcvr == KNOWN:
            return None
        scorer = self.scorers[pcvr]
        assert isinstance(scorer, ModelScorer)
        if scorer not in self._rates:
            self._rates[scorer] = learned_rates(scorer, self.world)
        return self._rates[scorer]

    def stage(self, section: PreRankingStep | Ranking, spec: ArmSpec) -> Stage:
        """A stage of an arm from its section (model, bid, fusion)."""
        auction = spec.auction
        fusion = named_fusion(section.fusion, self.scenario.fusions, auction.squashing, auction.charging)
        stage = Stage(self.scorers[section.model], section.bid, fusion)
        if not self.asks_pcvr(section, spec):
            return stage
        return replace(stage, rates=self.rates(spec.pcvr_of(section)))

    def asks_pcvr(self, section: PreRankingStep | Ranking, spec: ArmSpec) -> bool:
        """Whether a stage of an arm looks at a pCVR: in its bids, or in its fusion."""
        fusion = named_fusion(section.fusion, self.scenario.fusions, spec.auction.squashing)
        return (section.bid == "opt" and spec.bidding.rule != "none") or fusion.pcvr != 0.0

    def arm(self, name: str, spec: ArmSpec) -> Arm:
        """An arm ready to serve; its models must have been trained."""
        arm = self.arm_of(name, spec, [self.stage(section, spec) for _, section in spec.sections])
        rules = spec.size_rules
        if not rules:
            return self.environment.with_logged_sizes(arm)

        def block_of(index: int, n_requests: int) -> Block:
            return self.arrivals.block("shadow", index, n_requests)

        for at, (step, _) in enumerate(spec.steps):  # a later rule is learned behind the earlier ones
            if step in rules:
                arm = with_size_rule(arm, self.platform, rules[step], block_of, self.seed, at)
        return arm

    def arm_of(
        self, name: str, spec: ArmSpec, stages: Sequence[Stage], retriever: Retriever | None = None
    ) -> Arm:
        """An arm with these scoring stages, and this retriever, and everything else as in its section."""
        return Arm(
            name=name,
            retrieval=Retrieve(retriever or self.retriever_of(spec.retrieval), spec.retrieval_size),
            stages=tuple(
                replace(stage, name=named, size=getattr(section, "size", None))
                for stage, (named, section) in zip(stages, spec.sections, strict=True)
            ),
            slots=spec.slots,
            pricing=spec.auction.pricing,
            reserve_cpc=spec.auction.reserve_cpc,
            score_floor=spec.auction.score_floor,
            parameters=spec.auction.parameters,
            rounding=Rounding(spec.auction.rounding, spec.auction.rounding_how, spec.auction.increment),
            bid_rule=spec.bidding.rule,
            bid_range=spec.bidding.range,
            charging=spec.auction.charging,
            logged_reserves=spec.auction.logged_reserves,
        )

    def serve(self, block: Block, arm: Arm) -> Decision:
        return serve(block, arm, self.platform)

    def brought_by(
        self, block: Block, arm: Arm, ids: np.ndarray, platform: Platform | None = None
    ) -> dict[str, np.ndarray]:
        """Whether each route of an arm brings these ads.  [R, m] -> {route: [R, m]}, {} without routes"""
        platform = platform or self.platform
        return brought_by(retriever_of(arm, platform), block, ids, platform.lives)
