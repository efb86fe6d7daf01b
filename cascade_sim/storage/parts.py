"""The list of a table's sealed parts: _parts.json beside them, with the size and a digest of each.

It is written after each part, so it never names one that is not there; of a run that was killed it may lack
the last. What lies beside it unnamed is not part of the table.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cascade_sim.errors import UserError
from cascade_sim.storage.files import storage_errors, write_file

PARTS = "_parts.json"  # readers of Parquet folders pass over names that begin so


class PartList:
    """What is sealed of the table in `folder`; without parts, nothing is known and nothing is checked."""

    def __init__(self, folder: Path, parts: dict[str, dict[str, Any]] | None = None) -> None:
        self.folder = folder
        self._parts = parts or {}

    @classmethod
    def read(cls, folder: Path) -> "PartList":
        """The list as it lies there; empty if there is none (runs of older versions have none)."""
        path = folder / PARTS
        try:
            content = json.loads(path.read_bytes())
            parts = {part["name"]: {"bytes": int(part["bytes"]), "digest": str(part["digest"])}
                     for part in content["parts"]}  # fmt: skip
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
        """In row order."""
        return list(self._parts)

    def first(self, n: int) -> "PartList":
        """The list as it was when n parts were sealed."""
        return PartList(self.folder, dict(list(self._parts.items())[:n]))

    def add(self, path: Path) -> None:
        """A part that has just been sealed; the list on the disk names it from here on."""
        with storage_errors(path):
            self._parts[path.name] = {"bytes": path.stat().st_size, "digest": _digest(path)}
        self.write()

    def write(self) -> None:
        parts = [{"name": name, **part} for name, part in self._parts.items()]
        write_file(self.folder / PARTS, (json.dumps({"parts": parts}, indent=1) + "\n").encode())

    def remove(self) -> None:
        (self.folder / PARTS).unlink(missing_ok=True)

    def paths(self, names: Sequence[str]) -> list[Path]:
        """Of these parts, which must all be there and as long as they were when they were sealed."""
        found = [self.folder / name for name in names]
        for path in found:
            if not path.is_file():
                raise UserError(f"{path} is missing")
            size, sealed = path.stat().st_size, self._parts.get(path.name)
            if sealed is not None and size != sealed["bytes"]:
                raise UserError(f"{path} is damaged: {size:,} bytes, {sealed['bytes']:,} when it was sealed")
        return found

    def check_content(self, path: Path) -> None:
        """UserError if the part is not what it was."""
        part = self._parts.get(path.name)
        if part is not None and _digest(path) != part["digest"]:
            raise UserError(f"{path} is damaged: its content has changed since it was sealed")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
