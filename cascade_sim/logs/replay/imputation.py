"""Clicks that were not observed: a click model, cross-fitted on the log's own impressions.

    P(click) = effect of the slot * CTR
    logit CTR = level + f(logit pCTR) + request's mean logit pCTR + bid + further models' logits + groups

f is linear with two bends where there are clicks enough. The mean over a request's candidates stands for
what all of them share, which no single prediction shows; with the bid it makes ads that were shown and ads
that were not comparable, since what is shown follows from predictions and bids. Segments and placements
have effects of their own where they have clicks enough. The weak prior (RIDGE) only keeps what was never
clicked finite. An impression is never predicted by a model that saw its user (where users come again) or
its request: the log is cut into FOLDS.

What is fitted is uncertain. To first order the estimate moves with each logged request by its influence,
H^-1 (y - p) z with z = dp / (p (1 - p)), so a sum of modelled clicks with gradient G moves by G H^-1 (y -
p) z: `influence` gives that by request, and who resamples requests adds it to the columns that are
resampled (it sums to nothing).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.replay.imputation_kernels import add_gradient, add_influence, add_step, ctrs, in_slots
from cascade_sim.logs.store.answers import MIN_CLICKS
from cascade_sim.logs.store.format import SCORE
from cascade_sim.logs.store.store import LogStore

Floats = NDArray[np.float64]

FOLDS = 5
RIDGE = 0.1  # inverse variance of the prior of every effect but the level
CLICKS_TO_BEND = 2_000  # of all impressions, for bends in the pCTR's effect
CLICKS_OF_GROUP = 50  # of a segment or placement, for an effect of its own
MAX_GROUPS = 200
MAX_IMPRESSIONS = 3_000_000  # learned from; of a longer log an even part of the requests
AT_ONCE = 65_536
MIN_PCTR, MAX_PCTR = 1e-7, 1.0 - 1e-4
STEPS, ENOUGH = 25, 1e-8
NEAR = 1e-4  # from near by: the next step would be its square
SHOWN_GROUPS = 12  # of each kind in the table of calibration
OFF_BY, SURE = 0.05, 0.01  # what is called off: by more than this, and not by chance (over all groups)


class ModelRows(NamedTuple):
    """Rows of the model's matrix but for their slots, without zeros, as `click_kernels` has them."""

    numbers: Floats  # [N, d]
    groups: NDArray[np.int16]  # [N, 2]


class Asked(NamedTuple):
    """Rows, and what the models that did not see their folds say of them."""

    rows: ModelRows
    ctr: Floats  # [N] in the first slot
    fold: NDArray[np.int8]  # [N]

    def with_more(self, other: Asked) -> Asked:
        """These and others after them."""
        numbers = np.concatenate([self.rows.numbers, other.rows.numbers])
        groups = np.concatenate([self.rows.groups, other.rows.groups])
        ctr, fold = np.concatenate([self.ctr, other.ctr]), np.concatenate([self.fold, other.fold])
        return Asked(ModelRows(numbers, groups), ctr, fold)


@dataclass(frozen=True)
class Terms:
    """What the columns of the model's matrix are made of."""

    slots: int
    bends: tuple[float, ...]  # of the centred logit pCTR
    centre: float
    has_pctr: bool
    has_bid: bool
    scores: tuple[str, ...]
    segments: tuple[int, ...]  # codes with an effect of their own
    placements: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (
            "level",
            *(f"slot {slot + 1}" for slot in range(1, self.slots)),
            *(
                ("logit pCTR", "request's", *(f"bend {i + 1}" for i in range(len(self.bends))))
                if self.has_pctr
                else ()
            ),
            *(("log bid",) if self.has_bid else ()),
            *(f"logit {name}" for name in self.scores),
            *(f"segment {code}" for code in self.segments),
            *(f"placement {code}" for code in self.placements),
        )

    def rows(self, columns: Mapping[str, NDArray[Any]], n: int) -> ModelRows:
        """A row for each of the n entries of flat columns."""
        groups = np.full((n, 2), -1, np.int16)
        parts: list[Any] = []
        if self.has_pctr:
            logit = _logit(columns["pctr"]) - self.centre
            parts += [logit, np.asarray(columns["shared"], np.float64) - self.centre]
            parts += [np.maximum(logit - bend, 0.0) for bend in self.bends]
        if self.has_bid:
            with np.errstate(divide="ignore", invalid="ignore"):
                bid = np.log(np.asarray(columns["bid"], np.float64))
            parts.append(np.clip(np.where(np.isfinite(bid), bid, 0.0), -12.0, 12.0))
        parts += [_logit(columns[f"{SCORE}{name}"]) - self.centre for name in self.scores]
        numbers = np.empty((n, len(parts)))
        for j, values in enumerate(parts):
            numbers[:, j] = values
        first = self.slots + len(parts)
        for g, (key, codes) in enumerate((("segment", self.segments), ("placement", self.placements))):
            if codes:
                at = np.minimum(np.searchsorted(codes, columns[key]), len(codes) - 1)
                groups[:, g] = np.where(np.asarray(codes)[at] == columns[key], first + at, -1)
                first += len(codes)
        return ModelRows(numbers, groups)

    @property
    def n_numbers(self) -> int:
        """Of `ModelRows.numbers`."""
        return 2 * self.has_pctr + len(self.bends) + self.has_bid + len(self.scores)

    @property
    def of_candidates(self) -> tuple[str, ...]:
        """The columns of candidates that the matrix needs."""
        pctr, bid = (("pctr",) if self.has_pctr else ()), (("bid",) if self.has_bid else ())
        return (*pctr, *bid, *(f"{SCORE}{name}" for name in self.scores))

    @property
    def of_requests(self) -> tuple[str, ...]:
        groups = (("segment", self.segments), ("placement", self.placements))
        return tuple(key for key, codes in groups if codes)


@dataclass(frozen=True)
class ClickModel:
    """A fitted model: `whole` is of all impressions learned from, `apart` without those of each fold."""

    terms: Terms
    whole: Floats  # [p]
    apart: Floats  # [FOLDS, p]
    inverse: Floats  # [FOLDS, p, p]: of the information without each fold
    fold: NDArray[np.int8]  # [R of the log] of each request
    folds_by: str  # user | request
    shared: NDArray[np.float32] | None  # [R of the log] mean logit pCTR of each request's candidates
    impressions: Mapping[
        str, NDArray[Any]
    ]  # flat columns of those learned from: row, slot, click and features
    n_clicks: int

    def asked(self, columns: Mapping[str, NDArray[Any]], row: NDArray[np.int64]) -> Asked:
        """What is said of flat columns of candidates; `row` [N] are the log's requests that they are of."""
        rows, fold = self.terms.rows(columns, len(row)), self.fold[row]
        return Asked(rows, ctrs(*rows, fold, self.apart, self.terms.slots), fold)

    def predicted(self, asked: Asked, at: NDArray[Any], slot: NDArray[Any]) -> Floats:
        """P(click) of the rows `at` [M] in these slots [M].  [M]"""
        p: Floats = in_slots(asked.ctr, asked.fold, at, slot, self._effects)
        return p

    def gradient(self, asked: Asked, at: NDArray[Any], slot: NDArray[Any], weights: Floats) -> Floats:
        """Of weighted sums of `predicted` by each fold's coefficients.  [M, W] -> [FOLDS, p, W]"""
        total = np.zeros((*self.apart.shape, weights.shape[1]))
        add_gradient(*asked.rows, asked.ctr, asked.fold, at, slot, self._effects, weights, total)
        return total

    @cached_property
    def _effects(self) -> Floats:
        return _slot_factors(self.terms, self.apart)

    def slot_effects(self) -> Floats:
        """How often each slot is looked at relative to the first, never more than one above it.  [slots]"""
        effects = np.exp(np.concatenate([[0.0], self.whole[1 : self.terms.slots]]))
        return np.clip(np.minimum.accumulate(effects), 1e-3, 1.0)

    def influence(self, gradient: Floats, unit: NDArray[np.int64], n_units: int) -> Floats:
        """How sums of modelled clicks move with each unit's impressions.  [FOLDS, p, M] -> [n_units, M]

        `gradient`: of the sums by the coefficients of each fold's model. `unit` [R of the log] is what each
        request is resampled with. Sums to 0 over the units.
        """
        moved = np.einsum("fpq,fqm->fpm", self.inverse, gradient)
        # A request of fold g has a part in the models of all other folds.
        felt = moved.sum(axis=0)[None] - moved
        total = np.zeros((n_units, gradient.shape[2]))
        whole = self.whole[None]
        effects = _slot_factors(self.terms, whole)
        for part in _parts(self.impressions):
            seen, row = (part["slot"], part["click"]), part["row"]
            rows = self.terms.rows(part, len(row))
            add_influence(*rows, *seen, self.fold[row], unit[row], whole, effects, felt, total)
        return total - total.mean(axis=0)

    def calibration(self, store: LogStore) -> dict[str, Any]:
        """Observed against predicted clicks by slot, segment, placement and tenth of the pCTR."""
        expected, variance = self.predicted_impressions()
        part = self.impressions
        row = part["row"]
        kinds: dict[str, tuple[NDArray[Any], Any]] = {"slot": (part["slot"], lambda code: str(code + 1))}
        for key, kind in (("segment", "segments"), ("placement", "placements")):
            codes = store.requests[key][row]
            if (codes >= 0).any():
                kinds[key] = (codes, lambda code, kind=kind: store.name(kind, int(code)) or "unknown")
        if self.terms.has_pctr:
            edges = np.unique(np.quantile(part["pctr"], np.linspace(0, 1, 11)[1:-1]))
            kinds["pCTR"] = (np.searchsorted(edges, part["pctr"], side="right"), lambda t: f"tenth {t + 1}")
        rows: list[dict[str, Any]] = []
        for kind, (codes, name) in kinds.items():
            rows += _calibrated(kind, codes, name, part["click"], expected, variance)
        return {"rows": rows, "off": _off(rows)}

    def predicted_impressions(self) -> tuple[Floats, Floats]:
        """P(click) of the impressions, by models that did not see them, and its variance."""
        expected = []
        for part in _parts(self.impressions):
            asked = self.asked(part, part["row"])
            expected.append(self.predicted(asked, np.arange(len(asked.ctr)), part["slot"]))
        p = np.concatenate(expected) if expected else np.zeros(0)
        return p, p * (1 - p)


def fit_click_model(store: LogStore, seed: int) -> ClickModel | None:
    """The click model of a log; None where it has too few clicks for any."""
    part = _impressions(store, seed)
    clicks = int(part["click"].sum())
    if clicks < MIN_CLICKS:
        return None
    terms = _terms(store, part, clicks)
    shared = _shared_logits(store) if terms.has_pctr else None
    if shared is not None:
        part["shared"] = shared[part["row"]]
    wanted = {
        "row",
        "slot",
        "click",
        "ad",
        "price_micros",
        "bid",
        "pctr",
        "shared",
        *terms.of_candidates,
        *terms.of_requests,
    }
    wanted |= {
        f"{SCORE}{name}" for name in store.about.scores
    }  # compared with the clicks, if not learned from
    part = {name: values for name, values in part.items() if name in wanted}
    fold, folds_by = _folds(store, seed)
    whole = _fit_whole(terms, part, clicks)
    apart, information = _fit(terms, part, fold, np.arange(FOLDS), np.repeat(whole[None], FOLDS, 0), NEAR)
    inverse: Floats = np.linalg.inv(information).astype(np.float64, copy=False)
    return ClickModel(terms, whole, apart, inverse, fold, folds_by, shared, part, clicks)


def has_returning_users(store: LogStore) -> bool:
    """Whether some requests are of users who came before: their clicks are not independent."""
    user = store.requests["user"]
    known = user[user >= 0]
    return len(known) > 0 and len(np.unique(known)) < 0.98 * len(known)


def _folds(store: LogStore, seed: int) -> tuple[NDArray[np.int8], str]:
    """The fold of each request, drawn by user where users come again.  [R]"""
    request = np.arange(store.n_requests, dtype=np.int64)
    draw = draws.uniform(seed, "click model fold of a request", request)
    by = "request"
    if has_returning_users(store):
        by, user = "user", store.requests["user"].astype(np.int64)
        draw = np.where(
            user >= 0, draws.uniform(seed, "click model fold of a user", np.maximum(user, 0)), draw
        )
    return np.minimum((draw * FOLDS).astype(np.int8), FOLDS - 1), by


def _impressions(store: LogStore, seed: int) -> dict[str, NDArray[Any]]:
    """Flat columns of the shown ads whose clicks are known."""
    about = store.about
    names = [name for name in ("pctr", "bid", "ad", "price_micros") if about.has(name)]
    names += [f"{SCORE}{name}" for name in about.scores]
    share = min(1.0, MAX_IMPRESSIONS / max(about.counts.shown, 1))
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("row", "slot", "click", *names)}
    for start, stop, columns in store.blocks(("slot", "click", *names)):
        kept = np.flatnonzero((columns["slot"] >= 0) & (columns["click"] >= 0))
        row = (
            start
            + np.searchsorted(store.first[start : stop + 1] - store.first[start], kept, side="right")
            - 1
        )
        if share < 1.0:
            is_in = draws.uniform(seed, "click model sample", row) < share
            kept, row = kept[is_in], row[is_in]
        parts["row"].append(row.astype(np.int64))
        for name in ("slot", "click", *names):
            values = columns[name][kept]
            parts[name].append(values.astype(np.float32) if values.dtype == np.float64 else values)
    found = {name: np.concatenate(values) if values else np.zeros(0) for name, values in parts.items()}
    for key in ("segment", "placement"):
        found[key] = store.requests[key][found["row"].astype(np.int64)]
    return found


def _shared_logits(store: LogStore) -> NDArray[np.float32]:
    """The mean logit pCTR of each request's candidates.  [R]"""
    means = np.zeros(store.n_requests, np.float32)
    for start, stop, columns in store.blocks(("pctr",)):
        total = np.concatenate([[0.0], np.cumsum(_logit(columns["pctr"]))])
        ends = store.first[start : stop + 1] - store.first[start]
        means[start:stop] = (total[ends[1:]] - total[ends[:-1]]) / np.maximum(np.diff(ends), 1)
    return means


def _terms(store: LogStore, part: Mapping[str, NDArray[Any]], clicks: int) -> Terms:
    has_pctr = "pctr" in part and bool(np.isfinite(part["pctr"]).all()) and bool(np.ptp(part["pctr"]) > 0)
    logit = _logit(part["pctr"]) if has_pctr else np.zeros(1)
    centre = float(logit.mean())
    bends: tuple[float, ...] = ()
    if has_pctr and clicks >= CLICKS_TO_BEND:
        # By clicks rather than impressions: that is where there is something to see.
        at = logit[part["click"] == 1] - centre
        bends = tuple(float(x) for x in np.unique(np.quantile(at, [1 / 3, 2 / 3])) if np.ptp(at) > 0)
    bid = part.get("bid")
    known = bid is not None and bool((np.nan_to_num(bid) > 0).all())
    has_bid = known and bid is not None and bool(np.ptp(np.log(bid)) > 0)
    scores = tuple(
        name
        for name in store.about.scores
        if np.isfinite(part[f"{SCORE}{name}"]).all() and np.ptp(part[f"{SCORE}{name}"]) > 0
    )
    return Terms(
        slots=max(store.about.slots, 1),
        bends=bends,
        centre=centre,
        has_pctr=has_pctr,
        has_bid=has_bid,
        scores=scores,
        segments=_groups(part["segment"], part["click"]),
        placements=_groups(part["placement"], part["click"]),
    )


def _groups(codes: NDArray[Any], click: NDArray[Any]) -> tuple[int, ...]:
    """Codes with clicks enough for an effect of their own; all but the one with most, which is the level."""
    known = codes >= 0
    if not known.any():
        return ()
    clicks = np.bincount(codes[known], click[known])
    enough = [int(code) for code in np.argsort(-clicks, kind="stable") if clicks[code] >= CLICKS_OF_GROUP]
    rest = len(enough) == np.count_nonzero(np.bincount(codes[known])) and bool(known.all())
    return tuple(sorted(enough[1 if rest else 0 : MAX_GROUPS]))


def _fit_whole(terms: Terms, part: Mapping[str, NDArray[Any]], clicks: int) -> Floats:
    """The coefficients by all impressions.  [p]"""
    beta = np.zeros((1, len(terms.names)))
    beta[0, 0] = _logit(np.array([clicks / len(part["click"])]))[0]
    everyone = np.zeros(1, np.int64), np.array([-1])
    every = len(part["click"]) // AT_ONCE
    if every > 1:  # most of the way is gone with a few of the impressions
        few = {name: values[::every].copy() for name, values in part.items()}
        beta, _ = _fit(terms, few, *everyone, beta, NEAR)
    return _fit(terms, part, *everyone, beta, ENOUGH)[0][0]


def _fit(
    terms: Terms,
    part: Mapping[str, NDArray[Any]],
    fold: NDArray[Any],
    left_out: NDArray[np.int64],
    start: Floats,
    enough: float,
) -> tuple[Floats, Floats]:
    """Fisher's steps to the most likely coefficients under the prior, and the information there.

    Of several models at once, each without the impressions of a fold; `fold` [R of the log], or [1] for all.
    A model whose step was small enough stays where it is.  [F, p] -> [F, p], [F, p, p]
    """
    ridge = np.full(start.shape[1], RIDGE)
    ridge[0] = 0.0
    beta, information = start.copy(), np.zeros((*start.shape, start.shape[1]))
    moving = np.arange(len(beta))
    for _ in range(STEPS):
        now = beta[moving]
        score, upper = -ridge * now, np.zeros((len(moving), *information.shape[1:]))
        effects = _slot_factors(terms, now)
        for some in _parts(part):
            own = fold[some["row"]] if len(fold) > 1 else np.zeros(len(some["row"]), fold.dtype)
            seen = some["slot"], some["click"], own
            add_step(*terms.rows(some, len(own)), *seen, left_out[moving], now, effects, score, upper)
        upper = np.triu(upper) + np.triu(upper, 1).swapaxes(1, 2) + np.diag(ridge)
        try:
            step = np.linalg.solve(upper, score[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError as error:
            raise UserError("the log's clicks do not tell the terms of a click model apart") from error
        beta[moving] = now + np.clip(step, -2.0, 2.0)
        information[moving] = upper
        moving = moving[np.abs(step).max(axis=1) >= enough]
        if not len(moving):
            break
    return beta, information


def _slot_factors(terms: Terms, beta: Floats) -> Floats:
    """What each slot multiplies the CTR by.  [F, p] -> [F, slots]"""
    effects = np.exp(beta[:, : terms.slots])
    effects[:, 0] = 1.0
    return effects


def _parts(columns: Mapping[str, NDArray[Any]]) -> Iterator[dict[str, NDArray[Any]]]:
    """Flat columns a part at a time: what is made of a part takes many times its room."""
    for start in range(0, len(columns["row"]), AT_ONCE):
        yield {name: values[start : start + AT_ONCE] for name, values in columns.items()}


def _calibrated(
    kind: str, codes: NDArray[Any], name: Any, click: NDArray[Any], expected: Floats, variance: Floats
) -> list[dict[str, Any]]:
    values, place = np.unique(codes, return_inverse=True)
    n, seen, said, spread = (
        np.bincount(place, weights, len(values)) for weights in (None, click, expected, variance)
    )
    largest = np.sort(np.argsort(-n, kind="stable")[:SHOWN_GROUPS])
    return [
        {
            "by": kind,
            "group": name(int(values[i])),
            "impressions": int(n[i]),
            "clicks": int(seen[i]),
            "predicted": float(said[i]),
            "ratio": float(said[i] / seen[i]) if seen[i] else None,
            "z": float((seen[i] - said[i]) / np.sqrt(spread[i])) if spread[i] > 0 else 0.0,
        }
        for i in largest
    ]


def _off(rows: list[dict[str, Any]]) -> list[str]:
    """Groups whose predicted clicks are off by more than OFF_BY, and not by chance."""
    from scipy.special import ndtri

    line = -ndtri(SURE / 2 / max(len(rows), 1))
    return [
        f"{row['by']} {row['group']}"
        for row in rows
        if abs(row["z"]) > line and abs((row["ratio"] or 0.0) - 1.0) > OFF_BY
    ]


def _logit(p: NDArray[Any]) -> Floats:
    p = np.minimum(np.fmax(np.asarray(p, np.float64), MIN_PCTR), MAX_PCTR)  # fmax: of no number, the least
    logit: Floats = np.log(p) - np.log1p(-p)
    return logit
