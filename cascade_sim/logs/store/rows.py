"""All columns of a store in one pass: each by itself, and what they say of each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.store.format import SHOWN, About
from cascade_sim.storage.columns import ColumnFile

ColumnFiles = dict[tuple[str, str], ColumnFile]
NOT_SHOWN = ("price_micros", "click", "conversion", "exposed")  # are -1 where the ad was not shown


def check_columns(columns: ColumnFiles, files: Mapping[str, Mapping[str, Any]], about: About) -> None:
    """UserError for the first value that no log can have; from here on columns can be read."""

    def digest(table: str, name: str) -> str:
        return str(files[f"{table}/{name}.npy"]["sha256"])

    for (table, name), file in columns.items():
        if table != "candidates":
            file.check(digest(table, name))
    first, slots = columns["requests", "first"].read(), columns["requests", "slots"].read()
    _check_first(columns["requests", "first"], first, about)
    whole = {name: file for (table, name), file in columns.items() if table == "candidates"}
    passes = {name: file.chunks(digest("candidates", name)) for name, file in whole.items()}
    found = _Found(whole, first, slots)
    for chunk in _together(passes):
        found.add(chunk)
    found.check(about, columns["candidates", "ad"].path.parent.parent)


def _together(passes: Mapping[str, Iterator[NDArray[Any]]]) -> Iterator[dict[str, NDArray[Any]]]:
    """Chunks of all columns side by side; at the end each says what is wrong with it."""
    while True:
        chunk = {name: next(chunks, None) for name, chunks in passes.items()}
        if all(values is None for values in chunk.values()):
            return
        yield {name: values for name, values in chunk.items() if values is not None}


def _check_first(file: ColumnFile, first: NDArray[np.int64], about: About) -> None:
    if first[0] != 0 or first[-1] != about.counts.candidates:
        raise UserError(
            f"{file.path}: rows lead from {first[0]:,} to {first[-1]:,}, expected 0 to "
            f"{about.counts.candidates:,}; {file.again}"
        )
    largest = int(np.diff(first).max(initial=0))
    if largest != about.largest_request:
        raise UserError(
            f"{file.path}: the largest request has {largest:,} candidates, expected "
            f"{about.largest_request:,}; {file.again}"
        )


class _Found:
    """What is found in chunks of candidates, as long as each column is in order by itself."""

    def __init__(self, files: Mapping[str, ColumnFile], first: NDArray[Any], slots: NDArray[Any]) -> None:
        self._files, self._first, self._slots = files, first, slots
        self._row = self.shown = self.clicks = 0
        self._last_ad, self._last_places = -1, np.empty(0, np.int64)
        self._fault = ""

    def add(self, chunk: Mapping[str, NDArray[Any]]) -> None:
        n = len(chunk["ad"])
        if self._fault or not n or any(len(values) != n for values in chunk.values()):
            return  # what is wrong is known
        begin, end = np.searchsorted(self._first, (self._row, self._row + n), side="right") - 1
        starts = self._first[begin : end + 1] - self._row
        shown = np.flatnonzero(chunk["slot"] >= 0)
        request = begin + np.searchsorted(starts, shown, side="right") - 1
        self._fault = self._ads(chunk["ad"], starts) or self._shown(chunk, shown, request)
        self._last_ad = int(chunk["ad"][-1])
        self._row += n
        self.shown += len(shown)
        self.clicks += int(np.count_nonzero(chunk["click"] == 1))

    def _ads(self, ads: NDArray[np.int32], starts: NDArray[np.int64]) -> str:
        """Ads ascend within a request."""
        ascends = np.empty(len(ads), bool)
        ascends[0] = ads[0] > self._last_ad
        np.greater(ads[1:], ads[:-1], out=ascends[1:])
        ascends[starts[(starts >= 0) & (starts < len(ads))]] = True
        if ascends.all():
            return ""
        at = int(np.flatnonzero(~ascends)[0])
        before = ads[at - 1] if at else self._last_ad
        return self._at("ad", at, ads[at], f"more than {before}, the ad before it in its request")

    def _shown(self, chunk: Mapping[str, NDArray[Any]], shown: NDArray[Any], request: NDArray[Any]) -> str:
        """A shown ad has a place of its own on its page; what is said of clicks is said of shown ads."""
        slot, stage = chunk["slot"], chunk["stage"]
        outside = np.flatnonzero(slot[shown] >= self._slots[request])
        if len(outside):
            at = int(shown[outside[0]])
            return self._at("slot", at, slot[at], f"less than the {self._slots[request[outside[0]]]} slots")
        places = request * (int(self._slots.max(initial=0)) + 1) + slot[shown]
        known = np.sort(np.concatenate([self._last_places, places]))
        if (known[1:] == known[:-1]).any():
            return self._at("slot", int(shown[0]), "two ads of a request in one slot from here on", "one")
        if len(shown):
            self._last_places = places[request == request[-1]]
        is_shown = slot >= 0
        odd = np.flatnonzero(is_shown != (stage == SHOWN))
        if len(odd):
            return self._at(
                "stage", int(odd[0]), stage[odd[0]], f"{SHOWN} where, and only where, it was shown"
            )
        for name in NOT_SHOWN:
            odd = np.flatnonzero(~is_shown & (chunk.get(name, slot) != -1))  # a log may lack `exposed`
            if len(odd):
                return self._at(name, int(odd[0]), chunk[name][odd[0]], "-1, for it was not shown")
        return ""

    def _at(self, name: str, row: int, value: Any, expected: str) -> str:
        file = self._files[name]
        return f"{file.path}: row {self._row + row:,} has {value}, expected {expected}; {file.again}"

    def check(self, about: About, store: Any) -> None:
        if self._fault:
            raise UserError(self._fault)
        said = {"shown": about.counts.shown, "clicks": about.counts.clicks, "slots": about.slots}
        counted = {"shown": self.shown, "clicks": self.clicks, "slots": int(self._slots.max(initial=0))}
        for name, n in counted.items():
            if said[name] != n:
                raise UserError(f"{store}: log.json says {said[name]:,} {name}, its columns {n:,}")
