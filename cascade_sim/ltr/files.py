"""Learning-to-rank files: SVMlight or LETOR text, plain or gzip, lists by qid or by a file of sizes.

A feature that a line leaves out is 0. Lists are given by `qid:` on every line, or by a file beside the data
that holds the number of rows of each list, one a line, as LightGBM (`.query`) and XGBoost (`.group`) have it.

`parse` reads lines of the form `label [qid:N] id:value ... [# comment]` quickly, into flat arrays. Its loop
only says *that* a line is wrong; `parse_line` reads the same line slowly and says why. The two agree on
every line, which the tests check.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cascade_sim.foundation.compilation import kernel
from cascade_sim.foundation.errors import ScenarioError, UserError

BLOCK = 1 << 24  # bytes read at a time

SHOWN = 5  # malformed lines that are listed

MAX_ID = 999_999  # of a feature; a greater one is taken for a mistake

TOO_LARGE = 3.4028235677973366e38  # rounds to infinity in float32, and so does all above

NO_QID = np.iinfo(np.int64).min

_CELLS = 2_000_000_000  # of the table of features: 8 GB

_GROUP_SUFFIXES = (".query", ".group")

# Names of the parts in folders as they are published: Web30K and Istella, Yahoo.
PART_NAMES = {
    "train": ("train.txt", "set1.train.txt"),
    "valid": ("vali.txt", "valid.txt", "set1.valid.txt"),
    "test": ("test.txt", "set1.test.txt"),
}

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)

_WHOLE = re.compile(r"\d{1,18}\Z", re.ASCII)

_POWERS = 10.0 ** np.arange(23)  # exact in float64

SPACE, TAB, RETURN, FEED = 32, 9, 13, 10

HASH, PLUS, MINUS, POINT, COLON, ZERO, UPPER_E, LOWER_E = 35, 43, 45, 46, 58, 48, 69, 101


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
    parts: list[Parsed] = []
    problems: list[str] = []
    line = 1
    for text in _blocks(path):
        parsed = parse(text, line)
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
    used = _used(parts)
    if columns is not None and len(used) and not np.isin(used, columns).any():
        raise UserError(
            f"{path}: none of its {len(used):,} features (the first is {used[0]}) is one of the "
            f"{len(columns):,} of the training file (the first is {columns[0]})"
        )
    columns = used if columns is None else np.asarray(columns, np.int64)
    if len(columns) == 0:
        raise UserError(f"{path}: no line has a feature")
    if len(labels) * len(columns) > _CELLS:
        raise UserError(f"{path}: {len(labels):,} rows of {len(columns):,} features do not fit into memory")
    return RankingFile(_dense(parts, columns), labels, lists, columns)


def parts_of(folder: Path) -> dict[str, Path]:
    """The files of a folder as published, by part, packed or not; there may be none to choose by."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    parts: dict[str, Path] = {}
    for part, names in PART_NAMES.items():
        there = [folder / f"{name}{end}" for name in names for end in ("", ".gz")]
        found = next((path for path in there if path.is_file()), None)
        if found is not None:
            parts[part] = found
        elif part != "valid":
            folds = sorted(
                path.name for path in folder.iterdir() if (path / PART_NAMES["train"][0]).is_file()
            )
            hint = f"; its folders are {', '.join(folds)}: give one of them" if folds else ""
            raise UserError(f"{folder}: no {' or '.join(names)}{hint}")
    return parts


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
        parse_line(line)
    except ValueError as error:
        return str(error)
    return "cannot be read"


def _used(parts: list[Parsed]) -> np.ndarray:
    """The ids of features that occur in any part, rising."""
    is_used = np.zeros(1 + max(int(p.ids.max(initial=-1)) for p in parts), bool)
    for part in parts:
        is_used[part.ids] = True
    return np.flatnonzero(is_used)


def _dense(parts: list[Parsed], columns: np.ndarray) -> np.ndarray:
    """The rows as a table, a column per id in `columns`.  [N, F] float32"""
    n = sum(len(part.labels) for part in parts)
    table = np.zeros((n, len(columns)), np.float32)
    place = np.full(MAX_ID + 1, -1, np.int32)
    place[columns] = np.arange(len(columns))
    first = 0
    for part in parts:
        rows = table[first : first + len(part.labels)]
        fill_rows(rows, part.starts, part.ids, part.values, place)
        first += len(part.labels)
    return table


@kernel
def fill_rows(table, starts, ids, values, place):
    """Put features into their rows of a table; place[id] is the column, negative for one that is not kept."""
    for row in range(len(starts) - 1):
        for k in range(starts[row], starts[row + 1]):
            column = place[ids[k]]
            if column >= 0:
                table[row, column] = values[k]


def _lists(path: Path, qids: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Offsets of the lists, from the qids if there are any, else from the file of sizes."""
    has_qid = qids != NO_QID
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
            f"{path}:{lines[row]}: qid {qids[row]} had its lines before: a list's lines must be together"
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


class Parsed(NamedTuple):
    """Lines in flat arrays: N rows, M features in all."""

    labels: np.ndarray  # [N] float32
    qids: np.ndarray  # [N] int64, NO_QID where there is none
    line: np.ndarray  # [N] int64, from 1
    starts: np.ndarray  # [N + 1] int64, where a row's features begin
    ids: np.ndarray  # [M] int32
    values: np.ndarray  # [M] float32
    n_lines: int  # line ends in the text
    bad: np.ndarray  # malformed lines, from 1


def parse(text: bytes, first_line: int = 1) -> Parsed:
    """Whole lines of text. Malformed ones are left out of the rows and listed in `bad`."""
    data = np.frombuffer(text, np.uint8)
    most_rows, most_features = text.count(b"\n") + 1, text.count(b":")
    labels, qids = np.empty(most_rows, np.float32), np.empty(most_rows, np.int64)
    line, starts = np.empty(most_rows, np.int64), np.zeros(most_rows + 1, np.int64)
    ids, values = np.empty(most_features, np.int32), np.empty(most_features, np.float32)
    bad, stamp = np.empty(most_rows, np.int64), np.full(MAX_ID + 1, -1, np.int32)
    n, n_bad = _lines(data, first_line, labels, qids, line, starts, ids, values, bad, stamp, _POWERS)
    end = starts[n]
    return Parsed(
        labels[:n],
        qids[:n],
        line[:n],
        starts[: n + 1],
        ids[:end],
        values[:end],
        text.count(b"\n"),
        bad[:n_bad],
    )


@kernel
def _lines(data, first_line, labels, qids, line, starts, ids, values, bad, stamp, powers):
    """Fill the arrays; returns how many rows and how many malformed lines there are."""
    at, number, n, n_bad, kept = 0, first_line, 0, 0, 0
    while at < len(data):
        end = at
        while end < len(data) and data[end] != FEED:
            end += 1
        stop = at
        while stop < end and data[stop] != HASH:
            stop += 1
        words, label, qid, n_features = _line(
            data, at, stop, ids, values, kept, stamp, number - first_line, powers
        )
        if words < 0:
            bad[n_bad] = number
            n_bad += 1
        elif words > 0:
            labels[n], qids[n], line[n] = label, qid, number
            kept += n_features
            n += 1
            starts[n] = kept
        at, number = end + 1, number + 1
    return n, n_bad


@kernel
def _line(data, at, end, ids, values, kept, stamp, row, powers):
    """One line without its comment: (words, label, qid, features). words is -1 for a malformed line."""
    label, qid, words, first = 0.0, np.int64(NO_QID), 0, kept
    while True:
        while at < end and (data[at] == SPACE or data[at] == TAB or data[at] == RETURN):
            at += 1
        if at == end:
            return words, label, qid, kept - first
        stop, colon = at, -1
        while stop < end and not (data[stop] == SPACE or data[stop] == TAB or data[stop] == RETURN):
            if data[stop] == COLON and colon < 0:
                colon = stop
            stop += 1
        words += 1
        if words == 1:
            label, is_number = _number_at(data, at, stop, powers)
            if not is_number or label < 0 or label >= TOO_LARGE:
                return -1, label, qid, 0
        elif colon < 0:
            return -1, label, qid, 0
        elif colon - at == 3 and data[at] == 113 and data[at + 1] == 105 and data[at + 2] == 100:  # qid
            qid = _whole_at(data, colon + 1, stop)
            if words != 2 or qid < 0:
                return -1, label, qid, 0
        else:
            name = _whole_at(data, at, colon)
            value, is_number = _number_at(data, colon + 1, stop, powers)
            if name < 0 or name > MAX_ID or stamp[name] == row or not is_number or abs(value) >= TOO_LARGE:
                return -1, label, qid, 0
            stamp[name] = row
            ids[kept], values[kept] = name, value
            kept += 1
        at = stop


@kernel
def _number_at(data, at, end, powers):
    """The number at data[at:end]: (value, whether it is one)."""
    sign = 1.0
    if at < end and (data[at] == PLUS or data[at] == MINUS):
        sign = -1.0 if data[at] == MINUS else 1.0
        at += 1
    mantissa, scale, n_digits = np.int64(0), 0, 0
    has_point = False
    while at < end:
        byte = data[at]
        if ZERO <= byte <= ZERO + 9:
            n_digits += 1
            if mantissa < 100_000_000_000_000_000:
                mantissa = mantissa * 10 + (byte - ZERO)
                scale -= has_point
            else:  # more digits than a float64 holds
                scale += not has_point
        elif byte == POINT and not has_point:
            has_point = True
        else:
            break
        at += 1
    if n_digits == 0:
        return 0.0, False
    if at < end and (data[at] == UPPER_E or data[at] == LOWER_E):
        at += 1
        is_negative = at < end and data[at] == MINUS
        if at < end and (data[at] == PLUS or data[at] == MINUS):
            at += 1
        if at == end:
            return 0.0, False
        exponent = 0
        while at < end and ZERO <= data[at] <= ZERO + 9:
            exponent = min(exponent * 10 + (data[at] - ZERO), 9999)
            at += 1
        scale += -exponent if is_negative else exponent
    if at < end:
        return 0.0, False
    value = np.float64(mantissa)
    if mantissa != 0:
        while scale > 0 and value < 1e60:
            value *= powers[min(scale, 22)]
            scale -= min(scale, 22)
        while scale < 0 and value > 0.0:
            value /= powers[min(-scale, 22)]
            scale += min(-scale, 22)
    return sign * value, True


@kernel
def _whole_at(data, at, end):
    """The integer at data[at:end], at most 18 digits; -1 if it is none."""
    if at == end or end - at > 18:
        return np.int64(-1)
    number = np.int64(0)
    while at < end:
        if not ZERO <= data[at] <= ZERO + 9:
            return np.int64(-1)
        number = number * 10 + (data[at] - ZERO)
        at += 1
    return number


class Line(NamedTuple):
    """What a line says. qid is None where it has none."""

    label: float
    qid: int | None
    features: dict[int, float]


def parse_line(text: str) -> Line | None:
    """A line read slowly; None if it is empty or a comment, ValueError with the reason if it is malformed."""
    words = [word for word in re.split(r"[ \t\r]+", text.split("#", 1)[0].rstrip("\n")) if word]
    if not words:
        return None
    label = _number(words[0], "the label")
    if label < 0:
        raise ValueError(f"the label {words[0]} is below 0")
    qid, features = None, {}
    for place, word in enumerate(words[1:]):
        name, colon, value = word.partition(":")
        if not colon:
            raise ValueError(f"'{_cut(word)}' is not of the form id:value")
        if name == "qid":
            if place > 0:
                raise ValueError("qid must follow the label")
            if not _WHOLE.match(value):
                raise ValueError(f"the qid '{_cut(value)}' is not an integer")
            qid = int(value)
            continue
        if not _WHOLE.match(name):
            raise ValueError(f"the feature id '{_cut(name)}' is not an integer")
        if int(name) > MAX_ID:
            raise ValueError(f"the feature id {name} is above {MAX_ID}")
        if int(name) in features:
            raise ValueError(f"feature {int(name)} is given twice")
        features[int(name)] = _number(value, f"the value of feature {int(name)}")
    return Line(label, qid, features)


def _number(word: str, what: str) -> float:
    if not _NUMBER.match(word):
        raise ValueError(f"{what}, '{_cut(word)}', is not a finite number")
    value = float(word)
    if not abs(value) < TOO_LARGE:
        raise ValueError(f"{what}, {_cut(word)}, is too large")
    return value


def _cut(word: str) -> str:
    return word if len(word) <= 30 else word[:29] + "…"
