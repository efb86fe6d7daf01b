"""Checksummed store of logged auctions: one .npy file per column, read by ranges in constant memory.

    LOG/store/log.json                  About, and the size and digest of every file
    LOG/store/TABLE/COLUMN.npy          requests, candidates, ads, budgets
    LOG/store/names/KIND.parquet        code -> the user's own name

`open_store` reads every column once: its digest, the range of its values as `format` declares it, and what
columns say of each other. What is read later must be the same bytes. Columns are not mapped into memory:
pages of a mapping count as resident, and a log may be larger than that.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from cascade_sim.foundation import cleanup
from cascade_sim.foundation.errors import UserError, did_you_mean, unknown_name
from cascade_sim.logs.store.format import (
    ADS,
    BUDGETS,
    CANDIDATES,
    NAMED,
    REQUESTS,
    ROW_BITS,
    SCORE,
    TABLES,
    About,
    Counts,
    Rule,
    about_from,
    check_layout,
    column,
    sizes_of,
)
from cascade_sim.logs.store.rows import ColumnFiles, check_columns
from cascade_sim.storage import checksums
from cascade_sim.storage.columns import ColumnFile
from cascade_sim.storage.files import flock, flush, opened, parse_json, read_file, storage_errors, write_file

STORE = "store"  # in the folder of a log
MAX_NAMES = 1 << 34  # bytes of the names of one kind
LOG_FILE = "log.json"
AGAIN = "import the log again"
NEAR = 4_096  # candidates between two wanted requests that are read along rather than skipped

Columns = dict[str, NDArray[Any]]


class LogStore:
    """A log on the disk. Whole columns of requests, ranges of candidates. Use `open_store`."""

    def __init__(
        self, path: Path, about: About, files: Mapping[str, Mapping[str, Any]], columns: ColumnFiles
    ) -> None:
        self.path = path
        self.about = about
        self.requests = _RequestColumns(self)
        self._files = files
        self._stored = columns
        self._columns: dict[tuple[str, str], NDArray[Any]] = {}
        self._names: dict[str, Any] = {}
        self._codes: dict[str, dict[str, int]] = {}

    @property
    def n_requests(self) -> int:
        return self.about.counts.requests

    @property
    def n_candidates(self) -> int:
        return self.about.counts.candidates

    @property
    def n_ads(self) -> int:
        return self.about.counts.ads

    @property
    def n_advertisers(self) -> int:
        return self.about.counts.advertisers

    @property
    def n_users(self) -> int:
        return self.about.counts.users

    @property
    def first(self) -> NDArray[np.int64]:
        """[R+1] offsets into candidates."""
        return self._whole("requests", "first")

    @property
    def advertiser(self) -> NDArray[np.int32]:
        """[A] whose ad each is."""
        return self._whole("ads", "advertiser")

    @property
    def budgets(self) -> Columns | None:
        """What advertisers could spend a day; None if that was not logged."""
        names = self.about.columns.get("budgets")
        return {name: self._whole("budgets", name) for name in names} if names else None

    def has(self, *names: str, table: str = "candidates") -> bool:
        """Whether the log has all of these columns."""
        return self.about.has(*names, table=table)

    def candidates(self, start: int, stop: int, columns: Sequence[str]) -> Columns:
        """Flat columns of the candidates of requests [start, stop)."""
        if not 0 <= start <= stop <= self.n_requests:
            raise ValueError(f"requests {start} to {stop} of {self.n_requests}")
        low, high = int(self.first[start]), int(self.first[stop])
        return {name: self._range("candidates", name, low, high) for name in columns}

    def blocks(self, columns: Sequence[str], rows: int = 1 << 18) -> Iterator[tuple[int, int, Columns]]:
        """All candidates in order: (first request, past the last, columns), about `rows` rows at once."""
        start = 0
        while start < self.n_requests:
            stop = int(np.searchsorted(self.first, self.first[start] + rows, side="right")) - 1
            stop = min(max(stop, start + 1), self.n_requests)
            yield start, stop, self.candidates(start, stop, columns)
            start = stop

    def padded(self, rows: ArrayLike, columns: Sequence[str], width: int | None = None) -> Columns:
        """{column: [len(rows), n]} of any requests, n the largest's candidates (or `width`).

        Padding: ad and slot -1, everything else 0.
        """
        wanted = np.asarray(rows, dtype=np.int64)
        first = self.first
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= self.n_requests):
            raise ValueError(f"a request outside 0 … {self.n_requests - 1}")
        counts = first[wanted + 1] - first[wanted]
        most = int(counts.max(initial=0))
        n = most if width is None else width
        if n < most:
            raise ValueError(f"width {n} is less than the {most} candidates of a request")
        is_there = np.arange(n) < counts[:, None]
        spans = list(_spans(first, np.unique(wanted)))
        lows = np.array([low for low, _ in spans], dtype=np.int64)
        kept = np.concatenate([[0], np.cumsum([high - low for low, high in spans])])
        span = np.searchsorted(lows, first[wanted], side="right") - 1 if spans else wanted[:0]
        begins = first[wanted] - lows[span] + kept[span] if spans else wanted[:0]
        at = (begins[:, None] + np.arange(n))[is_there]
        out: Columns = {}
        for name in columns:
            parts = [self._range("candidates", name, low, high) for low, high in spans]
            dtype = self._file("candidates", name).dtype
            flat = np.concatenate(parts) if parts else np.empty(0, dtype)
            out[name] = np.full((len(wanted), n), column("candidates", name).padding, dtype)
            out[name][is_there] = flat[at]
        return out

    def name(self, kind: str, code: int) -> str:
        """The user's own name; '' for -1."""
        return "" if code < 0 else str(self._names_of(kind)[int(code)].as_py())

    def names(self, kind: str) -> list[str]:
        """All names of a kind, by code."""
        return [str(name) for name in self._names_of(kind).to_pylist()]

    def code(self, kind: str, name: str) -> int:
        """The number of a name; UserError with what is near if the log does not have it."""
        if kind not in self._codes:
            self._codes[kind] = {text: code for code, text in enumerate(self.names(kind))}
        codes = self._codes[kind]
        if str(name) not in codes:
            some, what = list(codes)[:10_000], kind.removesuffix("s")  # comparing with millions takes long
            text = unknown_name(what, str(name), some)
            if len(some) > 20:
                example = did_you_mean(str(name), some) or f"; for example '{some[0]}'"
                text = f"unknown {what} '{name}'{example}"
            raise UserError(f"{self.path}: {text}")
        return codes[str(name)]

    def source(self, code: int) -> tuple[str, int]:
        """File and row of a candidate's `source`."""
        return self.about.sources[code >> ROW_BITS].file, code & ((1 << ROW_BITS) - 1)

    def check(self) -> None:
        """Compare every file with its digest; UserError names the first that is not what was written."""
        check_columns(self._stored, self._files, self.about)
        for kind in NAMED:
            self._names_of(kind)

    def _file(self, table: str, name: str) -> ColumnFile:
        if (table, name) not in self._stored:
            known = ", ".join(sorted(self.about.columns.get(table, {}))) or "none"
            raise UserError(f"{self.path}: the log has no {table}.{name}; it has {known}")
        return self._stored[table, name]

    def _range(self, table: str, name: str, low: int, high: int) -> NDArray[Any]:
        return self._file(table, name).read(low, high)

    def _whole(self, table: str, name: str) -> NDArray[Any]:
        if (table, name) not in self._columns:
            values = self._file(table, name).read()
            values.flags.writeable = False
            self._columns[table, name] = values
        return self._columns[table, name]

    def _names_of(self, kind: str) -> Any:
        if kind not in NAMED:
            raise ValueError(unknown_name("kind of names", kind, NAMED))
        if kind not in self._names:
            self._names[kind] = self._read_names(kind)
        return self._names[kind]

    def _read_names(self, kind: str) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = f"names/{kind}.parquet"
        path = self.path / file
        try:
            data = read_file(path, most=MAX_NAMES)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != self._files[file]["sha256"]:
            raise UserError(f"{path} was changed or damaged since it was written; {AGAIN}")
        try:
            with pq.ParquetFile(pa.BufferReader(data)) as table:  # read_table would load pandas
                names = table.read(columns=["name"])["name"].combine_chunks()
            names.validate(full=True)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise UserError(f"cannot read {path}: {error}; {AGAIN}") from error
        wanted = sizes_of(self.about)[kind]
        if len(names) != wanted or names.null_count or not pa.types.is_large_string(names.type):
            raise UserError(
                f"{path} has {len(names):,} names ({names.type}, {names.null_count:,} empty), expected "
                f"{wanted:,} of large_string; {AGAIN}"
            )
        return names

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process goes where it is and what was checked, not what was read of it."""
        return LogStore, (self.path, self.about, self._files, self._stored)


class _RequestColumns(Mapping[str, NDArray[Any]]):
    """Columns of requests, each read when it is first asked for."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._store._whole("requests", name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.about.columns["requests"])

    def __len__(self) -> int:
        return len(self._store.about.columns["requests"])

    def __contains__(self, name: object) -> bool:
        return name in self._store.about.columns["requests"]


def _spans(first: NDArray[np.int64], rows: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of candidates that hold those of the requests (ascending), near ones read in one."""
    if not len(rows):
        return
    lows, highs = first[rows], first[rows + 1]
    cuts = np.flatnonzero(lows[1:] - highs[:-1] > NEAR) + 1
    for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(rows)], strict=True):
        yield int(lows[begin]), int(highs[end - 1])


def _column_files(store: Path, about: About, files: Mapping[str, Mapping[str, Any]]) -> ColumnFiles:
    """A file of each column; UserError where one is not as long as its table."""
    found: ColumnFiles = {}
    sizes = dict(sizes_of(about))
    for table, names in about.columns.items():
        for name, kind in names.items():
            entry, dtype, path = column(table, name), np.dtype(kind), store / table / f"{name}.npy"
            size = int(files[f"{table}/{name}.npy"]["bytes"])
            if table == "budgets" and not sizes["budgets"]:  # nothing else says how many there are
                empty = ColumnFile(path, entry, dtype, (0,), sizes, AGAIN).n_bytes
                sizes["budgets"] = max((size - empty) // dtype.itemsize, 0)
            shape = tuple(sizes[axis] for axis in entry.axes or (table,))
            file = ColumnFile(path, entry, dtype, shape, sizes, AGAIN)
            if size != file.n_bytes:
                rows = f"{shape[0]:,} rows of {dtype.str}"
                raise UserError(f"{path} has {size:,} bytes, expected {file.n_bytes:,} for {rows}; {AGAIN}")
            found[table, name] = file
    return found


def is_log_store(path: str | Path) -> bool:
    """Whether a folder holds a store of logged auctions."""
    return (Path(path) / STORE / LOG_FILE).is_file()


def open_store(path: str | Path) -> LogStore:
    """The store in the folder of a log (or the store's own folder), with every column checked.

    UserError if there is none, or it is damaged, of a newer format, or holds what no log can.
    """
    store, about, files = read_log_store(path)
    columns = _column_files(store, about, files)
    check_columns(columns, files, about)
    return LogStore(store, about, files, columns)


def read_log_store(path: str | Path) -> tuple[Path, About, Mapping[str, Mapping[str, Any]]]:
    """The folder of a store, what is known about its log, and its files, of which none is read."""
    folder = Path(path)
    store = folder / STORE if (folder / STORE).is_dir() else folder
    file = store / LOG_FILE
    if not file.is_file():
        if (store / "market.json").is_file():
            raise UserError(
                f"{folder} was imported by an older version, which wrote {STORE}/market.json; {AGAIN}"
            )
        what = "is not the folder of an imported log" if folder.is_dir() else "does not exist"
        raise UserError(f"{folder} {what}: there is no {STORE}/{LOG_FILE}; make one with import-logs")
    try:
        data = parse_json(read_file(file))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {file}: {error}") from error
    if not isinstance(data, dict):
        raise UserError(f"{file} does not describe a log store")
    about = about_from(data, file)
    if not checksums.has_checksum(data):
        raise UserError(f"{file} was changed or damaged since it was written; {AGAIN}")
    check_layout(about, file)
    return store, about, _listed(data.get("files"), about, store)


def _listed(files: Any, about: About, store: Path) -> Mapping[str, Mapping[str, Any]]:
    """The list of a store's files; UserError where it lacks one, or one is not as long as it says."""
    file = store / LOG_FILE
    if not isinstance(files, dict):
        raise UserError(f"{file} has no list of files; {AGAIN}")
    wanted = {f"{table}/{name}.npy" for table, names in about.columns.items() for name in names}
    wanted |= {f"names/{kind}.parquet" for kind in NAMED}
    if missing := sorted(wanted - set(files)):
        raise UserError(f"{file} has no digest of {missing[0]}; {AGAIN}")
    if more := sorted(set(files) - wanted):
        raise UserError(f"{file} names {more[0]}, which is no file of a log store; {AGAIN}")
    for name, entry in files.items():
        if not (isinstance(entry, dict) and isinstance(entry.get("sha256"), str)):
            raise UserError(f"{file} has no digest of {name}; {AGAIN}")
        try:
            size = (store / name).stat().st_size
        except OSError:
            raise UserError(f"{store / name} is missing; {AGAIN}") from None
        if size != entry.get("bytes"):
            raise UserError(f"{store / name} has {size:,} bytes, not {entry.get('bytes')}; {AGAIN}")
    return files


def declare(path: str | Path, rule: Rule) -> About:
    """Give the log in the folder of a log another declared rule; its columns stay as they are."""
    store, about, files = read_log_store(path)
    about = about.changed(rule=rule)
    write_file(store / LOG_FILE, _market_text(about, files).encode())
    return about


def _market_text(about: About, files: Mapping[str, Mapping[str, Any]]) -> str:
    """The sealed content of log.json."""
    content = checksums.with_checksum({**about.as_json(), "files": files})
    return json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


class StoreWriter:
    """Writes a store column by column, rows as they come. A context manager; the folder is made.

    `append` adds rows to a table. `names` are written whole. `finish` counts, checks and seals; without it
    what was written is no store. The folder should lie in one that `new_folder` gave: all appears at once.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._open: dict[tuple[str, str], tuple[BinaryIO, np.dtype[Any]]] = {}
        self._rows: dict[tuple[str, str], int] = {}
        self._counts = {"shown": 0, "clicks": 0, "slots": 0}
        self._named: dict[str, int] = {}

    def append(self, table: str, columns: Mapping[str, ArrayLike]) -> None:
        """Rows of a table: arrays of one length, the same columns each time."""
        if table not in TABLES:
            raise ValueError(unknown_name("table", table, TABLES))
        arrays = {name: np.asarray(values) for name, values in columns.items()}
        lengths = {len(values) for name, values in arrays.items() if name != "first"}
        if len(lengths) > 1:
            raise ValueError(f"columns of {table} have {sorted(lengths)} rows")
        for name, values in arrays.items():
            self._add(table, name, values)
        if table == "candidates":
            self._counts["shown"] += int(np.count_nonzero(arrays["slot"] >= 0))
            self._counts["clicks"] += int(np.count_nonzero(arrays["click"] == 1))
        if table == "requests" and "slots" in arrays:
            self._counts["slots"] = max(self._counts["slots"], int(arrays["slots"].max(initial=0)))

    def names(self, kind: str, names: Any) -> None:
        """Names by code: a sequence of text, or an Arrow array of strings."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if kind not in NAMED:
            raise ValueError(unknown_name("kind of names", kind, NAMED))
        if not isinstance(names, pa.Array | pa.ChunkedArray):
            names = pa.array([str(name) for name in names], pa.large_string())
        file = self.folder / "names" / f"{kind}.parquet"
        with storage_errors(file):
            file.parent.mkdir(exist_ok=True)
            pq.write_table(pa.table({"name": names.cast(pa.large_string())}), file, compression="zstd")
        self._named[kind] = len(names)

    def finish(self, about: About) -> About:
        """Complete headers, check that the tables fit, and seal with `about`, whose counts are filled in."""
        with storage_errors(self.folder):
            for (table, name), (file, dtype) in self._open.items():
                file.seek(0)
                _write_header(file, dtype, self._rows[table, name])
                file.flush()
                os.fsync(file.fileno())
                file.close()
            about = self._completed(about)
            for kind in NAMED:
                if kind not in self._named:
                    self.names(kind, [])
            files = {
                path.relative_to(self.folder).as_posix(): _entry(path)
                for path in sorted(self.folder.rglob("*"))
                if path.is_file()
            }
            (self.folder / LOG_FILE).write_text(_market_text(about, files), encoding="utf-8")
        return about

    def close(self) -> None:
        """Let go of the files. Closing twice is harmless."""
        for file, _ in self._open.values():
            file.close()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, table: str, name: str, values: NDArray[Any]) -> None:
        key = (table, name)
        if key not in self._open:
            try:
                allowed = column(table, name).dtypes
            except KeyError:
                known = {"requests": REQUESTS, "candidates": CANDIDATES, "ads": ADS, "budgets": BUDGETS}[
                    table
                ]
                raise ValueError(unknown_name(f"column of {table}", name, known)) from None
            dtype = np.dtype(values.dtype.newbyteorder("<") if values.dtype.str in allowed else allowed[0])
            path = self.folder / table / f"{name}.npy"
            with storage_errors(path):
                path.parent.mkdir(exist_ok=True)
                self._open[key] = path.open("xb"), dtype
                _write_header(self._open[key][0], dtype, 0)
            self._rows[key] = 0
        file, dtype = self._open[key]
        with storage_errors(Path(file.name)):
            np.ascontiguousarray(values, dtype).tofile(file)
        self._rows[key] += len(values)

    def _completed(self, about: About) -> About:
        columns: dict[str, dict[str, str]] = {}
        for (table, name), (_, dtype) in self._open.items():
            columns.setdefault(table, {})[name] = dtype.str
        for table, known in (("requests", REQUESTS), ("candidates", CANDIDATES), ("ads", ADS)):
            needed = [name for name, entry in known.items() if not entry.is_optional]
            if absent := [name for name in needed if name not in columns.get(table, {})]:
                raise ValueError(f"{table} lacks {', '.join(absent)}")
        for table, names in columns.items():
            rows = {self._rows[table, name] for name in names if name != "first"}
            if len(rows) != 1:
                raise ValueError(f"columns of {table} have {sorted(rows)} rows")
        requests, candidates = self._rows["requests", "time"], self._rows["candidates", "ad"]
        first = self._first()
        if (
            len(first) != requests + 1
            or first[0] != 0
            or first[-1] != candidates
            or np.any(np.diff(first) < 0)
        ):
            raise ValueError(
                "`first` does not lead from 0 to the number of candidates, one more than requests"
            )
        if self._named.get("ads", self._rows["ads", "advertiser"]) != self._rows["ads", "advertiser"]:
            raise ValueError("as many advertisers of ads as names of ads")
        named = {
            kind: self._named.get(kind, 0) for kind in ("users", "segments", "placements", "advertisers")
        }
        counts = Counts(
            requests=requests,
            candidates=candidates,
            shown=self._counts["shown"],
            clicks=self._counts["clicks"],
            ads=self._rows["ads", "advertiser"],
            **named,
        )
        return about.changed(
            counts=counts,
            columns=columns,
            scores=tuple(n.removeprefix(SCORE) for n in columns["candidates"] if n.startswith(SCORE)),
            slots=self._counts["slots"],
            largest_request=int(np.diff(first).max(initial=0)),
        )

    def _first(self) -> NDArray[np.int64]:
        path = self.folder / "requests" / "first.npy"
        return np.load(path)


def write_store(
    folder: str | Path,
    about: About,
    requests: Mapping[str, ArrayLike],
    candidates: Mapping[str, ArrayLike],
    names: Mapping[str, Sequence[str]],
    *,
    advertiser: ArrayLike | None = None,
    budgets: Mapping[str, ArrayLike] | None = None,
) -> LogStore:
    """A store from arrays in memory, in the folder of a log (`folder`/store): for small logs and tests.

    Columns that are not given and that the format needs get what "unknown" is. `names` may lack kinds: codes
    are then their own names. `advertiser` [A] is of each ad; default: each ad is an advertiser of its own.
    """
    parent = Path(folder)
    requests, candidates = dict(requests), dict(candidates)
    n, rows = len(np.asarray(requests["time"])), len(np.asarray(candidates["ad"]))
    for name, unknown in (("user", -1), ("segment", -1), ("placement", -1), ("reserve", np.nan)):
        requests.setdefault(name, np.full(n, unknown, column("requests", name).dtypes[0]))
    shown = np.asarray(candidates["slot"]) >= 0
    candidates.setdefault("stage", np.where(shown, 2, 1))
    for name, unknown in (("price_micros", -1), ("click", -1), ("conversion", -1)):
        candidates.setdefault(name, np.full(rows, unknown, column("candidates", name).dtypes[0]))
    candidates.setdefault("bid", np.full(rows, np.nan))
    candidates.setdefault("source", np.arange(1, rows + 1))
    ads = int(np.asarray(candidates["ad"]).max(initial=-1)) + 1
    owners = np.arange(ads, dtype=np.int32) if advertiser is None else np.asarray(advertiser, np.int32)
    sizes = {"ads": len(owners), "advertisers": int(owners.max(initial=-1)) + 1, "requests": n}
    for kind, key in (("users", "user"), ("segments", "segment"), ("placements", "placement")):
        sizes[kind] = int(np.asarray(requests[key]).max(initial=-1)) + 1
    with new_folder(parent / STORE) as temp, StoreWriter(temp) as writer:
        writer.append("requests", requests)
        writer.append("candidates", candidates)
        writer.append("ads", {"advertiser": owners})
        if budgets is not None:
            writer.append("budgets", budgets)
        for kind in NAMED:
            writer.names(kind, names.get(kind) or [str(code) for code in range(sizes[kind])])
        writer.finish(about)
    return open_store(parent)


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A hidden folder beside `path` to write into, which gets that name when all is well and else is removed.

    UserError if something lies at `path` already. What killed processes left of the same folder is removed.
    """
    place = Path(path)
    if place.exists() or place.is_symlink():
        raise UserError(f"{place} exists already; name another folder, or remove it")
    temp = place.with_name(f"{_begins(place)}{os.getpid()}.{secrets.token_hex(8)}.tmp")
    cleanup.register(temp, partial(shutil.rmtree, temp, ignore_errors=True))
    with storage_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(place)
        temp.mkdir()
        held = os.open(temp, os.O_RDONLY)
    try:
        flock(held, temp, waits=True)
        yield temp
        with storage_errors(place):
            for folder, _, files in os.walk(temp):
                for name in files:
                    flush(Path(folder) / name)
                flush(Path(folder))
            if place.exists():
                raise UserError(f"{place} exists already; name another folder, or remove it")
            os.rename(temp, place)
            flush(place.parent)
    except BaseException:
        shutil.rmtree(temp, ignore_errors=True)
        raise
    finally:
        os.close(held)
    cleanup.unregister(temp)


def _begins(place: Path) -> str:
    """How the hidden folders of this machine for `place` begin; process, a random number and .tmp follow."""
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
    return f".{place.name}.{host}."


def _remove_left(place: Path) -> None:
    """Remove hidden folders for `place` whose process is dead: of this machine, and not locked."""
    name = re.compile(re.escape(_begins(place)) + r"([0-9]{1,9})\.[0-9a-f]{16}\.tmp")
    for other in list(place.parent.iterdir()):
        match = name.fullmatch(other.name)
        if match is None or other.is_symlink() or not other.is_dir() or _is_alive(int(match[1])):
            continue
        with suppress(OSError):
            handle = os.open(other, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other, ignore_errors=True)
            finally:
                os.close(handle)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _write_header(file: BinaryIO, dtype: np.dtype[Any], rows: int) -> None:
    """The header of a .npy file; its length does not depend on the number of rows."""
    npy.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": (rows,)})


def _entry(path: Path) -> dict[str, Any]:
    entry: dict[str, Any] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
    if path.suffix == ".npy":
        with opened(path) as file:
            npy.read_magic(file)
            npy.read_array_header_1_0(file)
            entry["header"] = file.tell()
    return entry


def _sha256(path: Path) -> str:
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
