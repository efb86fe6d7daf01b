"""How good a model is on a set of ads: additive statistics, by group of requests, and their measures."""

import numpy as np

from cascade_sim.analysis import metrics
from cascade_sim.analysis.metrics import calibration, ranking
from cascade_sim.analysis.metrics.catalogue import MODEL_MEASURES
from cascade_sim.analysis.metrics.ratio import divide
from cascade_sim.analysis.statistics.bootstrap import Function, paired_functions_intervals

LOG10_EDGES = np.linspace(-5.0, 0.0, 61)
AUC_BINS = 512
NDCG_DEPTH = 10


class ModelQuality:
    """Additive statistics of one model on one set, by group of requests."""

    def __init__(self, is_probability: bool, n_groups: int):
        self.is_probability, self.n_groups = is_probability, n_groups
        self.edges: np.ndarray | None = None  # of the AUC's histogram: quantiles of the first block with ads
        self.sums: dict[str, np.ndarray] = {}
        self.density = np.zeros(len(LOG10_EDGES) - 1)

    def add(self, prediction: np.ndarray, true_ctr: np.ndarray, valid: np.ndarray, group: np.ndarray) -> None:
        """Add a block's ads. prediction, true_ctr, valid (is there an ad?): [R, m]; group: [R]"""
        if not valid.any():  # nothing was shown, and there is no quantile of nothing
            return
        p = np.asarray(prediction, np.float64)
        if self.edges is None:
            self.edges = np.unique(np.quantile(p[valid], np.linspace(0, 1, AUC_BINS + 1)[1:-1]))
        auc, weight = ranking.table_auc(p, true_ctr, valid)
        weighted = np.where(weight > 0, np.nan_to_num(auc), 0.0) * weight
        self._tally("gauc", np.stack([weighted, weight], axis=1), group)
        # The gain of an ad is its true CTR, so NDCG is a share of the clicks that the best order would get.
        lists = np.concatenate([[0], np.cumsum(valid.sum(axis=1))])
        ndcg = metrics.ndcg(p[valid], true_ctr[valid], lists, k=NDCG_DEPTH, gain="linear")
        counted = np.stack([np.where(ndcg.valid, ndcg.value, 0.0), ndcg.valid], axis=1)
        self._tally("ndcg", counted.astype(np.float64), group)
        self._tally("auc", ranking.score_histogram(p, true_ctr, self.edges, valid), group)
        if self.is_probability:
            self._tally("bins", calibration.bin_sums(p, true_ctr, valid=valid), group)
            self._tally("logloss", np.stack(calibration.log_loss_sums(p, true_ctr, valid), axis=1), group)
            self.density += np.histogram(np.log10(np.clip(p[valid], 1e-12, 1.0)), LOG10_EDGES)[0]

    def _tally(self, name: str, per_request: np.ndarray, group: np.ndarray) -> None:
        total = self.sums.setdefault(name, np.zeros((self.n_groups, *per_request.shape[1:])))
        np.add.at(total, group, per_request)

    def metrics(self, resamples: int, seed: int) -> dict:
        """{metric: {"value", "low", "high"}}; calibration is absent for a score that is no probability."""

        functions = {
            "auc": {"auc": Function(lambda s: ranking.auc_from_histogram(s[:, 0], s[:, 1], s[:, 2]))},
            "gauc": {"gauc": Function(lambda s: divide(s[:, 0], s[:, 1]))},
            "ndcg": {"ndcg": Function(lambda s: divide(s[:, 0], s[:, 1]))},
        }
        if self.is_probability:
            functions["logloss"] = {"logloss": Function(lambda s: divide(s[:, 0], s[:, 1]))}
            functions["bins"] = {
                "ece": Function(calibration.ece_of_bins, MODEL_MEASURES["ece"].rises_with_noise),
                "pcoc": Function(calibration.pcoc_of_bins),
                "mean_prediction": Function(lambda s: divide(s[:, 1].sum(-1), s[:, 0].sum(-1))),
            }
        values: dict[str, dict] = {}
        for kind, of_kind in functions.items():
            if kind in self.sums:
                measured = paired_functions_intervals({"": self.sums[kind]}, of_kind, "", resamples, seed)
                values |= {metric: by_arm[""] for metric, by_arm in measured.items()}
            else:
                values |= {metric: {"value": None, "low": None, "high": None} for metric in of_kind}
        return values
