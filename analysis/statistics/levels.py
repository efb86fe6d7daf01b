"""Does a curve keep to a level, follow a line, or wander? Tests that are right under correlated noise.

Neighbouring points of a training curve are alike, and a test that takes them for independent calls half of
all levels a drift. `stationarity_test` asks twice, each time against an autoregression of the curve itself:

    slope        a line through the curve, by generalised least squares with errors of first order
                 (Prais and Winsten 1954), their correlation corrected for its bias in short curves. Sees a
                 steady rise; a random walk has no slope, and is seen only now and then
    persistence  the sum of the autoregression around a level: how much of a departure is left at the next
                 point. Rejects curves that come back more slowly than RETURNING: random walks, and lines

Neither t nor F holds with some hundred points that are highly correlated. Both statistics are compared with
those of SIMULATED curves that keep a level: drawn with the curve's own autoregression (for the slope), or at
a persistence of RETURNING (for the persistence). A curve drifts if twice the smaller p-value is below 0.05:
about once in twenty, at most, of the levels that return at least as fast as RETURNING.

`unit_root` is the test the other way round (Dickey and Fuller): only what rejects a random walk has been
shown to come back. Between the two lie curves too short to tell: inconclusive.

>>> import numpy as np
>>> noise = np.random.Generator(np.random.PCG64(1)).normal(size=200)
>>> stationarity_test(noise).is_drifting, stationarity_test(noise + 0.02 * np.arange(200)).is_drifting
(False, True)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LEAST = 50  # points: fewer are not judged
RETURNING = 0.95  # a departure is halved in 13.5 points
SIGNIFICANT = 0.05
MAX_LAGS = 3  # of differences in the autoregression, chosen by BIC
SIMULATED = 999
_BURN_IN = 100  # points before a simulated curve
_ALMOST_ONE = 0.99  # the highest persistence that a simulated curve has
_ROUNDING = 1e-9  # a residual below this share of the largest value is none


@dataclass(frozen=True)
class StationarityTest:
    """What `stationarity_test` finds. NaN where a curve has broken off and nothing can be fitted."""

    slope: float  # per point
    low: float  # its 95 % interval
    high: float
    slope_p: float  # of a slope of 0
    persistence: float  # 0: noise without memory; 1: a random walk
    persistence_p: float  # of a persistence of at most RETURNING
    unit_root: float  # the statistic of Dickey and Fuller; the lower, the surer it comes back
    unit_root_p: float  # of a random walk
    drift_p: float  # of a level that returns

    @property
    def is_drifting(self) -> bool:
        """A level that returns is rejected; also a curve that has broken off."""
        return not self.drift_p >= SIGNIFICANT

    @property
    def is_stationary(self) -> bool:
        """It is not rejected, and a random walk is."""
        return not self.is_drifting and self.unit_root_p < SIGNIFICANT


def stationarity_test(curve: ArrayLike) -> StationarityTest:
    """Whether a curve keeps to a level, by its slope and its persistence. At least LEAST points: ValueError.

    Repeatable: the simulated curves are the same each time. A curve that is not finite has diverged: it
    drifts, and nothing else is known of it.
    """
    y = np.asarray(curve, np.float64)
    if y.ndim != 1 or y.size < LEAST:
        raise ValueError(f"a level takes a flat curve of at least {LEAST} points, not {y.shape}")
    if not np.isfinite(y).all():
        return StationarityTest(*[np.nan] * 9)
    least = _ROUNDING * np.abs(y).max()
    y = y - y.mean()
    if np.abs(y).max() <= least:  # never moves
        return StationarityTest(0.0, 0.0, 0.0, 1.0, 0.0, 1.0, -np.inf, 0.0, 1.0)
    residual = _around_line(y[None])[1]
    if np.abs(residual).max() <= least:  # nothing but a line
        rise, p = float(_around_line(y[None])[0][0]), 1.0 / (SIMULATED + 1)
        return StationarityTest(rise, rise, rise, p, 1.0, p, 0.0, 1.0, 2 * p)

    own = autoregression(residual, _lags(residual, False), False)
    persistence = _corrected(own.persistence, y.size, 2)
    slope, error = _prais_winsten(y[None])
    many, errors = _prais_winsten(_simulate(y.size, float(persistence[0]), own.lagged[0]))
    null = np.abs(many / errors)
    slope_p = _share(null, abs(float(slope[0] / error[0])))
    half = float(np.quantile(null, 1 - SIGNIFICANT) * error[0])

    level = autoregression(y[None], _lags(y[None], True), True)
    found, statistic = float(level.persistence[0]), float(level.statistic[0])
    n_lags = level.lagged.shape[1]
    slow = autoregression(_simulate(y.size, RETURNING, level.lagged[0]), n_lags, True)
    persistence_p = _share(slow.persistence, found)
    return StationarityTest(
        slope=float(slope[0]), low=float(slope[0]) - half, high=float(slope[0]) + half, slope_p=slope_p,
        persistence=found, persistence_p=persistence_p,
        unit_root=statistic, unit_root_p=dickey_fuller_p(statistic),
        drift_p=min(1.0, 2 * min(slope_p, persistence_p)),
    )  # fmt: skip


@dataclass(frozen=True)
class Autoregression:
    """y_t - y_{t-1} = (persistence - 1) y_{t-1} + sum of lagged * earlier differences [+ a constant]."""

    persistence: Floats  # [R]
    lagged: Floats  # [R, lags]
    statistic: Floats  # [R]: (persistence - 1) / its standard error, as of Dickey and Fuller
    squares: Floats  # [R]: sum of squared residuals


def autoregression(curves: Floats, lags: int, has_level: bool, skip: int = 0) -> Autoregression:
    """Least squares for every curve.  [R, n]; the first `skip` differences more are left out"""
    steps, first = np.diff(curves, axis=1), lags + skip
    told = [curves[:, first:-1], *(steps[:, first - i : steps.shape[1] - i] for i in range(1, lags + 1))]
    told += [np.ones_like(told[0])] if has_level else []
    x, y = np.stack(told, axis=1), steps[:, first:]  # [R, terms, points], [R, points]
    inverse = np.linalg.pinv(x @ x.transpose(0, 2, 1), hermitian=True)
    b = (inverse @ (x @ y[:, :, None]))[:, :, 0]
    squares = ((y - (b[:, None, :] @ x)[:, 0]) ** 2).sum(axis=1)
    variance = squares / (y.shape[1] - x.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = b[:, 0] / np.sqrt(variance * inverse[:, 0, 0])
    return Autoregression(1 + b[:, 0], b[:, 1 : 1 + lags], statistic, squares)


def dickey_fuller_p(statistic: float) -> float:
    """P(the statistic of a random walk, tested around a level, is lower), by MacKinnon's surface (1994)."""
    from scipy.special import ndtr  # type: ignore[import-untyped]

    if statistic <= -18.83:
        return 0.0
    if statistic >= 2.74:
        return 1.0
    rising = (2.1659, 1.4412, 0.038269) if statistic <= -1.61 else (1.7339, 0.93202, -0.12745, -0.010368)
    return float(ndtr(sum(c * statistic**power for power, c in enumerate(rising))))


def _lags(curves: Floats, has_level: bool) -> int:
    """How many lagged differences BIC asks for, all numbers of them compared with the same points."""
    n = curves.shape[1] - 1 - MAX_LAGS
    fits = [autoregression(curves, k, has_level, skip=MAX_LAGS - k) for k in range(MAX_LAGS + 1)]
    bic = [n * np.log(max(float(fit.squares[0]), 1e-300) / n) + k * np.log(n) for k, fit in enumerate(fits)]
    return int(np.argmin(bic))


def _corrected(persistence: Floats, n: int, fitted: int) -> Floats:
    """Less its bias of about -(fitted + 2 fitted persistence) / n (Kendall 1954; a line counts for two)."""
    return np.clip((n * persistence + fitted) / (n - 2 * fitted), -_ALMOST_ONE, _ALMOST_ONE)


def _around_line(curves: Floats) -> tuple[Floats, Floats]:
    """Slopes [R] and residuals [R, n] of least-squares lines."""
    n = curves.shape[1]
    x = np.arange(n) - (n - 1) / 2.0
    slope = curves @ x / (x @ x)
    return slope, curves - curves.mean(axis=1, keepdims=True) - slope[:, None] * x


def _prais_winsten(curves: Floats) -> tuple[Floats, Floats]:
    """Slope of every curve and its standard error, with errors of first order.  [R, n] -> [R], [R]"""
    n = curves.shape[1]
    residual = _around_line(curves)[1]
    before = (residual[:, :-1] ** 2).sum(axis=1)
    rho = (residual[:, 1:] * residual[:, :-1]).sum(axis=1) / np.where(before > 0, before, 1.0)
    return gls_line(curves, _corrected(rho, n, 2))


def gls_line(curves: Floats, rho: Floats) -> tuple[Floats, Floats]:
    """Slope and standard error of lines whose errors are rho times the last one and noise.  [R, n], [R]"""
    n = curves.shape[1]
    x = np.arange(n) - (n - 1) / 2.0
    part, root = rho[:, None], np.sqrt(1 - rho**2)[:, None]

    def free(values: Floats) -> Floats:
        """Without what carries over from the point before."""
        return np.hstack([root * values[:, :1], values[:, 1:] - part * values[:, :-1]])

    y, one, line = free(curves), free(np.ones((1, n))), free(x[None])
    a, b, c = (one * one).sum(axis=1), (one * line).sum(axis=1), (line * line).sum(axis=1)
    p, q = (one * y).sum(axis=1), (line * y).sum(axis=1)
    determinant = a * c - b * b
    slope, level = (a * q - b * p) / determinant, (c * p - b * q) / determinant
    residual = y - level[:, None] * one - slope[:, None] * line
    return slope, np.sqrt((residual**2).sum(axis=1) / (n - 2) * a / determinant)


def _simulate(n: int, persistence: float, lagged: Floats) -> Floats:
    """SIMULATED curves around a level of 0 with this autoregression.  [SIMULATED, n]"""
    noise = _noise(n + _BURN_IN)
    order = len(lagged) + 1
    weights = np.zeros(order)  # of the last points, the newest first
    weights[0] = persistence
    weights[: order - 1] += lagged
    weights[1:] -= lagged
    y = np.zeros((order + len(noise), noise.shape[1]))
    for t in range(len(noise)):
        y[order + t] = noise[t] + weights @ y[t : t + order][::-1]
    return np.ascontiguousarray(y[-n:].T)


@lru_cache(maxsize=4)
def _noise(n: int) -> Floats:
    """[n, SIMULATED]"""
    return np.random.Generator(np.random.PCG64(1)).normal(size=(n, SIMULATED))


def _share(simulated: Floats, found: float) -> float:
    """The share of curves at least as extreme, this one among them: a p-value."""
    return float((1 + np.count_nonzero(~(simulated < found))) / (len(simulated) + 1))
