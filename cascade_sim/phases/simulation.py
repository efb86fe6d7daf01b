"""A scenario and a seed made concrete: world, truth, platform, market and the seats of its arms."""

from pathlib import Path

import torch

from cascade_sim.cascade.bids import BidRules
from cascade_sim.cascade.fusion import named_fusion
from cascade_sim.cascade.retrieval import Retrieval
from cascade_sim.cascade.seats import BUILT_IN, ConstantScorer, RandomScorer, Scorer, TruthScorer
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, Stage, serve
from cascade_sim.engines import Engine
from cascade_sim.models.features import FeatureView
from cascade_sim.phases.size_fit import with_size_rule
from cascade_sim.phases.traffic import Arrivals
from cascade_sim.scenario.memory import require_memory
from cascade_sim.scenario.schema import ArmSpec, Scenario, requests_by_phase
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
    ):
        require_memory(scenario, workers)  # every command that makes a world comes through here
        # One thread: sums of floats would otherwise depend on how many cores there are.
        torch.set_num_threads(1)
        self.scenario, self.seed, self.home = scenario, seed, home
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

    def view(self, features: tuple[str, ...]) -> FeatureView:
        return self.world.view(features)

    def stage(self, spec, squashing: float) -> Stage:
        """A stage from its section (model, bid, fusion)."""
        fusion = named_fusion(spec.fusion, self.scenario.fusions, squashing)
        return Stage(self.scorers[spec.model], spec.bid, fusion)

    def arm(self, name: str, spec: ArmSpec) -> Arm:
        """An arm ready to serve; its models must have been trained."""
        squashing = spec.auction.squashing
        arm = self.arm_of(
            name, spec, self.stage(spec.pre_ranking, squashing), self.stage(spec.ranking, squashing)
        )
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
