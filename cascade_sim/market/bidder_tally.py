"""How each kind of bidder fared in a market: what it won, what it bid, and how its advertisers spent.

Counts are integers and curves are read at the bidders' updates, so nothing here depends on how requests
were cut into blocks.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cascade_sim.agents.traffic_profiles import Profile, expected_share
from cascade_sim.auction import MICROS
from cascade_sim.cascade.ledger import NO_BUDGET, Ledger
from cascade_sim.market.advertisers import BidderPopulation
from cascade_sim.scenario.market import DAY, Market

HOUR = 3600.0
QUANTILES = (0.1, 0.5, 0.9)  # over a kind's advertisers, of the share of the budget spent
SINGLE = 3  # advertisers of median budget that are followed one by one
DRAWN = 336  # points of a curve that is there to be looked at
LAST = 0.1  # share of the updates that stand for the end of the market
COUNTS = ("impressions", "clicks", "value_micros")
BY_KIND = ("spend_share", "multiplier", "participation")


class KindTally:
    """Counts, spend curves and wins, for every kind of bidder of one arm."""

    def __init__(self, crowd: BidderPopulation, ledger: Ledger, spec: Market, profile: Profile, world):
        self.names, self._kind_of = crowd.names, crowd.kind_of
        self._ledger, self._profile, self._world = ledger, profile, world
        self.has_budget = ledger.budget < NO_BUDGET
        self.value_micros = np.rint(world.init_bid * MICROS).astype(np.int64)  # [ads], of a click
        n, n_hours = len(self.names), int(np.ceil(spec.days * DAY / HOUR))
        self._counts = {name: np.zeros(n, np.int64) for name in COUNTS}
        self._won = np.zeros(n, np.int64)  # impressions out of auctions since the last update
        self._hours = {name: np.zeros((n_hours, n), np.int64) for name in ("requests", "impressions")}
        self._time: list[float] = []
        self._traffic: list[float] = []
        self._curves: dict[str, list] = {name: [] for name in BY_KIND}  # [updates][kinds]
        self._spread: list[np.ndarray] = []  # [updates][kinds, quantiles and single advertisers]
        self._single = [self._median_ones(i) for i in range(n)]

    def _budgeted(self, i: int) -> np.ndarray:
        """The advertisers of a kind that have a budget."""
        return np.nonzero((self._kind_of == i) & self.has_budget)[0]

    def _median_ones(self, i: int) -> np.ndarray:
        """The advertisers whose budgets are closest to the median of their kind; ties: the smaller number."""
        mine = self._budgeted(i)
        if not len(mine):
            return mine
        budget = self._ledger.budget[mine].astype(np.float64)
        return mine[np.argsort(np.abs(np.log(budget / np.median(budget))), kind="stable")[:SINGLE]]

    def add(self, settled) -> None:
        """Count what was shown in a settled piece of a block."""
        shown = settled.ads >= 0
        kind = self._kind_of[settled.advertiser]
        np.add.at(self._counts["impressions"], kind[shown], 1)
        np.add.at(self._won, kind[shown & settled.lists.is_auctioned[:, None]], 1)

    def clicked(self, ads: np.ndarray) -> None:
        """Clicks that have reached the ledger, by their ads."""
        kind = self._kind_of[self._world.advertiser[ads]]
        np.add.at(self._counts["clicks"], kind, 1)
        np.add.at(self._counts["value_micros"], kind, self.value_micros[ads])

    def took_part(self, now: float, participated: np.ndarray) -> None:
        """Requests that each advertiser took part in since the last call; booked on the hour that ends."""
        hour = max(0, int(np.ceil(now / HOUR)) - 1)
        np.add.at(self._hours["requests"][hour], self._kind_of, participated)
        self._hours["impressions"][hour] += self._won
        self._won = np.zeros_like(self._won)

    def update(
        self, now: float, today: np.ndarray, bids: np.ndarray, participation: np.ndarray | None
    ) -> None:
        """Add a point to the curves, after the bidders' update. `today` [advertisers]: the day's spend."""
        day = int(np.ceil(now / DAY)) - 1  # midnight still belongs to the day that ends
        kinds = range(len(self.names))
        self._time.append(now)
        self._traffic.append(float(expected_share(self._profile, day, now)))
        spent, budget = self._sums(today), self._sums(self._ledger.budget)
        self._curves["spend_share"].append([s / b if b else 0.0 for s, b in zip(spent, budget, strict=True)])
        kind_of_ad, relative = self._kind_of[self._world.advertiser], bids / self._world.init_bid
        self._curves["multiplier"].append([_mean(relative[kind_of_ad == i]) for i in kinds])
        takes_part = np.ones(len(self._kind_of)) if participation is None else participation
        self._curves["participation"].append([_mean(takes_part[self._kind_of == i]) for i in kinds])
        self._spread.append(np.stack([self._spread_of(i, today) for i in kinds]))

    def _spread_of(self, i: int, today: np.ndarray) -> np.ndarray:
        """Quantiles of the share of the budget spent, then the shares of single advertisers; NaN: none."""
        shares = np.full(len(QUANTILES) + SINGLE, np.nan)
        mine, single = self._budgeted(i), self._single[i]
        if len(mine):
            shares[: len(QUANTILES)] = np.quantile(today[mine] / self._ledger.budget[mine], QUANTILES)
            shares[len(QUANTILES) :][: len(single)] = today[single] / self._ledger.budget[single]
        return shares

    def _sums(self, amounts: np.ndarray) -> list[float]:
        """Sum over the advertisers of each kind that have a budget; many budgets exceed 64 bits."""
        return [float(amounts[self._budgeted(i)].sum(dtype=np.float64)) for i in range(len(self.names))]

    def state(self) -> dict[str, Any]:
        n = len(self.names)
        return {
            "counts": self._counts,
            "won": self._won,
            "hours": self._hours,
            "time": np.array(self._time, np.float64),
            "traffic": np.array(self._traffic, np.float64),
            "curves": {
                name: np.array(rows, np.float64).reshape(-1, n) for name, rows in self._curves.items()
            },
            "spread": np.array(self._spread, np.float64).reshape(-1, n, len(QUANTILES) + SINGLE),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._counts = {name: np.array(state["counts"][name]) for name in self._counts}
        self._won = np.array(state["won"])
        self._hours = {name: np.array(state["hours"][name]) for name in self._hours}
        self._time, self._traffic = state["time"].tolist(), state["traffic"].tolist()
        self._curves = {name: state["curves"][name].tolist() for name in self._curves}
        self._spread = list(np.array(state["spread"]))

    def metrics(self, days: np.ndarray, dry_at: np.ndarray) -> dict[str, Any]:
        """{kind of bidder: figures}. days [days, advertisers]: micro-units spent; dry_at: seconds or inf."""
        return {
            name: {**self._money(i, days, dry_at), **self._wins(i), "curve": self._curve(i)}
            for i, name in enumerate(self.names)
        }

    def _money(self, i: int, days: np.ndarray, dry_at: np.ndarray) -> dict[str, Any]:
        mine, budgeted = self._kind_of == i, self._budgeted(i)
        budget = self._ledger.budget[budgeted].astype(np.float64)
        use = days[:, budgeted] / budget
        dry = dry_at[:, budgeted][np.isfinite(dry_at[:, budgeted])]  # of all days
        value, spend = int(self._counts["value_micros"][i]), int(days[:, mine].sum())
        shares = zip(self._curves["spend_share"], self._traffic, strict=True)
        return {
            "advertisers": int(mine.sum()),
            "with_budget": len(budgeted),
            "budget": float(budget.sum() * len(days)) / MICROS,
            "spend": spend / MICROS,
            "click_value": value / MICROS,
            "surplus": (value - spend) / MICROS,
            "budget_utilisation": float(days[:, budgeted].sum() / (budget.sum() * len(days)))
            if len(budgeted)
            else None,
            "median_utilisation": float(np.median(use)) if use.size else None,
            "budget_exhausted": len(dry) / (len(days) * len(budgeted)) if len(budgeted) else None,
            "exhaustion_hour": float(np.median(dry) / HOUR) if len(dry) else None,
            "max_pacing_error": max((abs(spent[i] - traffic) for spent, traffic in shares), default=0.0),
        }

    def _wins(self, i: int) -> dict[str, Any]:
        """Impressions won in auctions per request taken part in: in all, and by hour."""
        hours = {name: values[:, i].tolist() for name, values in self._hours.items()}
        requests, impressions = sum(hours["requests"]), sum(hours["impressions"])
        last = self._curves["multiplier"][-max(1, round(LAST * len(self._time))) :]
        return {
            "impressions": int(self._counts["impressions"][i]),
            "clicks": int(self._counts["clicks"][i]),
            "win_rate": impressions / requests if requests else None,
            "last_multiplier": float(np.mean([row[i] for row in last])) if last else None,
            "hours": hours,
        }

    def _curve(self, i: int) -> dict[str, Any]:
        curve = {
            "hour": [t / HOUR for t in self._time],
            "traffic_share": list(self._traffic),
            **{name: [row[i] for row in rows] for name, rows in self._curves.items()},
        }
        return {**curve, "advertisers": self._spread_curve(i)}

    def _spread_curve(self, i: int) -> dict[str, Any] | None:
        """Shares of the budget spent over a kind's advertisers, thinned and rounded: to be looked at."""
        if not len(self._budgeted(i)) or not self._time:
            return None
        step = -(-len(self._time) // DRAWN)
        n = len(self._time)
        kept = [k for k in range(n) if (k + 1) % step == 0 or self._time[k] % DAY == 0 or k == n - 1]
        rows = np.round([self._spread[k][i] for k in kept], 4).T.tolist()
        low, median, high, *single = rows
        budgets = self._ledger.budget[self._single[i]] / MICROS
        return {
            "hour": [self._time[k] / HOUR for k in kept],
            "low": low,
            "median": median,
            "high": high,
            "single": [
                {"budget": budget, "share": share}
                for budget, share in zip(budgets.tolist(), single, strict=False)
            ],
        }


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else 0.0
