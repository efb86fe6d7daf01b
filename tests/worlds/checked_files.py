"""A file with a class `Mine`, sound but for the parts that a case replaces, and what a checker says of it."""

from __future__ import annotations

import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_mine(folder: Path, source: str, **parts: str) -> str:
    """The file of a source with these parts, `pass` where a line has no other; the kind that names it.

    Slots of the source that are lines of their own hold statements; others, as in a signature, may be empty.
    """
    slots = {name for _, name, _, _ in string.Formatter().parse(source) if name}
    lines = {line.strip() for line in source.splitlines()}
    empty = {slot: "pass" if "{" + slot + "}" in lines else "" for slot in slots}
    assert set(parts) <= slots
    path = folder / "mine.py"
    path.write_text(source.format(**{**empty, **parts}))
    return f"{path}:Mine"


def statuses(findings: Iterable[Any]) -> dict[str, tuple[str, str]]:
    """check → (status, text)"""
    return {finding.check: (finding.status, finding.text) for finding in findings}


def not_ok(by_check: dict[str, tuple[str, str]]) -> dict[str, str]:
    """check → status, of those that are not ok."""
    return {check: status for check, (status, _) in by_check.items() if status != "ok"}
