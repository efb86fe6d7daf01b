"""What is known of clicks in a replayed log: those that were logged, and a click model for the others.

Where the same ad is in the same slot of the same request, its click is the log's. Everything else is the
click model's probability, and is counted apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.replay.exposure import Exposure
from cascade_sim.logs.replay.imputation import Asked, ClickModel, Floats, fit_click_model
from cascade_sim.logs.replay.misfit import Misfit
from cascade_sim.logs.replay.replay import Replay


@dataclass(frozen=True)
class PageClicks:
    """Clicks of pages [R, k]: logged ones as 0 or 1, else the model's probability."""

    expected: Floats
    is_observed: NDArray[np.bool_]
    is_logged: NDArray[np.bool_]  # the same ad was in the same slot
    place: NDArray[np.int64]  # of the ads among the logged candidates, as `Replay.places` has it
    slot: NDArray[np.integer[Any]]  # in which they are here
    row: NDArray[np.int64]  # [R] the log's own numbers of the requests
    said: _Said | None = None  # None where the log has too few clicks for a model

    @property
    def is_kept(self) -> NDArray[np.bool_]:
        """Where a logged click is."""
        return self.is_observed & self.is_logged

    @cached_property
    def modelled(self) -> Floats:
        """What the model, which did not see it, expects of each logged click; 0 elsewhere.  [R, k]"""
        found = np.zeros(self.expected.shape)
        kept = self.is_kept
        if self.said is not None:
            found[kept] = self.said.clicks(self.place[kept], self.row[np.nonzero(kept)[0]], self.slot[kept])
        return found

    @property
    def beyond(self) -> Floats:
        """By how much the model expects more clicks than were logged; 0 where none was looked at.  [R, k]"""
        if self.said is None:
            return np.zeros(self.expected.shape)
        return np.where(self.is_kept, self.modelled - self.expected, 0.0)

    def gradient(self, of: NDArray[np.bool_], *weights: Floats) -> Floats:
        """Of weighted sums of modelled clicks by each fold's coefficients.  [R, k] each -> [FOLDS, p, n]"""
        assert self.said is not None
        if of is not None and (of & self.is_kept).any():
            self.modelled  # noqa: B018 - asks about those
        wanted = np.stack([weight[of] for weight in weights], axis=1)
        return self.said.gradient(self.place[of], self.slot[of], wanted)


class _Said:
    """What the click model says of the logged candidates of some requests, found as they are asked for.

    Arms show much the same ads: what one asked for, the others need not compute.
    """

    def __init__(self, model: ClickModel, replay: Replay, requests: np.ndarray):
        self._model, self._replay, self._requests = model, replay, requests
        self._at = np.full(replay.n_places(requests), -1, np.int32)  # of each place, among those asked about
        self._asked: Asked | None = None

    def ctr(self, place: NDArray[np.int64], row: NDArray[np.int64]) -> Floats:
        """CTR in the first slot of the ads at these places, of these requests of the log.  [M]"""
        asked, at = self._find(place, row)
        return asked.ctr[at]

    def clicks(self, place: NDArray[np.int64], row: NDArray[np.int64], slot: NDArray[Any]) -> Floats:
        """P(click) of the ads at these places in these slots.  [M]"""
        return self._model.predicted(*self._find(place, row), slot)

    def gradient(self, place: NDArray[np.int64], slot: NDArray[Any], weights: Floats) -> Floats:
        """As `ClickModel.gradient`, of ads that were asked about."""
        assert self._asked is not None
        return self._model.gradient(self._asked, self._at[place], slot, weights)

    def _find(self, place: NDArray[np.int64], row: NDArray[np.int64]) -> tuple[Asked, NDArray[np.int32]]:
        """All that was asked about by now, and where among it these ads are.  [M]"""
        if place.min(initial=0) < 0:
            raise ValueError("an ad is asked about that was no candidate of its request")
        at = self._at[place]
        unknown = np.flatnonzero(at < 0)
        if self._asked is None or len(unknown):
            more = self._ask(place[unknown], row[unknown])
            before = 0 if self._asked is None else len(self._asked.ctr)
            self._asked = more if self._asked is None else self._asked.with_more(more)
            self._at[place[unknown]] = np.arange(before, before + len(unknown), dtype=np.int32)
            at = self._at[place]
        return self._asked, at

    def _ask(self, place: NDArray[np.int64], row: NDArray[np.int64]) -> Asked:
        model, replay = self._model, self._replay
        named = dict.fromkeys(model.terms.of_candidates, 0)
        found = replay.at(self._requests, place[:, None], named)
        columns: dict[str, Any] = {name: values[:, 0] for name, values in zip(named, found, strict=True)}
        columns |= {name: replay.store.requests[name][row] for name in model.terms.of_requests}
        if model.shared is not None:
            columns["shared"] = model.shared[row]
        return model.asked(columns, row)


class ObservedClicks:
    """Takes the place of a synthetic world's ground truth; outcomes and measures ask it alike."""

    def __init__(self, replay: Replay, seed: int, charging: str = "click"):
        self._replay, self._seed, self._charging = replay, seed, charging

    @cached_property
    def model(self) -> ClickModel | None:
        """Fitted when first asked for; None where the log has too few clicks for one."""
        return fit_click_model(self._replay.store, self._seed)

    @cached_property
    def misfit(self) -> Misfit | None:
        """How far off the click model may be; None without one."""
        return None if self.model is None else Misfit(self.model, self._replay.store.n_requests)

    def by_group(self, block: Any, ads: np.ndarray, pages: PageClicks, *weights: Floats) -> Floats:
        """Weighted sums of what the model expects of logged clicks, by group of the misfit.  [groups, n]"""
        misfit, kept = self.misfit, pages.is_kept
        assert misfit is not None
        found = self._replay.at(block.requests, pages.place, dict.fromkeys(misfit.columns, 0))
        columns = {name: values[kept] for name, values in zip(misfit.columns, found, strict=True)}
        wanted = np.stack([(weight * pages.modelled)[kept] for weight in weights], axis=1)
        row = pages.row[np.nonzero(kept)[0]]
        return misfit.sums(misfit.groups(ads[kept], pages.slot[kept], row, columns), wanted)

    @cached_property
    def exposure(self) -> Exposure | None:
        """Where the log tells what was exposed."""
        return Exposure(self._replay.store) if self._replay.has("exposed") else None

    def exposed(self, block: Any, slots: int) -> Floats | None:
        """As `GroundTruth.exposed`."""
        known = self.exposure
        return None if known is None else known.chances(self._replay.rows(block.requests), slots)

    @property
    def has_clicks(self) -> bool:
        """Whether anything can be said of clicks."""
        return self.model is not None

    def ctr(self, block: Any, ids: np.ndarray, place: NDArray[np.int64] | None = None) -> Floats:
        """The click model's CTR in the first slot; 0 for padding.  [R, m]

        `place` [R, m] says where the ads are among the logged candidates, where that is known.
        """
        place = self._replay.places(block.requests, ids) if place is None else place
        wanted, found = ids >= 0, np.zeros(ids.shape)
        said = self._said(block, wanted)
        if said is not None:
            found[wanted] = said.ctr(place[wanted], self._rows(block, wanted))
        return found

    def page_clicks(self, block: Any, win_set: np.ndarray, slot: np.ndarray | None = None) -> PageClicks:
        """Clicks of pages; 0 in an empty slot, which counts as observed.  [R, k]

        `slot` [R, k] says in which slots the ads are; None: in slot order.
        """
        if slot is None:
            slot = np.broadcast_to(np.arange(win_set.shape[1], dtype=np.int16), win_set.shape)
        place = self._replay.places(block.requests, win_set)
        logged_slot, click = self._replay.at(block.requests, place, {"slot": -1, "click": -1})
        shown = win_set >= 0
        is_logged = shown & (logged_slot == slot)
        is_observed = ~shown | (is_logged & (click >= 0))
        expected = np.where(shown & is_observed, click == 1, 0.0).astype(np.float64)
        wanted = ~is_observed
        said = self._said(block, wanted)
        if said is not None:
            expected[wanted] = said.clicks(place[wanted], self._rows(block, wanted), slot[wanted])
        return PageClicks(
            expected, is_observed, is_logged, place, slot, self._replay.rows(block.requests), said
        )

    def on_page(
        self, block: Any, win_set: np.ndarray, slot_effects: np.ndarray, find: Callable[[], np.ndarray]
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

    def _said(self, block: Any, wanted: NDArray[np.bool_]) -> _Said | None:
        """What the model says of the block's candidates; None without a model, if that will do."""
        model = self.model
        if model is None:
            if self._charging == "click" and wanted.any():
                raise UserError(
                    "the log has too few clicks for a click model, so what ads would have been clicked on "
                    "pages "
                    "that were not shown cannot be told; clicks would have to be logged"
                )
            return None

        def empty() -> _Said:
            return _Said(model, self._replay, block.requests)

        memo = getattr(block, "memo", None)
        said: _Said = empty() if memo is None else memo.made(self, (block.requests,), empty)
        return said

    def _rows(self, block: Any, wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The log's requests at the wanted places of pages.  [R, m] -> [M]"""
        return self._replay.rows(block.requests)[np.nonzero(wanted)[0]]
