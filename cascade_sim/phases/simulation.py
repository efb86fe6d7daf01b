"""A scenario and a seed made concrete: world, truth, platform, market and the seats of its arms."""

from dataclasses import replace
from pathlib import Path

import torch

from cascade_sim.agents.conversions import DelayMixture
from cascade_sim.cascade.bids import BidRules, Rates, learned_rates
from cascade_sim.cascade.fusion import named_fusion
from cascade_sim.cascade.retrieval import Retrieval
from cascade_sim.cascade.seats import (
    BUILT_IN,
    ConstantScorer,
    ModelScorer,
    RandomScorer,
    Scorer,
    TruthScorer,
)
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, Stage, serve
from cascade_sim.engines import Engine
from cascade_sim.models.features import FeatureView
from cascade_sim.phases.size_fit import with_size_rule
from cascade_sim.phases.traffic import Arrivals
from cascade_sim.scenario.memory import require_memory
from cascade_sim.scenario.schema import KNOWN, ArmSpec, PreRanking, Ranking, Scenario, requests_by_phase
from cascade_sim.world.truth import Truth
from cascade_sim.world.world import build_world


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
    ):
        require_memory(scenario, workers)  # every command that makes a world comes through here
        # One thread: sums of floats would otherwise depend on how many cores there are.
        torch.set_num_threads(1)
        self.scenario, self.seed, self.home = scenario, seed, home
        self.device = device or torch.device("cpu")  # where models are trained; all else is of the CPU
        self.world = build_world(scenario.world, seed)
        self.truth = Truth(self.world, scenario.world)
        self.platform = Platform(
            retrieval=Retrieval(self.world, scenario.cascade.retrieval, scenario.world.popularity),
            bids=BidRules(self.world, scenario.world.conversion),
            slot_effects=self.world.slot_effects,
            lives=self.world.lives,
        )
        self.arrivals = Arrivals(self.world, scenario.traffic, workers, engine, requests_by_phase(scenario))
        self.scorers: dict[str, Scorer] = {
            "random": RandomScorer(seed),
            "constant": ConstantScorer(),
            "truth": TruthScorer(self.truth),
        }
        assert set(self.scorers) == set(BUILT_IN)
        self._rates: dict[Scorer, Rates] = {}

    def view(self, features: tuple[str, ...]) -> FeatureView:
        return self.world.view(features)

    @property
    def delays(self) -> DelayMixture | None:
        """How late conversions are; None where the scenario does not say."""
        late = self.scenario.world.conversion.delay
        return None if late is None else DelayMixture(late.weights, late.means, late.window)

    def rates(self, pcvr: str) -> Rates | None:
        """The conversion rates of a trained model, one object a model; None: the known ones."""
        if pcvr == KNOWN:
            return None
        scorer = self.scorers[pcvr]
        assert isinstance(scorer, ModelScorer)
        if scorer not in self._rates:
            self._rates[scorer] = learned_rates(scorer, self.world)
        return self._rates[scorer]

    def stage(self, section: PreRanking | Ranking, spec: ArmSpec) -> Stage:
        """A stage of an arm from its section (model, bid, fusion)."""
        fusion = named_fusion(section.fusion, self.scenario.fusions, spec.auction.squashing)
        stage = Stage(self.scorers[section.model], section.bid, fusion)
        if not self.asks_pcvr(section, spec):
            return stage
        return replace(stage, rates=self.rates(spec.pcvr_of(section)))

    def asks_pcvr(self, section: PreRanking | Ranking, spec: ArmSpec) -> bool:
        """Whether a stage of an arm looks at a pCVR: in its bids, or in its fusion."""
        fusion = named_fusion(section.fusion, self.scenario.fusions, spec.auction.squashing)
        return (section.bid == "opt" and spec.bidding.rule != "none") or fusion.pcvr != 0.0

    def arm(self, name: str, spec: ArmSpec) -> Arm:
        """An arm ready to serve; its models must have been trained."""
        arm = self.arm_of(name, spec, self.stage(spec.pre_ranking, spec), self.stage(spec.ranking, spec))
        if spec.sizes is None:
            return arm

        def block_of(index: int, n_requests: int) -> Block:
            return self.arrivals.block("shadow", index, n_requests)

        return with_size_rule(arm, self.platform, spec.sizes, block_of, self.seed)

    @staticmethod
    def arm_of(name: str, spec: ArmSpec, pre_ranking: Stage, ranking: Stage) -> Arm:
        """An arm with these seats and everything else as in its section."""
        return Arm(
            name=name,
            retrieval_size=spec.retrieval_size,
            pre_ranking=pre_ranking,
            pre_ranking_size=spec.pre_ranking.size,
            ranking=ranking,
            slots=spec.slots,
            pricing=spec.auction.pricing,
            reserve_cpc=spec.auction.reserve_cpc,
            score_floor=spec.auction.score_floor,
            parameters=spec.auction.parameters,
            bid_rule=spec.bidding.rule,
            bid_range=spec.bidding.range,
        )

    def serve(self, block: Block, arm: Arm) -> Decision:
        return serve(block, arm, self.platform)
