"""The advertisers of a market: their budgets and their bidders."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.agents.bidding import Bidder, Feedback, MarketTime, Portfolio
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.scenario.plugins import errors_of
from cascade_sim.storage.checkpoints import flat
from cascade_sim.study.simulation import Simulation
from cascade_sim.training.modules import build_bidder

MAX_BID = 1e6  # a million such clicks still fit the integers of a ledger


class BidderPopulation:
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
        self._kinds = [specs[name].kind for name in names]
        self.bidders: list[Bidder] = []
        self._at_first: list[dict[str, Any]] = []
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
            with errors_of(f"market.bidders.{name}", specs[name].kind):
                self.bidders.append(build_bidder(specs[name].kind, portfolio, specs[name].options, home))
                self._at_first.append(_fingerprints(self.bidders[-1]))

    def bids(self, now: MarketTime, n_ads: int) -> np.ndarray:
        """Bid per click of every ad.  [A]"""
        bids = np.zeros(n_ads)
        for i, ads in enumerate(self._ads):
            bids[ads] = self._answer(i, "bids", now, len(ads), MAX_BID)
        return bids

    def participation(self, now: MarketTime, n_advertisers: int) -> np.ndarray:
        """Probability of taking part in a request.  [advertisers]"""
        shares = np.ones(n_advertisers)
        for i, members in enumerate(self._members):
            shares[members] = self._answer(i, "participation", now, len(members), 1.0)
        return shares

    def observe(self, feedback: Feedback, now: MarketTime) -> None:
        """Tell each bidder what came in for its own advertisers, and nothing else."""
        for i, members in enumerate(self._members):
            own = Feedback(**{key: value[members] for key, value in vars(feedback).items()})
            with self._errors_of(i):
                self.bidders[i].observe(own, now)

    def state(self) -> dict[str, Any]:
        """What the bidders have learned, by their number, and changed attributes that they do not save."""
        states: dict[str, Any] = {}
        for i, bidder in enumerate(self.bidders):
            with self._errors_of(i):
                state = {key: np.asarray(value) for key, value in bidder.state().items()}
                flat(state)  # what cannot be stored is refused here, with the bidder's name
                now = _fingerprints(bidder)
                lost = [key for key in now if key not in state and now[key] != self._at_first[i].get(key)]
                states[str(i)] = {"state": state, "unsaved": np.array(",".join(lost))}
        return states

    def restore(self, state: Mapping[str, Any]) -> None:
        for i, bidder in enumerate(self.bidders):
            with self._errors_of(i):
                unsaved = str(state[str(i)]["unsaved"])
                if unsaved:
                    raise UserError(
                        f"it changes {unsaved}, which its state() leaves out, so a stopped run cannot go on "
                        "from here; add it to STATE, and run without --resume"
                    )
                bidder.restore(state[str(i)].get("state", {}))

    def _errors_of(self, i: int) -> AbstractContextManager[None]:
        return errors_of(f"market.bidders.{self.names[i]}", self._kinds[i])

    def _answer(self, i: int, method: str, now: MarketTime, n: int, most: float) -> np.ndarray:
        """What a bidder says: n numbers in [0, most], or a UserError that names it."""
        with self._errors_of(i):
            given = np.asarray(getattr(self.bidders[i], method)(now))
            when = f"{method} at {now.time:g} s"
            if given.shape != (n,):
                raise UserError(f"{when}: the answer has shape {list(given.shape)}, expected [{n}]")
            if given.dtype.kind not in "fiub":  # text and complex numbers would be converted in silence
                raise UserError(f"{when}: the answer is of {given.dtype}, expected real numbers")
            answer = given.astype(np.float64)
            is_bad = ~((answer >= 0) & (answer <= most))
            if is_bad.any():
                at = int(np.argmax(is_bad))
                raise UserError(f"{when}: entry {at} is {answer[at]}; expected a number in [0, {most:g}]")
        return answer


def _fingerprints(bidder: Bidder) -> dict[str, Any]:
    """Every attribute of a bidder as something that can be compared."""
    return {
        key: (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)
        for key, value in vars(bidder).items()
    }
