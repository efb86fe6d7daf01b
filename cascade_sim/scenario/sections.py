"""The sections of a scenario and the range of every key; scenario_checks compares keys with each other."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cascade_sim.auction.pricing import NEED_SQUASHING_1, PARAMETERS, RULES
from cascade_sim.foundation.errors import UserError
from cascade_sim.scenario.capabilities import LACKS, Capability, Kind

MAX_ID = 2**31 - 1  # ad and user ids are int32
MAX_REQUESTS = 10**9  # each phase has so many request ids
MAX_OF_NAME = 100  # characters; names become names of files, with more around them
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"  # no dots (`--set` separates by them), fit for a file name
FEATURE_NAME = r"^[A-Za-z][A-Za-z0-9_]{0,99}$"
RUN_NAME = r"^[a-z0-9_-]{1,100}$"

Name = Annotated[str, Field(pattern=NAME)]
GroupName = Annotated[str, Field(pattern=FEATURE_NAME)]
Weight = Annotated[float, Field(ge=-100, le=100)]
Logit = Annotated[float, Field(ge=-30, le=30)]
Share = Annotated[float, Field(ge=0, le=1)]
Deviation = Annotated[float, Field(ge=0, le=100)]
Dims = Annotated[int, Field(ge=1, le=1024)]
ParetoIndex = Annotated[float, Field(gt=1, le=1000)]  # above 1 there is a mean
SlotEffect = Annotated[float, Field(gt=0, le=1)]


def without_absent(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A section's data without those of these keys that are absent: what does not use them keeps its hash."""
    return {key: value for key, value in data.items() if key not in keys or value is not None}


class Section(BaseModel):
    """Immutable; unknown keys, NaN, and text or booleans in place of numbers are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


@dataclass(frozen=True, eq=False)  # hashed as the object it is: a registry has no hash
class NameIn:
    """A text that must be a name in a registry, as `Literal` of its names would have it.

    The registry is looked at when a value is, so that one may register a name of one's own.
    """

    registry: Mapping[str, object]
    or_class: bool = False  # or a class of the user's, as path/to/file.py:Class or package.module:Class

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._check, serialization=core_schema.to_string_ser_schema()
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        names = {"enum": list(self.registry), "type": "string"}
        return {"anyOf": [names, {"pattern": ":", "type": "string"}]} if self.or_class else names

    def _check(self, value: object) -> str:
        if isinstance(value, str) and (value in self.registry or (self.or_class and ":" in value)):
            return value
        known = ", ".join(f"'{name}'" for name in self.registry)
        known += " or path/to/file.py:Class" if self.or_class else ""
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": known})


class Effects(Section):
    """Weight of each single feature in the CTR logit."""

    quality: Weight = Field(default=0.25, description="Weight of the ad's quality.")
    tier: Weight = Field(
        default=-1.2, description="Weight of the advertiser's price tier, which also drives its bid."
    )
    user: Weight = Field(default=0.3, description="Weight of the user's own readiness to click.")
    context: Weight = Field(default=0.2, description="Weight of the request's context.")


class Group(Section):
    """Interacting features: weight * <u_g, a_g> / sqrt(dims)."""

    dims: Dims = Field(default=4, description="Length of the user's and the ad's vector.")
    weight: Weight = Field(default=0.5, description="Weight of the scaled dot product in the CTR logit.")


class Mismatch(Section):
    """A penalty: weight * max(0, <u_h, a_h> / sqrt(dims) - threshold)."""

    dims: Dims = Field(default=4, description="Length of the user's and the ad's mismatch vector.")
    weight: Weight = Field(
        default=-2.0, description="Weight of the excess over the threshold in the CTR logit."
    )
    threshold: Weight = Field(default=0.2, description="Mismatch below this has no effect.")


class Bids(Section):
    """Init-bids: log-normal, partly explained by the advertiser's tier."""

    median: float = Field(default=1.0, gt=0, le=10_000, description="Median init-bid, money per click.")
    sigma: float = Field(
        default=0.35, ge=0, le=3, description="Standard deviation of the log of the init-bid."
    )
    tier_share: Share = Field(
        default=0.92, description="Share of the log-bid's variance that the tier explains."
    )
    tail: ParetoIndex | None = Field(
        default=None,
        description="Pareto index of the highest bids, at least 0.8 / sigma: from where a log-normal law "
        "would fall more steeply, the share of bids above b falls as b^-tail. Absent: log-normal.",
    )

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_absent(dump(self), "tail")


KNOWN = "known"  # the pCVR that no model has to learn

Seconds = Annotated[float, Field(gt=0, le=1e9)]


def without(dumped: dict[str, Any], section: Section, *keys: str) -> dict[str, Any]:
    """What is dumped of a section but for those of these keys that are at their default: they say nothing."""
    fields = type(section).model_fields
    return {key: value for key, value in dumped.items() if key not in keys or value != fields[key].default}


class Delay(Section):
    """How late of its click a conversion is: a mixture of exponential delays, within a window.

    By default a third comes within the hour and half within the day.
    """

    means: Annotated[tuple[Seconds, ...], Field(strict=False)] = Field(
        default=(600.0, 21_600.0, 864_000.0),
        min_length=1,
        max_length=100,
        description="Mean delays, in seconds.",
    )
    weights: Annotated[tuple[Share, ...], Field(strict=False)] = Field(
        default=(0.31, 0.14, 0.55), min_length=1, max_length=100, description="Share of each; together 1."
    )
    window: Seconds = Field(
        default=2_592_000.0, description="A conversion later than this after its click is never seen."
    )


class Conversion(Section):
    """What happens after a click, and what the platform's bid rule knows of it."""

    base_logit: Logit = Field(default=-2.2, description="Logit of the conversion rate at zero affinity.")
    dims: Dims = Field(default=4, description="Length of the user's and the ad's conversion vector.")
    weight: Weight = Field(default=1.0, description="Weight of the conversion affinity in the logit.")
    anti_correlated_group: GroupName | None = Field(
        default="G4",
        description="Feature group whose affinity pulls conversions the other way, or null for none.",
    )
    anti_correlation: Share = Field(
        default=0.2, description="Minus the correlation of the two affinities: 0 none, 1 entire."
    )
    pair_noise: Deviation = Field(
        default=0.3, description="Standard deviation of the part no model can know."
    )
    pcvr_error: Deviation = Field(
        default=0.1, description="Standard deviation of the known pCVR's error, in logits."
    )
    delay: Delay | None = Field(
        default=None,
        description="How late conversions are. Absent: at once in the phases of the study, and in a market "
        "by the default of this section.",
    )

    @model_serializer(mode="wrap")
    def _without_delay(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without(dump(self), self, "delay")


class Intent(Section):
    """What a user is after just now: weight * <intent, a> / sqrt(dims) in the CTR logit. No model sees it."""

    per: Literal["request", "user_day"] = Field(
        default="request",
        description="What has an intent of its own: each request, or each user on each simulated day.",
    )
    dims: Dims | None = Field(
        default=None,
        description="Length of the intent's and the ad's vector; absent: 4, or that of the group.",
    )
    weight: Weight = Field(default=0.5, description="Weight of the scaled dot product in the CTR logit.")
    group: GroupName | None = Field(
        default=None,
        description="Feature group whose ad vectors the intent meets, so that models see the ad's side of "
        "it; null: vectors of the ads that no model sees.",
    )
    common_shift_sd: Deviation = Field(
        default=0.0,
        description="Standard deviation of a shift of the logit, the same for all ads that meet the intent.",
    )


class IdEffects(Section):
    """Hidden effects in the CTR logit that belong to identities; dense features do not show them."""

    user: Deviation = Field(default=0.0, description="Standard deviation of a bias of each user.")
    ad: Deviation = Field(default=0.0, description="Standard deviation of a bias of each ad.")
    advertiser: Deviation = Field(
        default=0.0, description="Standard deviation of a bias of each advertiser, common to its ads."
    )
    dims: Dims = Field(default=4, description="Length of the hidden vectors of users and ads.")
    weight: Weight = Field(
        default=0.0, description="Weight of the hidden vectors' scaled dot product in the CTR logit."
    )


class Drift(Section):
    """Tastes that turn: the users' vectors of all groups. Features show them as they were at time 0."""

    per_day: float = Field(
        default=0.05,
        gt=0,
        lt=1,
        description="Correlation that tastes lose in a day; after t simulated days (1 - per_day)^t is left.",
    )


class Seasonality(Section):
    """Waves of the CTR logit over the hours of a day and the days of a week; day 0 is a Monday."""

    daily: Deviation = Field(default=0.0, description="Height of the daily wave of the logit.")
    weekly: Deviation = Field(
        default=0.0, description="Height of the weekly wave of the logit, which is highest on Saturday noon."
    )
    peak_hour: float = Field(
        default=20.0, ge=0, lt=24, description="Hour at which the daily waves are highest."
    )
    groups: dict[GroupName, Share] = Field(
        default={},
        description="Share by which the weight of a feature group rises and falls with the daily wave.",
    )


class Churn(Section):
    """Ads that come and go in simulated time. Retrieval finds those that are there when a request arrives."""

    available_share: float = Field(
        default=0.7, gt=0, lt=1, description="Share of the corpus that is there at any time."
    )
    mean_lifetime_days: float = Field(
        default=7.0,
        gt=0,
        le=10_000,
        description="Mean days of an ad's life, half to one and a half of them by ad. After a rest of "
        "(1 - available_share) / available_share lives it comes back.",
    )


class History(Section):
    """What users clicked before time 0, which models may see."""

    length: int = Field(default=20, ge=1, le=1000, description="Ads kept of each user.")
    candidate_pool: int = Field(
        default=30,
        ge=1,
        le=10_000,
        description="Random ads out of which each was chosen, with odds by the true CTR; 1: by chance.",
    )


RICHER = ("intent", "id_effects", "drift", "seasonality", "churn", "history")

RESAMPLED = ("request", "user", "hour")  # what the intervals of a replayed log may resample


class Fitted(Section):
    """A click model fitted to the log: requests come again, and clicks are drawn."""

    click_model: str = Field(
        min_length=1,
        max_length=4096,
        description="Folder of the click model, as seen from the scenario or the working folder.",
    )
    block: Literal["hour", "day"] = Field(
        default="hour", description="Stretches of the log that are drawn whole, each for its time of the day."
    )
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = Field(
        default=None,
        description="Seal of the click model, filled in when a scenario is loaded; another one is refused.",
    )

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without(dump(self), self, "digest")


class ReplayedLog(Section):
    """Auctions of one's own in place of a world: an imported log, replayed request by request."""

    log: str = Field(
        min_length=1,
        max_length=4096,
        description="Folder of the imported log, as seen from the scenario or the working folder.",
    )
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = Field(
        default=None,
        description="Seal of the log, filled in when a scenario is loaded; another log is refused.",
    )
    resample: Literal["auto", "request", "user", "hour"] = Field(
        default="auto",
        description="What intervals resample: requests, users with all their requests, or hours. auto: users "
        "where they come again, hours where these differ significantly, else requests.",
    )
    slot_effects: Annotated[tuple[SlotEffect, ...], Field(strict=False)] | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Examination probability by slot, as declared, for prices by vcg and forecasts. Absent: "
        "estimated from the log's clicks.",
    )
    budgets: Literal["replay", "ignore"] = Field(
        default="replay",
        description="Budgets that were logged. replay: who has spent the day's takes part in no later "
        "auction of it, arm by arm. ignore: as if no advertiser had one.",
    )
    accept_mismatch: bool = Field(
        default=False,
        description="Continue although the auction reproduces less of the log than answers need (see "
        "audit-logs); they are then no evidence about the log.",
    )
    fitted: Fitted | None = Field(
        default=None,
        description="A world fitted to the log in place of its replay (fit-world); absent: it is replayed.",
    )

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without(
            dump(self),
            self,
            *("digest", "resample", "slot_effects", "budgets", "accept_mismatch", "fitted"),
        )


class World(Section):
    """What all arms share and cannot change: users, ads, bids and the ground truth."""

    users: int = Field(default=4000, ge=1, le=MAX_ID, description="Number of users.")
    ads: int = Field(default=20000, ge=2, le=MAX_ID, description="Number of ads in the corpus.")
    advertisers: int = Field(
        default=2000, ge=1, le=MAX_ID, description="Number of advertisers; at most one per ad."
    )
    user_activity: float = Field(
        default=0.56, ge=0, le=10, description="Zipf exponent of visits per user; 0 is even."
    )
    popularity: float = Field(
        default=0.0, ge=0, le=100, description="Weight of an ad's popularity in the retrieval similarity."
    )
    base_logit: Logit = Field(
        default=-6.0, description="Logit of the click rate when all features are at zero."
    )
    effects: Effects = Field(default=Effects(), description="Weight of each single feature in the CTR logit.")
    groups: dict[GroupName, Group] = Field(
        default={
            "G1": Group(dims=4, weight=0.80),
            "G2": Group(dims=2, weight=0.34),
            "G3": Group(dims=4, weight=0.36),
            "G4": Group(dims=4, weight=1.28),
        },
        min_length=1,
        description="Interacting feature groups by name; a model sees those it lists.",
    )
    mismatch: Mismatch = Field(default=Mismatch(), description="A penalty for pairs that clash.")
    pair_noise: Deviation = Field(
        default=0.25, description="Standard deviation of the part of the logit no model can know."
    )
    bids: Bids = Field(default=Bids(), description="How init-bids are drawn.")
    conversion: Conversion = Field(default=Conversion(), description="Conversions after a click.")
    slot_effects: Annotated[tuple[SlotEffect, ...], Field(strict=False)] = Field(
        default=(1.0, 0.85, 0.74, 0.66, 0.6),
        min_length=1,
        max_length=1000,
        description="Examination probability by slot (position bias), first slot first; never rising.",
    )
    intent: Intent | None = Field(
        default=None, description="What users are after just now, which no model sees; absent: nothing."
    )
    id_effects: IdEffects | None = Field(
        default=None, description="Hidden effects of users, ads and advertisers; absent: none."
    )
    drift: Drift | None = Field(default=None, description="Tastes that turn with time; absent: they stay.")
    seasonality: Seasonality | None = Field(
        default=None, description="Waves of the click rate over day and week; absent: none."
    )
    churn: Churn | None = Field(default=None, description="Ads that come and go; absent: all are there.")
    history: History | None = Field(
        default=None, description="Ads that users clicked before time 0; absent: none are known."
    )
    replay: ReplayedLog | None = Field(
        default=None,
        description="Auctions that were logged, in place of all other keys here; absent: a world is drawn.",
    )

    @property
    def kind(self) -> Kind:
        """Which environment it is made concrete by."""
        if self.replay is None:
            return "synthetic"
        return "replayed" if self.replay.fitted is None else "fitted"

    @property
    def seals(self) -> tuple[str | None, ...] | None:
        """Which log it is of, which click model and how its time is drawn; None of a world that is drawn."""
        if self.replay is None:
            return None
        fitted = self.replay.fitted
        return (self.replay.digest, *((fitted.digest, fitted.block) if fitted else ()))

    def without_places(self, data: dict[str, Any]) -> None:
        """Leave out of its data where a log and a click model lie that are told by what they hold."""
        if self.replay is not None and self.replay.digest is not None:
            del data["replay"]["log"]
            fitted = self.replay.fitted
            if fitted is not None and fitted.digest is not None:
                del data["replay"]["fitted"]["click_model"]

    def has(self, capability: Capability) -> bool:
        """Whether such a world can be asked for it."""
        return capability not in LACKS[self.kind]

    def require(self, capability: Capability, option: str) -> None:
        """UserError, in the words of the kind, for what is asked by an option and cannot be had."""
        if not self.has(capability):
            raise UserError(f"{option}: {LACKS[self.kind][capability]}")

    @property
    def is_timed(self) -> bool:
        """Whether it matters when a request comes."""
        by_day = self.intent is not None and self.intent.per == "user_day"
        return by_day or any(part is not None for part in (self.drift, self.seasonality, self.churn))

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        if self.replay is not None:  # nothing else of a world is looked at
            return {"replay": dump(self)["replay"]}
        return without_absent(dump(self), *RICHER, "replay")


class Traffic(Section):
    """When requests arrive and in which portions they are served."""

    requests_per_second: float = Field(
        default=50.0, gt=0, le=1e9, description="Mean rate of the Poisson arrivals."
    )
    block: int = Field(default=1024, ge=1, le=65536, description="Requests served together.")


SIMILARITY = "similarity"
SIMILARITY_KEYS = ("group", "overlap", "probes")  # of a retriever's section, that this kind alone looks at
LEARNED_KEYS = ("model", "bid_weight", "probes")  # and those that a learned retriever looks at


class Route(Section):
    """A retriever and its quota: it brings its best ads of the corpus."""

    kind: str = Field(
        default=SIMILARITY, min_length=1, description=f"{SIMILARITY}, path/file.py:Class or module:Class."
    )
    model: Name | None = Field(
        default=None,
        description="In place of kind: a model under `models` with an inner product (towers, or a class with "
        "encode_users and encode_ads), by which the corpus is searched.",
    )
    size: int = Field(
        default=100, ge=0, le=MAX_ID, description="Ads it brings per request at most; 0 turns it off."
    )
    group: GroupName = Field(
        default="G1", description="Feature group that the retrieval similarity looks at."
    )
    overlap: Share = Field(default=0.5, description="Share of the similarity that this group explains.")
    bid_weight: float = Field(
        default=1.0,
        ge=0,
        le=100,
        description="With a model: its score is logit + bid_weight * log(init-bid); 0 leaves the bid out.",
    )
    probes: Annotated[int, Field(ge=1, le=MAX_ID)] | None = Field(
        default=None,
        description="Search only so many of the 2·sqrt(ads) lists of neighbouring ads, which is quick at ten "
        "million ads and misses some (needs faiss). Without: all ads, exactly.",
    )
    options: dict[str, Any] = Field(default={}, description="Keyword arguments of a custom retriever.")

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What says nothing is left out: a scenario without it keeps its hash."""
        return self._used(without(dump(self), self, "kind", "probes", "options", "routes"))

    def _used(self, data: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in data.items() if key in ("routes", *self.used_keys)}

    @property
    def used_keys(self) -> tuple[str, ...]:
        """The keys that mean something for its kind of retriever."""
        if self.model is not None:
            return ("size", *LEARNED_KEYS)
        return ("kind", "size", *(SIMILARITY_KEYS if self.kind == SIMILARITY else ("options",)))

    @property
    def searched_by(self) -> str:
        """What the corpus is searched by: a model, or a kind of retriever."""
        return self.kind if self.model is None else self.model

    @property
    def is_similarity(self) -> bool:
        """Whether it is the built-in similarity."""
        return self.model is None and self.kind == SIMILARITY

    @property
    def spelled_out(self) -> dict[str, Any]:
        """A copy of all keys that mean something, the defaults among them, as an override writes them."""
        return {key: deepcopy(getattr(self, key)) for key in self.used_keys if getattr(self, key) is not None}


class Retrieval(Route):
    """Corpus to pre-ranking set."""

    size: int = Field(default=500, ge=2, le=MAX_ID, description="Ads handed to pre-ranking per request.")
    routes: dict[Name, Route] = Field(
        default={},
        description="Several retrievers, merged: NAME: {kind, size, ...}. Each brings as many ads as its "
        "size; an ad that several bring counts once. In place of the other keys here.",
    )

    def _used(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"routes": data["routes"]} if self.routes else super()._used(data)

    @property
    def spelled_out(self) -> dict[str, Any]:
        if self.routes:
            return {"routes": {name: route.spelled_out for name, route in self.routes.items()}}
        return super().spelled_out

    @property
    def is_similarity(self) -> bool:
        """Whether it is the built-in similarity alone."""
        return not self.routes and super().is_similarity

    @property
    def parts(self) -> dict[tuple[str, ...], Route]:
        """Its retrievers by their place below it: itself, or its routes."""
        return {("routes", name): route for name, route in self.routes.items()} or {(): self}

    @property
    def models(self) -> tuple[str, ...]:
        """The models that its retrievers search by, each once."""
        return tuple(dict.fromkeys(route.model for route in self.parts.values() if route.model is not None))

    @property
    def total(self) -> int:
        """The most ads that a request can have."""
        return sum(route.size for route in self.parts.values())


class PreRankingStep(Section):
    """A step of pre-ranking: the best of its candidates go on."""

    model: Name = Field(default="logloss", description="A name under `models`, or random, constant, truth.")
    bid: Literal["init", "opt", "none"] = Field(
        default="init", description="Bid in the score; none ranks by the model alone."
    )
    fusion: Name = Field(
        default="ecpm", description="How prediction and bid become a score: ecpm or a name under `fusions`."
    )
    size: int = Field(
        default=100, ge=2, le=MAX_ID, description="Ads handed to ranking per request; more than the slots."
    )
    pcvr: Name | None = Field(
        default=None,
        description="Whose pCVR this stage's opt-bids come from: a model of conversions under `models`, or "
        "known. Absent: as bidding.pcvr, which is the ranking stage's.",
    )

    @model_serializer(mode="wrap")
    def _without_pcvr(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without(dump(self), self, "pcvr", "earlier")


class PreRanking(PreRankingStep):
    """Pre-ranking set to competitive set; of several steps, the last."""

    earlier: dict[Name, PreRankingStep] = Field(
        default={},
        description="Steps of pre-ranking before this one, in their order: NAME: {model, bid, fusion, size}. "
        "Pre-ranking may also be written as a list of steps, of which all but the last have a name.",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_list(cls, given: Any) -> Any:
        return steps_by_name(given)


def steps_by_name(given: Any) -> Any:
    """Pre-ranking written as a list of steps, as a mapping: the last, and `earlier` ones by their names."""
    if not isinstance(given, list) or not all(isinstance(step, dict) for step in given) or not given:
        return given
    *earlier, last = given
    names = [step.get("name") for step in earlier]
    if "name" in last and last["name"] != "pre_ranking":
        raise ValueError(f"the last step is called pre_ranking, found {last['name']!r}; remove its name")
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError("all steps but the last need a `name` of their own")
    plain = [{key: value for key, value in step.items() if key != "name"} for step in given]
    return {**plain[-1], "earlier": dict(zip(names, plain[:-1], strict=True))}


class Ranking(Section):
    """Competitive set to auction."""

    model: Name = Field(default="rank", description="A name under `models`, or random, constant, truth.")
    bid: Literal["init", "opt"] = Field(default="opt", description="Bid that enters the auction.")
    fusion: Name = Field(
        default="ecpm", description="How prediction and bid become a score: ecpm or a name under `fusions`."
    )


class Cascade(Section):
    """The deployed cascade; arms override parts of it."""

    retrieval: Retrieval = Field(default=Retrieval(), description="Corpus to pre-ranking set.")
    pre_ranking: PreRanking = Field(default=PreRanking(), description="Pre-ranking set to competitive set.")
    ranking: Ranking = Field(default=Ranking(), description="Competitive set to auction.")
    slots: int = Field(default=5, ge=1, le=1000, description="Ads shown per request.")

    @property
    def seats(self) -> tuple[str, ...]:
        """The models of its stages, ranking's first, and of retrieval."""
        steps = (self.pre_ranking, *self.pre_ranking.earlier.values())
        asked = [self.ranking.model, *(step.model for step in steps), *self.retrieval.models]
        return tuple(dict.fromkeys(asked))


class Fusion(Section):
    """Weighted geometric fusion: pctr^a * pcvr^b * bid^c."""

    pctr: float = Field(default=1.0, ge=0, le=10, description="Exponent of the pCTR.")
    pcvr: float = Field(default=0.0, ge=0, le=10, description="Exponent of the pCVR.")
    bid: float = Field(
        default=1.0, gt=0, le=10, description="Exponent of the bid; above 0 so that a higher bid never hurts."
    )


AnySection = TypeVar("AnySection", bound=Section)


def with_rule_parameters(own: type[AnySection]) -> type[AnySection]:
    """Gives a section a key for each parameter of a pricing rule."""
    fields: dict[str, Any] = {
        name: (
            Annotated[float, Field(ge=0, le=min(parameter.high, 1e9))] | None,
            Field(default=None, description=f"For {_rules_with(name)}: {parameter.meaning}."),
        )
        for name, parameter in PARAMETERS.items()
    }
    return create_model(own.__name__, __base__=own, __module__=own.__module__, __doc__=own.__doc__, **fields)


def _rules_with(parameter: str) -> str:
    return " and ".join(f"pricing {name}" for name, rule in RULES.items() if parameter in rule.parameters)


UNSAID = ("charging", "logged_reserves", "rounding", "rounding_how", "increment")  # at their defaults


@with_rule_parameters
class Auction(Section):
    """Order, prices and reserves."""

    pricing: Annotated[str, NameIn(RULES)] = Field(default="gsp", description="Pricing rule.")
    squashing: float = Field(
        default=1.0,
        ge=0,
        le=2,
        description=f"Exponent of pCTR in the rank score; {' and '.join(NEED_SQUASHING_1)} needs 1.",
    )
    reserve_cpc: float = Field(
        default=0.0, ge=0, le=1e9, description="Least price per click; ads bidding less are out."
    )
    score_floor: float = Field(
        default=0.0, ge=0, le=1e9, description="Least rank score; ads below it are out."
    )
    charging: Literal["click", "impression", "slot"] = Field(
        default="click",
        description="What an advertiser pays for: a click, an ad that is exposed, or a slot that is won, "
        "seen or not. But for click, bids, reserves and prices are per impression, and ads are ordered by "
        "the bid alone. What was exposed, a log tells (exposed); elsewhere all that is shown is.",
    )
    logged_reserves: bool = Field(
        default=False,
        description="Of a replayed log: the reserve that each request had, in place of reserve_cpc (until "
        "that is set).",
    )

    rounding: float = Field(
        default=0.0,
        ge=0,
        le=1e9,
        description="Prices are multiples of it, such as 0.01; of whole micro-units. 0: not rounded. No "
        "price exceeds its bid; one rounded down may be below the reserve.",
    )
    rounding_how: Literal["nearest", "up", "down"] = Field(
        default="nearest", description="How prices are rounded; halves go up."
    )
    increment: float = Field(
        default=0.0,
        ge=0,
        le=1e9,
        description="Minimum increment over the next score, per click, where there is a next ad; for gsp and "
        "soft_floor.",
    )

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters of pricing rules that are given."""
        values = {name: getattr(self, name) for name in PARAMETERS}
        return {name: value for name, value in values.items() if value is not None}

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the parameters that are not given: a scenario that needs none keeps the hash it had."""
        return without(without_absent(dump(self), *PARAMETERS), self, *UNSAID)


class Bidding(Section):
    """How the platform turns an init-bid into an opt-bid."""

    rule: Literal["ocpc", "target_cpa", "none"] = Field(
        default="ocpc",
        description="ocpc (optimised CPC, within range), target_cpa (bid times pCVR, unbounded) or none.",
    )
    range: float = Field(default=0.4, ge=0, lt=1, description="For ocpc: largest relative change of the bid.")
    pcvr: Name = Field(
        default=KNOWN,
        description="Whose pCVR opt-bids come from: known (the conversion features with a fixed error of "
        "each ad), or a model under `models` with target conversion. Until that is trained, so in cold_start "
        "and log, init-bids take the place of opt-bids.",
    )

    @model_serializer(mode="wrap")
    def _without_known(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without(dump(self), self, "pcvr")


ExplorationPool = Literal["retrieved", "corpus"]
POOL = (
    "Ads that random pages are drawn from: retrieved, those of the request's retrieval, or corpus, all that "
    "are there, so that a log has ads that retrieval would not have brought. A cold start before a learned "
    "retriever has been trained draws from the corpus."
)


class Phases(Section):
    """Requests per phase of the study."""

    cold_start: int = Field(
        default=30000, ge=0, le=MAX_REQUESTS, description="Requests served by a random cascade."
    )
    log: int = Field(
        default=150000, ge=0, le=MAX_REQUESTS, description="Requests served by the deployed cascade."
    )
    exploration: Share = Field(default=0.01, description="Share of random choices while logging.")
    exploration_pool: ExplorationPool = Field(default="retrieved", description=POOL)
    shadow: int = Field(
        default=6000, ge=0, le=MAX_REQUESTS, description="Requests on which students learn from the ranker."
    )
    evaluate: int = Field(
        default=10000, ge=1, le=MAX_REQUESTS, description="Requests on which all arms are compared."
    )

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without(dump(self), self, "exploration_pool")


class Report(Section):
    """What is compared with what, and how sure it is."""

    baseline: str = Field(
        default="", min_length=1, description="Arm that lifts are relative to; when absent, the first arm."
    )
    resamples: int = Field(
        default=1000, ge=2, le=100_000, description="Bootstrap resamples for the intervals."
    )
    detail_requests: int = Field(
        default=1024, ge=0, le=MAX_REQUESTS, description="Evaluated requests stored in full."
    )
    exposed_impressions: int = Field(
        default=10, ge=1, le=MAX_REQUESTS, description="Logged impressions that make an ad exposed."
    )
