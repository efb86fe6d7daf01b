"""How a market serves the requests of a window: rank in parallel, then settle in request order.

`rank` is pure, so blocks are ranked by several threads with the bids and the eligibility at the window's
start. Pages, clicks and charges then follow one request after the other against the ledger.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from cascade_sim.agents.conversions import DEFAULT_MIXTURE, click_delays
from cascade_sim.agents.users import happens
from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cascade.exploration import random_page
from cascade_sim.cascade.ledger import Ledger, take
from cascade_sim.cascade.links import dumper_of
from cascade_sim.cascade.outcome import conversion_delays
from cascade_sim.cascade.randomisation import reserve_of
from cascade_sim.cascade.retrievers.routes import route_names
from cascade_sim.cascade.scorers import ModelScorer
from cascade_sim.cascade.serve import Arm, Block, bids, score, serve
from cascade_sim.cascade.timeout import BY_RETRIEVAL
from cascade_sim.environments.arrivals import serve_block
from cascade_sim.foundation import random as draws
from cascade_sim.market.compute import MarketCompute
from cascade_sim.market.settlement import ListedPages, RankedLists, list_pages
from cascade_sim.market.visits import Audience
from cascade_sim.scenario.market import DAY, Market
from cascade_sim.study.simulation import Simulation

UNDER_WAY = 16  # blocks ranked ahead of settlement: enough for the workers, few enough for the memory


@dataclass(frozen=True)
class SettledBlock:
    """Requests with their pages and what comes of them. [R, k] in slot order; ad -1 is an empty slot."""

    block: Block
    lists: RankedLists
    ads: np.ndarray
    advertiser: np.ndarray  # of an empty slot: any
    bid: np.ndarray
    quality: np.ndarray
    prediction: np.ndarray
    raw_score: np.ndarray | None  # dumped beside the prediction, NaN where that says it all; None: never
    cpc_micros: np.ndarray
    expected_clicks: np.ndarray
    clicks: np.ndarray  # bool, whenever they arrive
    click_time: np.ndarray  # seconds; infinite without a click
    conversions: np.ndarray  # bool, whenever they arrive
    conversion_time: np.ndarray  # seconds; infinite without one, or where it is never observed
    charges_micros: np.ndarray  # charged at once
    held_micros: np.ndarray  # taken off what is available until the click arrives or its window ends
    model_version: np.ndarray  # [R] int32: which deployment of the models decided
    routes: np.ndarray | None = None  # [R, k, routes] whether each brought the ad; None: none are merged


class MarketServer:
    """One arm's server. `set_bids` before every window; `serve` settles against the ledger."""

    def __init__(
        self,
        sim: Simulation,
        arm: Arm,
        spec: Market,
        audience: Audience,
        ledger: Ledger,
        dumper: ModelScorer | None = None,
    ):
        """dumper: who scores shown ads for models to learn beside; None: the arm's own ranker."""
        self.sim, self.arm, self.spec, self.dumper = sim, arm, spec, dumper
        self._audience, self._ledger = audience, ledger
        self.model_version = 0  # the arm's models may be replaced between windows
        self.compute = MarketCompute(spec.compute, arm, spec.days * DAY, sim.seed)
        self.routes = route_names(arm.retrieval.retriever)  # that are merged

    def set_bids(self, bids: np.ndarray, participation: np.ndarray) -> None:
        """The bids [A] and the probabilities of taking part [advertisers] of the next window.

        Ads of an advertiser with nothing available bid 0: they are never shown, and a retriever that looks at
        bids brings them last.
        """
        self.participation = participation
        can_pay = self._ledger.available[self.sim.world.advertiser] > 0
        effects = self.sim.platform.slot_effects
        padded = np.concatenate(
            [effects, np.full(max(0, self.arm.most_auctioned - len(effects)), effects[-1])]
        )
        self.platform = replace(
            self.sim.platform,
            bids=self.sim.platform.bids.with_bids(np.where(can_pay, bids, 0.0)),
            slot_effects=padded,
        )

    def serve(
        self, window: Block, took_part: np.ndarray, pool: ThreadPoolExecutor | None
    ) -> Iterator[SettledBlock]:
        """Settle the requests of a window, piece by piece in request order; without a pool in this thread.

        `took_part` [advertisers] grows by the requests an advertiser took part in.
        """
        size, n = self.sim.scenario.traffic.block, len(window)
        blocks = [window.take(slice(start, start + size)) for start in range(0, n, size)]
        served_by_stage = self.begin_window(blocks, pool)
        for block, lists in self._ranked(blocks, self.list_depth, served_by_stage, pool):
            yield from self._settle(block, lists, took_part)

    def begin_window(self, blocks: list[Block], pool: ThreadPoolExecutor | None) -> list[np.ndarray | None]:
        """The sizes of this window, and for each block the last stage that each request has time for."""
        self.arm = self.compute.arm_now(self.arm)
        return self.compute.served_by_stage(blocks, self.arm, self.platform, pool)

    def _ranked(
        self,
        blocks: list[Block],
        depth: int,
        served_by_stage: list[np.ndarray | None],
        pool: ThreadPoolExecutor | None,
    ) -> Iterator[tuple[Block, RankedLists]]:
        """Blocks with their lists, in order; a few at a time are under way."""
        pending: deque[tuple[Block, Future]] = deque()
        for block, answered in zip(blocks, served_by_stage, strict=True):
            if pool is None:
                yield block, self._rank_or_name(block, depth, answered)
                continue
            pending.append((block, pool.submit(self._rank_or_name, block, depth, answered)))
            if len(pending) >= UNDER_WAY:
                first, lists = pending.popleft()
                yield first, lists.result()
        for block, lists in pending:
            yield block, lists.result()

    def _rank_or_name(self, block: Block, depth: int, answered: np.ndarray | None) -> RankedLists:
        """As `rank`; an error says which requests it came with."""
        return serve_block("market", block, lambda whole: self.rank(whole, depth, answered))

    def rank(self, block: Block, depth: int, served_by_stage: np.ndarray | None = None) -> RankedLists:
        """The cascade's order for each request, `depth` deep; a random one for explored requests. Pure.

        `served_by_stage` [R]: the last stage that each request had time for; None: ranking, for all.
        """
        arm, world = self.arm, self.sim.world
        by_last = len(arm.stages)  # its place in `stage_names`
        block, slots, reserve = self._own_parameters(block)
        if self.routes:
            block = replace(block, memo=BlockCache())  # each route is asked once
        decision = serve(block, replace(arm, slots=depth - 1), self.platform, served_by_stage)
        answers = np.full(len(block), by_last, np.int8) if served_by_stage is None else served_by_stage
        ads, bid = decision.ranked_set.copy(), decision.ranked_bid.copy()
        quality = decision.ranked_quality.astype(np.float64)
        prediction = decision.ranked_pctr.astype(np.float64)
        in_auction = decision.competitive_set
        entrants = world.advertiser[np.maximum(in_auction, 0)]
        enters = (in_auction >= 0) & (self.platform.bids.init_bid[in_auction] > 0)
        enters &= self._takes_part(block, entrants)
        is_cut = np.full(len(block), depth < arm.most_auctioned)
        is_explored = self._is_explored(block) & (answers >= BY_RETRIEVAL)
        rows = np.nonzero(is_explored)[0]
        if len(rows):
            asked = block.take(rows)
            may_show = self._may_explore(asked, self._pool(asked, decision.retrieved[rows]))
            ads[rows] = random_page(block.requests[rows], may_show, depth, self.sim.seed)[:, :depth]
            rank = score(block.take(rows), ads[rows], arm.last, arm, self.platform)
            there = ads[rows] >= 0
            bid[rows], quality[rows] = np.where(there, rank.bid, 0.0), np.where(there, rank.quality, 0.0)
            prediction[rows] = np.where(there, rank.prediction, 0.0)
        is_auctioned = ~is_explored & (answers > BY_RETRIEVAL)
        enters &= is_auctioned[:, None]
        return RankedLists(
            ads=ads,
            bid=bid,
            quality=quality,
            prediction=prediction,
            is_in=self._takes_part(block, world.advertiser[np.maximum(ads, 0)]) & (bid > 0),
            is_cut=is_cut,
            is_auctioned=is_auctioned,
            is_explored=is_explored,
            served_by_stage=answers,
            raw_score=self._raw_scores(block, ads, is_explored | (answers == by_last)),
            entrants=np.where(enters, entrants, -1),
            routes=self._routes_of(block, ads),
            slots=slots,
            reserve=reserve,
        )

    def _own_parameters(self, block: Block) -> tuple[Block, np.ndarray | None, np.ndarray | None]:
        """The block to be ranked deeper than its pages, and what requests of a log have of their own: [R]."""
        if block.parameters is None:
            return block, None, None
        reserve = reserve_of(block, self.arm)
        listed = replace(block, parameters=replace(block.parameters, slots=None))
        return listed, block.parameters.slots, reserve if isinstance(reserve, np.ndarray) else None

    def _routes_of(self, block: Block, ads: np.ndarray) -> np.ndarray | None:
        """Whether each of the routes brought these ads.  [R, D, routes] bool; None without merged routes"""
        if not self.routes:
            return None
        brought, none = self.sim.brought_by(block, self.arm, ads, self.platform), np.zeros(ads.shape, bool)
        return np.stack([brought.get(name, none) for name in self.routes], axis=2)

    @property
    def dumps(self) -> bool:
        """Whether shown ads have raw scores beside their predictions."""
        return self._dumper is not None

    @property
    def _dumper(self) -> ModelScorer | None:
        return dumper_of(self.arm.last.scorer) if self.dumper is None else self.dumper

    def _raw_scores(self, block: Block, ads: np.ndarray, is_ranked: np.ndarray) -> np.ndarray:
        """What is dumped of these ads [R, D] of requests that ranking had time for [R]; NaN for all else."""
        if self._dumper is None:
            return np.broadcast_to(np.float32(np.nan), ads.shape)
        score = self._dumper.checked_logit(block, ads)
        return np.where(is_ranked[:, None] & (ads >= 0), score, np.float32(np.nan))

    def _pool(self, block: Block, retrieved: np.ndarray) -> np.ndarray:
        """What random pages are drawn from.  [R, n] ad ids, ascending"""
        if self.spec.exploration_pool == "retrieved":
            return retrieved
        size, lives = self.arm.retrieval.size, self.platform.lives
        return np.asarray(self.sim.any_ads.retrieve(block, size, lives))

    def _may_explore(self, block: Block, ids: np.ndarray) -> np.ndarray:
        """The ads among these [R, n] that take part and bid, no less than the reserve; -1 for the others."""
        bid = bids(block, ids, self.arm.last, self.arm, self.platform)
        there = (ids >= 0) & (bid > 0) & (bid >= np.asarray(reserve_of(block, self.arm))[..., None])
        there &= self._takes_part(block, self.sim.world.advertiser[np.maximum(ids, 0)])
        return np.where(there, ids, np.int32(-1))

    def _is_explored(self, block: Block) -> np.ndarray:
        if self.spec.exploration == 0:
            return np.zeros(len(block), bool)
        return draws.uniform(self.sim.seed, "explore", block.requests) < self.spec.exploration

    def _takes_part(self, block: Block, advertiser: np.ndarray) -> np.ndarray:
        """Whether these advertisers [R, m] take part: one draw a request for all ads of an advertiser."""
        share = self.participation[advertiser]
        takes_part = np.ones(share.shape, bool)
        row, place = np.nonzero(share < 1)
        if len(row):
            draw = draws.uniform(self.sim.seed, "participation", block.requests[row], advertiser[row, place])
            takes_part[row, place] = draw < share[row, place]
        return takes_part

    def _settle(self, block: Block, lists: RankedLists, took_part: np.ndarray) -> Iterator[SettledBlock]:
        start = 0
        owner, available = self.sim.world.advertiser, self._ledger.available
        answers = _Answers(self._audience, block, len(self._effects))
        while start < len(block):
            pages, listed = self.list_pages(lists, start)
            if listed == start:
                lists = self._rank_deeper(block, lists)
                continue
            ads = of_page(lists.ads, pages, -1)
            answers.update(ads, start, listed)
            if self._is_late:
                due = self._holds(of_page(lists.prediction, pages, 0.0), pages.cpc_micros)
            else:
                due = np.where(answers.clicks, pages.cpc_micros, 0)
            payer = owner[np.maximum(ads, 0)]
            taken, stop = take(due, payer, available, lists.entrants, took_part, start, listed)
            rows = slice(start, stop)
            yield self._settled(
                block.take(rows), lists.take(rows), pages.take(rows), answers.expected[rows],
                answers.clicks[rows], taken[rows],
            )  # fmt: skip
            start = stop

    def list_pages(self, lists: RankedLists, start: int) -> tuple[ListedPages, int]:
        """Pages of the requests from `start` on for the current budgets, and where they end."""
        rules = self.arm.rules(self.sim.platform.slot_effects)
        return list_pages(lists, self.sim.world.advertiser, self._ledger.available, rules, start)

    def _rank_deeper(self, block: Block, lists: RankedLists) -> RankedLists:
        """So deep that nothing is cut off: at most once a block.

        The whole block, since what a net predicts may differ in the last bit with the number of requests
        beside it.
        """
        return self.rank(block, self.arm.most_auctioned, lists.served_by_stage)

    @property
    def list_depth(self) -> int:
        return min(max(self.spec.depth, self.arm.slots + 1), self.arm.most_auctioned)

    @property
    def _effects(self) -> np.ndarray:
        return self.sim.platform.slot_effects[: self.arm.slots]

    @property
    def _is_late(self) -> bool:
        return self.spec.charging.click_delay > 0

    def _settled(
        self,
        block: Block,
        lists: RankedLists,
        pages: ListedPages,
        expected: np.ndarray,
        clicks: np.ndarray,
        taken: np.ndarray,
    ) -> SettledBlock:
        """What came of these requests, and what is still to come."""
        ads, nothing = of_page(lists.ads, pages, -1), np.zeros_like(taken)
        click_time = np.where(clicks, block.times[:, None], np.inf)
        if self._is_late:
            draw = draws.uniform(self.sim.seed, "click delay", block.requests[:, None], ads)
            click_time += click_delays(draw, self.spec.charging.click_delay)
        conversions, conversion_time = self._convert(block, ads, click_time)
        return SettledBlock(
            block=block,
            lists=lists,
            ads=ads,
            advertiser=self.sim.world.advertiser[np.maximum(ads, 0)],
            bid=of_page(lists.bid, pages, 0.0),
            quality=of_page(lists.quality, pages, 0.0),
            prediction=of_page(lists.prediction, pages, 0.0),
            raw_score=of_page(lists.raw_score, pages, np.nan) if self.dumps else None,
            routes=None if lists.routes is None else of_page(lists.routes, pages, False),
            cpc_micros=pages.cpc_micros,
            expected_clicks=expected,
            clicks=clicks,
            click_time=click_time,
            conversions=conversions,
            conversion_time=conversion_time,
            charges_micros=nothing if self._is_late else taken,
            held_micros=taken if self._is_late else nothing,
            model_version=np.full(len(block), self.model_version, np.int32),
        )

    def _holds(self, prediction: np.ndarray, cpc_micros: np.ndarray) -> np.ndarray:
        """What a shown ad keeps back until its click is charged.  [R, k] int64"""
        kind = self.spec.charging.hold
        if kind == "none":
            return np.zeros_like(cpc_micros)
        if kind == "full":
            return cpc_micros
        share = np.clip(prediction * self._effects, 0.0, 1.0)
        return np.ceil(share * cpc_micros).astype(np.int64)

    def _convert(
        self, block: Block, ads: np.ndarray, click_time: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which clicks convert, and when the news of it arrives.  [R, k], [R, k]"""
        conversions, times = np.zeros(ads.shape, bool), np.full(ads.shape, np.inf)
        row, slot = np.nonzero(np.isfinite(click_time))
        if len(row):
            seed, clicked = self.sim.seed, block.take(row)
            ad = ads[row, slot][:, None]
            ids = (clicked.requests[:, None], ad)
            chance = self.sim.environment.cvr(clicked, ad)
            bought = happens(chance, draws.uniform(seed, "conversion", *ids))[:, 0]
            wait = conversion_delays(seed, clicked.requests, ad[:, 0], self.sim.delays or DEFAULT_MIXTURE)
            conversions[row, slot] = bought
            times[row, slot] = np.where(bought, click_time[row, slot] + wait, np.inf)
        return conversions, times


def of_page(values: np.ndarray, pages: ListedPages, empty: float) -> np.ndarray:
    """The shown ads' entries of values in rank order [R, D, ...]; `empty` in an empty slot.  [R, k, ...]"""
    column = pages.column.reshape(*pages.column.shape, *(1 for _ in values.shape[2:]))
    shown = np.take_along_axis(values, np.maximum(column, 0), 1)
    return np.where(column >= 0, shown, values.dtype.type(empty))


class _Answers:
    """What users do with the pages of a block. Only a page that has changed is looked at again."""

    def __init__(self, audience: Audience, block: Block, slots: int):
        shape = (len(block), slots)
        self._audience, self._block = audience, block
        self._ads = np.full(shape, -2, np.int32)  # nothing yet
        self.expected, self.clicks = np.zeros(shape), np.zeros(shape, bool)

    def update(self, ads: np.ndarray, start: int, stop: int) -> None:
        """Pages of the requests from start to stop: ads [R, k] of the whole block."""
        rows = start + np.nonzero((ads[start:stop] != self._ads[start:stop]).any(axis=1))[0]
        if len(rows):
            answer = self._audience.respond(self._block.take(rows), ads[rows])
            self._ads[rows], self.expected[rows], self.clicks[rows] = (
                ads[rows],
                answer.expected,
                answer.clicks,
            )
