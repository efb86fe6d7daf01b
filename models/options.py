"""What a loss may be told: numbers and names, with their defaults and what is allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True)
class Option:
    """A number that a loss takes: its default and the values allowed."""

    default: float
    low: float
    high: float
    low_is_open: bool = False
    is_whole: bool = False  # an integer
    weighs: str = ""  # for alpha: which part of the loss it multiplies; the other gets 1 − alpha

    def fault(self, value: object) -> str:
        """What is wrong with a value; empty for a finite number in the range."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"must be a number, not {value!r}"
        if self.is_whole and value != int(value if math.isfinite(value) else 0):
            return f"must be an integer, not {value:g}"
        is_inside = self.low < value if self.low_is_open else self.low <= value
        if math.isfinite(value) and is_inside and value <= self.high:
            return ""
        return f"must be in {'(' if self.low_is_open else '['}{self.low:g}, {self.high:g}], not {value:g}"


@dataclass(frozen=True)
class Choice:
    """A name that a loss takes: its default and the names allowed."""

    default: str
    names: tuple[str, ...]
    weighs: ClassVar[str] = ""

    def fault(self, value: object) -> str:
        """What is wrong with a value; empty for one of the names."""
        return "" if value in self.names else f"must be {' or '.join(self.names)}, not {value!r}"


@dataclass(frozen=True)
class Flag:
    """A yes or no that a loss takes."""

    default: bool
    weighs: ClassVar[str] = ""

    def fault(self, value: object) -> str:
        """What is wrong with a value; empty for true or false."""
        return "" if isinstance(value, bool) else f"must be true or false, not {value!r}"


AnyOption: TypeAlias = Option | Choice | Flag
