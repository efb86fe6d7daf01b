"""The advertisers of a market: their budgets, their bidders, and the ledger that no one can overdraw."""

from pathlib import Path

import numpy as np

from agents.bidders import BIDDERS
from agents.bidding import Bidder, Feedback, Moment, Portfolio
from cascade_sim import draws
from cascade_sim.auction import MICROS
from cascade_sim.errors import UserError
from cascade_sim.model_kinds import find_any_class
from cascade_sim.simulation import Simulation

NO_BUDGET = np.int64(2**62)


class Ledger:
    """Budgets and spend in integer micro-units. Settlement lowers `remaining`; nothing else does."""

    def __init__(self, budget_micros: np.ndarray):
        self.budget = budget_micros
        self.remaining = budget_micros.copy()
        self.spent_before = np.zeros_like(budget_micros)  # on days that are over

    def spend_today(self) -> np.ndarray:
        return self.budget - self.remaining

    def new_day(self) -> None:
        self.spent_before = self.spent_before + self.spend_today()
        self.remaining = self.budget.copy()

    def spend(self) -> np.ndarray:
        """Since the simulation began.  [advertisers]"""
        return self.spent_before + self.spend_today()


def draw_budgets(spec, n: int, seed: int) -> np.ndarray:
    """Daily budgets: log-normal for the share of advertisers that have one.  [n] int64 micro-units"""
    ids = np.arange(n)
    amount = spec.median * np.exp(spec.sigma * draws.normal(seed, "budget", ids))
    has_one = draws.uniform(seed, "has a budget", ids) < spec.share
    return np.where(has_one, np.maximum(np.rint(amount * MICROS), 1).astype(np.int64), NO_BUDGET)


class Crowd:
    """All bidders of a market. Each acts for the advertisers that drew it."""

    def __init__(self, sim: Simulation, specs, budget_micros: np.ndarray, home: Path = Path(".")):
        world = sim.world
        names = list(specs)
        edges = np.cumsum([specs[name].share for name in names])
        drawn = draws.uniform(sim.seed, "bidder", np.arange(world.n_advertisers)) * edges[-1]
        self.kind_of = np.minimum(
            np.searchsorted(edges, drawn, side="right"), len(names) - 1
        )  # [advertisers]
        self.names = names
        self.bidders: list[Bidder] = []
        self._members: list[np.ndarray] = []
        self._ads: list[np.ndarray] = []
        for i, name in enumerate(names):
            members = np.nonzero(self.kind_of == i)[0]
            ads = np.nonzero(self.kind_of[world.advertiser] == i)[0]
            portfolio = Portfolio(
                value=world.init_bid[ads],
                owner=np.searchsorted(members, world.advertiser[ads]),
                mean_pcvr=sim.platform.bids.mean_pcvr[ads],
                budget_micros=budget_micros[members],
            )
            self._members.append(members)
            self._ads.append(ads)
            self.bidders.append(_build(name, specs[name], portfolio, home))

    def bids(self, moment: Moment, n_ads: int) -> np.ndarray:
        """Bid per click of every ad.  [A]"""
        found = np.zeros(n_ads)
        for bidder, ads in zip(self.bidders, self._ads, strict=True):
            found[ads] = bidder.bids(moment)
        return found

    def participation(self, moment: Moment, n_advertisers: int) -> np.ndarray:
        """Probability of taking part in a request.  [advertisers]"""
        found = np.ones(n_advertisers)
        for bidder, members in zip(self.bidders, self._members, strict=True):
            found[members] = bidder.participation(moment)
        return found

    def observe(self, feedback: Feedback, moment: Moment) -> None:
        """Tell each bidder what came in for its own advertisers, and nothing else."""
        for bidder, members in zip(self.bidders, self._members, strict=True):
            own = Feedback(**{key: value[members] for key, value in vars(feedback).items()})
            bidder.observe(own, moment)


def _build(name: str, spec, portfolio: Portfolio, home: Path) -> Bidder:
    cls = BIDDERS.get(spec.kind) or find_any_class(spec.kind, home)
    try:
        return cls(portfolio, **spec.options)
    except (TypeError, ValueError) as error:
        raise UserError(f"market.bidders.{name}: {spec.kind}: {error}") from error
