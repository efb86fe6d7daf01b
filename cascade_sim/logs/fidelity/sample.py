"""What is compared of a store: whole requests, evenly over its time, as flat columns.

A log may have millions of requests; what is asked of two markets here is answered by some ten thousand. They
are read in stretches of consecutive requests, so that memory and time do not grow with the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cascade_sim.foundation import random as draws

HOUR, DAY = 3600.0, 86_400.0
MAX_REQUESTS = 20_000
MAX_ROWS = 1_500_000  # candidates
STRETCHES = 200
MIN_HOURS = 30  # with as many, hours are resampled; with fewer, requests


@dataclass(frozen=True)
class Sample:
    """Requests [R] of a store and their candidates [C], flat.

    requests     time, slots, reserve, user, feature.*; segment and placement by name, "" where unknown
    candidates   the columns of the store; `request` is the place in the sample that a row belongs to
    visits       [R] how often the user of the request had come before it within the period; -1: no user known
    """

    name: str
    charging: str
    n_requests: int  # of the period that it stands for
    n_ads: int  # of the store
    requests: Mapping[str, np.ndarray]
    candidates: Mapping[str, np.ndarray]
    visits: np.ndarray
    hours: np.ndarray  # [24] requests of the period by hour of the day
    days: float  # that the period spans
    request: np.ndarray = field(repr=False)
    group: np.ndarray = field(repr=False)  # [R] uint64, the same for requests with the same ads and bids
    _codes: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.visits)

    def has(self, *columns: str) -> bool:
        """Whether it has these columns of candidates."""
        return all(column in self.candidates for column in columns)

    @cached_property
    def is_shown(self) -> np.ndarray:
        """Which candidates were shown.  [C]"""
        return self.candidates["slot"] >= 0

    @cached_property
    def unit(self) -> np.ndarray:
        """What is resampled, by number, for each request: its hour where there are many, else itself.  [R]"""
        hours = np.unique(np.floor(self.requests["time"] / HOUR), return_inverse=True)[1]
        if len(self) and hours.max() + 1 >= MIN_HOURS:
            return hours
        return np.arange(len(self))

    @cached_property
    def log_bids(self) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the bids above 0 in rising order, and the rows they are of."""
        bids = self.candidates["bid"]
        at = np.flatnonzero(bids > 0)
        logs = np.log(bids[at])
        order = np.argsort(logs, kind="stable")
        return logs[order], at[order]

    def codes(self, column: str) -> np.ndarray:
        """A column of requests as small integers.  [R]"""
        if column not in self._codes:
            self._codes[column] = np.unique(self.requests[column], return_inverse=True)[1]
        return self._codes[column]

    @property
    def unit_word(self) -> str:
        """What `unit` is, for people."""
        return "requests" if len(np.unique(self.unit)) == len(self) else "hours"


def take(store: Any, first: int = 0, last: int | None = None, most: int = MAX_REQUESTS) -> Sample:
    """A sample of the requests [first, last) of a store."""
    last = store.n_requests if last is None else min(last, store.n_requests)
    per_request = max(1.0, store.n_candidates / max(1, store.n_requests))
    rows = even_rows(first, last, max(1, min(most, int(MAX_ROWS / per_request))))
    wanted = tuple(column for column in store.about.columns["candidates"] if column != "source")
    parts = [store.candidates(int(run[0]), int(run[-1]) + 1, wanted) for run in _runs(rows)]
    candidates = {name: np.concatenate([part[name] for part in parts]) for name in wanted}
    candidates = {name: values for name, values in candidates.items() if is_known(name, values)}
    counts = np.diff(store.first)[rows]
    request = np.repeat(np.arange(len(rows)), counts)
    time, user = store.requests["time"][first:last], store.requests["user"][first:last]
    columns = {
        name: store.requests[name][rows]
        for name in store.about.columns["requests"]
        if name not in NAMED and name != "first"
    }
    for name, table in NAMED.items():
        if name in store.about.columns["requests"]:
            columns[name] = named(store, table, store.requests[name][rows])
    return Sample(
        name=store.about.name,
        charging=store.about.charging,
        n_requests=last - first,
        n_ads=store.n_ads,
        requests=columns,
        candidates=candidates,
        visits=visits_before(user)[rows - first],
        hours=np.bincount((time // HOUR % 24).astype(np.int64), minlength=24),
        days=float(np.ptp(time) / DAY) if len(time) else 0.0,
        request=request,
        group=content(store, request, candidates, len(rows)),
    )


OPEN = ("price_micros", "click", "conversion")  # -1 where it is not known


def is_known(name: str, values: np.ndarray) -> bool:
    """Whether a column says anything: a log without conversions has a column of unknown ones."""
    return name not in OPEN or bool((values >= 0).any())


NAMED = {"segment": "segments", "placement": "placements"}  # the user's code is of its store alone


def even_rows(first: int, last: int, most: int) -> np.ndarray:
    """At most so many of the rows [first, last): all, or stretches evenly apart.  ascending"""
    n = last - first
    if n <= most:
        return np.arange(first, last)
    stretches = min(STRETCHES, most)
    length = most // stretches
    starts = first + np.floor(np.arange(stretches) * (n - length) / max(1, stretches - 1)).astype(np.int64)
    return np.unique((starts[:, None] + np.arange(length)[None, :]).ravel())


def _runs(rows: np.ndarray) -> list[np.ndarray]:
    """Rows cut where a number is left out."""
    return np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []


def named(store: Any, table: str, codes: np.ndarray) -> np.ndarray:
    """The users' own names of codes, "" for unknown ones: codes of two stores are not the same.  text"""
    known, place = np.unique(codes, return_inverse=True)
    names = np.array(["" if code < 0 else str(store.name(table, int(code))) for code in known], dtype=str)
    return names[place] if len(codes) else np.array([], dtype=str)


def visits_before(user: np.ndarray) -> np.ndarray:
    """How often the user of each request had come before it; -1 where no user is known.  [R]"""
    order = np.argsort(user, kind="stable")
    ordered = user[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1)) if len(user) else np.array([], int)
    ages = np.arange(len(user)) - np.repeat(starts, np.diff(np.append(starts, len(user))))
    visits = np.empty(len(user), np.int64)
    visits[order] = ages
    return np.where(user >= 0, visits, -1)


def content(
    store: Any, request: np.ndarray, candidates: Mapping[str, np.ndarray], n_requests: int
) -> np.ndarray:
    """A number for each request that depends on its ads, by name, and their bids alone.  [R] uint64

    A world that serves requests of the log again has copies of them. They must not be taken for further
    evidence, and a classifier must not meet in its test what it learned by heart.
    """
    ads, place = np.unique(candidates["ad"], return_inverse=True)
    keys = np.array([draws.purpose_key(0, str(store.name("ads", int(ad)))) for ad in ads], np.uint64)
    bids = np.ascontiguousarray(candidates["bid"], np.float64).view(np.uint64) if "bid" in candidates else 0
    mixed = draws.bits(0, "content", keys[place], bids) if len(place) else np.zeros(0, np.uint64)
    total = np.zeros(n_requests, np.uint64)
    with np.errstate(over="ignore"):
        np.add.at(total, request, mixed)
    return total
