"""Lines of SVMlight text, `label [qid:N] id:value ... [# comment]`, quickly and into flat arrays.

The loop only says *that* a line is wrong; `parse_line` reads the same line slowly and says why. The two
agree on every line, which the tests check.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numba import njit

LARGEST_ID = 999_999  # of a feature; a greater one is taken for a mistake
TOO_LARGE = 3.4028235677973366e38  # rounds to infinity in float32, and so does all above
NO_QID = np.iinfo(np.int64).min
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)
_WHOLE = re.compile(r"\d{1,18}\Z", re.ASCII)
_POWERS = 10.0 ** np.arange(23)  # exact in float64

SPACE, TAB, RETURN, FEED = 32, 9, 13, 10
HASH, PLUS, MINUS, POINT, COLON, ZERO, UPPER_E, LOWER_E = 35, 43, 45, 46, 58, 48, 69, 101


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
                raise ValueError(f"the qid '{_cut(value)}' is not a whole number")
            qid = int(value)
            continue
        if not _WHOLE.match(name):
            raise ValueError(f"the feature id '{_cut(name)}' is not a whole number")
        if int(name) > LARGEST_ID:
            raise ValueError(f"the feature id {name} is above {LARGEST_ID}")
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
    bad, stamp = np.empty(most_rows, np.int64), np.full(LARGEST_ID + 1, -1, np.int32)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _whole_at(data, at, end):
    """The whole number at data[at:end], at most 18 digits; -1 if it is none."""
    if at == end or end - at > 18:
        return np.int64(-1)
    found = np.int64(0)
    while at < end:
        if not ZERO <= data[at] <= ZERO + 9:
            return np.int64(-1)
        found = found * 10 + (data[at] - ZERO)
        at += 1
    return found


@njit(cache=True, nogil=True)
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
            if (
                name < 0
                or name > LARGEST_ID
                or stamp[name] == row
                or not is_number
                or abs(value) >= TOO_LARGE
            ):
                return -1, label, qid, 0
            stamp[name] = row
            ids[kept], values[kept] = name, value
            kept += 1
        at = stop


@njit(cache=True, nogil=True)
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
        words, label, qid, found = _line(
            data, at, stop, ids, values, kept, stamp, number - first_line, powers
        )
        if words < 0:
            bad[n_bad] = number
            n_bad += 1
        elif words > 0:
            labels[n], qids[n], line[n] = label, qid, number
            kept += found
            n += 1
            starts[n] = kept
        at, number = end + 1, number + 1
    return n, n_bad


@njit(cache=True, nogil=True)
def fill_rows(table, starts, ids, values, place):
    """Put features into their rows of a table; place[id] is the column, negative for one that is not kept."""
    for row in range(len(starts) - 1):
        for k in range(starts[row], starts[row + 1]):
            column = place[ids[k]]
            if column >= 0:
                table[row, column] = values[k]
