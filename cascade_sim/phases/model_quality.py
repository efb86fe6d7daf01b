"""How good each model is on the win set (what was shown), the competitive set and the pre-ranking set.

Predictions are held against the truth and, in level, against the ranker's (`proxy_pcoc`). Also the curves of
the report: distributions of predictions on the sets, and the reliability of the pre-ranking predictions
against the ranker's.
"""

from collections.abc import Callable, Collection

import numpy as np

from cascade_sim.analysis import metrics
from cascade_sim.analysis.metrics import order, scale
from cascade_sim.analysis.metrics.catalogue import MODEL_MEASURES
from cascade_sim.analysis.metrics.ratio import divide
from cascade_sim.analysis.statistics.bootstrap import Function, paired_functions_intervals
from cascade_sim.cascade.seats import Scorer, is_probability
from cascade_sim.cascade.serve import Block, Decision
from cascade_sim.phases.simulation import Simulation

SETS = ("win_set", "competitive_set", "pre_ranking_set")
GROUPS = 128  # of consecutive requests, over which the intervals resample
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
        auc, weight = order.table_auc(p, true_ctr, valid)
        weighted = np.where(weight > 0, np.nan_to_num(auc), 0.0) * weight
        self._tally("gauc", np.stack([weighted, weight], axis=1), group)
        # The gain of an ad is its true CTR, so NDCG is a share of the clicks that the best order would get.
        lists = np.concatenate([[0], np.cumsum(valid.sum(axis=1))])
        ndcg = metrics.ndcg(p[valid], true_ctr[valid], lists, k=NDCG_DEPTH, gain="linear")
        counted = np.stack([np.where(ndcg.valid, ndcg.value, 0.0), ndcg.valid], axis=1)
        self._tally("ndcg", counted.astype(np.float64), group)
        self._tally("auc", order.score_histogram(p, true_ctr, self.edges, valid), group)
        if self.is_probability:
            self._tally("bins", scale.bin_sums(p, true_ctr, valid=valid), group)
            self._tally("logloss", np.stack(scale.log_loss_sums(p, true_ctr, valid), axis=1), group)
            self.density += np.histogram(np.log10(np.clip(p[valid], 1e-12, 1.0)), LOG10_EDGES)[0]

    def _tally(self, name: str, per_request: np.ndarray, group: np.ndarray) -> None:
        total = self.sums.setdefault(name, np.zeros((self.n_groups, *per_request.shape[1:])))
        np.add.at(total, group, per_request)

    def metrics(self, resamples: int, seed: int) -> dict:
        """{metric: {"value", "low", "high"}}; calibration is absent for a score that is no probability."""

        functions = {
            "auc": {"auc": Function(lambda s: order.auc_from_histogram(s[:, 0], s[:, 1], s[:, 2]))},
            "gauc": {"gauc": Function(lambda s: divide(s[:, 0], s[:, 1]))},
            "ndcg": {"ndcg": Function(lambda s: divide(s[:, 0], s[:, 1]))},
        }
        if self.is_probability:
            functions["logloss"] = {"logloss": Function(lambda s: divide(s[:, 0], s[:, 1]))}
            functions["bins"] = {
                "ece": Function(scale.ece_of_bins, MODEL_MEASURES["ece"].rises_with_noise),
                "pcoc": Function(scale.pcoc_of_bins),
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


class QualityStudy:
    """Collects every model on the three sets of the baseline's decisions, against a truth: the CTR, if None.

    With a ranker, which then comes first, also the models' reliability against its predictions.
    """

    def __init__(
        self,
        sim: Simulation,
        models: list[str],
        ranker: str | None,
        n_requests: int,
        truth: Callable[[Block, np.ndarray], np.ndarray] | None = None,
    ):
        self._truth, self._ranker = truth or sim.truth.ctr, ranker
        self.n_groups = max(1, min(GROUPS, n_requests))
        first = [] if ranker is None else [ranker]
        self.models = {name: sim.scorers[name] for name in [*first, *[m for m in models if m != ranker]]}
        self.by_model = {
            name: {kind: ModelQuality(is_probability(scorer), self.n_groups) for kind in SETS}
            for name, scorer in self.models.items()
        }
        self._reliability: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in self.models}

    def add(self, block: Block, decision: Decision, group: np.ndarray) -> None:
        """Add a block; `group` [R] says which group of requests each belongs to."""
        for kind in SETS:
            ids: np.ndarray = getattr(decision, kind)
            valid = ids >= 0
            true_rate = self._truth(block, ids)
            predictions = {name: scorer.predict(block, ids) for name, scorer in self.models.items()}
            for name, prediction in predictions.items():
                self.by_model[name][kind].add(prediction, true_rate, valid, group)
                if kind == "pre_ranking_set" and self._is_student(name):
                    assert self._ranker is not None
                    self._reliability[name].append((prediction[valid], predictions[self._ranker][valid]))

    def _is_student(self, name: str) -> bool:
        """Whether its predictions can be held against a ranker's."""
        scorer: Scorer = self.models[name]
        return self._ranker is not None and name != self._ranker and is_probability(scorer)

    def metrics(self, resamples: int, seed: int) -> dict:
        return {
            name: {
                **{kind: quality.metrics(resamples, seed) for kind, quality in sets.items()},
                **({"proxy_pcoc": self._proxy_pcoc(name, resamples, seed)} if self._is_student(name) else {}),
            }
            for name, sets in self.by_model.items()
        }

    def _proxy_pcoc(self, name: str, resamples: int, seed: int) -> dict:
        """Mean prediction over the ranker's mean prediction, of the same ads of each set."""
        assert self._ranker is not None
        level = {"proxy_pcoc": Function(lambda sums: divide(sums[:, 0], sums[:, 1]))}
        entries = {}
        for kind in SETS:
            bins = [self.by_model[model][kind].sums.get("bins") for model in (name, self._ranker)]
            if any(sums is None for sums in bins):
                entries[kind] = {"value": None, "low": None, "high": None}
                continue
            both = np.stack([sums[:, 1].sum(axis=-1) for sums in bins if sums is not None], axis=1)
            measured = paired_functions_intervals({"": both}, level, "", resamples, seed)
            entries[kind] = measured["proxy_pcoc"][""]
        return entries

    def reliability(self, models: Collection[str]) -> dict:
        """Count, sum of predictions and sum of true CTRs by bin of the prediction, on the win set."""
        curves = {}
        for name in self.models:
            bins = self.by_model[name]["win_set"].sums.get("bins")
            if name in models and bins is not None:
                parts = zip(("count", "predicted", "truth"), bins.sum(axis=0).tolist(), strict=True)
                curves[name] = dict(parts)
        return curves

    def curves(self) -> dict:
        """The `curves` section of metrics.json."""
        distribution = {}
        for kind in SETS:
            density = {}
            for name, sets in self.by_model.items():
                total = sets[kind].density.sum()
                if total > 0:
                    density[name] = (sets[kind].density / total / np.diff(LOG10_EDGES)).tolist()
            distribution[kind] = {"edges": LOG10_EDGES.tolist(), "density": density}
        reliability = {}
        for name, pairs in self._reliability.items():
            if pairs:
                curve = scale.reliability_curve(
                    np.concatenate([p for p, _ in pairs]), np.concatenate([q for _, q in pairs])
                )
                reliability[name] = {
                    "predicted": curve["predicted"].tolist(),
                    "ranker": curve["reference"].tolist(),
                    "count": curve["count"].tolist(),
                }
        return {"score_distribution": distribution, "proxy_reliability": reliability}
