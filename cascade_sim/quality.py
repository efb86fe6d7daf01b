"""How good each model is on what was shown (win set) and on what was not (pre-ranking set).

Predictions are held against the truth. Also the curves of the report: distributions of predictions on
both sets, and the reliability of the pre-ranking predictions against the ranker's.
"""

from dataclasses import dataclass, field

import numpy as np

from analysis import calibration, discrimination
from analysis.intervals import function_intervals, sum_groups
from cascade_sim.cascade import Block, Decision
from cascade_sim.seats import Scorer
from cascade_sim.simulation import Simulation

SETS = ("win_set", "pre_ranking_set")
GROUPS = 128
LOG10_EDGES = np.linspace(-5.0, 0.0, 61)
LOGIT_EDGES = np.linspace(-14.0, 8.0, 441)  # inner edges of the AUC's histogram; outside: the end bins


@dataclass
class ModelQuality:
    """Additive statistics of one model on one set; lists grow by one array per block."""

    is_probability: bool
    histogram: list[np.ndarray] = field(default_factory=list)  # [R, 3, B]
    bins: list[np.ndarray] = field(default_factory=list)  # [R, 3, 100]
    group_auc: list[np.ndarray] = field(default_factory=list)  # [R, 2]: AUC * weight, weight
    log_loss: list[np.ndarray] = field(default_factory=list)  # [R, 2]: total, count
    density: np.ndarray = field(default_factory=lambda: np.zeros(len(LOG10_EDGES) - 1))

    def add(self, prediction: np.ndarray, true_ctr: np.ndarray, valid: np.ndarray) -> None:
        """prediction, true_ctr, valid: [R, m]"""
        p = np.asarray(prediction, np.float64)
        logit = np.log(np.clip(p, 1e-12, None))
        if self.is_probability:
            logit -= np.log1p(-np.clip(p, 0.0, 1.0 - 1e-12))
        self.histogram.append(
            discrimination.score_histogram(logit, true_ctr, LOGIT_EDGES, valid).astype(np.float32)
        )
        auc, weight = discrimination.group_auc(p, true_ctr, valid)
        self.group_auc.append(
            np.stack([np.where(weight > 0, np.nan_to_num(auc), 0.0) * weight, weight], axis=1)
        )
        if not self.is_probability:
            return
        self.bins.append(calibration.ece_bins(p, true_ctr, valid=valid).astype(np.float32))
        self.log_loss.append(np.stack(calibration.log_loss(p, true_ctr, valid), axis=1))
        self.density += np.histogram(np.log10(np.clip(p[valid], 1e-12, 1.0)), LOG10_EDGES)[0]

    def metrics(self, resamples: int, seed: int) -> dict:
        """{metric: {"value", "low", "high"}}; calibration is null for a score that is no probability."""

        def measure(parts: list[np.ndarray], function) -> dict:
            return function_intervals(sum_groups(np.concatenate(parts), GROUPS), function, resamples, seed)

        found = {
            "auc": measure(
                self.histogram, lambda s: discrimination.auc_from_histogram(s[:, 0], s[:, 1], s[:, 2])
            ),
            "gauc": measure(self.group_auc, lambda s: s[:, 0] / s[:, 1]),
        }
        if self.is_probability:
            found["logloss"] = measure(self.log_loss, lambda s: s[:, 0] / s[:, 1])
            found["ece"] = measure(self.bins, calibration.ece)
            found["pcoc"] = measure(self.bins, lambda s: calibration.pcoc(s[:, 1].sum(-1), s[:, 2].sum(-1)))
            found["mean_prediction"] = measure(self.bins, lambda s: s[:, 1].sum(-1) / s[:, 0].sum(-1))
        return found


class QualityStudy:
    """Collects every model on both sets of the baseline's decisions."""

    def __init__(self, sim: Simulation, models: list[str], ranker: str):
        self._sim, self._ranker = sim, ranker
        self.models = {name: sim.scorers[name] for name in [ranker, *[m for m in models if m != ranker]]}
        self.found = {
            name: {kind: ModelQuality(scorer.link == "sigmoid") for kind in SETS}
            for name, scorer in self.models.items()
        }
        self._reliability: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in self.models}

    def add(self, block: Block, decision: Decision) -> None:
        sets = {"win_set": decision.win_set, "pre_ranking_set": decision.pre_ranking_set}
        for kind, ids in sets.items():
            valid = ids >= 0
            true_ctr = self._sim.truth.ctr(block, ids)
            predictions = {name: scorer.predict(block, ids) for name, scorer in self.models.items()}
            for name, prediction in predictions.items():
                self.found[name][kind].add(prediction, true_ctr, valid)
                if kind == "pre_ranking_set" and self._is_student(name):
                    self._reliability[name].append((prediction[valid], predictions[self._ranker][valid]))

    def _is_student(self, name: str) -> bool:
        scorer: Scorer = self.models[name]
        return name != self._ranker and scorer.link == "sigmoid"

    def metrics(self, resamples: int, seed: int) -> dict:
        return {
            name: {kind: quality.metrics(resamples, seed) for kind, quality in sets.items()}
            for name, sets in self.found.items()
        }

    def curves(self) -> dict:
        """The `curves` section of metrics.json."""
        distribution = {}
        for kind in SETS:
            density = {}
            for name, sets in self.found.items():
                total = sets[kind].density.sum()
                if total > 0:
                    density[name] = (sets[kind].density / total / np.diff(LOG10_EDGES)).tolist()
            distribution[kind] = {"edges": LOG10_EDGES.tolist(), "density": density}
        reliability = {}
        for name, pairs in self._reliability.items():
            if pairs:
                curve = calibration.reliability_curve(
                    np.concatenate([p for p, _ in pairs]), np.concatenate([q for _, q in pairs])
                )
                reliability[name] = {
                    "predicted": curve["predicted"].tolist(),
                    "ranker": curve["reference"].tolist(),
                    "count": curve["count"].tolist(),
                }
        return {"score_distribution": distribution, "proxy_reliability": reliability}
