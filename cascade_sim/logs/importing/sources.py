"""The user's files, some rows at a time: Parquet, Feather, CSV with or without gzip, and what an adapter
reads.

Cells of CSV files come as text: what they mean is for `values` to say, which can then name the row of each
that means nothing. Damaged files are refusals, never an exception from within a library.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cascade_sim.foundation.errors import did_you_mean
from cascade_sim.logs.importing.faults import Faults
from cascade_sim.logs.store.format import ROW_BITS

UNREADABLE = (pa.ArrowException, OSError, EOFError, ValueError, KeyError, zlib.error)  # of damaged files
BATCH = 1 << 16  # rows
CSV_BLOCK = 1 << 23  # bytes
PARQUET_BUFFER = 1 << 18  # bytes of a column read at once, not all that a row group has of it
BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
CSV, PARQUET, FEATHER = (".csv", ".tsv", ".txt"), (".parquet", ".pq"), (".feather", ".arrow", ".ipc")


@dataclass(frozen=True)
class Batch:
    """Some rows of a file: the user's columns, and where each row is from."""

    columns: Mapping[str, pa.Array]
    sources: NDArray[np.int64]  # number of the file << 40 | row

    def __len__(self) -> int:
        return len(self.sources)


class Damaged(Exception):
    """A file that cannot be read to its end; the message names it."""


Reader = Callable[[Path, Sequence[str]], Iterator[tuple[Mapping[str, pa.Array], NDArray[np.int64]]]]


class Files:
    """All files of an import, numbered. Reads them in batches, counts rows, and writes down what is
    damaged.
    """

    def __init__(
        self,
        faults: Faults,
        csv: Mapping[str, str],
        readers: Mapping[str, Reader] | None = None,
        sha256: Mapping[Path, str] | None = None,
    ) -> None:
        self.faults = faults
        self.sha256 = sha256 or {}
        self.csv = csv
        self.readers = readers or {}  # of an adapter, by table
        self.paths: list[Path] = []
        self.rows: dict[int, int] = {}
        self._marked: set[Path] = set()

    def number(self, path: Path) -> int:
        """The number of a file."""
        if path not in self.paths:
            self.paths.append(path)
            self.faults.files.append(path.name)
        return self.paths.index(path)

    def batches(
        self, table: str, files: Sequence[Path], wanted: Sequence[str], place: str
    ) -> Iterator[Batch]:
        """The wanted columns of the files. `place` of the mapping is named where a column is missing."""
        for path in files:
            number = self.number(path)
            rows = 0
            try:
                for columns, at in self._read(table, path, wanted, place):
                    rows += len(at)
                    yield Batch(columns, (number << ROW_BITS) | at)
            except Damaged as error:
                if str(error) not in self.faults.refusals:
                    self.faults.refusals.append(str(error))
            except UNREADABLE as error:
                text = f"{path.name}: damaged or cut off after row {rows:,}: {_first_line(error)}"
                if not any(line.startswith(f"{path.name}: damaged") for line in self.faults.refusals):
                    self.faults.refusals.append(text)
            if rows == 0 and not any(path.name in line for line in self.faults.refusals):
                self.faults.add(table, "empty_file", np.array([(number << ROW_BITS) | 1]), "")
            self.rows[number] = max(rows, self.rows.get(number, 0))

    def sources(self) -> list[tuple[str, int, str]]:
        """(name, rows, sha256) of all files."""
        return [(path.name, self.rows.get(i, 0), self._digest(path)) for i, path in enumerate(self.paths)]

    def verify(self) -> None:
        """A file that is not what the mapping has the digest of is refused, whatever can be read of it."""
        for path in self.sha256:
            self._digest(path)

    def _digest(self, path: Path) -> str:
        """The sha256 of a file; a refusal if the mapping says another."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.sha256.get(path, digest):
            self.faults.refusals.append(
                f"{path.name}: was changed or damaged since it was written: its sha256 is {digest}, the "
                f"mapping has {self.sha256[path]}; export it again"
            )
        return digest

    def _read(
        self, table: str, path: Path, wanted: Sequence[str], place: str
    ) -> Iterator[tuple[Mapping[str, pa.Array], NDArray[np.int64]]]:
        if table in self.readers:
            yield from self.readers[table](path, wanted)
        else:
            yield from self.read_file(table, path, wanted, place)

    def read_file(
        self, table: str, path: Path, wanted: Sequence[str], place: str
    ) -> Iterator[tuple[Mapping[str, pa.Array], NDArray[np.int64]]]:
        """The wanted columns of a Parquet, Feather or CSV file, and the numbers of their rows."""
        suffixes = [suffix.lower() for suffix in path.suffixes]
        kind = (
            suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else suffixes[-1] if suffixes else ""
        )
        if kind in PARQUET:
            yield from self._parquet(path, wanted, place)
        elif kind in FEATHER:
            yield from self._feather(path, wanted, place)
        elif kind in CSV:
            yield from self._csv(table, path, wanted, place)
        else:
            known = ", ".join((*PARQUET, *FEATHER, *CSV))
            raise Damaged(f"{path.name}: what kind of file is it? Names end in {known}, text also in .gz")

    def names(self, path: Path) -> list[str]:
        """The columns of a file."""
        try:
            if path.suffix.lower() in PARQUET:
                import pyarrow.parquet as pq

                return list(pq.read_schema(path).names)
            if path.suffix.lower() in FEATHER:
                return list(pa.ipc.open_file(pa.OSFile(str(path))).schema.names)
        except UNREADABLE as error:
            raise Damaged(f"{path.name}: damaged or cut off: {_first_line(error)}") from error
        return _cells(_header(path, self.csv.get("encoding", ""))[0], self.csv.get("delimiter", ","))

    def _parquet(self, path: Path, wanted: Sequence[str], place: str) -> Iterator[Any]:
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(
                path, buffer_size=PARQUET_BUFFER, pre_buffer=False, page_checksum_verification=True
            )
        except UNREADABLE as error:
            raise Damaged(
                f"{path.name}: damaged or cut off, no Parquet file: {_first_line(error)}"
            ) from error
        with file:
            require(path, wanted, file.schema_arrow.names, place)
            yield from _numbered(file.iter_batches(BATCH, columns=list(wanted), use_threads=False), 1)

    def _feather(self, path: Path, wanted: Sequence[str], place: str) -> Iterator[Any]:
        try:
            file = pa.ipc.open_file(pa.OSFile(str(path)))
        except UNREADABLE as error:
            raise Damaged(
                f"{path.name}: damaged or cut off, no Feather file: {_first_line(error)}"
            ) from error
        require(path, wanted, file.schema.names, place)

        def pieces() -> Iterator[pa.RecordBatch]:
            for i in range(file.num_record_batches):
                batch = file.get_batch(i)
                batch.validate(full=True)
                batch = batch.select(list(wanted))
                for start in range(0, batch.num_rows, BATCH):
                    yield batch.slice(start, BATCH)

        yield from _numbered(pieces(), 1)

    def _csv(self, table: str, path: Path, wanted: Sequence[str], place: str) -> Iterator[Any]:
        import pyarrow.csv as csv

        encoding, delimiter = self.csv.get("encoding", ""), self.csv.get("delimiter", "")
        header, found, has_mark = _header(path, encoding)
        encoding = encoding or found
        if has_mark and path not in self._marked:
            self._marked.add(path)
            self.faults.add(table, "byte_order_mark", np.array([(self.number(path) << ROW_BITS) | 1]), "")
        delimiter = delimiter or ("\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ",")
        names = _cells(header, delimiter)
        twice = {name for name in names if names.count(name) > 1} & set(wanted)
        if twice:
            raise Damaged(f"{path.name} row 1: two columns are called {sorted(twice)[0]!r}")
        if len(names) == 1 and (other := next((d for d in ";\t|," if d in header), None)):
            words = (
                f"the header is one column; it looks parted by {other!r}: set csv: {{delimiter: {other!r}}}"
            )
            raise Damaged(f"{path.name} row 1: {words}")
        require(path, wanted, names, place)
        broken: list[int] = []
        texts: list[str] = []
        seen = 0

        def skip(row: Any) -> str:
            broken.append(0 if row.number is None else int(row.number))
            texts.append(f"{row.actual_columns} cells, the header has {row.expected_columns}")
            return "skip"

        text = _Recoded(bytes_stream(path), encoding, path)
        with pa.PythonFile(io.BufferedReader(text, 1 << 20), mode="r") as stream:
            reader = csv.open_csv(
                stream,
                csv.ReadOptions(use_threads=False, block_size=CSV_BLOCK, encoding="utf8"),
                csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip),
                csv.ConvertOptions(
                    include_columns=list(wanted),
                    column_types=dict.fromkeys(wanted, pa.string()),
                    strings_can_be_null=True,
                    null_values=["", "NULL", "null", "NA", "N/A", "None", "\\N"],
                    quoted_strings_can_be_null=False,
                ),
            )
            row = 2
            for batch in reader:
                n = batch.num_rows
                skipped = sorted(broken[seen:])
                at = np.arange(row, row + n + len(skipped))
                at = np.setdiff1d(at, skipped, assume_unique=True)[:n] if skipped else at
                if skipped:
                    where = (self.number(path) << ROW_BITS) | np.array(skipped, np.int64)
                    self.faults.add(table, "broken_row", where, "all", texts[seen:])
                    seen = len(broken)
                row = int(at[-1]) + 1 if n else row
                for start in range(0, n, BATCH):
                    part = batch.slice(start, BATCH)
                    yield dict(zip(part.schema.names, part.columns, strict=True)), at[start : start + BATCH]
            if len(broken) > seen:
                where = (self.number(path) << ROW_BITS) | np.array(broken[seen:], np.int64)
                self.faults.add(table, "broken_row", where, "all", texts[seen:])
            if not text.is_ended and self.csv.get("last_row") != "whole":
                raise Damaged(
                    f"{path.name}: cut off? Its last row ({max([row - 1, *broken]):,}) has no line end; if "
                    "the row is whole, add one, or set csv: {last_row: whole}"
                )


def require(path: Path, wanted: Sequence[str], names: Sequence[str], place: str) -> None:
    """`Damaged` if the file lacks a column that the mapping names."""
    lacking = [name for name in wanted if name not in names]
    if lacking:
        hint = did_you_mean(lacking[0], names)
        listed = ", ".join(repr(name) for name in lacking)
        has = ", ".join(list(names)[:30])
        raise Damaged(f"{place} {path.name} has no column {listed}{hint or ';'} it has {has}")


def estimated_rows(files: Sequence[Path]) -> int:
    """About how many rows there are, without reading them."""
    import pyarrow.parquet as pq

    total = 0
    for path in files:
        try:
            if path.suffix.lower() in PARQUET:
                total += pq.read_metadata(path).num_rows
            else:
                total += path.stat().st_size // (8 if path.suffix == ".gz" else 32)
        except UNREADABLE:
            continue
    return total


def _numbered(batches: Iterator[pa.RecordBatch], row: int) -> Iterator[Any]:
    for batch in batches:
        batch.validate(full=True)  # bytes that changed on the way may point anywhere
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        yield columns, np.arange(row, row + batch.num_rows)
        row += batch.num_rows


def _header(path: Path, encoding: str) -> tuple[str, str, bool]:
    """The first line of a text file, its encoding as its first bytes show it, and whether they are a mark."""
    with bytes_stream(path) as stream:
        try:
            start = stream.read(1 << 16)
        except UNREADABLE as error:
            raise Damaged(f"{path.name}: damaged or cut off: {_first_line(error)}") from error
    if not start:
        raise Damaged(f"{path.name} is empty: not even a header")
    found = next((name for mark, name in BOMS.items() if start.startswith(mark)), "")
    has_mark = bool(found) or start.startswith(b"\xef\xbb\xbf")
    encoding = encoding or found or "utf-8"
    try:
        text = start.decode(encoding, "replace").removeprefix("\ufeff")
    except LookupError:
        raise Damaged(f"csv.encoding: there is no encoding {encoding!r}") from None
    line = text.splitlines()[0] if text.splitlines() else ""
    if "\0" in line:
        raise Damaged(
            f"{path.name} row 1: there is a byte 0 in the header; is it UTF-16, or not text at all?"
        )
    return line, encoding, has_mark


def _cells(line: str, delimiter: str) -> list[str]:
    import csv

    return next(csv.reader([line], delimiter=delimiter), [])


def bytes_stream(path: Path) -> Any:
    """A file to read from, unpacked where it is gzip."""
    stream = pa.OSFile(str(path))
    if path.suffix.lower() == ".gz":
        import gzip

        stream.close()
        return gzip.open(path, "rb")
    return stream


class _Recoded(io.RawIOBase):
    """A stream of UTF-8 from one of another encoding; says in which row a byte means nothing."""

    def __init__(self, stream: Any, encoding: str, path: Path) -> None:
        import codecs

        self._stream, self._path = stream, path
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._is_utf8 = codecs.lookup(encoding).name in ("utf-8", "ascii")
        self._rows, self._held, self._is_first = 1, b"", True
        self.is_ended = True  # whether what was read ends with the end of a line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            data = self._stream.read(1 << 20)
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                row = self._rows + error.object[: error.start].count(b"\n")
                byte = error.object[error.start]
                hint = "; set csv: {encoding: latin-1} if it is" if self._is_utf8 else ""
                raise Damaged(
                    f"{self._path.name} row {row:,}: byte 0x{byte:02x} is not {error.encoding}{hint}"
                ) from None
            self._rows += text.count("\n")
            if self._is_first and text:
                text, self._is_first = text.removeprefix("\ufeff"), False
            self.is_ended = text[-1] in "\r\n" if text else self.is_ended
            self._held = text.encode()
            if not data and not self._held:
                return 0
        n = min(len(buffer), len(self._held))
        buffer[:n] = self._held[:n]
        self._held = self._held[n:]
        return n


def _first_line(error: BaseException) -> str:
    return str(error).split("\n")[0][:200] or type(error).__name__
