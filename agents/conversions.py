"""How long clicks and conversions take to arrive."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

HOUR = 3_600.0
DAY = 86_400.0
WINDOW = 30 * DAY
CLICK_SECONDS = 5.0


@dataclass(frozen=True)
class DelayMixture:
    """A mixture of exponential delays, watched for a limited time.

    P(delay <= t) = sum_m weight_m * (1 - exp(-t / mean_m)). A conversion later than `window` after its click
    is never observed: a share of sum_m weight_m * exp(-window / mean_m) of all conversions.
    """

    weights: tuple[float, ...]  # >= 0, sum 1
    means: tuple[float, ...]  # seconds, > 0
    window: float = WINDOW  # seconds, > 0; may be infinite

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.means) or not self.weights:
            raise ValueError(f"{len(self.weights)} weights for {len(self.means)} mean delays")
        if not (min(self.weights) >= 0 and abs(sum(self.weights) - 1) < 1e-9):
            raise ValueError(f"the weights of a delay mixture must be >= 0 and sum to 1, not {self.weights}")
        if not (min(self.means) > 0 and max(self.means) < np.inf and self.window > 0):
            raise ValueError("mean delays must be finite and > 0, and so must the window (or infinite)")

    @property
    def never(self) -> float:
        """The share of conversions that come after the window: never observed."""
        return 1.0 - float(self.observed_within(self.window))

    def observed_within(self, seconds: ArrayLike) -> np.ndarray:
        """Share of all conversions observed so many seconds after the click; 1 - never from the window on."""
        t = np.clip(np.asarray(seconds, dtype=np.float64), 0.0, self.window)[..., None]
        return (-np.expm1(-t / np.array(self.means)) * np.array(self.weights)).sum(axis=-1)


def calibrated_mixture(
    means: tuple[float, float, float] = (HOUR / 6, 6 * HOUR, 10 * DAY),
    within_hour: float = 1 / 3,
    within_day: float = 1 / 2,
    window: float = WINDOW,
) -> DelayMixture:
    """Three exponential delays of given means, weighted to have these shares within an hour and within a day.

    The weights solve sum w = 1, sum w F(1 h) = within_hour, sum w F(1 day) = within_day,
    F_m(t) = 1 - exp(-t / mean_m). Shares that no mixture of these means has are a ValueError.
    By default (10 minutes, 6 hours, 10 days) the weights are about .310, .140 and .550, and 2.7 % of the
    conversions lie beyond the 30 days.
    """
    hour = [-np.expm1(-HOUR / mean) for mean in means]
    day = [-np.expm1(-DAY / mean) for mean in means]
    # With w_3 = 1 - w_1 - w_2 two equations are left; Cramer's rule.
    a, b, e = hour[0] - hour[2], hour[1] - hour[2], within_hour - hour[2]
    c, d, f = day[0] - day[2], day[1] - day[2], within_day - day[2]
    determinant = a * d - b * c
    if determinant == 0:
        raise ValueError(f"the mean delays {means} must differ")
    first, second = float((e * d - b * f) / determinant), float((a * f - e * c) / determinant)
    weights = (first, second, 1 - first - second)
    if min(weights) < 0:
        raise ValueError(
            f"no mixture of the mean delays {means} has {within_hour:g} within an hour and "
            f"{within_day:g} within a day"
        )
    return DelayMixture(weights, means, window)


DEFAULT_MIXTURE = calibrated_mixture()


def delays(
    u_component: np.ndarray, u_delay: np.ndarray, mixture: DelayMixture = DEFAULT_MIXTURE
) -> np.ndarray:
    """Seconds from click to conversion, infinite where the window closes first (never observed).  [n]

    u_component picks the component by the cumulative weights, u_delay in (0, 1) the delay
    -mean * log(1 - u_delay): growing with u_delay. One pair of draws per conversion.
    """
    edges = np.cumsum(mixture.weights)[:-1]
    means = np.array(mixture.means)[np.searchsorted(edges, u_component, side="right")]
    delay = -means * np.log1p(-np.asarray(u_delay, dtype=np.float64))
    return np.where(delay <= mixture.window, delay, np.inf)


def click_delays(u: np.ndarray, mean_seconds: float = CLICK_SECONDS) -> np.ndarray:
    """Seconds from the page to the click: exponential, -mean * log(1 - u), u in (0, 1).  [n]

    Mean 0 means at once. A negative or infinite mean is a ValueError.
    """
    if not 0 <= mean_seconds < np.inf:
        raise ValueError(f"the mean click delay must be a number of seconds >= 0, not {mean_seconds}")
    return -mean_seconds * np.log1p(-np.asarray(u, dtype=np.float64)) + 0.0  # + 0.0: no negative zeros
