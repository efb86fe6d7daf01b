"""Cells to numbers, with every cell that means nothing named: what a value must be, column by column."""

from __future__ import annotations

import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cascade_sim.logs.importing.faults import EXAMPLES, Faults
from cascade_sim.logs.importing.mapping import ColumnSpec, Mapping
from cascade_sim.logs.importing.sources import Batch
from cascade_sim.logs.store.format import MAX_MONEY

TRUE, FALSE = ("1", "true", "yes", "t", "y"), ("0", "false", "no", "f", "n")
STAGES = {"retrieved": 0, "pre_ranked": 0, "ranked": 1, "shown": 2, "0": 0, "1": 1, "2": 2}
EARLIEST, LATEST = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC).timestamp() for year in (1990, 2100))

Mask = NDArray[np.bool_]


class Rows:
    """A batch of one of our tables: columns are asked for one by one, and bad rows remembered."""

    def __init__(self, table: str, batch: Batch, mapping: Mapping, faults: Faults) -> None:
        self.table, self.batch, self.mapping, self.faults = table, batch, mapping, faults
        self.columns = mapping.tables[table].columns
        self.is_bad: Mask = np.zeros(len(batch), bool)

    def __len__(self) -> int:
        return len(self.batch)

    def has(self, name: str) -> bool:
        return name in self.columns

    def fault(self, kind: str, mask: Mask, name: str, values: Any = None) -> None:
        """Rows are faulty; one that is already is counted once, by what was found first."""
        places = np.flatnonzero(mask & ~self.is_bad)
        if not len(places):
            return
        shown = places[:EXAMPLES]
        cells = [values[i] for i in shown] if values is not None else self.cells(name, shown)
        self.faults.add(self.table, kind, self.batch.sources[places], self.label(name), cells)
        self.is_bad |= mask

    def label(self, name: str) -> str:
        """The user's name of a column."""
        spec = self.columns.get(name)
        return "/".join(spec.theirs) if spec is not None and spec.theirs else name

    def cells(self, name: str, places: NDArray[np.int64]) -> list[Any]:
        """The cells of some rows, as the user wrote it."""
        spec = self.columns.get(name)
        if spec is None or not spec.theirs:
            return [None if spec is None else spec.constant] * len(places)
        parts = [[self.batch.columns[theirs][int(i)].as_py() for i in places] for theirs in spec.theirs]
        return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))

    def texts(self, name: str, is_needed: bool = True) -> pa.Array:
        """An id as text; null where the cell is empty."""
        spec = self.columns[name]
        if spec.is_row:
            return pa.array([f"{s >> 40}:{s & ((1 << 40) - 1)}" for s in self.batch.sources.tolist()])
        if not spec.theirs:
            return pa.array([str(spec.constant)] * len(self), pa.large_string())
        parts = [self._text(name, self.batch.columns[theirs]) for theirs in spec.theirs]
        texts = (
            parts[0]
            if len(parts) == 1
            else pc.binary_join_element_wise(*parts, pa.scalar("/", pa.large_string()))
        )
        if is_needed and texts.null_count:
            self.fault("missing_value", np.asarray(texts.is_null()), name)
        return texts

    def _text(self, name: str, cells: pa.Array) -> pa.Array:
        kind = cells.type
        if pa.types.is_dictionary(kind):
            cells, kind = cells.dictionary_decode(), kind.value_type
        if pa.types.is_floating(kind):
            values = cells.to_numpy(zero_copy_only=False)
            with np.errstate(invalid="ignore"):
                is_odd = np.isfinite(values) & ((values != np.floor(values)) | (np.abs(values) >= 2.0**53))
            self.fault("wrong_type", is_odd, name)  # digits may be lost: it could be another's id
            known = pa.array(np.where(np.isfinite(values), np.trunc(values), 0), mask=~np.isfinite(values))
            whole = np.isfinite(values) & ~is_odd
            if whole.any():
                places = np.flatnonzero(whole)
                shown = [f"{values[i]:.1f}" for i in places[:EXAMPLES]]
                self.faults.add(
                    self.table, "id_as_float", self.batch.sources[places], self.label(name), shown
                )
            return pc.cast(known, pa.int64(), safe=False).cast(pa.large_string())
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            texts = cells.cast(pa.large_string())
            is_blank = pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts))
            if pc.any(is_blank).as_py():
                texts = pc.if_else(is_blank, pa.scalar(None, pa.large_string()), texts)
            if (shortest := self._scientific(texts)) is not None:
                self.fault("wrong_type", shortest, name)
            return texts
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind):
            return cells.cast(pa.large_string())
        try:
            return cells.cast(pa.large_string())
        except pa.ArrowException:
            self.fault("wrong_type", np.ones(len(self), bool), name)
            return pa.nulls(len(self), pa.large_string())

    @staticmethod
    def _scientific(texts: pa.Array) -> Mask | None:
        """Ids such as 1.23457E+12, whose digits a spreadsheet has cut off."""
        has_plus = pc.match_substring(texts, "E+")
        if not pc.any(has_plus).as_py():
            return None
        found = pc.match_substring_regex(texts, r"^-?[0-9]\.?[0-9]*E\+[0-9]+$")
        return np.asarray(pc.fill_null(found, False))

    def numbers(
        self,
        name: str,
        *,
        is_needed: bool = True,
        low: float = -np.inf,
        high: float = np.inf,
        below: str = "wrong_type",
        above: str = "wrong_type",
        dtype: type[np.floating[Any]] = np.float64,
    ) -> NDArray[Any]:
        """A column of numbers, NaN where the cell is empty."""
        spec = self.columns[name]
        if not spec.theirs:
            return np.full(len(self), self._constant(spec, name), dtype)
        values, is_null = self._numeric(name, self.batch.columns[spec.theirs[0]])
        values = values.astype(dtype, copy=False)
        if is_needed:
            self.fault("missing_value", is_null, name)
        odd = ~np.isfinite(values) & ~is_null
        self.fault("not_a_number", odd, name)
        with np.errstate(invalid="ignore"):
            self.fault(below, (values < low) & ~is_null, name)
            self.fault(above, (values > high) & ~is_null, name)
        if is_null.any():
            values = values.copy()
            values[is_null] = np.nan
        return values

    def _constant(self, spec: ColumnSpec, name: str) -> float:
        try:
            return np.nan if spec.constant is None else float(spec.constant)
        except (TypeError, ValueError):
            self.fault("wrong_type", np.ones(len(self), bool), name)
            return np.nan

    def _numeric(self, name: str, cells: pa.Array) -> tuple[NDArray[Any], Mask]:
        """Values and which cells are empty; others that are no number are faults."""
        if pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_decode()
        kind = cells.type
        is_null = np.asarray(cells.is_null())
        if pa.types.is_floating(kind) or pa.types.is_integer(kind):
            dtype = np.float32 if kind == pa.float32() else np.float64
            return cells.to_numpy(zero_copy_only=False).astype(dtype), is_null
        if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
            return np.asarray(cells.cast(pa.float64()).fill_null(0)), is_null
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            self.fault("wrong_type", ~is_null, name)
            return np.full(len(cells), np.nan), is_null | True
        if self.mapping.csv.get("decimal", ".") != ".":
            cells = pc.replace_substring(cells, self.mapping.csv["decimal"], ".")
        try:
            return np.asarray(cells.cast(pa.float64()).fill_null(np.nan)), is_null
        except pa.ArrowException:
            return self._by_cell(name, cells, is_null)

    def _by_cell(self, name: str, cells: pa.Array, is_null: Mask) -> tuple[NDArray[Any], Mask]:
        """Cell by cell, where some are no numbers."""
        values, is_odd = np.full(len(cells), np.nan), np.zeros(len(cells), bool)
        for i, text in enumerate(cells.to_pylist()):
            if text is None:
                continue
            try:
                values[i] = float(text.strip()) if "_" not in text else float("no")
            except ValueError:
                is_odd[i] = True
        self.fault("wrong_type", is_odd, name)
        return values, is_null | is_odd

    def money(self, name: str, kind: str, is_needed: bool = True) -> NDArray[np.float64]:
        """An amount in units of money; negative ones are faults of that kind."""
        factor = self.mapping.unit(self.columns[name])
        most = MAX_MONEY / factor
        values = self.numbers(name, is_needed=is_needed, low=0.0, high=most, below=kind)
        return values if factor == 1.0 else _divided(values, factor)

    def micros(self, name: str, kind: str, is_needed: bool = True) -> NDArray[np.int64]:
        """An amount in whole micro-units, -1 where the cell is empty."""
        factor = self.mapping.unit(self.columns[name])
        values = self.numbers(name, is_needed=is_needed, low=0.0, high=MAX_MONEY / factor, below=kind)
        times = round(factor * 1e6)
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(values), np.rint(values * times), -1).astype(np.int64)

    def flags(self, name: str, is_needed: bool = False) -> NDArray[np.int8]:
        """1, 0, or -1 for an empty cell."""
        spec = self.columns[name]
        if not spec.theirs:
            return np.full(len(self), int(bool(spec.constant)), np.int8)
        if spec.values is not None:
            return self.labels(name, spec.values, is_needed).astype(np.int8)
        cells = self.batch.columns[spec.theirs[0]]
        if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
            lower = pc.utf8_lower(pc.utf8_trim_whitespace(cells))
            is_true, is_false = (
                np.asarray(pc.fill_null(pc.is_in(lower, pa.array(words)), False)) for words in (TRUE, FALSE)
            )
            is_null = np.asarray(cells.is_null())
            rest = ~is_true & ~is_false & ~is_null
            if rest.any():  # such as 1.0
                values = np.full(len(cells), -9.0)
                for i in np.flatnonzero(rest):
                    try:
                        values[i] = float(cells[int(i)].as_py())
                    except ValueError:
                        continue
                is_true, is_false = is_true | (values == 1), is_false | (values == 0)
                self.fault("not_a_number", np.isnan(values), name)
                self.fault("not_0_or_1", rest & ~is_true & ~is_false, name)
        else:
            values, is_null = self._numeric(name, cells)
            self.fault("not_a_number", ~np.isfinite(values) & ~is_null, name)
            is_true, is_false = (values == 1) & ~is_null, (values == 0) & ~is_null
            self.fault("not_0_or_1", ~is_true & ~is_false & ~is_null, name)
        if is_needed:
            self.fault("missing_value", is_null, name)
        return np.where(is_true, 1, np.where(is_false, 0, -1)).astype(np.int8)

    def labels(self, name: str, values: Any, is_needed: bool = True) -> NDArray[np.int64]:
        """Labels to integers by a table; -1 for an empty cell."""
        texts = self.texts(name, is_needed)
        found = np.full(len(self), -1, np.int64)
        is_known = np.asarray(texts.is_null()) if texts.null_count else np.zeros(len(self), bool)
        for label, meant in values.items():
            mask = np.asarray(pc.fill_null(pc.equal(texts, label), False))
            number = STAGES.get(str(meant)) if name == "stage" else int(bool(meant))
            found[mask] = -1 if number is None else number
            is_known |= mask
        self.fault("unknown_value", ~is_known, name)
        return found

    def stages(self) -> NDArray[np.int8]:
        """The furthest stage."""
        spec = self.columns["stage"]
        if not spec.theirs:
            return np.full(len(self), STAGES.get(str(spec.constant), 1), np.int8)
        values = spec.values or {label: label for label in STAGES}
        return np.maximum(self.labels("stage", values), 0).astype(np.int8)

    def whole(
        self, name: str, low: float, high: float, kind: str, is_needed: bool = True
    ) -> NDArray[np.int64]:
        """Whole numbers; -1 for an empty cell."""
        values = self.numbers(name, is_needed=is_needed)
        with np.errstate(invalid="ignore"):
            self.fault("wrong_type", np.isfinite(values) & (values != np.floor(values)), name)
            self.fault(kind, (values < low) | (values > high), name)
            return np.where(np.isfinite(values), values, -1).astype(np.int64)

    def times(self) -> NDArray[np.float64]:
        """Moments in seconds since 1970, or since the mapping's `since`."""
        spec = self.columns["time"]
        unit = spec.unit or self.mapping.time
        cells = (
            self.batch.columns[spec.theirs[0]] if spec.theirs else pa.array([str(spec.constant)] * len(self))
        )
        if pa.types.is_timestamp(cells.type) or pa.types.is_date(cells.type):
            seconds = self._stamps(cells.cast(pa.timestamp("us", getattr(cells.type, "tz", None))))
        elif unit == "iso":
            seconds = self._iso(cells)
        else:
            factor = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6}[unit]
            seconds = self.numbers("time") / factor
        low, high = (EARLIEST, LATEST) if spec.since is None else (0.0, LATEST - EARLIEST)
        low, high = self._window(low, high, spec.since or 0.0)
        with np.errstate(invalid="ignore"):
            self.fault("time_outside", ~((seconds >= low) & (seconds < high)), "time")
        return seconds

    def _window(self, low: float, high: float, since: float) -> tuple[float, float]:
        between = self.mapping.between
        return (low, high) if between is None else (between[0] - since, between[1] - since)

    def _stamps(self, stamps: pa.Array) -> NDArray[np.float64]:
        """Of timestamps with a zone, or without one in the mapping's."""
        self.fault("missing_value", np.asarray(stamps.is_null()), "time")
        if stamps.type.tz is None:
            stamps = self._in_zone(stamps)
        return _seconds(stamps)

    def _in_zone(self, naive: pa.Array) -> pa.Array:
        def assumed(side: str) -> pa.Array:
            zone = self.mapping.zone
            return pc.assume_timezone(naive, zone, ambiguous=side, nonexistent=side)

        early, late = assumed("earliest"), assumed("latest")
        differs = np.asarray(pc.fill_null(pc.not_equal(early, late), False))
        if differs.any():
            is_there = np.asarray(pc.fill_null(pc.equal(pc.local_timestamp(early), naive), True))
            self.fault("no_such_time", differs & ~is_there, "time")
            twice = np.flatnonzero(differs & is_there)
            if len(twice):
                cells = self.cells("time", twice[:EXAMPLES])
                self.faults.add(
                    self.table, "ambiguous_time", self.batch.sources[twice], self.label("time"), cells
                )
        return early

    def _iso(self, cells: pa.Array) -> NDArray[np.float64]:
        if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
            self.fault("wrong_type", np.ones(len(self), bool), "time")
            return np.full(len(self), np.nan)
        try:
            return self._stamps(cells.cast(pa.timestamp("us", "UTC")))
        except pa.ArrowException:
            pass
        try:
            return self._stamps(cells.cast(pa.timestamp("us")))
        except pa.ArrowException:
            return self._iso_by_cell(cells)

    def _iso_by_cell(self, cells: pa.Array) -> NDArray[np.float64]:
        """Some with a zone and some without, or some that are no times."""
        found: list[datetime.datetime | None] = []
        is_odd, is_naive = np.zeros(len(cells), bool), np.zeros(len(cells), bool)
        for i, text in enumerate(cells.to_pylist()):
            moment = None
            try:
                moment = None if text is None else datetime.datetime.fromisoformat(text.strip())
            except ValueError:
                is_odd[i] = True
            if moment is not None and moment.tzinfo is None:
                is_naive[i], moment = True, moment.replace(tzinfo=datetime.UTC)
            found.append(moment)
        self.fault("wrong_type", is_odd, "time")
        self.fault("missing_value", np.asarray(cells.is_null()), "time")
        stamps = pa.array(found, pa.timestamp("us", "UTC"))
        seconds = _seconds(stamps)
        if is_naive.any():
            local = pc.if_else(pa.array(is_naive), pc.local_timestamp(stamps), None)
            seconds = np.where(is_naive, _seconds(self._in_zone(local)), seconds)
        return seconds


def _divided(values: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """By the whole number that the unit is of: 3 cents are 3 / 100, not 3 * 0.01."""
    return values / round(1 / factor)


def _seconds(stamps: pa.Array) -> NDArray[np.float64]:
    micros = stamps.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.asarray(micros, np.float64) / 1e6


def local_midnight(seconds: float, zone: str) -> datetime.datetime:
    """The beginning of the day in which a moment falls, there."""
    moment = datetime.datetime.fromtimestamp(seconds, ZoneInfo(zone))
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)
