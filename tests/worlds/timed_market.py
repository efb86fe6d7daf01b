"""A market in simulated time that is small enough for tests, and a run of it with everything written down."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DAY = 86_400.0  # seconds
WORLD = {
    "name": "timed",
    "world": {
        "users": 100,
        "ads": 200,
        "advertisers": 20,
        "base_logit": -2.5,
        "slot_effects": [1.0, 0.8, 0.6],
    },
    "cascade": {
        "retrieval": {"size": 60},
        "pre_ranking": {"model": "random", "size": 20},
        "ranking": {"model": "truth", "bid": "init"},
        "slots": 3,
    },
    "traffic": {"block": 64},
    "phases": {"cold_start": 64, "log": 64, "shadow": 0, "evaluate": 128},
    "arms": {"now": {}, "opt": {"ranking": {"bid": "opt"}}},
    "report": {"resamples": 10, "detail_requests": 16},
}
MARKET = {
    "days": 0.02,
    "requests_per_second": 1.0,
    "profile": "constant",
    "budgets": {"share": 0.0},
}
# Budgets that run dry here and there within the simulated half hour, and bidders that learn and sit out.
SCARCE = {
    "budgets": {"share": 0.9, "median": 20.0, "sigma": 1.0},
    "update": 180.0,
    "bidders": {
        "fixed": {},
        "shading": {"kind": "shading"},
        "pid": {"kind": "pid"},
        "throttling": {"kind": "throttling"},
    },
}
# The whole corpus reaches the auction, so that taking part is a matter of money and will alone.
OPEN = {
    "cascade": {
        "retrieval": {"size": 40},
        "pre_ranking": {"model": "truth", "size": 40},
        "ranking": {"model": "truth", "bid": "init"},
        "slots": 3,
    },
    "world": {
        "users": 50, "ads": 40, "advertisers": 5, "base_logit": -2.5, "slot_effects": [1.0, 0.8, 0.6]
    },
}  # fmt: skip
# Methods of bidders: one writes down, one bids more each time, one throttles its first advertiser.
RECORDER = """
    def __init__(self, portfolio):
        super().__init__(portfolio)
        self.portfolio, self.told, self.asked = portfolio, [], []

    def bids(self, now):
        self.asked.append(now)
        return self.value

    def observe(self, feedback, now):
        self.told.append((now, feedback))
"""
RAISER = """
    def __init__(self, portfolio):
        super().__init__(portfolio)
        self.n = 0

    def bids(self, now):
        self.n += 1
        return self.value * self.n
"""
FIRST_ONE = """
    def __init__(self, portfolio, first=1.0):
        super().__init__(portfolio)
        self.first = first

    def participation(self, now):
        return np.where(np.arange(self.n_advertisers) == 0, self.first, 1.0)
"""


def slow_days(
    days: float = 2.0,
    requests_per_second: float = 0.01,
    window: float = 7200.0,
    update: float = 7200.0,
    share: float = 0.8,
    median: float = 15.0,
    **more: Any,
) -> dict[str, Any]:
    """Keys of a market of few requests a day, on which small budgets run dry."""
    return {
        "days": days,
        "requests_per_second": requests_per_second,
        "window": window,
        "update": update,
        "budgets": {"share": share, "median": median, "sigma": 0.7},
        **more,
    }


def timed_scenario(market: dict[str, Any] | None = None, **sections: Any) -> Any:
    """WORLD with a market of MARKET and these keys; `sections` are merged into the scenario's sections."""
    from cascade_sim.scenario.schema import Scenario

    data = deepcopy(WORLD)
    for name, section in sections.items():
        data[name] = {**data.get(name, {}), **section}  # type: ignore[dict-item]
    data["market"] = {**MARKET, **(market or {})}
    return Scenario.model_validate(data)


@dataclass(frozen=True)
class Finished:
    """A finished run: its objects, its log as columns, its blocks, and its metrics."""

    sim: Any
    run: Any
    log: dict[str, np.ndarray]
    settled: list[Any]
    metrics: dict[str, Any]
    late: dict[str, np.ndarray]  # clicks charged after their page

    def bidder(self, name: str) -> Any:
        return self.run.crowd.bidders[self.run.crowd.names.index(name)]

    def members(self, name: str) -> np.ndarray:
        """The advertisers that a bidder acts for."""
        return np.nonzero(self.run.crowd.kind_of == self.run.crowd.names.index(name))[0]

    def per_advertiser(self, rows: np.ndarray, column: str | None = None) -> np.ndarray:
        """The number of these rows of the log, or the sum of a column, by advertiser."""
        sums = np.zeros(self.sim.world.n_advertisers, np.int64)
        np.add.at(sums, self.log["advertiser"][rows], 1 if column is None else self.log[column][rows])
        return sums

    def day(self) -> np.ndarray:
        """The day of each row of the log, from 0."""
        return (self.log["time"] // DAY).astype(int)


def live(
    market: dict[str, Any] | None = None,
    *,
    arm: str = "now",
    workers: int = 1,
    home: Path = Path("."),
    is_watched: bool = False,
    **sections: Any,
) -> Finished:
    """Let an arm's market run."""
    from cascade_sim.market.run import MarketRun
    from cascade_sim.market.study import market_columns
    from cascade_sim.scenario.schema import resolved_arms
    from cascade_sim.study.simulation import Simulation

    scenario = timed_scenario(market, **sections)
    sim = Simulation(scenario, scenario.seed, home=home)
    settled: list[Any] = []
    charges: list[dict[str, np.ndarray]] = []
    run = MarketRun(
        sim,
        sim.arm(arm, resolved_arms(scenario)[arm]),
        scenario.market,
        workers=workers,
        is_watched=is_watched,
        on_block=settled.append,
        on_charges=charges.append,
    )
    tally = run.run()
    parts = [market_columns(sim, piece, run.server.routes) for piece in settled]
    log = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    late = {name: np.concatenate([part[name] for part in charges]) for name in (charges or [{}])[0]}
    return Finished(sim, run, log, settled, tally.metrics(), late)


def same(first: Finished, other: Finished) -> None:
    """Two runs wrote the same log, bit for bit, and the same metrics."""
    assert first.log.keys() == other.log.keys()
    for name in first.log:
        assert first.log[name].dtype == other.log[name].dtype
        assert first.log[name].tobytes() == other.log[name].tobytes(), name
    assert first.late.keys() == other.late.keys()
    assert all(first.late[name].tobytes() == other.late[name].tobytes() for name in first.late)
    assert first.metrics == other.metrics


def write_bidder(folder: Path, body: str) -> str:
    """A file with a class `Own`, a Bidder with these methods; returns its kind, by the file's name."""
    text = f"import numpy as np\n\nfrom agents.bidding import Bidder\n\n\nclass Own(Bidder):\n{body}"
    (folder / "own.py").write_text(text)
    return "own.py:Own"
