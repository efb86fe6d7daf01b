"""Rows on the disk, partitioned by request, so that memory does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cascade_sim.storage.files import storage_errors

BUCKET_ROWS = 1 << 18  # about as many as are in memory at once
MAX_BUCKETS = 256


class Spill:
    """Rows of a few columns in buckets; a bucket holds all rows of a range of requests, in the order they
    came.
    """

    def __init__(self, folder: Path, n_requests: int, n_buckets: int) -> None:
        self.folder = folder
        self.n_buckets = max(1, min(n_buckets, n_requests, MAX_BUCKETS))
        self.per_bucket = max(1, -(-n_requests // self.n_buckets))
        self._files: dict[int, BinaryIO] = {}
        self.dtype: np.dtype[Any] | None = None
        with storage_errors(folder):
            folder.mkdir(parents=True)

    def add(self, request: NDArray[np.int64], columns: Mapping[str, NDArray[Any]]) -> None:
        """Rows: the place of the request of each, and what is known of it."""
        if self.dtype is None:
            kinds = [("request", "<i4"), *((name, values.dtype.str) for name, values in columns.items())]
            self.dtype = np.dtype(kinds)
        rows = np.empty(len(request), self.dtype)
        rows["request"] = request
        for name, values in columns.items():
            rows[name] = values
        bucket = request // self.per_bucket
        is_sorted = bool(np.all(bucket[1:] >= bucket[:-1]))
        if not is_sorted:
            order = np.argsort(bucket, kind="stable")
            rows, bucket = rows[order], bucket[order]
        cuts = np.flatnonzero(np.diff(bucket)) + 1
        with storage_errors(self.folder):
            for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True):
                if high > low:
                    self._file(int(bucket[low])).write(rows[low:high].tobytes())

    def _file(self, bucket: int) -> BinaryIO:
        if bucket not in self._files:
            self._files[bucket] = (self.folder / f"{bucket}.rows").open("wb", buffering=1 << 16)
        return self._files[bucket]

    def ranges(self, n_requests: int) -> Iterator[tuple[int, int, int]]:
        """(bucket, its first request, past its last)."""
        for bucket in range(-(-n_requests // self.per_bucket)):
            yield bucket, bucket * self.per_bucket, min((bucket + 1) * self.per_bucket, n_requests)

    def take(self, bucket: int) -> NDArray[Any] | None:
        """The rows of a bucket, which is removed; None if it has none."""
        if bucket not in self._files or self.dtype is None:
            return None
        file = self._files.pop(bucket)
        path = self.folder / f"{bucket}.rows"
        with storage_errors(path):
            file.close()
            rows = np.fromfile(path, self.dtype)
            path.unlink()
        return rows

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files.values():
            file.close()
