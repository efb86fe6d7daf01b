"""The market phase of a study: every arm lives through the same simulated days, with its own ledger."""

from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.market_run import MarketRun, Settled
from cascade_sim.progress import Progress
from cascade_sim.records import TableWriter
from cascade_sim.scenario import resolved_arms
from cascade_sim.scenario_market import DAY
from cascade_sim.simulation import Simulation


def run_markets(sim: Simulation, logs: Path, progress: Progress, workers: int) -> dict[str, Any]:
    """The `market` section of metrics.json: each arm of the scenario over the simulated days."""
    spec = sim.scenario.market
    assert spec is not None
    specs = resolved_arms(sim.scenario)
    expected = int(spec.days * DAY * spec.requests_per_second)
    found = {}
    for name in sim.scenario.arms:
        with (
            progress.stage(f"market: {name}", expected) as bar,
            TableWriter(logs, f"market-{name}") as table,
        ):

            def on_block(settled: Settled, table=table, bar=bar) -> None:
                table.append(market_columns(sim, settled))
                bar.advance(len(settled.block))

            run = MarketRun(sim, sim.arm(name, specs[name]), spec, workers=workers, on_block=on_block)
            found[name] = run.run().metrics()
    return {"days": spec.days, "window": spec.window, "update": spec.update, "arms": found}


def market_columns(sim: Simulation, settled: Settled) -> dict[str, np.ndarray]:
    """A row per shown ad, in request and slot order."""
    pages, lists, block = settled.pages, settled.lists, settled.block
    row, slot = np.nonzero(pages.column >= 0)
    place = pages.column[row, slot]
    ad = lists.ads[row, place]
    return {
        "request": block.requests[row],
        "time": block.times[row],
        "user": block.users[row],
        "slot": slot.astype(np.int8),
        "ad": ad,
        "advertiser": sim.world.advertiser[ad],
        "bid": lists.bid[row, place],
        "quality": lists.quality[row, place],
        "cpc_micros": pages.cpc_micros[row, slot],
        "click": pages.clicks[row, slot],
        "conversion": settled.conversions[row, slot],
        "charge_micros": pages.charges_micros[row, slot],
    }
