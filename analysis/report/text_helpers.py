"""Small pieces of sentences that several sections say: lists, shares, hours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cascade_sim.analysis.statistics.estimates import MISSING, NBSP, finite, number_text


def listed(parts: Sequence[str]) -> str:
    """a; a and b; a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def stage_name(stage: str) -> str:
    """A stage or a set of candidates as people write it: pre_ranking → pre-ranking, coarse_set → coarse set.

    >>> stage_name("pre_ranking"), stage_name("pre_ranking_set")
    ('pre-ranking', 'pre-ranking set')
    """
    name, of, _ = stage.partition("_set")
    return name.replace("_", "-") + (" set" if of else "")


def percent_number(share: Any, decimals: int = 1, *, signed: bool = False) -> str:
    """A share in percent without its sign: 0.123 → 12.3; a dash where it is undefined."""
    value = finite(share)
    return number_text(None if value is None else 100 * value, decimals, signed=signed)


def percent(share: Any, decimals: int = 1, *, signed: bool = False) -> str:
    """A share in percent: 0.123 → 12.3 %, on one line."""
    return f"{percent_number(share, decimals, signed=signed)}{NBSP}%"


def clock(hour: float | None) -> str:
    """An hour of the day as time: 4.78 → 04:47."""
    if hour is None:
        return MISSING
    minutes = round(60 * hour)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
