"""What is kept of a market: totals, hours, and how each kind of bidder spent its budgets."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agents.traffic_profiles import Profile, expected_share
from cascade_sim.advertising import NO_BUDGET, Crowd, Ledger
from cascade_sim.auction import MICROS
from cascade_sim.scenario_market import DAY, Market

HOUR = 3600.0
BY_KIND = ("spend_share", "multiplier")  # of the updates: a number for every kind of bidder


class MarketTally:
    """Sums by hour, spend curves by kind of bidder, and the days' ledgers."""

    def __init__(self, crowd: Crowd, ledger: Ledger, spec: Market, profile: Profile):
        self._crowd, self._ledger, self._spec, self._profile = crowd, ledger, spec, profile
        n_hours = int(np.ceil(spec.days * DAY / HOUR))
        self.hours = {
            name: np.zeros(n_hours, np.int64)
            for name in ("requests", "impressions", "clicks", "conversions", "revenue_micros")
        }
        self.expected_clicks = 0.0
        self.free_clicks = self.given_away_micros = self.clicks_under_way = 0  # of delayed clicks
        self.has_budget = ledger.budget < NO_BUDGET
        self._updates: dict[str, list] = {
            "time": [],
            "traffic_share": [],
            "spend_share": [],
            "multiplier": [],
        }
        self._days: list[np.ndarray] = []  # spend of each advertiser on each finished day
        self._last_click = np.zeros(len(ledger.budget))  # seconds into the day
        self._dry_at = np.full(len(ledger.budget), np.inf)  # seconds into the day at which money ran out

    def add(self, settled) -> None:
        """One settled piece of a block."""
        hour = self._hour(settled.block.times)
        counts = {
            "requests": np.ones(len(hour), np.int64),
            "impressions": (settled.ads >= 0).sum(axis=1),
            "clicks": settled.clicks.sum(axis=1),
            "conversions": settled.conversions.sum(axis=1),
            "revenue_micros": settled.charges_micros.sum(axis=1),
        }
        for name, count in counts.items():
            np.add.at(self.hours[name], hour, count)
        # Strictly one after the other, so that the sum does not depend on how requests were cut into blocks.
        in_order = np.concatenate([[self.expected_clicks], settled.expected_clicks.ravel()])
        self.expected_clicks = float(np.cumsum(in_order)[-1])
        row, slot = np.nonzero(settled.clicks & (settled.charges_micros > 0))
        self._note_dry(settled.advertiser[row, slot], settled.block.times[row])

    def charge(self, clicks: Mapping[str, np.ndarray]) -> None:
        """Clicks that were charged after their page."""
        np.add.at(self.hours["revenue_micros"], self._hour(clicks["time"]), clicks["charge"])
        self.free_clicks += int((clicks["charge"] < clicks["cpc"]).sum())
        self.given_away_micros += int((clicks["cpc"] - clicks["charge"]).sum())
        self._note_dry(clicks["advertiser"], clicks["time"])

    def _hour(self, times: np.ndarray) -> np.ndarray:
        return np.minimum((times // HOUR).astype(int), len(self.hours["requests"]) - 1)

    def _note_dry(self, advertiser: np.ndarray, times: np.ndarray) -> None:
        """After charges, in order of time: who has spent the day's budget has run dry at its last one."""
        self._last_click[advertiser] = times % DAY  # in order: the last one stays
        spent = self._ledger.spend_today()[advertiser] >= self._ledger.budget[advertiser]
        broke = advertiser[spent]
        self._dry_at[broke] = np.minimum(self._dry_at[broke], self._last_click[broke])

    def update(self, now: float, bids: np.ndarray, world) -> None:
        """After the bidders' update: how far each kind has come with today's budgets."""
        day = int(np.ceil(now / DAY)) - 1  # midnight still belongs to the day that ends
        kinds = range(len(self._crowd.names))
        kind_of_ad = self._crowd.kind_of[world.advertiser]
        today = self._days[day] if day < len(self._days) else self._ledger.spend_today()
        spend, budget = self._budgeted(today), self._budgeted(self._ledger.budget)
        self._updates["time"].append(now)
        self._updates["traffic_share"].append(float(expected_share(self._profile, day, now)))
        self._updates["spend_share"].append([s / b if b else 0.0 for s, b in zip(spend, budget, strict=True)])
        self._updates["multiplier"].append(
            [
                float(np.mean((bids / world.init_bid)[kind_of_ad == i])) if (kind_of_ad == i).any() else 0.0
                for i in kinds
            ]
        )

    def end_of_day(self) -> None:
        """Before the ledger turns over."""
        self._days.append(self._ledger.spend_today().copy())

    def close(self, clicks_under_way: int = 0) -> None:
        """At the end of the simulation, which may be in the middle of a day."""
        self.clicks_under_way = clicks_under_way
        if len(self._days) < self._spec.days:
            self._days.append(self._ledger.spend_today().copy())

    def state(self) -> dict[str, Any]:
        kinds = len(self._crowd.names)
        return {
            "hours": self.hours,
            "sums": np.array([self.free_clicks, self.given_away_micros]),
            "expected_clicks": np.float64(self.expected_clicks),
            "updates": {
                name: np.array(value, np.float64).reshape((-1, kinds) if name in BY_KIND else (-1,))
                for name, value in self._updates.items()
            },
            "days": np.array(self._days, np.int64).reshape(-1, len(self._ledger.budget)),
            "last_click": self._last_click,
            "dry_at": self._dry_at,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.hours = {name: np.array(state["hours"][name]) for name in self.hours}
        self.free_clicks, self.given_away_micros = (int(n) for n in state["sums"])
        self.expected_clicks = float(state["expected_clicks"])
        self._updates = {name: state["updates"][name].tolist() for name in self._updates}
        self._days = list(np.array(state["days"]))
        self._last_click, self._dry_at = np.array(state["last_click"]), np.array(state["dry_at"])

    def _budgeted(self, amounts: np.ndarray) -> list[float]:
        """Sum over the advertisers of each kind that have a budget."""
        mine = [self.has_budget & (self._crowd.kind_of == i) for i in range(len(self._crowd.names))]
        return [float(amounts[one].sum(dtype=np.float64)) for one in mine]  # many budgets exceed 64 bits

    def metrics(self) -> dict[str, Any]:
        """The section of an arm in metrics.json."""
        total = {name: int(value.sum()) for name, value in self.hours.items()}
        revenue = total["revenue_micros"] / MICROS
        return {
            "requests": total["requests"],
            "impressions": total["impressions"],
            "clicks": total["clicks"],
            "conversions": total["conversions"],
            "revenue": revenue,
            "expected_clicks": self.expected_clicks,
            "ctr": total["clicks"] / max(total["impressions"], 1),
            "rpm": 1000.0 * revenue / max(total["impressions"], 1),
            "revenue_per_request": revenue / max(total["requests"], 1),
            "free_clicks": self.free_clicks,
            "given_away": self.given_away_micros / MICROS,
            "clicks_under_way": self.clicks_under_way,
            "overspend_limit": self._spec.charging.overspend,
            "overspend": max(0, int((np.stack(self._days) - self._ledger.budget).max())) / MICROS,
            "hours": {
                "time": [float(h) for h in range(len(self.hours["requests"]))],
                **{name: value.tolist() for name, value in self.hours.items() if name != "revenue_micros"},
                "revenue": (self.hours["revenue_micros"] / MICROS).tolist(),
            },
            "bidders": {name: self._kind(i) for i, name in enumerate(self._crowd.names)},
        }

    def _kind(self, i: int) -> dict[str, Any]:
        """How the advertisers of one kind fared."""
        mine = self._crowd.kind_of == i
        budgeted = mine & self.has_budget
        days = np.stack(self._days)
        budget = self._ledger.budget[budgeted].astype(np.float64)
        use = days[:, budgeted] / budget if budgeted.any() else np.zeros((len(days), 0))
        gap = [
            abs(shares[i] - traffic)
            for shares, traffic in zip(
                self._updates["spend_share"], self._updates["traffic_share"], strict=True
            )
        ]
        dry = self._dry_at[budgeted]
        return {
            "advertisers": int(mine.sum()),
            "with_budget": int(budgeted.sum()),
            "budget": float(budget.sum() * len(days)) / MICROS,
            "spend": float(days[:, mine].sum()) / MICROS,
            "spend_of_budget": float(days[:, budgeted].sum() / (budget.sum() * len(days)))
            if budgeted.any()
            else None,
            "median_use": float(np.median(use)) if use.size else None,
            "ran_dry": float(np.isfinite(dry).mean()) if budgeted.any() else None,
            "dry_hour": float(np.median(dry[np.isfinite(dry)]) / HOUR) if np.isfinite(dry).any() else None,
            "largest_gap": float(max(gap, default=0.0)),
            "curve": {
                "hour": [t / HOUR for t in self._updates["time"]],
                "traffic_share": self._updates["traffic_share"],
                "spend_share": [shares[i] for shares in self._updates["spend_share"]],
                "multiplier": [m[i] for m in self._updates["multiplier"]],
            },
        }
