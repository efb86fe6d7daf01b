"""Where the cascade loses value, in the currency of the truth: true CTR × bid.

A list of ads in slot order is worth T = 1000 Σ_slot slot effect × value, its true eCPM summed over the
slots. Four lists are compared: the best of the whole corpus (T0), the best of the pre-ranking set (T1), the
best of the competitive set (T2) and what was shown (T3). Each stage answers for the drop across it; the
drops sum to T0 − T3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.metrics.consistency import membership
from cascade_sim.analysis.metrics.ratio import divide

STAGES = ("retrieval", "pre_ranking", "ranking")


class SlotList(NamedTuple):
    """Ads in slot order and their value in the first slot, true CTR × bid. Both [R, k]; id -1: empty slot."""

    ids: NDArray
    value: NDArray


def true_ecpm(slots: SlotList, slot_effects: ArrayLike) -> NDArray[np.float64]:
    """1000 Σ_slot slot effect × value per request; empty slots are worth nothing.  [R]

    There must be at least as many slot effects as slots; those left over are not used.
    """
    ids, value = np.asarray(slots.ids), np.asarray(slots.value, np.float64)
    effects = np.asarray(slot_effects, np.float64)
    if len(effects) < ids.shape[1]:
        raise ValueError(f"{len(effects)} slot effects for {ids.shape[1]} slots")
    return 1000.0 * (np.where(ids >= 0, value, 0.0) * effects[: ids.shape[1]]).sum(1)


def stage_losses(
    best_from_corpus: SlotList,
    best_from_pre_ranking_set: SlotList,
    best_from_competitive_set: SlotList,
    shown: SlotList,
    slot_effects: ArrayLike,
    *,
    is_in_pre_ranking_set: NDArray[np.bool_],
    is_in_competitive_set: NDArray[np.bool_],
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """What each stage costs: stage -> {"lost": [R] true eCPM, "dropped": [R] share of the would-be winners}.

    The would-be winners are the ads of best_from_corpus, and the two masks [R, k] say which of them reached
    the pre-ranking set and the competitive set. A winner counts as dropped at the first stage that misses
    it, so the shares and the share of winners shown sum to 1; NaN for a request without would-be winners.
    """
    lists = (best_from_corpus, best_from_pre_ranking_set, best_from_competitive_set, shown)
    worth = [true_ecpm(slots, slot_effects) for slots in lists]
    winners = np.asarray(best_from_corpus.ids)
    passed = winners >= 0
    n_winners = passed.sum(1)
    masks = (is_in_pre_ranking_set, is_in_competitive_set, membership(winners, np.asarray(shown.ids)))
    result = {}
    for i, (stage, mask) in enumerate(zip(STAGES, masks, strict=True)):
        is_dropped = passed & ~np.asarray(mask, bool)
        passed = passed & ~is_dropped
        result[stage] = {"lost": worth[i] - worth[i + 1], "dropped": divide(is_dropped.sum(1), n_winners)}
    return result
