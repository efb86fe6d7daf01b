"""Won is not seen: which slots of a logged request were exposed, whatever ad is put there.

A reader comes as far down a page as they come, so exposure is held to be of the request and its slot, and is
the same for another ad there. A slot that the log left empty, or whose exposure it does not know, is exposed
as often as that slot was on the other pages; below the deepest one known, as often as that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cascade_sim.logs.store.store import LogStore


class Exposure:
    """Exposures of a log with a column `exposed`, by request and slot."""

    def __init__(self, store: LogStore):
        self._seen = np.full((store.n_requests, max(store.about.slots, 1)), -1, np.int8)
        for start, stop, part in store.blocks(("slot", "exposed")):
            row = np.repeat(np.arange(start, stop), np.diff(store.first[start : stop + 1]))
            at = np.flatnonzero(part["slot"] >= 0)
            self._seen[row[at], part["slot"][at]] = part["exposed"][at]
        known = np.maximum((self._seen >= 0).sum(axis=0), 0)
        rate = np.where(known, (self._seen == 1).sum(axis=0) / np.maximum(known, 1), np.nan)
        if np.isnan(rate[0]):
            rate[0] = 1.0 if not known.any() else float(rate[known > 0][0])
        self._rate = rate[np.maximum.accumulate(np.where(np.isnan(rate), 0, np.arange(len(rate))))]

    def chances(self, rows: NDArray[np.int64], slots: int) -> NDArray[np.float64]:
        """That slots of these requests of the log are seen: 0 or 1 where it is known.  [R] -> [R, slots]"""
        at = np.minimum(np.arange(slots), len(self._rate) - 1)
        seen = self._seen[rows][:, at]
        is_known = (seen >= 0) & (at == np.arange(slots))
        return np.where(is_known, seen == 1, self._rate[at]).astype(np.float64)
