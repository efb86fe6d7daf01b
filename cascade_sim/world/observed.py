"""What is known of clicks in a replayed log: those that were logged, and a click model for the others.

Where the same ad stands in the same slot of the same request, its click is the log's. Everything else is the
click model's probability, and is counted apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.errors import UserError
from cascade_sim.world.click_model import FOLDS, ClickModel, Floats, fit_click_model
from cascade_sim.world.replay import Replay


@dataclass(frozen=True)
class PageClicks:
    """Clicks of pages [R, k]: logged ones as 0 or 1, else the model's probability."""

    expected: Floats
    is_observed: NDArray[np.bool_]
    is_logged: NDArray[np.bool_]  # the same ad stood in the same slot
    slope: Floats | None = None  # [M, p] dp / (p (1 - p)) of the modelled places, in order
    fold: NDArray[np.int8] | None = None  # [M]

    def gradient(self, *weights: Floats) -> Floats:
        """Of weighted sums of modelled clicks by each fold's coefficients.  [R, k] each -> [FOLDS, p, n]"""
        assert self.slope is not None and self.fold is not None
        is_modelled = ~self.is_observed
        p = self.expected[is_modelled]
        moves = self.slope * (p * (1 - p))[:, None]
        total = np.zeros((FOLDS, self.slope.shape[1], len(weights)))
        for f in range(FOLDS):
            own = self.fold == f
            for i, weight in enumerate(weights):
                total[f, :, i] = weight[is_modelled][own] @ moves[own]
        return total


class ObservedClicks:
    """Stands where the hidden truth of a drawn world stands; outcomes and measures ask it alike."""

    def __init__(self, replay: Replay, seed: int, charging: str = "click"):
        self._replay, self._seed, self._charging = replay, seed, charging

    @cached_property
    def model(self) -> ClickModel | None:
        """Fitted when first asked for; None where the log has too few clicks for one."""
        return fit_click_model(self._replay.store, self._seed)

    @property
    def has_clicks(self) -> bool:
        """Whether anything can be said of clicks."""
        return self.model is not None

    def ctr(self, block: Any, ids: np.ndarray) -> Floats:
        """The click model's CTR in the first slot; 0 for padding.  [R, m]"""
        probability, _, _ = self._modelled(block, ids, np.zeros(ids.shape, np.int16), ids >= 0)
        found = np.zeros(ids.shape)
        found[ids >= 0] = probability
        return found

    def page_clicks(self, block: Any, win_set: np.ndarray, slot: np.ndarray | None = None) -> PageClicks:
        """Clicks of pages; 0 in an empty slot, which counts as observed.  [R, k]

        `slot` [R, k] says in which slots the ads stand; None: in slot order.
        """
        if slot is None:
            slot = np.broadcast_to(np.arange(win_set.shape[1], dtype=np.int16), win_set.shape)
        logged_slot, click = self._replay.several(block.requests, win_set, {"slot": -1, "click": -1})
        shown = win_set >= 0
        is_logged = shown & (logged_slot == slot)
        is_observed = ~shown | (is_logged & (click >= 0))
        expected = np.where(shown & is_observed, click == 1, 0.0).astype(np.float64)
        probability, slope, fold = self._modelled(block, win_set, slot, ~is_observed)
        expected[~is_observed] = probability
        return PageClicks(expected, is_observed, is_logged, slope, fold)

    def on_page(
        self, block: Any, win_set: np.ndarray, slot_effects: np.ndarray
    ) -> tuple[Floats, Floats, PageClicks]:
        """CTR and expected clicks of pages, both of an ad's own slot: no other is known.  [R, k]"""
        pages = self.page_clicks(block, win_set)
        return pages.expected, pages.expected, pages

    def cvr(self, block: Any, ids: np.ndarray) -> Floats:
        """After a click: whether a conversion was logged, else the logged pCVR, else 0.  [R, m]"""
        (conversion,) = self._replay.several(block.requests, ids, {"conversion": -1})
        predicted: Any = 0.0
        if self._replay.has("pcvr"):
            predicted = np.nan_to_num(self._replay.values(block.requests, ids, "pcvr"))
        return np.where(conversion >= 0, conversion == 1, predicted).astype(np.float64)

    def _modelled(
        self, block: Any, ids: np.ndarray, slot: np.ndarray, wanted: NDArray[np.bool_]
    ) -> tuple[Floats, Floats | None, NDArray[np.int8] | None]:
        """The model's probabilities at the wanted places, their slopes, and the folds.  [M], [M, p], [M]"""
        model = self.model
        if model is None:
            if self._charging == "click" and wanted.any():
                raise UserError(
                    "the log has too few clicks for a click model, so what ads would have been clicked on "
                    "pages "
                    "that were not shown cannot be told; clicks would have to be logged"
                )
            return np.zeros(int(wanted.sum())), None, None
        place, column = np.nonzero(wanted)
        rows = self._replay.rows(block.requests)[place]
        ads = ids[place, column][:, None]
        columns: dict[str, Any] = {"slot": slot[place, column]}
        terms = model.terms
        if len(place):
            found = self._replay.several(block.requests[place], ads, dict.fromkeys(terms.of_candidates, 0))
        else:
            found = tuple(np.zeros((0, 1)) for _ in terms.of_candidates)
        columns |= {name: values[:, 0] for name, values in zip(terms.of_candidates, found, strict=True)}
        columns |= {name: self._replay.store.requests[name][rows] for name in terms.of_requests}
        if model.shared is not None:
            columns["shared"] = model.shared[rows]
        fold = model.fold[rows]
        return (*model.predicted(terms.matrix(columns), fold), fold)
