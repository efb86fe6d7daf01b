"""Learning-to-rank files: SVMlight or LETOR text, plain or gzip, lists by qid or by a file of sizes.

A feature that a line leaves out is 0. Lists are given by `qid:` on every line, or by a file beside the data
that holds the number of rows of each list, one a line, as LightGBM (`.query`) and XGBoost (`.group`) have it.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cascade_sim.errors import ScenarioError, UserError
from cascade_sim.ltr import parser as ltr_parser

BLOCK = 1 << 24  # bytes read at a time
SHOWN = 5  # malformed lines that are listed
_CELLS = 2_000_000_000  # of the table of features: 8 GB
_GROUP_SUFFIXES = (".query", ".group")


@dataclass(frozen=True)
class RankingFile:
    """Rows of one file, lists contiguous. N rows, F features, Q lists."""

    features: np.ndarray  # [N, F] float32
    labels: np.ndarray  # [N] float32, >= 0
    lists: np.ndarray  # [Q + 1] int64
    columns: np.ndarray  # [F] int64, the features' ids, rising

    @property
    def n_lists(self) -> int:
        return len(self.lists) - 1

    def take_lists(self, which: np.ndarray) -> RankingFile:
        """Some of the lists, in the given order."""
        sizes = np.diff(self.lists)[which]
        lists = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.arange(lists[-1]) + np.repeat(self.lists[which] - lists[:-1], sizes)
        return RankingFile(self.features[rows], self.labels[rows], lists, self.columns)


def read_file(
    path: Path, columns: np.ndarray | None = None, advance: Callable[[int], None] = lambda n: None
) -> RankingFile:
    """The file's rows. UserError names file, line and reason of the first few malformed lines.

    columns: ids of the features to keep, those of the training file; other features of this file are not
    read. None: all that occur. advance is told how many bytes of text were read.
    """
    parts: list[ltr_parser.Parsed] = []
    problems: list[str] = []
    line = 1
    for text in _blocks(path):
        parsed = ltr_parser.parse(text, line)
        for number in parsed.bad[: SHOWN + 1 - len(problems)]:
            problems.append(f"{path}:{number}: {_reason(text, int(number) - line)}")
        line += parsed.n_lines
        parts.append(parsed)
        advance(len(text))
    if problems:
        more = [f"{path}: more malformed lines follow"] if len(problems) > SHOWN else []
        raise ScenarioError([*problems[:SHOWN], *more])
    labels = np.concatenate([part.labels for part in parts]) if parts else np.empty(0, np.float32)
    if len(labels) == 0:
        raise UserError(f"{path}: no rows")
    lists = _lists(path, np.concatenate([p.qids for p in parts]), np.concatenate([p.line for p in parts]))
    columns = _used(parts) if columns is None else np.asarray(columns, np.int64)
    if len(columns) == 0:
        raise UserError(f"{path}: no line has a feature")
    if len(labels) * len(columns) > _CELLS:
        raise UserError(f"{path}: {len(labels):,} rows of {len(columns):,} features do not fit into memory")
    return RankingFile(_dense(parts, columns), labels, lists, columns)


def _blocks(path: Path) -> Iterator[bytes]:
    """Whole lines, about BLOCK bytes at a time, unpacked if the content is gzip."""
    try:
        with path.open("rb") as raw:
            is_packed = raw.peek(2)[:2] == b"\x1f\x8b"
            file: io.BufferedIOBase = gzip.GzipFile(fileobj=raw) if is_packed else raw
            rest, is_first = b"", True
            while block := file.read(BLOCK):
                block = rest + block
                if is_first:
                    block, is_first = block.removeprefix(b"\xef\xbb\xbf"), False
                cut = block.rfind(b"\n") + 1
                rest = block[cut:]
                if cut:
                    yield block[:cut]
            if rest:
                yield rest
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged gzip file: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def _reason(text: bytes, index: int) -> str:
    """Why line `index` (from 0) of the text is malformed."""
    line = text.split(b"\n", index + 1)[index].decode("utf-8", "backslashreplace")
    try:
        ltr_parser.parse_line(line)
    except ValueError as error:
        return str(error)
    return "cannot be read"


def _used(parts: list[ltr_parser.Parsed]) -> np.ndarray:
    """Ids that occur, rising."""
    is_used = np.zeros(1 + max(int(p.ids.max(initial=-1)) for p in parts), bool)
    for part in parts:
        is_used[part.ids] = True
    return np.flatnonzero(is_used)


def _dense(parts: list[ltr_parser.Parsed], columns: np.ndarray) -> np.ndarray:
    """The rows as a table, a column per id in `columns`.  [N, F] float32"""
    n = sum(len(part.labels) for part in parts)
    found = np.zeros((n, len(columns)), np.float32)
    place = np.full(ltr_parser.LARGEST_ID + 1, -1, np.int32)
    place[columns] = np.arange(len(columns))
    first = 0
    for part in parts:
        rows = found[first : first + len(part.labels)]
        ltr_parser.fill_rows(rows, part.starts, part.ids, part.values, place)
        first += len(part.labels)
    return found


def _lists(path: Path, qids: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Offsets of the lists, from the qids if there are any, else from the file of sizes."""
    has_qid = qids != ltr_parser.NO_QID
    if not has_qid.any():
        return _sizes_file(path, len(qids))
    if not has_qid.all():
        raise UserError(f"{path}:{lines[np.argmin(has_qid)]}: no qid, but other lines have one")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(qids)) + 1])
    _, first = np.unique(qids[starts], return_index=True)
    again = np.setdiff1d(np.arange(len(starts)), first)
    if len(again):
        row = starts[again[0]]
        raise UserError(
            f"{path}:{lines[row]}: qid {qids[row]} had its lines before: a list's lines must stand together"
        )
    return np.append(starts, len(qids))


def _sizes_file(path: Path, n_rows: int) -> np.ndarray:
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    names = dict.fromkeys(Path(f"{base}{suffix}") for base in (plain, path) for suffix in _GROUP_SUFFIXES)
    file = next((name for name in names if name.is_file()), None)
    if file is None:
        listed = " or ".join(name.name for name in names)
        raise UserError(f"{path}: no qid on any line, and no file of list sizes beside it ({listed})")
    sizes = []
    for number, line in enumerate(b"".join(_blocks(file)).decode("utf-8", "replace").splitlines(), 1):
        word = line.split("#", 1)[0].strip()
        if word and not (word.isascii() and word.isdigit() and len(word) <= 12):
            raise UserError(f"{file}:{number}: '{word[:30]}' is not a number of rows")
        sizes += [int(word)] if word else []
    if sum(sizes) != n_rows:
        raise UserError(f"{file}: the lists add up to {sum(sizes):,} rows, {path.name} has {n_rows:,}")
    return np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))])
