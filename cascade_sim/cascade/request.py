"""What meets when requests are served: the requests, the arm that serves them, and what is decided.

An arm is a cascade: retrieval, then stages that score. Each stage but the last hands its best candidates on;
those of the last are auctioned. A decision has a pass for each of these stages, and the page.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.auction import EXACT, Rounding
from cascade_sim.cascade.bids import BidRules, Rates
from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.logged import LoggedBids
from cascade_sim.cascade.page import Page, Rules
from cascade_sim.cascade.retrievers.similarity import Retriever
from cascade_sim.cascade.scorers import Scorer
from cascade_sim.cascade.sizes import SizeRule
from cascade_sim.world.availability import AdAvailability


@dataclass(frozen=True)
class RequestOverrides:
    """Values for each request of a block, in place of its arm's. Arrays [R]; None: as the arm has it."""

    reserve_cpc: NDArray[np.float64] | None = None
    squashing_ratio: NDArray[np.float64] | None = None  # exponent of pCTR as a multiple of the arm's
    slots: NDArray[np.int64] | None = None  # places of a page that has fewer than the arm
    logged_reserve: NDArray[np.float64] | None = None  # for arms with `logged_reserves`

    def take(self, rows) -> "RequestOverrides":
        """Those of some requests (a slice, a mask or indices)."""
        return RequestOverrides(*(None if v is None else v[rows] for v in vars(self).values()))

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
    parameters: RequestOverrides | None = None  # the auction's, request by request; None: those of the arm
    memo: BlockCache | None = None  # what is known of its candidates already

    def __len__(self) -> int:
        return len(self.requests)

    def take(self, rows) -> "Block":
        """The requests of these rows (a slice, a mask or indices)."""
        parameters = None if self.parameters is None else self.parameters.take(rows)
        return Block(self.requests[rows], self.users[rows], self.context[rows], self.times[rows], parameters)

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Who came when, as tables have it, for table rows that are of these requests."""
        return {
            "request": self.requests[rows],
            "time": self.times[rows],
            "user": self.users[rows],
            "context": self.context[rows],
        }


@dataclass(frozen=True)
class Retrieve:
    """The first stage: what finds candidates in the corpus, and how many."""

    retriever: Retriever
    size: int
    name: str = field(default="retrieval", compare=False)


@dataclass(frozen=True)
class Stage:
    """Scores its candidates by bid * quality and hands the best on; those of the last one are auctioned."""

    scorer: Scorer
    bid: str  # init | opt | none
    fusion: Fusion
    rates: Rates | None = None  # a model's pCVR, where the stage looks at one; None: the known pCVR
    size: int | None = None  # handed on at most; None: the last stage
    size_rule: SizeRule | None = None  # chooses each request's size; `size` is then the largest
    name: str = field(default="ranking", compare=False)

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

    def scores_like(self, other: "Stage") -> bool:
        """Whether both stages say the same of every candidate."""
        return self.alone == other.alone

    @property
    def alone(self) -> "Stage":
        """The same stage with nothing to hand on: as if it were the last."""
        return replace(self, size=None, size_rule=None)


@dataclass(frozen=True)
class Arm:
    """The settings of a cascade that an experiment compares: stages and the auction."""

    name: str
    retrieval: Retrieve
    stages: tuple[Stage, ...]  # all but the last have a size
    slots: int
    pricing: str = "gsp"
    reserve_cpc: float = 0.0
    score_floor: float = 0.0
    bid_rule: str = "ocpc"
    bid_range: float = 0.4
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)  # of the pricing rule
    rounding: Rounding = EXACT
    charging: str = "click"  # or impression: what a price is the price of
    logged_reserves: bool = False  # of a replayed log: the reserve that each request had

    @property
    def last(self) -> Stage:
        """The stage whose candidates are auctioned."""
        return self.stages[-1]

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Of all stages, retrieval first."""
        return (self.retrieval.name, *(stage.name for stage in self.stages))

    @property
    def set_names(self) -> tuple[str, ...]:
        """Of the sets that stages hand on, by who receives them; ranking's are the competitors."""
        return (*(f"{one.name}_set" for one in self.stages[:-1]), "competitive_set", "win_set")

    @property
    def most_auctioned(self) -> int:
        """How many ads the last stage is handed at most."""
        size = self.stages[-2].size if len(self.stages) > 1 else self.retrieval.size
        assert size is not None
        return size

    @property
    def has_size_rule(self) -> bool:
        """Whether any stage hands on as many ads as a rule chooses for each request."""
        return any(stage.size_rule is not None for stage in self.stages)

    def with_stage(self, at: int, **changes: Any) -> "Arm":
        """The same arm with fields of one scoring stage changed."""
        stages = list(self.stages)
        stages[at] = replace(stages[at], **changes)
        return replace(self, stages=tuple(stages))

    def with_scorers(self, scorer_of: Callable[[Stage], Scorer]) -> "Arm":
        """The same arm with other scorers in its stages."""
        return replace(self, stages=tuple(replace(one, scorer=scorer_of(one)) for one in self.stages))

    def among(self, retriever: Retriever) -> "Arm":
        """The same arm with other candidates."""
        return replace(self, retrieval=replace(self.retrieval, retriever=retriever))

    def ranking_only(self, name: str = "") -> "Arm":
        """The last stage alone, on all that is retrieved."""
        return replace(self, name=name, stages=(self.last,))

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
            self.rounding,
        )


@dataclass(frozen=True)
class Platform:
    """What all arms share while serving: the bids, the slots on the page, and which ads are there."""

    bids: BidRules | LoggedBids
    slot_effects: np.ndarray
    lives: AdAvailability | None = None  # when ads are there; None: always


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


class View:
    """What a stage says of its candidates, found when it is asked for.

    A stage that hands on all of them has nothing to choose, and mostly is not asked.
    """

    def __init__(self, find: Callable[[], Scores], find_order: Callable[[Scores], np.ndarray]):
        self._find, self._find_order = find, find_order

    def __getstate__(self) -> dict[str, object]:
        """What goes to another process is what was found, not the world that it is found in."""
        return {name: vars(self)[name] for name in ("scores", "order") if name in vars(self)}

    @cached_property
    def scores(self) -> Scores:
        """Prediction, bid and quality.  [R, n]"""
        return self._find()

    @cached_property
    def order(self) -> np.ndarray:
        """What they are chosen by: the fused score, negative for those that cannot win.  [R, n] float32"""
        return self._find_order(self.scores)


@dataclass(frozen=True)
class Pass:
    """The candidates of a stage, and what it says of them."""

    ids: np.ndarray  # [R, n] ad ids ascending, -1 = empty
    view: View
    columns: np.ndarray | None = None  # [R, n] their places in the pass before, -1 = empty; None: the first

    @property
    def scores(self) -> Scores:
        """[R, n]"""
        return self.view.scores

    @property
    def order(self) -> np.ndarray:
        """[R, n] fused, float32"""
        return self.view.order

    @property
    def counts(self) -> np.ndarray:
        """Candidates of each request.  [R]"""
        return (self.ids >= 0).sum(axis=1)

    def take(self, rows) -> "Pass":
        """Those of some requests (a slice, a mask or indices)."""
        view = View(lambda: self.view.scores.take(rows), lambda scores: self.view.order[rows])
        return Pass(self.ids[rows], view, None if self.columns is None else self.columns[rows])

    def with_rows(self, rows: np.ndarray, part: "Pass") -> "Pass":
        """The same with other candidates of some requests (indices)."""

        def scores() -> Scores:
            pairs = zip(vars(self.view.scores).values(), vars(part.view.scores).values(), strict=True)
            return Scores(*(_with_rows(own, rows, other, 0) for own, other in pairs))

        def order(_: Scores) -> np.ndarray:
            return _with_rows(self.view.order, rows, part.view.order, 0)

        columns = None
        if self.columns is not None and part.columns is not None:
            columns = _with_rows(self.columns, rows, part.columns, -1)
        return Pass(_with_rows(self.ids, rows, part.ids, -1), View(scores, order), columns)


@dataclass(frozen=True)
class Decision:
    """What the cascade decided for a block: a pass for each scoring stage of the arm, and the page.

    Columns of sets ascend by ad id; slots are in page order.
    """

    passes: tuple[Pass, ...]
    page: Page

    def __getstate__(self) -> dict[str, object]:
        """With the orders by which stages chose; what the last stage says of the page is on the page."""
        for chose in self.passes[: max(len(self.passes) - 1, 1)]:
            chose.view.order  # noqa: B018
        return vars(self)

    @property
    def sets(self) -> tuple[np.ndarray, ...]:
        """What was left after each stage, retrieval first: retrieved, ..., auctioned, shown."""
        return (*(one.ids for one in self.passes), self.win_set)

    @property
    def retrieved(self) -> np.ndarray:
        """The candidates of the first scoring stage.  [R, n] ad ids, -1 = empty"""
        return self.passes[0].ids

    @property
    def competitive_set(self) -> np.ndarray:
        """The candidates of the last stage, which are auctioned.  [R, c] ad ids, -1 = empty"""
        return self.passes[-1].ids

    def take(self, rows) -> "Decision":
        """What was decided for some requests (a slice, a mask or indices)."""
        return Decision(tuple(one.take(rows) for one in self.passes), self.page.take(rows))

    def with_rows(self, rows: np.ndarray, part: "Decision") -> "Decision":
        """The same with what was decided otherwise for some requests (indices)."""
        pairs = zip(self.passes, part.passes, strict=True)
        passes = tuple(own.with_rows(rows, other) for own, other in pairs)
        return Decision(passes, self.page.with_rows(rows, part.page))

    @property
    def win_set(self) -> np.ndarray:
        """The ads shown, in slot order; -1 in an empty slot.  [R, k]"""
        return np.ascontiguousarray(self.page.ads[:, :-1])  # one layout: a kernel is compiled for each

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
