"""Suspicions about a log whose rows are all well formed: ratios and shares that no market has, but a wrong
unit, lost outcomes or a mapping that is off by one has.

Sums of the rows that are kept are taken while they are written. `Suspicions.notes` says of each suspicion the
number, what is suspected and what to write in the mapping. Shares are compared with the rest of the log, at
thresholds that chance passes in less than one of a million logs.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.logs.importing.mapping import UNITS, Mapping
from cascade_sim.logs.store.format import ROW_BITS

SURE = 14.0  # e^-14 is less than one in a million
ENOUGH = 30  # shown ads with a known outcome, or prices: fewer may be chance
MIN_PART = 0.02  # of the log: a shorter run of nothing may be an outage of the site
TYPICAL = 0.5  # of the bid is a usual price
LOW_PRICE = 1 / 30  # median of price over bid: below, a unit may be wrong
MAX_RATIOS = 20_000  # prices of a file that are compared with their bids
LEVELLED_ADS, WINDOWS = 2_000, 10  # ads whose bids are compared between files and tenths of the log
COMMON_ADS, BIDS_EACH = 10, 3  # ads that two parts must share, and bids of each on either side
OF_FILE, OF_WINDOW, OF_STRANGERS, OF_PRICES = 1.5, 2.0, 8.0, 3.0  # ratios that are said
CONSISTENT = 0.9  # of the ads must have moved the same way, by half as much at least


@dataclass
class _Outcomes:
    """Sums over the shown ads of a file."""

    known: int = 0  # whether they were clicked
    clicks: int = 0
    ratios: list[NDArray[np.float64]] = field(default_factory=list)  # logarithms of price over bid


@dataclass
class _Levels:
    """Logarithms of bids by part and ad."""

    total: NDArray[np.float64]
    n: NDArray[np.float64]

    @classmethod
    def of(cls, parts: int) -> _Levels:
        return cls(np.zeros((parts, LEVELLED_ADS)), np.zeros((parts, LEVELLED_ADS)))

    def add(self, part: NDArray[np.int64], ad: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        parts = max(len(self.n), int(part.max(initial=-1)) + 1)
        if parts > len(self.n):
            more = ((0, parts - len(self.n)), (0, 0))
            self.total, self.n = np.pad(self.total, more), np.pad(self.n, more)
        key, size = part * LEVELLED_ADS + ad, self.n.size
        self.total += np.bincount(key, value, size).reshape(self.n.shape)
        self.n += np.bincount(key, minlength=size).reshape(self.n.shape)

    def shift(self, inside: NDArray[np.bool_]) -> float | None:
        """Logarithm of the bids of some parts over those of the same ads in the others.

        0 where the ads do not agree, None where too few ads are in both.
        """
        total = [self.total[some].sum(axis=0) for some in (inside, ~inside)]
        n = [self.n[some].sum(axis=0) for some in (inside, ~inside)]
        both = (n[0] >= BIDS_EACH) & (n[1] >= BIDS_EACH)
        if np.count_nonzero(both) < COMMON_ADS:
            return None
        moved = total[0][both] / n[0][both] - total[1][both] / n[1][both]
        middle = float(np.median(moved))
        is_along = moved * np.sign(middle) >= abs(middle) / 2
        return middle if is_along.mean() >= CONSISTENT else 0.0


class Suspicions:
    """Sums over the rows of a log that are kept, and what they give reason to suspect."""

    def __init__(self, mapping: Mapping, files: Sequence[str], home: str, n_requests: int) -> None:
        self.mapping, self.files, self.home, self.n = mapping, files, home, n_requests
        self.shown = np.zeros(n_requests, np.int32)  # by request, in the order of time
        self.known = np.zeros(n_requests, np.int32)
        self.clicks = np.zeros(n_requests, np.int32)
        self.outcomes: dict[int, _Outcomes] = {}  # by file
        self.by_file, self.by_window = _Levels.of(1), _Levels.of(WINDOWS)
        self.bids: dict[int, tuple[float, int]] = {}  # by file: sum of logarithms, how many
        self.smallest_slot = -1
        self.with_gaps = 0  # pages with an ad below an empty slot

    def add(self, columns: MappingOf[str, NDArray[Any]]) -> None:
        """Rows of whole requests."""
        request, bid = columns["request"], columns["bid"]
        self._add_bids(request, columns["ad"].astype(np.int64), bid, columns["source"])
        at = np.flatnonzero(columns["slot"] >= 0)
        if not len(at):
            return
        slot, click, shown = columns["slot"][at].astype(np.int64), columns["click"][at], request[at]
        least = int(slot.min())
        self.smallest_slot = least if self.smallest_slot < 0 else min(self.smallest_slot, least)
        np.add.at(self.shown, shown, 1)
        np.add.at(self.known, shown, click >= 0)
        np.add.at(self.clicks, shown, click == 1)
        pages, page = np.unique(shown, return_inverse=True)
        deepest = np.zeros(len(pages), np.int64)
        np.maximum.at(deepest, page, slot + 1)
        self.with_gaps += int(np.count_nonzero(deepest > self.shown[pages]))
        source = columns.get("outcomes.source", columns["source"])[at]
        number = np.where(source > 0, source, columns["source"][at]) >> ROW_BITS
        price = columns["price_micros"][at] / 1e6
        is_priced = (price > 0) & (bid[at] > 0)
        for file in np.unique(number).tolist():
            own, entry = number == file, self.outcomes.setdefault(file, _Outcomes())
            entry.known += int(np.count_nonzero(own & (click >= 0)))
            entry.clicks += int(np.count_nonzero(own & (click == 1)))
            some = np.flatnonzero(own & is_priced)[:1000]
            if sum(map(len, entry.ratios)) < MAX_RATIOS:
                entry.ratios.append(np.log(price[some] / bid[at][some]))

    def _add_bids(
        self,
        request: NDArray[np.int64],
        ad: NDArray[np.int64],
        bid: NDArray[np.float64],
        source: NDArray[np.int64],
    ) -> None:
        with np.errstate(invalid="ignore"):
            some = np.flatnonzero(bid > 0)
        value, number = np.log(bid[some]), source[some] >> ROW_BITS
        for file in np.unique(number).tolist():
            own = number == file
            total, n = self.bids.get(file, (0.0, 0))
            self.bids[file] = total + float(value[own].sum()), n + int(np.count_nonzero(own))
        levelled = ad[some] < LEVELLED_ADS
        kept, value = some[levelled], value[levelled]
        self.by_file.add(number[levelled], ad[kept], value)
        self.by_window.add(request[kept] * WINDOWS // self.n, ad[kept], value)

    def notes(self, is_kept: NDArray[np.bool_]) -> list[str]:
        """A line for each suspicion."""
        lines = [self._unit_of_prices(), self._first_slot(), self._gaps()]
        lines += [*self._clicked_alone(), *self._lost(is_kept), *self._currencies()]
        return [line for line in lines if line]

    def first_slot_hint(self) -> str:
        """What to write where slots seem to count from 1; empty where they do not."""
        outcomes = self.mapping.tables.get("outcomes")
        spec = None if outcomes is None else outcomes.columns.get("slot")
        if spec is None or spec.base != 0 or spec.is_packed or not spec.theirs:
            return ""
        return f"write slot: {{column: {spec.theirs[0]}, base: 1}} if slots count from 1"

    def _first_slot(self) -> str:
        total, hint = int(self.shown.sum()), self.first_slot_hint()
        if self.smallest_slot < 1 or total < ENOUGH or not hint:
            return ""
        return (
            f"no ad is in slot 0: the first slot of {total:,} shown ads is {self.smallest_slot}, so every "
            f"page has an empty first slot; {hint}"
        )

    def _gaps(self) -> str:
        """Rows of shown ads that were lost one by one leave a slot empty above another."""
        pages = int(np.count_nonzero(self.shown))
        outcomes, requests = self.mapping.tables.get("outcomes"), self.mapping.tables["requests"]
        is_drawn = (
            outcomes is None or "propensity" in outcomes.columns or "propensities" in self.mapping.tables
        )
        if is_drawn or requests.columns["request"].is_row or self.smallest_slot > 0:
            return ""
        if self.with_gaps < ENOUGH or self.with_gaps < MIN_PART * pages:
            return ""
        return (
            f"{self.with_gaps:,} of {pages:,} pages ({self.with_gaps / pages:.0%}) have an ad below an empty "
            "slot: are rows of shown ads missing (outcomes of clicked ads only, a sample)? If slots are an "
            "order with gaps, write slot: {…, packed: true}"
        )

    def _unit_of_prices(self) -> str:
        ratios = np.concatenate(
            [np.empty(0), *(part for own in self.outcomes.values() for part in own.ratios)]
        )
        if len(ratios) < ENOUGH or (middle := exp(float(np.median(ratios)))) >= LOW_PRICE:
            return ""
        return (
            f"prices are about 1/{1 / middle:,.0f} of the bids (median of {len(ratios):,}): is one of the "
            f"units wrong? {unit_hint(self.mapping, self.home, middle)}"
        )

    def _clicked_alone(self) -> list[str]:
        known, clicks = int(self.known.sum()), int(self.clicks.sum())
        words = (
            "are these outcomes of clicked ads only? Then nothing can be said of click rates: log every "
            "shown ad, with click 0 where it was not clicked"
        )
        if known >= ENOUGH and known == clicks:
            return [f"all {known:,} shown ads with a known outcome were clicked (100 %): {words}"]
        return [
            f"{self.files[file]}: all its {own.known:,} shown ads with a known outcome were clicked, of the "
            f"others {(clicks - own.clicks) / (known - own.known):.2%}: {words}"
            for file, own in sorted(self.outcomes.items())
            if own.known == own.clicks and own.known >= ENOUGH and (known - own.known) >= ENOUGH
            and (clicks - own.clicks) <= 0.5 * (known - own.known)
        ]  # fmt: skip

    def _lost(self, is_kept: NDArray[np.bool_]) -> list[str]:
        """Parts of the log without clicks, or without anything shown."""
        lines = []
        known, clicks = int(self.known.sum()), int(self.clicks.sum())
        for file, own in sorted(self.outcomes.items()):
            rest = (clicks - own.clicks) / max(known - own.known, 1)
            if own.known and not own.clicks and own.known * rest >= SURE + log(len(self.outcomes)):
                lines.append(
                    f"{self.files[file]}: none of its {own.known:,} shown ads was clicked, of those in other "
                    f"files {rest:.2%}: did its clicks get lost? Leave the file out, or map its clicks"
                )
        if not lines and (run := _longest_without(self.clicks[is_kept], self.known[is_kept])):
            lines.append(
                f"none of the {run.among:,} shown ads of requests {run.first:,} to {run.last:,} by time "
                f"({run.among / known:.0%} of the log) was clicked, of the others {run.rate:.2%}: did clicks "
                "get lost there? Leave that part out with between: [from, to], or map its clicks"
            )
        shown = (self.shown[is_kept] > 0).astype(np.int32)
        if run := _longest_without(shown, np.ones(len(shown), np.int32)):
            lines.append(
                f"nothing is shown on requests {run.first:,} to {run.last:,} by time ({run.among:,}, "
                f"{run.among / len(shown):.0%} of the log), on {run.rate:.0%} of the others something is: "
                "did outcomes get lost there? Leave that part out with between: [from, to]"
            )
        return lines

    def _currencies(self) -> list[str]:
        """Bids of the same ads, or prices beside their bids, on another level in one part of the log."""
        remedy = (
            "Convert it, or import it as a log of its own; if it is a unit, write its unit in the mapping"
        )
        lines, levels = [], np.arange(len(self.by_file.n))
        ratios = {
            file: (-1.0 / shift_ratio if shift_ratio < 1 else shift_ratio)
            for file in self.bids
            if len(self.bids) > 1 and (shift_ratio := self._file_ratio(file, levels == file)) is not None
        }
        if ratios:
            file = max(ratios, key=lambda one: abs(ratios[one]))
            lines.append(
                f"{self.files[file]}: its bids are about {_times(ratios[file])} those of the same ads in the "
                f"other files: another currency, or another unit? {remedy}"
            )
        if not lines and (found := self._window_ratio()) is not None:
            begin, end, ratio = found
            lines.append(
                f"bids of the same ads are about {_times(ratio)} the others from {begin:.0%} to {end:.0%} of "
                f"the requests by time: another currency, or another unit in that part? {remedy}"
            )
        return lines or self._strangers(remedy) or self._prices_by_file(remedy)

    def _file_ratio(self, file: int, inside: NDArray[np.bool_]) -> float | None:
        shift = self.by_file.shift(inside) if file < len(inside) else None
        return None if shift is None or abs(shift) < log(OF_FILE) else exp(shift)

    def _window_ratio(self) -> tuple[float, float, float] | None:
        """The part of the log by time whose bids differ most: (from, to, ratio); None without one."""
        tenths, best = np.arange(WINDOWS), (0, 0, 0.0)
        for begin in range(WINDOWS):
            for end in range(begin + 1, WINDOWS + (begin > 0)):
                if end - begin > WINDOWS // 2:
                    continue  # the rest is the smaller part, and is looked at as such
                shift = self.by_window.shift((tenths >= begin) & (tenths < end))
                if shift is not None and abs(shift) > abs(best[2]):
                    best = (begin, end, shift)
        begin, end, shift = best
        if abs(shift) < log(OF_WINDOW):
            return None
        return begin / WINDOWS, end / WINDOWS, exp(shift) if shift > 0 else -exp(-shift)

    def _strangers(self, remedy: str) -> list[str]:
        """Files that share no ads, so only their levels can be compared."""
        levels = {file: total / n for file, (total, n) in self.bids.items() if n >= ENOUGH}
        if len(levels) < 2:
            return []
        low, high = min(levels, key=levels.__getitem__), max(levels, key=levels.__getitem__)
        files = np.arange(len(self.by_file.n))
        if exp(levels[high] - levels[low]) < OF_STRANGERS or self.by_file.shift(files == high) is not None:
            return []
        return [
            f"{self.files[high]}: its bids are about {exp(levels[high] - levels[low]):,.1f} times those of "
            f"{self.files[low]}, which has other ads: another currency, or another unit? {remedy}"
        ]

    def _prices_by_file(self, remedy: str) -> list[str]:
        made = {file: np.concatenate([np.empty(0), *own.ratios]) for file, own in self.outcomes.items()}
        medians = {file: float(np.median(own)) for file, own in made.items() if len(own) >= ENOUGH}
        if len(medians) < 2:
            return []
        usual = float(np.median([*medians.values()]))
        file = max(medians, key=lambda one: abs(medians[one] - usual))
        others = np.concatenate([made[other] for other in medians if other != file])
        shift = medians[file] - float(np.median(others))
        if abs(shift) < log(OF_PRICES):
            return []
        return [
            f"{self.files[file]}: its prices are {exp(medians[file]):.2g} of the bids, those of other files "
            f"{exp(float(np.median(others))):.2g}: another currency, or another unit? {remedy}"
        ]


@dataclass(frozen=True)
class _Run:
    """Requests in a row, by time and from 0, of which nothing is counted, and the rate of all others."""

    first: int
    last: int
    among: int
    rate: float


def _longest_without(hits: NDArray[np.int32], among: NDArray[np.int32]) -> _Run | None:
    """The longest run of requests without a hit, if chance does not make it; counts [R].

    >>> hits = np.tile([1, 0, 0, 0], 100); hits[200:300] = 0
    >>> _longest_without(hits, np.ones(400, np.int32))
    _Run(first=197, last=299, among=103, rate=0.25252525252525254)
    """
    at = np.flatnonzero(hits)
    if not len(at):
        return None
    before = np.concatenate([[0], np.cumsum(among)])
    begins, ends = np.append(0, at + 1), np.append(at, len(hits))
    sizes = before[ends] - before[begins]
    longest = int(np.argmax(sizes))
    size, rest = int(sizes[longest]), int(before[-1] - sizes[longest])
    rate = float(hits.sum()) / max(rest, 1)
    is_sure = size * rate >= SURE + log(len(at) + 1) and size >= MIN_PART * before[-1]
    return _Run(int(begins[longest]), int(ends[longest]) - 1, size, rate) if is_sure else None


def unit_hint(mapping: Mapping, home: str, ratio: float) -> str:
    """What to write for prices that are `ratio` of the bids: the larger column is in a smaller unit."""
    off = max(ratio / TYPICAL, TYPICAL / ratio)
    unit = min(("cents", "cpm", "micros"), key=lambda name: abs(log(off * UNITS[name])))
    bid = mapping.tables[home].columns.get("bid")
    price = mapping.tables["outcomes"].columns.get("price") if "outcomes" in mapping.tables else None
    large, small = (price, bid) if ratio > 1 else (bid, price)
    texts = []
    if large is not None and large.theirs and (large.unit or mapping.money) == "unit":
        own = large.theirs[0]
        texts.append(f"if {own} is in {unit}, write {large.name}: {{column: {own}, unit: {unit}}}")
    if small is not None and small.theirs and (small.unit or mapping.money) != "unit":
        texts.append(
            f"if {small.theirs[0]} is not in {small.unit or mapping.money}, write {small.name}: {{column: "
            f"{small.theirs[0]}, unit: unit}}"
        )
    return "; ".join(texts) or "units are unit, cents, micros and cpm"


def _times(ratio: float) -> str:
    """A ratio in words; below 1 it is given as minus its inverse."""
    return f"{ratio:,.1f} times" if ratio > 0 else f"1/{-ratio:,.1f} of"
