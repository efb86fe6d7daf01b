"""The scenario as a whole, and its arms: overrides merged into the deployed cascade."""

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from cascade_sim.scenario.market import Market, Sizes
from cascade_sim.scenario.models import ModelSpec, Sample
from cascade_sim.scenario.questions import OffPolicy
from cascade_sim.scenario.sections import (
    MAX_ID,
    RUN_NAME,
    Auction,
    Bidding,
    Bids,
    Cascade,
    Conversion,
    Effects,
    Fusion,
    Group,
    Mismatch,
    Name,
    Phases,
    PreRanking,
    Ranking,
    Report,
    Retrieval,
    Section,
    Traffic,
    World,
)
from cascade_sim.scenario.whatif import Changes

__all__ = [
    "AUTOMATIC_ARMS",
    "BUILT_IN_FEATURES",
    "PAIR_FEATURES",
    "SEATS",
    "SINGLE_FEATURES",
    "VECTOR_FEATURES",
    "ArmOverrides",
    "ArmSpec",
    "Auction",
    "Bidding",
    "Bids",
    "Cascade",
    "Conversion",
    "Effects",
    "Fusion",
    "Group",
    "Mismatch",
    "ModelSpec",
    "Phases",
    "PreRanking",
    "Ranking",
    "Report",
    "Retrieval",
    "Sample",
    "Scenario",
    "Sizes",
    "Traffic",
    "World",
    "resolve_arm",
    "resolved_arms",
]

SEATS = ("random", "constant", "truth")  # built-in occupants of a model seat: keyed noise, 1, the oracle
AUTOMATIC_ARMS = ("random", "bid_only", "pctr_only", "ranker")
SINGLE_FEATURES = ("user", "context", "quality", "tier")
VECTOR_FEATURES = ("mismatch", "conversion")  # and every group
PAIR_FEATURES = ("mismatch_pair",)
BUILT_IN_FEATURES = (*SINGLE_FEATURES, *VECTOR_FEATURES, *PAIR_FEATURES)


class Override(Section):
    """Keys of an arm; an absent key is inherited."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_empty_value(cls, value: Any) -> Any:
        # A forgotten value would otherwise silently mean "inherit".
        if value is None:
            raise ValueError("has no value; give one, or remove the key to inherit it")
        return value


class RetrievalOverride(Override):
    size: int | None = Field(
        default=None, ge=2, le=MAX_ID, description="Ads handed to pre-ranking per request."
    )


class PreRankingOverride(Override):
    model: Name | None = Field(default=None, description="A name under `models`, or random, constant, truth.")
    bid: Literal["init", "opt", "none"] | None = Field(
        default=None, description="Bid in the score; none: the model alone."
    )
    fusion: Name | None = Field(default=None, description="ecpm or a name under `fusions`.")
    size: int | None = Field(default=None, ge=2, le=MAX_ID, description="Ads handed to ranking per request.")
    sizes: Sizes | None = Field(
        default=None, description="In place of size: a size for each request, under a common budget."
    )


class RankingOverride(Override):
    model: Name | None = Field(default=None, description="A name under `models`, or random, constant, truth.")
    bid: Literal["init", "opt"] | None = Field(default=None, description="Bid that enters the auction.")
    fusion: Name | None = Field(default=None, description="ecpm or a name under `fusions`.")


class AuctionOverride(Override):
    pricing: Literal["gsp", "vcg", "first"] | None = Field(default=None, description="Pricing rule.")
    squashing: float | None = Field(
        default=None, ge=0, le=2, description="Exponent of pCTR in the rank score."
    )
    reserve_cpc: float | None = Field(default=None, ge=0, le=1e9, description="Least price per click.")
    score_floor: float | None = Field(default=None, ge=0, le=1e9, description="Least rank score.")


class BiddingOverride(Override):
    rule: Literal["ocpc", "target_cpa", "none"] | None = Field(
        default=None, description="Optimised CPC, target CPA or none."
    )
    range: float | None = Field(default=None, ge=0, lt=1, description="Largest relative change of the bid.")


class ArmOverrides(Override):
    """What an arm changes in the deployed cascade, its auction and its bid rule."""

    retrieval: RetrievalOverride | None = Field(default=None, description="Changes to retrieval.")
    pre_ranking: PreRankingOverride | None = Field(default=None, description="Changes to pre-ranking.")
    ranking: RankingOverride | None = Field(default=None, description="Changes to ranking.")
    slots: int | None = Field(default=None, ge=1, le=1000, description="Ads shown per request.")
    auction: AuctionOverride | None = Field(default=None, description="Changes to the auction.")
    bidding: BiddingOverride | None = Field(default=None, description="Changes to the bid rule.")
    exploration: float | None = Field(
        default=None, ge=0, le=1, description="In the market: share of requests whose page is random."
    )


class ArmSpec(Section):
    """An arm with nothing left to inherit; with `sizes`, the size of pre_ranking is the largest of them."""

    retrieval_size: int
    slots: int
    pre_ranking: PreRanking
    sizes: Sizes | None = None
    ranking: Ranking
    auction: Auction
    bidding: Bidding
    exploration: float | None = None  # of its market; None: market.exploration


class Scenario(Section):
    """A study: a world, its traffic, the deployed cascade, the models to train and the arms to compare.

    `Scenario.model_validate` checks each key alone; `load_scenario` also checks keys against each other.
    """

    name: str = Field(pattern=RUN_NAME, description="Name of the study and, by default, of its run folder.")
    description: str = Field(default="", description="Free text for the report.")
    seed: int = Field(default=1, ge=0, le=2**63 - 1, description="Seed of every random draw.")
    world: World = Field(
        default=World(), description="What all arms share: users, ads, bids, the hidden truth."
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
    phases: Phases = Field(default=Phases(), description="Requests per phase of the study.")
    arms: dict[Name, ArmOverrides] = Field(
        min_length=1, description="What is compared: each arm's changes to cascade, auction and bidding."
    )
    market: Market | None = Field(
        default=None, description="Simulated days with budgets and bidders that adapt; absent: none."
    )
    what_if: dict[Name, Changes] = Field(
        default={}, description="Questions asked of the baseline after the evaluation: NAME: [path=value, …]."
    )
    off_policy: OffPolicy | None = Field(
        default=None, description="Randomised logs and what is asked of them alone; absent: none."
    )
    report: Report = Field(default=Report(), validate_default=True, description="Baseline and intervals.")

    @field_validator("models", mode="after")
    @classmethod
    def _default_features(cls, models: dict[str, ModelSpec], info: ValidationInfo) -> dict[str, ModelSpec]:
        """A model that lists no features sees what a pre-ranker may: no bid, conversion or pair feature."""
        if "world" not in info.data:
            return models
        groups = [group for group in info.data["world"].groups if group not in BUILT_IN_FEATURES]
        seen = ("user", "context", "quality", "tier", "mismatch", *groups)
        return {
            name: spec if spec.features else spec.model_copy(update={"features": seen})
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
        return base.model_copy(update=change.model_dump(exclude_none=True, exclude={"sizes"}))

    cascade = scenario.cascade
    pre_ranking = merged(cascade.pre_ranking, overrides.pre_ranking)
    sizes = overrides.pre_ranking.sizes if overrides.pre_ranking else None
    if sizes is not None:
        pre_ranking = pre_ranking.model_copy(update={"size": max(sizes.choices)})
    return ArmSpec(
        retrieval_size=merged(cascade.retrieval, overrides.retrieval).size,
        slots=cascade.slots if overrides.slots is None else overrides.slots,
        pre_ranking=pre_ranking,
        sizes=sizes,
        ranking=merged(cascade.ranking, overrides.ranking),
        auction=merged(scenario.auction, overrides.auction),
        bidding=merged(scenario.bidding, overrides.bidding),
        exploration=overrides.exploration,
    )


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
    seats: dict[str, dict[str, str]] = {
        "random": {"model": "random", "bid": "none", "fusion": "ecpm"},
        "bid_only": {"model": "constant", "bid": "init" if pre.bid == "none" else pre.bid, "fusion": "ecpm"},
        "pctr_only": {"model": pre.model, "bid": "none", "fusion": "ecpm"},
        "ranker": {"model": rank.model, "bid": rank.bid, "fusion": rank.fusion},
    }
    for name in AUTOMATIC_ARMS:
        arms[name] = baseline.model_copy(update={"pre_ranking": pre.model_copy(update=seats[name])})
    return arms
