"""Base class of bidders, and checks of their options. The contract is `cascade_sim.protocols.Bidder`.

A bidder acts for m advertisers at once, who own a ads together.
"""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from cascade_sim import protocols
from cascade_sim.protocols import Feedback, MarketTime, Portfolio

MICROS = 1_000_000  # micro-units of money in 1.0


class Bidder(protocols.Bidder):
    """Base class of bidders: bid = value, participation 1; saves the arrays named in STATE.

    A subclass lists in STATE every attribute that `observe` changes (numpy arrays; a single number as an
    array of shape ()). An advertiser whose budget is 0 has nothing to bid with: `payable` makes its bids 0.

    Args:
        portfolio: values, owners and budgets of the advertisers.

    >>> portfolio = Portfolio(np.array([0.4, 0.6]), np.array([0, 0]), np.array([0.1, 0.2]), np.array([10**6]))
    >>> noon = MarketTime(time=43200.0, day=0, elapsed=0.5, expected_traffic=0.5)
    >>> Bidder(portfolio).bids(noon).tolist()
    [0.4, 0.6]
    """

    STATE: tuple[str, ...] = ()

    def __init__(self, portfolio: Portfolio) -> None:
        self.value = np.asarray(portfolio.value, dtype=np.float64)
        self.owner = np.asarray(portfolio.owner, dtype=np.int64)
        self.budget = np.asarray(portfolio.budget_micros, dtype=np.float64)  # [m] micro-units
        self.n_advertisers = len(self.budget)
        self.has_budget = self.budget > 0
        # Dividing by this is safe; an advertiser without a budget spends nothing, so its shares are 0.
        self.budget_or_one = np.where(self.has_budget, self.budget, 1.0)
        self.payable = np.where(self.has_budget[self.owner], self.value, 0.0)  # [a] value, 0 with budget 0

    def bids(self, now: MarketTime) -> np.ndarray:
        """Return the bid per click of each ad.  [a] float64, >= 0"""
        return self.payable.copy()

    def participation(self, now: MarketTime) -> np.ndarray:
        """Return the probability that an advertiser participates in a request.  [m] in [0, 1]"""
        return np.ones(self.n_advertisers)

    def observe(self, feedback: Feedback, now: MarketTime) -> None:
        """Learn from the results since the last update."""

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of the arrays named in STATE."""
        return {name: np.array(getattr(self, name)) for name in self.STATE}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the return value of `state`; ValueError for other names or shapes."""
        if set(state) != set(self.STATE):
            raise ValueError(
                f"{type(self).__name__}: expected the state {', '.join(sorted(self.STATE)) or '(empty)'}, "
                f"found {', '.join(sorted(state)) or '(empty)'}"
            )
        for name in self.STATE:
            own, given = np.asarray(getattr(self, name)), np.asarray(state[name])
            if own.shape != given.shape:
                raise ValueError(
                    f"{type(self).__name__}: state {name!r} has shape {list(given.shape)}, "
                    f"expected {list(own.shape)}"
                )
            setattr(self, name, given.astype(own.dtype))  # a copy

    def per_advertiser(self, of_ad: np.ndarray) -> np.ndarray:
        """Return the mean over each advertiser's ads; 0 for one without ads.  [a] -> [m]"""
        total = np.bincount(self.owner, weights=of_ad, minlength=self.n_advertisers)
        count = np.bincount(self.owner, minlength=self.n_advertisers)
        return total / np.maximum(count, 1)


def number(name: str, value: Any, low: float, high: float = np.inf, *, above: bool = False) -> float:
    """An option that must be a number in [low, high], or in (low, high] where it must lie above `low`."""
    inside = isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) <= high
    if not inside or (above and float(value) == low):
        if np.isinf(high):
            allowed = f"above {low:g}" if above else f"{low:g} or more"
        else:
            allowed = f"in {'(' if above else '['}{low:g}, {high:g}]"
        raise ValueError(f"option {name}: expected a number {allowed}, found {value!r}")
    if np.isinf(float(value)):
        raise ValueError(f"option {name}: expected a finite number, found {value!r}")
    return float(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """An option that must be one of a few words."""
    if value not in allowed:
        raise ValueError(f"option {name}: expected one of {', '.join(allowed)}, found {value!r}")
    return str(value)
