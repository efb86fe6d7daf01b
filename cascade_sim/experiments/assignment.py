"""Which arm serves a request of a market on trial: by keyed draws, the same wherever it is asked."""

from dataclasses import dataclass

import numpy as np

from cascade_sim.cascade.serve import Block
from cascade_sim.foundation import random as draws
from cascade_sim.scenario.market import DAY, Designs

UNITS = ("request", "user", "switchback", "all", "none")


@dataclass(frozen=True)
class Assignment:
    """Treated: draws.uniform(seed, "assignment", id) < share, from `start` on; before it, none.

    The id is the request's, the user's, or the number of the time slot of `length` seconds since the
    simulation began. `all` is a launch at `start`, `none` is no trial at all.
    """

    unit: str
    seed: int
    share: float = 0.5
    start: float = 0.0
    length: float = DAY

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unit {self.unit!r} is none of {', '.join(UNITS)}")

    def is_treated(self, block: Block) -> np.ndarray:
        """Whether the treatment serves each request.  [R] bool"""
        return (block.times >= self.start) & self.is_assigned(block)

    def is_assigned(self, block: Block) -> np.ndarray:
        """On which side of the draw each request falls, before and after `start`.  [R] bool"""
        if self.unit in ("all", "none"):
            return np.full(len(block), self.unit == "all")
        return draws.uniform(self.seed, "assignment", self._ids(block)) < self.share

    def _ids(self, block: Block) -> np.ndarray:
        if self.unit == "request":
            return block.requests
        return block.users if self.unit == "user" else self.slots(block.times)

    def slots(self, times: np.ndarray) -> np.ndarray:
        """The number of each time's slot.  [R] int64"""
        return (times // self.length).astype(np.int64)


def make_assignment(spec: Designs, unit: str, seed: int) -> Assignment:
    """The assignment of a scenario's designs by this unit."""
    return Assignment(unit, seed, spec.share, spec.pre_days * DAY, spec.switchback)
