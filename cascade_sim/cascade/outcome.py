"""What becomes of a page: clicks, conversions and charges, from the ground truth.

Draws are keyed by (request, ad), so an ad that two arms show to the same request shares the random draw.
"""

from dataclasses import dataclass

import numpy as np

from cascade_sim.agents.conversions import DelayMixture, delays
from cascade_sim.agents.users import happens
from cascade_sim.cascade.cache import once
from cascade_sim.cascade.request import Block, Decision
from cascade_sim.foundation import random as draws
from cascade_sim.logs.replay.observed import ObservedClicks, PageClicks
from cascade_sim.world.truth import GroundTruth


@dataclass(frozen=True)
class Outcome:
    """Clicks, conversions and charges of the slots of every page. Arrays [R, k]."""

    true_ctr: np.ndarray  # float64, of a fully examined slot
    expected_clicks: np.ndarray  # float64: slot effect * true CTR
    clicks: np.ndarray  # bool
    conversions: np.ndarray  # bool, only after a click
    charges_micros: np.ndarray  # int64: the price where clicked or, if impressions are charged, where shown
    observed: PageClicks | None = None  # of a replayed log: which clicks were logged, and which are modelled
    impressions: np.ndarray | None = None  # float64: chances to be charged; None: clicks are
    affordable_micros: np.ndarray | None = None  # int64: the price, or what is left of a budget; None: price

    @property
    def charged(self) -> np.ndarray:
        """Expected events that the price is paid for: clicks, or impressions.  [R, k] float64"""
        return self.expected_clicks if self.impressions is None else self.impressions

    def price_micros(self, decision: Decision) -> np.ndarray:
        """What is paid for such an event: the price, or what is left of the budget.  [R, k] int64"""
        return decision.cpc_micros if self.affordable_micros is None else self.affordable_micros


def outcome(
    block: Block,
    decision: Decision,
    truth: GroundTruth | ObservedClicks,
    slot_effects: np.ndarray,
    seed: int,
    charging: str = "click",
) -> Outcome:
    """Realise the page of every request in the block.

    Of a replayed log a logged click is expected with 0 or 1, so no draw changes it.
    """
    win_set = decision.win_set
    true_ctr, expected, observed = truth.on_page(
        block, win_set, slot_effects, lambda: page_ctr(block, decision, truth)
    )
    clicks = happens(expected, draws.uniform(seed, "click", block.requests[:, None], win_set))
    conversions = np.zeros_like(clicks)
    row, slot = np.nonzero(clicks)
    if len(row):
        # Few pages are clicked: only those need a conversion rate.
        clicked = block.take(row)
        ads = win_set[row, slot][:, None]
        draw = draws.uniform(seed, "conversion", clicked.requests[:, None], ads)
        conversions[row, slot] = happens(truth.cvr(clicked, ads), draw)[:, 0]
    impressions, charged = None, clicks
    if charging != "click":
        impressions = np.where(win_set >= 0, seen(block, win_set.shape[1], truth, charging), 0.0)
        charged = happens(impressions, exposure_draws(block, win_set.shape[1], seed))
    return Outcome(
        true_ctr=true_ctr,
        expected_clicks=expected,
        clicks=clicks,
        conversions=conversions,
        charges_micros=np.where(charged, decision.cpc_micros, 0),
        observed=observed,
        impressions=impressions,
    )


def seen(block: Block, slots: int, truth: GroundTruth | ObservedClicks, charging: str) -> np.ndarray:
    """Chances that what is in the slots of a page is charged, where impressions are.  [R, slots]

    An exposed one is; where nothing tells exposure, and where slots are charged, each that is won.
    """
    chances = truth.exposed(block, slots) if charging == "impression" else None
    return np.ones((len(block), slots)) if chances is None else chances


def exposure_draws(block: Block, slots: int, seed: int) -> np.ndarray:
    """The same whatever ad is there.  [R, slots]"""
    return draws.uniform(seed, "exposure", block.requests[:, None], np.arange(slots)[None, :])


def page_ctr(block: Block, decision: Decision, truth: GroundTruth | ObservedClicks) -> np.ndarray:
    """The true CTRs of the win set; of a block with a memo, taken from those that prices ask for.  [R, k]"""
    if block.memo is None:
        return truth.ctr(block, decision.win_set)
    return np.ascontiguousarray(ranked_ctr(block, decision, truth)[:, :-1])


def ranked_ctr(block: Block, decision: Decision, truth: GroundTruth | ObservedClicks) -> np.ndarray:
    """The true CTRs of the win set and of the runner-up.  [R, k+1] float64"""
    return _ctr(block, decision.ranked_set, truth)


@once
def _ctr(block: Block, ids: np.ndarray, truth: GroundTruth | ObservedClicks) -> np.ndarray:
    return truth.ctr(block, ids)


def conversion_times(
    block: Block, decision: Decision, result: Outcome, mixture: DelayMixture, seed: int
) -> np.ndarray:
    """When each conversion is seen; infinite where there is none, or it is never seen.  [R, k] float64"""
    times = np.full(result.conversions.shape, np.inf)
    row, slot = np.nonzero(result.conversions)
    if len(row):
        times[row, slot] = block.times[row] + conversion_delays(
            seed, block.requests[row], decision.win_set[row, slot], mixture
        )
    return times


def conversion_delays(seed: int, requests: np.ndarray, ads: np.ndarray, mixture: DelayMixture) -> np.ndarray:
    """Seconds from a click to its conversion, infinite where it comes after the window.  [n], [n] -> [n]"""
    kind, delay = (draws.uniform(seed, purpose, requests, ads) for purpose in ("delay kind", "delay"))
    return delays(kind, delay, mixture)
