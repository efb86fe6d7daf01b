"""What a study needs of a world, whichever kind it is.

An environment says who comes, with which ads and bids they are served, what comes of a page, and how
decisions are measured. There are three: a synthetic world, a replayed log, and a world fitted to a log.

The truth stays inside: models are handed none of it, but for the scorer `truth` that a scenario may name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cascade_sim import protocols
from cascade_sim.agents.conversions import DelayMixture
from cascade_sim.agents.traffic_profiles import Profile
from cascade_sim.analysis.metrics.catalogue import Metric
from cascade_sim.cascade.ledger import NO_BUDGET
from cascade_sim.cascade.outcome import Outcome, outcome, seen
from cascade_sim.cascade.retrievers.similarity import Retriever
from cascade_sim.cascade.scorers import Scorer
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform
from cascade_sim.environments.arrivals import FIRST_REQUEST, Arrivals
from cascade_sim.environments.budget_replay import BudgetReplay
from cascade_sim.environments.clusters import Clusters
from cascade_sim.environments.evaluators.truth import true_value
from cascade_sim.environments.market_inputs import LoggedRequests, draw_budgets, traffic_profile
from cascade_sim.environments.names import Names
from cascade_sim.environments.page_columns import Log, block_of, by_request
from cascade_sim.environments.statement import Measured, Reproduced, Statement
from cascade_sim.environments.uncertainty.base import NoUncertainty, Uncertainty
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.replay.observed import ObservedClicks
from cascade_sim.scenario.capabilities import Capability
from cascade_sim.scenario.market import Budgets, Market
from cascade_sim.scenario.schema import Route, Scenario, requests_by_phase
from cascade_sim.world.truth import GroundTruth
from cascade_sim.world.world import World


class Environment(protocols.Environment[Block, Arm, Decision, Outcome, Clusters, Metric]):
    """The contract in the types of the cascade, with defaults for what a kind of world seldom changes."""

    world: World
    arrivals: Arrivals
    names: Names
    scorers: dict[str, Scorer]  # who may sit in a stage untrained, beside those that every world has
    reproduced: Reproduced | None = None  # of a log: how much of it comes out under its rule
    _truth: GroundTruth | ObservedClicks

    def __init__(self, scenario: Scenario, seed: int):
        self._scenario, self.spec, self.seed, self.names = scenario, scenario.world, seed, Names()

    @classmethod
    def of(cls, environment: Environment) -> Self:
        """The environment as one of this kind, for what is about it alone; UserError if it is another."""
        if not isinstance(environment, cls):
            raise UserError(f"expected a {cls.__name__.lower()} world, found a {environment.spec.kind} one")
        return environment

    def has(self, capability: Capability) -> bool:
        """Whether the world can be asked for it; `spec.require` has the words of the refusal."""
        return self.spec.has(capability)

    @abstractmethod
    def retriever(self, route: Route, find: Callable[[str], type[Any]]) -> Retriever:
        """Who brings candidates, made anew; `find` gives the class of a kind that is not built in."""

    @cached_property
    def platform(self) -> Platform:
        """The bids and the slots; made when they are first asked for."""
        return self._make_platform()

    @abstractmethod
    def _make_platform(self) -> Platform: ...

    @property
    def is_timed(self) -> bool:
        """Whether it matters when a request comes."""
        return self.world.is_timed

    @property
    def delays(self) -> DelayMixture | None:
        """How late conversions are; None where nothing says so."""
        late = self._scenario.world.conversion.delay
        return None if late is None else DelayMixture(late.weights, late.means, late.window)

    def outcome(self, block: Block, decision: Decision, charging: str = "click") -> Outcome:
        """What becomes of the pages of a block."""
        return outcome(block, decision, self._truth, self.world.slot_effects, self.seed, charging)

    def ctr(self, block: Block, ads: NDArray[np.int32]) -> NDArray[np.float64]:
        """Chances of a click in the first slot: for users and measures, never for models.  [R, m]"""
        return self._truth.ctr(block, ads)

    def cvr(self, block: Block, ads: NDArray[np.int32]) -> NDArray[np.float64]:
        """Chances that a click converts.  [R, m]"""
        return self._truth.cvr(block, ads)

    def expected_clicks(
        self, block: Block, row: NDArray[np.int64], is_own: NDArray[np.bool_], ad: int
    ) -> NDArray[np.float64]:
        """Clicks to be expected of an ad in its slot, alone: on pages of rows of a block.  [B, I, k]"""
        ctr = self.ctr(block, np.full((len(block), 1), ad, np.int32))[row, 0]
        return np.where(is_own, self.world.slot_effects[: is_own.shape[2]] * ctr[:, None], 0.0)

    def page_columns(self, log: Log, n_requests: int, charging: str) -> dict[str, NDArray[np.float64]]:
        """What logged pages brought, by what intervals resample.  {column: [rows]}

        Expected figures replace a click by its chance: slot effect * true CTR.
        """
        expected = self._expected(log)[1]
        return by_request(log, expected, n_requests, self.charged(log, expected, charging))

    def seen(self, block: Block, slots: int, charging: str) -> NDArray[np.float64]:
        """Chances that what is in the slots of pages is charged, where impressions are.  [R, slots]"""
        return seen(block, slots, self._truth, charging)

    def charged(self, log: Log, expected: NDArray[np.float64], charging: str) -> NDArray[np.float64]:
        """Chances that logged impressions are charged, with the expected clicks of each.  [n]"""
        if charging == "click":
            return expected
        chances = self.seen(block_of(log), int(log["slot"].max(initial=0)) + 1, charging)
        return chances[np.arange(len(chances)), log["slot"]]

    def _expected(self, log: Log) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """True CTRs of impressions in the first slot, and clicks to be expected of them.  [n], [n]"""
        ctr = self.ctr(block_of(log), log["ad"][:, None])[:, 0]
        return ctr, self.world.slot_effects[log["slot"]] * ctr

    def true_value(self, block: Block, ids: NDArray[np.int32], arm: Arm) -> NDArray[np.float64]:
        """True CTR * bid of an arm's ranking stage; -inf for what the auction would not admit.  [R, m]"""
        return true_value(block, ids, arm, self.platform, self._truth)

    def block_of(self, index: int) -> Block:
        """The block that holds a request of the evaluation, with the times that a run has logged.

        All arrivals since the beginning pass by once more, unserved.
        """
        phases, wanted = requests_by_phase(self._scenario), FIRST_REQUEST["evaluate"] + index
        again = Arrivals(self.world, self._scenario.traffic, phases=phases)
        holders: list[Block] = []

        def look(block: Block, _: None) -> None:
            if block.requests[0] <= wanted <= block.requests[-1]:
                holders.append(block)

        for phase, count in phases.items():
            again.run_phase(phase, count, serve=lambda block: None, finish=look)
        (block,) = holders
        return block

    def absent(self, ad: int, request: int | str, n_there: int) -> str:
        """Why an ad is none of the corpus of a request, in words."""
        return f"ad {self.names.name('ads', ad)} is not there when request {request} comes (world.churn)"

    def logged_page(self, block: Block) -> dict[int, tuple[int, int]] | None:
        """What the world's own log shows to one request: {slot: (ad, price or -1)}; None without one."""
        return None

    def clusters(self, n_requests: int) -> Clusters | None:
        """What intervals resample; None: requests, which are independent."""
        return None

    def uncertainty(self, n_requests: int) -> Uncertainty:
        """How uncertain what was fitted leaves an evaluation of so many requests."""
        return NoUncertainty()

    def statement(self, measured: Measured) -> Statement:
        """What answers from an evaluation rest on."""
        return Statement()

    def model_quality(self, scorers: Mapping[str, Scorer]) -> dict[str, dict[str, Any]]:
        """How well predictions fit observed clicks: {model: {measure: {"value", "low", "high"}}}."""
        return {}

    def budget_replay(self) -> BudgetReplay | None:
        """The budgets that an evaluation replays; None where none are known, or they are to be ignored."""
        return None

    def traffic_profile(self, spec: Market, home: Path) -> Profile:
        """When requests of a market are to be expected."""
        return traffic_profile(spec, home)

    def budgets(self, spec: Budgets | None) -> NDArray[np.int64]:
        """Daily budgets of a market, NO_BUDGET for all without a section.  [advertisers] micro-units"""
        if spec is None:
            return np.full(self.world.n_advertisers, NO_BUDGET, np.int64)
        return draw_budgets(spec, self.world.n_advertisers, self.seed)

    def visits(self) -> LoggedRequests | None:
        """The requests of a market where the world has them; None: the market draws them."""
        return None

    def with_logged_sizes(self, arm: Arm) -> Arm:
        """The arm, with what the world knows of how many ads it hands on."""
        return arm
