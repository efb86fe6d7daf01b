"""A market in simulated time: traffic swells and ebbs, budgets run out, advertisers change their bids.

SimPy processes, which hold no state of their own; all of it is in `MarketRun` and what it is made of:
    traffic      cuts time into windows; the requests of a window are served with the bids and the
                 eligibility at its start, and settled in request order against the ledger
    deliveries   at the end of a window, clicks that have arrived are charged, holds that ended are released
    days         at midnight, when a window always ends, budgets are new
    bidding      every `update` seconds bidders see what came in and set new bids
    training     every `training.interval` seconds the models learn from what was shown and are redeployed
    checkpoints  every `checkpoint` seconds the whole state is handed out; `restore` goes on from it
Within a window blocks are ranked by several threads; settlement is sequential, so the log does not depend
on the number of workers.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import simpy

from cascade_sim.agents.bidding import Feedback, MarketTime
from cascade_sim.agents.traffic_profiles import expected_share
from cascade_sim.cascade.ledger import Ledger
from cascade_sim.cascade.serve import Arm, Block
from cascade_sim.foundation.workers import serving_threads
from cascade_sim.market.ad_server import MarketServer, SettledBlock
from cascade_sim.market.advertisers import BidderPopulation
from cascade_sim.market.live_shadow import LiveShadow
from cascade_sim.market.pending import PendingEvents
from cascade_sim.market.tally import MarketTally
from cascade_sim.market.trainer import make_trainer
from cascade_sim.market.visits import Audience
from cascade_sim.scenario.market import DAY, Market
from cascade_sim.storage.checkpoints import flat, nested
from cascade_sim.study.simulation import Simulation

COUNTED = ("impressions", "clicks", "spend_micros", "participated")


class MarketRun:
    """One arm's market over the simulated days."""

    def __init__(
        self,
        sim: Simulation,
        arm: Arm,
        spec: Market,
        *,
        workers: int = 1,
        is_watched: bool = False,
        on_block: Callable[[SettledBlock], None] = lambda settled: None,
        on_charges: Callable[[dict[str, np.ndarray]], None] = lambda charges: None,
        on_checkpoint: Callable[[dict[str, Any]], None] = lambda state: None,
    ):
        self.sim, self.spec = sim, spec
        self.on_block, self.on_charges, self.on_checkpoint = on_block, on_charges, on_checkpoint
        self.now = 0.0  # the end of the last window, exact; env.now is a sum of waits and rounds
        self.day = 0
        self.profile = sim.environment.traffic_profile(spec, sim.home)
        self.audience = Audience(sim, spec.users, self.profile, sim.home)
        self.ledger = Ledger(self._draw_budgets(), spec.charging.overspend)
        self.crowd = BidderPopulation(sim, spec.bidders, self.ledger.budget, sim.home)
        self.trainer = make_trainer(sim, arm, spec.training, spec.exploration)
        self.server = self._make_server()
        self.deliveries = PendingEvents()
        self.tally = MarketTally(self.crowd, self.ledger, spec, self.profile, sim.world)
        self.live_shadow = LiveShadow(spec, sim.seed, is_on=is_watched)
        self._workers = workers
        self._bids_due, self._checkpoint_due = spec.update, spec.checkpoint
        self._since = self._nothing()
        self._ask_for_bids()

    def _draw_budgets(self) -> np.ndarray:
        return self.sim.environment.budgets(self.spec.budgets)

    def _make_server(self) -> MarketServer:
        trainer = self.trainer
        return MarketServer(self.sim, trainer.arm, self.spec, self.audience, self.ledger, trainer.dumper)

    def _requests_until(self, end: float) -> Block:
        return self.audience.requests_until(end)

    def run(self) -> MarketTally:
        """Let the simulated days pass, from `now` on."""
        self.env = simpy.Environment(initial_time=self.now)
        # One worker is this thread: handing blocks to another and back costs more than it saves.
        with serving_threads(self._workers) if self._workers > 1 else nullcontext() as pool:
            self.window_over = self.env.event()
            for process in (self._arriving, self._days, self._bidding, self._training, self._checkpoints):
                self.env.process(process())
            done = self.env.process(self._traffic(pool))
            self.env.run(until=done)
        self.tally.took_part(self.now, self._since["participated"])
        self.tally.close(len(self.deliveries.clicks))
        return self.tally

    def _traffic(self, pool: ThreadPoolExecutor | None) -> Generator:
        """Serve the requests of each window when it is over, then let the others act on it."""
        yield self.env.timeout(0.0)  # the others first: they wait for windows
        for end in self._window_ends():
            yield self.env.timeout(max(0.0, end - self.env.now))
            began, self.now = self.now, end
            window = self._requests_until(end)
            for settled in self.server.serve(window, self._since["participated"], pool):
                self._book(settled)
            self.audience.end_window(end - began)
            over, self.window_over = self.window_over, self.env.event()
            over.succeed()
            yield self.env.timeout(0.0)  # after those who wait for the window

    def _window_ends(self) -> Iterator[float]:
        """Every `window` seconds since midnight, and at midnight: no window lives on two days' budgets."""
        for day in range(int(np.ceil(self.spec.days))):
            start, end = day * DAY, min(day + 1, self.spec.days) * DAY
            for i in range(int(np.ceil((end - start) / self.spec.window))):
                window_end = min(start + (i + 1) * self.spec.window, end)
                if window_end > self.now:
                    yield window_end

    def _arriving(self) -> Generator:
        """Charge clicks that have arrived, and release the holds that have ended."""
        while True:
            yield self.window_over
            holds = self.deliveries.holds.due(self.now)
            self.ledger.release(holds["advertiser"], holds["micros"])
            clicks = self.deliveries.clicks.due(self.now)
            if not len(clicks["time"]):
                continue
            clicks["charge"] = self.ledger.charge_late(clicks["advertiser"], clicks["cpc"])
            self._count(clicks["advertiser"], 1, "clicks")
            self._count(clicks["advertiser"], clicks["charge"], "spend_micros")
            self._charged(clicks)

    def _days(self) -> Generator:
        while True:
            yield self.window_over
            if self.now >= (self.day + 1) * DAY:
                self.tally.end_of_day()
                self.day += 1
                self.ledger.new_day()

    def _bidding(self) -> Generator:
        """Bidders observe and bid anew at the first end of a window after each update is due."""
        while True:
            yield self.window_over
            if self.now < self._bids_due:
                self.server.set_bids(self.bids, self.participation)  # some may have run dry
                continue
            self._bids_due = (np.floor(self.now / self.spec.update) + 1) * self.spec.update
            self.crowd.observe(self._feedback(), self._market_time())
            self.tally.took_part(self.now, self._since["participated"])
            self._since = self._nothing()
            self._ask_for_bids()
            self.tally.update(self.now, self.bids, self.participation)

    def _training(self) -> Generator:
        """Models are replaced at the first end of a window after each deployment is due."""
        while True:
            yield self.window_over
            if self.now >= self.trainer.due:
                self.trainer.train(self.now)
                self._deploy()

    def _deploy(self) -> None:
        self.server.arm, self.server.model_version = self.trainer.arm, self.trainer.version
        self.server.dumper = self.trainer.dumper

    def _checkpoints(self) -> Generator:
        """Last of all at the end of a window, when everything of it is booked."""
        while True:
            yield self.window_over
            if self.now >= self._checkpoint_due:
                self._checkpoint_due = (np.floor(self.now / self.spec.checkpoint) + 1) * self.spec.checkpoint
                self.on_checkpoint(self.state())

    def _market_time(self) -> MarketTime:
        day = int(self.now // DAY)
        share = float(expected_share(self.profile, day, self.now))
        return MarketTime(self.now, day, (self.now - day * DAY) / DAY, share)

    def _ask_for_bids(self) -> None:
        now = self._market_time()
        self.bids = self.crowd.bids(now, self.sim.world.n_ads)
        self.participation = self.crowd.participation(now, self.sim.world.n_advertisers)
        self.server.set_bids(self.bids, self.participation)

    def _book(self, settled: SettledBlock) -> None:
        """Write down what happened to these requests, and what will come of it."""
        shown, owner = settled.ads >= 0, settled.advertiser
        self.audience.saw(settled.block.users, shown.sum(axis=1))
        self._count(owner[shown], 1, "impressions")
        if self.spec.charging.click_delay > 0:
            self._expect_clicks(settled)
        else:
            self._count(owner[settled.clicks], 1, "clicks")
            self._count(owner[settled.clicks], settled.charges_micros[settled.clicks], "spend_micros")
        known = np.isfinite(settled.conversion_time)
        self.deliveries.conversions.add(time=settled.conversion_time[known], advertiser=owner[known])
        self.tally.add(settled)
        self.trainer.add(settled)
        self.live_shadow.add(settled, self.server)
        self.on_block(settled)

    def _charged(self, clicks: dict[str, np.ndarray]) -> None:
        """Write down clicks that were charged after their page."""
        self.tally.charge(clicks)
        self.on_charges(clicks)

    def _expect_clicks(self, settled: SettledBlock) -> None:
        """Clicks that will arrive, and what is held of the budgets until then."""
        owner, held = settled.advertiser, settled.held_micros
        window_ends = settled.block.times[:, None] + self.spec.charging.click_window
        holds = held > 0
        self.ledger.hold(owner[holds], held[holds])
        until = np.minimum(settled.click_time, window_ends)
        self.deliveries.holds.add(time=until[holds], advertiser=owner[holds], micros=held[holds])
        row, slot = np.nonzero(settled.clicks)
        self.deliveries.clicks.add(
            time=settled.click_time[row, slot], request=settled.block.requests[row], slot=slot,
            ad=settled.ads[row, slot], advertiser=owner[row, slot], cpc=settled.cpc_micros[row, slot],
        )  # fmt: skip

    def _count(self, advertiser: np.ndarray, amount, name: str) -> None:
        np.add.at(self._since[name], advertiser, amount)

    def _nothing(self) -> dict[str, np.ndarray]:
        return {name: np.zeros(self.sim.world.n_advertisers, np.int64) for name in COUNTED}

    def _feedback(self) -> Feedback:
        arrived = self.deliveries.conversions.due(self.now)["advertiser"]
        return Feedback(
            **self._since,
            conversions=np.bincount(arrived, minlength=self.sim.world.n_advertisers),
            spend_today_micros=self.ledger.spend_today(),
        )

    def state(self) -> dict[str, Any]:
        """Everything that changes, at the end of a window, as copies."""
        now = {
            "stages": np.array(self.server.arm.stage_names),  # what numbers of stages stand for
            "clock": np.array([self.now, self.day, self._bids_due, self._checkpoint_due]),
            "bids": self.bids,
            "participation": self.participation,
            "since": self._since,
            "compute": self.server.compute.state(),
            **{name: getattr(self, name).state() for name in STATEFUL},
        }
        return nested({name: value.copy() for name, value in flat(now).items()})

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of the same market; ValueError if it is of an arm with other stages."""
        if (stages := tuple(state["stages"].tolist())) != self.server.arm.stage_names:
            own = ", ".join(self.server.arm.stage_names)
            raise ValueError(f"its stages are {', '.join(stages)}; those of the arm are {own}")
        self.now, day, self._bids_due, self._checkpoint_due = (float(x) for x in state["clock"])
        self.day = int(day)
        self.bids, self.participation = np.array(state["bids"]), np.array(state["participation"])
        self._since = {name: np.array(state["since"][name]) for name in COUNTED}
        self.server.compute.restore(state.get("compute", {}))
        for name in STATEFUL:
            getattr(self, name).restore(state.get(name, {}))
        self._deploy()
        self.server.set_bids(self.bids, self.participation)


STATEFUL = ("audience", "ledger", "crowd", "deliveries", "tally", "trainer", "live_shadow")
