"""Advertisers: who owns which ad, and what they bid for a click."""

import numpy as np


def log_normal_bids(
    tier: np.ndarray, noise: np.ndarray, median: float, sigma: float, tier_share: float
) -> np.ndarray:
    """Bids per click: ln b = ln median + sigma * (sqrt(share) * tier + sqrt(1 - share) * noise).  [A] > 0

    `tier` is the price segment of the product, a feature that models may see and that may also move
    the CTR: through it bids and click rates are correlated, as they are in real logs. tier_share 0
    makes bids independent of everything else.
    """
    spread = np.sqrt(tier_share) * tier + np.sqrt(1.0 - tier_share) * noise
    return median * np.exp(sigma * spread)


def owners(u: np.ndarray, n_advertisers: int) -> np.ndarray:
    """The advertiser of each ad. Portfolios are skewed: advertiser = floor(n * u^2).  [A] int32

    Every advertiser up to the number of ads owns at least one: the first n ads go round in order.
    """
    owner = np.floor(n_advertisers * np.square(u)).astype(np.int32)
    first = min(n_advertisers, len(owner))
    owner[:first] = np.arange(first)
    return owner
