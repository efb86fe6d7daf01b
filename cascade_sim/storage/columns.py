"""Columns on the disk, which are data from anywhere: what a column may hold, and a checked file of one.

A digest says that a file is as it was written, not who wrote it. So every value is compared with the range
that its `Column` declares before anything is made of it: an index that a compiled loop cannot hold must not
come to it. `ColumnFile.chunks` does that in one pass; a range that is read later must have the digests that
its chunks had then, so what is used is what was checked.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cascade_sim.foundation.errors import UserError
from cascade_sim.storage.files import opened

ROWS = 1 << 15  # of a chunk
FINITE = sys.float_info.max

Sizes = Mapping[str, int]  # of axes


@dataclass(frozen=True)
class Column:
    """What a column may be: its dtypes (the first is written), and the range of its values."""

    dtypes: tuple[str, ...]
    meaning: str
    low: float = -FINITE
    high: float | str = FINITE  # a number or, of codes, the axis that they count along
    axes: tuple[str, ...] = ()  # its shape; () is that of its table
    may_be_nan: bool = False
    ascends: bool = False
    is_optional: bool = False
    padding: float = 0  # where rows of several lengths are put into one array

    def range(self, sizes: Sizes) -> tuple[float, float]:
        """Lowest and highest value."""
        return self.low, (sizes[self.high] - 1 if isinstance(self.high, str) else self.high)

    def outside(self, values: NDArray[Any], sizes: Sizes) -> NDArray[np.bool_] | None:
        """Which values it may not have; None if all are in order."""
        low, high = self.range(sizes)
        if values.dtype.kind == "b":
            return None
        if values.dtype.kind in "iu":
            # Whole numbers have no NaN, and their ends are found faster than each is compared.
            if not len(values) or (values.min() >= low and values.max() <= high):
                return None
            return (values < low) | (values > high)
        ends = np.finfo(values.dtype)
        with np.errstate(invalid="ignore"):
            is_in = (values >= max(low, float(ends.min))) & (values <= min(high, float(ends.max)))
        if self.may_be_nan and not is_in.all():
            is_in |= values != values
        return None if is_in.all() else ~is_in

    def fault(self, values: NDArray[Any], sizes: Sizes, first: int = 0) -> str:
        """What is wrong with the first value that may not be, in words; "" if all are in order."""
        outside = self.outside(values, sizes)
        if outside is not None:
            at = np.argwhere(outside)[0]
            return f"row {first + at[0]:,} has {values[tuple(at)]}, {self.expected(sizes)}"
        if self.ascends and len(values) > 1 and (values[1:] < values[:-1]).any():
            at = int(np.flatnonzero(values[1:] < values[:-1])[0]) + 1
            return f"row {first + at:,} has {values[at]} after {values[at - 1]}, expected no less"
        return ""

    def expected(self, sizes: Sizes) -> str:
        low, high = self.range(sizes)
        what = "a finite number" if high == FINITE and low == -FINITE else f"{low:.15g} to {high:.15g}"
        if high == FINITE and low != -FINITE:
            what = f"{low:.15g} or more"
        return f"expected {what}{' or NaN' if self.may_be_nan else ''}"


@dataclass
class ColumnFile:
    """A .npy file of a column, checked by `chunks`, then read by ranges."""

    path: Path
    column: Column
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    sizes: Sizes
    again: str  # what to do where it is not what it was: "import the log again"
    digests: list[bytes] = field(default_factory=list)

    @property
    def n_bytes(self) -> int:
        return len(self._header) + self.shape[0] * self._wide

    @property
    def _header(self) -> bytes:
        """How such a file begins: not parsed, for there is only one way."""
        header = io.BytesIO()
        about = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
        npy.write_array_header_1_0(header, about)
        return header.getvalue()

    @property
    def _wide(self) -> int:
        """Bytes of a row."""
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    def chunks(self, digest: str, make: Callable[[], Any] = hashlib.sha256) -> Iterator[NDArray[Any]]:
        """All rows, some at a time. UserError after the last if they are not what the digest is of, or not
        what the column may hold; a chunk that is not comes out empty, with all after it.
        """
        whole, digests, fault, before = make(), [], "", None
        with _reading(self.path, self.again) as file:
            header = file.read(len(self._header))
            whole.update(header)
            for first in range(0, self.shape[0], ROWS):
                data = file.read(self._wide * min(ROWS, self.shape[0] - first))
                whole.update(data)
                digests.append(hashlib.sha256(data).digest())
                rows = len(data) // self._wide if self._wide else 0
                values = np.frombuffer(data[: rows * self._wide], self.dtype).reshape(rows, *self.shape[1:])
                if before is not None and self.column.ascends and not fault:
                    joined = np.concatenate([before, values[:1]])
                    fault = self.column.fault(joined, self.sizes, first - 1)
                before = values[-1:]
                fault = fault or self.column.fault(values, self.sizes, first)
                yield values[:0] if fault else values
            whole.update(file.read())
        if whole.hexdigest() != digest:
            raise UserError(f"{self.path} was changed or damaged since it was written; {self.again}")
        if header != self._header:
            raise UserError(
                f"{self.path} is not a column of {self.shape[0]:,} rows of {self.dtype.str}; {self.again}"
            )
        if fault:
            raise UserError(f"{self.path}: {fault}; {self.again}")
        self.digests = digests

    def check(self, digest: str, make: Callable[[], Any] = hashlib.sha256) -> None:
        """UserError unless it is what the digest is of and all values may be."""
        for _ in self.chunks(digest, make):
            pass

    def read(self, low: int = 0, high: int | None = None) -> NDArray[Any]:
        """Rows [low, high), which were checked. UserError if they have changed since."""
        high = self.shape[0] if high is None else high
        if not 0 <= low <= high <= self.shape[0]:
            raise ValueError(f"rows {low} to {high} of {self.shape[0]}")
        if low == high:
            return np.empty((0, *self.shape[1:]), self.dtype)
        begin, end = low // ROWS, -(-high // ROWS)
        first, stop = begin * ROWS, min(end * ROWS, self.shape[0])
        data = bytearray((stop - first) * self._wide)
        with _reading(self.path, self.again) as file:
            file.seek(len(self._header) + first * self._wide)
            n_read = file.readinto(data)
        step, parts = ROWS * self._wide, memoryview(data)
        is_same = n_read == len(data) and all(
            hashlib.sha256(parts[(i - begin) * step : (i - begin + 1) * step]).digest() == self.digests[i]
            for i in range(begin, end)
        )
        if not is_same:
            raise UserError(f"{self.path} was changed while it was in use; {self.again}")
        values = np.frombuffer(data, self.dtype).reshape(stop - first, *self.shape[1:])
        return values[low - first : high - first]


class _reading:
    """A file that is open for reading; what the system says against it is a UserError."""

    def __init__(self, path: Path, again: str) -> None:
        self._path, self._again = path, again

    def __enter__(self) -> io.BufferedReader:
        try:
            self._file = opened(self._path)
        except OSError as error:
            raise UserError(f"cannot read {self._path}: {error.strerror}; {self._again}") from error
        return self._file

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._file.close()
        if isinstance(error, OSError):
            raise UserError(f"cannot read {self._path}: {error.strerror}; {self._again}") from error


def as_declared(kind: Any, data: Mapping[str, Any], file: object, what: str) -> Any:
    """A dataclass from JSON, each value of the type that it declares; UserError for the first that is not."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{file} does not describe {what}: {where}: {first['msg']}") from error
