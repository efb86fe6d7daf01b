"""Parquet files of plain columns of numbers, written in few passes.

What a general writer does for every table costs more here than serving the requests that the table is of:
statistics, hashed dictionaries of whatever comes, compression. Log columns are of three kinds, and a look at
the rows of a row group says which:

    runs    values that repeat several times in a row, as those of a request on each of its ads: a dictionary
            of the runs, and how long each is
    few     no more than 256 different values: a dictionary, and 1, 2, 4 or 8 bits a value
    plain   anything else, as it lies in memory

Any reader of Parquet reads them. There is no compression, no missing value and nothing nested: a page of each
column in a row group, and a dictionary page before it where there is one. The bytes depend on the rows alone.
A digest of the file is taken while it is written, so it is not read again for that.
"""

import hashlib
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAGIC = b"PAR1"
CREATED_BY = b"cascade_sim"
MAX_FEW = 256  # different values that are worth a dictionary: a place among them is a byte

# Of the format: physical types, encodings, page types, the type codes of Thrift's compact protocol.
BOOLEAN, INT32, INT64, FLOAT, DOUBLE, FIXED = 0, 1, 2, 4, 5, 7
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
DATA_PAGE, DICTIONARY_PAGE = 0, 2
TRUE, FALSE, I8, I32, I64, BINARY, LIST, STRUCT = 1, 2, 3, 5, 6, 8, 9, 12

Values = NDArray[Any]


class Kind(NamedTuple):
    """How a dtype is stored: its physical type, the dtype of that, and what says which it was."""

    physical: int
    stored: np.dtype[Any]
    length: int | None = None
    converted: int | None = None
    logical: bytes | None = None


def kind_of(dtype: np.dtype[Any]) -> Kind:
    """ValueError for a dtype that the format has no type for."""
    sign, size = dtype.kind, dtype.itemsize
    if sign == "b":
        return Kind(BOOLEAN, dtype)
    if sign == "f" and size in (4, 8):
        return Kind(FLOAT if size == 4 else DOUBLE, dtype.newbyteorder("<"))
    if sign == "f" and size == 2:
        return Kind(FIXED, dtype.newbyteorder("<"), length=2, logical=_struct((15, STRUCT, _struct())))
    if sign not in "iu" or size > 8:
        raise ValueError(f"Parquet has no type for {dtype}")
    wide = 8 if size == 8 else 4
    stored = np.dtype(f"<{sign}{wide}")
    if sign == "i" and size == wide:
        return Kind(INT64 if wide == 8 else INT32, stored)
    whole = _struct((1, I8, bytes([8 * size])), (2, TRUE if sign == "i" else FALSE, b""))
    converted = (15 if sign == "i" else 11) + (1, 2, 4, 8).index(size)
    return Kind(
        INT64 if wide == 8 else INT32, stored, converted=converted, logical=_struct((10, STRUCT, whole))
    )


class PartWriter:
    """Writes one file: row groups, and on `close` what says where they are; `size` and `digest` go along."""

    def __init__(
        self, path: Path, schema: Mapping[str, np.dtype[Any]], metadata: Mapping[str, str] | None = None
    ):
        """metadata: texts by key, which any reader of Parquet finds at the end of the file."""
        self._kinds = {name: kind_of(dtype) for name, dtype in schema.items()}
        self._metadata = metadata or {}
        self._file = path.open("wb")
        self._hash = hashlib.sha256()
        self.size = self._rows = 0
        self._groups: list[bytes] = []
        self._put(MAGIC)

    def write_table(self, columns: Mapping[str, Values]) -> None:
        """A row group: all columns of the schema, contiguous and of one length."""
        n_rows = len(next(iter(columns.values())))
        if n_rows == 0:
            return
        start = self.size
        chunks = [self._chunk(name, kind, columns[name]) for name, kind in self._kinds.items()]
        sizes = (2, I64, _whole(self.size - start)), (3, I64, _whole(n_rows))
        self._groups.append(_struct((1, LIST, _list(STRUCT, chunks)), *sizes))
        self._rows += n_rows

    def close(self) -> None:
        """Write the end of the file. Closing twice is harmless."""
        if self._file.closed:
            return
        try:
            elements = [_root(len(self._kinds)), *(_element(n, kind) for n, kind in self._kinds.items())]
            pairs = [
                _struct((1, BINARY, _text(key.encode())), (2, BINARY, _text(text.encode())))
                for key, text in self._metadata.items()
            ]
            footer = _struct(
                (1, I32, _whole(2)),
                (2, LIST, _list(STRUCT, elements)),
                (3, I64, _whole(self._rows)),
                (4, LIST, _list(STRUCT, self._groups)),
                *([(5, LIST, _list(STRUCT, pairs))] if pairs else []),
                (6, BINARY, _text(CREATED_BY)),
            )
            self._put(footer + struct.pack("<I", len(footer)) + MAGIC)
        finally:
            self._file.close()

    @property
    def digest(self) -> str:
        """SHA-256 of what has been written."""
        return self._hash.hexdigest()

    def _put(self, data: "bytes | memoryview") -> None:
        self._hash.update(data)
        self._file.write(data)
        self.size += len(data)

    def _chunk(self, name: str, kind: Kind, values: Values) -> bytes:
        """Write a column of the row group; what the footer says of it."""
        start, n = self.size, len(values)
        dictionary, page = _encoded(values.astype(kind.stored, copy=False))
        if dictionary is not None:
            head = (7, STRUCT, _struct((1, I32, _whole(len(dictionary))), (2, I32, _whole(PLAIN))))
            self._page(DICTIONARY_PAGE, head, [_bytes(dictionary)])
        encoding, first = PLAIN if dictionary is None else RLE_DICTIONARY, self.size
        levels = (3, I32, _whole(RLE)), (4, I32, _whole(RLE))
        head = (5, STRUCT, _struct((1, I32, _whole(n)), (2, I32, _whole(encoding)), *levels))
        self._page(DATA_PAGE, head, page)
        encodings = [PLAIN] if dictionary is None else [PLAIN, RLE_DICTIONARY]
        size = _whole(self.size - start)
        about = [
            (1, I32, _whole(kind.physical)),
            (2, LIST, _list(I32, [_whole(encoding) for encoding in encodings])),
            (3, LIST, _list(BINARY, [_text(name.encode())])),
            (4, I32, _whole(0)),  # not compressed
            (5, I64, _whole(n)),
            (6, I64, size),
            (7, I64, size),
            (9, I64, _whole(first)),
        ]
        if dictionary is not None:
            about.append((11, I64, _whole(start)))
        return _struct((2, I64, _whole(start)), (3, STRUCT, _struct(*about)))

    def _page(self, kind: int, head: "Field", content: "list[bytes | memoryview]") -> None:
        size = _whole(sum(map(len, content)))
        self._put(_struct((1, I32, _whole(kind)), (2, I32, size), (3, I32, size), head))
        for piece in content:
            self._put(piece)


def _encoded(values: Values) -> "tuple[Values | None, list[bytes | memoryview]]":
    """The dictionary of a column, None where it is better without, and the pieces of its page."""
    from cascade_sim.storage import runs  # numba is loaded when first needed

    n, width = len(values), values.dtype.itemsize
    if values.dtype == bool:
        return None, [_bytes(np.packbits(values, bitorder="little"))]
    if width < 4:
        return None, [_bytes(values)]
    bits = values.view(f"u{width}")  # what differs in a bit is another value: -0.0 and every NaN stay
    n_runs = runs.count(bits)
    index_bits = max(1, (n_runs - 1).bit_length())
    run_size = n_runs * (width + 1 + -(-index_bits // 8))
    if run_size > n:
        few, places = runs.few(bits, MAX_FEW)
        if len(few):
            place_bits = next(size for size in (1, 2, 4, 8) if len(few) <= 1 << size)
            packed = runs.packed(places, place_bits)
            groups = -(-n // 8)
            return few.view(values.dtype), [bytes([place_bits]) + _varint(groups << 1 | 1), _bytes(packed)]
    if run_size < n * width:
        first, coded = runs.coded(bits, n_runs, -(-index_bits // 8))
        return first.view(values.dtype), [bytes([index_bits]), _bytes(coded)]
    return None, [_bytes(values)]


def _bytes(values: Values) -> memoryview:
    return values.data.cast("B")


# Thrift's compact protocol, as far as it is needed here.
Field = tuple[int, int, bytes]


def _struct(*fields: Field) -> bytes:
    """Fields (number, type code, content), numbers ascending and less than 16 apart."""
    return b"".join(_fields(fields)) + b"\0"


def _fields(fields: tuple[Field, ...]) -> Iterator[bytes]:
    last = 0
    for number, code, content in fields:
        yield bytes([(number - last) << 4 | code])
        yield content
        last = number


def _list(code: int, entries: list[bytes]) -> bytes:
    n = len(entries)
    head = bytes([n << 4 | code]) if n < 15 else bytes([0xF0 | code]) + _varint(n)
    return head + b"".join(entries)


def _whole(value: int) -> bytes:
    """A number that is not negative."""
    return _varint(value << 1)


def _text(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _root(n_columns: int) -> bytes:
    return _struct((3, I32, _whole(0)), (4, BINARY, _text(b"schema")), (5, I32, _whole(n_columns)))


def _element(name: str, kind: Kind) -> bytes:
    """A column that always has a value."""
    fields: list[Field] = [(1, I32, _whole(kind.physical))]
    if kind.length is not None:
        fields.append((2, I32, _whole(kind.length)))
    fields += [(3, I32, _whole(0)), (4, BINARY, _text(name.encode()))]
    if kind.converted is not None:
        fields.append((6, I32, _whole(kind.converted)))
    if kind.logical is not None:
        fields.append((10, STRUCT, kind.logical))
    return _struct(*fields)
