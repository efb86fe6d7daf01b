"""What is kept of a market: totals, hours, and how each kind of bidder spent its budgets."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cascade_sim.agents.traffic_profiles import Profile
from cascade_sim.analysis.metrics.catalogue import MARKET_MEASURES
from cascade_sim.auction import MICROS
from cascade_sim.cascade.ledger import Ledger
from cascade_sim.market.advertisers import BidderPopulation
from cascade_sim.market.bidder_tally import KindTally
from cascade_sim.scenario.market import DAY, Market

HOUR = 3600.0
# Of requests by the time of their page; of charges by the time at which the click reached the ledger.
COUNTED = ("requests", "impressions", "clicks", "conversions", "charged_clicks")
MONEY = ("revenue_micros", "click_value_micros")


class MarketTally:
    """Sums by hour, the days' ledgers, and the kinds of bidders."""

    def __init__(self, crowd: BidderPopulation, ledger: Ledger, spec: Market, profile: Profile, world):
        self._ledger, self._spec = ledger, spec
        n_hours = int(np.ceil(spec.days * DAY / HOUR))
        self.hours = {name: np.zeros(n_hours, np.int64) for name in (*COUNTED, *MONEY)}
        self.kinds = KindTally(crowd, ledger, spec, profile, world)
        self.expected_clicks = 0.0
        self.unbilled_clicks = self.unbilled_micros = self.pending_clicks = 0  # not paid in full
        self._days: list[np.ndarray] = []  # spend of each advertiser on each finished day
        self._dry_at = np.full(len(ledger.budget), np.inf)  # seconds into the day at which money ran out
        self._dry_days: list[np.ndarray] = []  # the same of each finished day

    def add(self, settled) -> None:
        """Count a settled piece of a block; where clicks are charged at once, also its charges."""
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
        self.kinds.add(settled)
        if self._spec.charging.click_delay == 0:
            row, slot = np.nonzero(settled.clicks)
            times, charge = settled.block.times[row], settled.charges_micros[row, slot]
            self._clicked(settled.ads[row, slot], times)
            self._not_paid(settled.cpc_micros[row, slot] - charge)
            self._note_dry(settled.advertiser[row, slot], times, charge)

    def charge(self, clicks: Mapping[str, np.ndarray]) -> None:
        """Book clicks that were charged after their page."""
        np.add.at(self.hours["revenue_micros"], self._hour(clicks["time"]), clicks["charge"])
        self._clicked(clicks["ad"], clicks["time"])
        self._not_paid(clicks["cpc"] - clicks["charge"])
        self._note_dry(clicks["advertiser"], clicks["time"], clicks["charge"])

    def _not_paid(self, micros: np.ndarray) -> None:
        self.unbilled_clicks += int((micros > 0).sum())
        self.unbilled_micros += int(micros.sum())

    def _clicked(self, ads: np.ndarray, times: np.ndarray) -> None:
        """Clicks that have reached the ledger. The value of one is the bid its advertiser began with."""
        hour = self._hour(times)
        np.add.at(self.hours["charged_clicks"], hour, 1)
        np.add.at(self.hours["click_value_micros"], hour, self.kinds.value_micros[ads])
        self.kinds.clicked(ads)

    def _hour(self, times: np.ndarray) -> np.ndarray:
        return np.minimum((times // HOUR).astype(int), len(self.hours["requests"]) - 1)

    def _note_dry(self, advertiser: np.ndarray, times: np.ndarray, charges: np.ndarray) -> None:
        """After charges, in order of time: who ran dry did so at the click that reached the day's budget."""
        spent = self._ledger.spend_today()
        for who in np.unique(advertiser[spent[advertiser] >= self._ledger.budget[advertiser]]):
            if np.isinf(self._dry_at[who]):
                mine = advertiser == who
                after = spent[who] - np.append(np.cumsum(charges[mine][::-1])[::-1][1:], 0)
                self._dry_at[who] = times[mine][np.argmax(after >= self._ledger.budget[who])] % DAY

    def took_part(self, now: float, participated: np.ndarray) -> None:
        """Requests that each advertiser took part in since the last update.  [advertisers] int64"""
        self.kinds.took_part(now, participated)

    def update(self, now: float, bids: np.ndarray, participation: np.ndarray | None = None) -> None:
        """After the bidders' update: how far each kind has come with today's budgets."""
        day = int(np.ceil(now / DAY)) - 1  # midnight still belongs to the day that ends
        today = self._days[day] if day < len(self._days) else self._ledger.spend_today()
        self.kinds.update(now, today, bids, participation)

    def end_of_day(self) -> None:
        """Note each advertiser's spend and when it ran dry, before the ledger begins a new day."""
        self._days.append(self._ledger.spend_today().copy())
        self._dry_days.append(self._dry_at)
        self._dry_at = np.full(len(self._dry_at), np.inf)

    def close(self, pending_clicks: int = 0) -> None:
        """At the end of the simulation, which may be in the middle of a day."""
        self.pending_clicks = pending_clicks
        if len(self._days) < self._spec.days:
            self.end_of_day()

    def state(self) -> dict[str, Any]:
        return {
            "hours": self.hours,
            "kinds": self.kinds.state(),
            "sums": np.array([self.unbilled_clicks, self.unbilled_micros]),
            "expected_clicks": np.float64(self.expected_clicks),
            "days": np.array(self._days, np.int64).reshape(-1, len(self._ledger.budget)),
            "dry_at": self._dry_at,
            "dry_days": np.array(self._dry_days, np.float64).reshape(-1, len(self._ledger.budget)),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.hours = {name: np.array(state["hours"][name]) for name in self.hours}
        self.kinds.restore(state["kinds"])
        self.unbilled_clicks, self.unbilled_micros = (int(n) for n in state["sums"])
        self.expected_clicks = float(state["expected_clicks"])
        self._days = list(np.array(state["days"]))
        self._dry_at, self._dry_days = np.array(state["dry_at"]), list(np.array(state["dry_days"]))

    def metrics(self) -> dict[str, Any]:
        """The section of an arm in metrics.json."""
        total = {name: int(value.sum()) for name, value in self.hours.items()}
        revenue, value = (total[name] / MICROS for name in MONEY)
        sums = {**total, "revenue": revenue}
        return {
            "requests": total["requests"],
            "impressions": total["impressions"],
            "clicks": total["clicks"],
            "conversions": total["conversions"],
            "revenue": revenue,
            "click_value": value,
            "surplus": (total["click_value_micros"] - total["revenue_micros"]) / MICROS,
            "expected_clicks": self.expected_clicks,
            # A market that shows nothing has a CTR and earnings of 0; a price that was never paid it has not.
            **{name: MARKET_MEASURES[name].of(sums) or 0.0 for name in ("ctr", "rpm", "revenue_per_request")},
            "cpc": MARKET_MEASURES["cpc"].of(sums),
            **self._delayed(),
            "hours": {
                "time": [float(h) for h in range(len(self.hours["requests"]))],
                **{name: self.hours[name].tolist() for name in COUNTED},
                **{name.removesuffix("_micros"): (self.hours[name] / MICROS).tolist() for name in MONEY},
            },
            "bidders": self.kinds.metrics(np.stack(self._days), np.stack(self._dry_days)),
        }

    def _delayed(self) -> dict[str, Any]:
        """What late clicks did: given away, still to come, and charged beyond budgets and their limit."""
        days, budget = np.stack(self._days), self._ledger.budget
        return {
            "click_delay": self._spec.charging.click_delay,
            "unbilled_clicks": self.unbilled_clicks,
            "unbilled_revenue": self.unbilled_micros / MICROS,
            "pending_clicks": self.pending_clicks,
            "overspend_limit": self._spec.charging.overspend,
            "overspend": max(0, int((days - budget).max())) / MICROS,
            "overspend_share": max(0.0, float(((days - budget) / budget).max())),
            "beyond_limit": max(0, int((days - self._ledger.limit).max())) / MICROS,
        }
