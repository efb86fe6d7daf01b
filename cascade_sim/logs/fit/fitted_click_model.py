"""The click model of a log: how often any candidate would be clicked in the first slot.

Arrays in, calibrated probabilities out. Two learners see whatever the log has of a pair. A *logistic
regression* (the line) takes logged predictions, features and segments, and what the predictions say on
average of the request, the ad, the user and the ad in its segment: single predictions have noise of their
own, and for ads that were hardly shown a line extrapolates where trees do not. *Boosted trees* see the hour
as well, and how often an ad, an advertiser, a user and a segment with an ad were clicked elsewhere. Each
request is answered by models that did not see it (cross-fitting), and how much each learner counts is learned
from those answers. Slots are effects of their own, found together with the rest.

What is fitted is uncertain. *Replicates* are the whole fit again on logs like this one (its users, hours or
requests drawn with replacement): estimates from the click model take them to tell how much it might differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.fidelity.two_sample import boosting, one_thread
from cascade_sim.logs.fit.position_based_fit import Floats, PositionBasedFit, fit_examined
from cascade_sim.logs.fit.trees import LEAST, MOST, Pairs, Trees

FOLDS = 5
MODELS = 2  # trees of each fold; a replicate has one
MIN_CLICKS = 100
MIN_IN_CELL = 200  # impressions of a slot or segment that is checked
FARTHEST = 6.0  # standard deviations: beyond, a line is not followed
MAX_ONE_HOT = 30  # codes of a category that the line has coefficients for
MAX_COPIES = 12  # of a unit in a replicate: more come once in ten thousand million
MAX_DRAWN = 200_000  # impressions that a replicate learns from: of a larger log it draws a part,
MIN_UNITS, MIN_DRAWN_CLICKS = 400, 4_000  # but as many as this


@dataclass(frozen=True)
class Response:
    """A fitted click model.

    ctr           [C] of every candidate in the first slot, by models that did not see its request
    slot_effects  [k] of each slot against the first, never rising
    checks        clicks over predicted clicks as a whole, by slot and by segment, and the log loss
    replicates    the fit again on logs like this one
    """

    ctr: np.ndarray
    slot_effects: np.ndarray
    checks: Mapping[str, Any]
    replicates: tuple[Replicate, ...] = ()


@dataclass(frozen=True)
class Replicate:
    """A fit to a log drawn from the log: what it says, and how often each request was drawn."""

    ctr: NDArray[np.float32]  # [C]
    slot_effects: Floats  # [k]
    count: NDArray[np.uint8]  # [R]
    share: float  # of the log that was drawn: what is learned from less spreads more, by 1 / sqrt(share)


def fold_of(request: np.ndarray, seed: int) -> np.ndarray:
    """The fold of each row, by its request."""
    return (draws.bits(seed, "response fold", request) % np.uint64(FOLDS)).astype(np.int64)


def fit_response(
    pairs: Pairs,
    seed: int = 1,
    segment: np.ndarray | None = None,
    *,
    unit: np.ndarray | None = None,
    replicates: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> Response:
    """The click model of a log's clicks, with replicates. UserError where it has too few clicks.

    `unit` [R] is what replicates draw: requests of one unit come together. `advance` is told of each fit.
    """
    boosting()  # before threads are limited: a library that is loaded later would not be
    log = _Log(pairs, seed)
    clicks = int(np.sum(log.click))
    if clicks < MIN_CLICKS:
        raise UserError(
            f"the log has {clicks} clicks; a click model is fitted to {MIN_CLICKS} or more: log more "
            "requests, or their clicks"
        )
    with one_thread():
        whole = log.fit(np.ones(len(log.learned)), range(MODELS))
        expected = np.clip(log.held_out(whole), LEAST, MOST)
    advance()
    unit = np.arange(log.n_requests) if unit is None else unit
    needed = (MAX_DRAWN / len(log.learned), MIN_UNITS / len(np.unique(unit)), MIN_DRAWN_CLICKS / clicks)
    made, share = [], min(1.0, max(needed))
    for number in range(replicates):
        count = _counts(draws.uniform(seed, "response replicate", number, unit), share)
        with one_thread():
            again = log.fit(count[pairs.request[log.learned]], range(number, number + 1), whole)
        made.append(Replicate(again.ctr.astype(np.float32), again.effects, count.astype(np.uint8), share))
        advance()
    part = None if segment is None else segment[log.learned]
    checks = checks_of(log.click.astype(np.float64), expected, log.slot, part, pairs.request[log.learned])
    return Response(whole.ctr, whole.effects, checks, tuple(made))


def _counts(uniform: np.ndarray, mean: float) -> np.ndarray:
    """How often a unit is drawn that is drawn so often in the mean: Poisson, from uniform numbers."""
    from scipy.special import pdtr

    return np.searchsorted(pdtr(np.arange(MAX_COPIES), mean), uniform, side="right").astype(np.float64)


@dataclass(frozen=True)
class _Fit:
    """CTRs [C], slot effects [k], and models to start from: the line of each fold, and what joins them."""

    ctr: Floats
    effects: Floats
    lines: tuple[PositionBasedFit, ...]
    joined: PositionBasedFit
    said: Floats  # [learned, 3]: 1, and the logits of both learners


class _Log:
    """The rows that clicks are known of, and the line's table of all rows: shared by all fits to a log."""

    def __init__(self, pairs: Pairs, seed: int) -> None:
        self.pairs, self._seed = pairs, seed
        self.learned = np.flatnonzero(pairs.is_learned)
        self.click = pairs.click[self.learned] == 1
        self.slot = pairs.slot[self.learned].astype(np.int64)
        self.n_slots = int(self.slot.max(initial=0)) + 1
        self.n_requests = int(pairs.request.max(initial=-1)) + 1
        self._fold = fold_of(pairs.request, seed)
        self._table = steady_table(pairs)

    def fit(self, count: np.ndarray, seeds: range, near: _Fit | None = None) -> _Fit:
        """Fit to the learned rows, each as often as `count` says; `near` is a fit to start from."""
        learned, slot = self.learned, self.slot
        line, lines = np.empty(len(self._fold)), []
        effects = np.empty(len(learned))
        for own in range(FOLDS):
            seen, asked = self._fold[learned] != own, np.flatnonzero(self._fold == own)
            table = self._table[learned[seen]].astype(np.float64)
            found = fit_examined(
                table, self.click[seen], slot[seen], self.n_slots, count[seen],
                start=near.lines[own] if near else None,
            )  # fmt: skip
            line[asked] = found.logit(self._table[asked].astype(np.float64))
            effects[~seen] = found.effects[slot[~seen]]
            lines.append(found)
        # A slot without a click was looked at with the chance x (1 - p) / (1 - x p): rows are kept by it.
        ctr = expit(line[learned])
        looked = effects * (1.0 - ctr) / np.maximum(1.0 - effects * ctr, LEAST)
        kept = draws.uniform(self._seed, "response thinning", self.pairs.request[learned], learned)
        looked = self.click | (kept < looked)
        trees = Trees(self.pairs, self._fold, learned, count, effects, looked, seeds)
        said = np.column_stack([np.ones(len(line)), line, trees.logit(np.arange(len(line)))])
        joined = fit_examined(
            said[learned], self.click, slot, self.n_slots, count,
            start=near.joined if near else None, is_positive=True,
        )  # fmt: skip
        ctr = np.clip(expit(joined.logit(said)), LEAST, MOST)
        return _Fit(ctr, joined.effects, tuple(lines), joined, said[learned])

    def held_out(self, fit: _Fit) -> Floats:
        """Clicks to be expected of learned rows by learners, and a join of them, that did not see them."""
        expected = np.empty(len(self.learned))
        for own in range(FOLDS):
            seen = self._fold[self.learned] != own
            joined = fit_examined(
                fit.said[seen], self.click[seen], self.slot[seen], self.n_slots,
                start=fit.joined, is_positive=True,
            )  # fmt: skip
            expected[~seen] = expit(joined.logit(fit.said[~seen])) * joined.effects[self.slot[~seen]]
        return expected


def steady_table(pairs: Pairs) -> NDArray[np.float32]:
    """What the line sees of every row: 1, steady numbers by their spread, small categories.  [C, p]"""
    columns = [np.ones(len(pairs.slot), np.float32)]
    for name in pairs.steady:
        values = np.asarray(pairs.numbers[name], np.float64)
        known = np.isfinite(values)
        if known.any() and (spread := float(np.std(values[known]))) > 0:
            scaled = np.where(known, (values - np.mean(values[known])) / spread, 0.0)
            columns.append(np.clip(scaled, -FARTHEST, FARTHEST).astype(np.float32))
    for codes in pairs.categories.values():
        known = np.unique(codes[codes >= 0])
        if len(known) <= MAX_ONE_HOT:
            columns += [(codes == code).astype(np.float32) for code in known[1:]]
    return np.column_stack(columns)


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
    cells = [cell for cell in cells if cell[2].sum() >= MIN_IN_CELL or cell[0] == "all"]
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
