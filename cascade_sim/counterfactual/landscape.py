"""The bid landscape of one ad: what it would have got and paid over a run's evaluation, bid by bid.

All else is as it was, also what models see and the draw of every (request, ad): an ad that keeps its slot
keeps its click. Only requests that retrieve the ad at some bid can change. Each of those is served once
with a bid beyond all others, which shows the ad's rivals in the auction; they do not depend on its bid (see
`bid_response`). Then every bid is decided at once: is the ad retrieved, does it pass pre-ranking, and what
does the auction among the ad and its best rivals say? For k slots that answer needs no more than the best k
rivals, so it is the run's own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.agents.users import happens
from cascade_sim.auction import MICROS
from cascade_sim.cascade.logged import GivenSets
from cascade_sim.cascade.outcome import exposure_draws
from cascade_sim.cascade.page import auctioned
from cascade_sim.cascade.randomisation import rules_of
from cascade_sim.cascade.retrievers.routes import looks_at_bids
from cascade_sim.cascade.serve import Arm, Block, Decision, retrieve, serve
from cascade_sim.counterfactual.bid_response import own_bids, stage_bid, with_sizes_of
from cascade_sim.diagnostics.reopen import evaluation_blocks
from cascade_sim.diagnostics.trace import MOST
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import in_line
from cascade_sim.study.simulation import Simulation

REACH = 4.0  # the default grid runs from a quarter of the bid to four times as much


@dataclass(frozen=True)
class Landscape:
    """What an ad gets at each bid; arrays [B]. Money in units, except for the exact *_micros.

    `bid` is the advertiser's init-bid. What enters the auction, and bounds the price of a click, is the
    init-bid times a factor that the bid rule chooses for each request: a CPC may be above the init-bid.
    """

    arm: str
    ad: int
    init_bid: float  # in the run
    requests: int
    retrieved: int  # how many of them retrieve the ad
    bid: NDArray[np.float64]
    impressions: NDArray[np.int64]
    expected_clicks: NDArray[np.float64]
    clicks: NDArray[np.int64]
    expected_cost: NDArray[np.float64]
    cost_micros: NDArray[np.int64]
    entered: NDArray[np.float64]  # expected clicks, each times the bid with which the ad entered the auction
    bid_rule: str = "none"  # what makes the auction's bid of the init-bid
    factors: tuple[float, float] = (
        1.0,
        1.0,
    )  # least and greatest, over the requests that rank the ad
    ad_name: str | None = None  # of a log: its own id of the ad

    @property
    def label(self) -> str:
        """The ad as it is printed: its id in the log, else its number."""
        return str(self.ad) if self.ad_name is None else in_line(self.ad_name)

    @property
    def auction_bid(self) -> NDArray[np.float64]:
        """Mean bid in the auction, by expected clicks: no expected CPC is above it; NaN without any.  [B]"""
        return self._per_click(self.entered)

    @property
    def is_cpc_above_bid(self) -> NDArray[np.bool_]:
        """Whether the expected CPC is above the init-bid, though not above the auction's bid.  [B]"""
        return np.nan_to_num(self.expected_cpc) > self.bid * (1 + 1e-12)

    @property
    def cost(self) -> NDArray[np.float64]:
        return self.cost_micros / MICROS

    @property
    def mean_cpc(self) -> NDArray[np.float64]:
        """Mean price of a click; NaN where there is none.  [B]"""
        return np.where(self.clicks > 0, self.cost, np.nan) / np.maximum(self.clicks, 1)

    @property
    def expected_cpc(self) -> NDArray[np.float64]:
        """Expected cost per expected click; NaN without an impression.  [B]"""
        return self._per_click(self.expected_cost)

    @property
    def value(self) -> NDArray[np.float64]:
        """What the expected clicks are worth if the init-bid of the run is what one is worth.  [B]"""
        return self.expected_clicks * self.init_bid

    def columns(self) -> dict[str, list[float]]:
        """The table column by column, as plain numbers."""
        names = (
            *("bid", "auction_bid", "impressions", "expected_clicks", "clicks", "expected_cost", "cost"),
            *("expected_cpc", "mean_cpc", "value"),
        )
        return {name: getattr(self, name).tolist() for name in names}

    def as_json(self) -> dict[str, Any]:
        """All of it as plain data; what is undefined is None."""
        table = {
            name: [None if value != value else value for value in column]
            for name, column in self.columns().items()
        }
        return {
            "arm": self.arm,
            "ad": self.ad,
            **({} if self.ad_name is None else {"ad_name": self.ad_name}),
            "init_bid": self.init_bid,
            "requests": self.requests,
            "retrieved": self.retrieved,
            "bid_rule": self.bid_rule,
            "auction_bid_per_init_bid": list(self.factors),
            "columns": {**table, "is_cpc_above_bid": self.is_cpc_above_bid.tolist()},
            "note": self.note,
        }

    @property
    def note(self) -> str:
        """Which bid is meant, and why a click may cost more; empty where both bids are the same."""
        if self.bid_rule == "none":
            return ""
        low, high = self.factors
        text = (
            f"bid is the advertiser's init-bid; {self.bid_rule} enters the auction with {low:.2f} to "
            f"{high:.2f} times as much, and that is what bounds the price of a click"
        )
        n = int(self.is_cpc_above_bid.sum())
        if n:
            text += f": the expected CPC is above the init-bid at {n} of {len(self.bid)} bids"
        return text

    def _per_click(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        has_any = self.expected_clicks > 0
        return np.where(has_any, total, np.nan) / np.where(has_any, self.expected_clicks, 1.0)


def bid_grid(init_bid: float, points: int) -> NDArray[np.float64]:
    """Bids in equal ratios from a quarter of the init-bid to four times as much, itself among them."""
    factors = REACH ** np.linspace(-1.0, 1.0, points) if points > 1 else np.ones(1)
    return np.unique([*(init_bid * factors[factors != 1.0]), init_bid])


def landscape(
    sim: Simulation,
    arm: Arm,
    ad: int,
    bids: NDArray[np.float64],
    n_requests: int,
    on_block: Callable[[int], None] = lambda requests: None,
) -> Landscape:
    """Over the first n requests of the evaluation; UserError if none of them retrieves the ad."""
    n_requests = min(n_requests, sim.scenario.phases.evaluate)
    highest = replace(sim.platform, bids=sim.platform.bids.with_bid(ad, MOST / MICROS))
    totals: dict[str, NDArray[Any]] = {
        "impressions": np.zeros(len(bids), np.int64),
        "expected_clicks": np.zeros(len(bids)),
        "clicks": np.zeros(len(bids), np.int64),
        "expected_cost": np.zeros(len(bids)),
        "cost_micros": np.zeros(len(bids), np.int64),
        "entered": np.zeros(len(bids)),
    }
    names = sim.environment.names
    retrieved, factors = 0, [np.inf, -np.inf]
    for block, n in evaluation_blocks(sim, n_requests):
        has_ad = (retrieve(block, arm, highest)[:n] == ad).any(axis=1)
        if has_ad.any():
            retrieved += int(has_ad.sum())
            used = arm if not arm.has_size_rule else with_sizes_of(serve(block, arm, sim.platform), arm)
            for at, candidates in _candidates(sim, block, used, ad, bids):
                served = serve(block, candidates, highest)
                parts, of_block = _of_block(sim, block, n, used, served, ad, bids[at])
                factors = [of_block.min(initial=factors[0]), of_block.max(initial=factors[1])]
                for name, part in parts.items():
                    totals[name][at] += part
        on_block(n)
    if not retrieved:
        label = in_line(names.name("ads", ad))
        raise UserError(
            f"--ad: no request of the {n_requests:,} looked at retrieves ad {label}, "
            f"so no bid can show it; ads that are retrieved often: {_often_retrieved(sim, arm, n_requests)}"
        )
    init_bid = float(sim.world.init_bid[ad])
    is_ranked = factors[0] <= factors[1]
    bid_rule = "none" if arm.last.bid == "init" else arm.bid_rule
    if not sim.environment.has("truth"):  # logged bids may change from request to request
        bid_rule = "none" if factors[0] == factors[1] == 1.0 else "what was logged"
    return Landscape(
        arm.name, ad, init_bid, n_requests, retrieved, np.asarray(bids, np.float64), **totals,
        bid_rule=bid_rule,
        factors=(float(factors[0]), float(factors[1])) if is_ranked else (1.0, 1.0),
        ad_name=names.name("ads", ad) if names.are_given else None,
    )  # fmt: skip


def _of_block(
    sim: Simulation,
    block: Block,
    n_requests: int,
    arm: Arm,
    served: Decision,
    ad: int,
    bids: NDArray[np.float64],
) -> tuple[dict[str, NDArray], NDArray[np.float64]]:
    """The block's part of each total [B], and the auction's bid per unit of init-bid of each ranked place.

    `served` with a bid so high that the ad comes as far as it can.
    """
    row, place = np.nonzero(served.ranked_set[:n_requests] == ad)
    own = own_bids(block, arm, sim.platform, served, row, place)
    bid = np.asarray(bids, np.float64)[:, None]
    own_bid = np.broadcast_to(stage_bid(arm.last, own.factor, bid), (len(bid), len(row)))
    in_auction = np.broadcast_to(served.ranked_bid[row], (len(bid), *served.ranked_bid[row].shape)).copy()
    in_auction[:, np.arange(len(row)), place] = own_bid
    same_in_all = (
        np.broadcast_to(part[row], in_auction.shape)
        for part in (served.ranked_quality, served.ranked_pctr, served.ranked_set)
    )
    entered, *others = (part.reshape(-1, in_auction.shape[2]) for part in (in_auction, *same_in_all))
    quality, pctr, ids = others
    rules = rules_of(block, arm, sim.platform).take(np.tile(row, len(bid)))
    page = auctioned(ids, pctr, entered, quality, rules, are_ids_sorted=False)
    is_own = (page.ads[:, :-1] == ad).reshape(len(bid), len(row), arm.slots)
    is_own &= own.passes_pre_ranking(bid)[:, :, None]
    cpc = page.cpc_micros.reshape(is_own.shape)
    expected = sim.environment.expected_clicks(block, row, is_own, ad)
    draw = draws.uniform(sim.seed, "click", block.requests[row], np.full(len(row), ad))
    clicks = happens(expected, draw[:, None])
    charged, paid = expected, clicks
    if arm.charging != "click":
        asked = block.take(row)
        charged = is_own * sim.environment.seen(asked, arm.slots, arm.charging)
        paid = happens(charged, exposure_draws(asked, arm.slots, sim.seed))
    totals = {
        "impressions": is_own.sum(axis=(1, 2)),
        "expected_clicks": expected.sum(axis=(1, 2)),
        "clicks": clicks.sum(axis=(1, 2)),
        "expected_cost": (charged * (cpc / MICROS)).sum(axis=(1, 2)),
        "cost_micros": np.where(paid, cpc, 0).sum(axis=(1, 2)),
        "entered": (expected.sum(axis=2) * own_bid).sum(axis=1),
    }
    return totals, own.factor


def _candidates(
    sim: Simulation, block: Block, arm: Arm, ad: int, bids: NDArray[np.float64]
) -> Iterator[tuple[slice, Arm]]:
    """The arm with what it retrieves for a block, for each part of the bids that retrieves the same.

    A route that brings the ad leaves out its last one, so rivals may depend on the bid, too.
    """
    if not looks_at_bids(arm.retrieval.retriever):
        yield slice(None), arm
        return
    for at, bid in enumerate(bids):
        platform = replace(sim.platform, bids=sim.platform.bids.with_bid(ad, float(bid)))
        yield slice(at, at + 1), arm.among(GivenSets(block.requests, retrieve(block, arm, platform)))


def _often_retrieved(sim: Simulation, arm: Arm, n_requests: int) -> str:
    """Three ads that most requests retrieve."""
    count = np.zeros(sim.world.n_ads, np.int64)
    for block, n in evaluation_blocks(sim, n_requests):
        ids = retrieve(block, arm, sim.platform)[:n]
        count += np.bincount(ids[ids >= 0], minlength=sim.world.n_ads)
    often = np.argsort(-count, kind="stable")[:3].tolist()
    return ", ".join(in_line(sim.environment.names.name("ads", ad)) for ad in often)
