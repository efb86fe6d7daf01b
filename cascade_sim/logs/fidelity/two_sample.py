"""Can a classifier tell the log from the world? And two periods of the log from each other?

Gradient boosting is trained to say of a request, or of a shown ad, which of two markets it comes from, and is
asked about requests that it has not seen (cross-fitting). The AUC is 0.5 where nothing tells them apart. Two
periods of one log differ a little, too: the AUC between them (within the log) is what it is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascade_sim.analysis.statistics.bootstrap import resample_counts
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.fidelity.sample import HOUR, Sample
from cascade_sim.logs.fidelity.summary_statistics import MICROS, entry

FOLDS = 5
MOST = 10_000  # requests of each side
MAX_SHOWN = 20_000  # rows of each side
MAX_ASKED = 2_000  # rows of a fold by which features are judged
RESAMPLES = 200
MIN_DAYS = 2.0  # with fewer, two periods are other hours of the day, and the hour says nothing
GUESS = 0.5  # of AUC: less is noise of a small sample, and tells nothing apart
TELLING = 0.01  # of AUC: what a feature must be worth to be named
INSTALL = "python -m pip install 'cascade_sim[fit]'"


@dataclass(frozen=True)
class Table:
    """What the classifier sees: a row per request or per shown ad.  values [n, f], group [n]"""

    names: tuple[str, ...]
    categorical: tuple[str, ...]
    values: np.ndarray
    group: np.ndarray  # rows of one request, and its copies, have the same


def boosting() -> Any:
    """scikit-learn's histogram gradient boosting; UserError with the command where it is not installed."""
    try:
        from sklearn import ensemble
    except ImportError:
        raise UserError(f"this needs scikit-learn, which is not installed: {INSTALL}") from None
    return ensemble


def one_thread() -> Any:
    """Sums of floats then do not depend on how many cores there are, nor do threads wait for each other."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1)


def request_table(sample: Sample, with_hour: bool) -> Table:
    """A row per request: how many candidates, what they bid and promise, who won, at what price."""
    rows, n = sample.request, len(sample)
    columns: dict[str, np.ndarray] = {
        "candidates": np.bincount(rows, minlength=n),
        "ranked": np.bincount(rows, sample.candidates["stage"] >= 1, n),
        "shown": np.bincount(rows, sample.is_shown, n),
        "slots": sample.requests["slots"],
    }
    logs = {}
    if sample.has("bid"):
        logs["bid"] = _log(sample.candidates["bid"])
    if sample.has("pctr"):
        logs["pctr"] = _log(sample.candidates["pctr"])
    if len(logs) == 2:
        logs["ecpm"] = logs["bid"] + logs["pctr"]
    for name in sample.candidates:
        if name in ("init_bid", "pcvr", "pre_score") or name.startswith(("score.", "feature.")):
            logs[name] = sample.candidates[name].astype(np.float64)
    for name, values in logs.items():
        columns |= {f"{name}: {what}": of for what, of in _summaries(values, rows, n).items()}
    if sample.has("bid", "pctr"):
        columns["bid and pctr together"] = _together(logs["bid"], logs["pctr"], rows, n)
    shown = np.flatnonzero(sample.is_shown)
    if sample.has("price_micros"):
        paid = _log(sample.candidates["price_micros"][shown] / MICROS)
        columns |= {f"price: {what}": of for what, of in _summaries(paid, rows[shown], n).items()}
    if sample.has("click"):
        columns["clicks"] = np.bincount(rows[shown], sample.candidates["click"][shown] == 1, n)
    if sample.has("conversion"):
        columns["conversions"] = np.bincount(rows[shown], sample.candidates["conversion"][shown] == 1, n)
    return _table({**columns, **_of_request(sample, with_hour)}, sample.group)


def shown_table(sample: Sample, with_hour: bool) -> Table:
    """A row per shown ad: its slot, bid, prediction and price, whether it was clicked, and its request."""
    at = np.flatnonzero(sample.is_shown)
    if len(at) > MAX_SHOWN:
        at = at[np.linspace(0, len(at) - 1, MAX_SHOWN).astype(np.int64)]
    rows = sample.request[at]
    columns: dict[str, np.ndarray] = {"slot": sample.candidates["slot"][at]}
    for name in ("bid", "pctr"):
        if sample.has(name):
            columns[name] = _log(sample.candidates[name][at])
    if sample.has("price_micros"):
        columns["price"] = _log(sample.candidates["price_micros"][at] / MICROS)
        if "bid" in columns:
            columns["price to bid"] = columns["price"] - columns["bid"]
    for name in sample.candidates:
        if name in (
            "click",
            "conversion",
            "conversion_delay",
            "init_bid",
            "pcvr",
            "pre_score",
        ) or name.startswith(("score.", "feature.")):
            columns[name] = sample.candidates[name][at]
    columns["candidates"] = np.bincount(sample.request, minlength=len(sample))[rows]
    of_request = {name: values[rows] for name, values in _of_request(sample, with_hour).items()}
    return _table({**columns, **of_request}, sample.group[rows])


CATEGORICAL = ("segment", "placement")


def _of_request(sample: Sample, with_hour: bool) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    if with_hour:
        columns["hour"] = sample.requests["time"] // HOUR % 24
    reserve = sample.requests.get("reserve")
    if reserve is not None and np.isfinite(reserve).all():
        columns["reserve"] = reserve
    for name in CATEGORICAL:
        if name in sample.requests and len(np.unique(sample.requests[name])) > 1:
            columns[name] = sample.requests[name]
    columns |= {name: sample.requests[name] for name in sample.requests if name.startswith("feature.")}
    return columns


def _log(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, np.float64)
    return np.log(np.where(values > 0, values, np.nan))


def _summaries(values: np.ndarray, rows: np.ndarray, n: int) -> dict[str, np.ndarray]:
    """Mean, spread, highest and second highest of each request; NaN where there are none.  [n] each"""
    is_known = np.isfinite(values)
    values, rows = values[is_known], rows[is_known]
    count = np.bincount(rows, minlength=n).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(rows, values, n) / count
        spread = np.sqrt(np.bincount(rows, (values - mean[rows]) ** 2, n) / count)
    order = np.lexsort((-values, rows))
    first = np.searchsorted(rows[order], np.arange(n))
    ranked = np.append(values[order], np.nan)
    highest = np.where(count > 0, ranked[np.minimum(first, len(values))], np.nan)
    second = np.where(count > 1, ranked[np.minimum(first + 1, len(values))], np.nan)
    return {"mean": mean, "spread": spread, "highest": highest, "second": second}


def _together(a: np.ndarray, b: np.ndarray, rows: np.ndarray, n: int) -> np.ndarray:
    """Correlation of two columns within each request; NaN where one of them does not vary.  [n]"""
    known = np.isfinite(a) & np.isfinite(b)
    a, b, rows = a[known], b[known], rows[known]
    count = np.bincount(rows, minlength=n).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = (x - (np.bincount(rows, x, n) / count)[rows] for x in (a, b))
        scale = np.sqrt(np.bincount(rows, a * a, n) * np.bincount(rows, b * b, n))
        return np.where(scale > 1e-12, np.bincount(rows, a * b, n) / scale, np.nan)


def _table(columns: Mapping[str, np.ndarray], group: np.ndarray) -> Table:
    categorical = tuple(name for name in columns if columns[name].dtype.kind == "U")
    values = np.empty((len(group), len(columns)), object if categorical else np.float64)
    for place, column in enumerate(columns.values()):
        values[:, place] = column
    return Table(tuple(columns), categorical, values, group)


def both(log: Table, world: Table) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """The columns that both tables have, in one: names, where categories are, values [n, f] float64."""
    names = tuple(name for name in log.names if name in world.names)
    is_category = np.array([name in log.categorical for name in names], bool)
    values = np.empty((len(log.group) + len(world.group), len(names)))
    for place, name in enumerate(names):
        column = np.concatenate([table.values[:, table.names.index(name)] for table in (log, world)])
        if is_category[place]:
            _, codes, counts = np.unique(column.astype(str), return_inverse=True, return_counts=True)
            common = np.argsort(np.argsort(-counts, kind="stable"), kind="stable")
            column = np.minimum(common[codes], MAX_CATEGORIES - 1)  # rare ones together
        values[:, place] = column.astype(np.float64)
    return names, is_category, values


MAX_CATEGORIES = 250  # of what the booster takes


def auc(score: np.ndarray, is_second: np.ndarray, weight: np.ndarray | None = None) -> float:
    """The chance that a row of the second side has the higher score; ties count half."""
    weight = np.ones(len(score)) if weight is None else weight
    place = np.unique(score, return_inverse=True)[1]
    return _auc(place, is_second, weight)


def _auc(place: np.ndarray, is_second: np.ndarray, weight: np.ndarray) -> float:
    """The same of the places that scores have among the different ones."""
    seconds = np.bincount(place, weight * is_second)
    firsts = np.bincount(place, weight * ~is_second)
    below = np.cumsum(firsts) - firsts / 2
    total = seconds.sum() * firsts.sum()
    return float(np.sum(seconds * below) / total) if total > 0 else np.nan


def two_sample_auc(log: Table, world: Table, seed: int, resamples: int = RESAMPLES) -> dict[str, Any]:
    """The cross-fitted AUC between two tables with its interval, and the features that it comes from.

    Folds and resamples are of requests with their copies. Features are named by how much AUC is lost when the
    column is shuffled among the rows of the fold that is asked.
    """
    names, is_category, values = both(log, world)
    is_world = np.arange(len(values)) >= len(log.group)
    group = np.concatenate([log.group, world.group])
    fold = (draws.bits(seed, "two samples fold", group) % np.uint64(FOLDS)).astype(np.int64)
    maker = boosting()
    score, lost = np.full(len(values), 0.5), np.zeros((FOLDS, len(names)))
    # rows of one side are together: a part of the fold must not be of the log alone
    mixed = np.argsort(draws.uniform(seed, "two samples order", np.arange(len(values))), kind="stable")
    for own in range(FOLDS):
        held = mixed[fold[mixed] == own]
        learned = np.flatnonzero(fold != own)
        if len(np.unique(is_world[learned])) < 2 or len(np.unique(is_world[held])) < 2:
            raise UserError(
                "there are too few requests to tell two markets apart; at least some hundreds are needed"
            )
        model = maker.HistGradientBoostingClassifier(
            max_iter=40, max_leaf_nodes=15, learning_rate=0.15, min_samples_leaf=40,
            categorical_features=is_category if is_category.any() else None,
            early_stopping=False, random_state=0,
        )  # fmt: skip
        with one_thread():
            model.fit(values[learned], is_world[learned])
            score[held] = model.predict_proba(values[held])[:, 1]
            lost[own] = _lost_without(model, values[held[:MAX_ASKED]], is_world[held[:MAX_ASKED]], seed)
    replicates = _fold_aucs(score, is_world, fold, group, resamples, seed)
    alone = {
        name: auc(np.nan_to_num(values[:, place], nan=-1e300), is_world)
        for place, name in enumerate(names)
        if not is_category[place]
    }
    order = np.argsort(-lost.mean(axis=0), kind="stable")
    return {
        "auc": entry(replicates),
        "rows": {"log": int((~is_world).sum()), "world": int(is_world.sum())},
        "columns": list(names),
        "features": [
            {
                "name": names[i],
                "permutation_importance": float(lost[:, i].mean()),
                "single_feature_auc": alone.get(names[i]),
            }
            for i in order
        ],
        "replicates": replicates,
    }


def _lost_without(model: Any, values: np.ndarray, is_world: np.ndarray, seed: int) -> np.ndarray:
    """How much AUC is lost when a column is shuffled, for every column.  [n, f] -> [f]"""
    order = np.argsort(draws.uniform(seed, "two samples shuffle", np.arange(len(values))), kind="stable")
    base = auc(model.predict_proba(values)[:, 1], is_world)
    lost = np.zeros(values.shape[1])
    for place in range(values.shape[1]):
        changed = values.copy()
        changed[:, place] = changed[order, place]
        lost[place] = base - auc(model.predict_proba(changed)[:, 1], is_world)
    return lost


def _fold_aucs(
    score: np.ndarray, is_world: np.ndarray, fold: np.ndarray, group: np.ndarray, resamples: int, seed: int
) -> np.ndarray:
    """The mean of the folds' AUCs on the data (first) and on resamples of requests.  [1 + resamples]"""
    units, unit = np.unique(group, return_inverse=True)
    parts = []
    for own in range(FOLDS):
        at = np.flatnonzero(fold == own)
        parts.append((at, np.unique(score[at], return_inverse=True)[1]))

    def mean(weight: np.ndarray) -> float:
        return float(np.mean([_auc(place, is_world[at], weight[at]) for at, place in parts]))

    found = [mean(np.ones(len(score)))]
    for counts in resample_counts(len(units), resamples, seed):
        found += [mean(own[unit]) for own in counts]
    return np.array(found)


def two_sample_test(
    log: Sample, world: Sample, periods: tuple[Sample, Sample] | None, seed: int, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """By requests and by shown ads: the AUC between log and world, that within the log, and the excess."""
    with_hour = log.days >= MIN_DAYS and world.days >= MIN_DAYS / 2
    found: dict[str, Any] = {"with_hour": with_hour}
    for what, table in (("requests", request_table), ("shown", shown_table)):
        own = two_sample_auc(table(log, with_hour), table(world, with_hour), seed, resamples)
        drawn = own.pop("replicates")
        found[what] = own
        if periods is not None:
            before, after = (table(period, with_hour) for period in periods)
            yard = two_sample_auc(before, after, seed + 1, resamples)
            usual = yard.pop("replicates")
            found[what] |= {
                "within_log": yard,
                "excess_auc": entry(np.maximum(drawn, GUESS) - np.maximum(usual, GUESS)),
            }
    return found


def telling_features(test: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of a test that distinguish the world from the log, and not the log's periods from each other."""
    key = "permutation_importance"
    usual = {f["name"]: f[key] for f in (test.get("within_log") or {}).get("features", ())}
    return [f for f in test["features"] if f[key] > TELLING + max(0.0, usual.get(f["name"], 0.0))]
