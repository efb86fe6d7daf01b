"""Estimates of metrics.json (a value with its 95 % interval) and how they are written for people.

Anything undefined (missing, null or not finite) becomes None here and an en dash on paper, so that tables,
plots and sentences need no special cases of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

MISSING = "–"
MINUS = "−"
NBSP = "\u00a0"  # keeps a number and its unit on one line


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval; `sd` is the spread between worlds, in a multi-seed study."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    sd: float | None = None

    @property
    def is_above_zero(self) -> bool:
        """Whether the whole interval lies above zero; False where there is no interval."""
        return self.low is not None and self.low > 0

    @property
    def is_below_zero(self) -> bool:
        """Whether the whole interval lies below zero; False where there is no interval."""
        return self.high is not None and self.high < 0

    @property
    def half_width(self) -> float | None:
        """The longer arm of the interval, so that value ± half_width never claims more than it does."""
        if self.value is None or self.low is None or self.high is None:
            return None
        return max(self.high - self.value, self.value - self.low)


NOTHING = Estimate()


def finite(number: Any) -> float | None:
    """The number as a float, or None if it is missing, not a number, or not finite."""
    if isinstance(number, bool) or not isinstance(number, Real):
        return None
    return float(number) if math.isfinite(number) else None


def estimate(entry: Any) -> Estimate:
    """An entry {"value", "low", "high"[, "sd"]} as an Estimate; a bare number has no interval."""
    if not isinstance(entry, Mapping):
        return Estimate(finite(entry))
    return Estimate(*(finite(entry.get(key)) for key in ("value", "low", "high", "sd")))


def lift_of(entry: Any) -> Estimate:
    """The lift of an entry relative to the baseline arm; empty for the baseline itself."""
    return estimate(entry.get("lift")) if isinstance(entry, Mapping) else NOTHING


def arm_value(metrics: Mapping[str, Any], arm: str, measure: str) -> Estimate:
    """The estimate of one measure of one arm."""
    return estimate(metrics["arms"].get(arm, {}).get(measure))


def arm_lift(metrics: Mapping[str, Any], arm: str, measure: str) -> Estimate:
    """The lift of one measure of one arm over the baseline."""
    return lift_of(metrics["arms"].get(arm, {}).get(measure))


def t_quantile(level: float, df: float) -> float:
    """Quantile of Student's t distribution; half a 95 % interval is t_quantile(0.975, df) standard errors."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(df, level))


def decimals_for(values: Iterable[float | None], digits: int = 3) -> int:
    """Decimals that give the largest value so many significant digits, for a column that lines up."""
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    if largest == 0:
        return digits - 1
    return min(8, max(0, digits - 1 - math.floor(math.log10(largest))))


def number_text(value: float | None, decimals: int, *, signed: bool = False) -> str:
    """A number with a real minus sign; zero after rounding carries no sign."""
    if value is None:
        return MISSING
    text = f"{abs(value):,.{decimals}f}"
    if not any(digit in text for digit in "123456789"):
        return text
    if value < 0:
        return MINUS + text
    return "+" + text if signed else text


def interval_text(what: Estimate, decimals: int, *, signed: bool = False) -> str:
    """The interval as [low, high]; empty where there is none."""
    if what.low is None or what.high is None:
        return ""
    low, high = (number_text(end, decimals, signed=signed) for end in (what.low, what.high))
    return f"[{low}, {high}]"


def scaled(what: Estimate, factor: float) -> Estimate:
    """The same estimate in another unit (100 for percent)."""
    return Estimate(*(None if x is None else x * factor for x in (what.value, what.low, what.high, what.sd)))


def percent_text(what: Estimate, decimals: int = 1, *, signed: bool = True) -> str:
    """For a sentence, with spaces that do not break: +3.7 % [+2.9, +4.5]."""
    percent = scaled(what, 100.0)
    if percent.value is None:
        return MISSING
    interval = interval_text(percent, decimals, signed=signed)
    text = f"{number_text(percent.value, decimals, signed=signed)} % {interval}".strip()
    return text.replace(" ", NBSP)
