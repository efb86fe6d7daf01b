"""How good each model is on the win set (what was shown), the competitive set and those of earlier stages.

Predictions are compared with the truth and, in level, against the ranker's (`proxy_pcoc`). Also the curves of
the report: distributions of predictions on the sets, and the reliability of the pre-ranking predictions
against the ranker's.
"""

from collections.abc import Callable, Collection

import numpy as np

from cascade_sim.analysis.metrics import calibration
from cascade_sim.analysis.metrics.ratio import divide
from cascade_sim.analysis.statistics.bootstrap import Function, paired_functions_intervals
from cascade_sim.cascade.scorers import Scorer, is_probability
from cascade_sim.cascade.serve import Arm, Block, Decision
from cascade_sim.environments.evaluators.model_quality import LOG10_EDGES, ModelQuality
from cascade_sim.foundation.limits import GROUPS
from cascade_sim.study.simulation import Simulation

PROXY_SET = "pre_ranking_set"  # on which students are compared with the ranker


class QualityStudy:
    """Collects every model on all sets of the baseline's decisions, against a truth: the CTR, if None.

    With a ranker, which then comes first, also the models' reliability against its predictions.
    """

    def __init__(
        self,
        sim: Simulation,
        models: list[str],
        ranker: str | None,
        baseline: Arm,
        n_requests: int,
        truth: Callable[[Block, np.ndarray], np.ndarray] | None = None,
    ):
        self._truth, self._ranker = truth or sim.environment.ctr, ranker
        self.sets = tuple(reversed(baseline.set_names))  # the win set first
        self.n_groups = max(1, min(GROUPS, n_requests))
        first = [] if ranker is None else [ranker]
        self.models = {name: sim.scorers[name] for name in [*first, *[m for m in models if m != ranker]]}
        self.by_model = {
            name: {kind: ModelQuality(is_probability(scorer), self.n_groups) for kind in self.sets}
            for name, scorer in self.models.items()
        }
        self._reliability: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in self.models}

    def add(self, block: Block, decision: Decision, group: np.ndarray) -> None:
        """Add a block; `group` [R] says which group of requests each belongs to."""
        for kind, ids in zip(self.sets, reversed(decision.sets), strict=True):
            valid = ids >= 0
            true_rate = self._truth(block, ids)
            predictions = {name: scorer.predict(block, ids) for name, scorer in self.models.items()}
            for name, prediction in predictions.items():
                self.by_model[name][kind].add(prediction, true_rate, valid, group)
                if kind == PROXY_SET and self._is_student(name):
                    assert self._ranker is not None
                    self._reliability[name].append((prediction[valid], predictions[self._ranker][valid]))

    def _is_student(self, name: str) -> bool:
        """Whether its predictions can be compared with a ranker's."""
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
        for kind in self.sets:
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
        for kind in self.sets:
            density = {}
            for name, sets in self.by_model.items():
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
