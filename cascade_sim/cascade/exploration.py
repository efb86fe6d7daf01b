"""Exploration: now and then a page is filled at random, and the log says how likely that was.

With probability `rate` a request shows a uniform draw of k ads of those retrieved in random
order, at the CPC reserve or the bid, whichever is less: they did not win an auction, and have no
runner-up. The ranker's pCTR and bid for them are logged all the same (NaN when the last stage predicts
no probability). The logged propensity of an ad in its slot is exact:
(1 - rate) * [the cascade puts it there] + rate / n.
"""

from dataclasses import dataclass, replace

import numpy as np

from cascade_sim.cascade.page import Page, at_reserve
from cascade_sim.cascade.request import Arm, Block, Decision, Platform
from cascade_sim.cascade.scorers import is_probability
from cascade_sim.cascade.serve import score
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.kernels import n_filled, smallest_per_row


@dataclass(frozen=True)
class Explored:
    """Pages as they are shown, and how likely that was."""

    decision: Decision
    is_explored: np.ndarray  # [R] bool
    propensity: np.ndarray  # [R, k] float64, 1 when there is no exploration; 0 in an empty slot
    is_own_page: np.ndarray  # [R] bool: the page is the cascade's own, be it by exploration


def as_decided(decision: Decision) -> Explored:
    """The pages as the cascade decided them, without exploration: shown with probability 1."""
    n = len(decision.win_set)
    propensity = (decision.win_set >= 0).astype(np.float64)
    return Explored(decision, np.zeros(n, bool), propensity, np.ones(n, bool))


def explore(
    block: Block, decision: Decision, arm: Arm, rate: float, seed: int, platform: Platform
) -> Explored:
    """Replace the pages of explored requests. rate 0 changes nothing; rate 1 replaces every page."""
    if rate == 0:
        return as_decided(decision)
    is_explored = draws.uniform(seed, "explore", block.requests) < rate
    n = n_filled(decision.retrieved)
    page, rows = decision.page, np.nonzero(is_explored)[0]
    if len(rows):
        ads = random_page(block.requests[rows], decision.retrieved[rows], arm.slots, seed)
        page = page.with_rows(rows, _explored_page(block.take(rows), ads, arm, platform))
    win_set = page.ads[:, :-1]
    is_own = win_set == decision.win_set
    propensity = (1.0 - rate) * (is_own & (win_set >= 0)) + rate / np.maximum(n, 1)[:, None]
    return Explored(
        replace(decision, page=page),
        is_explored,
        np.where(win_set >= 0, propensity, 0.0),
        is_own_page=is_own.all(axis=1),
    )


def _explored_page(block: Block, ads: np.ndarray, arm: Arm, platform: Platform) -> Page:
    """These ads with what the last stage says of them."""
    rank = score(block, ads, arm.last, arm, platform)
    pctr = rank.prediction if is_probability(arm.last.scorer) else np.nan
    return at_reserve(
        ads,
        np.where(ads >= 0, pctr, 0.0),
        rank.bid,
        np.where(ads >= 0, rank.quality, 0.0),
        arm.reserve_cpc,
    )


def random_page(requests: np.ndarray, ids: np.ndarray, slots: int, seed: int) -> np.ndarray:
    """A uniform draw of ads in random order, and no runner-up.  [R, n] -> [R, slots + 1]"""
    draw = draws.uniform(seed, "explored page", requests[:, None], ids)
    return np.pad(smallest_per_row(ids, draw, slots), ((0, 0), (0, 1)), constant_values=-1)
