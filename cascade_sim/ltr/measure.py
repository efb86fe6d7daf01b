"""What a ranker is worth on a file: order and scale of every list, and the file's means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cascade_sim.analysis import metrics

DEPTH = 10  # places that NDCG looks at


@dataclass(frozen=True)
class Measured:
    """Metrics of Q lists. NaN where a list does not count."""

    ndcg: np.ndarray  # [Q] NDCG@10
    loss: np.ndarray  # [Q] log loss or squared error, summed over the items
    ece: np.ndarray  # [Q] calibration error over ten bins of equal count
    predicted: np.ndarray  # [Q] sum of predictions
    observed: np.ndarray  # [Q] sum of labels
    items: np.ndarray  # [Q]

    @property
    def means(self) -> dict[str, float]:
        """The file's figures: NDCG and ECE per list, the loss per item, PCOC of all predictions."""
        observed = float(self.observed.sum())
        return {
            "ndcg": _mean(self.ndcg),
            "loss": float(self.loss.sum() / self.items.sum()),
            "ece": _mean(self.ece),
            "pcoc": float(self.predicted.sum() / observed) if observed else float("nan"),
        }

    @property
    def ndcg_error(self) -> float:
        """Standard error of the mean NDCG over lists; 0 for fewer than two."""
        values = self.ndcg[~np.isnan(self.ndcg)]
        return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def measure(
    scores: np.ndarray, predictions: np.ndarray, labels: np.ndarray, lists: np.ndarray, task: str
) -> Measured:
    """scores rank, predictions are on the labels' scale.  [N] each"""
    items = np.diff(lists)
    loss = (metrics.logloss if task == "binary" else metrics.mse)(predictions, labels, lists)
    owner = np.repeat(np.arange(len(items)), items)
    return Measured(
        ndcg=metrics.ndcg(scores, labels, lists, k=DEPTH).value,
        loss=np.where(items > 0, loss.value, 0.0) * items,
        ece=metrics.ece_per_request(predictions, labels, lists).value,
        predicted=np.bincount(owner, predictions, len(items)),
        observed=np.bincount(owner, labels, len(items)),
        items=items,
    )


def _mean(values: np.ndarray) -> float:
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if len(counted) else float("nan")
