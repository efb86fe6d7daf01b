"""The response of users, fitted to a log: how often any candidate would be clicked in the first slot.

Arrays in, calibrated probabilities out. Boosted trees see whatever the log has of a pair: logged predictions,
features, the hour, segment and placement, and how often an ad, an advertiser, a user and a segment with an ad
were clicked elsewhere. Each request is answered by models that did not see it (cross-fitting): trees with
several seeds and a logistic regression beside them, whose logits are averaged. Slots are effects of their
own, found together with the rest, so that an ad that always stood first is not taken for one that people
like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascade_sim import draws
from cascade_sim.errors import UserError
from cascade_sim.likeness.two_sample import boosting, one_thread

FOLDS = 5
MODELS = 2  # of each fold
FEWEST_CLICKS = 100
PRIOR = 30.0  # impressions that an id's rate is drawn towards the mean by
ROUNDS = 3  # of slot effects and trees in turn
LEAST, MOST = 1e-6, 1.0 - 1e-6
FEWEST_IN_CELL = 200  # impressions of a slot or segment that is checked


@dataclass(frozen=True)
class Pairs:
    """Logged candidates [C]: what is known of them, and what happened.

    click and slot are -1 where an ad was not shown. Columns of `numbers` may hold NaN; `ids` are codes, -1
    unknown, whose rates of clicks elsewhere become numbers; `categories` are codes for the trees themselves.
    """

    request: np.ndarray
    slot: np.ndarray
    click: np.ndarray
    numbers: Mapping[str, np.ndarray]
    ids: Mapping[str, np.ndarray]
    categories: Mapping[str, np.ndarray]

    @property
    def is_learned(self) -> np.ndarray:
        return (self.slot >= 0) & (self.click >= 0)


@dataclass(frozen=True)
class Response:
    """A fitted response.

    ctr           [C] of every candidate in the first slot, by models that did not see its request
    slot_effects  [k] of each slot against the first, never rising
    checks        clicks over predicted clicks as a whole, by slot and by segment, and the log loss
    """

    ctr: np.ndarray
    slot_effects: np.ndarray
    checks: Mapping[str, Any]


def fold_of(request: np.ndarray, seed: int) -> np.ndarray:
    """The fold of each row, by its request."""
    return (draws.bits(seed, "response fold", request) % np.uint64(FOLDS)).astype(np.int64)


def fit_response(pairs: Pairs, seed: int = 1, segment: np.ndarray | None = None) -> Response:
    """The response to a log's clicks. UserError where it has too few.

    With y clicks, x_k the effect of slot k and p the trees' CTR, clicks are taken to come with x_k p. Trees
    and effects are found in turn: p by weighted log loss in which a click that is not there in slot k counts
    as not looked at with the chance (1 - x_k) / (1 - x_k p); x_k as clicks over the sum of p.
    """
    learned = np.flatnonzero(pairs.is_learned)
    clicks = int(np.sum(pairs.click[learned] == 1))
    if clicks < FEWEST_CLICKS:
        raise UserError(
            f"the log has {clicks} clicks; a response is fitted to {FEWEST_CLICKS} or more: log more "
            "requests, or their clicks"
        )
    fold = fold_of(pairs.request, seed)
    y = (pairs.click[learned] == 1).astype(np.float64)
    slot = pairs.slot[learned].astype(np.int64)
    n_slots = int(slot.max()) + 1
    effects = _falling(np.ones(n_slots), np.bincount(slot, minlength=n_slots))
    prediction = np.full(len(learned), y.mean())
    model: Any = None
    for turn in range(ROUNDS):
        effects = _slot_effects(y, prediction, slot, n_slots)
        is_last = turn == ROUNDS - 1
        model = _cross_fitted(pairs, learned, fold, effects, prediction, seed, MODELS if is_last else 1)
        prediction = model.of(learned)
    effects = _slot_effects(y, prediction, slot, n_slots)
    ctr = model.of(np.arange(len(pairs.slot)))
    expected = ctr[learned] * effects[slot]
    factor = y.sum() / expected.sum()  # of the whole: trees stop early
    ctr = np.clip(ctr * factor, LEAST, MOST)
    expected = np.clip(ctr[learned] * effects[slot], LEAST, MOST)
    part = None if segment is None else segment[learned]
    return Response(ctr, effects, checks_of(y, expected, slot, part, pairs.request[learned]))


def _slot_effects(y: np.ndarray, prediction: np.ndarray, slot: np.ndarray, n_slots: int) -> np.ndarray:
    clicks, expected = np.bincount(slot, y, n_slots), np.bincount(slot, prediction, n_slots)
    rate = np.divide(clicks, expected, out=np.ones(n_slots), where=expected > 0)
    return _falling(rate, expected)


def _falling(rate: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The nearest rates that never rise from slot to slot, against the first."""
    from scipy.optimize import isotonic_regression

    fitted = isotonic_regression(rate, weights=np.maximum(weight, 1e-9), increasing=False).x
    return np.clip(fitted / max(fitted[0], 1e-12), 1e-3, 1.0)


class _CrossFitted:
    """Models of every fold, each for the requests that it has not seen."""

    def __init__(self, pairs: Pairs, fold: np.ndarray) -> None:
        self._pairs, self._fold = pairs, fold
        self.models: dict[int, list[Any]] = {}
        self.rates: dict[int, Mapping[str, np.ndarray]] = {}

    def of(self, rows: np.ndarray) -> np.ndarray:
        """CTR in the first slot of these rows."""
        from scipy.special import expit, logit

        out = np.empty(len(rows))
        for own, models in self.models.items():
            at = np.flatnonzero(self._fold[rows] == own)
            for start in range(0, len(at), AT_ONCE):
                some = at[start : start + AT_ONCE]
                table = design(self._pairs, rows[some], self.rates[own])
                with one_thread():
                    logits = [
                        logit(np.clip(model.predict_proba(table)[:, 1], LEAST, MOST)) for model in models
                    ]
                out[some] = expit(np.mean(logits, axis=0))
        return out


AT_ONCE = 500_000  # rows


def _cross_fitted(
    pairs: Pairs,
    learned: np.ndarray,
    fold: np.ndarray,
    effects: np.ndarray,
    prediction: np.ndarray,
    seed: int,
    n_models: int,
) -> _CrossFitted:
    maker, made = boosting(), _CrossFitted(pairs, fold)
    y = pairs.click[learned] == 1
    x = effects[pairs.slot[learned]]
    # a slot that nobody looked at says nothing of the ad: copies of weight, not of rows
    weight = np.where(y, 1.0, x * (1.0 - prediction) / np.maximum(1.0 - x * prediction, 1e-9))
    n_numbers = len(pairs.numbers) + len(pairs.ids)
    is_category = np.arange(n_numbers + len(pairs.categories)) >= n_numbers
    kept = draws.uniform(seed, "response thinning", pairs.request[learned], learned)
    for own in range(FOLDS):
        seen = np.flatnonzero(fold[learned] != own)
        made.rates[own] = rates_of(pairs, learned[seen], x[seen])
        # Rows are left out with the chance that they were not looked at: boosters take long with weights.
        used = seen[kept[seen] < weight[seen]]
        table = _learned_from(pairs, learned, fold, used, seen, x)
        made.models[own] = []
        for luck in range(n_models):
            model = maker.HistGradientBoostingClassifier(
                max_iter=80, learning_rate=0.08, max_leaf_nodes=12, min_samples_leaf=60,
                l2_regularization=5.0, categorical_features=is_category if is_category.any() else None,
                early_stopping=False, max_features=0.7, random_state=luck,
            )  # fmt: skip
            with one_thread():
                model.fit(table, y[used])
            made.models[own].append(model)
        if n_models > 1:
            made.models[own].append(_Linear(table, y[used], is_category))
    return made


class _Linear:
    """Logistic regression on the same table, categories one by one: smooth where trees have steps."""

    def __init__(self, table: np.ndarray, y: np.ndarray, is_category: np.ndarray) -> None:
        from sklearn.linear_model import LogisticRegression

        self._is_category = is_category
        numbers = table[:, ~is_category]
        known = np.isfinite(numbers)
        self._mean = np.where(known, numbers, 0.0).sum(0) / np.maximum(known.sum(0), 1)
        spread = np.sqrt(
            np.where(known, (numbers - self._mean) ** 2, 0.0).sum(0) / np.maximum(known.sum(0), 1)
        )
        self._spread = np.where(spread > 0, spread, 1.0)
        self._codes = [np.unique(column) for column in table[:, is_category].T]
        self._model = LogisticRegression(C=1.0, max_iter=200)
        with one_thread():
            self._model.fit(self._matrix(table), y)

    def _matrix(self, table: np.ndarray) -> np.ndarray:
        scaled = (table[:, ~self._is_category] - self._mean) / self._spread
        columns = table[:, self._is_category].T
        one_hot = [
            (column[:, None] == codes[None, :]).astype(np.float64)
            for column, codes in zip(columns, self._codes, strict=True)
        ]
        return np.hstack([np.nan_to_num(np.clip(scaled, -6, 6)), *one_hot])

    def predict_proba(self, table: np.ndarray) -> np.ndarray:
        return np.asarray(self._model.predict_proba(self._matrix(table)))


def _learned_from(
    pairs: Pairs, learned: np.ndarray, fold: np.ndarray, used: np.ndarray, seen: np.ndarray, x: np.ndarray
) -> np.ndarray:
    """What the trees see of the rows that they learn from: rates of ids are those of other folds.

    A rate in which the row's own click counts tells it; one that leaves out this click alone does, too, for
    it is lower where there was one.
    """
    table: np.ndarray | None = None
    for inner in np.unique(fold[learned[used]]):
        others = seen[fold[learned[seen]] != inner]
        at = np.flatnonzero(fold[learned[used]] == inner)
        part = design(pairs, learned[used[at]], rates_of(pairs, learned[others], x[others]))
        if table is None:
            table = np.empty((len(used), part.shape[1]))
        table[at] = part
    assert table is not None
    return table


def rates_of(pairs: Pairs, rows: np.ndarray, examined: np.ndarray) -> dict[str, np.ndarray]:
    """Clicks and looked-at impressions of every code of every id, over these rows.  {id: [2, codes]}"""
    y = pairs.click[rows] == 1
    found = {}
    for name, codes in pairs.ids.items():
        size = int(codes.max(initial=-1)) + 2  # the first is for unknown ones
        own = codes[rows] + 1
        found[name] = np.stack([np.bincount(own, y, size), np.bincount(own, examined, size)])
    return found


def design(pairs: Pairs, rows: np.ndarray, rates: Mapping[str, np.ndarray]) -> np.ndarray:
    """What the trees see of these rows; rates are drawn towards the mean.  [n, f] float64"""
    columns = [np.asarray(values[rows], np.float64) for values in pairs.numbers.values()]
    for name, codes in pairs.ids.items():
        clicks, looks = rates[name]
        mean = max(clicks.sum(), 1.0) / max(looks.sum(), 1.0)
        own = codes[rows] + 1
        columns.append(np.log((clicks[own] + PRIOR * mean) / (looks[own] + PRIOR)))
    columns += [
        np.asarray(np.clip(values[rows], -1, 253) + 1, np.float64) for values in pairs.categories.values()
    ]
    return np.column_stack(columns) if columns else np.zeros((len(rows), 1))


def checks_of(
    y: np.ndarray, expected: np.ndarray, slot: np.ndarray, segment: np.ndarray | None, request: np.ndarray
) -> dict[str, Any]:
    """Clicks over predicted clicks with intervals, as a whole, by slot and by segment; log loss.

    `is_off`: an interval at the level of all that is looked at excludes 1.
    """
    cells: list[tuple[str, Any, np.ndarray]] = [("all", None, np.ones(len(y), bool))]
    cells += [("slot", int(own), slot == own) for own in np.unique(slot)]
    if segment is not None:
        cells += [("segment", int(own), segment == own) for own in np.unique(segment) if own >= 0]
    edges = np.quantile(expected, np.linspace(0, 1, 11)[1:-1])
    tenth = np.searchsorted(edges, expected, side="right")
    cells += [("tenth", int(own), tenth == own) for own in range(10)]
    cells = [cell for cell in cells if cell[2].sum() >= FEWEST_IN_CELL or cell[0] == "all"]
    from scipy.special import ndtri

    level = float(ndtri(1 - 0.025 / len(cells)))
    table = []
    for kind, name, at in cells:
        total = float(expected[at].sum())
        # clicks of one page come together: the variance is that of sums by request
        residual = np.bincount(np.unique(request[at], return_inverse=True)[1], (y - expected)[at])
        error = float(np.sqrt(np.sum(residual**2)) / total)
        ratio = float(y[at].sum() / total)
        table.append(
            {
                "of": kind, "which": name, "impressions": int(at.sum()), "clicks": int(y[at].sum()),
                "ratio": ratio, "low": ratio - 1.96 * error, "high": ratio + 1.96 * error,
                "is_off": bool(abs(ratio - 1) > level * error),
            }
        )  # fmt: skip
    rate = y.mean()
    loss = -np.mean(y * np.log(expected) + (1 - y) * np.log1p(-expected))
    return {
        "cells": table,
        "logloss": float(loss),
        "logloss_of_mean": float(-(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))),
    }
