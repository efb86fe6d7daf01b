"""What a format known by name is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cascade_sim.logs.importing.faults import Faults
from cascade_sim.logs.importing.sources import Files, Reader


@dataclass(frozen=True)
class Adapter:
    """A mapping for given files, and readers by table where plain columns do not do."""

    name: str
    mapping: Callable[[Sequence[Path]], dict[str, Any]]
    readers: Mapping[str, Reader] = field(default_factory=dict)


def columns_of(
    path: Path, names: Sequence[str]
) -> Iterator[tuple[Mapping[str, pa.Array], NDArray[np.int64]]]:
    """Columns of a Parquet, Feather or CSV file, some rows at a time, with their numbers."""
    files = Files(Faults(), {})
    yield from files.read_file("", path, names, path.name)
    if files.faults.found:
        (_, kind), found = next(iter(files.faults.found.items()))
        raise ValueError(f"{kind} in row {found.examples[0]['row']:,}: {found.examples[0]['value']}")


def names_in(path: Path) -> list[str]:
    """The names of a file's columns."""
    return Files(Faults(), {}).names(path)
