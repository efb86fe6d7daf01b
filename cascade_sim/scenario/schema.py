"""The scenario as a whole, and its arms: overrides merged into the deployed cascade."""

from collections.abc import Callable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, ValidationInfo, create_model, field_validator

from cascade_sim.auction.pricing import NO_INCREMENT, PARAMETERS, RULES
from cascade_sim.models.features import HISTORY, ID_FEATURES
from cascade_sim.scenario.joint import Joint
from cascade_sim.scenario.market import Market, Sizes
from cascade_sim.scenario.models import ModelSpec, Sample
from cascade_sim.scenario.questions import OffPolicy, WhatIfChanges
from cascade_sim.scenario.sections import (
    KNOWN,
    RUN_NAME,
    SIMILARITY,
    Auction,
    Bidding,
    Bids,
    Cascade,
    Conversion,
    Delay,
    Effects,
    Fusion,
    Group,
    Mismatch,
    Name,
    Phases,
    PreRanking,
    PreRankingStep,
    Ranking,
    ReplayedLog,
    Report,
    Retrieval,
    Route,
    Section,
    Share,
    Traffic,
    World,
)

__all__ = [
    "AUTOMATIC_ARMS",
    "BUILT_IN_FEATURES",
    "EMBEDDED_FEATURES",
    "KNOWN",
    "LOGGED",
    "LOGGED_PRE",
    "LOGGED_SCORE",
    "PAIR_FEATURES",
    "BUILT_IN_SCORERS",
    "SINGLE_FEATURES",
    "VECTOR_FEATURES",
    "ArmOverrides",
    "ArmSpec",
    "Auction",
    "Bidding",
    "Bids",
    "Cascade",
    "Conversion",
    "Delay",
    "Effects",
    "Fusion",
    "Group",
    "Joint",
    "ReplayedLog",
    "Mismatch",
    "ModelSpec",
    "Phases",
    "PreRanking",
    "PreRankingStep",
    "Ranking",
    "Report",
    "Retrieval",
    "Route",
    "Sample",
    "Scenario",
    "Sizes",
    "Traffic",
    "World",
    "control_arm",
    "requests_by_phase",
    "resolve_arm",
    "resolved_arms",
]

BUILT_IN_SCORERS = (
    "random",
    "constant",
    "truth",
)  # built-in scorers: keyed noise, 1, the oracle
# And of a replayed log: its pCTR, its pre-ranking model, and `logged-NAME` for the score of a further model.
LOGGED, LOGGED_PRE, LOGGED_SCORE = "logged", "logged_pre", "logged-"
AUTOMATIC_ARMS = ("random", "bid_only", "pctr_only", "ranker")
SINGLE_FEATURES = ("user", "context", "quality", "tier")
VECTOR_FEATURES = ("mismatch", "conversion")  # and every group
PAIR_FEATURES = ("mismatch_pair",)
EMBEDDED_FEATURES = (*ID_FEATURES, HISTORY)  # for which a net has tables
BUILT_IN_FEATURES = (*SINGLE_FEATURES, *VECTOR_FEATURES, *PAIR_FEATURES, *EMBEDDED_FEATURES)


class Override(Section):
    """Keys of an arm; an absent key is inherited."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_empty_value(cls, value: Any) -> Any:
        # A forgotten value would otherwise silently mean "inherit".
        if value is None:
            raise ValueError("has no value; give one, or remove the key to inherit it")
        return value

    if TYPE_CHECKING:  # the keys of a section, which `overriding` adds

        def __getattr__(self, name: str) -> Any: ...


def overriding(section: type[Section], *keys: str) -> Callable[[type[Override]], type[Override]]:
    """Gives a class the keys of a section (all, or those named), each of them optional, before its own."""

    def with_keys(own: type[Override]) -> type[Override]:
        fields: dict[str, Any] = {}
        for key in keys or section.model_fields:
            field = inherited(section, key)
            kind: Any = field.annotation
            if field.metadata:  # limits and the like hold for a value, not for its absence
                kind, field.metadata = Annotated[kind, *field.metadata], []
            fields[key] = (kind | None, field)
        for key, field in own.model_fields.items():
            fields[key] = (field.annotation, field)
        return create_model(own.__name__, __base__=Override, __module__=own.__module__, **fields)

    return with_keys


def inherited(section: type[Section], key: str) -> Any:
    """The same key as in a section, but one that may be absent."""
    field = copy(section.model_fields[key])
    field.default = None
    return field


@overriding(Route)
class RouteOverride(Override):
    pass


@overriding(Retrieval, *Route.model_fields)
class RetrievalOverride(Override):
    routes: dict[Name, RouteOverride] | None = Field(
        default=None, description="Changes to routes by their names, and further ones."
    )


SIZES = Field(default=None, description="In place of size: a size for each request, under a common budget.")


@overriding(PreRankingStep)
class PreRankingStepOverride(Override):
    sizes: Sizes | None = SIZES


@overriding(PreRankingStep)
class PreRankingOverride(Override):
    earlier: dict[Name, PreRankingStepOverride] | None = Field(
        default=None, description="Changes to earlier steps of pre-ranking, by their names."
    )
    sizes: Sizes | None = SIZES


@overriding(Ranking)
class RankingOverride(Override):
    pass


@overriding(Auction)
class AuctionOverride(Override):
    pass


@overriding(Bidding)
class BiddingOverride(Override):
    pass


class ArmOverrides(Override):
    """What an arm changes in the deployed cascade, its auction and its bid rule."""

    retrieval: RetrievalOverride | None = Field(default=None, description="Changes to retrieval.")
    pre_ranking: PreRankingOverride | None = Field(default=None, description="Changes to pre-ranking.")
    ranking: RankingOverride | None = Field(default=None, description="Changes to ranking.")
    slots: int | None = inherited(Cascade, "slots")
    auction: AuctionOverride | None = Field(default=None, description="Changes to the auction.")
    bidding: BiddingOverride | None = Field(default=None, description="Changes to the bid rule.")
    exploration: Share | None = Field(
        default=None, description="In the market: share of requests whose page is random."
    )


class ArmSpec(Section):
    """An arm with nothing left to inherit; where a step has `sizes`, its size is the largest of them."""

    retrieval: Retrieval
    slots: int
    pre_ranking: PreRanking
    sizes: Sizes | None = None
    earlier_sizes: dict[Name, Sizes] = {}  # of earlier steps
    ranking: Ranking
    auction: Auction
    bidding: Bidding
    exploration: float | None = None  # of its market; None: market.exploration

    def pcvr_of(self, stage: PreRankingStep | Ranking) -> str:
        """Whose pCVR a stage of this arm looks at, if it looks at one: a model's name, or known."""
        own = stage.pcvr if isinstance(stage, PreRankingStep) else None
        return own or self.bidding.pcvr

    @property
    def pcvr_models(self) -> tuple[str, ...]:
        """The models of conversions that its stages may ask, ranking's first."""
        asked = [self.pcvr_of(section) for _, section in reversed(self.sections)]
        return tuple(name for name in dict.fromkeys(asked) if name != KNOWN)

    @property
    def retrieval_size(self) -> int:
        """The most ads that are retrieved for a request."""
        return self.retrieval.total

    @property
    def steps(self) -> tuple[tuple[str, PreRankingStep], ...]:
        """The steps of pre-ranking by name, in their order."""
        return (*self.pre_ranking.earlier.items(), ("pre_ranking", self.pre_ranking))

    @property
    def size_rules(self) -> dict[str, Sizes]:
        """The steps of pre-ranking whose size is chosen for each request, with what it is chosen from."""
        return {**self.earlier_sizes, **({} if self.sizes is None else {"pre_ranking": self.sizes})}

    @property
    def sections(self) -> tuple[tuple[str, PreRankingStep | Ranking], ...]:
        """The scoring stages by name, in their order."""
        return (*self.steps, ("ranking", self.ranking))

    @property
    def seats(self) -> tuple[str, ...]:
        """Who it asks to serve a request: the models of retrieval, of its stages, and of conversions."""
        asked = [*self.retrieval.models, *(section.model for _, section in self.sections)]
        return tuple(dict.fromkeys([*asked, *self.pcvr_models]))


class Scenario(Section):
    """A study: a world, its traffic, the deployed cascade, the models to train and the arms to compare.

    `Scenario.model_validate` checks each key alone; `load_scenario` also checks keys against each other.
    """

    name: str = Field(pattern=RUN_NAME, description="Name of the study and, by default, of its run folder.")
    description: str = Field(default="", description="Free text for the report.")
    seed: int = Field(default=1, ge=0, le=2**63 - 1, description="Seed of every random draw.")
    world: World = Field(
        default=World(), description="What all arms share: users, ads, bids, the ground truth."
    )
    traffic: Traffic = Field(default=Traffic(), description="Arrival of requests.")
    cascade: Cascade = Field(
        default=Cascade(), description="The deployed cascade, which also writes the log."
    )
    fusions: dict[Name, Fusion] = Field(
        default={}, description="Further named fusions of pCTR, pCVR and bid."
    )
    auction: Auction = Field(default=Auction(), description="Order, prices and reserves.")
    bidding: Bidding = Field(default=Bidding(), description="The platform's bid rule.")
    models: dict[Name, ModelSpec] = Field(default={}, description="Models to train, by name.")
    joint: dict[Name, Joint] = Field(default={}, description="Models to train together, by section name.")
    phases: Phases = Field(default=Phases(), description="Requests per phase of the study.")
    arms: dict[Name, ArmOverrides] = Field(
        min_length=1, description="What is compared: each arm's changes to cascade, auction and bidding."
    )
    market: Market | None = Field(
        default=None, description="Simulated days with budgets and bidders that adapt; absent: none."
    )
    what_if: dict[Name, WhatIfChanges] = Field(
        default={}, description="Questions asked of the baseline after the evaluation: NAME: [path=value, …]."
    )
    off_policy: OffPolicy | None = Field(
        default=None, description="Randomised logs and what is asked of them alone; absent: none."
    )
    report: Report = Field(default=Report(), validate_default=True, description="Baseline and intervals.")

    @field_validator("models", mode="after")
    @classmethod
    def _default_features(cls, models: dict[str, ModelSpec], info: ValidationInfo) -> dict[str, ModelSpec]:
        """A model that lists no features sees what a pre-ranker may: no bid or pair feature.

        Conversion features only if it predicts conversions.
        """
        if "world" not in info.data:
            return models
        groups = [group for group in info.data["world"].groups if group not in BUILT_IN_FEATURES]
        seen = ("user", "context", "quality", "tier", "mismatch", *groups)
        more = {"click": (), "conversion": ("conversion",)}
        return {
            name: spec if spec.features else spec.model_copy(update={"features": (*seen, *more[spec.target])})
            for name, spec in models.items()
        }

    @field_validator("report", mode="after")
    @classmethod
    def _default_baseline(cls, report: Report, info: ValidationInfo) -> Report:
        if report.baseline or not info.data.get("arms"):
            return report
        return report.model_copy(update={"baseline": next(iter(info.data["arms"]))})


def resolve_arm(scenario: Scenario, overrides: ArmOverrides) -> ArmSpec:
    """The deployed cascade, auction and bid rule with an arm's changes applied."""

    def merged(base: Section, change: Override | None) -> Any:
        if change is None:
            return base
        update = change.model_dump(exclude_none=True, exclude={"sizes", "earlier"})
        return base.model_copy(update=update)

    cascade = scenario.cascade
    pre_ranking = merged(cascade.pre_ranking, overrides.pre_ranking)
    changes = (overrides.pre_ranking.earlier if overrides.pre_ranking else None) or {}
    earlier_sizes = {name: change.sizes for name, change in changes.items() if change.sizes is not None}
    if pre_ranking.earlier:
        earlier = {name: merged(step, changes.get(name)) for name, step in pre_ranking.earlier.items()}
        for name, of_step in earlier_sizes.items():
            if name in earlier:  # what is unknown is said elsewhere
                earlier[name] = earlier[name].model_copy(update={"size": max(of_step.choices)})
        pre_ranking = pre_ranking.model_copy(update={"earlier": earlier})
    sizes = overrides.pre_ranking.sizes if overrides.pre_ranking else None
    if sizes is not None:
        pre_ranking = pre_ranking.model_copy(update={"size": max(sizes.choices)})
    return ArmSpec(
        retrieval=_resolved_retrieval(cascade.retrieval, overrides.retrieval),
        slots=cascade.slots if overrides.slots is None else overrides.slots,
        pre_ranking=pre_ranking,
        sizes=sizes,
        earlier_sizes=earlier_sizes,
        ranking=merged(cascade.ranking, overrides.ranking),
        auction=_resolved_auction(scenario.auction, overrides.auction),
        bidding=merged(scenario.bidding, overrides.bidding),
        exploration=overrides.exploration,
    )


def _resolved_retrieval(base: Retrieval, change: Override | None) -> Retrieval:
    """An arm's retrieval. Its routes change those of the same name; a kind takes the place of all routes."""
    if change is None:
        return base
    if change.routes:
        own = {name: _changed(base.routes.get(name, Route()), route) for name, route in change.routes.items()}
        return base.model_copy(update={"routes": {**base.routes, **own}})
    if base.routes and (change.kind is not None or change.model is not None):
        base = Retrieval(size=base.total)
    return _changed(base, change)


AnyRoute = TypeVar("AnyRoute", bound=Route)


def _changed(base: AnyRoute, change: Override) -> AnyRoute:
    """A retriever with changes; another kind does not inherit the options of the former."""
    given = change.model_dump(exclude_none=True, exclude={"routes"})
    if "model" in given:
        given = {"kind": SIMILARITY, "options": {}, **given}
    elif "kind" in given:
        given = {"model": None, **given}
        if given["kind"] != base.kind:
            given = {"options": {}, **given}
    return base.model_copy(update=given)


def retrievals(scenario: Scenario) -> Iterator[tuple[tuple[str, ...], Retrieval]]:
    """The retrieval of the deployed cascade and of each arm that changes it, by where they are written."""
    yield ("cascade", "retrieval"), scenario.cascade.retrieval
    for name, arm in scenario.arms.items():
        if arm.retrieval is not None:
            resolved = _resolved_retrieval(scenario.cascade.retrieval, arm.retrieval)
            yield ("arms", name, "retrieval"), resolved


def _resolved_auction(base: Auction, change: Override | None) -> Auction:
    """An arm's auction; with another pricing rule it does not inherit the parameters of the former."""
    given = {} if change is None else change.model_dump(exclude_none=True)
    if "pricing" in given:
        own = RULES[given["pricing"]].parameters
        given = {**{name: None for name in PARAMETERS if name not in own}, **given}
        given = {"increment": 0.0, **given} if given["pricing"] in NO_INCREMENT else given
    if "reserve_cpc" in given:  # one for all takes the place of each request's own
        given = {"logged_reserves": False, **given}
    return base.model_copy(update=given)


def resolved_arms(scenario: Scenario) -> dict[str, ArmSpec]:
    """All arms in the order of the file, then the automatic ones: the baseline arm with another pre-ranking.

    random     keyed noise alone
    bid_only   the baseline's bid alone (init where the baseline uses none)
    pctr_only  the baseline's pre-ranking model alone
    ranker     the ranking stage's model, bid and fusion
    """
    arms = {name: resolve_arm(scenario, overrides) for name, overrides in scenario.arms.items()}
    baseline = arms[scenario.report.baseline]
    pre, rank = baseline.pre_ranking, baseline.ranking
    if scenario.world.replay is not None and pre.model == "constant":
        return arms  # a log without a pre-ranking stage: nothing to put other models into
    seats: dict[str, dict[str, str | None]] = {
        "random": {"model": "random", "bid": "none", "fusion": "ecpm"},
        "bid_only": {"model": "constant", "bid": "init" if pre.bid == "none" else pre.bid, "fusion": "ecpm"},
        "pctr_only": {"model": pre.model, "bid": "none", "fusion": "ecpm"},
        "ranker": {"model": rank.model, "bid": rank.bid, "fusion": rank.fusion, "pcvr": None},
    }
    for name in AUTOMATIC_ARMS:
        arms[name] = baseline.model_copy(update={"pre_ranking": pre.model_copy(update=seats[name])})
    return arms


def requests_by_phase(scenario: Scenario) -> dict[str, int]:
    """The phases of a study in their order, and how many requests come in each."""
    phases = scenario.phases
    shadow = phases.shadow if any(spec.is_shadowed for spec in scenario.models.values()) else 0
    return {"cold_start": phases.cold_start, "log": phases.log, "shadow": shadow, "evaluate": phases.evaluate}


def control_arm(scenario: Scenario) -> str:
    """The arm that the treatment of `market.designs` is compared with."""
    assert scenario.market is not None and scenario.market.designs is not None
    return scenario.market.designs.control or scenario.report.baseline
