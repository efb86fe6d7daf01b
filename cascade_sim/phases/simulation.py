"""A scenario and a seed made concrete: world, truth, platform, market and the seats of its arms."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import torch

from cascade_sim.agents.conversions import DelayMixture
from cascade_sim.cascade.bids import BidRules, Rates, learned_rates
from cascade_sim.cascade.fusion import named_fusion
from cascade_sim.cascade.logged import LoggedBids, LoggedRetrieval, LoggedScorer, LoggedSizes
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
from cascade_sim.cascade.sizes import SizeRule
from cascade_sim.engines import Engine
from cascade_sim.errors import UserError
from cascade_sim.logged.store import open_store
from cascade_sim.models.features import FeatureView
from cascade_sim.phases.size_fit import with_size_rule
from cascade_sim.phases.traffic import Arrivals, ReplayedArrivals, ResampledArrivals
from cascade_sim.scenario.evidence import about_of, find_market, find_response
from cascade_sim.scenario.memory import require_memory
from cascade_sim.scenario.schema import (
    KNOWN,
    LOGGED,
    LOGGED_PRE,
    LOGGED_SCORE,
    ArmSpec,
    PreRanking,
    Ranking,
    Scenario,
    requests_by_phase,
)
from cascade_sim.world.fitted import FittedTruth, FittedWorld, ResampledReplay, open_response
from cascade_sim.world.observed import ObservedClicks
from cascade_sim.world.replay import LoggedWorld, Replay
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
        self.scorers: dict[str, Scorer] = {"random": RandomScorer(seed), "constant": ConstantScorer()}
        self._rates: dict[Scorer, Rates] = {}
        self.replay: Replay | None = None  # of a replayed log; None: the world is drawn
        self.fitted: ResampledReplay | None = None  # of a world fitted to a log
        if scenario.world.logged is not None:
            if scenario.world.logged.fitted is None:
                self._replay_log(workers)
            else:
                self._fitted_world(workers)
            self._built_in = tuple(self.scorers)
            return
        self.world = build_world(scenario.world, seed)
        self.truth: Truth | ObservedClicks = Truth(self.world, scenario.world)
        self.platform = Platform(
            retrieval=Retrieval(self.world, scenario.cascade.retrieval, scenario.world.popularity),
            bids=BidRules(self.world, scenario.world.conversion),
            slot_effects=self.world.slot_effects,
            lives=self.world.lives,
        )
        self.arrivals = Arrivals(self.world, scenario.traffic, workers, engine, requests_by_phase(scenario))
        self.scorers["truth"] = TruthScorer(self.truth)
        self._built_in = BUILT_IN
        assert set(self.scorers) == set(BUILT_IN)

    def _replay_log(self, workers: int) -> None:
        """A log in place of the world: its candidates, bids, predictions, requests and clicks."""
        scenario, seed = self.scenario, self.seed
        assert scenario.world.logged is not None
        place = find_market(scenario.world.logged.market, self.home)
        store = open_store(place or scenario.world.logged.market)
        about = store.about
        if about.level == "winners":
            raise UserError(
                f"{store.path.parent}: the log has the evidence level 'winners', so its auctions cannot be "
                "held "
                "again: all bids would have to be logged (candidates with stage ranked). `whatif` gives "
                "bounds "
                "for a higher reserve"
            )
        self.replay = Replay(store, Arrivals.first_request("evaluate"), scenario.traffic.block)
        self.truth = ObservedClicks(self.replay, seed, about.charging)
        self.world = LoggedWorld(self.replay, seed, self._logged_effects(self.truth, about.slots))
        self.platform = Platform(
            retrieval=LoggedRetrieval(self.replay),
            bids=LoggedBids(self.replay, self.world),
            slot_effects=self.world.slot_effects,
        )
        self.arrivals = ReplayedArrivals(
            self.replay, self.world, scenario.traffic, workers, scenario.auction.reserve_cpc
        )
        self._seat_logged(self.replay)

    def _fitted_world(self, workers: int) -> None:
        """A world fitted to a log: its requests drawn again, and a response in place of its clicks."""
        scenario, seed = self.scenario, self.seed
        logged = scenario.world.logged
        assert logged is not None and logged.fitted is not None
        place, folder = (
            find_market(logged.market, self.home),
            find_response(logged.fitted.response, self.home),
        )
        store = open_store(place or logged.market)
        seal = about_of(scenario.world, self.home)[1]
        response = open_response(folder or Path(logged.fitted.response), store, seal)
        self.fitted = ResampledReplay(store, response, logged.fitted.block, seed)
        self.truth = FittedTruth(self.fitted)
        self.world = FittedWorld(self.fitted, seed)
        self.platform = Platform(
            retrieval=LoggedRetrieval(self.fitted),
            bids=LoggedBids(self.fitted, self.world, lambda: response.whole("cvr").astype(np.float64)),
            slot_effects=self.world.slot_effects,
        )
        self.arrivals = ResampledArrivals(
            self.fitted, self.world, scenario.traffic, workers, scenario.auction.reserve_cpc
        )
        self.scorers["truth"] = TruthScorer(self.truth)
        self._seat_logged(self.fitted)

    def _seat_logged(self, replay: Replay) -> None:
        """The predictions that were logged, in seats."""
        store = replay.store
        about = store.about
        columns = {LOGGED: "pctr", LOGGED_PRE: "pre_score"}
        columns |= {f"{LOGGED_SCORE}{name}": f"score.{name}" for name in about.scores}
        for name, column in columns.items():
            if store.has(column):
                is_order = name == LOGGED_PRE and about.pre_score == "score"
                self.scorers[name] = LoggedScorer(name, replay, column, "none" if is_order else "sigmoid")

    def _logged_effects(self, clicks: ObservedClicks, slots: int) -> np.ndarray:
        """How often slots are looked at: as declared, else as the click model has it."""
        assert self.scenario.world.logged is not None
        declared = self.scenario.world.logged.slot_effects
        if declared is not None:
            return np.asarray(declared, np.float64)
        return np.ones(max(slots, 1)) if clicks.model is None else clicks.model.slot_effects()

    @property
    def is_drawn(self) -> bool:
        """Whether users and ads were drawn; else requests and candidates are those of a log."""
        return self.replay is None and self.fitted is None

    @property
    def built_in(self) -> tuple[str, ...]:
        """Those who sit in a stage without being trained."""
        return self._built_in

    def view(self, features: tuple[str, ...]) -> FeatureView:
        return self.world.view(features)

    @property
    def delays(self) -> DelayMixture | None:
        """How late conversions are; None where the scenario does not say."""
        if self.fitted is not None:
            own = self.fitted.response.about["delay"]
            return (
                None
                if own is None
                else DelayMixture(tuple(own["weights"]), tuple(own["means"]), own["window"])
            )
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
        auction = spec.auction
        fusion = named_fusion(section.fusion, self.scenario.fusions, auction.squashing, auction.charging)
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
        if self.replay is not None:
            return self._with_logged_sizes(arm)
        if spec.sizes is None:
            return arm

        def block_of(index: int, n_requests: int) -> Block:
            return self.arrivals.block("shadow", index, n_requests)

        return with_size_rule(arm, self.platform, spec.sizes, block_of, self.seed)

    def _with_logged_sizes(self, arm: Arm) -> Arm:
        """Of a replayed log: an arm of the size that was deployed hands on as many ads as were ranked then.

        Where these differ from request to request for other reasons than too few candidates.
        """
        assert self.replay is not None
        if arm.pre_ranking.scorer.name == "constant" or arm.pre_ranking_size != self._deployed_size:
            return arm
        return replace(arm, size_rule=cast(SizeRule, self._logged_sizes)) if self._logged_sizes else arm

    @property
    def _deployed_size(self) -> int:
        return self.scenario.cascade.pre_ranking.size

    @cached_property
    def _logged_sizes(self) -> LoggedSizes | None:
        assert self.replay is not None
        ranked = self.replay.ranked
        if int(ranked.max(initial=0)) != self._deployed_size:
            return None
        regular = np.minimum(np.diff(self.replay.store.first), self._deployed_size)
        return None if np.array_equal(ranked, regular) else LoggedSizes(self.replay)

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
            charging=spec.auction.charging,
            logged_reserves=spec.auction.logged_reserves,
        )

    def serve(self, block: Block, arm: Arm) -> Decision:
        return serve(block, arm, self.platform)
