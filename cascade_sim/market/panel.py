"""How much of the true value a deployed cascade finds: the same panel of requests for every deployment.

Of the k truly most valuable ads of a request's pre-ranking set (true CTR * bid, as in `measure`), recall is
the share that reaches ranking and win recall the share that is shown. Ranking consistency is watched beside
them: of what the deployed ranker would show if it saw the whole pre-ranking set (`shadow`), RCS is the share
that pre-ranking lets through. Bids are those at the start of the market, so that deployments and arms differ
in their models alone.

How the ranker orders is measured on the pre-ranking set, which is the same for every deployment: mean
prediction, AUC, log loss and ECE. AUC comes in four, all against the true CTR:

    gauc       per request, on its pre-ranking set; the mean over requests, weighed by candidates
    page_gauc  per request, on the page that the baseline shows there before any training: fixed pages, the
               same for all arms, of the kind that is shown; the plain mean over requests. It is what the
               paper on scale calibration reports of continual training (AUC per query, averaged over queries)
    auc        of all pre-ranking sets pooled, page_auc of all those pages pooled

Of as many of its requests as the corpus can be scored for, value_lost_STAGE is the part of the value of the
best page of the corpus (true CTR * bid) that is gone after each stage, so that what a retriever that learns
again does to the whole cascade is seen. corpus_coverage is the share of the corpus that was shown, other than
at random, since the deployment before.

What is pooled (AUC, ECE) is of the panel as a whole, so it has no interval within a world. Whether its level
holds shows in the mean raw score (before link and calibrator) of the ads that the first deployment shows:
fixed ads, of the kind that it learns from. On ads of another kind nothing in training holds the level of its
scores in place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cascade_sim.analysis.metrics.calibration import bin_sums, ece_of_bins, log_loss_sums
from cascade_sim.analysis.metrics.consistency import rcs, top_ids
from cascade_sim.analysis.metrics.ranking import table_auc
from cascade_sim.analysis.metrics.stability import deployments_of, drift_section
from cascade_sim.analysis.statistics.bootstrap import ratio_differences, ratio_intervals
from cascade_sim.analysis.statistics.days import market_lifts
from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cascade.scorers import ModelScorer, Scorer
from cascade_sim.cascade.serve import Arm, Block, retrieve, score, serve, shadow
from cascade_sim.environments.evaluators import corpus
from cascade_sim.environments.synthetic import Synthetic
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.study.simulation import Simulation

# metric -> (numerator, denominator) among the columns of a panel; None: the mean over requests.
PANEL_RATIOS: dict[str, tuple[str, str | None]] = {
    "recall": ("recall", None),
    "win_recall": ("win_recall", None),
    "rcs": ("rcs", None),
    "gauc": ("auc", "auc_weight"),  # of the ranker on the pre-ranking set, clicks weighed by the true CTR
    "page_gauc": ("auc_on_page", None),  # the same on the page that the baseline shows at the start
    "pcoc": ("predicted", "true"),  # of the ranker on the pre-ranking set
    "shown_pcoc": ("shown_predicted", "shown_true"),  # of the ranker on its own win set
    "mean_score": ("page_score", "page_ads"),  # before link and calibrator, on the pages of the start
    "mean_pctr": ("predicted", "candidates"),  # this and the rest: pre-ranking set
    "mean_ctr": ("true", "candidates"),
    "logloss": ("logloss", "candidates"),
}
PANEL_COLUMNS = tuple(
    dict.fromkeys(name for pair in PANEL_RATIOS.values() for name in pair if name is not None)
)
# metric -> a number of the panel as a whole, in an array of shape []
POOLED = {
    "auc": "pooled_auc",
    "page_auc": "pooled_page_auc",
    "ece": "pooled_ece",
    "corpus_coverage": "coverage",
}
MEASURED = (*PANEL_COLUMNS, *POOLED.values())
LOST = "lost "  # and a stage: what it loses of the value of the best page of the corpus
SETTLED = ("gauc", "page_gauc", "pcoc", "shown_pcoc", "logloss")  # averaged over deployments, too


class Panel:
    """A fixed set of requests and what is best for them. The same requests for all arms of a world."""

    def __init__(self, sim: Simulation, arm: Arm, n_requests: int):
        self._sim = sim
        size = sim.scenario.traffic.block
        self._blocks = [sim.arrivals.block("panel", i, n_requests) for i in range(-(-n_requests // size))]
        self._first_arm, self._is_timed = arm, sim.world.is_timed
        self._best = [self._best_ads(block, arm) for block in self._blocks]
        self._pages: list[np.ndarray] | None = None  # of the first deployment that is measured
        base = sim.scenario.report.baseline
        production = sim.arm(base, resolved_arms(sim.scenario)[base])
        self._common = [serve(block, production, sim.platform).win_set for block in self._blocks]
        has_corpus = sim.environment.has("corpus") and sim.environment.has("truth")
        self._n_corpus = corpus.n_detail(n_requests, sim.world.n_ads) if has_corpus else 0
        self._of_corpus = self._best_of_corpus()
        lost = [f"{LOST}{stage}" for stage in arm.stage_names] if has_corpus else []
        self.names = (*MEASURED, *(["best", *lost] if lost else []))  # what `measure` gives

    def _best_of_corpus(self) -> list[corpus.BestLists]:
        """The best pages of the corpus for the first requests, at the start's bids, block by block."""
        found, left, n_ads = [], self._n_corpus, self._sim.world.n_ads
        for block in self._blocks:
            if left > 0:
                world, part = Synthetic.of(self._sim.environment), block.take(slice(0, left))
                found.append(corpus.best_of_corpus(world, n_ads, self._first_arm, part))
            left -= len(block)
        return found

    def _lost(self, at: int, block: Block, arm: Arm) -> dict[str, np.ndarray]:
        """What stages lose of the best pages' value, and that value; 0 beyond the first requests.  [R]"""
        names = self.names[len(MEASURED) :]
        columns = {name: np.zeros(len(block)) for name in names}
        if at < len(self._of_corpus):
            best, world = self._of_corpus[at], Synthetic.of(self._sim.environment)
            part = block.take(slice(0, len(best.by_truth.ids)))
            decision = serve(part, arm, self._sim.platform)
            lost = corpus.attribution_columns(world, arm, part, decision, best)
            for name in names:
                columns[name][: len(part)] = lost[name]
        return columns

    def _best_ads(self, block: Block, arm: Arm) -> np.ndarray:
        """The k best ads of the pre-ranking set by true value.  [R, k]"""
        ids = retrieve(block, arm, self._sim.platform)
        value = self._sim.environment.true_value(block, ids, arm)
        return top_ids(ids, value, arm.slots)

    def measure(self, arm: Arm, now: float = 0.0) -> dict[str, np.ndarray]:
        """Per request, what the arm makes of the panel.  {column: [R] float64}; NaN where undefined

        POOLED are single numbers, []. In a world that changes with time the requests come `now`.
        """
        if self._is_timed:
            self._blocks = [replace(block, times=np.full(len(block), now)) for block in self._blocks]
            self._best = [self._best_ads(block, self._first_arm) for block in self._blocks]
            self._of_corpus = self._best_of_corpus()
        if self._pages is None:
            self._pages = [serve(block, arm, self._sim.platform).win_set for block in self._blocks]
        parts = zip(self._blocks, self._best, self._pages, strict=True)
        by_block = [self._columns(block, best, pages, arm) for block, best, pages in parts]
        for at, (table, _) in enumerate(by_block):
            table.update(self._lost(at, self._blocks[at], arm))
        names = by_block[0][0]
        columns = {name: np.concatenate([table[name] for table, _ in by_block]) for name in names}
        prediction, true_ctr = (np.concatenate([pair[i] for _, pair in by_block]) for i in (0, 1))
        pooled_auc, _ = table_auc(prediction[None], true_ctr[None])
        on_page, pooled_page_auc = self._on_common_pages(arm)
        return {
            **columns,
            "coverage": np.array(np.nan),  # the log knows it
            "auc_on_page": on_page,
            "pooled_auc": np.array(pooled_auc[0]),
            "pooled_page_auc": pooled_page_auc,
            "pooled_ece": np.array(ece_of_bins(bin_sums(prediction, true_ctr)), np.float64),
        }

    def _on_common_pages(self, arm: Arm) -> tuple[np.ndarray, np.ndarray]:
        """AUC of the arm's ranker on the baseline's pages: per request [R], and of all of them pooled []."""
        tables = []
        for block, ids in zip(self._blocks, self._common, strict=True):
            said = score(block, ids, arm.last, arm, self._sim.platform).prediction.astype(np.float64)
            true_ctr = self._sim.environment.ctr(block, ids)
            tables.append([np.where(ids >= 0, x, np.nan) for x in (said, true_ctr)])
        prediction, true_ctr = (np.concatenate([pair[i] for pair in tables]) for i in (0, 1))
        pooled, _ = table_auc(prediction.reshape(1, -1), true_ctr.reshape(1, -1))
        return table_auc(prediction, true_ctr)[0], np.array(pooled[0])

    def _columns(
        self, block: Block, best: np.ndarray, pages: np.ndarray, arm: Arm
    ) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Columns of a block, and the prediction and true CTR of every candidate in it."""
        platform, world = self._sim.platform, self._sim.environment
        block = replace(block, memo=BlockCache())  # both stages' scores and the candidates are found once
        decision, ideal = serve(block, arm, platform), serve(block, shadow(arm), platform)
        ids, shown = decision.retrieved, decision.win_set >= 0
        prediction = ideal.passes[0].scores.prediction.astype(np.float64)  # the ranker's
        true_ctr = world.ctr(block, ids)
        is_ad = ids >= 0
        auc, weight = table_auc(prediction, true_ctr, is_ad)
        loss, candidates = log_loss_sums(prediction, true_ctr, is_ad)
        columns = {
            "recall": rcs(best, decision.competitive_set),
            "win_recall": rcs(best, decision.win_set),
            "rcs": rcs(ideal.win_set, decision.competitive_set),
            "auc": auc * weight,
            "auc_weight": weight,
            "predicted": np.where(ids >= 0, prediction, 0.0).sum(axis=1),
            "true": true_ctr.sum(axis=1),
            "shown_predicted": np.where(shown, decision.ranked_pctr[:, :-1], 0.0).sum(
                axis=1, dtype=np.float64
            ),
            "shown_true": world.ctr(block, decision.win_set).sum(axis=1),
            "page_score": _raw_scores(arm.last.scorer, block, pages),
            "page_ads": (pages >= 0).sum(axis=1, dtype=np.float64),
            "candidates": candidates,
            "logloss": loss,
        }
        return columns, (prediction[is_ad], true_ctr[is_ad].astype(np.float64))


def _raw_scores(scorer: Scorer, block: Block, ids: np.ndarray) -> np.ndarray:
    """Sum of a trained model's scores over each request's ads.  [R]; NaN of what is built in and has none"""
    if not isinstance(scorer, ModelScorer):
        return np.full(len(ids), np.nan)
    return np.where(ids >= 0, scorer.checked_logit(block, ids), 0.0).sum(axis=1, dtype=np.float64)


def learning_sections(
    arms: Mapping[str, Mapping[str, Any]],
    baseline: str,
    resamples: int,
    seed: int,
    after: int | None = None,
) -> dict[str, dict[str, Any]]:
    """The section `learning` of each arm in metrics.json.

    arms: {arm: its market section, whose `learning` is what `Trainer.metrics` gave}. Lists have an entry per
    deployment (`time`, `version`); `difference` is that of the last one to the baseline's; `drift` judges the
    curve of the mean score (analysis.metrics.stability); `settled` are means over the deployments past the
    transient, of which `after` are left out, and their differences to the baseline's. Intervals resample the
    requests of the panel, the same in every arm; those of revenue lifts are over days.
    """
    revenue = _revenue(arms, baseline)
    sections: dict[str, dict[str, Any]] = {}
    for name, section in arms.items():
        raw = section["learning"]
        panel = _arrays(raw["panel"])
        ratios = ratios_of(panel[0])
        measured = [
            ratio_intervals({"": _columns_of(table)}, ratios, "", resamples, seed)[""] for table in panel
        ]
        learning = sections[name] = {
            **{key: value for key, value in raw.items() if key != "panel"},
            **{metric: [values[metric] for values in measured] for metric in ratios},
            **{
                metric: [_without_interval(table[column]) for table in panel]
                for metric, column in POOLED.items()
                if column in panel[0]
            },
            **revenue[name],
        }
        curve = {
            metric: [entry["value"] for entry in learning[metric]]
            for metric in ("mean_score", "pcoc", "shown_pcoc")
        }
        off = {"scale_off": curve["pcoc"], "shown_scale_off": curve["shown_pcoc"]}
        learning["drift"] = drift_section(raw["version"], curve["mean_score"], off, after=after)
        learning["settled"] = _settled(raw, arms[baseline]["learning"], after, resamples, seed)
        if name != baseline:
            base = _arrays(arms[baseline]["learning"]["panel"])
            both = {metric: pair for metric, pair in ratios.items() if metric in ratios_of(base[-1])}
            learning["difference"] = _differences(panel[-1], base[-1], both, resamples, seed)
            if raw["time"] == arms[baseline]["learning"]["time"]:
                recall = {"recall": PANEL_RATIOS["recall"]}
                learning["recall_difference"] = [
                    _differences(own, other, recall, resamples, seed)["recall"]
                    for own, other in zip(panel, base, strict=True)
                ]
    return sections


def ratios_of(columns: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
    """PANEL_RATIOS, and the part of the best pages' value that each stage of an arm loses."""
    stages = [name.removeprefix(LOST) for name in columns if name.startswith(LOST)]
    return PANEL_RATIOS | {f"value_lost_{stage}": (f"{LOST}{stage}", "best") for stage in stages}


def _settled(
    own: Mapping[str, Any], base: Mapping[str, Any], after: int | None, resamples: int, seed: int
) -> dict[str, Any]:
    """Means over the deployments past the transient: what one deployment more or less does not change.

    Each request's figures are averaged first, and requests resampled then. `difference`: to the baseline on
    the same requests; also there for the baseline itself, as 0.
    """
    tables = {}
    for name, raw in (("own", own), ("base", base)):
        panel = _arrays([raw["panel"][i] for i in deployments_of(raw["version"], after)[1]])
        if not panel:
            return {}
        tables[name] = {key: np.mean([table[key] for table in panel], axis=0) for key in panel[0]}
    columns = {name: _columns_of(table) for name, table in tables.items()}
    ratios = {metric: names for metric, names in PANEL_RATIOS.items() if metric in SETTLED}
    levels = ratio_intervals(columns, ratios, "base", resamples, seed)["own"]
    known = {metric: column for metric, column in POOLED.items() if column in tables["own"]}
    pooled = {metric: [tables[name][column] for name in ("own", "base")] for metric, column in known.items()}
    return {
        **{metric: {key: levels[metric][key] for key in ("value", "low", "high")} for metric in ratios},
        **{metric: _without_interval(value) for metric, (value, _) in pooled.items()},
        "difference": {
            **ratio_differences(columns, ratios, "base", resamples, seed)["own"],
            **{metric: _without_interval(value - other) for metric, (value, other) in pooled.items()},
        },
    }


def _without_interval(value: np.ndarray) -> dict[str, float | None]:
    return {"value": _number(value), "low": None, "high": None}


def _number(value: np.ndarray) -> float | None:
    return float(value) if np.isfinite(value) else None


def _arrays(panel: Sequence[Mapping[str, Sequence[float | None]]]) -> list[dict[str, np.ndarray]]:
    """Columns from JSON, where None stands for NaN."""
    return [{name: np.array(values, np.float64) for name, values in table.items()} for table in panel]


def _columns_of(panel: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns with a value per request, without the single numbers of POOLED."""
    return {name: values for name, values in panel.items() if values.ndim == 1}


def _differences(
    own: Mapping[str, np.ndarray],
    base: Mapping[str, np.ndarray],
    ratios: Mapping[str, tuple[str, str | None]],
    resamples: int,
    seed: int,
) -> dict[str, dict[str, Any]]:
    """Ratios of one deployment less those of another on the same requests, resampled together."""
    columns = {"own": _columns_of(own), "base": _columns_of(base)}
    return ratio_differences(columns, ratios, "base", resamples, seed)["own"]


def _revenue(arms: Mapping[str, Mapping[str, Any]], baseline: str) -> dict[str, dict[str, Any]]:
    """Revenue per request, over all and by day, with lifts over the baseline.

    Intervals of lifts are over days (analysis.statistics.days), where there are enough; levels have none.
    """
    lifts = market_lifts(arms, baseline, ("revenue_per_request",))

    def between(name: str, start: int, stop: int) -> float | None:
        hours = arms[name]["hours"]
        requests = float(np.sum(hours["requests"][start:stop]))
        return float(np.sum(hours["revenue"][start:stop])) / requests if requests else None

    sections = {}
    for name, section in arms.items():
        n_hours = len(section["hours"]["requests"])
        whole: dict[str, Any] = {"value": between(name, 0, n_hours), "low": None, "high": None}
        if name in lifts:
            whole["lift"] = lifts[name]["revenue_per_request"]
        by_day: list[dict[str, Any]] = []
        for start in range(0, n_hours, 24):
            own, base = (between(arm, start, start + 24) for arm in (name, baseline))
            by_day.append({"value": own, "low": None, "high": None})
            if name in lifts:
                change = own / base - 1 if own is not None and base else None
                by_day[-1]["lift"] = {"value": change, "low": None, "high": None}
        sections[name] = {"revenue_per_request": whole, "revenue_by_day": by_day}
    return sections
