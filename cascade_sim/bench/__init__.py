"""How fast: serving, markets, losses, metrics, and the same beside other simulators.

CPU time, not time on the clock: others on the machine then change a figure less. What is compared is
repeated in turn, so that a busy moment meets all of it, and every figure comes with its spread.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Spread:
    """What repeats of one thing took: the least, the quartiles, and how many there were."""

    least: float
    lower: float
    median: float
    upper: float
    repeats: int

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        lower, median, upper = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
        return cls(min(values), lower, median, upper, len(values))

    def times(self, factor: float) -> "Spread":
        """In another unit, for instance microseconds a request."""
        return Spread(
            self.least * factor, self.lower * factor, self.median * factor, self.upper * factor, self.repeats
        )

    def text(self, digits: int = 1) -> str:
        """`43.2 (least 42.9, quartiles 43.0 to 44.1)`"""
        median, least, lower, upper = (
            f"{value:,.{digits}f}" for value in (self.median, self.least, self.lower, self.upper)
        )
        return f"{median} (least {least}, quartiles {lower} to {upper})"


def seconds(function: Callable[[], Any]) -> float:
    """CPU time of one call, all threads of this process together."""
    started = time.process_time()
    function()
    return time.process_time() - started


def in_turn(timed: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, Spread]:
    """Each is called once a round and says itself how many seconds it took."""
    rounds = [{name: call() for name, call in timed.items()} for _ in range(repeats)]
    return {name: Spread.of([taken[name] for taken in rounds]) for name in timed}


def plain(figures: Any) -> Any:
    """The same with spreads as dictionaries, for JSON."""
    if isinstance(figures, Spread):
        return asdict(figures)
    if isinstance(figures, dict):
        return {name: plain(value) for name, value in figures.items()}
    return [plain(value) for value in figures] if isinstance(figures, list) else figures
