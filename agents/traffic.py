"""Traffic: when requests arrive and who sends them."""

import numpy as np


def arrival_times(gaps: np.ndarray, requests_per_second: float, start: float = 0.0) -> np.ndarray:
    """Times of a Poisson process from unit-mean exponential gaps.  [R] seconds, increasing.

    t_i = start + sum_{j<=i} gap_j / rate.  No requests give an empty array.
    """
    return start + np.cumsum(np.asarray(gaps, dtype=np.float64)) / requests_per_second


def activity_cdf(n_users: int, exponent: float) -> np.ndarray:
    """Cumulative share of visits of users 0..U-1 when user i visits in proportion to (i+1)^-exponent.

    exponent 0 makes all users alike; 0.5 to 1 is what web logs show.  [U], last entry exactly 1.
    """
    share = np.arange(1, n_users + 1, dtype=np.float64) ** -exponent
    cdf = np.cumsum(share) / share.sum()
    cdf[-1] = 1.0
    return cdf


def visitors(u: np.ndarray, cdf: np.ndarray) -> np.ndarray:
    """The user behind each request, by inverse CDF of uniform draws u.  [R] int32."""
    return np.searchsorted(cdf, u, side="right").clip(0, len(cdf) - 1).astype(np.int32)


class Visitors:
    """`visitors` of one cdf, for those who ask often: a guide says where to begin to look.

    guide[g] is the visitor of u = g / G; that of a u in [g / G, (g+1) / G) is there or a little further.
    G is a power of two, so that no rounding lies between u and its g.
    """

    def __init__(self, cdf: np.ndarray):
        self._cdf = cdf
        size = 1 << min(max(len(cdf), 2) - 1, 1 << 20).bit_length()
        self._guide = visitors(np.arange(size) / size, cdf)

    def __call__(self, u: np.ndarray) -> np.ndarray:
        """As `visitors`.  [R] int32"""
        from cascade_sim.foundation.kernels import guided_search  # numba is loaded when first needed

        return guided_search(self._cdf, self._guide, u)
