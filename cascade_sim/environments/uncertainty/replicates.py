"""What is fitted is uncertain, and so are the figures that rest on it: their doubt, for every interval.

Of a replayed log it is the click model's (click_model.py). Of a world fitted to a log it is of replicates:
fits to logs that were drawn from the log. In the world of a replicate the same pages would be clicked with
other chances, and each logged request would count as often as it was drawn; so every sum over requests has a
value in each of them, and spreads over them by as much as the log leaves open. Pages and prices are held as
they are: what an arm that knows the CTRs would do in the world of a replicate is not asked.

Intervals resample rows. To the rows is added what sums to nothing and spreads, when they are resampled, as
the sums do over the replicates: no figure moves, and only intervals grow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri, stdtrit
from threadpoolctl import threadpool_limits

from cascade_sim.analysis.metrics.catalogue import with_factors
from cascade_sim.auction import MICROS
from cascade_sim.cascade.cache import once
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.serve import Arm, Block, Decision
from cascade_sim.environments.arrivals import FIRST_REQUEST
from cascade_sim.environments.clusters import Clusters
from cascade_sim.environments.evaluators.truth import TruthContext
from cascade_sim.environments.page_columns import PHASE, Log, impressions
from cascade_sim.environments.uncertainty.base import UNCERTAINTY, Tables
from cascade_sim.foundation import random as draws
from cascade_sim.logs.replay.fitted import FittedClickModel, ResampledReplay

Floats = NDArray[np.float64]
Columns = Mapping[str, np.ndarray]
SIDE = 0.975  # of an interval
LEAST = 1e-9
AT_ONCE = 200_000  # impressions
EXPECTED = {"clicks": "expected_clicks", "revenue": "expected_revenue"}


OF_REPLICATES = (
    "Intervals of clicks, revenue and welfare include the uncertainty of the fitted click model ({n} fits to "
    "logs drawn from the log). Intervals between seeds do not: all seeds share one click model. Of ads that "
    "the log hardly showed, the world knows no more than their predictions: ask the log itself where it can "
    "answer."
)
OF_ONE_FIT = (
    "Intervals cover requests and clicks in the fitted world. How far its click model is from the market's "
    "users is not in them, as it was fitted without replicates: ask the log itself where it can answer."
)


@dataclass(frozen=True)
class ReplicateUncertainty:
    """Of the click model that a world was fitted with. `n_requests`: those of the whole evaluation."""

    fitted: ResampledReplay
    n_requests: int
    is_common: ClassVar[bool] = True

    @property
    def words(self) -> str:
        """What intervals in a fitted world hold, and what not."""
        n = self.fitted.response.n_replicates
        return OF_REPLICATES.format(n=n) if n else OF_ONE_FIT

    def sums(
        self, context: TruthContext, arm: Arm, decision: Decision, result: Outcome, columns: Columns
    ) -> dict[str, np.ndarray]:
        """The sums of all columns in each replicate, columns by name.  [K, columns]"""
        if not self.fitted.response.n_replicates:
            return {}
        requests, best, known = context.block.requests, context.oracle.decision.page, context.oracle.outcome
        page = Page.of(self.fitted, requests, decision.win_set, result.true_ctr, result.expected_clicks)
        price = result.price_micros(decision) / MICROS
        moved = page.moved(price, context.click_value(decision), arm.charging)
        moved["oracle_welfare"] = _of_oracle(
            context.block,
            best.ads,
            best.bid,
            best.cpc_micros,
            known.true_ctr,
            known.expected_clicks,
            "click" if known.impressions is None else "impression",
            self.fitted,
        )
        return {UNCERTAINTY: replicate_sums(self.fitted, requests, columns, moved, self.n_requests)}

    def page_sums(
        self, log: Log, ctr: Floats, expected: Floats, charged: Floats, charging: str, names: list[str]
    ) -> Floats | None:
        """The same of pages that were logged, with the CTRs and expected clicks of their impressions [n].

        None without replicates.  [K, columns by name]
        """
        k, n = self.fitted.response.n_replicates, self.n_requests
        if not k:
            return None
        everyone = np.arange(n) + FIRST_REQUEST[PHASE]
        sums = np.zeros((k, len(names)))
        sums[:, names.index("requests")] = drawn(self.fitted, everyone, n).sum(axis=0)
        for start in range(0, len(ctr), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            part = {name: values[some] for name, values in log.items()}
            sums += self._impressions(part, ctr[some], expected[some], charged[some], charging)
        return sums

    def _impressions(self, log: Log, ctr: Floats, expected: Floats, charged: Floats, charging: str) -> Floats:
        """Of these impressions; the requests are counted elsewhere.  [K, columns by name]"""
        ads, slots, price = (log[name][:, None] for name in ("ad", "slot", "cpc_micros"))
        page = Page.at(self.fitted, log["request"], ads, slots, ctr[:, None], expected[:, None])
        moved = page.moved(price / MICROS, price / MICROS, charging)
        columns = {**impressions(log, expected, charged), "requests": np.zeros(len(ctr))}
        return replicate_sums(self.fitted, log["request"], columns, moved, self.n_requests)

    def controlled(
        self, tables: Tables, sums: Mapping[str, np.ndarray], clusters: Clusters | None, baseline: str
    ) -> Tables:
        return tables

    def widened(
        self,
        tables: Tables,
        sums: Mapping[str, np.ndarray],
        clusters: Clusters | None,
        baseline: str | None = None,
    ) -> Tables:
        return with_replicates(tables, sums, self.fitted.response)


@once
def _of_oracle(
    block: Block,
    ads: np.ndarray,
    bid: np.ndarray,
    cpc_micros: np.ndarray,
    ctr: np.ndarray,
    expected: np.ndarray,
    charging: str,
    fitted: ResampledReplay,
) -> Floats:
    """By how much the welfare of the oracle's page differs: others are hardly better than it.  [R, K]"""
    page = Page.of(fitted, block.requests, ads[:, :-1], ctr, expected)
    return page.moved(cpc_micros / MICROS, bid[:, :-1], charging)["welfare"]


@dataclass(frozen=True)
class Page:
    """By how much the expected clicks of shown ads differ in each replicate.  [R, k, K]"""

    clicks: Floats

    @classmethod
    def of(
        cls, fitted: ResampledReplay, requests: np.ndarray, ads: np.ndarray, ctr: Floats, expected: Floats
    ) -> Page:
        """Of ads [R, k] in slots 0 to k - 1, with their CTRs and expected clicks."""
        slots = np.broadcast_to(np.arange(ads.shape[1]), ads.shape)
        return cls.at(fitted, requests, ads, slots, ctr, expected)

    @classmethod
    def at(
        cls,
        fitted: ResampledReplay,
        requests: np.ndarray,
        ads: np.ndarray,
        slots: np.ndarray,
        ctr: Floats,
        expected: Floats,
    ) -> Page:
        """The same of ads in any slots [R, k]."""
        there = logit(np.clip(ctr, LEAST, 1 - LEAST))[:, :, None] + fitted.replicates(requests, ads)
        chance = fitted.response.replicate_effects.T[np.maximum(slots, 0)] * expit(there)
        return cls(np.where(ads[:, :, None] >= 0, chance - expected[:, :, None], 0.0))

    def moved(self, price: np.ndarray, value: np.ndarray, charging: str) -> dict[str, Floats]:
        """By how much columns differ.  {column: [R, K]}"""
        clicks = self.clicks.sum(axis=1)
        if charging != "click":  # what is shown is paid for, clicked or not
            paid = worth = np.zeros_like(clicks)
        else:
            paid, worth = (np.einsum("rs,rsk->rk", each, self.clicks) for each in (price, value))
        return {
            "clicks": clicks, "expected_clicks": clicks,
            "revenue": paid, "expected_revenue": paid, "welfare": worth,
        }  # fmt: skip


def replicate_sums(
    fitted: ResampledReplay,
    requests: np.ndarray,
    columns: Columns,
    moved: Mapping[str, Floats],
    n_requests: int,
) -> Floats:
    """Sums of columns [R], by name, in each replicate: with what they move by, and as often as drawn.

    Of clicks and revenue those that are expected: the noise of single clicks is the evaluation's, and in its
    rows already.  [K, columns]
    """
    count = drawn(fitted, requests, n_requests)
    names = sorted(columns)
    columns = {**columns, **with_factors({name: columns[of] for name, of in EXPECTED.items()})}
    # not by a matrix library, whose sums may depend on how many threads it has
    total = np.einsum("rk,rc->kc", count, np.column_stack([columns[name] for name in names]))
    for name, by in with_factors(moved).items():
        if name in columns:
            total[:, names.index(name)] += np.einsum("rk,rk->k", count, by)
    return total


def drawn(fitted: ResampledReplay, requests: np.ndarray, n_requests: int) -> Floats:
    """How often each request counts in each replicate, once in the mean.  [R, K]

    Sums over n requests that were drawn from the log's N vary by 1 / N + 1 / n when they are counted so; what
    1 / n stands for, intervals have from the rows that they resample. So counts vary by less.
    """
    count = fitted.response.whole("count")[fitted.rows(requests)] / fitted.response.replicate_share
    times = n_requests / fitted.response.n_requests
    return 1.0 + (count - 1.0) * math.sqrt(times / (1.0 + times))


def with_replicates(tables: Tables, sums: Mapping[str, np.ndarray], response: FittedClickModel) -> Tables:
    """Columns of arms by row, as intervals resample them: with model uncertainty.  {arm: {column: [rows]}}"""
    made = dict(tables)
    for arm, total in sums.items():
        names, n = sorted(tables[arm]), len(tables[arm]["requests"])
        k = len(total)
        if n <= k:
            continue  # so few rows have no room for it, nor any use
        # few replicates: the spread is uncertain itself, as Student's t has it
        wider = float(stdtrit(k - 1, SIDE) / ndtri(SIDE))
        spread = (total - total.mean(axis=0)) * (wider * math.sqrt(response.replicate_share / (k - 1)))
        added = np.einsum("nk,kc->nc", directions(n, k), spread)  # columns alike stay alike, to the bit
        made[arm] = {name: tables[arm][name] + added[:, i] for i, name in enumerate(names)}
    return made


@lru_cache(maxsize=8)
def directions(n: int, k: int) -> Floats:
    """k directions of unit length that are at right angles to each other and sum to nothing.  [n, k]

    Drawn, so that they have nothing to do with the order of the rows.
    """
    draw = draws.uniform(0, "doubt", np.arange(n)[:, None], np.arange(k)[None, :]) - 0.5
    whole = np.column_stack([np.ones(n), draw])
    with threadpool_limits(limits=1):
        found: Floats = np.linalg.qr(whole)[0][:, 1:]
    found.setflags(write=False)
    return found
