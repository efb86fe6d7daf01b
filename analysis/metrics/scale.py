"""Do predictions mean what they say? Log loss, squared error and calibration, per request or pooled.

`predictions` are on the labels' scale: probabilities of clicks, expected grades. With `lists` None
all items are one list, so that the single value is that of the whole data set. An empty list is not valid.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from cascade_sim.analysis.metrics import calibration
from cascade_sim.analysis.metrics.lists import (
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

_CELLS = 1_000_000  # padded items held at a time


def logloss(predictions: ArrayLike, labels: ArrayLike, lists: ArrayLike | None = None) -> PerRequest:
    """Mean of −(y log p + (1 − y) log(1 − p)), p clipped to [1e-12, 1 − 1e-12]. Labels may be probabilities.

    The data set's log loss is the mean by "items".
    """
    p, y, offsets = _inputs(predictions, labels, lists)
    total, _ = calibration.log_loss(p[:, None], y[:, None])
    return _mean(total, offsets)


def mse(predictions: ArrayLike, labels: ArrayLike, lists: ArrayLike | None = None) -> PerRequest:
    """Mean of (y − p)²; the data set's is the mean by "items"."""
    p, y, offsets = _inputs(predictions, labels, lists)
    return _mean((y - p) ** 2, offsets)


def pcoc(predictions: ArrayLike, labels: ArrayLike, lists: ArrayLike | None = None) -> PerRequest:
    """Predicted over observed, Σ p / Σ y. Not valid without any label mass."""
    p, y, offsets = _inputs(predictions, labels, lists)
    value = calibration.pcoc(sum_lists(p, offsets), sum_lists(y, offsets))
    return per_request(value, ~np.isnan(value), np.diff(offsets))


def ece(
    predictions: ArrayLike, labels: ArrayLike, lists: ArrayLike | None = None, *, bins: int = 100
) -> PerRequest:
    """Expected calibration error over bins of equal width: Σ_b |B_b|/n · |mean y − mean p|.

    Bins of the prediction are [i/bins, (i + 1)/bins), the last one closed; what lies outside [0, 1] falls
    into the end bins. Usually pooled (lists None): within a short list nearly every item has its own bin.
    """
    p, y, offsets = _inputs(predictions, labels, lists)
    value = np.full(offsets.size - 1, np.nan)
    for block, places, shape in _blocks(offsets):
        table = np.full((2, *shape), np.nan)  # NaN is padding
        items = slice(offsets[block.start], offsets[block.stop])
        table[0].ravel()[places], table[1].ravel()[places] = p[items], y[items]
        value[block] = calibration.ece(calibration.bin_sums(table[0], table[1], bins))
    return per_request(value, np.diff(offsets) > 0, np.diff(offsets))


def ece_per_request(
    predictions: ArrayLike, labels: ArrayLike, lists: ArrayLike | None = None, *, bins: int = 10
) -> PerRequest:
    """Expected calibration error over bins of about equal count of successive predictions of one list.

    The item on place i of n, by prediction, is in bin ⌊i · bins / n⌋. Equal predictions are never torn apart:
    they go together to the bin of their middle, so that the value does not depend on the items' order.
    """
    p, y, offsets = _inputs(predictions, labels, lists)
    ranking = rank_lists(-p, offsets)  # rising predictions
    first, length = ranking.runs
    items = np.repeat(ranking.items, ranking.items)
    middle = np.repeat(2 * ranking.rank[first] + length - 1, length)
    bin_of_place = middle * bins // (2 * np.maximum(items, 1))
    slot = list_of_item(offsets) * bins + bin_of_place
    gap = np.bincount(slot, weights=(y - p)[ranking.order], minlength=(offsets.size - 1) * bins)
    value = divide(np.abs(gap).reshape(-1, bins).sum(1), ranking.items)
    return per_request(value, ranking.items > 0, ranking.items)


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
