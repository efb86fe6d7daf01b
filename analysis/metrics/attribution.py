"""Where the cascade loses value, in the currency of the truth: true CTR × bid.

A list of ads in slot order is worth T = 1000 Σ_slot slot effect × value, its true eCPM summed over the
slots. Lists are compared: the best of the whole corpus (T0), the best of what each stage handed on (T1, T2,
and so on) and, of the last stage, what was shown. Each stage answers for the drop across it; the drops sum to
T0 less what was shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.metrics.ratio import divide


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
    lists: Mapping[str, SlotList],
    best_from_corpus: SlotList,
    reached: Mapping[str, NDArray[np.bool_]],
    slot_effects: ArrayLike,
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """What each stage costs: stage -> {"lost": [R] true eCPM, "dropped": [R] share of the would-be winners}.

    `lists` has, for each stage in order, the best list of what it handed on; that of the last stage is what
    was shown. The would-be winners are the ads of best_from_corpus, and the masks `reached` [R, k] say which
    of them each stage handed on. A winner counts as dropped at the first stage that misses it, so the shares
    and the share of winners shown sum to 1; NaN for a request without would-be winners.
    """
    worth, passed = true_ecpm(best_from_corpus, slot_effects), np.asarray(best_from_corpus.ids) >= 0
    n_winners = passed.sum(1)
    result = {}
    for stage, slots in lists.items():
        left = true_ecpm(slots, slot_effects)
        is_dropped = passed & ~np.asarray(reached[stage], bool)
        passed = passed & ~is_dropped
        result[stage] = {"lost": worth - left, "dropped": divide(is_dropped.sum(1), n_winners)}
        worth = left
    return result
