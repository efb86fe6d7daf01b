"""A market in simulated time: traffic swells and ebbs, budgets run out, advertisers change their bids.

SimPy processes, all state in `MarketRun`:
    traffic   cuts time into windows; the requests of a window are served with the bids and the
              eligibility at its start, and settled in request order against the ledger
    bidding   every `update` seconds bidders see what came in and set new bids
    days      at midnight, when a window always ends, budgets are new
    progress  is told after each window
Within a window blocks are scored by several threads; settlement is sequential, so the log does not depend
on the number of workers.
"""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import simpy

from agents.bidding import Feedback, Moment
from agents.conversions import delays
from agents.traffic import visitors
from agents.traffic_profiles import Profile, arrivals, constant, daily, expected_share, hourly
from agents.users import happens
from cascade_sim import draws
from cascade_sim.advertising import Crowd, Ledger, draw_budgets
from cascade_sim.cascade import Arm, Block, serve
from cascade_sim.errors import UserError
from cascade_sim.market import PHASES
from cascade_sim.market_tally import MarketTally
from cascade_sim.scenario_market import DAY, Market, find_profile
from cascade_sim.settlement import Pages, RankedLists, empty_pages, settle
from cascade_sim.simulation import Simulation

GAPS_AT_ONCE = 4096


@dataclass(frozen=True)
class Settled:
    """A block with its pages, for the log and the tally."""

    block: Block
    lists: RankedLists
    pages: Pages
    expected_clicks: np.ndarray  # [R, k]
    conversions: np.ndarray  # [R, k] bool, whenever they arrive


class MarketRun:
    """One arm's market over the simulated days."""

    def __init__(
        self,
        sim: Simulation,
        arm: Arm,
        spec: Market,
        *,
        workers: int = 1,
        on_block: Callable[[Settled], None] = lambda settled: None,
    ):
        self.sim, self.arm, self.spec, self.on_block = sim, arm, spec, on_block
        self.env = simpy.Environment()
        self.now = 0.0  # the end of the last window, exact; env.now is a sum of waits and rounds
        self.profile = traffic_profile(spec, sim.home)
        self.ledger = Ledger(draw_budgets(spec.budgets, sim.world.n_advertisers, sim.seed))
        self.crowd = Crowd(sim, spec.bidders, self.ledger.budget, sim.home)
        self.tally = MarketTally(self.crowd, self.ledger, spec, self.profile)
        self._workers = workers
        self._times, self._level, self._n_drawn = np.zeros(0), 0.0, 0  # arrivals not yet served
        self._n_served = 0
        self._converted = (np.zeros(0), np.zeros(0, np.int64))  # arrival time and advertiser, still to come
        self._since: dict[str, np.ndarray] = {}
        self._reset_feedback()
        self._set_bids()

    def run(self) -> MarketTally:
        """Let the simulated days pass."""
        with ThreadPoolExecutor(self._workers) as pool:
            self.window_over = self.env.event()
            self.env.process(self._days())
            self.env.process(self._bidding())
            done = self.env.process(self._traffic(pool))
            self.env.run(until=done)
        self.tally.close()
        return self.tally

    def _traffic(self, pool: ThreadPoolExecutor) -> Generator:
        """Serve the requests of each window when it is over, then let the others act on it."""
        for end in self._window_ends():
            yield self.env.timeout(max(0.0, end - self.env.now))
            self.now = end
            self._serve_window(self._requests_until(end), pool)
            over, self.window_over = self.window_over, self.env.event()
            over.succeed()
            yield self.env.timeout(0.0)  # after those who wait for the window

    def _window_ends(self) -> Iterator[float]:
        """Every `window` seconds since midnight, and at midnight: no window lives on two days' budgets."""
        for day in range(int(np.ceil(self.spec.days))):
            start, end = day * DAY, min(day + 1, self.spec.days) * DAY
            for i in range(int(np.ceil((end - start) / self.spec.window))):
                yield min(start + (i + 1) * self.spec.window, end)

    def _days(self) -> Generator:
        day = 0
        while True:
            yield self.window_over
            if self.now >= (day + 1) * DAY:
                self.tally.end_of_day()
                day += 1
                self.ledger.new_day()

    def _bidding(self) -> Generator:
        """Bidders observe and bid anew at the first end of a window after each update is due."""
        due = self.spec.update
        while True:
            yield self.window_over
            if self.now < due:
                self._bar_empty()
                continue
            due = (np.floor(self.now / self.spec.update) + 1) * self.spec.update
            self.crowd.observe(self._feedback(), self._moment())
            self._reset_feedback()
            self._set_bids()
            self.tally.update(self.now, self.bids, self.sim.world)

    def _moment(self) -> Moment:
        now = self.now
        day = int(now // DAY)
        return Moment(now, day, (now - day * DAY) / DAY, float(expected_share(self.profile, day, now)))

    def _set_bids(self) -> None:
        moment = self._moment()
        self.bids = self.crowd.bids(moment, self.sim.world.n_ads)
        self.participation = self.crowd.participation(moment, self.sim.world.n_advertisers)
        self._bar_empty()

    def _bar_empty(self) -> None:
        """Ads of an advertiser with nothing left bid 0 in the next window: retrieved, but never shown."""
        can_pay = self.ledger.remaining[self.sim.world.advertiser] > 0
        effects = self.sim.platform.slot_effects
        padded = np.concatenate(
            [effects, np.full(max(0, self.arm.pre_ranking_size - len(effects)), effects[-1])]
        )
        self.platform = replace(
            self.sim.platform,
            bids=self.sim.platform.bids.with_bids(np.where(can_pay, self.bids, 0.0)),
            slot_effects=padded,
        )

    def _requests_until(self, end: float) -> np.ndarray:
        """Arrival times of the requests before `end` that were not served yet."""
        while not len(self._times) or self._times[-1] < end:
            ids = PHASES["market"] + np.arange(self._n_drawn, self._n_drawn + GAPS_AT_ONCE)
            gaps = draws.exponential(self.sim.seed, "arrival", ids)
            times, levels = arrivals(gaps, self.profile, self._level)
            self._times, self._level = np.concatenate([self._times, times]), float(levels[-1])
            self._n_drawn += GAPS_AT_ONCE
        n = int(np.searchsorted(self._times, end))
        now, self._times = self._times[:n], self._times[n:]
        return now

    def _serve_window(self, times: np.ndarray, pool: ThreadPoolExecutor) -> None:
        size, seed = self.sim.scenario.traffic.block, self.sim.seed
        requests = PHASES["market"] + self._n_served + np.arange(len(times))
        self._n_served += len(times)
        window = Block(
            requests=requests,
            users=visitors(draws.uniform(seed, "visitor", requests), self.sim.world.activity),
            context=draws.normal(seed, "context", requests).astype(np.float32),
            times=times,
        )
        blocks = [window.take(slice(start, start + size)) for start in range(0, len(times), size)]
        depth = min(max(self.spec.depth, self.arm.slots + 1), self.arm.pre_ranking_size)
        for block, lists in zip(blocks, pool.map(lambda b: self._rank(b, depth), blocks), strict=True):
            self._settle_block(block, lists)

    def _rank(self, block: Block, depth: int) -> RankedLists:
        """The cascade's order for each request, `depth` deep. Pure."""
        sim, arm = self.sim, self.arm
        decision = serve(block, replace(arm, slots=depth - 1), self.platform)
        ads = decision.ranked_set
        owner = sim.world.advertiser[np.maximum(ads, 0)]
        in_auction = decision.competitive_set
        entrants = sim.world.advertiser[np.maximum(in_auction, 0)]
        enters = (in_auction >= 0) & (self.platform.bids.init_bid[in_auction] > 0)
        enters &= self._takes_part(block, entrants)
        return RankedLists(
            ads=ads,
            bid=decision.ranked_bid,
            quality=decision.ranked_quality.astype(np.float64),
            true_ctr=sim.truth.ctr(block, ads),
            click_luck=draws.uniform(sim.seed, "click", block.requests[:, None], ads),
            is_in=self._takes_part(block, owner),
            is_cut=np.full(len(block), depth < arm.pre_ranking_size),
            entrants=np.where(enters, entrants, -1),
        )

    def _takes_part(self, block: Block, advertiser: np.ndarray) -> np.ndarray:
        """Whether these advertisers [R, m] take part: one draw a request for all ads of an advertiser."""
        share = self.participation[advertiser]
        takes_part = np.ones(share.shape, bool)
        row, place = np.nonzero(share < 1)
        if len(row):
            luck = draws.uniform(self.sim.seed, "participation", block.requests[row], advertiser[row, place])
            takes_part[row, place] = luck < share[row, place]
        return takes_part

    def _settle_block(self, block: Block, lists: RankedLists) -> None:
        arm, start = self.arm, 0
        effects = self.sim.platform.slot_effects[: arm.slots]
        while start < len(block):
            pages = empty_pages(len(block), arm.slots)
            stopped = settle(
                lists, self.sim.world.advertiser, self.ledger.remaining, self._since["participated"], pages,
                pricing=arm.pricing, reserve_cpc=arm.reserve_cpc, score_floor=arm.score_floor,
                slot_effects=effects, start=start,
            )  # fmt: skip
            self._book(block, lists, pages, slice(start, stopped))
            start = stopped
            if start < len(block):
                # So deep that nothing is cut off: at most once a block. The whole block, since what a
                # net predicts may differ in the last bit with the number of requests beside it.
                lists = self._rank(block, arm.pre_ranking_size)

    def _book(self, block: Block, lists: RankedLists, pages: Pages, rows: slice) -> None:
        """Write down what happened to these requests."""
        part = block.take(rows)
        lists = RankedLists(**{k: v[rows] for k, v in vars(lists).items()})
        pages = Pages(**{k: v[rows] for k, v in vars(pages).items()})
        if not len(part):
            return
        shown, column = pages.column >= 0, np.maximum(pages.column, 0)
        effects = self.sim.platform.slot_effects[: self.arm.slots]
        expected = np.where(shown, effects * np.take_along_axis(lists.true_ctr, column, 1), 0.0)
        ads = np.where(shown, np.take_along_axis(lists.ads, column, 1), -1)
        conversions = self._convert(part, ads, pages.clicks)
        owner = self.sim.world.advertiser[np.maximum(ads, 0)]
        n = self.sim.world.n_advertisers
        self._since["impressions"] += np.bincount(owner[shown], minlength=n)
        self._since["clicks"] += np.bincount(owner[pages.clicks], minlength=n)
        spent = np.zeros(n, np.int64)
        np.add.at(spent, owner[pages.clicks], pages.charges_micros[pages.clicks])
        self._since["spend_micros"] += spent
        settled = Settled(part, lists, pages, expected, conversions)
        self.tally.add(settled, owner, ads)
        self.on_block(settled)

    def _convert(self, block: Block, ads: np.ndarray, clicks: np.ndarray) -> np.ndarray:
        """Which clicks convert; the news of it arrives after a delay."""
        conversions = np.zeros(clicks.shape, bool)
        row, slot = np.nonzero(clicks)
        if not len(row):
            return conversions
        seed, clicked = self.sim.seed, block.take(row)
        ad = ads[row, slot][:, None]
        ids = (clicked.requests[:, None], ad)
        bought = happens(self.sim.truth.cvr(clicked, ad), draws.uniform(seed, "conversion", *ids))[:, 0]
        conversions[row, slot] = bought
        wait = delays(draws.uniform(seed, "delay kind", *ids), draws.uniform(seed, "delay", *ids))[:, 0]
        known = bought & np.isfinite(wait)
        times, owner = self._converted
        self._converted = (
            np.concatenate([times, (clicked.times + wait)[known]]),
            np.concatenate([owner, self.sim.world.advertiser[ad[known, 0]]]),
        )
        return conversions

    def _reset_feedback(self) -> None:
        n = self.sim.world.n_advertisers
        names = ("impressions", "clicks", "spend_micros", "participated")
        self._since = {name: np.zeros(n, np.int64) for name in names}

    def _feedback(self) -> Feedback:
        times, owner = self._converted
        arrived = times <= self.now
        self._converted = (times[~arrived], owner[~arrived])
        return Feedback(
            **self._since,
            conversions=np.bincount(owner[arrived], minlength=self.sim.world.n_advertisers),
            spend_today_micros=self.ledger.spend_today(),
        )


def traffic_profile(spec: Market, home: Path = Path(".")) -> Profile:
    """The profile a market names: constant, daily, or a file of hours."""
    if spec.profile == "constant":
        return constant(spec.requests_per_second)
    if spec.profile == "daily":
        return daily(spec.requests_per_second)
    file = find_profile(spec.profile, home)
    if file is None:
        raise UserError(f"market.profile: {spec.profile} is not constant, daily or a file")
    try:
        return hourly(file, spec.requests_per_second)
    except ValueError as error:
        raise UserError(f"market.profile: {error}") from error
