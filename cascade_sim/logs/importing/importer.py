"""The way of a log into a store: requests, then candidates and outcomes by request on the disk, then cross
checks.

    1  requests are read and put in the order of (time, id); a few tens of bytes of each stay in memory
    2  candidates, outcomes and propensities are read once, each row is checked, and those of a range of
       requests are put into one bucket on the disk
    3  bucket by bucket they are sorted by (request, ad), compared with each other, and written to the store
    4  if a kind of fault is above its allowed share nothing stays; else the store gets its name

A request with a faulty row is left out whole, since an auction with a hole in it cannot be replayed.
"""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable, Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.signals import check_interrupt
from cascade_sim.logs.importing.codes import Codes
from cascade_sim.logs.importing.faults import EXAMPLES, Faults
from cascade_sim.logs.importing.mapping import Mapping, TableSpec
from cascade_sim.logs.importing.sources import (
    FEATHER,
    PARQUET,
    UNREADABLE,
    Batch,
    Files,
    Reader,
    estimated_rows,
)
from cascade_sim.logs.importing.spill import BUCKET_ROWS, Spill
from cascade_sim.logs.importing.suspicions import Suspicions, unit_hint
from cascade_sim.logs.importing.values import Rows, local_midnight
from cascade_sim.logs.store import format as logged_format
from cascade_sim.logs.store.format import (
    FEATURE,
    MAX_SLOTS,
    RANKED,
    RETRIEVED,
    ROW_BITS,
    SCORE,
    SHOWN,
    About,
    Source,
)
from cascade_sim.logs.store.store import STORE, LogStore, StoreWriter, new_folder, open_store
from cascade_sim.storage.columns import FINITE
from cascade_sim.storage.files import storage_errors

PREDICTIONS = ("pctr", "pcvr", "pre_score")
OUTCOMES = ("slot", "price_micros", "click", "conversion", "exposed", "conversion_delay", "propensity")
NOT_SHOWN = {"slot": -1, "price_micros": -1, "click": -1, "conversion": -1}  # in every log
UNKNOWN = {**NOT_SHOWN, "exposed": -1}
NEAR, ENOUGH_NEAR = 1.1, 20  # bids up to so many times their reserve; fewer of them may be chance
FAR = 100.0  # times: between two files' bids, or prices and bids, such a ratio is one of units
Readers = MappingOf[str, Reader]
Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class Imported:
    """What came of an import."""

    store: LogStore
    validation: dict[str, Any]
    notes: list[str]


def import_logs(
    mapping: Mapping,
    out: str | Path,
    *,
    readers: Readers | None = None,
    finish: Callable[[Path, About, dict[str, Any]], None] | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Read, check and write. UserError with all kinds of faults if the log is refused; nothing is left then.

    `finish` writes what else belongs into the folder before it gets its name.
    """
    with storage_errors(Path(out)), new_folder(out) as temp:
        work = _Import(mapping, temp, readers or {}, progress or (lambda what, rows: None))
        about, validation = work.run()
        if finish is not None:
            finish(temp, about, validation)
    return Imported(open_store(out), validation, work.faults.told())


class _Grown:
    """An array by code that grows as codes do."""

    def __init__(self, dtype: str, fill: float) -> None:
        self.values = np.full(1024, fill, dtype)
        self.fill = fill

    def room(self, n: int) -> NDArray[Any]:
        if n > len(self.values):
            larger = np.full(max(n, 2 * len(self.values)), self.fill, self.values.dtype)
            larger[: len(self.values)] = self.values
            self.values = larger
        return self.values


class _Import:
    """One import: what is known so far, and the steps."""

    def __init__(self, mapping: Mapping, temp: Path, readers: Readers, progress: Progress) -> None:
        self.home = "candidates" if "candidates" in mapping.tables else "outcomes"
        tables = {name: self._own_rows(spec, readers) for name, spec in mapping.tables.items()}
        self.mapping, self.temp, self.progress = replace(mapping, tables=tables), temp, progress
        self.faults = Faults()
        self.files = Files(self.faults, mapping.csv, readers, mapping.sha256)
        self.codes = {
            kind: Codes() for kind in ("requests", "ads", "advertisers", "users", "segments", "placements")
        }
        self.owner = _Grown("<i4", -1)  # by ad
        self.bids_by_file: dict[int, tuple[float, int]] = {}  # sum of logarithms, how many
        self.ratios: list[NDArray[np.float64]] = []  # of price and bid
        self.dtypes = self._dtypes()

    def _own_rows(self, spec: TableSpec, readers: Readers) -> TableSpec:
        """A table that has a reader of its own has rows of its own, be it of the same files."""
        has_own = spec.name in readers and readers[spec.name] is not readers.get(self.home)
        return replace(spec, shares=None) if has_own else spec

    def run(self) -> tuple[About, dict[str, Any]]:
        self.files.verify()
        self.faults.check(self.mapping.allow, self.mapping.where)
        self._read_requests()
        if not self.codes["requests"].n and not self.faults.refusals and not self.faults.found:
            self.faults.refusals.append(f"{self.mapping.where}: there is not one request in the log")
        if not self.codes["requests"].n:
            self.faults.check(self.mapping.allow, self.mapping.where)
        self._order_requests()
        spills = self._read_rows()
        with StoreWriter(self.temp / STORE) as writer:
            try:
                self._write_candidates(writer, spills)
            finally:
                for spill in spills.values():
                    spill.close()
            shutil.rmtree(self.temp / "rows", ignore_errors=True)
            budgets = self._read_budgets()
            self._check_units()
            self.faults.notes += self.suspicions.notes(self.is_kept)
            self.faults.check(self.mapping.allow, self.mapping.where)
            if not self.is_kept.any():
                raise UserError(f"{self.mapping.where}: no request is left: all have a fault that is allowed")
            self._write_requests(writer)
            if budgets is not None:
                writer.append("budgets", self._by_day_of_log(budgets))
            self._write_names(writer)
            about = writer.finish(self._about())
            self.faults.check(self.mapping.allow, self.mapping.where)  # files may have changed on the way
        return about, self._validation(about)

    # 1 requests ---------------------------------------------------------------------------------------------

    def _read_requests(self) -> None:
        spec = self.mapping.tables["requests"]
        self.request_columns: dict[str, _Grown] = {
            "time": _Grown("<f8", np.nan),
            "slots": _Grown("<i2", -1),
            "reserve": _Grown("<f8", np.nan),
            "source": _Grown("<i8", 0),
            **{name: _Grown("<i4", -1) for name in ("user", "segment", "placement")},
            **{name: _Grown("<f4", np.nan) for name in spec.columns if name.startswith(FEATURE)},
        }
        self.bad_codes = _Grown("|b1", False)
        self.epoch = spec.columns["time"].since
        codes = self.codes["requests"]
        is_wide = spec.shares is not None
        for batch in self._batches(spec):
            rows = Rows("requests", batch, self.mapping, self.faults)
            ids = rows.texts("request")
            known = codes.n
            code = codes.encode(ids)
            self._note_odd("requests", rows, codes, "request")
            values = self._request_values(rows)
            is_first = self._firsts(code, known)
            is_there = code >= 0
            for grown in (*self.request_columns.values(), self.bad_codes):
                grown.room(codes.n)
            new = is_first & is_there
            for name, column in values.items():
                self.request_columns[name].values[code[new]] = column[new]
            again = ~is_first & is_there
            if again.any():
                self._repeated(rows, code, values, again, is_wide)
            self.bad_codes.values[code[rows.is_bad & is_there]] = True

    def _request_values(self, rows: Rows) -> dict[str, NDArray[Any]]:
        times = rows.times()
        sound = times[np.isfinite(times) & ~rows.is_bad]
        if self.epoch is None and len(sound):  # small numbers keep their digits
            self.epoch = local_midnight(float(sound[0]), self.mapping.zone).timestamp()
        offset = 0.0 if rows.columns["time"].since is not None else (self.epoch or 0.0)
        values: dict[str, NDArray[Any]] = {"time": times - offset, "source": rows.batch.sources}
        for name, kind in (("user", "users"), ("segment", "segments"), ("placement", "placements")):
            if rows.has(name):
                values[name] = self.codes[kind].encode(rows.texts(name, is_needed=False))
                self._note_odd("requests", rows, self.codes[kind], name)
        if rows.has("slots"):
            values["slots"] = rows.whole("slots", 1, MAX_SLOTS, "slot_outside_page")
        if rows.has("reserve"):
            values["reserve"] = rows.money("reserve", "negative_bid", is_needed=False)
        for name in rows.columns:
            if name.startswith(FEATURE):
                values[name] = rows.numbers(name, is_needed=False, dtype=np.float32)
        return values

    def _firsts(self, code: NDArray[np.int32], known: int) -> NDArray[np.bool_]:
        """Which rows are the first of their request."""
        is_first = np.zeros(len(code), bool)
        places = np.flatnonzero(code >= known)
        _, first = np.unique(code[places], return_index=True)
        is_first[places[first]] = True
        return is_first

    def _repeated(
        self,
        rows: Rows,
        code: NDArray[np.int32],
        values: dict[str, Any],
        again: NDArray[np.bool_],
        is_wide: bool,
    ) -> None:
        if not is_wide:
            self.bad_codes.values[code[again]] = True  # which of them is right is unknown
            rows.fault("duplicate_request", again, "request")
            return
        for name, column in values.items():
            if name == "source":
                continue
            before = self.request_columns[name].values[np.maximum(code, 0)]
            with np.errstate(invalid="ignore"):
                differs = again & (before != column)
            if column.dtype.kind == "f":
                differs &= ~(np.isnan(before) & np.isnan(column))
            if differs.any():
                self.bad_codes.values[code[differs & ~rows.is_bad]] = True
                rows.fault("request_disagrees", differs, name if rows.has(name) else "request")

    def _order_requests(self) -> None:
        """Places in the order of (time, id), by code."""
        n = self.codes["requests"].n
        time = self.request_columns["time"].values[:n]
        id_ranks = self.codes["requests"].ranks()
        order = np.lexsort((id_ranks, time))
        self.place = np.empty(n, np.int64)
        self.place[order] = np.arange(n)
        self.order = order
        self.is_bad = self.bad_codes.room(n)[:n][order].copy()
        source = self.request_columns["source"].values[:n]
        came = np.argsort(source, kind="stable")
        late = np.flatnonzero(np.diff(time[came]) < 0) + 1
        if len(late):
            self.faults.add("requests", "out_of_order", source[came[late]], "time")
        self.slots = self.request_columns["slots"].values[:n][order].astype(np.int64)
        self.n_candidates = np.zeros(n, np.int32)
        self.has_rows = np.zeros(n, bool)

    # 2 rows -------------------------------------------------------------------------------------------------

    def _read_rows(self) -> dict[str, Spill]:
        n = len(self.place)
        spills: dict[str, Spill] = {}
        tables = [name for name in ("candidates", "outcomes", "propensities") if name in self.mapping.tables]
        for name in tables:
            spec = self.mapping.tables[name]
            if name != self.home and spec.shares == self.home:
                continue  # read along with the candidates
            expected = estimated_rows(spec.files)
            spills[name] = Spill(self.temp / "rows" / name, n, -(-expected // BUCKET_ROWS))
        if len(spills) > 1:  # the same requests in the same bucket
            most = max(spill.n_buckets for spill in spills.values())
            for spill in spills.values():
                spill.n_buckets, spill.per_bucket = most, max(1, -(-n // most))
        for name, spill in spills.items():
            self._spill(name, spill)
        return spills

    def _spill(self, name: str, spill: Spill) -> None:
        spec = self.mapping.tables[name]
        for batch in self._batches(spec):
            rows = Rows(name, batch, self.mapping, self.faults)
            code = self.codes["requests"].encode(rows.texts("request"), add=False)
            place = np.where(code >= 0, self.place[np.maximum(code, 0)], -1)
            rows.fault("unknown_request", code < 0, "request")
            columns = self._row_values(name, rows)
            is_there = place >= 0
            if name == self.home:
                self.has_rows[place[is_there]] = True
            self.is_bad[place[rows.is_bad & is_there]] = True
            good = ~rows.is_bad & is_there
            source = (
                {"source": batch.sources[good]}
                if name == self.home
                else {f"{name}.source": batch.sources[good]}
            )
            spill.add(place[good], {**{key: column[good] for key, column in columns.items()}, **source})

    def _row_values(self, name: str, rows: Rows) -> dict[str, NDArray[Any]]:
        values: dict[str, NDArray[Any]] = {}
        ads = self.codes["ads"]
        texts = rows.texts("ad")
        values["ad"] = ads.encode(texts, add=name == self.home)
        self._note_odd(name, rows, ads, "ad")
        if name == self.home:
            self._owners(rows, values["ad"])
            values |= self._candidate_values(rows)
        else:
            rows.fault("outcome_without_candidate", (values["ad"] < 0) & ~np.asarray(texts.is_null()), "ad")
        for other in ("outcomes", "propensities"):
            spec = self.mapping.tables.get(other)
            if spec is None:
                continue
            if other == name:
                values |= self._outcome_values(rows, is_own=name != self.home)
            elif spec.shares == self.home == name:
                along = Rows(other, rows.batch, self.mapping, self.faults)
                along.is_bad = rows.is_bad.copy()
                values |= self._outcome_values(along, is_own=False)
                rows.is_bad |= along.is_bad
                self.faults.rows[other] = self.faults.rows.get(other, 0) + len(along)
        return values

    def _candidate_values(self, rows: Rows) -> dict[str, NDArray[Any]]:
        values: dict[str, NDArray[Any]] = {}
        for name in ("bid", "init_bid"):
            if rows.has(name):
                values[name] = rows.money(name, "negative_bid")
        if "bid" in values:
            self._tell_bids(rows, values["bid"])
        for name, dtype in self.dtypes.items():
            values[name] = rows.numbers(name, dtype=dtype, **_limits(name, "outside_0_1", "outside_0_1"))
        if rows.has("stage"):
            values["stage"] = rows.stages()
        for name in rows.columns:
            if name.startswith(FEATURE):
                values[name] = rows.numbers(name, is_needed=False, dtype=np.float32)
        return values

    def _outcome_values(self, rows: Rows, is_own: bool) -> dict[str, NDArray[Any]]:
        """Of a table of shown ads (`is_own`), or of columns beside the candidates, most of whom are not
        shown.
        """
        values: dict[str, NDArray[Any]] = {}
        if rows.has("slot"):
            base = rows.columns["slot"].base
            if rows.has("shown"):
                is_shown = rows.flags("shown", is_needed=True) == 1
                slot = rows.whole("slot", -1, MAX_SLOTS, "slot_outside_page", is_needed=False) - base
                rows.fault("slot_outside_page", is_shown & ((slot < 0) | (slot >= MAX_SLOTS)), "slot")
            elif is_own or self.home == "outcomes":
                slot = rows.whole("slot", base, MAX_SLOTS, "slot_outside_page") - base
                is_shown = np.ones(len(rows), bool)
            else:
                slot = rows.whole("slot", -1, MAX_SLOTS, "slot_outside_page", is_needed=False) - base
                is_shown = slot >= 0
            values["slot"] = np.where(is_shown, slot, -1).astype(np.int16)
            for name in ("exposed", "click", "conversion"):
                if rows.has(name):
                    flags = rows.flags(name)
                    is_hidden = values["exposed"] == 0 if "exposed" in values else np.zeros(len(rows), bool)
                    rows.fault("click_without_display", (~is_shown | is_hidden) & (flags == 1), name)
                    flags = np.where(is_hidden, 0, flags)  # no click without an exposure
                    values[name] = np.where(is_shown, flags, -1).astype(np.int8)
            if "click" in values and "conversion" in values:
                without = (values["conversion"] == 1) & (values["click"] == 0)
                rows.fault("conversion_without_click", without, "conversion")
            if rows.has("price"):
                price = rows.micros("price", "negative_price", is_needed=False)
                values["price_micros"] = np.where(is_shown, price, -1)
            if rows.has("conversion_delay"):
                limits = _limits("conversion_delay", "negative_delay", "wrong_type")
                delay = rows.numbers("conversion_delay", is_needed=False, **limits)
                values["conversion_delay"] = delay.astype(np.float32)
        if rows.has("propensity"):
            limits = _limits("propensity", "outside_0_1", "outside_0_1")
            values["propensity"] = rows.numbers("propensity", is_needed=False, **limits)
        return values

    def _owners(self, rows: Rows, ad: NDArray[np.int32]) -> None:
        """Each ad has one advertiser; without a column, it is one of its own."""
        if not rows.has("advertiser"):
            return
        texts = rows.texts("advertiser")
        owner = self.codes["advertisers"].encode(texts)
        self._note_odd(rows.table, rows, self.codes["advertisers"], "advertiser")
        known = self.owner.room(self.codes["ads"].n)
        is_there = (ad >= 0) & (owner >= 0)
        fresh = np.flatnonzero(is_there & (known[np.maximum(ad, 0)] < 0))[::-1]
        known[ad[fresh]] = owner[fresh]  # the first that came stays: it is written last
        rows.fault("two_advertisers", is_there & (known[np.maximum(ad, 0)] != owner), "advertiser")

    def _tell_bids(self, rows: Rows, bid: NDArray[np.float64]) -> None:
        """The level of each file's bids, to notice other units."""
        number = int(rows.batch.sources[0] >> ROW_BITS) if len(rows) else 0
        positive = bid[np.isfinite(bid) & (bid > 0)]
        total, n = self.bids_by_file.get(number, (0.0, 0))
        self.bids_by_file[number] = total + float(np.log(positive).sum()), n + len(positive)

    # 3 buckets ----------------------------------------------------------------------------------------------

    def _write_candidates(self, writer: StoreWriter, spills: dict[str, Spill]) -> None:
        ads = self.codes["ads"]
        self.ad_ranks = ads.ranks()
        counted = (
            "losers",
            "below",
            "without_bid",
            "below_reserve",
            "near_reserve",
            "drawn",
            "sure",
            "undrawn",
        )
        self.sizes = dict.fromkeys(counted, 0)
        self.highest_reserve, self.largest_slot = 0.0, -1
        self.smallest_slot = MAX_SLOTS
        home, n = spills[self.home], len(self.place)
        self.suspicions = Suspicions(self.mapping, self.faults.files, self.home, n)
        for bucket, low, high in home.ranges(n):
            check_interrupt()
            taken = home.take(bucket)
            further = {name: spill.take(bucket) for name, spill in spills.items() if name != self.home}
            if taken is None:
                taken = np.empty(0, home.dtype or [("request", "<i4"), ("ad", "<i4"), ("source", "<i8")])
            columns = self._joined(taken, further)
            self._check_bucket(columns)
            self.n_candidates[low:high] = np.bincount(columns["request"] - low, minlength=high - low)
            kept = ~self.is_bad[columns["request"]]
            self._append(writer, {name: values[kept] for name, values in columns.items()})
            self.progress("candidates", len(kept))
        lacking = np.flatnonzero(~self.has_rows)
        if len(lacking):
            source = self.request_columns["source"].values[self.order[lacking]]
            self.faults.add(
                "requests", "request_without_candidates", source, self._label("requests", "request")
            )
            self.is_bad[lacking] = True
        self.is_kept = ~self.is_bad

    def _joined(
        self, taken: NDArray[Any], further: dict[str, NDArray[Any] | None]
    ) -> dict[str, NDArray[Any]]:
        """A bucket in the order of (request, ad), with what other tables say of the same ads."""
        request, ad = taken["request"].astype(np.int64), self.ad_ranks[taken["ad"]]
        key = request * len(self.ad_ranks) + ad
        order = np.argsort(key, kind="stable")
        key = key[order]
        columns = {
            name: taken[name][order] for name in taken.dtype.names or () if name not in ("request", "ad")
        }
        columns |= {"request": request[order], "ad": ad[order].astype(np.int32)}
        twice = np.flatnonzero(key[1:] == key[:-1]) + 1
        if len(twice):
            kind = "duplicate_ad" if self.home == "candidates" else "shown_twice"
            self._fault(self.home, kind, columns, twice, "ad")
        for name, rows in further.items():
            if rows is not None:
                self._join(name, key, columns, rows)
        return columns

    def _join(
        self, table: str, key: NDArray[np.int64], columns: dict[str, NDArray[Any]], rows: NDArray[Any]
    ) -> None:
        known = rows["ad"] >= 0
        rows = rows[known]
        theirs = rows["request"].astype(np.int64) * len(self.ad_ranks) + self.ad_ranks[rows["ad"]]
        order = np.argsort(theirs, kind="stable")
        theirs, rows = theirs[order], rows[order]
        at = np.minimum(np.searchsorted(key, theirs), max(len(key) - 1, 0))
        is_there = key[at] == theirs if len(key) else np.zeros(len(theirs), bool)
        sources = rows[f"{table}.source"]
        lost = np.flatnonzero(~is_there & ~self.is_bad[rows["request"]])  # else its candidate had a fault
        if len(lost):
            self.faults.add(
                table, "outcome_without_candidate", np.sort(sources[lost]), self._label(table, "ad")
            )
            self.is_bad[rows["request"][lost]] = True
        twice = np.flatnonzero(theirs[1:] == theirs[:-1]) + 1
        if len(twice):
            self.faults.add(table, "shown_twice", np.sort(sources[twice]), self._label(table, "ad"))
            self.is_bad[rows["request"][twice]] = True
        at, rows = at[is_there], rows[is_there]
        for name in rows.dtype.names or ():
            if name in ("request", "ad"):
                continue
            empty = UNKNOWN.get(name, 0 if name.endswith(".source") else np.nan)
            if name not in columns:
                columns[name] = np.full(len(key), empty, rows.dtype[name])
            columns[name][at] = rows[name]

    def _check_bucket(self, columns: dict[str, NDArray[Any]]) -> None:
        """What only shows when candidates and outcomes are side by side."""
        n = len(columns["request"])
        for name, empty in NOT_SHOWN.items():
            columns.setdefault(
                name, np.full(n, empty, {"slot": "<i2", "price_micros": "<i8"}.get(name, "<i1"))
            )
        slot, request = columns["slot"].astype(np.int64), columns["request"]
        is_shown = slot >= 0
        table = "outcomes"
        slots = self.slots[request]
        outside = np.flatnonzero(is_shown & (slots >= 0) & (slot >= slots))
        self._fault(table, "slot_outside_page", columns, outside, "slot", slot)
        shown = np.flatnonzero(is_shown)
        place = request[shown] * (MAX_SLOTS + 1) + slot[shown]
        order = np.argsort(place, kind="stable")
        twice = shown[order[1:][place[order[1:]] == place[order[:-1]]]] if len(shown) > 1 else shown[:0]
        self._fault(table, "two_ads_in_one_slot", columns, twice, "slot", slot)
        if len(shown) and self._is_packed():
            ordered = shown[order]
            begins = np.flatnonzero(np.diff(request[ordered], prepend=-1))
            lengths = np.diff(np.append(begins, len(ordered)))
            columns["slot"][ordered] = np.arange(len(ordered)) - np.repeat(begins, lengths)
            slot = columns["slot"].astype(np.int64)
        self.largest_slot = max(self.largest_slot, int(slot.max(initial=-1)))
        self.smallest_slot = min(self.smallest_slot, int(slot[is_shown].min(initial=MAX_SLOTS)))
        if "stage" in columns:
            disagrees = (is_shown & (columns["stage"] == RETRIEVED)) | (
                ~is_shown & (columns["stage"] == SHOWN)
            )
            self._fault(
                self.home, "stage_disagrees", columns, np.flatnonzero(disagrees), "stage", columns["stage"]
            )
            columns["stage"] = np.where(is_shown, SHOWN, columns["stage"]).astype(np.int8)
        else:
            columns["stage"] = np.where(is_shown, SHOWN, RANKED).astype(np.int8)
        if "bid" not in columns:
            columns["bid"] = np.full(n, np.nan)
        self._check_prices(columns, table)

    def _is_packed(self) -> bool:
        outcomes = self.mapping.tables.get("outcomes")
        return outcomes is not None and "slot" in outcomes.columns and outcomes.columns["slot"].is_packed

    def _check_prices(self, columns: dict[str, NDArray[Any]], table: str) -> None:
        bid, price = columns["bid"], columns["price_micros"]
        rounding = (self.mapping.rule.rounding or 0.0) if self.mapping.rule is not None else 0.0
        slack = max(1.0, rounding * 1e6) + 1e-9 * np.nan_to_num(bid) * 1e6
        is_priced = np.isfinite(bid) & (price >= 0)
        with np.errstate(invalid="ignore"):
            above = np.flatnonzero(is_priced & (price > bid * 1e6 + slack))
        if len(above):
            self._fault(table, "price_above_bid", columns, above, "price", price / 1e6)
        some = np.flatnonzero(is_priced & (bid > 0) & (price > 0))[:1000]
        if sum(map(len, self.ratios)) < 100_000:
            self.ratios.append(price[some] / 1e6 / bid[some])

    def _fault(
        self,
        table: str,
        kind: str,
        columns: dict[str, NDArray[Any]],
        places: NDArray[np.int64],
        name: str,
        values: NDArray[Any] | None = None,
    ) -> None:
        if not len(places):
            return
        table = table if table in self.mapping.tables else self.home
        sources = columns.get(f"{table}.source", columns["source"])
        if sources is not columns["source"]:
            sources = np.where(sources > 0, sources, columns["source"])
        places = places[np.argsort(sources[places], kind="stable")]
        shown = None if values is None else [values[i].item() for i in places[:EXAMPLES]]
        self.faults.add(table, kind, sources[places], self._label(table, name), shown)
        self.is_bad[columns["request"][places]] = True

    def _append(self, writer: StoreWriter, columns: dict[str, NDArray[Any]]) -> None:
        self.suspicions.add(columns)
        is_shown, bid = columns["slot"] >= 0, columns["bid"]
        least = self.mapping.bids_logged_above
        if least is not None:
            self.sizes["below"] += int(np.count_nonzero(bid < least))
        self._tell_reserve(columns["request"], bid)
        self.sizes["losers"] += int(np.count_nonzero(~is_shown))
        self.sizes["without_bid"] += int(np.count_nonzero(~np.isfinite(bid)))
        if "propensity" in columns:
            drawn = columns["propensity"][is_shown]
            self.sizes["drawn"] += int(np.count_nonzero(drawn > 0))
            self.sizes["sure"] += int(np.count_nonzero(drawn == 1))
            self.sizes["undrawn"] += int(np.count_nonzero(~(drawn > 0)))
        written = {
            name: values
            for name, values in columns.items()
            if name != "request" and not name.endswith(".source")
        }
        for name in self._optional():
            if name not in written:
                written[name] = np.full(len(bid), UNKNOWN.get(name, np.nan))
        writer.append("candidates", written)

    def _tell_reserve(self, request: NDArray[np.int64], bid: NDArray[np.float64]) -> None:
        """How bids lie around the reserve of their auction, to notice that lower ones were not logged."""
        rule = self.mapping.rule
        declared = (rule.reserve_cpc if rule is not None else None) or 0.0
        own = self.request_columns["reserve"].values
        if not declared and "reserve" not in self.mapping.tables["requests"].columns:
            return
        reserve = own[self.order[request]]
        reserve = np.where(np.isnan(reserve), declared, reserve) * (1 - 1e-9)  # units round
        is_below = bid < reserve
        self.sizes["below_reserve"] += int(np.count_nonzero(is_below))
        self.sizes["near_reserve"] += int(np.count_nonzero(~is_below & (bid < NEAR * reserve)))
        self.highest_reserve = max(self.highest_reserve, float(reserve.max(initial=0.0)) / (1 - 1e-9))

    def _bids_logged_above(self) -> float | None:
        """What the mapping says or, where it says nothing, the reserve if the log breaks off at it."""
        declared, near = self.mapping.bids_logged_above, self.sizes["near_reserve"]
        if declared is not None or self.sizes["below_reserve"] or near < ENOUGH_NEAR:
            return declared
        found = float(f"{self.highest_reserve:.12g}")
        self.faults.notes.append(
            f"no bid is below its auction's reserve, and {near:,} are less than a tenth above it: lower bids "
            f"were not logged, so bids_logged_above is taken as {found:g} (if they were, declare it as 0)"
        )
        return found

    def _optional(self) -> list[str]:
        """Columns that a bucket may lack, none of its requests having a row of that table."""
        outcomes, drawn = (self.mapping.tables.get(name) for name in ("outcomes", "propensities"))
        names = []
        if outcomes is not None and "conversion_delay" in outcomes.columns:
            names.append("conversion_delay")
        if outcomes is not None and "exposed" in outcomes.columns:
            names.append("exposed")
        if drawn is not None or (outcomes is not None and "propensity" in outcomes.columns):
            names.append("propensity")
        return names

    # 4 the rest ---------------------------------------------------------------------------------------------

    def _write_requests(self, writer: StoreWriter) -> None:
        n, order, kept = len(self.place), self.order, self.is_kept
        columns = {name: grown.values[:n][order][kept] for name, grown in self.request_columns.items()}
        first_time = float(columns["time"][0])
        assert self.epoch is not None
        midnight = local_midnight(self.epoch + first_time, self.mapping.zone)
        self.starts = midnight
        shift = self.epoch - midnight.timestamp()
        slots = columns["slots"].astype(np.int64)
        if "slots" not in self.mapping.tables["requests"].columns:
            slots = np.full(len(slots), max(self.largest_slot + 1, 1))
            self.faults.add(
                "requests", "slots_taken_from_shown", columns["source"][:1], "slots", [int(slots[0])]
            )
        first = np.concatenate([[0], np.cumsum(self.n_candidates[kept])])
        features = {name: values for name, values in columns.items() if name.startswith(FEATURE)}
        writer.append(
            "requests",
            {
                "time": columns["time"] + shift,
                **{name: columns[name] for name in ("user", "segment", "placement", "reserve")},
                "slots": slots,
                "first": first,
                **features,
            },
        )

    def _write_names(self, writer: StoreWriter) -> None:
        requests, ads, advertisers = (self.codes[kind] for kind in ("requests", "ads", "advertisers"))
        writer.names("requests", requests.names().take(pa.array(self.order[self.is_kept])))
        writer.names("ads", ads.ranked(self.ad_ranks))
        if advertisers.n:
            ranks = advertisers.ranks()
            owner = np.empty(ads.n, np.int32)
            owner[self.ad_ranks] = ranks[self.owner.values[: ads.n]]
            writer.names("advertisers", advertisers.ranked(ranks))
        else:
            owner = np.arange(ads.n, dtype=np.int32)
            writer.names("advertisers", ads.ranked(self.ad_ranks))
        writer.append("ads", {"advertiser": owner})
        for kind in ("users", "segments", "placements"):
            writer.names(kind, self.codes[kind].names())

    def _read_budgets(self) -> dict[str, NDArray[Any]] | None:
        spec = self.mapping.tables.get("budgets")
        if spec is None:
            return None
        found: dict[tuple[str, int], int] = {}
        codes = self.codes["advertisers"] if self.codes["advertisers"].n else self.codes["ads"]
        for batch in self._batches(spec):
            rows = Rows("budgets", batch, self.mapping, self.faults)
            names = rows.texts("advertiser")
            code = codes.encode(names, add=False)
            day = np.full(len(rows), -1, np.int64)
            if rows.has("day"):
                day = rows.whole("day", -1, 100_000, "time_outside")
            budget = rows.micros("budget", "negative_budget")
            keys = np.stack([code[~rows.is_bad].astype(np.int64), day[~rows.is_bad], budget[~rows.is_bad]])
            sources = batch.sources[~rows.is_bad]
            different, first = np.unique(keys, axis=1, return_index=True)
            for i, (who, when, amount) in zip(first, different.T.tolist(), strict=True):
                if who < 0:
                    continue  # an advertiser without an ad in the log
                if found.setdefault((str(who), when), amount) != amount:
                    label = self._label("budgets", "budget")
                    self.faults.add("budgets", "request_disagrees", sources[i : i + 1], label, [amount / 1e6])
        ranks = codes.ranks()
        keyed = sorted((int(ranks[int(who)]), day, amount) for (who, day), amount in found.items())
        names = ("advertiser", "day", "budget_micros")
        return {name: np.array([row[i] for row in keyed], np.int64) for i, name in enumerate(names)}

    def _by_day_of_log(self, budgets: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Days that count from a moment of their own as days of the log; those before it have no auctions."""
        spec = self.mapping.tables["budgets"].columns.get("day")
        if spec is None or spec.since is None:
            return budgets
        zone = self.starts.tzinfo
        first = datetime.datetime.fromtimestamp(spec.since, zone).date() - self.starts.date()
        day = budgets["day"] + first.days
        return {**{name: values[day >= 0] for name, values in budgets.items()}, "day": day[day >= 0]}

    def _check_units(self) -> None:
        """Ratios that no market has, but two units have."""
        levels = {
            number: float(np.exp(total / n)) for number, (total, n) in self.bids_by_file.items() if n >= 1
        }
        if len(levels) > 1:
            low, high = min(levels, key=levels.__getitem__), max(levels, key=levels.__getitem__)
            if levels[high] >= FAR * levels[low]:
                name = self.faults.files
                self.faults.refusals.append(
                    f"{name[high]}: its bids are about {levels[high] / levels[low]:,.0f} times those of "
                    f"{name[low]}: are they in another unit of money?"
                )
        ratios = np.concatenate(self.ratios) if self.ratios else np.empty(0)
        if len(ratios) >= 1:
            middle = float(np.median(ratios))
            if middle >= FAR or middle <= 1 / (5 * FAR):
                words = f"{middle:,.0f} times" if middle >= 1 else f"1/{1 / middle:,.0f} of"
                self.faults.refusals.append(
                    f"{self.mapping.where}: prices are about {words} the bids: is one of the units wrong "
                    f"(unit, cents, micros, cpm)? {unit_hint(self.mapping, self.home, middle)}"
                )
        hint = self.suspicions.first_slot_hint()
        if ("outcomes", "slot_outside_page") in self.faults.found and self.smallest_slot == 1 and hint:
            self.faults.refusals.append(f"{self.mapping.where}: no ad is in slot 0; {hint}")

    def _about(self) -> About:
        mapping = self.mapping
        has_all_bids = self.sizes["without_bid"] == 0 and "bid" in mapping.tables[self.home].columns
        candidates = mapping.tables.get("candidates")
        level = "winners"
        if self.sizes["losers"] and has_all_bids:
            level = "bids"
            if candidates is not None and {"pre_score", "stage"} <= set(candidates.columns):
                level = "pre_ranking"
        if level == "winners" and self.sizes["losers"]:
            self.faults.notes.append("not all bids are logged, so the log says no more than its winners do")
        if self.sizes["below"]:
            self.faults.notes.append(
                f"{self.sizes['below']:,} bids are below bids_logged_above: are lower ones missing?"
            )
        is_randomised = self.sizes["drawn"] > self.sizes["sure"] and not self.sizes["undrawn"]
        if self.sizes["drawn"] and self.sizes["undrawn"]:
            self.faults.notes.append(
                f"{self.sizes['undrawn']:,} shown ads have no propensity: the log does not count as drawn"
            )
        units = {
            name: spec.unit or mapping.money
            for table in mapping.tables.values()
            for name, spec in table.columns.items()
            if name in ("bid", "init_bid", "price", "reserve", "budget")
        }
        has_pre_score = candidates is not None and "pre_score" in candidates.columns
        return About(
            name=mapping.name,
            starts=self.starts.isoformat(),
            zone=mapping.zone,
            currency=mapping.currency,
            charging=mapping.charging,
            level=level,
            is_randomised=is_randomised,
            bids_logged_above=None if level == "winners" else self._bids_logged_above(),
            rule=mapping.rule,
            sources=tuple(Source(*source) for source in self.files.sources()),
            pre_score=mapping.pre_score if has_pre_score else None,
            units=units,
        )

    def _validation(self, about: About) -> dict[str, Any]:
        n, kept = len(self.place), int(np.count_nonzero(self.is_kept))
        left_out = {
            "requests": n - kept,
            "candidates": self.faults.rows.get(self.home, 0) - about.counts.candidates,
        }
        return {"format": 1, **self.faults.as_json(self.mapping.allow), "left_out": left_out}

    # helpers ------------------------------------------------------------------------------------------------

    def _batches(self, spec: TableSpec) -> Iterator[Batch]:
        wanted = list(spec.theirs)
        if spec.name == self.home:
            for other in self.mapping.tables.values():
                if other.shares == self.home and other.name in ("outcomes", "propensities"):
                    wanted += [name for name in other.theirs if name not in wanted]
        table = spec.name
        self.faults.rows.setdefault(table, 0)
        for batch in self.files.batches(table, spec.files, wanted, self.mapping.place(spec)):
            check_interrupt()
            self.faults.rows[table] += len(batch)
            self.progress(table, len(batch))
            yield batch

    def _dtypes(self) -> dict[str, type[np.floating[Any]]]:
        """Of the predictions, as they came: float32 where the mapping or all files say so."""
        spec = self.mapping.tables[self.home]
        found: dict[str, type[np.floating[Any]]] = {}
        for name, column in spec.columns.items():
            if name in PREDICTIONS or name.startswith(SCORE):
                is_float32 = column.dtype == "float32"
                if column.dtype is None and column.theirs:
                    is_float32 = all(_is_float32(path, column.theirs[0]) for path in spec.files)
                found[name] = np.float32 if is_float32 else np.float64
        return found

    def _label(self, table: str, name: str) -> str:
        spec = self.mapping.tables[table].columns.get(name)
        return "/".join(spec.theirs) if spec is not None and spec.theirs else name

    def _note_odd(self, table: str, rows: Rows, codes: Codes, name: str) -> None:
        """Names that were written otherwise and are taken for what they mean."""
        for kind, names in codes.corrected.items():
            texts = rows.texts(name, is_needed=False).cast(pa.large_string())
            wanted = pa.array(sorted(names), pa.large_string())
            places = np.flatnonzero(np.asarray(pc.fill_null(pc.is_in(texts, wanted), False)))
            if len(places):
                cells = rows.cells(name, places[:EXAMPLES])
                self.faults.add(table, kind, rows.batch.sources[places], rows.label(name), cells)
        codes.corrected.clear()


def _limits(name: str, below: str, above: str) -> dict[str, Any]:
    """What a store may hold of a column of candidates, and the kinds of fault outside of it."""
    entry = logged_format.column("candidates", name)
    kinds = {"below": below, "above": above}
    return {"low": entry.low, "high": entry.high, **kinds} if entry.low > -FINITE else kinds


def _is_float32(path: Path, column: str) -> bool:
    import pyarrow.parquet as pq

    try:
        if path.suffix.lower() in PARQUET:
            schema = pq.read_schema(path)
        elif path.suffix.lower() in FEATHER:
            schema = pa.ipc.open_file(pa.OSFile(str(path))).schema
        else:
            return False
        return bool(schema.field(column).type == pa.float32())
    except UNREADABLE:
        return False


def validation_text(validation: dict[str, Any]) -> str:
    """validation.json."""
    return (
        json.dumps(validation, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False, default=str)
        + "\n"
    )
