"""Quantiles over all values of a study's requests, with intervals from resampling the requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.analysis.statistics.bootstrap import resample_counts

_CELLS = 4_000_000  # weights held at a time


def quantile_intervals(
    values: NDArray[np.float64],
    request: NDArray[np.int64],
    n_requests: int,
    levels: Sequence[float],
    resamples: int,
    seed: int,
) -> list[dict[str, Any]]:
    """{"value", "low", "high"} of each level: the least value that so large a share does not exceed.

    values, request: [I], a value and the request (0 to n_requests - 1) it belongs to. Requests are resampled
    with all their values, as many as there are; 95 % percentile intervals. No values: None throughout.
    """
    nothing = {"value": None, "low": None, "high": None}
    if not len(values):
        return [dict(nothing) for _ in levels]
    order = np.argsort(values, kind="stable")
    ranked, owner = values[order], request[order]
    on_data = _quantiles(ranked, np.ones((1, len(ranked))), levels)[0]
    rows = []
    step = max(1, _CELLS // len(ranked))
    for counts in resample_counts(n_requests, resamples, seed):
        for start in range(0, len(counts), step):
            weights = counts[start : start + step][:, owner]
            rows.append(_quantiles(ranked, weights[weights.any(axis=1)], levels))
    drawn = np.concatenate(rows) if rows else np.zeros((0, len(levels)))
    if not len(drawn):
        return [{**nothing, "value": float(value)} for value in on_data]
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return [
        {"value": float(v), "low": float(a), "high": float(b)}
        for v, a, b in zip(on_data, low, high, strict=True)
    ]


def _quantiles(
    ranked: NDArray[np.float64], weights: NDArray[np.float64], levels: Sequence[float]
) -> NDArray[np.float64]:
    """Weighted quantiles of ascending values.  [I], [B, I] -> [B, levels]"""
    below = np.cumsum(weights, axis=1)
    found = [
        ranked[np.argmax(below >= level * below[:, -1:], axis=1)] for level in levels
    ]  # weights are whole numbers: their sums are exact
    return np.stack(found, axis=1)
