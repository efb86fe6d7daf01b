"""Retrieval by a trained model: the ads with the highest logit, and bid if it counts.

score(x, a) = <u(x), v(a)> + bid_weight * log(init-bid of a)

The bid is one more column of the inner product, so the search stays a maximum inner product over the corpus.
With `bid_weight` 1 and a model of log-odds it is nearly the logarithm of eCPM where clicks are rare.
An answer is kept for its user's next visit where the model does not look at the request's context.
"""

from __future__ import annotations

import copy
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cascade_sim.cascade.cost import cost_of
from cascade_sim.cascade.retrievers.by_user import ASKED, UserRetrieval, available_width
from cascade_sim.cascade.retrievers.inner_product import AdIndex
from cascade_sim.cascade.scorers import ModelScorer, Scorer
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.kernels import select_top
from cascade_sim.models.nets.codes import encoders
from cascade_sim.protocols import Availability, Cost
from cascade_sim.scenario.plugins import errors_of
from cascade_sim.world.availability import ascending

KEPT_AT_BIDS = 4  # indexes at other bids
LOWEST = np.float32(-1e9)  # of an ad that bids nothing: found last, and by no other ad's place


class LearnedRetrieval:
    """Maximum inner product over the codes of a model with two encoders (`models.nets.codes`).

    Args:
        scorer: a trained model's, whose net has encoders; the score is its own logit, before any calibrator.
        init_bid: [A] bids per click, looked at with a weight above 0.
        probes: of inverted lists (faiss); None searches exactly.
    """

    def __init__(
        self,
        scorer: Scorer,
        init_bid: NDArray[np.float64],
        bid_weight: float = 1.0,
        probes: int | None = None,
        seed: int = 0,
    ):
        self.name, self.bid_weight = scorer.name, bid_weight
        self._scorer, self._probes, self._seed = trained_net(scorer), probes, seed
        found = encoders(self._scorer.module)  # type: ignore[attr-defined]  # every trained model has one
        if found is None:
            raise UserError(
                f"model {scorer.name!r} cannot retrieve: its net has no inner product; use kind towers, or a "
                "class with encode_users and encode_ads"
            )
        self._encode_request, encode_ads = found
        self._seen = self._scorer.seen  # type: ignore[attr-defined]
        rows, net = torch.from_numpy(self._seen.ad_table), type(self._scorer.module).__name__  # type: ignore[attr-defined]
        with errors_of(f"model {scorer.name!r}", net), torch.inference_mode():
            self._codes = _checked(encode_ads(rows), len(rows), "encode_ads", scorer.name)
        self._users = None if self._seen.has_context else self._user_codes()
        self._lock, self._at_bids = Lock(), dict[int, LearnedRetrieval]()
        self._set_bids(init_bid)

    def with_scorer(self, scorer: Scorer) -> LearnedRetrieval:
        """The same retriever by another model, as it is after it has learned again."""
        return LearnedRetrieval(scorer, self._init_bid, self.bid_weight, self._probes, self._seed)

    def with_bids(self, init_bid: NDArray[np.float64]) -> LearnedRetrieval:
        """The same retriever at other bids [A], not to be written to; itself where bids have no part.

        One retriever for one array, as long as it is among the last few.
        """
        if not self.bid_weight or init_bid is self._init_bid:
            return self
        with self._lock:
            found = self._at_bids.pop(id(init_bid), None)
            if found is None:
                found = copy.copy(self)
                found._set_bids(init_bid)
            self._at_bids[id(init_bid)] = found  # it holds the array, so no other has its id
            while len(self._at_bids) > KEPT_AT_BIDS:
                del self._at_bids[next(iter(self._at_bids))]
        return found

    def _set_bids(self, init_bid: NDArray[np.float64]) -> None:
        self._init_bid = init_bid
        value = np.zeros(len(init_bid), np.float32)
        if self.bid_weight:
            with np.errstate(divide="ignore"):
                value = np.maximum(self.bid_weight * np.log(init_bid), LOWEST).astype(np.float32)
        codes = self._codes

        def rows_of(at: slice) -> NDArray[np.float32]:
            return np.hstack([codes[at], value[at, None]])

        self.index = AdIndex(len(codes), codes.shape[1] + 1, rows_of, self._probes, self._seed)
        self._by_user = None if self._users is None else UserRetrieval(self._users, self.index)

    @property
    def _width(self) -> int:
        """Numbers of a code, and the bid."""
        return self._codes.shape[1] + 1

    def retrieve(self, block: Any, size: int, lives: Availability | None) -> NDArray[np.int32]:
        """Of the ads that are there, those of the highest score.  [R, n] ids ascending"""
        if self._by_user is not None:
            return self._by_user.retrieve(block, size, lives)
        codes, size = self._request_codes(block.users, block.context), min(size, self.index.n_ads)
        if lives is None:
            return self.index.nearest(codes, size)
        return self._among_available(codes, size, block.times, lives)

    def score(self, block: Any, ids: np.ndarray) -> NDArray[np.float32]:
        """[R, m]; 0 for padding"""
        if self._by_user is not None:
            return self._by_user.score(block, ids)
        return self.index.scores(self._request_codes(block.users, block.context), ids)

    def cost(self, size: int) -> Cost:
        """Of the request's code and a search; answers that depend on the user alone are kept."""
        search = self.index.cost(size, is_kept=self._by_user is not None)
        own = cost_of(self._scorer) or Cost()
        return search + Cost(
            own.request_flops, own.request_bytes, ad_flops=own.ad_flops, is_kept=search.is_kept
        )

    def share_found(self, size: int) -> float | None:
        """The share of the nearest ads that approximate answers hold, by a few users; None: exact."""
        if self.index.is_exact:
            return None
        n = len(self._seen.user_table)
        users = np.linspace(0, n - 1, min(ASKED, n)).astype(np.int32)
        return self.index.recall(self._request_codes(users, np.zeros(len(users), np.float32)), size)

    def __deepcopy__(self, memo: dict[int, Any]) -> LearnedRetrieval:
        """Itself: an index does not change."""
        return self

    def _among_available(
        self, codes: NDArray[np.float32], size: int, times: np.ndarray, lives: Availability
    ) -> NDArray[np.int32]:
        """The same of the ads that are there; where the nearest are too few, the search goes on for more."""
        n_ads = self.index.n_ads
        found, left = np.full((len(codes), size), -1, np.int32), np.arange(len(codes))
        width = min(n_ads, available_width(size, lives.share))
        while len(left):
            ids = self.index.nearest(codes[left], width)
            there = np.where(lives.is_available(ids, times[left, None]), ids, np.int32(-1))
            chosen, _ = select_top(there, self.index.scores(codes[left], there), size)
            found[left] = ascending(chosen)
            left = left[(found[left] < 0).any(axis=1)] if width < n_ads else left[:0]
            width = min(2 * width, n_ads)
        return found

    def _user_codes(self) -> NDArray[np.float32]:
        """The codes of all users, where nothing else has a part in them.  [U, D + 1]"""
        n = len(self._seen.user_table)
        codes = np.empty((n, self._width), np.float32)
        for at in draws.parts(n):
            users = np.arange(at.start, at.stop, dtype=np.int32)
            codes[at] = self._request_codes(users, np.zeros(len(users), np.float32))
        return codes

    def _request_codes(self, users: np.ndarray, context: np.ndarray) -> NDArray[np.float32]:
        """[R] -> [R, D + 1], the last one meets the bid"""
        request, net = self._seen.request_features(users, context), type(self._scorer.module).__name__  # type: ignore[attr-defined]
        with errors_of(f"model {self.name!r}", net), torch.inference_mode():
            given = self._encode_request(torch.from_numpy(request))
            codes = _checked(given, len(users), "encode_users", self.name)
        if codes.shape[1] != self._width - 1:
            raise UserError(
                f"model {self.name!r}: encode_users gives {codes.shape[1]} numbers a request, and encode_ads "
                f"{self._width - 1} an ad; give as many"
            )
        return np.hstack([codes, np.ones((len(codes), 1), np.float32)])


def trained_net(scorer: Scorer) -> ModelScorer:
    """The scorer of the net itself, below a calibrator or another link; UserError if it was not trained."""
    inner = getattr(scorer, "of_net", scorer)
    if not isinstance(inner, ModelScorer):
        raise UserError(f"model {scorer.name!r} cannot retrieve: it is no trained model")
    return inner


def _checked(codes: Any, n: int, method: str, model: str) -> NDArray[np.float32]:
    """What an encoder gave, a row for each; UserError where it is none, or not finite."""
    if not isinstance(codes, torch.Tensor) or codes.dim() != 2 or len(codes) != n:
        shape = tuple(codes.shape) if isinstance(codes, torch.Tensor) else type(codes).__name__
        raise UserError(f"model {model!r}: {method} gave {shape}, expected a tensor of shape ({n}, D)")
    rows = codes.float().numpy()
    if not np.isfinite(rows).all():
        raise UserError(
            f"model {model!r}: {method} gave {rows[~np.isfinite(rows)][0]}, expected finite numbers"
        )
    return np.ascontiguousarray(rows)
