"""Contracts of the simulator: the interfaces of its exchangeable parts, each with shapes and an example.

    part           decides                                      one file more in
    Scorer         predictions of a stage                       cascade/, or a scenario's own model class
    Retriever      candidates of a request                      cascade/
    Availability   which ads exist at a time                    world/
    Bidder         bids and participation of advertisers        agents/bidders/
    ClickModel     examination and clicks of a page             agents/click_models.py
    Pricing        cost per click of a slot                     auction/pricing.py
    Environment    arrivals, outcomes and evaluation of a world environments/
    Evaluator      metrics of a decision                        environments/evaluators/
    Uncertainty    variance that fitted models add              environments/uncertainty/

Shapes: R requests of a block, m candidates of a request, k slots of a page, A ads of the corpus, a ads of n
advertisers. Sets of ads are int32 ids; -1 is padding. Money is in units of currency, except `_micros`: int64
micro-units, 1,000,000 of which are one unit. Times are float64 seconds of simulated time.

Any class with these members will do; none of the protocols has to be inherited. This module imports nothing
of the package and is below all of its layers, so the contracts of a world are generic in the types that the
cascade defines above it: `cascade_sim.environments` binds them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

if TYPE_CHECKING:  # the pricing rules are read by commands that start without numpy
    import numpy as np
    from numpy.typing import NDArray

    Bools: TypeAlias = NDArray[np.bool_]
    Ids: TypeAlias = NDArray[np.int32]
    Floats: TypeAlias = NDArray[np.float64]

__all__ = [
    "Availability",
    "Bidder",
    "ClickModel",
    "Cost",
    "Environment",
    "Evaluator",
    "Feedback",
    "MarketTime",
    "Portfolio",
    "Parameter",
    "Pricing",
    "Requests",
    "Retriever",
    "Scorer",
    "Slot",
    "Uncertainty",
]


# Cascade: retrieval and stages


class Requests(Protocol):
    """A block of R requests, as scorers and retrievers receive it (`cascade.request.Block`).

    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> block = SimpleNamespace(
    ...     requests=np.arange(2), users=np.array([7, 7], np.int32),
    ...     context=np.zeros(2, np.float32), times=np.array([0.0, 1.5]),
    ... )
    >>> len(block.requests)
    2
    """

    @property
    def requests(self) -> NDArray[np.int64]:
        """Request ids.  [R] int64"""

    @property
    def users(self) -> Ids:
        """User ids.  [R] int32"""

    @property
    def context(self) -> NDArray[np.float32]:
        """Context feature.  [R] float32"""

    @property
    def times(self) -> Floats:
        """Arrival times in seconds.  [R] float64"""


@dataclass(frozen=True)
class Cost:
    """FLOPs and bytes that answers of a scorer or a retriever take, by their formula.

    A request with n candidates takes `request_flops + n * pair_flops`, and likewise bytes. A multiply-add is
    two FLOPs.

    Args:
        request_flops: of a request, whatever its candidates: its side of a net, or a search of the corpus.
        request_bytes: read for it.
        pair_flops: of each candidate.
        pair_bytes: read of its ad, its id included.
        ad_flops: of each ad of the corpus, once per deployment.
        is_kept: whether answers are kept per user, so that a later visit of the user takes a look-up alone.

    >>> Cost(request_flops=100.0, pair_flops=32.0) + Cost(pair_flops=8.0)
    Cost(request_flops=100.0, request_bytes=0.0, pair_flops=40.0, pair_bytes=0.0, ad_flops=0.0, is_kept=False)
    """

    request_flops: float = 0.0
    request_bytes: float = 0.0
    pair_flops: float = 0.0
    pair_bytes: float = 0.0
    ad_flops: float = 0.0
    is_kept: bool = False

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.request_flops + other.request_flops,
            self.request_bytes + other.request_bytes,
            self.pair_flops + other.pair_flops,
            self.pair_bytes + other.pair_bytes,
            self.ad_flops + other.ad_flops,
            self.is_kept and other.is_kept,
        )


@runtime_checkable
class Scorer(Protocol):
    """Predictions of a stage, whose rank score of a candidate is bid * prediction ** exponent.

    Attributes:
        name: its name in reports and errors.
        link: "sigmoid" if predictions are probabilities, which may be priced and compared with clicks;
            "exp" or "none" if only their order has a meaning.
        by_pair: whether a prediction depends, to the last bit, on its request and ad alone. Predictions of a
            set are then reused for its subsets.

    It may have `cost`, the `Cost` of its predictions; without, its stage's cost is not known.

    >>> import numpy as np
    >>> class NewestFirst:
    ...     name, link, by_pair = "newest first", "none", True
    ...     def predict(self, block, ids):
    ...         return np.maximum(ids, 0).astype(np.float32)
    >>> isinstance(NewestFirst(), Scorer)
    True
    >>> NewestFirst().predict(None, np.array([[4, 9, -1]], np.int32)).tolist()
    [[4.0, 9.0, 0.0]]
    """

    name: str
    link: str
    by_pair: bool

    def predict(self, block: Any, ids: Ids) -> NDArray[Any]:
        """Predict the quality of candidates.

        Args:
            block: the requests (see `Requests`).
            ids: [R, m] int32 ad ids ascending, -1 for padding.

        Returns:
            [R, m] float32 or float64, finite; padding may have any finite value.
        """
        ...


@runtime_checkable
class Availability(Protocol):
    """Times at which ads exist (ad churn).

    Attributes:
        share: the fraction of all ads that exist at any time, in (0, 1].

    >>> import numpy as np
    >>> class EvenAdsAtNight:
    ...     share = 0.5
    ...     def is_available(self, ads, times):
    ...         return (ads >= 0) & ((ads % 2 == 0) == (times < 6 * 3600.0))
    >>> isinstance(EvenAdsAtNight(), Availability)
    True
    >>> EvenAdsAtNight().is_available(np.array([[0, 1, -1]]), np.array([[3600.0]])).tolist()
    [[True, False, False]]
    """

    share: float

    def is_available(self, ads: NDArray[Any], times: Floats, /) -> Bools:
        """Return whether ads exist at these times; the arguments are broadcast.

        Args:
            ads: [R, m] int32 ad ids, -1 for padding.
            times: [R, 1] float64 seconds.

        Returns:
            [R, m] bool; False for padding.
        """
        ...


@runtime_checkable
class Retriever(Protocol):
    """First stage: candidates of a request, the available ads with the `size` highest scores.

    It may have `cost(size)`, the `Cost` of finding so many; without, its stage's cost is not known.

    >>> import numpy as np
    >>> class FirstAds:
    ...     name = "first ads"
    ...     def retrieve(self, block, size, availability):
    ...         return np.tile(np.arange(size, dtype=np.int32), (len(block.users), 1))
    ...     def score(self, block, ids):
    ...         return np.where(ids >= 0, -ids, 0).astype(np.float32)
    >>> isinstance(FirstAds(), Retriever)
    True
    >>> from types import SimpleNamespace
    >>> FirstAds().retrieve(SimpleNamespace(users=np.zeros(2, np.int32)), 3, None).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """

    @property
    def name(self) -> str:
        """Name in reports and errors."""

    def retrieve(self, block: Any, size: int, availability: Availability | None, /) -> Ids:
        """Return the candidates of each request.

        Args:
            block: the requests (see `Requests`).
            size: candidates per request, at most.
            availability: which ads exist at the requests' times; None: all of them.

        Returns:
            [R, n] int32, n <= size: ad ids ascending, each once, -1 at the end of a row.
        """
        ...

    def score(self, block: Any, ids: Ids, /) -> NDArray[np.float32]:
        """Return the scores that candidates are retrieved by; the higher, the earlier.

        Args:
            block: the requests (see `Requests`).
            ids: [R, m] int32 ad ids, -1 for padding.

        Returns:
            [R, m] float32; padding may have any value.

        Raises:
            UserError: the scores are not known, as in a replayed log.
        """
        ...


# Auction


class Slot(NamedTuple):
    """Inputs of a pricing rule for one filled slot; all amounts are per click.

    Attributes:
        bid: bid of the ad in the slot.
        critical_bid: minimum bid that keeps the slot above the next ad; 0 without a next ad.
        externality: welfare loss that the ad's presence imposes on other bidders (as VCG charges it),
            with the reserves as a bidder for every slot.

    >>> Slot(bid=2.0, critical_bid=1.5, externality=1.2).critical_bid
    1.5
    """

    bid: float
    critical_bid: float
    externality: float


@dataclass(frozen=True)
class Parameter:
    """Parameter of a pricing rule: a number from 0 to `high`, which other values are refused against.

    Args:
        meaning: a few words for messages and for the reference of scenario keys.
        high: largest value: 1 of a share; unbounded of an amount of money.

    >>> Parameter("share of the bid", high=1.0)
    Parameter(meaning='share of the bid', high=1.0)
    """

    meaning: str
    high: float = math.inf


@dataclass(frozen=True)
class Pricing:
    """Pricing rule: cost per click of a slot, and what it demands of the auction.

    `cpc = min(bid, max(price(slot, *parameters), reserves))`: the auction applies the reserves and the bid,
    so that no rule has to.

    Args:
        price: function of a `Slot` and of the parameters in their order. It is compiled by numba: plain
            arithmetic of numbers, without state.
        needs_squashing_1: whether rank scores must be bid * pCTR, as `externality` is counted in clicks.
        parameters: {keyword: Parameter}; each is a keyword of `run_auction` and a key of the scenario's
            auction section.

    >>> halfway = Pricing(lambda slot: 0.5 * (slot.bid + slot.critical_bid))
    >>> halfway.price(Slot(bid=2.0, critical_bid=1.5, externality=1.2))
    1.75
    """

    price: Callable[..., float]
    needs_squashing_1: bool = False
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


# Agents: advertisers and users


@dataclass(frozen=True)
class Portfolio:
    """Private knowledge of the advertisers that a bidder acts for: a ads of n advertisers.

    Args:
        value: [a] float64 value per click of each ad.
        owner: [a] int advertiser of each ad, 0..n-1.
        mean_pcvr: [a] float64 mean predicted conversion rate of each ad, as the platform reports it.
        budget_micros: [n] int64 micro-units per day; a very large number means an unlimited budget.
    """

    value: np.ndarray
    owner: np.ndarray
    mean_pcvr: np.ndarray
    budget_micros: np.ndarray


@dataclass(frozen=True)
class MarketTime:
    """Time of a bidding decision.

    Args:
        time: seconds since the start of the simulation.
        day: days since the start.
        elapsed: share of the day's seconds that have passed, [0, 1).
        expected_traffic: share of the day's traffic expected by now, [0, 1].
    """

    time: float
    day: int
    elapsed: float
    expected_traffic: float


@dataclass(frozen=True)
class Feedback:
    """Totals per advertiser since the last update; all [n].

    Args:
        impressions: impressions.
        clicks: clicks.
        spend_micros: spend in micro-units.
        conversions: conversions that have arrived by now.
        spend_today_micros: spend of the day in micro-units, this update included.
        participated: requests in which at least one ad of the advertiser was eligible to bid.
    """

    impressions: np.ndarray
    clicks: np.ndarray
    spend_micros: np.ndarray
    conversions: np.ndarray
    spend_today_micros: np.ndarray
    participated: np.ndarray


@runtime_checkable
class Bidder(Protocol):
    """Bidding strategy of n advertisers with a ads, built as `Class(portfolio, **options)`.

    It sees only what a real advertiser would see and draws no random numbers: equal histories give equal
    bids, bit for bit. `cascade_sim.agents.bidding.Bidder` has defaults for all methods.

    >>> import numpy as np
    >>> class HalfTheValue:
    ...     def __init__(self, portfolio):
    ...         self.value, self.n = portfolio.value, len(portfolio.budget_micros)
    ...     def bids(self, now):
    ...         return 0.5 * self.value
    ...     def participation(self, now):
    ...         return np.ones(self.n)
    ...     def observe(self, feedback, now): pass
    ...     def state(self): return {}
    ...     def restore(self, state): pass
    >>> one = Portfolio(np.array([0.4, 0.6]), np.array([0, 0]), np.array([0.1, 0.1]), np.array([10**6]))
    >>> isinstance(HalfTheValue(one), Bidder)
    True
    >>> HalfTheValue(one).bids(MarketTime(time=0.0, day=0, elapsed=0.0, expected_traffic=0.0)).tolist()
    [0.2, 0.3]
    """

    def bids(self, now: MarketTime) -> np.ndarray:
        """Return the bid per click of each ad.

        Args:
            now: the time from which the bids hold.

        Returns:
            [a] float64, finite, >= 0.
        """
        ...

    def participation(self, now: MarketTime) -> np.ndarray:
        """Return the probability that an advertiser participates in a request (throttling).

        Args:
            now: the time from which the probabilities hold.

        Returns:
            [n] float64 in [0, 1].
        """
        ...

    def observe(self, feedback: Feedback, now: MarketTime) -> None:
        """Learn from the results since the last update.

        Args:
            feedback: totals per advertiser.
            now: the time of the update.
        """
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of everything that `observe` changes, for a checkpoint.

        Returns:
            {name: array}.
        """
        ...

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a checkpoint.

        Args:
            state: the return value of `state`.

        Raises:
            ValueError: names or shapes are not those of `state`.
        """
        ...


@runtime_checkable
class ClickModel(Protocol):
    """Click model of a page, built as `Class(slot_effects, **options)`: P(click) = P(examined) * true CTR.

    `slot_effects` [>= k] are those of the world. `expected` and `clicks` must agree: over uniform draws, the
    mean of `clicked` is `expected`.

    >>> import numpy as np
    >>> class FirstSlotOnly:
    ...     def __init__(self, slot_effects):
    ...         self.first = np.arange(len(slot_effects)) == 0
    ...     def expected(self, true_ctr, shown):
    ...         return np.where(shown & self.first[: shown.shape[1]], true_ctr, 0.0)
    ...     def clicks(self, true_ctr, shown, u_click, u_continue):
    ...         examined = shown & self.first[: shown.shape[1]]
    ...         return examined & (u_click < true_ctr), examined
    >>> model = FirstSlotOnly(np.array([1.0, 0.8]))
    >>> isinstance(model, ClickModel)
    True
    >>> model.expected(np.array([[0.1, 0.2]]), np.array([[True, True]])).tolist()
    [[0.1, 0.0]]
    """

    def expected(self, true_ctr: np.ndarray, shown: np.ndarray) -> np.ndarray:
        """Return P(click) of every slot.

        Args:
            true_ctr: [R, k] float64 click probability of each ad in an examined slot.
            shown: [R, k] bool, False in an empty slot.

        Returns:
            [R, k] float64; 0 in an empty slot.
        """
        ...

    def clicks(
        self, true_ctr: np.ndarray, shown: np.ndarray, u_click: np.ndarray, u_continue: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sample the clicks of pages; a pure function of its arguments, row by row.

        Args:
            true_ctr: [R, k] float64 click probability of each ad in an examined slot.
            shown: [R, k] bool, False in an empty slot.
            u_click: [R, k] float64 uniform draws in (0, 1).
            u_continue: [R, k] float64 uniform draws in (0, 1), independent of `u_click`.

        Returns:
            (clicked, examined), both [R, k] bool; a clicked slot is examined, an examined one is filled.
        """
        ...


# Worlds and metrics. The cascade is above this module: types that it defines are parameters here, as
# observations and actions are of Gymnasium's Env.

Block = TypeVar("Block", contravariant=True)
Arm = TypeVar("Arm", contravariant=True)
Decision = TypeVar("Decision", contravariant=True)
Outcome = TypeVar("Outcome", contravariant=True)
Clusters = TypeVar("Clusters", contravariant=True)
Context = TypeVar("Context")
Realised = TypeVar("Realised")  # an Outcome, where it is returned
Resampled = TypeVar("Resampled")  # Clusters, where they are returned
Metric = TypeVar("Metric")


@runtime_checkable
class Evaluator(Protocol[Block, Arm, Decision, Outcome, Context]):
    """Metrics of the decisions that arms make on the same block.

    A metric of an arm is a ratio of sums over requests, sum_r top_r / sum_r bottom_r; `columns` and `vectors`
    give the summands. The context holds what decisions are compared with (an oracle, an ideal win set) and
    belongs to the evaluator alone: callers pass it on unread.

    >>> import numpy as np
    >>> class FillRate:
    ...     def context(self, block, group, n_groups):
    ...         return len(block)
    ...     def prepare(self, context, arm): pass
    ...     def columns(self, context, arm, decision, result):
    ...         return {"filled": (decision >= 0).sum(1).astype(float), "requests": np.ones(context)}
    ...     def vectors(self, context, arm, decision, result):
    ...         return {}
    ...     def best(self, context, arm):
    ...         return None
    >>> isinstance(FillRate(), Evaluator)
    True
    >>> pages = np.array([[5, 2], [8, -1]])  # stands for a decision: ads of two slots, -1 = empty
    >>> FillRate().columns(2, None, pages, None)["filled"].tolist()
    [2.0, 1.0]
    """

    def context(self, block: Block, group: NDArray[Any], n_groups: int) -> Context:
        """Prepare a block for evaluation, once for all arms.

        Args:
            block: R requests.
            group: [R] int, the group over which `vectors` sum each request.
            n_groups: number of groups G.

        Returns:
            The context that the other methods receive.
        """
        ...

    def prepare(self, context: Context, arm: Arm) -> None:
        """Compute the references of an arm before it serves, so that whole candidate sets are scored first.

        Args:
            context: the block's context.
            arm: the arm that serves next.
        """
        ...

    def columns(
        self, context: Context, arm: Arm, decision: Decision, result: Outcome
    ) -> dict[str, np.ndarray]:
        """Return the summands by request.

        Args:
            context: the block's context.
            arm: the arm that served.
            decision: its decision on the block.
            result: outcome of its pages.

        Returns:
            {column: [R] float64}, never NaN.
        """
        ...

    def vectors(
        self, context: Context, arm: Arm, decision: Decision, result: Outcome
    ) -> dict[str, np.ndarray]:
        """Return sums by group for metrics that are no ratio of sums (AUC, concentration, funnels).

        Args:
            context: the block's context.
            arm: the arm that served.
            decision: its decision on the block.
            result: outcome of its pages.

        Returns:
            {name: [G, ...] float64}, added up over blocks.
        """
        ...

    def best(self, context: Context, arm: Arm) -> np.ndarray | None:
        """Return the available ads that the arm should show by true value.

        Args:
            context: the block's context.
            arm: the arm, whose slots and reserves apply.

        Returns:
            [R, k] int32 ad ids, -1 = empty; None where the truth is not known.
        """
        ...


@runtime_checkable
class Uncertainty(Protocol[Arm, Decision, Outcome, Clusters]):
    """Model uncertainty of a world with fitted parts, propagated into the intervals of an evaluation.

    Total variance = sampling variance of the requests + variance of the fit: `sums` collects the second by
    block, `widened` adds it to the table rows that intervals resample. Sums of columns do not change.

    Attributes:
        is_common: whether the error of the fit is the same for both sides of a comparison, paired or not.

    >>> class Exact:
    ...     is_common, words = False, None
    ...     def sums(self, context, arm, decision, result, columns):
    ...         return {}
    ...     def controlled(self, tables, sums, clusters, baseline):
    ...         return tables
    ...     def widened(self, tables, sums, clusters, baseline=None):
    ...         return tables
    >>> isinstance(Exact(), Uncertainty)
    True
    >>> Exact().widened({"production": {"clicks": [1.0, 0.0]}}, {}, None)
    {'production': {'clicks': [1.0, 0.0]}}
    """

    is_common: ClassVar[bool]

    @property
    def words(self) -> str | None:
        """Sentence for the report on what intervals include; None where nothing was fitted."""

    def sums(
        self,
        context: Any,
        arm: Arm,
        decision: Decision,
        result: Outcome,
        columns: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Return what a block contributes, to be added up over blocks.

        Args:
            context: the evaluator's context of the block.
            arm: the arm that served.
            decision: its decision on the block.
            result: outcome of its pages.
            columns: {column: [R] float64} of the evaluator.

        Returns:
            {name: array}; {} where nothing was fitted.
        """
        ...

    def controlled(
        self,
        tables: dict[str, dict[str, np.ndarray]],
        sums: Mapping[str, np.ndarray],
        clusters: Clusters | None,
        baseline: str,
    ) -> dict[str, dict[str, np.ndarray]]:
        """Add control variates to the columns that lifts over the baseline are made of.

        Args:
            tables: {arm: {column: [rows] float64}}.
            sums: {arm: array}, what `sums` returned, added up over blocks.
            clusters: resampling units; None: requests.
            baseline: the arm that lifts are over, which stays as it is.

        Returns:
            {arm: {column: [rows] float64}}, with the same expectations and less noise in lifts.
        """
        ...

    def widened(
        self,
        tables: dict[str, dict[str, np.ndarray]],
        sums: Mapping[str, np.ndarray],
        clusters: Clusters | None,
        baseline: str | None = None,
    ) -> dict[str, dict[str, np.ndarray]]:
        """Add the variance of the fit to the rows that intervals resample; sums are those of `controlled`.

        Args:
            tables: {arm: {column: [rows] float64}}.
            sums: {arm: array}, what `sums` returned, added up over blocks.
            clusters: resampling units; None: requests.
            baseline: as for `controlled`; None: without control variates.

        Returns:
            {arm: {column: [rows] float64}}, as `tables`.
        """
        ...


class Environment(ABC, Generic[Block, Arm, Decision, Realised, Resampled, Metric]):
    """A world, as a study sees it: candidates, outcomes of pages, and evaluation of decisions.

    With a block x of requests and an arm pi, decision = serve(x, pi), then outcome(x, decision) ~ the world's
    click and conversion probabilities, with common random numbers for all arms. The truth stays inside: no
    model receives it.

    `environments.base.Environment` binds the type parameters and has defaults for what a kind of world seldom
    changes; a new kind is a subclass of that one.

    Attributes:
        scorers: {name: Scorer} that a scenario may name untrained, beside `random` and `constant`.
        charging: the event that the world charges for, "click" or "impression"; None: as the arm says.

    >>> from cascade_sim import load_scenario
    >>> from cascade_sim.environments.build import environment_of
    >>> small = ["world.users=20", "world.ads=50", "world.advertisers=5", "cascade.retrieval.size=30"]
    >>> scenario = load_scenario("quick", set=small)
    >>> environment = environment_of(scenario, seed=1)
    >>> retriever = environment.retriever(scenario.cascade.retrieval, find=lambda kind: None)
    >>> isinstance(environment, Environment), environment.has("truth"), retriever.name
    (True, True, 'similarity')
    """

    scorers: Mapping[str, Scorer]
    charging: str | None = None

    @abstractmethod
    def retriever(self, route: Any, find: Callable[[str], type[Any]]) -> Retriever:
        """Build the retriever of a route.

        Args:
            route: `cascade.retrieval` or one of its routes (`scenario.schema.Route`).
            find: returns the class of a kind that is not built in.

        Returns:
            The retriever, for any size; where the world has logged candidates alone, these.
        """

    @abstractmethod
    def has(self, capability: Any) -> bool:
        """Return whether the world supports a capability.

        Args:
            capability: one of `scenario.capabilities`, as "truth" or "training".
        """

    @abstractmethod
    def corpus(self, block: Block) -> Ids:
        """Return the ads that can be shown to a request.

        Args:
            block: one request.

        Returns:
            [n] int32 ad ids ascending.
        """

    @abstractmethod
    def outcome(self, block: Block, decision: Decision, charging: str = "click") -> Realised:
        """Sample clicks, conversions and charges of the pages of a block, with common random numbers.

        Args:
            block: R requests.
            decision: an arm's decision on them.
            charging: the event that is charged, "click" or "impression".

        Returns:
            Outcome with arrays [R, k]; charges in micro-units.
        """

    @abstractmethod
    def evaluator(self, baseline: Arm, exposed: Bools) -> Evaluator[Block, Arm, Decision, Realised, Any]:
        """Return the evaluator of decisions in this world.

        Args:
            baseline: the arm whose oracle normalises welfare, payments and revenue of all arms.
            exposed: [A] bool, ads with enough logged impressions.
        """

    @abstractmethod
    def measures(self, columns: set[str]) -> Mapping[str, Metric]:
        """Return the metrics that an evaluation with these columns can report.

        Args:
            columns: names of the evaluator's columns.

        Returns:
            {metric name: record of the catalogue}.
        """

    @abstractmethod
    def clusters(self, n_requests: int) -> Resampled | None:
        """Return the units that intervals resample.

        Args:
            n_requests: requests of the evaluation.

        Returns:
            The clusters; None: requests are independent.
        """

    @abstractmethod
    def uncertainty(self, n_requests: int) -> Uncertainty[Arm, Decision, Realised, Resampled]:
        """Return the model uncertainty of an evaluation.

        Args:
            n_requests: requests of the evaluation.
        """
