"""The online simulator of a market: a share of the live requests is sent to it as well.

There the ranker that is deployed scores the whole pre-ranking set, at the bids of the moment. Of what it
would show, RCS is the share that the live cascade let through to ranking. No user is shown anything by it.
Requests that ran out of time before ranking are left out: no competitive set was ranked for them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cascade_sim.analysis.metrics.consistency import rcs
from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cascade.serve import serve, shadow
from cascade_sim.foundation import random as draws
from cascade_sim.market.ad_server import MarketServer, SettledBlock
from cascade_sim.scenario.market import DAY, Market

HOUR = 3600.0
SUMS = ("requests", "reached", "squares")  # of the requests with an ideal win set, by hour
WIDE = 1.959963984540054  # standard errors of half a 95 % interval


class LiveShadow:
    """Sums of RCS by hour, of the watched share of a market's requests."""

    def __init__(self, spec: Market, seed: int, *, is_on: bool = True):
        self._share, self._seed = spec.shadow if is_on else 0.0, seed
        n_hours = int(np.ceil(spec.days * DAY / HOUR))
        self.hours = {name: np.zeros(n_hours) for name in SUMS}

    def add(self, settled: SettledBlock, server: MarketServer) -> None:
        """Send the watched requests of a settled piece through the arm and the bids that they met."""
        if self._share == 0:
            return
        requests = settled.block.requests
        is_watched = draws.uniform(self._seed, "live shadow", requests) < self._share
        is_ranked = settled.lists.served_by_stage == len(server.arm.stages)
        rows = np.nonzero(is_watched & is_ranked)[0]
        if not len(rows):
            return
        block = replace(settled.block.take(rows), memo=BlockCache())
        ideal, live = (serve(block, arm, server.platform) for arm in (shadow(server.arm), server.arm))
        share = rcs(ideal.win_set, live.competitive_set)
        has_ideal = ~np.isnan(share)
        hour = np.minimum((block.times[has_ideal] // HOUR).astype(int), len(self.hours["requests"]) - 1)
        for name, values in zip(SUMS, (np.ones(len(share)), share, share**2), strict=True):
            np.add.at(self.hours[name], hour, values[has_ideal])

    def metrics(self) -> dict[str, Any] | None:
        """RCS of the whole market, its days and its hours, with intervals over requests; None if off."""
        if self._share == 0:
            return None
        n_hours = len(self.hours["requests"])
        return {
            "share": self._share,
            "requests": int(self.hours["requests"].sum()),
            "rcs": self._estimate(0, n_hours),
            "days": [self._estimate(start, start + 24) for start in range(0, n_hours, 24)],
            "hours": [self._estimate(hour, hour + 1) for hour in range(n_hours)],
        }

    def _estimate(self, start: int, stop: int) -> dict[str, float | None]:
        """The mean over the requests of some hours, with a normal interval from two requests on."""
        n, reached, squares = (float(self.hours[name][start:stop].sum()) for name in SUMS)
        if n == 0:
            return {"value": None, "low": None, "high": None}
        mean = reached / n
        if n < 2:
            return {"value": mean, "low": None, "high": None}
        half = WIDE * np.sqrt(max(squares / n - mean**2, 0.0) / (n - 1))
        return {"value": mean, "low": float(mean - half), "high": float(mean + half)}

    def state(self) -> dict[str, Any]:
        return self.hours if self._share else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.hours = {name: np.array(state.get(name, values)) for name, values in self.hours.items()}
