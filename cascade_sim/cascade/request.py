"""What meets when requests are served: the requests, the arm that serves them, and what is decided."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cascade_sim.cascade.bids import BidRules, Rates
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.logged import LoggedBids, LoggedRetrieval
from cascade_sim.cascade.memo import Memo
from cascade_sim.cascade.page import Page, Rules
from cascade_sim.cascade.retrieval import Retrieval
from cascade_sim.cascade.seats import Scorer
from cascade_sim.cascade.sizes import SizeRule
from cascade_sim.world.lives import Lives


@dataclass(frozen=True)
class RequestKnobs:
    """Values for each request of a block, in place of its arm's. Arrays [R]; None: as the arm has it."""

    reserve_cpc: NDArray[np.float64] | None = None
    squashing_ratio: NDArray[np.float64] | None = None  # exponent of pCTR as a multiple of the arm's
    slots: NDArray[np.int64] | None = None  # places of a page that has fewer than the arm
    logged_reserve: NDArray[np.float64] | None = None  # for arms with `logged_reserves`

    def take(self, rows) -> "RequestKnobs":
        """Those of some requests (a slice, a mask or indices)."""
        return RequestKnobs(*(None if v is None else v[rows] for v in vars(self).values()))

    def squashed(self, fusion: Fusion) -> Fusion:
        """A stage's fusion with an exponent of pCTR for each request."""
        if self.squashing_ratio is None:
            return fusion
        return replace(fusion, pctr=fusion.pctr * self.squashing_ratio[:, None])


@dataclass(frozen=True)
class Block:
    """Requests served together. Arrays of one length R."""

    requests: np.ndarray  # int64 ids
    users: np.ndarray  # int32
    context: np.ndarray  # float32
    times: np.ndarray  # float64, seconds of simulated time
    knobs: RequestKnobs | None = None  # the auction's, request by request; None: those of the arm
    memo: Memo | None = None  # what is known of its candidates already

    def __len__(self) -> int:
        return len(self.requests)

    def take(self, rows) -> "Block":
        """The requests of these rows (a slice, a mask or indices)."""
        knobs = None if self.knobs is None else self.knobs.take(rows)
        return Block(self.requests[rows], self.users[rows], self.context[rows], self.times[rows], knobs)

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Who came when, as tables have it, for table rows that are of these requests."""
        return {
            "request": self.requests[rows],
            "time": self.times[rows],
            "user": self.users[rows],
            "context": self.context[rows],
        }


@dataclass(frozen=True)
class Stage:
    """Who sits in a stage: the model, the kind of bid it is multiplied with, and how they are fused."""

    scorer: Scorer
    bid: str  # init | opt | none
    fusion: Fusion
    rates: Rates | None = None  # a model's pCVR, where the stage looks at one; None: the known pCVR

    @property
    def pcvr(self) -> str | None:
        """The name of the model that its opt-bids come from; None where no model has a part in its bids."""
        return self.rates.name if self.rates is not None and self.bid == "opt" else None

    @property
    def bid_name(self) -> str:
        """Its bid in a few letters: `init`, `opt`, or `opt (pcvr)` with the name of the model."""
        return self.bid if self.pcvr is None else f"{self.bid} ({self.pcvr})"

    def bids_like(self, other: "Stage") -> bool:
        """Whether both stages see the same bids."""
        return self.bid == other.bid and (self.bid != "opt" or self.rates is other.rates)


@dataclass(frozen=True)
class Arm:
    """The settings of a cascade that an experiment compares: stages, their sizes, bids and the auction."""

    name: str
    retrieval_size: int
    pre_ranking: Stage
    pre_ranking_size: int
    ranking: Stage
    slots: int
    pricing: str = "gsp"
    reserve_cpc: float = 0.0
    score_floor: float = 0.0
    bid_rule: str = "ocpc"
    bid_range: float = 0.4
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)  # of the pricing rule
    size_rule: SizeRule | None = None  # chooses each request's size; pre_ranking_size is then the largest
    charging: str = "click"  # or impression: what a price is the price of
    logged_reserves: bool = False  # of a replayed log: the reserve that each request had

    def with_pre_ranking(self, stage: Stage, name: str | None = None) -> "Arm":
        """The same arm with another pre-ranking seat."""
        return replace(self, pre_ranking=stage, name=name or self.name)

    def rules(self, slot_effects: np.ndarray) -> Rules:
        """How its pages are priced."""
        is_clicked = self.charging == "click"  # an impression is one in any slot
        return Rules(
            self.slots,
            slot_effects[: self.slots] if is_clicked else np.ones(self.slots),
            self.pricing,
            self.reserve_cpc,
            self.score_floor,
            self.parameters,
        )


@dataclass(frozen=True)
class Platform:
    """What all arms share while serving: the retrieval index, the bids, the slots on the page."""

    retrieval: Retrieval
    bids: BidRules | LoggedBids
    slot_effects: np.ndarray
    lives: Lives | None = None  # when ads are there; None: always

    def retrieved(self, block: Block, size: int) -> np.ndarray:
        """The pre-ranking sets: of the ads that are there, the nearest.  [R, n] ids ascending"""
        if isinstance(self.retrieval, LoggedRetrieval):
            return self.retrieval.candidates(block.requests)
        if self.lives is None:
            return self.retrieval(block.users, size)
        return self.retrieval.of_living(block.users, size, block.times, self.lives)


@dataclass(frozen=True)
class Scores:
    """A stage's view of its candidates, each [R, m]; score = bid * quality."""

    prediction: np.ndarray
    bid: np.ndarray
    quality: np.ndarray

    @property
    def score(self) -> np.ndarray:
        return self.bid * self.quality

    def take(self, rows) -> "Scores":
        """Those of some requests (a slice, a mask or indices)."""
        return Scores(*(values[rows] for values in vars(self).values()))


class PreView:
    """What the pre-ranking stage says of its candidates, found when somebody asks for it.

    Where it hands on all of them there is nothing to choose, and mostly nobody asks.
    """

    def __init__(self, find: Callable[[], Scores], find_order: Callable[[Scores], np.ndarray]):
        self._find, self._find_order = find, find_order

    def __getstate__(self) -> dict[str, object]:
        """What goes to another process is what was found, not the world that it is found in."""
        return {"scores": self.scores, "order": self.order}

    @cached_property
    def scores(self) -> Scores:
        """Prediction, bid and quality.  [R, n]"""
        return self._find()

    @cached_property
    def order(self) -> np.ndarray:
        """What they are chosen by: the fused score, negative for those that cannot win.  [R, n] float32"""
        return self._find_order(self.scores)


@dataclass(frozen=True)
class PreRanked:
    """What pre-ranking hands on."""

    pre_ranking_set: np.ndarray  # [R, n] ad ids
    view: PreView
    competitive_set: np.ndarray  # [R, c] ad ids, -1 = empty
    columns: np.ndarray  # [R, c] their places in the pre-ranking set, -1 = empty

    @property
    def scores(self) -> Scores:
        """[R, n]"""
        return self.view.scores

    @property
    def pre_score(self) -> np.ndarray:
        """[R, n] fused, float32"""
        return self.view.order

    @property
    def sizes(self) -> np.ndarray:
        """Ads handed on per request.  [R]"""
        return (self.competitive_set >= 0).sum(axis=1)


@dataclass(frozen=True)
class Decision:
    """What the cascade decided for a block. Columns of sets ascend by ad id; slots are in page order."""

    pre_ranking_set: np.ndarray  # [R, n] ad ids
    view: PreView  # of the pre-ranking stage
    competitive_set: np.ndarray  # [R, c] ad ids, -1 = empty
    page: Page

    @property
    def pre_prediction(self) -> np.ndarray:
        """Of the pre-ranking model.  [R, n]"""
        return self.view.scores.prediction

    @property
    def pre_score(self) -> np.ndarray:
        """Fused, float32.  [R, n]"""
        return self.view.order

    def take(self, rows) -> "Decision":
        """What was decided for some requests (a slice, a mask or indices)."""

        view = PreView(lambda: self.view.scores.take(rows), lambda scores: self.view.order[rows])
        return Decision(self.pre_ranking_set[rows], view, self.competitive_set[rows], self.page.take(rows))

    def with_rows(self, rows: np.ndarray, part: "Decision") -> "Decision":
        """The same with what was decided otherwise for some requests (indices)."""

        def scores() -> Scores:
            pairs = zip(vars(self.view.scores).values(), vars(part.view.scores).values(), strict=True)
            return Scores(*(_with_rows(own, rows, other, 0) for own, other in pairs))

        def order(_: Scores) -> np.ndarray:
            return _with_rows(self.view.order, rows, part.view.order, 0)

        return Decision(
            _with_rows(self.pre_ranking_set, rows, part.pre_ranking_set, -1),
            PreView(scores, order),
            _with_rows(self.competitive_set, rows, part.competitive_set, -1),
            self.page.with_rows(rows, part.page),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """All that was decided, by name; what is of the page begins with `page.`."""
        stages = {
            "pre_ranking_set": self.pre_ranking_set,
            "pre_prediction": self.pre_prediction,
            "pre_score": self.pre_score,
            "competitive_set": self.competitive_set,
        }
        return {**stages, **{f"page.{name}": values for name, values in vars(self.page).items()}}

    @property
    def win_set(self) -> np.ndarray:
        """The ads shown, in slot order; -1 in an empty slot.  [R, k]"""
        return self.page.ads[:, :-1]

    @property
    def ranked_set(self) -> np.ndarray:
        """The win set, then the runner-up.  [R, k+1]"""
        return self.page.ads

    @property
    def ranked_pctr(self) -> np.ndarray:
        return self.page.pctr

    @property
    def ranked_bid(self) -> np.ndarray:
        return self.page.bid

    @property
    def ranked_quality(self) -> np.ndarray:
        return self.page.quality

    @property
    def cpc_micros(self) -> np.ndarray:
        """What a click on each slot costs, in micro-units.  [R, k]"""
        return self.page.cpc_micros


def _with_rows(whole: np.ndarray, rows: np.ndarray, part: np.ndarray, empty: int) -> np.ndarray:
    """A copy of `whole` [R, n] with `part` [len(rows), m] in these rows, as wide as the wider."""
    width = max(whole.shape[1], part.shape[1])
    made = np.full((len(whole), width), empty, np.result_type(whole, part))
    made[:, : whole.shape[1]] = whole
    made[rows] = empty
    made[rows, : part.shape[1]] = part
    return made
