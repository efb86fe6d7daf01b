"""The daily budgets of a log: when its days begin, and what each advertiser could spend on them."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from cascade_sim.foundation.compilation import kernel
from cascade_sim.logs.store.format import charged
from cascade_sim.logs.store.store import LogStore

EVERY_DAY = -1
ENDLESS = 2**62  # micro-units


class LoggedBudgets:
    """Budgets by day of the log. Days begin at midnight in the log's zone, be they of 23 or 25 hours."""

    def __init__(self, store: LogStore):
        table = store.budgets
        assert table is not None
        self._advertiser, self._day, self._micros = (
            np.asarray(table[name], np.int64) for name in ("advertiser", "day", "budget_micros")
        )
        self._n_advertisers = max(store.n_advertisers, 1)
        self.zone = store.about.zone
        self._starts = datetime.datetime.fromisoformat(store.about.starts)
        self._midnights = np.zeros(1)  # of the days so far, in seconds since the log's first

    @property
    def n_advertisers(self) -> int:
        """Who has a budget on some day."""
        return len(np.unique(self._advertiser))

    def days(self, times: np.ndarray) -> NDArray[np.int64]:
        """The day of each moment, from 0.  [R] seconds -> [R]"""
        last = float(np.max(times, initial=0.0))
        while self._midnights[-1] <= last:
            self._midnights = np.append(self._midnights, self._midnight(len(self._midnights)))
        return np.searchsorted(self._midnights, times, side="right") - 1

    def of_day(self, day: int, without: int) -> NDArray[np.int64]:
        """Micro-units of every advertiser; `without` of those that have no budget that day."""
        micros = np.full(self._n_advertisers, without, np.int64)
        for own in (EVERY_DAY, day):  # what is said of one day goes before what is said of all
            rows = self._day == own
            micros[self._advertiser[rows]] = self._micros[rows]
        return micros

    def usual(self, without: int) -> NDArray[np.int64]:
        """The mean over an advertiser's days; what is said of every day counts as one of them."""
        total, count = np.zeros(self._n_advertisers), np.zeros(self._n_advertisers, np.int64)
        np.add.at(total, self._advertiser, self._micros)
        np.add.at(count, self._advertiser, 1)
        mean = np.maximum(np.rint(total / np.maximum(count, 1)), 1.0)
        return np.where(count > 0, mean, without).astype(np.int64)

    def _midnight(self, day: int) -> float:
        local = self._starts.astimezone(ZoneInfo(self.zone))
        begins = datetime.datetime.combine(
            local.date() + datetime.timedelta(days=day), datetime.time(), ZoneInfo(self.zone)
        )
        return begins.timestamp() - self._starts.timestamp()


class LoggedSpending:
    """Who had spent a budget by when, as the log's own prices and clicks have it."""

    def __init__(self, store: LogStore):
        self._owner, self._budgets = store.advertiser, LoggedBudgets(store)
        self._day = self._budgets.days(store.requests["time"])
        n_days = int(self._day.max(initial=0)) + 1
        left = np.stack([self._budgets.of_day(day, ENDLESS) for day in range(n_days)])
        # The last request that each advertiser of a day had money for: [days, advertisers]
        self._last = np.where(left > 0, store.n_requests, -1)
        about = store.about
        for start, stop, part in store.blocks(("ad", "price_micros", *about.charged_by)):
            counts = np.diff(store.first[start : stop + 1])
            row = np.repeat(np.arange(start, stop), counts)
            paid = charged(about.charging, part) & (part["price_micros"] > 0)
            owner = self._owner[part["ad"][paid]]
            _spend(row[paid], owner, part["price_micros"][paid], self._day, left, self._last)
        self._n_requests = store.n_requests

    @property
    def n_ran_out(self) -> int:
        """Advertisers that ran out of the budget of some day."""
        return int(((self._last >= 0) & (self._last < self._n_requests)).any(axis=0).sum())

    def is_out(self, rows: np.ndarray, ads: np.ndarray) -> NDArray[np.bool_]:
        """Whether the advertisers of these ads had nothing left at these requests.  [R], [R, n] -> [R, n]"""
        owner = self._owner[np.maximum(ads, 0)]
        last: NDArray[np.int64] = self._last[self._day[rows][:, None], owner]
        return (ads >= 0) & (rows[:, None] > last)


@kernel
def _spend(row, owner, price, day, left, last):
    for i in range(len(row)):
        d = day[row[i]]
        left[d, owner[i]] -= price[i]
        if left[d, owner[i]] <= 0 and last[d, owner[i]] > row[i]:
            last[d, owner[i]] = row[i]
