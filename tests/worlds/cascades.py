"""Arms, platforms and decisions for tests: the one place that knows how they are put together.

Then a cascade small enough to work out by hand: everyone has the same candidates, pCTRs and bids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.page import Page
from cascade_sim.cascade.request import Arm, Decision, Pass, Platform, Retrieve, Scores, Stage, View
from cascade_sim.cascade.serve import serve
from worlds.tiny_market import make_block


class Given:
    """A retriever whose answers are a function of (users, size), or the same candidates [n] for everyone."""

    name = "given"

    def __init__(self, found: Callable[..., np.ndarray] | np.ndarray, best_first: Any = None):
        self._found, self._best_first = found, best_first

    def retrieve(self, block: Any, size: int, lives: Any) -> np.ndarray:
        if callable(self._found):
            return self._found(block.users, size)
        return np.tile(self._found, (len(block.users), 1))

    def score(self, block: Any, ids: np.ndarray) -> np.ndarray:
        """Higher for those that stand earlier in `best_first` [A]."""
        return -np.argsort(self._best_first).astype(np.float32)[ids]


ALL_SIX = Given(np.arange(6, dtype=np.int32))
NOT_ASKED = Given(np.zeros(0, np.int32))  # where retrieval is over


def make_arm(
    retrieved: int, pre: Stage, size: int, rank: Stage, slots: int, name: str = "a",
    retriever: Any = NOT_ASKED, **auction: Any,
) -> Arm:  # fmt: skip
    """So many ads are retrieved, pre-ranking hands on `size` of them, ranking fills the slots."""
    stages = (replace(pre, size=size, name="pre_ranking"), rank)
    return Arm(name, Retrieve(retriever, retrieved), stages, slots, **auction)


def with_stage_of(arm: Arm, at: int, stage: Stage) -> Arm:
    """The arm with another stage's scorer, bid and fusion in this place; its size and name stay."""
    return arm.with_stage(at, scorer=stage.scorer, bid=stage.bid, fusion=stage.fusion, rates=stage.rates)


def with_retrieved(arm: Arm, size: int) -> Arm:
    """The arm with so many ads retrieved."""
    return replace(arm, retrieval=replace(arm.retrieval, size=size))


def make_decision(ids: np.ndarray, page: Page) -> Decision:
    """All that is retrieved [R, n] is handed on, every score is 1, and the page is this."""
    ones = np.ones(ids.shape, np.float32)
    one = Pass(ids, View(lambda: Scores(ones, ones, ones), lambda _: ones))
    return Decision((one, one), page)


def decided(decision: Decision) -> dict[str, np.ndarray]:
    """All arrays of a decision by name, with what the first scoring stage said."""
    first = decision.passes[0]
    stages = {
        "pre_ranking_set": first.ids,
        "pre_prediction": first.scores.prediction,
        "pre_score": first.order,
        "competitive_set": decision.competitive_set,
    }
    return {**stages, **{f"page.{name}": values for name, values in vars(decision.page).items()}}


EFFECTS = np.array([1.0, 0.8, 0.6])


class Table:
    """A seat that predicts pctr[ad]; padding gets a prediction too, which must not matter."""

    def __init__(self, pctr: Any, link: str = "sigmoid", name: str = "table"):
        self.pctr, self.link, self.name = np.asarray(pctr, np.float64), link, name

    def predict(self, block: Any, ids: np.ndarray) -> np.ndarray:
        return self.pctr[ids]


class Bids:
    """Init-bid and opt-bid per ad."""

    def __init__(self, init: Any, opt: Any = None):
        self.tables = {
            "init": np.asarray(init, float),
            "opt": np.asarray(init if opt is None else opt, float),
        }
        self.tables["none"] = np.ones(len(init))
        self.init_bid = self.tables["init"]

    def bid(
        self, kind: str, block: Any, ids: np.ndarray, rule: str, reach: float, rates: Any = None
    ) -> np.ndarray:
        return np.where(ids >= 0, self.tables[kind][ids], 0.0)

    def pcvr(self, block: Any, ids: np.ndarray, rates: Any = None) -> np.ndarray:
        return np.full(ids.shape, 0.5)


def platform(bids):
    return Platform(bids, EFFECTS)


def arm(pre, rank, size=4, slots=2, pre_bid="init", rank_bid="opt", candidates=None, **auction):
    """Everyone is retrieved `candidates`; None: all six."""
    pre_ranking, ranking = Stage(pre, pre_bid, Fusion()), Stage(rank, rank_bid, Fusion())
    given = ALL_SIX if candidates is None else Given(np.asarray(candidates, np.int32))
    return make_arm(6, pre_ranking, size, ranking, slots, retriever=given, **auction)


def one(candidates, bids, **kind):
    return serve(make_block([0]), arm(candidates=candidates, **kind), platform(bids))


PCTR = [0.10, 0.20, 0.05, 0.40, 0.30, 0.01]
BID = [3.0, 1.0, 4.0, 0.5, 0.2, 9.0]  # eCPM / 1000: .30 .20 .20 .20 .06 .09
