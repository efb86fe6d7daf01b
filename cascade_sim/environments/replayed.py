"""A log that is replayed: its candidates, bids, predictions, requests and clicks in place of a world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES, PAGE_MEASURES, REPLAY_MEASURES, Metric
from cascade_sim.auction import MICROS
from cascade_sim.cascade.logged import LoggedBids, LoggedRetrieval, LoggedSizes
from cascade_sim.cascade.scorers import Scorer
from cascade_sim.cascade.serve import Arm, Block, Platform
from cascade_sim.cascade.sizes import SizeRule
from cascade_sim.environments.arrivals import FIRST_REQUEST, ReplayedArrivals
from cascade_sim.environments.base import Environment
from cascade_sim.environments.budget_replay import BudgetReplay
from cascade_sim.environments.clusters import Clusters, resampling_units
from cascade_sim.environments.evaluators.log import LogEvaluator
from cascade_sim.environments.logs import logged_scorers, store_of
from cascade_sim.environments.names import LoggedNames
from cascade_sim.environments.page_columns import Log, block_of, local, summed
from cascade_sim.environments.statement import Measured, Statement, log_statement, model_quality
from cascade_sim.environments.uncertainty.click_model import ClickModelUncertainty
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.replay.budgets import LoggedBudgets
from cascade_sim.logs.replay.observed import ObservedClicks
from cascade_sim.logs.replay.replay import LoggedWorld, Replay
from cascade_sim.scenario.schema import Route, Scenario
from cascade_sim.scenario.sections import ReplayedLog


class Replayed(Environment):
    """Logged auctions, re-run under other settings."""

    def __init__(self, scenario: Scenario, seed: int, logged: ReplayedLog, workers: int, home: Path):
        super().__init__(scenario, seed)
        self._logged, store = logged, store_of(logged, home)
        self._clusters: dict[int, Clusters] = {}  # by the number of requests
        about = store.about
        if about.level == "winners":
            raise UserError(
                f"{store.path.parent}: the log completeness is 'winners', so its auctions cannot be "
                "re-run: all bids would have to be logged (candidates with stage ranked). `whatif` gives "
                "bounds for a higher reserve"
            )
        self.replay = Replay(store, FIRST_REQUEST["evaluate"], scenario.traffic.block)
        self.names, self.charging = LoggedNames(store), about.charging
        self._truth: ObservedClicks = ObservedClicks(self.replay, seed, about.charging)
        self.world: LoggedWorld = LoggedWorld(self.replay, seed, self._slot_effects(about.slots))
        self.arrivals = ReplayedArrivals(
            self.replay, self.world, scenario.traffic, workers, scenario.auction.reserve_cpc
        )
        self.scorers = logged_scorers(self.replay)

    def _slot_effects(self, slots: int) -> NDArray[np.float64]:
        """How often slots are looked at: as declared, else as the click model has it."""
        declared, model = self._logged.slot_effects, self._truth.model
        if declared is not None:
            return np.asarray(declared, np.float64)
        return np.ones(max(slots, 1)) if model is None else model.slot_effects()

    def retriever(self, route: Route, find: Callable[[str], type[Any]]) -> LoggedRetrieval:
        return LoggedRetrieval(self.replay)

    def _make_platform(self) -> Platform:
        return Platform(
            bids=LoggedBids(self.replay, self.world),
            slot_effects=self.world.slot_effects,
        )

    def corpus(self, block: Block) -> NDArray[np.int32]:
        ids = self.replay.candidates(block.requests)[0]
        return ids[ids >= 0]

    @property
    def is_timed(self) -> bool:
        return True

    def block_of(self, index: int) -> Block:
        size = self._scenario.traffic.block
        return self.arrivals.block("evaluate", index // size, self._scenario.phases.evaluate)

    def absent(self, ad: int, request: int | str, n_there: int) -> str:
        return (
            f"ad {self.names.name('ads', ad)} is not among the {n_there} logged candidates of request "
            f"{request}, so nothing is known of what it bid there"
        )

    def logged_page(self, block: Block) -> dict[int, tuple[int, int]]:
        ids = self.replay.candidates(block.requests)
        slot, price = self.replay.several(block.requests, ids, {"slot": -1, "price_micros": -1})
        found = zip(slot[0], ids[0], price[0], strict=True)
        return {int(s): (int(ad), int(p)) for s, ad, p in found if s >= 0}

    def expected_clicks(
        self, block: Block, row: NDArray[np.int64], is_own: NDArray[np.bool_], ad: int
    ) -> NDArray[np.float64]:
        """Logged ones or, where it was not shown there, modelled."""
        alone = np.where(is_own, np.int32(ad), np.int32(-1)).reshape(-1, is_own.shape[2])
        asked = block.take(np.tile(row, len(is_own)))
        return self._truth.page_clicks(asked, alone).expected.reshape(is_own.shape)

    def page_columns(self, log: Log, n_requests: int, charging: str) -> dict[str, NDArray[np.float64]]:
        clusters = self.clusters(n_requests)
        pages = self._truth.page_clicks(
            block_of(log), log["ad"][:, None], log["slot"][:, None].astype(np.int16)
        )
        row = clusters.of_request[local(log)]
        charged = self.charged(log, pages.expected[:, 0], charging)
        made = summed(log, pages.expected[:, 0], row, clusters.n, charged)
        made["requests"] = np.bincount(clusters.of_request, minlength=clusters.n) * 1.0
        if pages.said is None:
            return {name: column for name, column in made.items() if "clicks" not in name}
        price = (log["cpc_micros"] / MICROS * (charging == "click"))[:, None]
        unsure = self.uncertainty(n_requests)
        kept = unsure.kept(block_of(log), log["ad"][:, None], pages, price)
        return unsure.widened({"": made}, {"": kept.flat}, clusters)[""]

    def evaluator(self, baseline: Arm, exposed: NDArray[np.bool_]) -> LogEvaluator:
        return LogEvaluator(self.platform, self._truth, self.replay, self.world.n_ads)

    def measures(self, columns: set[str]) -> Mapping[str, Metric]:
        """Those that need no ground truth."""
        every = {**ARM_MEASURES, **PAGE_MEASURES, **REPLAY_MEASURES}
        return {
            name: metric for name, metric in every.items() if metric.is_ratio and {*metric.parts} <= columns
        }

    def clusters(self, n_requests: int) -> Clusters:
        if n_requests not in self._clusters:
            how = self._logged.resample
            found = resampling_units(self.replay.store, n_requests, how, self.seed)
            self._clusters[n_requests] = found
        return self._clusters[n_requests]

    def uncertainty(self, n_requests: int) -> ClickModelUncertainty:
        return ClickModelUncertainty(self._truth, self.replay.store.n_requests)

    def statement(self, measured: Measured) -> Statement:
        assert measured.clusters is not None
        return log_statement(self.replay.store, self._truth, measured.clusters, measured, self.reproduced)

    def model_quality(self, scorers: Mapping[str, Scorer]) -> dict[str, dict[str, Any]]:
        effects = self.world.slot_effects
        return model_quality(self.replay.store, self._truth.model, scorers, effects, self.seed)

    def budget_replay(self) -> BudgetReplay | None:
        store = self.replay.store
        if store.budgets is None or self._logged.budgets == "ignore":
            return None
        return BudgetReplay(self, self.replay, LoggedBudgets(store))

    def with_logged_sizes(self, arm: Arm) -> Arm:
        """An arm of the size that was deployed hands on as many ads as were ranked then.

        Where these differ from request to request for other reasons than too few candidates.
        """
        if arm.stages[-2].scorer.name == "constant" or arm.most_auctioned != self._deployed_size:
            return arm
        sizes = self._logged_sizes
        return arm.with_stage(-2, size_rule=cast(SizeRule, sizes)) if sizes else arm

    @property
    def _deployed_size(self) -> int:
        return self._scenario.cascade.pre_ranking.size

    @cached_property
    def _logged_sizes(self) -> LoggedSizes | None:
        ranked = self.replay.ranked
        if int(ranked.max(initial=0)) != self._deployed_size:
            return None
        regular = np.minimum(np.diff(self.replay.store.first), self._deployed_size)
        return None if np.array_equal(ranked, regular) else LoggedSizes(self.replay)
