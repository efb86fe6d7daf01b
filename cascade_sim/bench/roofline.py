"""The arithmetic floor of a request: what its FLOPs and bytes take at the measured peak of one core.

It does not depend on how our kernels are written: the counts are those of the models' formulas, without
the filling of lanes, and the peaks are those of two loops that do nothing else. Exponentials count as the
multiplications and additions of a polynomial; hashes, selection, sorting and Python count as nothing.

>>> Work(flops=2e6, bytes=1e3).micros(Peak(flops=1e12, bandwidth=1e9))
2.0
"""

from dataclasses import dataclass

import numpy as np

from cascade_sim.bench import seconds
from cascade_sim.cascade.cost import FLOAT_BYTES, cost_of
from cascade_sim.cascade.serve import Arm
from cascade_sim.foundation.compilation import kernel
from cascade_sim.foundation.limits import LANES
from cascade_sim.foundation.simd import load8, splat8, sum8
from cascade_sim.protocols import Cost

CHAINS = 10  # enough to hide the latency of a multiply-add on two ports
STEPS = 1_000_000
ROW = 8 * LANES  # numbers that one step of the reading loop takes


@dataclass(frozen=True)
class Peak:
    """What one core can do at most, as measured."""

    flops: float  # float32 operations per second, a multiply-add counting as two
    bandwidth: float  # bytes per second, read from a table of the size of the models' tables


@dataclass(frozen=True)
class Work:
    """What a request needs at least."""

    flops: float
    bytes: float

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, factor: float) -> "Work":
        return Work(self.flops * factor, self.bytes * factor)

    def micros(self, peak: Peak) -> float:
        """Microseconds: a core reads while it calculates, so the longer of the two counts."""
        return max(self.flops / peak.flops, self.bytes / peak.bandwidth) * 1e6


@kernel(fastmath={"contract"})
def _multiply_add(steps):
    """x = x * a + b in ten chains of eight numbers. "contract" lets the two become one instruction."""
    a, b = splat8(np.float32(0.999)), splat8(np.float32(0.001))
    x0 = x1 = x2 = x3 = x4 = splat8(np.float32(0.5))
    x5 = x6 = x7 = x8 = x9 = splat8(np.float32(0.25))
    for step in range(steps):
        # Otherwise equal chains would be calculated once.
        if step & 0xFFFFF == 0:
            k = np.float32(step & 7)
            x0, x1, x2 = splat8(k), splat8(k + np.float32(1.0)), splat8(k + np.float32(2.0))
            x3, x4, x5 = splat8(k + np.float32(3.0)), splat8(k + np.float32(4.0)), splat8(k + np.float32(5.0))
            x6, x7 = splat8(k + np.float32(6.0)), splat8(k + np.float32(7.0))
            x8, x9 = splat8(k + np.float32(8.0)), splat8(k + np.float32(9.0))
        x0, x1, x2, x3, x4 = x0 * a + b, x1 * a + b, x2 * a + b, x3 * a + b, x4 * a + b
        x5, x6, x7, x8, x9 = x5 * a + b, x6 * a + b, x7 * a + b, x8 * a + b, x9 * a + b
    return sum8(x0 + x1 + x2 + x3 + x4) + sum8(x5 + x6 + x7 + x8 + x9)


@kernel
def _read(values, rounds):
    """The sum of all values, which have to be read for it; a multiple of ROW of them."""
    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = splat8(np.float32(0.0))
    for _ in range(rounds):
        for first in range(0, len(values), ROW):
            i = np.uint64(first)
            t0 += load8(values, (i,))
            t1 += load8(values, (i + np.uint64(8),))
            t2 += load8(values, (i + np.uint64(16),))
            t3 += load8(values, (i + np.uint64(24),))
            t4 += load8(values, (i + np.uint64(32),))
            t5 += load8(values, (i + np.uint64(40),))
            t6 += load8(values, (i + np.uint64(48),))
            t7 += load8(values, (i + np.uint64(56),))
    return sum8(t0 + t1 + t2 + t3) + sum8(t4 + t5 + t6 + t7)


def measured_peak(table_bytes: float, repeats: int = 40, steps: int = STEPS) -> Peak:
    """The best of several rounds of two loops: one only multiplies and adds, one only reads."""
    values = np.ones(max(1, round(table_bytes / FLOAT_BYTES / ROW)) * ROW, np.float32)
    rounds = max(1, steps * 10 // len(values))
    _multiply_add(1)
    _read(values, 1)
    adding, reading = [], []
    for _ in range(repeats):
        adding.append(seconds(lambda: _multiply_add(steps)))
        reading.append(seconds(lambda: _read(values, rounds)))
    return Peak(steps * CHAINS * LANES * 2 / min(adding), rounds * values.nbytes / min(reading))


def request_work(arm: Arm) -> dict[str, Work]:
    """Of one request through towers in the pre-ranking stage and the co-action net in the ranking stage.

    Each stage multiplies a bid with a pCTR for every candidate, and reads the bid.
    """
    n, c = arm.retrieval.size, arm.most_auctioned
    pre, rank = cost_of(arm.stages[-2].scorer), cost_of(arm.last.scorer)
    assert pre is not None and rank is not None, "both nets are built in, and say what they cost"
    return {"pre-ranking": work_of(pre, n), "ranking": work_of(rank, c)}


def work_of(cost: Cost, candidates: int) -> Work:
    """A stage's work for so many candidates, with the product of bid and pCTR; the bid is read, too."""
    each = Work(cost.pair_flops + 1, cost.pair_bytes + FLOAT_BYTES)
    return Work(cost.request_flops, 0) + each * candidates  # the user's row stays in the nearest cache


def table_bytes(arm: Arm, n_ads: int) -> float:
    """What the models keep of all ads, which is what a request reads from."""
    per_ad = sum(work.bytes / m for work, m in zip(
        request_work(arm).values(), (arm.retrieval.size, arm.most_auctioned), strict=True
    ))  # fmt: skip
    return per_ad * n_ads
