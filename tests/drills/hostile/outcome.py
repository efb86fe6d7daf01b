"""What came of a case, how cases are drawn, and the table at the end."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

DETECTED = "detected"  # refused, or said to be wrong, in words that name the file, the class or the key
HARMLESS = "harmless"  # the same answer, to the byte
SILENT = "silent"  # another answer, and not a word
CRASH = "crash"  # a traceback, a signal, no answer at all
WRONG = "wrong"  # anything else that must not be: something lost, left behind, refused too late or unclearly
VERDICTS = (DETECTED, HARMLESS, SILENT, CRASH, WRONG)
FAILURES = (SILENT, CRASH, WRONG)


@dataclass(frozen=True)
class Outcome:
    """What came of a case: the verdict, what was done, and what was said where that matters."""

    verdict: str
    what: str
    said: str = ""

    @property
    def is_failure(self) -> bool:
        return self.verdict in FAILURES


@dataclass(frozen=True)
class Result:
    """The outcome of the case `kind:index`, and the processor time it took."""

    kind: str
    index: int
    outcome: Outcome
    seconds: float


def rng_of(seed: int, kind: str, index: int) -> random.Random:
    """All draws of a case: they depend on nothing but these three."""
    return random.Random(f"{seed}/{kind}/{index}")


def table(results: Iterable[Result]) -> str:
    """A line per kind: cases by verdict, failures, processor time."""
    by_kind: dict[str, list[Result]] = {}
    for result in results:
        by_kind.setdefault(result.kind, []).append(result)
    head = ("kind", "cases", *VERDICTS, "failures", "CPU s")
    rows = [_row(kind, found) for kind, found in by_kind.items()]
    if len(rows) > 1:
        rows.append(_row("all", [result for found in by_kind.values() for result in found]))
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return "\n".join("  ".join(_aligned(row, widths)) for row in (head, *rows))


def _row(kind: str, found: list[Result]) -> tuple[str, ...]:
    counts = [sum(result.outcome.verdict == verdict for result in found) for verdict in VERDICTS]
    failures = sum(result.outcome.is_failure for result in found)
    seconds = sum(result.seconds for result in found)
    return (kind, *(f"{n:,}" for n in (len(found), *counts, failures)), f"{seconds:,.0f}")


def _aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    return [
        row[0].ljust(widths[0]),
        *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
    ]
