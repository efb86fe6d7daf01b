"""Boosted trees that tell clicks of logged pairs, each asked about requests that it has not seen.

They see numbers and categories of a pair, and for its ids how often each was clicked elsewhere. Rows are
thinned: a slot that was not examined says nothing of the ad in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascade_sim.logs.fidelity.two_sample import boosting

PRIOR = 30.0  # impressions that an id's rate is drawn towards the mean by
AT_ONCE = 500_000  # rows
LEAST, MOST = 1e-6, 1.0 - 1e-6


@dataclass(frozen=True)
class Pairs:
    """Logged candidates [C]: what is known of them, and what happened.

    click and slot are -1 where an ad was not shown. Columns of `numbers` may hold NaN; `ids` are codes, -1
    unknown, whose rates of clicks elsewhere become numbers; `categories` are codes for the trees themselves.
    `steady` names the numbers that a line may be drawn through: predictions, their means, features.
    """

    request: np.ndarray
    slot: np.ndarray
    click: np.ndarray
    numbers: Mapping[str, np.ndarray]
    ids: Mapping[str, np.ndarray]
    categories: Mapping[str, np.ndarray]
    steady: tuple[str, ...] = ()

    @property
    def is_learned(self) -> np.ndarray:
        return (self.slot >= 0) & (self.click >= 0)


class Trees:
    """Trees of every fold, each for the requests that it has not seen."""

    def __init__(
        self,
        pairs: Pairs,
        fold: np.ndarray,
        learned: np.ndarray,
        count: np.ndarray,
        examined: np.ndarray,
        looked: np.ndarray,
        seeds: range,
    ) -> None:
        """Learn from the rows `learned`, each as often as `count` says; `seeds` are those of the trees.

        Of each learned row `examined` is the effect of its slot, `looked` whether it is taken for one that
        was looked at.
        """
        self._pairs, self._fold = pairs, fold
        self._models: dict[int, list[Any]] = {}
        self._rates: dict[int, Mapping[str, np.ndarray]] = {}
        y = pairs.click[learned] == 1
        n_numbers = len(pairs.numbers) + len(pairs.ids)
        is_category = np.arange(n_numbers + len(pairs.categories)) >= n_numbers
        maker = boosting()
        for own in np.unique(fold):
            seen = np.flatnonzero((fold[learned] != own) & (count > 0))
            self._rates[own] = rates_of(pairs, learned[seen], count[seen], examined[seen])
            # Copies of rows, not weights: boosters take long with those.
            used = np.repeat(seen, (count * looked).astype(np.int64)[seen])
            table = _learned_from(pairs, learned, fold, used, seen, count, examined)
            self._models[own] = []
            for seed in seeds:
                model = maker.HistGradientBoostingClassifier(
                    max_iter=80, learning_rate=0.08, max_leaf_nodes=12, min_samples_leaf=60,
                    l2_regularization=5.0, categorical_features=is_category if is_category.any() else None,
                    early_stopping=False, max_features=0.7, random_state=seed,
                )  # fmt: skip
                model.fit(table, y[used])
                self._models[own].append(model)

    def logit(self, rows: np.ndarray) -> np.ndarray:
        """Of the CTR in the first slot, the mean over the trees of a fold.  [n]"""
        from scipy.special import logit

        out = np.empty(len(rows))
        for own, models in self._models.items():
            at = np.flatnonzero(self._fold[rows] == own)
            for start in range(0, len(at), AT_ONCE):
                some = at[start : start + AT_ONCE]
                table = design(self._pairs, rows[some], self._rates[own])
                said = [model.predict_proba(table)[:, 1] for model in models]
                out[some] = np.mean([logit(np.clip(chance, LEAST, MOST)) for chance in said], axis=0)
        return out


def _learned_from(
    pairs: Pairs,
    learned: np.ndarray,
    fold: np.ndarray,
    used: np.ndarray,
    seen: np.ndarray,
    count: np.ndarray,
    examined: np.ndarray,
) -> np.ndarray:
    """What the trees see of the rows that they learn from: rates of ids are those of other folds.

    A rate in which the row's own click counts tells it; one that leaves out this click alone does, too, for
    it is lower where there was one.
    """
    table: np.ndarray | None = None
    for inner in np.unique(fold[learned[used]]):
        others = seen[fold[learned[seen]] != inner]
        at = np.flatnonzero(fold[learned[used]] == inner)
        rates = rates_of(pairs, learned[others], count[others], examined[others])
        part = design(pairs, learned[used[at]], rates)
        if table is None:
            table = np.empty((len(used), part.shape[1]))
        table[at] = part
    assert table is not None
    return table


def rates_of(
    pairs: Pairs, rows: np.ndarray, count: np.ndarray, examined: np.ndarray
) -> dict[str, np.ndarray]:
    """Clicks and looked-at impressions of every code of every id, over these rows.  {id: [2, codes]}"""
    clicks, looks = count * (pairs.click[rows] == 1), count * examined
    found = {}
    for name, codes in pairs.ids.items():
        size = int(codes.max(initial=-1)) + 2  # the first is for unknown ones
        own = codes[rows] + 1
        found[name] = np.stack([np.bincount(own, clicks, size), np.bincount(own, looks, size)])
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
