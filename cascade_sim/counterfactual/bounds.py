"""What a log of winners and prices alone can say of another reserve: bounds, nothing more.

An ad that was charged less than the new reserve may have bid more than that, and would pay the reserve; or
less, and would be gone. One that was charged more stays; in a second-price rule it pays between the reserve
and what it paid, as the ad that priced it may be gone. Clicks are taken as logged: who would have moved up is
not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cascade_sim.auction import MICROS
from cascade_sim.logs.audit.reproduction import require_reproduced
from cascade_sim.logs.store.format import charged
from cascade_sim.logs.store.store import LogStore, open_store
from cascade_sim.scenario.log_support import about_of, find_log
from cascade_sim.scenario.overrides import Change, Point, Refused
from cascade_sim.scenario.schema import ArmSpec, Scenario

RESERVE = ("auction", "reserve_cpc")
NORMAL = 1.959963984540054  # 97.5 % quantile
WOULD_HELP = "all bids of the auction would have to be logged (candidates with stage ranked)"


@dataclass(frozen=True)
class Bounds:
    """Revenue per request: current, and the least and the most that another reserve would have earned."""

    current: float
    least: float
    most: float
    outer: tuple[float, float]  # with 95 % intervals of both ends by request

    @property
    def words(self) -> str:
        low, high = self.outer
        return (
            f"between {self.least:.6g} and {self.most:.6g} per request (with chance {low:.6g} to "
            f"{high:.6g}), "
            f"against {self.current:.6g} as logged, at the logged clicks"
        )


def reserve_bounds(store: LogStore, reserve: float, is_first_price: bool) -> Bounds:
    """What a reserve would have earned, from winners and prices alone."""
    sums = np.zeros((3, store.n_requests))
    for start, stop, part in store.blocks(("price_micros", *store.about.charged_by)):
        price = np.maximum(part["price_micros"], 0) / MICROS
        is_charged = charged(store.about.charging, part)
        stays = price >= reserve
        least = np.where(stays, price if is_first_price else reserve, 0.0)
        ends = store.first[start : stop + 1] - store.first[start]
        for i, paid in enumerate((price, least, np.maximum(price, reserve))):
            total = np.concatenate([[0.0], np.cumsum(np.where(is_charged, paid, 0.0))])
            sums[i, start:stop] = total[ends[1:]] - total[ends[:-1]]
    mean = sums.mean(axis=1)
    half = NORMAL * sums.std(axis=1) / np.sqrt(max(store.n_requests, 1))
    outer = (float(mean[1] - half[1]), float(mean[2] + half[2]))
    return Bounds(float(mean[0]), float(mean[1]), float(mean[2]), outer)


def refuse_winners(scenario: Scenario, spec: ArmSpec, points: Sequence[Point], folder: Path) -> None:
    """Refused, with bounds where there are any, if the log has winners and prices alone."""
    if scenario.world.replay is None or about_of(scenario.world, folder)[0].level != "winners":
        return
    why = f"the log completeness is 'winners', so the losers and their bids are unknown; {WOULD_HELP}"
    require_reproduced(scenario, folder)
    for point in points:
        for change in point:
            raise Refused(_bounded(scenario, spec, points, change, folder) or why, change.at)


def _bounded(scenario: Scenario, spec: ArmSpec, points: Sequence[Point], change: Change, folder: Path) -> str:
    """The refusal of a raised reserve, which has the bounds in it; empty for any other parameter."""
    if change.parameter != RESERVE or len(points[0]) > 1:
        return ""
    assert scenario.world.replay is not None
    store = open_store(find_log(scenario.world.replay.log, folder) or scenario.world.replay.log)
    lines = []
    for (own,) in points:
        if own.value < spec.auction.reserve_cpc:
            lines.append(f"{own.value:g}: nothing is known of bids below the reserve that was in force")
            continue
        bounds = reserve_bounds(store, float(own.value), spec.auction.pricing == "first")
        lines.append(f"{own.value:g}: {bounds.words}")
    return (
        "the log completeness is 'winners', so only bounds can be given. Revenue at a reserve of "
        + "; ".join(lines)
        + f". To know more, {WOULD_HELP}"
    )
