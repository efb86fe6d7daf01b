"""When ads are there: each lives for some days, rests, and comes back."""

import numpy as np

from cascade_sim.foundation import random as draws
from cascade_sim.foundation.compilation import kernel

DAY = 86_400.0  # seconds


class AdAvailability:
    """Periodic availability of each ad: a `share` of its own period, whose beginning is drawn uniformly.

    So any ad is there at any time with probability `share`. Lifetimes are 0.5 to 1.5 times `life` days.
    """

    def __init__(self, spec, n_ads: int, seed: int):
        ads = np.arange(n_ads)
        self.share = spec.share
        life = spec.life * (0.5 + draws.uniform(seed, "life", ads))
        self._period = life / spec.share * DAY  # [A] seconds
        self._begun = draws.uniform(seed, "life begun", ads)  # [A] share of the period that is over at time 0

    def is_available(self, ads: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Whether ads are there at these times, in seconds; False for padding. Broadcast; bool"""
        at = np.maximum(ads, 0)
        age = times / self._period[at] + self._begun[at]
        return (age - np.floor(age) < self.share) & (ads >= 0)

    def counts(self, times: np.ndarray) -> np.ndarray:
        """How many ads are there at each time.  [R] -> [R] int64"""
        return _counts(np.ascontiguousarray(times, np.float64), self._period, self._begun, self.share)

    def corpus(self, times: np.ndarray) -> np.ndarray:
        """The ads that are there at each time, ids ascending, -1 at the end.  [R] -> [R, A] int32"""
        ads = np.arange(len(self._period), dtype=np.int32)[None, :]
        there = np.where(self.is_available(ads, times[:, None]), ads, np.int32(-1))
        return ascending(there)


@kernel
def _counts(times, period, begun, share):
    """`is_available` of all ads, counted without a table of them."""
    out = np.zeros(len(times), np.int64)
    for r in range(len(times)):
        for a in range(len(period)):
            age = times[r] / period[a] + begun[a]
            out[r] += age - np.floor(age) < share
    return out


def ascending(ids: np.ndarray) -> np.ndarray:
    """Each row sorted, padding last: as an unsigned number, -1 is the largest.  [R, m] int32"""
    return np.sort(np.ascontiguousarray(ids, np.int32).view(np.uint32), axis=1).view(np.int32)
