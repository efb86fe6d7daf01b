"""How far off the click model may be: what the log's own clicks leave possible, by groups of impressions.

A group's true clicks are m (1 + e) where the model, which did not see them, says m. Of every way to group the
logged impressions the variance of e is bounded from above: the largest at which the groups' residuals would
still spread as little as they do by chance of SURE (Cochran's Q as a function of the variance). A sum of
modelled clicks with weights w is then off by a standard deviation of at most

    sqrt(sum over ways of bound * sum over groups of (sum of w m)^2)

Ways are the ad, the part of the log by time, and tenths of pCTR, bid and price in each slot: what settings
of an auction choose by.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.logs.replay.imputation import ClickModel, Floats

SURE = 0.05
TENTHS = (("pctr", 10), ("bid", 10), ("price_micros", 10))  # columns, and how many parts of each
SLOTS = 8  # deeper ones are one
ADS = 512  # groups of ads
PARTS = 24  # of the log by time
MIN_CLICKS = 1.0  # expected of a group that says something
STEPS, MOST = 60, 4.0  # of the bisection, and the largest variance of e


class Misfit:
    """Groups of a log's impressions, with bounds on how far the model is off in them."""

    def __init__(self, model: ClickModel, n_requests: int):
        self._model, self._n_requests = model, n_requests
        self._edges = {
            name: np.unique(np.quantile(values, np.linspace(0, 1, parts + 1)[1:-1]))
            for name, parts in TENTHS
            if (values := model.impressions.get(name)) is not None and len(values)
        }
        sizes = [ADS, PARTS, *(SLOTS * parts for name, parts in TENTHS if name in self._edges)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])

    @property
    def n_groups(self) -> int:
        """Of all ways together."""
        return int(self._starts[-1])

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of candidates that groups are made of."""
        return tuple(self._edges)

    def groups(
        self, ad: NDArray[Any], slot: NDArray[Any], row: NDArray[Any], columns: Mapping[str, Any]
    ) -> NDArray[np.int32]:
        """The group of impressions in each way, numbered through all ways.  [N] each -> [N, ways]"""
        deep = np.minimum(np.asarray(slot, np.int64), SLOTS - 1)
        groups = [np.asarray(ad, np.int64) % ADS, np.asarray(row, np.int64) * PARTS // self._n_requests]
        for name, edges in self._edges.items():
            parts = dict(TENTHS)[name]
            groups.append(deep * parts + np.searchsorted(edges, columns[name], side="right"))
        return (np.stack(groups, axis=1) + self._starts[:-1]).astype(np.int32)

    def sums(self, groups: NDArray[np.int32], weights: Floats) -> Floats:
        """Weights [N, W] of impressions in groups [N, ways], added up by group of each way.  [groups, W]"""
        found = np.zeros((self.n_groups, weights.shape[1]))
        for way in range(groups.shape[1]):
            for w in range(weights.shape[1]):
                found[:, w] += np.bincount(groups[:, way], weights[:, w], self.n_groups)
        return found

    @cached_property
    def bounds(self) -> Floats:
        """The largest likely variance of e, of the way that each group is of.  [groups]"""
        from scipy.stats import chi2

        part = self._model.impressions
        said, variance = self._model.predicted_impressions()
        weights = np.stack([part["click"] - said, said, variance], axis=1)
        groups = self.groups(part["ad"], part["slot"], part["row"], part)
        off, clicks, spread = self.sums(groups, weights).T
        found = np.zeros(self.n_groups)
        for start, end in zip(self._starts[:-1], self._starts[1:], strict=True):
            own = np.arange(start, end)[clicks[start:end] >= MIN_CLICKS]
            found[start:end] = _bound(off[own], clicks[own], spread[own], float(chi2.ppf(SURE, len(own))))
        return found

    def deviation(self, sums: Floats) -> float:
        """The standard deviation of a sum whose parts by group these are.  [groups] -> of the whole"""
        return float(np.sqrt(np.sum(self.bounds * sums**2)))


def _bound(off: Floats, clicks: Floats, spread: Floats, least: float) -> float:
    """The variance of e at which sum of off^2 / (spread + it * clicks^2) falls to `least`."""
    if not len(off):
        return MOST
    low, high = 0.0, MOST
    for _ in range(STEPS):
        middle = (low + high) / 2
        if np.sum(off**2 / (spread + middle * clicks**2)) > least:
            low = middle
        else:
            high = middle
    return high
