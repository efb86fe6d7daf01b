"""How fast auctions and markets are, with their logs on disk."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.auction import run_auction, to_micros
from cascade_sim.bench import Spread, in_turn, seconds
from cascade_sim.cascade.serve import Arm
from cascade_sim.market.run import MarketRun
from cascade_sim.market.study import market_columns
from cascade_sim.scenario.market import DAY, BidderSpec, Budgets, Market
from cascade_sim.storage.tables import TableWriter
from cascade_sim.study.simulation import Simulation

AUCTIONS = ((48, 3), (2, 1))  # bidders and slots


def auction_name(bidders: int, slots: int) -> str:
    return f"{bidders} bidders, {slots} slot{'s' * (slots > 1)}"


def auction_rates(n_auctions: int = 1 << 18, at_once: int = 4096, repeats: int = 5) -> dict[str, Spread]:
    """Bids per CPU-second of bare GSP auctions in blocks: a row per filled slot goes to a Parquet log.

    Bids and pCTRs are there from the beginning: no request arrives, nothing is scored, no user clicks.
    """

    def rate(bidders: int, slots: int) -> float:
        n = max(1, n_auctions * 2 // bidders // at_once) * at_once
        return n * bidders / _auctions(bidders, slots, n, at_once)

    return in_turn({auction_name(*size): partial(rate, *size) for size in AUCTIONS}, repeats)


def _auctions(bidders: int, slots: int, n: int, at_once: int) -> float:
    """CPU seconds for n auctions."""
    generator = np.random.default_rng(0)
    bid = generator.lognormal(size=(at_once, bidders))
    pctr = generator.uniform(0.001, 0.1, size=(at_once, bidders))

    def auctions() -> None:
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

    with tempfile.TemporaryDirectory() as folder, TableWriter(folder, "auctions") as table:
        return seconds(auctions)


def market_seconds(sim: Simulation, arm: Arm, n_requests: int, rate: float = 200.0) -> float:
    """CPU seconds for n requests of a market with budgets, pacing bidders, conversions and its log on disk.

    How many arrive is random: the time is that of those who came, scaled to n.
    """
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
        taken = seconds(run.run)
        return taken * n_requests / int(run.tally.hours["requests"].sum())
