"""Are predictions on the right scale? Statistics that add up over requests, and metrics of their sums.

Bin statistics are arrays [..., 3, bins] holding, per bucket of the prediction: count, sum of predictions,
sum of references. A reference is the ranker's prediction (proxy-calibration), a true probability or a
click.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.metrics.ratio import divide


def bin_sums(
    prediction: ArrayLike, reference: ArrayLike, bins: int, valid: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Per-request (count, sum of predictions, sum of references) by bucket.  [..., n] -> [..., 3, bins]

    Buckets of the prediction are [i/bins, (i+1)/bins); 1.0, and anything above, is in the last one,
    anything below 0 in the first. Entries not `valid`, or not finite on either side, are padding.
    """
    prediction, reference = np.broadcast_arrays(
        np.asarray(prediction, np.float64), np.asarray(reference, np.float64)
    )
    is_real = np.isfinite(prediction) & np.isfinite(reference)
    if valid is not None:
        is_real &= np.asarray(valid, bool)
    shape = prediction.shape[:-1]
    size = int(np.prod(shape)) * bins
    p = np.where(is_real, prediction, 0.0)
    slot = _bucket(p, bins) + np.arange(0, size, bins).reshape(*shape, 1)
    slot = np.where(is_real, slot, size).ravel()  # padding goes past the end and is cut off
    parts = (None, p.ravel(), np.where(is_real, reference, 0.0).ravel())
    sums = [np.bincount(slot, weights=w, minlength=size + 1)[:size].reshape(*shape, bins) for w in parts]
    return np.stack(sums, axis=-2).astype(np.float64)


def _bucket(p: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """Index of the bucket [i/bins, (i+1)/bins), exact at its edges: p · bins alone puts 0.58 · 50 into 28."""
    index = np.clip(np.floor(np.clip(p, 0.0, 1.0) * bins), 0, bins - 1)
    index += (p >= (index + 1) / bins) & (index < bins - 1)
    index -= (p < index / bins) & (index > 0)
    return index.astype(np.int64)


def proxy_bins(
    prediction: ArrayLike, reference: ArrayLike, bins: int = 50, valid: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Bin statistics of a pre-ranking prediction against the ranker's.  [..., n] -> [..., 3, bins]"""
    return bin_sums(prediction, reference, bins, valid)


def ece_bins(
    prediction: ArrayLike, label: ArrayLike, bins: int = 100, valid: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Bin statistics of a prediction against clicks or true probabilities.  [..., n] -> [..., 3, bins]"""
    return bin_sums(prediction, label, bins, valid)


def proxy_ece(sums: ArrayLike) -> NDArray[np.float64]:
    """(1/D) Σ_k |Σ_i (p_i − p̂_i) 1(p̂_i in bucket k)|.  [..., 3, bins] -> [...]

    How far the pre-ranking prediction p̂ is off the ranker's p, in probability. NaN without candidates.
    Rows, or any group of requests, are combined by summing their statistics first.
    """
    sums = np.asarray(sums, np.float64)
    return divide(_gap(sums), sums[..., 0, :].sum(-1))


def proxy_ece_relative(sums: ArrayLike) -> NDArray[np.float64]:
    """proxy_ece / mean reference prediction: comparable across base rates.  [..., 3, bins] -> [...]"""
    sums = np.asarray(sums, np.float64)
    return divide(_gap(sums), sums[..., 2, :].sum(-1))


def ece(sums: ArrayLike) -> NDArray[np.float64]:
    """Expected calibration error Σ_k |B_k|/D · |mean label − mean prediction|.  [..., 3, bins] -> [...]"""
    return proxy_ece(sums)


def _gap(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.abs(sums[..., 2, :] - sums[..., 1, :]).sum(-1)


def pcoc(sum_prediction: ArrayLike, sum_label: ArrayLike) -> NDArray[np.float64]:
    """Predicted over observed: Σ prediction / Σ label; NaN without any label mass."""
    return divide(sum_prediction, sum_label)


def log_loss(
    prediction: ArrayLike, label: ArrayLike, valid: ArrayLike | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Σ −(y log p + (1−y) log(1−p)) and the count, over the last axis.  [..., n] -> ([...], [...])

    Labels may be probabilities. Predictions are clipped to [1e-12, 1 − 1e-12]. Entries not `valid`, or not
    finite on either side, are padding. The mean is the quotient of the summed parts.
    """
    p, y = np.broadcast_arrays(np.asarray(prediction, np.float64), np.asarray(label, np.float64))
    is_real = np.isfinite(p) & np.isfinite(y)
    if valid is not None:
        is_real = is_real & np.asarray(valid, bool)
    p = np.clip(np.where(is_real, p, 0.5), 1e-12, 1.0 - 1e-12)
    y = np.where(is_real, y, 0.5)
    loss = -(y * np.log(p) + (1.0 - y) * np.log1p(-p))
    return np.where(is_real, loss, 0.0).sum(-1), is_real.sum(-1).astype(np.float64)


def reliability_curve(
    prediction: ArrayLike, reference: ArrayLike, bins: int = 20, valid: ArrayLike | None = None
) -> dict[str, NDArray[np.float64]]:
    """Mean prediction and mean reference by equal-count bins of the prediction, over all entries together.

    Returns "predicted", "reference" and "count", each [<= bins], by rising prediction. Equal predictions
    are never torn apart: a tie goes as a whole to the bin of its middle, so bins may differ in size and
    empty ones are left out (a constant prediction gives one point). Entries not `valid`, or not finite, are
    padding.
    """
    p, r = np.broadcast_arrays(np.asarray(prediction, np.float64), np.asarray(reference, np.float64))
    is_real = np.isfinite(p) & np.isfinite(r)
    if valid is not None:
        is_real = is_real & np.asarray(valid, bool)
    p, r = p[is_real], r[is_real]
    if p.size == 0:
        return {name: np.zeros(0) for name in ("predicted", "reference", "count")}
    order = np.argsort(p, kind="stable")
    p, r = p[order], r[order]
    first = np.flatnonzero(np.r_[True, p[1:] != p[:-1]])
    length = np.diff(np.r_[first, p.size])
    index = np.repeat((2 * first + length - 1) * bins // (2 * p.size), length)
    count = np.bincount(index, minlength=bins)
    is_used = count > 0
    return {
        "predicted": np.bincount(index, weights=p, minlength=bins)[is_used] / count[is_used],
        "reference": np.bincount(index, weights=r, minlength=bins)[is_used] / count[is_used],
        "count": count[is_used].astype(np.float64),
    }


def pooled_curve(curves: Sequence[Mapping[str, ArrayLike]], bins: int = 20) -> dict[str, NDArray[np.float64]]:
    """Reliability curves of several worlds as one: their points, by rising prediction, joined anew.

    Each curve holds "predicted", "reference" and "count", of any length. Points are cut into at most `bins`
    runs of about equal count, a point going as a whole to the run of its middle; means are weighted by count.
    """
    p, r, count = (
        np.concatenate([np.zeros(0), *(np.asarray(curve[name], np.float64) for curve in curves)])
        for name in ("predicted", "reference", "count")
    )
    order = np.argsort(p, kind="stable")
    p, r, count = p[order], r[order], count[order]
    total = count.sum()
    if total == 0:
        return {name: np.zeros(0) for name in ("predicted", "reference", "count")}
    index = np.minimum(((np.cumsum(count) - count / 2) * bins / total).astype(int), bins - 1)
    sums = [np.bincount(index, weights=x, minlength=bins) for x in (count, count * p, count * r)]
    is_used = sums[0] > 0
    size = sums[0][is_used].astype(np.float64)
    return {"predicted": sums[1][is_used] / size, "reference": sums[2][is_used] / size, "count": size}
