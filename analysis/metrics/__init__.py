"""Metrics of ranked lists: order, scale and stability, for flat arrays with list offsets.

    ranking = rank_lists(scores, lists)                 # one sort for all lists and all metrics of order
    found = ndcg(ranking, labels, k=10)                 # PerRequest: value [R], valid [R], items [R]
    found.mean(), found.skipped                         # the caller averages, and can say what was left out
    gauc(ranking, clicks), ece(pctr, clicks).mean()     # lists None: all items as one list

Scores may be given instead of a ranking. What is averaged over ties, and which lists count, is said in
`metrics_ranking` and `metrics_scale`.
"""

from __future__ import annotations

from collections.abc import Callable

from cascade_sim.analysis.metrics.lists import PerRequest, Ranking, rank_lists
from cascade_sim.analysis.metrics.order import (
    auc,
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
from cascade_sim.analysis.metrics.scale import ece, ece_per_request, logloss, mse, pcoc
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
