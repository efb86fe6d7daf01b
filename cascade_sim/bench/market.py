"""How fast auctions and markets are, with their logs on disk."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.auction import run_auction, to_micros
from cascade_sim.cascade.serve import Arm
from cascade_sim.market.run import MarketRun
from cascade_sim.market.study import market_columns
from cascade_sim.phases.simulation import Simulation
from cascade_sim.scenario.market import DAY, BidderSpec, Budgets, Market
from cascade_sim.storage.tables import TableWriter

AUCTIONS = ((48, 3), (2, 1))  # bidders and slots


def auction_rates(n_auctions: int = 1 << 18, at_once: int = 4096, repeats: int = 3) -> dict[str, float]:
    """Bids per second of GSP auctions in blocks, with a row per filled slot written to a Parquet log."""
    rates = {}
    for bidders, slots in AUCTIONS:
        n = max(at_once, n_auctions * 2 // bidders)
        best = min(_auctions(bidders, slots, n, at_once) for _ in range(repeats))
        rates[f"{bidders} bidders, {slots} slots"] = -(-n // at_once) * at_once * bidders / best
    return rates


def _auctions(bidders: int, slots: int, n: int, at_once: int) -> float:
    """Seconds for n auctions. Bids and pCTRs are drawn before the clock starts."""
    generator = np.random.default_rng(0)
    bid = generator.lognormal(size=(at_once, bidders))
    pctr = generator.uniform(0.001, 0.1, size=(at_once, bidders))
    with tempfile.TemporaryDirectory() as folder, TableWriter(folder, "auctions") as table:
        started = time.perf_counter()
        for first in range(0, n, at_once):
            winner, cpc = run_auction(bid, pctr, slots=slots)
            row, slot = np.nonzero(winner >= 0)
            shown = winner[row, slot]
            charge = to_micros(cpc, np.take_along_axis(bid, np.maximum(winner, 0), 1))
            table.append(
                {"request": first + row, "slot": slot.astype(np.int8), "ad": shown.astype(np.int32),
                 "cpc_micros": charge[row, slot]}
            )  # fmt: skip
        table.close()
        return time.perf_counter() - started


def market_rate(sim: Simulation, arm: Arm, n_requests: int, rate: float = 200.0) -> float:
    """Requests per second of a market with budgets, pacing bidders, conversions and its log on disk."""
    spec = Market(
        days=n_requests / rate / DAY,
        requests_per_second=rate,
        profile="constant",
        window=10.0,
        update=30.0,
        budgets=Budgets(share=1.0, median=0.2),
        bidders={"pid": BidderSpec(kind="pid"), "throttling": BidderSpec(kind="throttling")},
    )
    with tempfile.TemporaryDirectory() as folder, TableWriter(Path(folder), "bench") as table:

        def log(settled: Any) -> None:
            table.append(market_columns(sim, settled))

        run = MarketRun(sim, arm, spec, on_block=log)
        started = time.perf_counter()
        tally = run.run()
        return int(tally.hours["requests"].sum()) / (time.perf_counter() - started)
