"""A cascade small enough to work out by hand: everyone has the same candidates, pCTRs and bids."""

from typing import Any

import numpy as np

from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.serve import Arm, Platform, Stage, serve
from worlds.tiny_market import make_block

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

    def bid(
        self, kind: str, block: Any, ids: np.ndarray, rule: str, reach: float, rates: Any = None
    ) -> np.ndarray:
        return np.where(ids >= 0, self.tables[kind][ids], 0.0)

    def pcvr(self, block: Any, ids: np.ndarray, rates: Any = None) -> np.ndarray:
        return np.full(ids.shape, 0.5)


def platform(candidates, bids):
    """Everyone's pre-ranking set is `candidates`."""
    candidates = np.asarray(candidates, np.int32)
    return Platform(lambda users, size: np.tile(candidates, (len(users), 1)), bids, EFFECTS)


def arm(pre, rank, size=4, slots=2, pre_bid="init", rank_bid="opt", **auction):
    return Arm("a", 6, Stage(pre, pre_bid, Fusion()), size, Stage(rank, rank_bid, Fusion()), slots, **auction)


def one(candidates, bids, **kind):
    return serve(make_block([0]), arm(**kind), platform(candidates, bids))


PCTR = [0.10, 0.20, 0.05, 0.40, 0.30, 0.01]
BID = [3.0, 1.0, 4.0, 0.5, 0.2, 9.0]  # eCPM / 1000: .30 .20 .20 .20 .06 .09
