"""Do predictions mean what they say? Log loss, squared error, PCOC and calibration errors.

`predictions` are on the labels' scale: probabilities of clicks, expected grades. Flat arrays give a value
per request (`logloss`, `mse`, `pcoc`, `ece`, `ece_per_request`); with `lists` None all items are one list, so
that the single value is that of the whole data set. An empty list is not valid.

Requests that come in blocks of padded tables [..., n] give statistics that add up over requests, and metrics
of their sums: `log_loss_sums`, and `bin_sums`, arrays [..., 3, bins] that hold, per bucket of the prediction,
count, sum of predictions and sum of references. A reference is the ranker's prediction (proxy-calibration),
a true probability or a click. `ece_of_bins`, `relative_ece_of_bins` and `pcoc_of_bins` read them; rows, or
any group of requests, are combined by summing their statistics first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from cascade_sim.analysis.metrics.lists import (
    Bools,
    Floats,
    Ints,
    PerRequest,
    check_lists,
    flat,
    list_of_item,
    per_request,
    rank_lists,
    sum_lists,
)
from cascade_sim.analysis.metrics.ratio import divide

PROXY_BINS = 50  # buckets of proxy-calibration, of a pre-ranking prediction against the ranker's
ECE_BINS = 100
_CELLS = 1_000_000  # padded items held at a time


def logloss(predictions: ArrayLike, labels: ArrayLike, lists: ArrayLike | None = None) -> PerRequest:
    """Mean of −(y log p + (1 − y) log(1 − p)), p clipped to [1e-12, 1 − 1e-12]. Labels may be probabilities.

    The data set's log loss is the mean by "items".

    >>> round(logloss([0.2, 0.9, 0.4], [0, 1, 0]).mean(), 3)
    0.28
    """
    p, y, offsets = _inputs(predictions, labels, lists)
    total, _ = log_loss_sums(p[:, None], y[:, None])
    return _mean(total, offsets)


def mse(predictions: ArrayLike, labels: ArrayLike, lists: ArrayLike | None = None) -> PerRequest:
    """Mean of (y − p)²; the data set's is the mean by "items".

    >>> round(mse([0.2, 0.9, 0.4], [0, 1, 0]).mean(), 3)
    0.07
    """
    p, y, offsets = _inputs(predictions, labels, lists)
    return _mean((y - p) ** 2, offsets)


def pcoc(predictions: ArrayLike, labels: ArrayLike, lists: ArrayLike | None = None) -> PerRequest:
    """Predicted over observed, Σ p / Σ y. Not valid without any label mass.

    >>> round(pcoc([0.2, 0.9, 0.4], [0, 1, 0]).mean(), 3)
    1.5
    """
    p, y, offsets = _inputs(predictions, labels, lists)
    value = divide(sum_lists(p, offsets), sum_lists(y, offsets))
    return per_request(value, ~np.isnan(value), np.diff(offsets))


def ece(
    predictions: ArrayLike, labels: ArrayLike, lists: ArrayLike | None = None, *, bins: int = ECE_BINS
) -> PerRequest:
    """Expected calibration error over bins of equal width: Σ_b |B_b|/n · |mean y − mean p|.

    Bins of the prediction are [i/bins, (i + 1)/bins), the last one closed; what lies outside [0, 1] falls
    into the end bins. Usually pooled (lists None): within a short list nearly every item has its own bin.

    >>> round(ece([0.2, 0.9, 0.4], [0, 1, 0], bins=2).mean(), 3)
    0.233
    """
    p, y, offsets = _inputs(predictions, labels, lists)
    value = np.full(offsets.size - 1, np.nan)
    for block, places, shape in _blocks(offsets):
        table = np.full((2, *shape), np.nan)  # NaN is padding
        items = slice(offsets[block.start], offsets[block.stop])
        table[0].ravel()[places], table[1].ravel()[places] = p[items], y[items]
        value[block] = ece_of_bins(bin_sums(table[0], table[1], bins))
    return per_request(value, np.diff(offsets) > 0, np.diff(offsets))


def ece_per_request(
    predictions: ArrayLike, labels: ArrayLike, lists: ArrayLike | None = None, *, bins: int = 10
) -> PerRequest:
    """Expected calibration error over bins of about equal count of successive predictions of one list.

    The item on place i of n, by prediction, is in bin ⌊i · bins / n⌋. Equal predictions are never torn apart:
    they go together to the bin of their middle, so that the value does not depend on the items' order.

    >>> round(ece_per_request([0.2, 0.9, 0.4], [0, 1, 0], bins=2).mean(), 3)
    0.233
    """
    p, y, offsets = _inputs(predictions, labels, lists)
    ranking = rank_lists(-p, offsets)  # rising predictions
    first, length = ranking.runs
    owner = list_of_item(offsets)
    bin_of_run = _bin_of_middle(ranking.rank[first], length, ranking.items[owner[first]], bins)
    slot = owner * bins + np.repeat(bin_of_run, length)
    gap = np.bincount(slot, weights=(y - p)[ranking.order], minlength=(offsets.size - 1) * bins)
    value = divide(np.abs(gap).reshape(-1, bins).sum(1), ranking.items)
    return per_request(value, ranking.items > 0, ranking.items)


def log_loss_sums(
    prediction: ArrayLike, label: ArrayLike, valid: ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """Σ −(y log p + (1−y) log(1−p)) and the count, over the last axis.  [..., n] -> ([...], [...])

    Labels may be probabilities. Predictions are clipped to [1e-12, 1 − 1e-12]. Entries not `valid`, or not
    finite on either side, are padding. The mean is the quotient of the summed parts.
    """
    p, y, is_real = _table(prediction, label, valid)
    p = np.clip(np.where(is_real, p, 0.5), 1e-12, 1.0 - 1e-12)
    y = np.where(is_real, y, 0.5)
    loss = -(y * np.log(p) + (1.0 - y) * np.log1p(-p))
    return np.where(is_real, loss, 0.0).sum(-1), is_real.sum(-1).astype(np.float64)


def bin_sums(
    prediction: ArrayLike, reference: ArrayLike, bins: int = ECE_BINS, valid: ArrayLike | None = None
) -> Floats:
    """Per-request (count, sum of predictions, sum of references) by bucket.  [..., n] -> [..., 3, bins]

    Buckets of the prediction are [i/bins, (i+1)/bins); 1.0, and anything above, is in the last one,
    anything below 0 in the first. Entries not `valid`, or not finite on either side, are padding.
    """
    from cascade_sim.analysis.metrics.kernels import bucket_sums

    tables = _table(prediction, reference, valid)
    shape = tables[0].shape
    n_rows = int(np.prod(shape[:-1]))
    p, r, is_real = (np.ascontiguousarray(table).reshape(n_rows, shape[-1]) for table in tables)
    sums: Floats = bucket_sums(p, r, is_real, bins)
    return sums.reshape(*shape[:-1], 3, bins)


def ece_of_bins(sums: ArrayLike) -> Floats:
    """Expected calibration error (1/D) Σ_k |Σ_i (y_i − p_i) 1(p_i in bucket k)|.  [..., 3, bins] -> [...]

    Also Σ_k |B_k|/D · |mean reference − mean prediction|: how far predictions are off, in probability. NaN
    without entries. With the ranker's prediction as the reference it is the proxy-calibration error.
    """
    sums = np.asarray(sums, np.float64)
    return divide(_gap(sums), sums[..., 0, :].sum(-1))


def relative_ece_of_bins(sums: ArrayLike) -> Floats:
    """ece_of_bins over the mean reference: comparable across base rates.  [..., 3, bins] -> [...]"""
    sums = np.asarray(sums, np.float64)
    return divide(_gap(sums), sums[..., 2, :].sum(-1))


def pcoc_of_bins(sums: ArrayLike) -> Floats:
    """Predicted over observed, Σ prediction / Σ reference; NaN without any.  [..., 3, bins] -> [...]"""
    sums = np.asarray(sums, np.float64)
    return divide(sums[..., 1, :].sum(-1), sums[..., 2, :].sum(-1))


def _gap(sums: Floats) -> Floats:
    return np.abs(sums[..., 2, :] - sums[..., 1, :]).sum(-1)


def reliability_curve(
    prediction: ArrayLike, reference: ArrayLike, bins: int = 20, valid: ArrayLike | None = None
) -> dict[str, Floats]:
    """Mean prediction and mean reference by equal-count bins of the prediction, over all entries together.

    Returns "predicted", "reference" and "count", each [<= bins], by rising prediction. Equal predictions
    are never torn apart: a tie goes as a whole to the bin of its middle, so bins may differ in size and
    empty ones are left out (a constant prediction gives one point). Entries not `valid`, or not finite, are
    padding.
    """
    p, r, is_real = _table(prediction, reference, valid)
    p, r = p[is_real], r[is_real]
    if p.size == 0:
        return {name: np.zeros(0) for name in ("predicted", "reference", "count")}
    order = np.argsort(p, kind="stable")
    p, r = p[order], r[order]
    first = np.flatnonzero(np.r_[True, p[1:] != p[:-1]])
    length = np.diff(np.r_[first, p.size])
    index = np.repeat(_bin_of_middle(first, length, p.size, bins), length)
    count = np.bincount(index, minlength=bins)
    is_used = count > 0
    return {
        "predicted": np.bincount(index, weights=p, minlength=bins)[is_used] / count[is_used],
        "reference": np.bincount(index, weights=r, minlength=bins)[is_used] / count[is_used],
        "count": count[is_used].astype(np.float64),
    }


def pooled_curve(curves: Sequence[Mapping[str, ArrayLike]], bins: int = 20) -> dict[str, Floats]:
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


def _inputs(
    predictions: ArrayLike, labels: ArrayLike, lists: ArrayLike | None
) -> tuple[Floats, Floats, Ints]:
    p = flat(predictions, "predictions")
    return p, flat(labels, "labels", p.size), check_lists(lists, p.size)


def _mean(by_item: Floats, offsets: Ints) -> PerRequest:
    items = np.diff(offsets)
    return per_request(divide(sum_lists(by_item, offsets), items), items > 0, items)


def _blocks(offsets: Ints) -> Iterator[tuple[slice, Ints, tuple[int, int]]]:
    """Runs of lists that fit a padded table: which lists, the cell of each item, the table's shape."""
    items = np.diff(offsets)
    start = 0
    while start < items.size:
        widest = np.maximum.accumulate(items[start:])
        cells = widest * np.arange(1, widest.size + 1)
        n = max(1, int(np.searchsorted(cells, _CELLS, side="right")))
        width = max(int(widest[n - 1]), 1)
        inside = items[start : start + n]
        places = np.arange(inside.sum()) + np.repeat(
            np.arange(n) * width - (offsets[start : start + n] - offsets[start]), inside
        )
        yield slice(start, start + n), places, (n, width)
        start += n


def _table(
    prediction: ArrayLike, reference: ArrayLike, valid: ArrayLike | None
) -> tuple[Floats, Floats, Bools]:
    """Both sides in one shape, and which entries count: finite on both sides and, if given, `valid`."""
    p, r = np.broadcast_arrays(np.asarray(prediction, np.float64), np.asarray(reference, np.float64))
    is_real = np.isfinite(p) & np.isfinite(r)
    return p, r, is_real if valid is None else is_real & np.asarray(valid, bool)


def _bin_of_middle(first: Ints, length: Ints, items: Ints | int, bins: int) -> Ints:
    """Which of `bins` bins of equal count, over `items` places, holds the middle of a run of equal values."""
    return np.asarray((2 * first + length - 1) * bins // (2 * items))
