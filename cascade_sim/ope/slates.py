"""Pages drawn from the head of the ranking order, with the probability of every choice.

The first `depth` ads of the ranking order are the list. Slots are filled from the top, without replacement,
each with an ad a of those left with probability (Plackett-Luce)

    P(a | slots above) = score_a^(1/T) / sum over ads left of score^(1/T)

drawn as the largest of log score / T + Gumbel noise keyed by (request, ad). T near 0 is the ranking order.

A click costs the list price: the least bid with which the ad would have been on the list,
max(score of the first ad beyond it / quality, reserve, floor / quality), never above its bid. It does not
depend on an ad's drawn slot, nor on its neighbours: no ad pays for a draw, and the reward of a slot is its
own ad's alone, whatever ad is below.

A target policy draws from the same list at other odds: another temperature, or another model's scores. What
it would have put on the list that the log did not is out of reach of any log, so not part of the question.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cascade_sim.cascade.page import Page, list_priced
from cascade_sim.cascade.randomisation import reserve_of
from cascade_sim.cascade.request import Arm, Block, Decision, Platform
from cascade_sim.cascade.serve import serve
from cascade_sim.foundation import random as draws

# Of the log odds relative to the best ad: beyond it, exp is 0 and a set of such ads has none.
FAINTEST = -650.0


@dataclass(frozen=True)
class SlateList:
    """The ads a page is drawn from, in ranking order.  [R, d] each; ad -1, all else 0, where there is none"""

    ads: NDArray[np.int32]
    bid: NDArray[np.float64]
    pctr: NDArray[np.float32]
    score: NDArray[np.float64]
    cpc_micros: NDArray[np.int64]

    @property
    def is_there(self) -> NDArray[np.bool_]:
        return self.ads >= 0

    def take(self, rows) -> "SlateList":
        """The lists of some requests."""
        return SlateList(*(v[rows] for v in (self.ads, self.bid, self.pctr, self.score, self.cpc_micros)))


def list_of(block: Block, arm: Arm, platform: Platform, depth: int) -> tuple[SlateList, Decision]:
    """Serve the block up to the ranking order; the list, and the decision as if all its ads were shown."""
    effects = platform.slot_effects
    long_page = np.concatenate([effects, np.full(max(depth - len(effects), 0), effects[-1])])
    long_arm = replace(arm, slots=depth, pricing="gsp", parameters={})
    if block.parameters is not None:  # of a log: a list is longer than the page
        block = replace(block, parameters=replace(block.parameters, slots=None))
    served = serve(block, long_arm, replace(platform, slot_effects=long_page))
    rules = replace(long_arm.rules(long_page), reserve_cpc=reserve_of(block, long_arm))
    page = list_priced(served.page, rules)
    ads, bid, quality = (values[:, :-1] for values in (page.ads, page.bid, page.quality))
    drawn_from = SlateList(
        ads=ads,
        bid=bid,
        pctr=page.pctr[:, :-1].astype(np.float32),
        score=np.where(ads >= 0, bid * quality.astype(np.float64), 0.0),
        cpc_micros=page.cpc_micros,
    )
    return drawn_from, served


def log_odds(score: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """log score / temperature relative to the best ad of the list; -inf where there is none.  [R, d]"""
    with np.errstate(divide="ignore"):
        logit = np.log(score) / temperature
    best = logit.max(axis=1, keepdims=True)
    relative = np.where(np.isneginf(logit), -np.inf, logit - np.where(np.isneginf(best), 0.0, best))
    return np.where(np.isneginf(logit), -np.inf, np.maximum(relative, FAINTEST))


def draw_places(
    requests: NDArray[np.int64], ads: NDArray[np.int32], logit: NDArray[np.float64], slots: int, seed: int
) -> NDArray[np.int64]:
    """Places in the list of the ads drawn for each slot; -1 where the list is used up.  [R, slots]"""
    noise = -np.log(-np.log(draws.uniform(seed, "slate", requests[:, None], np.maximum(ads, 0))))
    order = np.argsort(-(logit + noise), axis=1, kind="stable")[:, :slots].astype(np.int64)
    is_there = np.isfinite(np.take_along_axis(logit, order, 1))
    return np.where(is_there, order, -1)


def log_propensities(logit: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """log P(ad of the slot | slots above); 0 where the slot is empty.  [R, d], [R, K] -> [R, K]

    -inf for an ad without odds, also where no ad with odds is left (a target that scores it 0).
    """
    left = logit.copy()
    log_p = np.zeros(places.shape)
    rows = np.arange(len(logit))
    for k in range(places.shape[1]):
        place = np.maximum(places[:, k], 0)
        is_shown = places[:, k] >= 0
        top = np.where(is_shown, left.max(axis=1), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):  # in rows whose list is used up
            total = top + np.log(np.exp(left - top[:, None]).sum(axis=1))
            chosen = left[rows, place]
            log_p[:, k] = np.where(is_shown, np.where(np.isneginf(chosen), -np.inf, chosen - total), 0.0)
        left[rows[is_shown], place[is_shown]] = -np.inf
    return log_p


def slot_marginals(logit: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """P(ad of the slot is in that slot), whatever is above it; 1 where empty.  [R, d], [R, K] -> [R, K]"""
    from cascade_sim.ope import slate_kernels

    out = np.empty(places.shape)
    slate_kernels.marginals(np.exp(logit), np.ascontiguousarray(places), out)
    return out


def page_values(
    logit: NDArray[np.float64],
    gain: NDArray[np.float64],
    slot_effects: NDArray[np.float64],
    places: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Expected gain from slot k on under the policy of these odds, each [R, K].

    gain [R, d]: of an ad in a fully examined slot. First: given the ads of `places` up to k; second: given
    those above k, so that its first column is the value of the whole page.
    """
    from cascade_sim.ope import slate_kernels

    of_slot, of_rest = np.empty(places.shape), np.empty(places.shape)
    effects = np.ascontiguousarray(slot_effects[: places.shape[1]], np.float64)
    slate_kernels.values(
        np.exp(logit),
        np.ascontiguousarray(gain, np.float64),
        effects,
        np.ascontiguousarray(places),
        of_slot,
        of_rest,
    )
    return of_slot, of_rest


def drawn_decision(served: Decision, drawn: SlateList, places: NDArray[np.int64]) -> Decision:
    """The decision that shows the ads of these places at their list prices; there is no runner-up."""
    is_shown = places >= 0
    column = np.maximum(places, 0)

    def shown(values, empty):
        page = np.where(is_shown, np.take_along_axis(values, column, 1), np.asarray(empty, values.dtype))
        return np.concatenate([page, np.full((len(page), 1), empty, values.dtype)], axis=1)

    page = Page(
        ads=shown(drawn.ads, -1),
        pctr=shown(drawn.pctr, 0),
        bid=shown(drawn.bid, 0),
        quality=shown(served.ranked_quality[:, :-1], 0),
        cpc_micros=shown(drawn.cpc_micros, 0)[:, :-1],
    )
    return replace(served, page=page)
