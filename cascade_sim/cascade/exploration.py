"""Exploration: now and then a page is filled at random, and the log says how likely that was.

With probability `rate` a request shows a uniform draw of k ads of those retrieved, or of the whole corpus,
in random order, at the CPC reserve or the bid, whichever is less: they did not win an auction, and have no
runner-up. The ranker's pCTR and bid for them are logged all the same (NaN when the last stage predicts
no probability). The logged propensity of an ad in its slot is exact:
(1 - rate) * [the cascade puts it there] + rate / n, with n ads to draw from.
"""

from dataclasses import dataclass, replace

import numpy as np

from cascade_sim.cascade.corpus_sample import uniform_ads
from cascade_sim.cascade.page import Page, at_reserve
from cascade_sim.cascade.request import Arm, Block, Decision, Platform
from cascade_sim.cascade.scorers import is_probability
from cascade_sim.cascade.serve import score
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.kernels import n_filled, smallest_per_row
from cascade_sim.world.availability import AdAvailability


@dataclass(frozen=True)
class Explored:
    """Pages as they are shown, and how likely that was."""

    decision: Decision
    is_explored: np.ndarray  # [R] bool
    propensity: np.ndarray  # [R, k] float64, 1 when there is no exploration; 0 in an empty slot
    is_own_page: np.ndarray  # [R] bool: the page is the cascade's own, be it by exploration
    n_pool: np.ndarray  # [R] ads that a random page is drawn from


@dataclass(frozen=True)
class Corpus:
    """All ads that are there, to draw random pages from."""

    n_ads: int
    lives: AdAvailability | None = None

    def counts(self, times: np.ndarray) -> np.ndarray:
        """How many are there at each time.  [R]"""
        return np.full(len(times), self.n_ads) if self.lives is None else self.lives.counts(times)

    def random_page(self, block: Block, slots: int, seed: int) -> np.ndarray:
        """A uniform draw in random order, and no runner-up.  [R, slots + 1]"""
        drawn = uniform_ads(
            block.requests, slots, self.n_ads, seed, "explored page of the corpus", block.times, self.lives
        )
        return np.pad(drawn, ((0, 0), (0, 1)), constant_values=-1)


def as_decided(decision: Decision) -> Explored:
    """The pages as the cascade decided them, without exploration: shown with probability 1."""
    n = len(decision.win_set)
    propensity = (decision.win_set >= 0).astype(np.float64)
    return Explored(decision, np.zeros(n, bool), propensity, np.ones(n, bool), n_filled(decision.retrieved))


def explore(
    block: Block,
    decision: Decision,
    arm: Arm,
    rate: float,
    seed: int,
    platform: Platform,
    corpus: Corpus | None = None,
) -> Explored:
    """Replace the pages of explored requests. rate 0 changes nothing; rate 1 replaces every page.

    `corpus`: what random pages are drawn from; None: from what was retrieved.
    """
    if rate == 0:
        return as_decided(decision)
    is_explored = draws.uniform(seed, "explore", block.requests) < rate
    n = n_filled(decision.retrieved) if corpus is None else corpus.counts(block.times)
    page, rows = decision.page, np.nonzero(is_explored)[0]
    if len(rows):
        asked = block.take(rows)
        ads = (
            random_page(asked.requests, decision.retrieved[rows], arm.slots, seed)
            if corpus is None
            else corpus.random_page(asked, arm.slots, seed)
        )
        page = page.with_rows(rows, _explored_page(asked, ads, arm, platform))
    win_set = page.ads[:, :-1]
    is_own = win_set == decision.win_set
    propensity = (1.0 - rate) * (is_own & (win_set >= 0)) + rate / np.maximum(n, 1)[:, None]
    return Explored(
        replace(decision, page=page),
        is_explored,
        np.where(win_set >= 0, propensity, 0.0),
        is_own_page=is_own.all(axis=1),
        n_pool=n,
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
