"""Advertisers: who owns which ad, and what they bid for a click."""

import numpy as np

MIN_HAZARD = np.sqrt(2.0 / np.pi)  # of the standard normal at 0: tails begin above the median


def log_normal_bids(
    tier: np.ndarray,
    noise: np.ndarray,
    median: float,
    sigma: float,
    tier_share: float,
    tail: float | None = None,
) -> np.ndarray:
    """Bids per click: ln b = ln median + sigma * (sqrt(share) * tier + sqrt(1 - share) * noise).  [A] > 0

    `tier` is the price segment of the product, a feature that models may see and that may also move
    the CTR: through it bids and click rates are correlated, as they are in real logs. tier_share 0
    makes bids independent of everything else. `tail`: as in `with_tail`.
    """
    spread = np.sqrt(tier_share) * tier + np.sqrt(1.0 - tier_share) * noise
    return median * np.exp(sigma * with_tail(spread, sigma, tail))


def with_tail(z: np.ndarray, sigma: float, tail: float | None) -> np.ndarray:
    """Standard normals z such that exp(sigma * z) is log-normal in the middle and Pareto above.

    The hazard of ln x rises in a log-normal law, h(z) / sigma with h that of the standard normal. From the z
    on where it reaches `tail` it stays: P(x > t) falls as t^-tail. Density and hazard are continuous, the
    order of the z stays as it is, and below that point nothing changes; so the median does not, if
    tail * sigma >= MIN_HAZARD. None: z itself.
    """
    if tail is None:
        return z
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    def log_hazard(x: float) -> float:
        return float(-0.5 * x * x - 0.5 * np.log(2.0 * np.pi) - log_ndtr(-x))

    if tail * sigma < MIN_HAZARD:
        raise ValueError(f"a tail of {tail:g} would begin below the median of a sigma of {sigma:g}")
    # h(x) > x, so the point lies below tail * sigma.
    start = brentq(lambda x: log_hazard(x) - np.log(tail * sigma), -1e-9, tail * sigma, xtol=1e-14)
    beyond = (log_ndtr(-start) - log_ndtr(-np.maximum(z, start))) / (tail * sigma)
    return np.where(z > start, start + beyond, z)


def owners(u: np.ndarray, n_advertisers: int) -> np.ndarray:
    """The advertiser of each ad. Portfolios are skewed: advertiser = floor(n * u^2).  [A] int32

    Every advertiser up to the number of ads owns at least one: the first n ads go round in order.
    """
    owner = np.floor(n_advertisers * np.square(u)).astype(np.int32)
    first = min(n_advertisers, len(owner))
    owner[:first] = np.arange(first)
    return owner
