"""Names of the user's own (of ads, requests …) to numbers, some tens of bytes a name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cascade_sim.logs.importing.kernels import find, hash_texts, insert

NULL, UNKNOWN = -1, -2  # in place of a code
WHOLE = r"^-?(0|[1-9][0-9]{0,17})$"  # names that are integers, in the one way to write them
AS_FLOAT = r"^-?[0-9]+\.0+$"


class Codes:
    """Codes 0, 1, … of names in the order they were met; `ranked` puts them in the names' own order."""

    def __init__(self) -> None:
        self._keys = np.zeros(1 << 12, np.uint64)
        self._codes = np.zeros(1 << 12, np.int32)
        self._used = 0  # of the table, with aliases
        self._names: list[pa.Array] = []
        self.n = 0
        # names that were corrected, since `encode` was last called: {kind: names}
        self.corrected: dict[str, set[str]] = {}

    def encode(self, texts: pa.Array, add: bool = True) -> NDArray[np.int32]:
        """Their codes: NULL for an empty cell, UNKNOWN for a name that is not there and is not to be added.

        A name with spaces around it, or an integer written as 12.0, is the name without.
        """
        texts = texts.cast(pa.large_string())
        hashes = hashes_of(texts)
        out = np.empty(len(texts), np.int32)
        find(self._keys, self._codes, hashes, out)
        is_null = np.asarray(texts.is_null()) if texts.null_count else None
        missing = out < 0
        if is_null is not None:
            missing &= ~is_null
        if missing.any():
            places = np.flatnonzero(missing)
            _, first = np.unique(hashes[places], return_index=True)
            self._meet(texts.take(pa.array(places[first])), hashes[places[first]], add)
            found = np.empty(len(places), np.int32)
            find(self._keys, self._codes, hashes[places], found)
            out[places] = np.where(found < 0, UNKNOWN, found)
        if is_null is not None:
            out[is_null] = NULL
        return out

    def _meet(self, names: pa.Array, hashes: NDArray[np.uint64], add: bool) -> None:
        """New names, each once."""
        has_spaces = pc.match_substring_regex(names, r"^\s|\s$")
        as_float = pc.match_substring_regex(names, AS_FLOAT)
        odd = np.asarray(pc.or_(has_spaces, as_float))
        if odd.any():
            plain = self._meant(names.filter(pa.array(odd)))
            codes = self.encode(plain, add)
            self._insert(hashes[odd][codes >= 0], codes[codes >= 0])  # another way to write the same name
            names, hashes = names.filter(pa.array(~odd)), hashes[~odd]
        if add and len(names):
            found = np.empty(len(names), np.int32)
            find(self._keys, self._codes, hashes, found)  # some may have come in as what an odd one meant
            is_new = found < 0
            count = int(np.count_nonzero(is_new))
            self._insert(hashes[is_new], np.arange(self.n, self.n + count, dtype=np.int32))
            self._names.append(names.filter(pa.array(is_new)))
            self.n += count

    def _meant(self, names: pa.Array) -> pa.Array:
        for name in names.to_pylist():
            kind = "id_with_spaces" if name != name.strip() else "id_as_float"
            self.corrected.setdefault(kind, set()).add(name)
        return pc.replace_substring_regex(pc.utf8_trim_whitespace(names), r"^(-?[0-9]+)\.0+$", r"\1")

    def _insert(self, hashes: NDArray[np.uint64], codes: NDArray[np.int32]) -> None:
        while (self._used + len(hashes)) * 2 > len(self._keys):
            keys, values = self._keys, self._codes
            self._keys, self._codes = np.zeros(2 * len(keys), np.uint64), np.zeros(2 * len(keys), np.int32)
            is_used = keys != 0
            insert(self._keys, self._codes, keys[is_used], values[is_used])
        insert(self._keys, self._codes, hashes, codes)
        self._used += len(hashes)

    def names(self) -> pa.Array:
        """By code."""
        if not self._names:
            return pa.array([], pa.large_string())
        if len(self._names) > 1:
            self._names = [pa.concat_arrays(self._names)]
        return self._names[0]

    def ranks(self) -> NDArray[np.int64]:
        """The place of each code in the order of the names: by number if all are whole, else by their
        letters.
        """
        names = self.names()
        ranks = np.empty(self.n, np.int64)
        ranks[np.asarray(pc.sort_indices(_sortable(names)))] = np.arange(self.n)
        return ranks

    def ranked(self, ranks: NDArray[np.int64]) -> pa.Array:
        """The names in that order."""
        return self.names().take(pa.array(np.argsort(ranks)))


def _sortable(names: pa.Array) -> pa.Array:
    is_whole = len(names) and pc.all(pc.match_substring_regex(names, WHOLE)).as_py()
    return names.cast(pa.int64()) if is_whole else names


def hashes_of(texts: pa.Array) -> NDArray[np.uint64]:
    """Of a large_string array."""
    out = np.empty(len(texts), np.uint64)
    buffers = texts.buffers()
    offsets = np.frombuffer(buffers[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data: Any = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.empty(0, np.uint8)
    if len(texts):
        hash_texts(offsets, data, out)
    return out
