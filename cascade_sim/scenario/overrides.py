"""`--set path.to.key=value`: change a scenario's data before it is checked."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cascade_sim.scenario.messages import has_free_names, known_keys, path_text, schema_at, unknown_key
from cascade_sim.scenario.yaml import Document, Path, parse
from cascade_sim.suggest import unknown_name


@dataclass(frozen=True)
class Override:
    """A changed value and the words on the command line that changed it."""

    path: Path
    option: str


class _Refused(Exception):
    """The reason why an override cannot be applied."""


def apply_overrides(
    document: Document, overrides: Sequence[str], seed: int | None = None
) -> tuple[list[Override], list[str]]:
    """Apply in order, changing `document.data`. Returns those applied and a line for each that was refused.

    The value is YAML (`--set 'world.slot_effects=[1, 0.5]'`). A whole new entry under a free name may be set
    (`--set 'arms.wide={slots: 8}'`), but not a key inside an entry that does not exist: most often a typo.
    """
    applied, refused = [], []
    for text in overrides:
        option = f"--set {text}"
        try:
            path, value = _parsed(text)
            applied.append(Override(_put(document.data, path, value), option))
        except _Refused as reason:
            refused.append(f"{option}: {reason}")
    if seed is not None:
        document.data["seed"] = seed
        applied.append(Override(("seed",), f"--seed {seed}"))
    return applied, refused


def _parsed(text: str) -> tuple[Path, Any]:
    key, equals, value = text.partition("=")
    steps = key.strip().split(".")
    if not equals:
        raise _Refused("no '='; write path.to.key=value")
    if not all(steps):
        raise _Refused("the key is empty; write path.to.key=value")
    document = parse(value)
    if document.problems:
        raise _Refused(f"cannot read the value: {document.problems[0].text}")
    return tuple(steps), document.data


def _put(data: dict[str, Any], path: Path, value: Any) -> Path:
    """Set one value, making sections the file leaves out. Returns the path with list positions as ints."""
    here: Any = data
    for i in range(len(path)):
        parent, step = path[:i], path[i]
        last = i == len(path) - 1
        if isinstance(here, list):
            step = _index(here, parent, str(step))
            path = (*parent, step, *path[i + 1 :])
        elif isinstance(here, dict):
            _check_key(here, (*parent, step), last)
        else:
            raise _Refused(f"{path_text(parent)} is a single value and has no key '{step}'")
        if last:
            here[step] = value
        else:
            if isinstance(here, dict) and here.get(step) is None:
                here[step] = _default((*parent, step))
            here = here[step]
    return path


def _index(items: list[Any], parent: Path, step: str) -> int:
    if not step.isdecimal() or int(step) >= len(items):
        raise _Refused(f"{path_text(parent)} is a list; use a position from 0 to {len(items) - 1}")
    return int(step)


def _check_key(here: dict[str, Any], path: Path, last: bool) -> None:
    node = schema_at(path[:-1])
    if known_keys(node) and path[-1] not in known_keys(node):
        raise _Refused(unknown_key(path))
    inside_new_entry = has_free_names(node) and not last and path[-1] not in here
    if inside_new_entry and "options" not in path[:-1]:
        raise _Refused(unknown_name(f"entry in {path_text(path[:-1])}:", str(path[-1]), here))


def _default(path: Path) -> Any:
    """What an override inside an absent section starts from.

    Entries under free names and list items come from the defaults: changing one must not lose the others.
    """
    node = schema_at(path)
    if node is not None and (has_free_names(node) or node.get("type") == "array"):
        return copy.deepcopy(node.get("default", {}))
    return {}
