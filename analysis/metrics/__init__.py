"""Metrics of ranked lists: order, scale and stability, for flat arrays with list offsets.

Three requests with three, two and one item. One sort serves all metrics of order; they give a value per
request, which the caller averages. The last request has no click, hence no order to get right:

>>> scores, clicks, lists = [3.0, 2.0, 1.0, 5.0, 4.0, 1.0], [1, 0, 0, 0, 1, 0], [0, 3, 5, 6]
>>> ranking = rank_lists(scores, lists)
>>> quality = ndcg(ranking, clicks, k=10)
>>> quality.value.round(3).tolist(), quality.valid.tolist()
([1.0, 0.631, nan], [True, True, False])
>>> round(quality.mean(), 3), round(quality.skipped, 3)
(0.815, 0.333)
>>> gauc(ranking, clicks)
0.6

Without `lists` all items are one list; scores may be given instead of a ranking:

>>> round(ece([0.2, 0.9], [0, 1]).mean(), 3), round(auc(scores, clicks).mean(), 3)
(0.15, 0.75)

What is averaged over ties, and which lists count, is said in `order` and `scale`.
"""

from __future__ import annotations

from collections.abc import Callable

from cascade_sim.analysis.metrics.calibration import ece, ece_per_request, logloss, mse, pcoc
from cascade_sim.analysis.metrics.lists import PerRequest, Ranking, rank_lists
from cascade_sim.analysis.metrics.ranking import (
    auc,
    auc_pr,
    average_precision,
    dcg,
    err,
    gauc,
    mrr,
    ndcg,
    precision,
    recall,
    spearman,
)
from cascade_sim.analysis.metrics.stability import Stability, stability

# Metrics by name, each (scores or predictions, labels, lists, **choices) -> PerRequest.
ORDER: dict[str, Callable[..., PerRequest]] = {
    "auc": auc,
    "ndcg": ndcg,
    "dcg": dcg,
    "err": err,
    "average_precision": average_precision,
    "precision": precision,
    "recall": recall,
    "spearman": spearman,
    "mrr": mrr,
}
SCALE: dict[str, Callable[..., PerRequest]] = {
    "logloss": logloss,
    "mse": mse,
    "ece": ece,
    "ece_per_request": ece_per_request,
    "pcoc": pcoc,
}

__all__ = [
    "ORDER",
    "SCALE",
    "PerRequest",
    "Ranking",
    "Stability",
    "auc",
    "auc_pr",
    "average_precision",
    "dcg",
    "ece",
    "ece_per_request",
    "err",
    "gauc",
    "logloss",
    "mrr",
    "mse",
    "ndcg",
    "pcoc",
    "precision",
    "rank_lists",
    "recall",
    "spearman",
    "stability",
]
