"""Critical bids: the least init-bid with which an ad would have kept its slot, in the auction and end to end.

For an impression, all else equal and to the micro-unit:

    local    the least init-bid that keeps the slot or a better one among the ads that reached the auction
    cascade  the least init-bid that does so through the whole cascade, pre-ranking included
    gap      cascade - local, never negative: an ad that would still win the auction is dropped before it

Whether an ad passes a stage is a step in its bid, so both can be searched, for all impressions at once; and
cascade is the greater of local and what pre-ranking alone demands, because the ads it meets in the auction
do not depend on its bid (see `bid_response`).

The auction charges on the scale of its own bids, the init-bid times a factor f of the bid rule (optimised
CPC). With GSP the price p is the least such bid that keeps the slot, so p <= f * local <= p + f micro-units,
and the charge is p rounded to a micro-unit: CPC = f * local, but for rounding. VCG charges no more than that,
first price no less.

Who is retrieved is held as it was, also where a retriever looks at bids: `trace` says what it would ask for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from cascade_sim.auction import MICROS
from cascade_sim.cascade.retrievers.routes import looks_at_bids
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, serve
from cascade_sim.counterfactual.bid_response import own_bids
from cascade_sim.diagnostics.reopen import PHASE, evaluation_blocks
from cascade_sim.diagnostics.trace import MOST
from cascade_sim.foundation.progress import Progress
from cascade_sim.study.simulation import Simulation


@dataclass(frozen=True)
class CriticalBids:
    """Impressions in request and slot order; arrays [I]."""

    request: NDArray[np.int64]
    slot: NDArray[np.int64]  # from 0
    ad: NDArray[np.int64]
    init_bid: NDArray[np.float64]
    factor: NDArray[np.float64]  # the auction's bid per unit of init-bid
    cpc_micros: NDArray[np.int64]
    local_micros: NDArray[np.int64]
    cascade_micros: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.request)

    @property
    def gap_micros(self) -> NDArray[np.int64]:
        return self.cascade_micros - self.local_micros


def critical_bids(
    sim: Simulation,
    arm: Arm,
    n_requests: int,
    on_block: Callable[[int], None] = lambda requests: None,
) -> CriticalBids:
    """For all impressions in the first n requests of the evaluation, served again as the run did."""
    parts = []
    for block, n in evaluation_blocks(sim, n_requests):
        parts.append(of_block(block, arm, sim.platform, serve(block, arm, sim.platform), n))
        on_block(n)
    names = [field.name for field in fields(CriticalBids)]
    return CriticalBids(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def of_block(
    block: Block, arm: Arm, platform: Platform, decision: Decision, n_requests: int | None = None
) -> CriticalBids:
    """For the impressions of a block as it was served, or of its first n requests alone."""
    row, slot = np.nonzero(decision.win_set[:n_requests] >= 0)
    own = own_bids(block, arm, platform, decision, row, slot)
    local = min_passing_bids(own.keeps_place, len(row))
    to_pass = min_passing_bids(own.passes_pre_ranking, len(row))
    return CriticalBids(
        request=block.requests[row],
        slot=slot,
        ad=own.ad,
        init_bid=platform.bids.init_bid[own.ad],
        factor=own.factor,
        cpc_micros=decision.cpc_micros[row, slot],
        local_micros=local,
        cascade_micros=np.maximum(local, to_pass),
    )


def min_passing_bids(passes: Callable[[NDArray[np.float64]], NDArray[np.bool_]], n: int) -> NDArray[np.int64]:
    """For n steps at once: the least bid in micro-units, 1 to MOST, that passes; MOST must pass.  [n]

    `passes` takes bids [n] and is false below some bid of each entry and true from there on.
    """
    low, high = np.zeros(n, np.int64), np.full(n, MOST, np.int64)  # low does not pass, high does
    while n and (high - low).max() > 1:
        middle = low + (high - low) // 2
        is_enough = passes(middle / MICROS)
        high, low = np.where(is_enough, middle, high), np.where(is_enough, low, middle)
    return high


def critical_bid_section(
    sim: Simulation, arms: Mapping[str, Arm], n_requests: int, progress: Progress | None = None
) -> dict:
    """The `critical_bids` section of metrics.json: every arm on the first n requests of the evaluation."""
    n = min(n_requests, sim.scenario.phases.evaluate)
    return section(sim, arms, critical_bids_by_arm(sim, arms, n, progress or Progress(quiet=True)), n)


def critical_bids_by_arm(
    sim: Simulation, arms: Mapping[str, Arm], n_requests: int, progress: Progress
) -> dict[str, CriticalBids]:
    """Every arm on the first n requests of the evaluation; a page is one request in one arm."""
    with progress.stage("critical bids", n_requests * len(arms), "pages") as bar:
        return {name: critical_bids(sim, arm, n_requests, bar.advance) for name, arm in arms.items()}


def section(
    sim: Simulation, arms: Mapping[str, Arm], by_arm: Mapping[str, CriticalBids], n_requests: int
) -> dict:
    """The section from critical bids that are there already."""
    from cascade_sim.analysis.metrics.critical_bids import summaries

    first = sim.arrivals.first_request(PHASE)
    tables = {
        name: {
            "request": bids.request - first,
            "bid": bids.init_bid,
            "local": bids.local_micros / MICROS,
            "cascade": bids.cascade_micros / MICROS,
            "factor": bids.factor,
            "cpc": bids.cpc_micros / MICROS,
        }
        for name, bids in by_arm.items()
    }
    made = summaries(tables, n_requests, sim.scenario.report.resamples, sim.seed)
    by_bid = {name: looks_at_bids(arms[name].retrieval.retriever) for name in made}
    return {
        "requests": n_requests,
        "arms": {
            name: {"pricing": arms[name].pricing, **({"retrieval": "held"} if by_bid[name] else {}), **row}
            for name, row in made.items()
        },
    }
