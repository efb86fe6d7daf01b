"""How often a curve is said to drift that keeps its level, and how often one that does not.

    python tests/drills/drift_power.py --curves 1000

Prints, by kind and length of curve, the share that the paper's rule calls unstable, that the test of the
slope and the test of the persistence refuse by themselves (at 5 %), that drift and that
hold by `stationarity_test`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from cascade_sim.analysis.metrics.stability import stability
from cascade_sim.analysis.statistics.levels import SIGNIFICANT, stationarity_test

SHOWN = ("paper", "slope", "persistence", "drifting", "stationary")


def noise(rng: np.random.Generator, n: int, rho: float) -> np.ndarray:
    """Noise of standard deviation 1 with a correlation of rho between neighbours; rho 1: a random walk."""
    steps = rng.normal(size=n)
    if rho == 1:
        return steps.cumsum()
    y = np.empty(n)
    y[0] = steps[0]
    for i in range(1, n):
        y[i] = rho * y[i - 1] + np.sqrt(1 - rho**2) * steps[i]
    return y


def settling(rng: np.random.Generator, n: int, left_out: bool) -> np.ndarray:
    """A level reached from ten standard deviations away, n / 15 points to each e-fold; 1.5 n points."""
    whole = n + n // 2
    y = 10 * np.exp(-np.arange(whole) * 15 / n) + noise(rng, whole, 0.8)
    return y[-n:] if left_out else y


Make = Callable[[np.random.Generator, int], np.ndarray]
LEVELS: dict[str, Make] = {
    **{
        f"level, noise of correlation {rho}": lambda rng, n, rho=rho: noise(rng, n, rho)  # type: ignore[misc]
        for rho in (0.0, 0.5, 0.8, 0.95)
    },
    "level after a transient, that left out": lambda rng, n: settling(rng, n, True),
}
DRIFTS: dict[str, Make] = {
    "line, 2 sd in all, correlation 0.5": lambda rng, n: noise(rng, n, 0.5) + np.linspace(0, 2, n),
    "line, 4 sd in all, correlation 0.8": lambda rng, n: noise(rng, n, 0.8) + np.linspace(0, 4, n),
    "random walk": lambda rng, n: noise(rng, n, 1.0),
    "random walk, 0.1 sd a point upward": lambda rng, n: noise(rng, n, 1.0) + 0.1 * np.arange(n),
    "transient, not left out": lambda rng, n: settling(rng, n, False),
}
# Noise of two kinds at once is no autoregression of low order: the tests promise nothing there.
BEYOND: dict[str, Make] = {
    "level, correlation 0.9 and white noise alike": lambda rng, n: noise(rng, n, 0.9) + rng.normal(size=n),
    "random walk and white noise of 2 sd": lambda rng, n: noise(rng, n, 1.0) + 2 * rng.normal(size=n),
}
KINDS = {**LEVELS, **DRIFTS, **BEYOND}


def rates(kind: str, n: int, curves: int, seed: int = 1) -> dict[str, float]:
    """Shares of so many curves of a kind, by the names in SHOWN."""
    rng = np.random.Generator(np.random.PCG64([seed, list(KINDS).index(kind), n]))
    counts = dict.fromkeys(SHOWN, 0)
    for _ in range(curves):
        y = KINDS[kind](rng, n)
        found = stationarity_test(y)
        said = {
            "paper": not stability(y).is_stable, "slope": found.slope_p < SIGNIFICANT,
            "persistence": found.persistence_p < SIGNIFICANT,
            "drifting": found.is_drifting, "stationary": found.is_stationary,
        }  # fmt: skip
        counts = {name: counts[name] + said[name] for name in SHOWN}
    return {name: count / curves for name, count in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--curves", type=int, default=400, help="of each kind and length")
    parser.add_argument("--points", type=int, nargs="+", default=[100, 160, 200])
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    print(f"{'percent of curves':46}{'points':>7}" + "".join(f"{name:>13}" for name in SHOWN))
    for kind in KINDS:
        for n in told.points:
            found = rates(kind, n, told.curves, told.seed)
            row = "".join(f"{100 * found[name]:13.1f}" for name in SHOWN)
            print(f"{kind:46}{n:7}{row}", flush=True)


if __name__ == "__main__":
    main()
