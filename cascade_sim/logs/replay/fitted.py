"""A world fitted to a log: its requests drawn again in blocks of time, its clicks by a fitted click model.

What comes in an hour of the world is what came in an hour of the log at the same time of the day, with the
same candidates and bids; which one is drawn, by a key. Clicks and conversions are drawn from the click model
that was fitted to the log, so nothing that was clicked in the log is clicked here for that reason. The
click model lies in a checksummed folder of plain columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.replay.exposure import Exposure
from cascade_sim.logs.replay.replay import LoggedWorld, Replay, _find, _padded, _taken
from cascade_sim.logs.store.format import LONGEST, MAX_SLOTS
from cascade_sim.logs.store.store import LogStore
from cascade_sim.storage import checksums
from cascade_sim.storage.columns import Column, ColumnFile, as_declared
from cascade_sim.storage.files import parse_json, read_file
from cascade_sim.world.truth import GroundTruth

FILE = "fitted.json"
CTR, MOVED = "fitted.ctr", "fitted.moved"  # as columns of candidates
FEATURES = ("user", "context", "quality", "tier")  # that models may learn from, beside ids
BLOCKS = {"hour": 3600.0, "day": 86_400.0}
SPAN = 10**9  # request ids of a phase
DAY, HOUR = 86_400.0, 3600.0
FORMAT = 2
LARGEST = 1e6  # of features and effects, which are near 1
AGAIN = "fit the world again"


_NUMBER: dict[str, Any] = {"low": -LARGEST, "high": LARGEST}
# What a click model is made of, and may hold.
COLUMNS: dict[str, Column] = {
    "ctr": Column(("<f4",), "of every candidate of the requests fitted to", 0, 1, ("candidates",)),
    "cvr": Column(("<f8",), "conversions per click of every ad", 0, 1, ("ads",)),
    "user": Column(("<f8",), "a feature; the last is of no known user", axes=("users and none",), **_NUMBER),
    "quality": Column(("<f8",), "a feature of every ad", axes=("ads",), **_NUMBER),
    "tier": Column(("<f8",), "a feature of every ad", axes=("ads",), **_NUMBER),
    "context": Column(("<f4",), "a feature of every request", axes=("requests",), **_NUMBER),
    "moved": Column(
        ("<f2",),
        "by how much replicates move the log-odds of each CTR",
        axes=("candidates", "replicates"),
        is_optional=True,
    ),
    "count": Column(
        ("<u1",),
        "how often each request was drawn",
        0,
        255,
        ("requests", "replicates"),
        is_optional=True,
    ),
}


@dataclass(frozen=True)
class Delay:
    """How late conversions are: a mixture of exponentials, cut off at the window."""

    means: list[float]
    weights: list[float]
    window: float


@dataclass(frozen=True)
class Replicates:
    """Slot effects of each replicate, and how much of the log each has drawn."""

    slot_effects: list[list[float]]
    share: float


@dataclass(frozen=True)
class AboutClickModel:
    """What fitted.json must have."""

    log: str
    requests: int
    slot_effects: list[float]
    delay: Delay | None
    replicates: Replicates
    files: dict[str, str]

    def fault(self, store: LogStore) -> str:
        """What cannot be; "" if all can."""
        if not 1 <= self.requests <= store.n_requests:
            return f"requests is {self.requests}, expected 1 to {store.n_requests}"
        for effects in (self.slot_effects, *self.replicates.slot_effects):
            if not max(store.about.slots, 1) <= len(effects) <= MAX_SLOTS:
                return f"{len(effects)} slot effects, expected one for each of {store.about.slots} slots"
            if any(not 0 <= effect <= LARGEST for effect in effects):
                return f"a slot effect outside 0 to {LARGEST:g}: {effects}"
        if len({len(effects) for effects in self.replicates.slot_effects}) > 1:
            return "replicates differ in their number of slots"
        if not 0 < self.replicates.share <= 1:
            return f"replicates.share is {self.replicates.share}, expected more than 0, at most 1"
        if self.delay is not None:
            numbers = [*self.delay.means, *self.delay.weights, self.delay.window]
            is_paired = len(self.delay.means) == len(self.delay.weights) > 0
            if not is_paired or any(not 0 < x <= LONGEST for x in numbers):
                return f"delay is {self.delay}, expected as many means as weights, all above 0"
        wanted = {name for name, entry in COLUMNS.items() if not entry.is_optional}
        wanted |= set(COLUMNS) if self.replicates.slot_effects else set()
        if self.files.keys() != wanted:
            return f"files are {', '.join(sorted(self.files))}, expected {', '.join(sorted(wanted))}"
        return ""


class FittedClickModel:
    """The checksummed folder of a click model of the log in a store: the columns of COLUMNS, all checked.

    Columns by candidate are read by ranges, the others kept.
    """

    def __init__(self, folder: Path, store: LogStore):
        self.folder = folder
        path = folder / FILE
        try:
            about = parse_json(read_file(path))
        except (OSError, ValueError) as error:
            raise UserError(
                f"no fitted click model in {folder}: cannot read {path}; make one with fit-world"
            ) from error
        if not isinstance(about, dict) or not checksums.has_checksum(about):
            raise UserError(f"{path} was changed or damaged since it was written; {AGAIN}")
        if about.get("format") != FORMAT:
            raise UserError(f"{path} has format {about.get('format')}, this version reads {FORMAT}; {AGAIN}")
        declared: AboutClickModel = as_declared(AboutClickModel, about, path, "a fitted click model")
        if fault := declared.fault(store):
            raise UserError(f"{path}: {fault}; {AGAIN}")
        self.about: Mapping[str, Any] = about
        self._whole: dict[str, NDArray[Any]] = {}
        self._files = self._opened(declared, store)

    def _opened(self, declared: AboutClickModel, store: LogStore) -> dict[str, ColumnFile]:
        sizes = {
            "ads": store.n_ads,
            "users and none": store.n_users + 1,
            "requests": declared.requests,
            "candidates": int(store.first[declared.requests]),
            "replicates": len(declared.replicates.slot_effects),
        }
        found = {}
        for name, digest in declared.files.items():
            entry, path = COLUMNS[name], self.folder / f"{name}.npy"
            shape = tuple(sizes[axis] for axis in entry.axes)
            found[name] = ColumnFile(path, entry, np.dtype(entry.dtypes[0]), shape, sizes, AGAIN)
            found[name].check(digest, checksums.hasher)
        return found

    @property
    def seal(self) -> str:
        return str(self.about[checksums.SEAL])

    @property
    def n_requests(self) -> int:
        """Of the log, from its beginning, that it was fitted to."""
        return int(self.about["requests"])

    @property
    def slot_effects(self) -> NDArray[np.float64]:
        return np.asarray(self.about["slot_effects"], np.float64)

    @property
    def n_replicates(self) -> int:
        return len(self.about["replicates"]["slot_effects"])

    @property
    def replicate_effects(self) -> NDArray[np.float64]:
        """Slot effects of each replicate.  [K, k]"""
        return np.asarray(self.about["replicates"]["slot_effects"], np.float64)

    @property
    def replicate_share(self) -> float:
        """How much of the log each replicate has drawn: what is learned from less spreads more."""
        return float(self.about["replicates"]["share"])

    def whole(self, name: str) -> NDArray[Any]:
        """A column, kept."""
        if name not in self._whole:
            self._whole[name] = self._files[name].read()
        return self._whole[name]

    def part(self, name: str, low: int, high: int) -> NDArray[Any]:
        """Of candidates [low, high), read from the disk: ctr [n], moved [n, K]."""
        return self._files[name].read(low, high)


class Resampling:
    """Which logged request stands for which request of the world, and when it comes.

    Time goes by in blocks (hours, or days). Block p of a phase is a logged one of the same hour of the day,
    drawn evenly from those that lie whole in the log; the requests in it follow as they did.
    """

    def __init__(self, time: np.ndarray, block: str, seed: int):
        self._seconds, self._seed = BLOCKS[block], seed
        number = np.floor(time / self._seconds).astype(np.int64)
        edges = np.flatnonzero(np.diff(number)) + 1
        starts = np.concatenate([[0], edges])
        ends = np.concatenate([edges, [len(time)]])
        own = number[starts] if len(time) else np.zeros(0, np.int64)
        # the first and the last may be cut off, and would make for quiet hours; with few there is no choice
        inner = slice(1, -1) if len(starts) > 2 * self._per_day else slice(None)
        self._start, self._end, self._number = starts[inner], ends[inner], own[inner]
        self._time = time
        of_day = self._number % self._per_day
        self._alike = {int(part): np.flatnonzero(of_day == part) for part in np.unique(of_day)}
        self._parts = np.array(sorted(self._alike))
        self._sequences: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def hourly_rates(self) -> NDArray[np.float64]:
        """Requests per second that are to be expected in each hour of the day.  [24]"""
        requests = np.zeros(24)
        for alike in self._alike.values():
            for block in alike:
                hour = self._time[self._start[block] : self._end[block]] % DAY // HOUR
                requests += np.bincount(hour.astype(np.int64), minlength=24) / len(alike)
        return requests / HOUR

    @property
    def _per_day(self) -> int:
        return max(1, round(DAY / self._seconds))

    def _sequence(self, stream: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """The drawn blocks of a phase, and how many requests came before each: up to request `last`."""
        blocks, before = self._sequences.get(stream, (np.zeros(0, np.int64), np.zeros(1, np.int64)))
        while before[-1] <= last:
            position = np.arange(len(blocks), len(blocks) + max(64, len(blocks)))
            draw = draws.uniform(self._seed, "resampled block", stream, position)
            # hours of the day that the log does not have are passed over
            part = self._parts[position % len(self._parts)]
            drawn = [
                self._alike[int(p)][int(u * len(self._alike[int(p)]))]
                for p, u in zip(part, draw, strict=True)
            ]
            blocks = np.concatenate([blocks, np.array(drawn, np.int64)])
            before = np.concatenate([[0], np.cumsum(self._end[blocks] - self._start[blocks])])
            self._sequences[stream] = blocks, before
        return blocks, before

    def place(self, requests: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The log's row of each request, and its time in the world.  [R], [R]"""
        requests = np.asarray(requests, np.int64)
        rows, times = np.empty(len(requests), np.int64), np.empty(len(requests))
        for stream in np.unique(requests // SPAN):
            at = np.flatnonzero(requests // SPAN == stream)
            local = requests[at] - stream * SPAN
            blocks, before = self._sequence(int(stream), int(local.max()))
            position = np.searchsorted(before, local, side="right") - 1
            own = blocks[position]
            rows[at] = self._start[own] + local - before[position]
            day = position // len(self._parts)
            begin = (day * self._per_day + self._parts[position % len(self._parts)]) * self._seconds
            times[at] = begin + self._time[rows[at]] - self._number[own] * self._seconds
        return rows, times


class ResampledReplay(Replay):
    """Columns of a store, and the fitted CTR, by (request of the world, ad)."""

    def __init__(self, store: LogStore, response: FittedClickModel, block: str, seed: int):
        super().__init__(store, 0, 1)
        self.response, self._how = response, (block, seed)

    @cached_property
    def resampling(self) -> Resampling:
        return Resampling(self.store.requests["time"][: self.response.n_requests], *self._how)

    def rows(self, requests: np.ndarray) -> NDArray[np.int64]:
        return self.resampling.place(requests)[0]

    def times(self, requests: np.ndarray) -> NDArray[np.float64]:
        return self.resampling.place(requests)[1]

    def has(self, column: str) -> bool:
        return column == CTR or self.store.has(column)

    def candidates(self, requests: np.ndarray) -> NDArray[np.int32]:
        if not len(requests):
            return np.empty((0, 0), np.int32)
        wanted, place, first = self._local(requests)
        width = max(int(np.diff(first).max(initial=1)), 1)
        return _padded(self._gathered("ad", wanted), first, place, 0, width)

    def several(
        self, requests: np.ndarray, ids: np.ndarray, columns: dict[str, Any]
    ) -> tuple[NDArray[Any], ...]:
        if not ids.size:
            return tuple(np.full(ids.shape, absent) for absent in columns.values())
        wanted, place, first = self._local(requests)
        at = _find(self._gathered("ad", wanted), first, place, 0, np.ascontiguousarray(ids))
        return tuple(_taken(self._gathered(name, wanted), at, absent) for name, absent in columns.items())

    def replicates(self, requests: np.ndarray, ids: np.ndarray) -> NDArray[np.float32]:
        """By how much replicates move the log-odds of these ads' CTRs; 0 for padding.  [R, m, K]"""
        if not ids.size:
            return np.zeros((*ids.shape, self.response.n_replicates), np.float32)
        wanted, place, first = self._local(requests)
        at = _find(self._gathered("ad", wanted), first, place, 0, np.ascontiguousarray(ids))
        moved = self._gathered(MOVED, wanted)[np.maximum(at, 0)].astype(np.float32)
        moved[at < 0] = 0.0
        return moved

    def _local(self, requests: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The different rows of the log, where each request is among them, and their candidates' offsets."""
        wanted, place = np.unique(self.rows(requests), return_inverse=True)
        counts = self.store.first[wanted + 1] - self.store.first[wanted]
        return wanted, place.astype(np.int64), np.concatenate([[0], np.cumsum(counts)])

    def _gathered(self, column: str, wanted: NDArray[np.int64]) -> NDArray[Any]:
        """A column of these rows of the log, one after the other; the last few are kept."""
        key = (column, hash(wanted.tobytes()))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        runs = np.split(wanted, np.flatnonzero(np.diff(wanted) > 1) + 1)
        values = np.concatenate([self._read(column, int(run[0]), int(run[-1]) + 1) for run in runs])
        with self._lock:
            self._kept[key] = values
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return values

    def _read(self, column: str, start: int, stop: int) -> NDArray[Any]:
        if column in (CTR, MOVED):
            name = column.removeprefix("fitted.")
            return self.response.part(name, int(self.store.first[start]), int(self.store.first[stop]))
        return self.store.candidates(start, stop, (column,))[column]

    def __getstate__(self) -> dict[str, Any]:
        return {"store": self.store, "response": self.response, "how": self._how}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["store"], state["response"], *state["how"])  # type: ignore[misc]


KEPT = 24


class FittedTruth(GroundTruth):
    """The fitted click model where a synthetic world has its ground truth."""

    def __init__(self, replay: ResampledReplay):
        self._replay = replay

    def ctr(self, block: Any, ids: np.ndarray) -> NDArray[np.float64]:
        """CTR in the first slot; 0 for padding, and for ads that were no candidates.  [R, m]"""
        return self._replay.values(block.requests, ids, CTR).astype(np.float64)

    def ctr_without_noise(self, block: Any, ids: np.ndarray) -> NDArray[np.float64]:
        """The same: the click model knows nothing that features do not show."""
        return self.ctr(block, ids)

    @cached_property
    def _exposure(self) -> Exposure | None:
        return Exposure(self._replay.store) if self._replay.has("exposed") else None

    def exposed(self, block: Any, slots: int) -> NDArray[np.float64] | None:
        """As the log has it of the request that stands for this one."""
        known = self._exposure
        return None if known is None else known.chances(self._replay.rows(block.requests), slots)

    def cvr(self, block: Any, ids: np.ndarray) -> NDArray[np.float64]:
        """Conversions after a click, by ad; 0 for padding.  [R, m]"""
        rate = self._replay.response.whole("cvr")
        return np.where(ids >= 0, rate[np.maximum(ids, 0)], 0.0)


class FittedWorld(LoggedWorld):
    """What a platform sees of a fitted world: who comes, whose ads there are, and a few features of them."""

    def __init__(self, replay: ResampledReplay, seed: int):
        super().__init__(replay, seed, replay.response.slot_effects)
        response = replay.response

        def table(name: str) -> NDArray[np.float32]:
            return response.whole(name).astype(np.float32)[:, None]

        user, quality, tier = table("user"), table("quality"), table("tier")
        none = np.zeros_like
        object.__setattr__(self, "user_features", {"user": user, "mismatch": none(user)})
        object.__setattr__(self, "ad_features", {"quality": quality, "tier": tier, "mismatch": none(quality)})
        object.__setattr__(self, "is_timed", False)

    @property
    def n_users(self) -> int:
        return len(self.user_features["user"])

    def view(self, features: Sequence[str]) -> Any:
        from cascade_sim.models.features import make_view

        return make_view(
            features, self.user_features, self.ad_features, 0.0, self.advertiser, self.n_advertisers, None
        )


def open_click_model(folder: Path, store: LogStore, log_seal: str) -> FittedClickModel:
    """The click model in a folder; UserError if it was fitted to another log."""
    response = FittedClickModel(folder, store)
    if response.about["log"] != log_seal:
        raise UserError(f"{folder} was fitted to another log than {store.path.parent}; fit the world again")
    return response
