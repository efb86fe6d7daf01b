"""Off-policy answers from a log of shown ads alone, with the propensities and outcomes that it logged.

The ads that lost are unknown, so a target draws the ad of each slot from all ads of the log, without
replacement down a page: evenly (`ranking.model=constant`), or by predicted click rate^(1/T), which
`slates.temperature=T` asks for. The prediction is a click rate by slot and ad, shrunk to the slot's and
fitted to the requests of the other folds, so no request has a part in the policy or the forecast that it
judges.

Pages with one known ad (as of Open Bandit) are weighed by IPS, SNIPS and, with the forecast, DR; longer pages
by the estimators of slates that need no forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.auction import MICROS
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.foundation.limits import MAX_ESTIMATED
from cascade_sim.logs.store.answers import Known
from cascade_sim.logs.store.format import About, charged
from cascade_sim.logs.store.store import LogStore
from cascade_sim.ope.estimates import Evidence
from cascade_sim.ope.study import answer_of
from cascade_sim.scenario.targets import Target

SINGLE = ("ips", "snips", "doubly_robust", "direct_method")  # of pages with one known ad
LONGER = ("slate_ips", "reward_interaction_ips")
EVENLY = "constant"
FOLDS = 5
PRIOR_CLICKS = 1.0  # that an ad's click rate in a slot begins with, at the slot's own rate
LOG = "winners"  # what these answers call their log
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DrawnPages:
    """Requests whose shown ads were drawn. Arrays [R, K]; ad -1 where a page has fewer."""

    ad: NDArray[np.int64]
    slot: NDArray[np.int64]
    propensity: Floats  # 1 where there is no ad
    reward: dict[str, Floats]  # those that are known
    clicks: Floats | None  # None: not logged
    fold: NDArray[np.int64]  # [R]
    users: NDArray[np.int64] | None  # [R]; None where not every request has one
    n_slots: int
    n_ads: int

    def __len__(self) -> int:
        return len(self.ad)


def require_drawn(about: About, targets: Sequence[Target], evenly: str = "") -> None:
    """UserError where the log cannot answer, with what would have to be logged.

    `evenly`: a model that needs no temperature.
    """
    if not about.is_randomised or not about.has("propensity"):
        raise UserError(
            f"{about.name}: its pages were not drawn, or not with known probabilities, so it cannot say what "
            "another policy would do; propensities would have to be logged (propensity). `whatif` answers "
            "for parameters of the auction"
        )
    for target in targets:
        if target.parameters:
            raise UserError(
                f"--set {target.words}: parameters were not randomised in this log; `whatif` serves the "
                "logged auctions again and answers for them"
            )
        if target.temperature is None and (target.model is None or target.model != evenly):
            raise UserError(
                f"--set {target.words}: say how pages would be drawn as well: slates.temperature=T (near "
                "0: the best first)"
            )


def drawn_pages(store: LogStore, seed: int) -> DrawnPages:
    """The requests of a log of which every shown ad has a propensity and an outcome, where any has one."""
    known = Known.of(store).rewards(store.about)
    if not known:
        raise UserError(f"{store.about.name}: neither clicks nor prices were logged, so no reward is known")
    parts: dict[str, list[NDArray[Any]]] = {}
    wanted = ("ad", "price_micros", "propensity", *store.about.charged_by)
    for start, stop, columns in store.blocks(wanted):
        sizes = np.diff(store.first[start : stop + 1])
        row = np.repeat(np.arange(start, stop), sizes)
        at = np.flatnonzero((columns["slot"] >= 0) & (row < MAX_ESTIMATED))
        for name in wanted:
            parts.setdefault(name, []).append(columns[name][at])
        parts.setdefault("row", []).append(row[at])
    table = {name: np.concatenate(values) for name, values in parts.items()}
    order = np.lexsort((table["slot"], table["row"]))
    table = {name: values[order] for name, values in table.items()}
    is_whole = table["propensity"] > 0
    if "clicks" in known:
        is_whole &= table["click"] >= 0
    if "revenue" in known:  # without a click nothing is paid, whatever the price
        is_whole &= (table["price_micros"] >= 0) | ~charged(store.about.charging, table)
    broken = np.unique(table["row"][~is_whole])
    table = {name: values[~np.isin(table["row"], broken)] for name, values in table.items()}
    rows, first, counts = np.unique(table["row"], return_index=True, return_counts=True)
    if not len(rows):
        raise UserError("no request of the log has a propensity and an outcome for every ad that it shows")
    r = np.repeat(np.arange(len(rows)), counts)
    k = np.arange(len(r)) - np.repeat(first, counts)

    def paged(values: NDArray[Any], empty: float) -> NDArray[Any]:
        page = np.full((len(rows), int(counts.max())), empty, values.dtype)
        page[r, k] = values
        return page

    clicks = (table["click"] == 1).astype(np.float64)
    paid = np.maximum(table["price_micros"], 0) / MICROS
    reward = {"clicks": clicks, "revenue": paid * charged(store.about.charging, table)}
    users = store.requests["user"][rows].astype(np.int64)
    return DrawnPages(
        ad=paged(table["ad"].astype(np.int64), -1),
        slot=paged(table["slot"].astype(np.int64), 0),
        propensity=paged(table["propensity"].astype(np.float64), 1.0),
        reward={name: paged(reward[name], 0.0) for name in known},
        clicks=paged(clicks, 0.0) if "clicks" in known else None,
        fold=(draws.uniform(seed, "fold of a drawn log", rows) * FOLDS).astype(np.int64),
        users=users if (users >= 0).all() else None,
        n_slots=max(int(table["slot"].max()) + 1, 1),
        n_ads=store.n_ads,
    )


def forecast(pages: DrawnPages, values: Floats) -> Floats:
    """Mean of `values` [R, K] by slot and ad in the other folds, shrunk to the slot's.  [F, S, A]"""
    shape = (FOLDS, pages.n_slots, pages.n_ads)
    r, k = np.nonzero(pages.ad >= 0)
    key = np.ravel_multi_index((pages.fold[r], pages.slot[r, k], pages.ad[r, k]), shape)

    def of_others(weights: Floats) -> Floats:
        own = np.bincount(key, weights, int(np.prod(shape))).reshape(shape)
        return np.asarray(own.sum(axis=0) - own)

    n, total = of_others(np.ones(len(r))), of_others(values[r, k])
    n_slot, of_slot = n.sum(axis=2, keepdims=True), total.sum(axis=2, keepdims=True)
    hits = values if pages.clicks is None else pages.clicks
    n_hits = of_others((hits[r, k] > 0).astype(np.float64)).sum(axis=2, keepdims=True)
    prior = PRIOR_CLICKS * np.maximum(n_slot, 1) / np.maximum(n_hits, 0.5)  # impressions that bring so many
    return (total + prior * of_slot / np.maximum(n_slot, 1)) / (n + prior)


def policy_odds(pages: DrawnPages, target: Target) -> Floats:
    """Log of how likely each ad is in each slot, up to a constant by fold and slot.  [F, S, A]"""
    if target.model == EVENLY:
        return np.zeros((FOLDS, pages.n_slots, pages.n_ads))
    if target.model is not None:
        raise UserError(
            f"--set ranking.model={target.model}: {unknown_name('model', target.model, [EVENLY])}"
        )
    if pages.clicks is None:
        raise UserError(
            f"--set {target.words}: ads are drawn by their click rates, and no outcome was logged (click); "
            f"ranking.model={EVENLY} draws them evenly"
        )
    assert target.temperature is not None
    rate = forecast(pages, pages.clicks)
    best = rate.max(axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(best > 0, np.log(rate / best) / target.temperature, 0.0)


def policy_weights(pages: DrawnPages, target: Target) -> Floats:
    """The same, not as a logarithm; the best ad has 1.  [F, S, A]"""
    return np.asarray(np.exp(policy_odds(pages, target)))


def conditional(pages: DrawnPages, odds: Floats) -> Floats:
    """The target's probability of each shown ad given those above it; 1 where there is none.  [R, K]

    Where a policy is sharp, the ads above have all but nothing of the weight. So what is left is summed from
    its own greatest part, of which one of the best K is always left, and not taken off the whole.
    """
    n_places = pages.ad.shape[1]
    out, fold = np.ones(pages.ad.shape), pages.fold
    best = np.argsort(-odds, axis=2, kind="stable")[:, :, :n_places]
    best_odds, others = np.take_along_axis(odds, best, 2), odds.copy()
    np.put_along_axis(others, best, -np.inf, 2)
    tail = np.logaddexp.reduce(others, axis=2)
    for k in range(n_places):
        slot, above = pages.slot[:, k], pages.ad[:, :k]
        own, of_own = best[fold, slot], odds[fold, slot, np.maximum(pages.ad[:, k], 0)]
        is_used = (own[:, :, None] == above[:, None, :]).any(axis=2)
        left = np.where(is_used, -np.inf, best_odds[fold, slot])
        most = left.max(axis=1, keepdims=True)
        in_tail = (above >= 0) & ~(above[:, :, None] == own[:, None, :]).any(axis=2)
        taken = odds[fold[:, None], slot[:, None], np.maximum(above, 0)]
        with np.errstate(invalid="ignore", over="ignore"):  # in rows that have no ad left
            total = np.exp(left - most).sum(axis=1) + np.exp(tail[fold, slot] - most[:, 0])
            total -= np.where(in_tail, np.exp(taken - most), 0.0).sum(axis=1)
            chance = np.exp(of_own - most[:, 0]) / total
        chance = np.where(np.isneginf(most[:, 0]), 0.0, np.minimum(chance, 1.0))
        out[:, k] = np.where(pages.ad[:, k] >= 0, chance, 1.0)
    return out


def evidence_of(pages: DrawnPages, target: Target, reward: str) -> tuple[Evidence, tuple[str, ...]]:
    """What the log says of a target and one reward, and the estimators that answer."""
    ratio = conditional(pages, policy_odds(pages, target)) / pages.propensity
    if pages.ad.shape[1] > 1:
        columns = {"reward": pages.reward[reward], "conditional": ratio}
        return Evidence(columns, {"clusters": pages.users}, None), LONGER
    values = pages.reward[reward]
    weight, expected, slot = policy_weights(pages, target), forecast(pages, values), pages.slot[:, 0]
    of_policy = (weight * expected).sum(axis=2) / weight.sum(axis=2)  # [F, S]
    columns = {
        "reward": values[:, 0],
        "weights": ratio[:, 0],
        "predicted_logged": expected[pages.fold, slot, pages.ad[:, 0]],
        "predicted_target": of_policy[pages.fold, slot],
    }
    return Evidence(columns, {"clusters": pages.users}, None), SINGLE


def winners_answers(
    store: LogStore, seed: int, targets: Sequence[Target], names: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """As `study.answers` has them, for targets that draw from all ads of a log of shown ads."""
    require_drawn(store.about, targets, EVENLY)
    pages = drawn_pages(store, seed)
    by_target = {}
    for target in targets:
        rewards = {}
        for reward in pages.reward:
            evidence, known = evidence_of(pages, target, reward)
            asked = [name for name in known if not names or name in names]
            if not asked:
                raise UserError(f"--estimator {', '.join(names)}: here {', '.join(known)} answer")
            rewards[reward] = answer_of(evidence, asked)
        by_target[target.name] = {"log": LOG, "changes": target.words, "rewards": rewards}
    return by_target
