"""The log as Parquet: blocks of columns come in, checksummed parts lie on the disk, memory stays flat.

A table is the folder logs/<table>/ of part-00000.parquet, part-00001.parquet, ... in row order. A part gets
its name when it is complete, so whatever is named can be read. The bytes depend on the rows alone, not on how
they came in blocks: row groups have a fixed size, encoding and compression are fixed.

Beside the parts lies _parts.json (`PartList`), which lists what is sealed, with the size and a digest of each
part: one that is missing, cut short or changed is noticed when read. The list is written after each part, so
it never names one that is not there; of a run that was killed it may lack the last. What lies beside it
unnamed is not part of the table.

A column of codes may have categories: the name of code 0, of code 1, and so on (-1: none of them). Every part
has them in its metadata, under the key "categories", as JSON: {column: [name, ...]}.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.limits import READ_AT_ONCE
from cascade_sim.storage import checksums
from cascade_sim.storage.checksums import LOGS
from cascade_sim.storage.columns import Column, Sizes
from cascade_sim.storage.files import (
    below,
    discard,
    discarded_on_error,
    folder_inside,
    opened,
    parse_json,
    read_file,
    require_ours,
    seal,
    storage_errors,
    temporary,
    write_file,
)
from cascade_sim.storage.log_columns import LONGEST, log_column
from cascade_sim.storage.parquet import PartWriter

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ROW_GROUP = 65_536  # rows, also what a writer holds in memory

PARTS = "_parts.json"  # readers of Parquet folders pass over names that begin so

DIGEST = "sha256"  # of a part, as its list calls it; processors have instructions for it
_DIGESTS = {DIGEST: "sha256", "digest": "blake2b"}  # what a list may have; runs of older versions the latter

DIGITS = 32  # that are kept of a digest
_KINDS = "biuf"  # booleans, integers, unsigned integers, floats

_AGAIN = "; run the scenario again"

CATEGORIES = "categories"  # in the metadata of a part

Columns = dict[str, NDArray[Any]]
Categories = Mapping[str, Sequence[str]]  # {column: what its codes 0, 1, ... stand for}


class TableWriter:
    """Writes one table of a run folder. A context manager: on an error the unfinished part is dropped.

    The first append fixes names, order and dtypes of the columns. A table that never got an append leaves no
    file; one that got only empty blocks leaves one part without rows.
    """

    def __init__(
        self,
        folder: str | Path,
        table: str,
        rows_per_part: int = 1_000_000,
        categories: Categories | None = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", table):
            raise ValueError(f"table name {table!r}: use letters, digits, _ and -")
        if rows_per_part < 1:
            raise ValueError(f"rows_per_part is {rows_per_part}; it must be at least 1")
        self._start(_table_folder(folder, table), rows_per_part, categories)
        if any(self.folder.glob("part-*.parquet")):
            require_ours(self.folder)
            raise UserError(f"{self.folder} already holds a table")

    def _start(self, folder: Path, rows_per_part: int, categories: Categories | None) -> None:
        self.folder = folder
        self._categories = categories or {}
        self.rows = 0
        self._rows_per_part = rows_per_part
        self._buffers: Columns = {}
        self._buffered = 0
        self._rows_in_part = 0  # written, without the buffered ones
        self._parts = PartList(folder)
        self._writer: PartWriter | None = None
        self._temp: Path | None = None  # the file of the part that is being written
        self._is_closed = False

    @classmethod
    def anew(
        cls,
        folder: str | Path,
        table: str,
        rows_per_part: int = 1_000_000,
        categories: Categories | None = None,
    ) -> "TableWriter":
        """A table from its beginning; what a stopped run left of it is removed."""
        where = _table_folder(folder, table)
        with storage_errors(where):
            PartList(where).remove()
            for part in where.glob("part-*.parquet"):
                part.unlink()
        return cls(folder, table, rows_per_part, categories)

    @classmethod
    def resume(
        cls, folder: str | Path, table: str, state: Mapping[str, Any], categories: Categories | None = None
    ) -> "TableWriter":
        """Go on with a table as it was when `state` was taken; parts sealed since then are removed."""
        kept, where = int(state["parts"]), _table_folder(folder, table)
        sealed = PartList.read(where).first(kept)
        try:
            if sealed.digest() != str(state["sealed"]):
                raise UserError(f"{where / PARTS} is not the list that the run left there")
            for path in sealed.paths([_part_name(number) for number in range(kept)]):
                sealed.check_content(path)
        except UserError as error:
            raise UserError(f"{error}; run again without --resume") from error
        with storage_errors(where):
            for part in where.glob("part-*.parquet"):
                if int(part.stem.partition("-")[2]) >= kept:
                    part.unlink()
            if kept:
                sealed.write()
            else:
                sealed.remove()
        writer = cls.__new__(cls)
        writer._start(where, int(state["rows_per_part"]), categories)
        writer._parts, writer.rows = sealed, int(state["rows"])
        for name, values in state["buffer"].items():
            writer._buffers[name] = np.empty(ROW_GROUP, values.dtype)
            writer._buffers[name][: len(values)] = values
            writer._buffered = len(values)
        return writer

    def state(self) -> dict[str, Any]:
        """What `resume` needs. Only for tables with parts of one row group: others lie half written."""
        if self._rows_per_part > ROW_GROUP:
            raise ValueError(
                f"table {self.folder.name}: parts of more than {ROW_GROUP} rows cannot be resumed"
            )
        buffer = {name: values[: self._buffered].copy() for name, values in self._buffers.items()}
        sealed = {"rows_per_part": self._rows_per_part, "parts": len(self._parts)}
        return {**sealed, "sealed": self._parts.digest(), "rows": self.rows, "buffer": buffer}

    def append(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Add rows: one array [rows] per column. Nothing is added if they do not fit together."""
        if self._is_closed:
            raise ValueError(f"table {self.folder.name} is closed")
        n_rows = _check_columns(columns, self._buffers, self.folder.name)
        if not self._buffers:
            self._buffers = {name: np.empty(ROW_GROUP, values.dtype) for name, values in columns.items()}
        start = 0
        while start < n_rows:
            room = min(ROW_GROUP, self._rows_per_part - self._rows_in_part) - self._buffered
            stop = min(n_rows, start + room)
            for name, buffer in self._buffers.items():
                buffer[self._buffered : self._buffered + stop - start] = columns[name][start:stop]
            self._buffered += stop - start
            if stop - start == room:
                self._write_row_group()
                if self._rows_in_part == self._rows_per_part:
                    self._seal_part()
            start = stop
        self.rows += n_rows

    def close(self) -> None:
        """Write what is buffered and seal the last part. Closing twice is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        is_empty_table = self._buffers and not len(self._parts) and self._writer is None
        if self._buffered or is_empty_table:
            self._write_row_group()
        if self._writer is not None:
            self._seal_part()

    def __enter__(self) -> "TableWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._is_closed = True
            self._drop_part()

    @property
    def _part(self) -> Path:
        return self.folder / _part_name(len(self._parts))

    def _write_row_group(self) -> None:
        rows = {name: buffer[: self._buffered] for name, buffer in self._buffers.items()}
        try:
            with storage_errors(self._part):
                if self._writer is None:
                    table, logs = self.folder, self.folder.parent
                    folder_inside(logs.parent, logs.name, table.name)
                    self._temp = temporary(self._part)
                    schema = {name: values.dtype for name, values in rows.items()}
                    self._writer = _open_part(self._temp, schema, self._categories)
                self._writer.write_table(rows)
        except BaseException:
            self._is_closed = True
            self._drop_part()
            raise
        self._rows_in_part += self._buffered
        self._buffered = 0

    def _seal_part(self) -> None:
        assert self._writer is not None and self._temp is not None
        part, temp = self._part, self._temp
        with discarded_on_error(temp), storage_errors(part):
            self._writer.close()
            seal(temp, part)
        self._parts.add(part, self._writer.size, self._writer.digest)
        self._writer = self._temp = None
        self._rows_in_part = 0

    def _drop_part(self) -> None:
        writer, self._writer = self._writer, None
        with suppress(OSError):  # a full disk is why it is dropped
            if writer is not None:
                writer.close()
        with suppress(OSError):
            if self._temp is not None:
                discard(self._temp)


def read_table(
    folder: str | Path, table: str, columns: Sequence[str] | None = None, sizes: Sizes | None = None
) -> Columns:
    """All rows of a table, column by column, in the order they were appended. Default: every column.

    UserError where a value is not one that such a column may have; `sizes` say how long axes are.
    """
    paths, sealed = _parts(folder, table)
    parts, check = [], _Check(table, sizes)
    for path in paths:
        with _opened(path, columns, sealed) as (file, names):
            parts.append(check.passed(path, file.read(columns=names)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def iterate_table(
    folder: str | Path,
    table: str,
    columns: Sequence[str] | None = None,
    batch_rows: int = READ_AT_ONCE,
    sizes: Sizes | None = None,
) -> Iterator[Columns]:
    """The rows of a table in batches of at most `batch_rows`, in order, a batch at a time in memory."""
    paths, sealed = _parts(folder, table)
    check = _Check(table, sizes)
    for path in paths:
        with _opened(path, columns, sealed) as (file, names):
            for batch in file.iter_batches(batch_size=batch_rows, columns=names, use_threads=False):
                yield check.passed(path, batch)


def read_categories(folder: str | Path, table: str) -> dict[str, tuple[str, ...]]:
    """What the codes of columns of a table stand for; columns without categories are left out."""
    path = _parts(folder, table)[0][0]
    with _opened(path, None) as (file, _):
        return _categories(path, file.schema_arrow.metadata)


def _categories(path: Path, metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """The categories in the metadata of a part; UserError if they are none."""
    text = (metadata or {}).get(CATEGORIES.encode())
    if text is None:
        return {}
    try:
        found = parse_json(text)
    except ValueError as error:
        raise UserError(f"{path}: its {CATEGORIES} are not JSON: {error}{_AGAIN}") from error
    if not isinstance(found, dict) or not all(_are_names(names) for names in found.values()):
        raise UserError(f"{path}: its {CATEGORIES} are not lists of different names by column{_AGAIN}")
    return {column: tuple(names) for column, names in found.items()}


def _are_names(given: Any) -> bool:
    is_list = isinstance(given, list) and len(given) > 0 and all(isinstance(name, str) for name in given)
    return is_list and len(set(given)) == len(given)


class _Check:
    """Holds rows of a table, as they come, against what its columns may hold."""

    def __init__(self, table: str, sizes: Sizes | None) -> None:
        self._sizes = {**LONGEST, **(sizes or {})}
        self._rows, self._last = 0, np.empty(0, np.int64)
        self._is_by_request = not table.startswith("charges-")  # which come when they come

    def passed(self, path: Path, rows: Any) -> Columns:
        """Arrow table or batch as fresh arrays; UserError for the first value that may not be."""
        rows.validate(full=True)  # bytes from anywhere may point anywhere
        found, categories = {}, _categories(path, rows.schema.metadata)
        for name, values in zip(rows.schema.names, rows.columns, strict=True):
            column = log_column(name)
            dtype = _dtype(values.type)
            known = (dtype,) if column is None else column.dtypes
            if values.null_count or not dtype or dtype not in known:
                what = f"{values.type} with {values.null_count:,} empty rows"
                expected = "numbers" if column is None else " or ".join(known)
                raise UserError(f"{path}: column {name!r} is {what}, expected {expected}{_AGAIN}")
            found[name] = _values(values)
            if column is not None and (fault := self._fault(column, found[name])):
                raise UserError(f"{path}: column {name!r}: {fault}{_AGAIN}")
            if name in categories:
                codes = Column((dtype,), "one of its categories", -1, len(categories[name]) - 1)
                if fault := codes.fault(found[name], self._sizes, self._rows):
                    raise UserError(f"{path}: column {name!r}: {fault}{_AGAIN}")
        self._rows += rows.num_rows
        return found

    def _fault(self, column: Column, values: NDArray[Any]) -> str:
        if not column.ascends:
            return column.fault(values, self._sizes, self._rows)
        if not self._is_by_request:
            return replace(column, ascends=False).fault(values, self._sizes, self._rows)
        joined = np.concatenate([self._last, values])
        fault = column.fault(joined, self._sizes, self._rows - len(self._last))
        self._last = joined[-1:]
        return fault


def _dtype(kind: Any) -> str:
    """The dtype of an Arrow type of numbers; "" of any other."""
    import pyarrow as pa

    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()).str if is_number else ""


def table_rows(folder: str | Path, table: str) -> int:
    """How many rows a table has. Reads none of them."""
    n_rows = 0
    for path in _parts(folder, table)[0]:
        with _opened(path, None) as (file, _):
            n_rows += file.metadata.num_rows
    return n_rows


def table_digest(folder: str | Path, table: str) -> str:
    """The digest of a table, all parts of which are read; "" if there is none. UserError if it is damaged."""
    sealed = PartList.read(_table_folder(folder, table))
    for path in sealed.paths(sealed.names):
        sealed.check_content(path)
    return sealed.digest() if len(sealed) else ""


def sealed_digest(folder: str | Path, table: str) -> str:
    """The digest that a table had when its parts were sealed, of which none is read; "" if there is none."""
    sealed = PartList.read(_table_folder(folder, table))
    return sealed.digest() if len(sealed) else ""


def tables(folder: str | Path) -> list[str]:
    """Names of the tables of a run folder."""
    logs = below(folder, LOGS)
    return sorted({path.parent.name for kind in ("part-*.parquet", PARTS) for path in logs.glob(f"*/{kind}")})


class PartList:
    """What is sealed of the table in `folder`; without parts, nothing is known and nothing is checked."""

    def __init__(self, folder: Path, parts: dict[str, dict[str, Any]] | None = None) -> None:
        self.folder = folder
        self._parts = parts or {}

    @classmethod
    def read(cls, folder: Path) -> "PartList":
        """The list as it lies there; empty if there is none (runs of older versions have none)."""
        path = below(folder, PARTS)
        try:
            content = parse_json(read_file(path))
            parts = {part["name"]: _listed(part) for part in content["parts"]}
        except FileNotFoundError:
            return cls(folder)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{path} is damaged: not a list of the table's parts") from error
        return cls(folder, parts)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def names(self) -> list[str]:
        """The names of the checksummed parts, in row order."""
        return list(self._parts)

    def first(self, n: int) -> "PartList":
        """The list as it was when n parts were sealed."""
        return PartList(self.folder, dict(list(self._parts.items())[:n]))

    def add(self, path: Path, size: int, digest: str) -> None:
        """A part that has just been sealed, with what was written of it; the list names it from here on."""
        self._parts[path.name] = {"bytes": size, DIGEST: digest[:DIGITS]}
        self.write()

    def write(self) -> None:
        write_file(below(self.folder, PARTS), self._text())

    def digest(self) -> str:
        """Of the whole list, and so of the content of all parts."""
        return checksums.digest(self._text())

    def _text(self) -> bytes:
        parts = [{"name": name, **part} for name, part in self._parts.items()]
        return (json.dumps({"parts": parts}, indent=1) + "\n").encode()

    def remove(self) -> None:
        below(self.folder, PARTS).unlink(missing_ok=True)

    def paths(self, names: Sequence[str]) -> list[Path]:
        """The paths of these parts; UserError unless all are there and as long as when they were sealed."""
        paths = [below(self.folder, name) for name in names]
        for path in paths:
            if not path.is_file():
                raise UserError(f"{path} is missing")
            size, sealed = path.stat().st_size, self._parts.get(path.name)
            if sealed is not None and size != sealed["bytes"]:
                raise UserError(f"{path} is damaged: {size:,} bytes, {sealed['bytes']:,} when it was sealed")
        return paths

    def check_content(self, path: Path, data: bytes | None = None) -> None:
        """UserError if the part's content, or `data` for it, is not what it was when it was sealed."""
        part = self._parts.get(path.name)
        if part is not None and any(
            _digest(path, data, kind) != part[kind] for kind in part.keys() & _DIGESTS
        ):
            raise UserError(f"{path} is damaged: its content has changed since it was sealed")


def _parts(folder: str | Path, table: str) -> tuple[list[Path], PartList]:
    """The parts of a table in row order, and the list of what is sealed; a gap in them is an error."""
    place = _table_folder(folder, table)
    if place.is_dir():  # logs may be removed to save space; what is there must be whole
        checksums.require_file(Path(folder), f"{LOGS}/{table}/{PARTS}")
    sealed = PartList.read(place)
    names = sorted(path.name for path in place.glob("part-*.parquet"))
    if not names and not len(sealed):
        raise UserError(f"{folder} has no table {table!r}; it has: {', '.join(tables(folder)) or 'none'}")
    # Runs of older versions have no list: there a gap in the numbers must do.
    return sealed.paths(sealed.names or [_part_name(number) for number in range(len(names))]), sealed


def _part_name(number: int) -> str:
    return f"part-{number:05d}.parquet"


def _table_folder(folder: str | Path, table: str) -> Path:
    return below(folder, LOGS, table)


def _check_columns(columns: Mapping[str, NDArray[Any]], known: Columns, table: str) -> int:
    """The number of rows; ValueError unless the columns fit together and the `known` ones."""
    if not columns:
        raise ValueError(f"table {table}: no columns")
    if known and columns.keys() != known.keys():
        raise ValueError(f"table {table}: columns {sorted(columns)}, but it began with {sorted(known)}")
    lengths = {}
    for name, values in columns.items():
        if values.ndim != 1 or values.dtype.kind not in _KINDS:
            raise ValueError(
                f"table {table}, column {name}: {values.dtype} of shape {values.shape}; "
                "a column is one-dimensional, of numbers or booleans"
            )
        if known and values.dtype != known[name].dtype:
            began = known[name].dtype
            raise ValueError(f"table {table}, column {name}: {values.dtype}, but it began as {began}")
        lengths[name] = len(values)
    if len(set(lengths.values())) > 1:
        raise ValueError(f"table {table}: columns differ in length: {lengths}")
    return next(iter(lengths.values()))


def _open_part(path: Path, schema: Mapping[str, np.dtype[Any]], categories: Categories) -> PartWriter:
    metadata = {CATEGORIES: json.dumps({name: list(names) for name, names in categories.items()})}
    return PartWriter(path, schema, metadata if categories else None)


@contextmanager
def _opened(
    path: Path, columns: Sequence[str] | None, sealed: PartList | None = None
) -> Iterator[tuple["pq.ParquetFile", list[str]]]:
    """An opened part and the columns to read; damage found while reading is a UserError.

    With `sealed`, its content is checked, and what is read are the bytes that were.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with opened(path) as raw, pq.ParquetFile(_checked(raw, path, sealed)) as file:
            known = file.schema_arrow.names
            for name in columns or ():
                if name not in known:
                    table = path.parent.name
                    raise UserError(f"table {table!r} has no column {name!r}; it has: {', '.join(known)}")
            yield file, known if columns is None else list(columns)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def _checked(raw: BinaryIO, path: Path, sealed: PartList | None) -> Any:
    """What to read a part from: its file or, with `sealed`, the bytes that were checked."""
    import pyarrow as pa

    if sealed is None:
        return raw
    data = raw.read()
    sealed.check_content(path, data)
    return pa.BufferReader(data)


def _values(column: Any) -> NDArray[Any]:
    """A column as a fresh array. Arrow's own way would import pandas, in case it is one of its kinds."""
    chunks = getattr(column, "chunks", [column])
    if not chunks:
        return np.zeros(0, column.type.to_pandas_dtype())
    return np.concatenate([_chunk(chunk) for chunk in chunks])


def _chunk(chunk: Any) -> NDArray[Any]:
    first, stop, kind = chunk.offset, chunk.offset + len(chunk), chunk.type.to_pandas_dtype()
    values = chunk.buffers()[1]
    if values is None:
        return np.zeros(0, kind)
    if kind is np.bool_:
        bits: NDArray[np.uint8] = np.frombuffer(values, np.uint8)
        return np.unpackbits(bits, count=stop, bitorder="little")[first:].astype(bool)
    whole: NDArray[Any] = np.frombuffer(values, kind)
    return whole[first:stop]


def _listed(part: Mapping[str, Any]) -> dict[str, Any]:
    """What the list has of a part: bytes and digest; KeyError if it lacks one."""
    kind = DIGEST if DIGEST in part else "digest"
    return {"bytes": int(part["bytes"]), kind: str(part[kind])}


def _digest(path: Path, data: bytes | None, kind: str) -> str:
    with opened(path) if data is None else io.BytesIO(data) as file:
        return hashlib.file_digest(file, _DIGESTS[kind]).hexdigest()[:DIGITS]
