"""The `market` section of a scenario: simulated days with budgets and bidders that adapt.

Its parts: what stages cost and on which servers (`compute`), models that learn from the market's own log
(`training`), experiments on one market (`designs`), users, charging, budgets and bidders.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from cascade_sim.agents.registry import BIDDERS, CLICK_MODELS
from cascade_sim.scenario.sections import (
    MAX_ID,
    ExplorationPool,
    Name,
    ParetoIndex,
    Section,
    Share,
    without,
    without_absent,
)

HOUR = 3600.0
DAY = 86_400.0
MIN_SECONDS, MAX_SECONDS = (
    0.001,
    1e9,
)  # between two events of one sort: shorter is no time, longer is never
WORTH_A_PROCESS = 20_000  # requests of a market: below it a process takes longer to start than to live them
PREFIX = "design-"  # of the tables and checkpoints of a design: no arm may be called like one
BUILT_IN_PROFILES = ("constant", "daily")


class Sizes(Section):
    """A size of its own for every request, by what more candidates are worth to it."""

    choices: Annotated[tuple[Annotated[int, Field(ge=2, le=MAX_ID)], ...], Field(strict=False)] = Field(
        min_length=2,
        max_length=64,
        description="Numbers of ads that may be handed to ranking, rising; more than the slots.",
    )
    mean: float = Field(gt=0, le=MAX_ID, description="Mean number of ads per request that may be ranked.")


class Pool(Section):
    """The servers of one stage. A batch costs per_batch_ms + per_candidate_us for each of its candidates."""

    servers: int = Field(default=1, ge=1, le=10_000, description="Identical servers of this stage.")
    per_batch_ms: float = Field(
        default=2.0, ge=0, le=1e6, description="Milliseconds a batch costs, however small it is."
    )
    per_candidate_us: float = Field(
        default=10.0, ge=0, le=1e6, description="Microseconds each candidate of a request costs."
    )
    batch: int = Field(
        default=4, ge=1, le=10_000, description="Most waiting requests that a free server takes at once."
    )


class Stages(Section):
    """A pool of servers for every stage; one of an earlier step of pre-ranking is under its name.

    A step without a pool under its name has servers like those of pre_ranking, as many again.
    """

    model_config = ConfigDict(extra="allow")  # names of steps, which `checks` compares with the cascade's

    __pydantic_extra__: dict[str, Pool] = Field(init=False)

    retrieval: Pool = Field(
        default=Pool(per_batch_ms=3.0, per_candidate_us=4.0),
        description="Candidates are the ads it retrieves.",
    )
    pre_ranking: Pool = Field(
        default=Pool(per_batch_ms=2.0, per_candidate_us=10.0), description="Candidates are the retrieved ads."
    )
    ranking: Pool = Field(
        default=Pool(per_batch_ms=4.0, per_candidate_us=300.0),
        description="Candidates are the ads of the competitive set.",
    )

    @property
    def of_steps(self) -> dict[str, Pool]:
        """The pools of earlier steps that were given, by name."""
        return self.__pydantic_extra__

    def pool(self, stage: str) -> Pool:
        """The servers of a stage."""
        given = {name: getattr(self, name) for name in type(self).model_fields} | self.of_steps
        return given.get(stage, self.pre_ranking)


class Compute(Section):
    """Stages take time. A request that runs out of it gets the order of the last stage that was done."""

    deadline: float = Field(
        default=100.0, gt=0, le=1e6, description="Milliseconds from arrival to the latest answer."
    )
    stages: Stages = Field(
        default=Stages(),
        description="Servers and costs of each stage. Of several steps of pre-ranking, an earlier one has "
        "its own under its name; without it, as many servers as pre_ranking at the same cost.",
    )
    jitter: float = Field(
        default=0.1,
        ge=0,
        le=3,
        description="Standard deviation of the log of service times; their mean stays as it is.",
    )


class Training(Section):
    """Every arm trains its own copies of its models on what it has shown recently."""

    interval: float = Field(
        default=6 * HOUR, ge=MIN_SECONDS, le=MAX_SECONDS, description="Seconds between two deployments."
    )
    window: float | None = Field(
        default=None,
        ge=MIN_SECONDS,
        le=MAX_SECONDS,
        description="Seconds of impressions to learn from; absent: as many as `interval`.",
    )
    start_from: Literal["study", "random"] = Field(
        default="study",
        description="study: the models that the study trained; random: fresh weights, as at a launch.",
    )
    warm_start: bool = Field(
        default=True, description="Go on from the deployed weights; false: from fresh ones each time."
    )
    epochs: int = Field(default=1, ge=1, le=1000, description="Passes over the impressions each time.")
    batch: int | None = Field(
        default=None, ge=1, le=10**7, description="Samples a step; absent: the model's."
    )
    learning_rate: float | None = Field(
        default=None, gt=0, le=10, description="At the start of each training; absent: the model's."
    )
    lists: int = Field(
        default=2000,
        ge=1,
        le=10**7,
        description="For distill and ltr: recent requests whose candidates the new teacher scores each time.",
    )
    panel: int = Field(
        default=512,
        ge=1,
        le=10**6,
        description="Requests on which every deployment is compared with the truth.",
    )
    burn_in: int | None = Field(
        default=None,
        ge=0,
        le=10**6,
        description=(
            "First deployments that the report leaves out where it asks whether a ranker's level holds: they "
            "may still be on their way from where they began; absent: a third of them."
        ),
    )

    @model_serializer(mode="wrap")
    def _without_absent_burn_in(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is left to the default is written, and hashed, as before there was a choice."""
        data: dict[str, Any] = write(self)
        if self.burn_in is None:
            data.pop("burn_in", None)
        return data


Kind = Literal["request", "user", "budget", "switchback"]


class Designs(Section):
    """Two arms on trial in one market.

    request, user  each request, or each user, belongs to an arm; budgets and bidders are common
    switchback     all requests of a time slot belong to an arm; budgets and bidders are common
    budget         requests as in `request`, and each arm has its share of every budget and its own bidders
    """

    treatment: Name = Field(description="The arm on trial.")
    control: Name | None = Field(default=None, description="The arm it is compared with; absent: baseline.")
    share: float = Field(default=0.5, gt=0, lt=1, description="Share of requests, users or slots treated.")
    kinds: Annotated[tuple[Kind, ...], Field(strict=False)] = Field(
        default=("request", "user", "budget", "switchback"), min_length=1, description="Designs to run."
    )
    switchback: float = Field(
        default=7200.0, gt=0, le=DAY, description="Seconds of a time slot; a day must be a multiple of it."
    )
    washout: float = Field(
        default=0.0, ge=0, le=DAY, description="Seconds after a change of arm that a switchback leaves out."
    )
    pre_days: int = Field(
        default=1,
        ge=0,
        le=365,
        description="Days before the trial, with all requests on control (for CUPED).",
    )


class Budgets(Section):
    """Daily budgets, log-normal over advertisers."""

    share: Share = Field(
        default=0.8, description="Share of advertisers with a daily budget; others have none."
    )
    median: float = Field(default=5.0, gt=0, le=1e9, description="Median daily budget.")
    sigma: float = Field(default=1.0, ge=0, le=5, description="Spread of the logarithm of budgets.")
    tail: ParetoIndex | None = Field(
        default=None,
        description="Pareto index of the largest budgets, at least 0.8 / sigma, as in world.bids.tail. "
        "Absent: log-normal.",
    )

    logged: bool = Field(
        default=False,
        description="In a world fitted to a log that has budgets: those, in place of drawn ones.",
    )

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without(without_absent(dump(self), "tail"), self, "logged")


class BidderSpec(Section):
    """A kind of bidder, and how many advertisers use it."""

    kind: str = Field(
        default="fixed",
        description=f"{', '.join(BIDDERS)}, or file.py:Class.",
    )
    share: float = Field(
        default=1.0, ge=1e-9, le=1e9, description="Share of advertisers, relative to the other bidders'."
    )
    options: dict[str, Any] = Field(default={}, description="Keyword arguments of the bidder.")


class SessionsSpec(Section):
    """Users come for several pages with pauses between them."""

    mean_pages: float = Field(default=3.0, ge=1, le=1000, description="Pages of a session on average.")
    pause_seconds: float = Field(default=45.0, ge=0, le=DAY, description="Mean pause between two pages.")


class Fatigue(Section):
    """Users who have seen many ads recently click less: -strength * log(1 + ads in memory) on the logit."""

    strength: float = Field(default=0.0, ge=0, le=10, description="0: no fatigue.")
    half_life_hours: float = Field(default=6.0, gt=0, le=10_000, description="Memory halves in this time.")


class Users(Section):
    """How users come and click."""

    click_model: str = Field(
        default="position", description=f"{', '.join(CLICK_MODELS)}, or file.py:Class of one's own."
    )
    options: dict[str, Any] = Field(default={}, description="Keyword arguments of the click model.")
    sessions: SessionsSpec | None = Field(
        default=None, description="Several pages per visit; absent: every request is a visit of its own."
    )
    fatigue: Fatigue = Field(default=Fatigue(), description="How ads seen recently lower the CTR.")


class Charging(Section):
    """When clicks reach the platform and are charged, and how far late ones may overdraw a budget."""

    click_delay: float = Field(
        default=0.0,
        ge=0,
        le=DAY,
        description="Mean seconds from page to click (exponential); 0: charged at once.",
    )
    hold: Literal["none", "expected", "full"] = Field(
        default="expected",
        description="With delayed clicks, what a shown ad keeps back of its budget: "
        "nothing, pCTR * CPC, or the CPC.",
    )
    click_window: float = Field(
        default=60.0, gt=0, le=DAY, description="Seconds after which a hold ends without a click."
    )
    overspend: Share = Field(
        default=0.0,
        description="Share of a daily budget by which late clicks may exceed it; beyond, clicks are free.",
    )


class Market(Section):
    """Simulated time: traffic, users, budgets and bidders."""

    days: float = Field(default=1.0, gt=0, le=366, description="Simulated days.")
    requests_per_second: float = Field(default=5.0, gt=0, le=1e6, description="Mean rate over the profile.")
    profile: str = Field(default="daily", description="constant, daily, or a CSV file of 24 or 168 hours.")
    window: float = Field(
        default=60.0,
        ge=MIN_SECONDS,
        le=DAY,
        description="Seconds; bids and budgets' eligibility are those at its start.",
    )
    update: float = Field(
        default=300.0, ge=MIN_SECONDS, le=DAY, description="Seconds between updates of the bidders."
    )
    exploration: Share = Field(default=0.0, description="Share of requests whose page is filled at random.")
    exploration_pool: ExplorationPool = Field(
        default="retrieved",
        description="Ads that random pages are drawn from: retrieved, or corpus, of all ads that are there a "
        "draw of as many as are retrieved.",
    )
    shadow: Share = Field(
        default=0.0,
        description="Share of requests that an online simulator scores too, by the deployed ranker on the "
        "whole pre-ranking set: RCS as it is lived, by hour. Costs time and changes nothing.",
    )
    checkpoint: float = Field(
        default=21_600.0,
        ge=MIN_SECONDS,
        le=MAX_SECONDS,
        description="Seconds between states from which a stopped run can go on.",
    )
    compute: Compute | None = Field(
        default=None, description="What stages cost in time, on which servers; absent: no time at all."
    )
    depth: int = Field(
        default=16, ge=2, le=1000, description="Ads of a request kept in rank order for settlement."
    )
    users: Users = Field(default=Users(), description="How users come and click.")
    charging: Charging = Field(default=Charging(), description="When clicks are charged.")
    budgets: Budgets | None = Field(
        default=None, description="Daily budgets; absent: no advertiser has one, so none runs out."
    )
    bidders: dict[str, BidderSpec] = Field(
        default={"fixed": BidderSpec()}, min_length=1, description="Who bids how, by name."
    )
    training: Training | None = Field(
        default=None, description="Models that learn from what they show; absent: they stay as they are."
    )
    designs: Designs | None = Field(
        default=None, description="Experiments on the market, compared with the launch; absent: none."
    )

    @model_serializer(mode="wrap")
    def _without_absent_designs(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A market without budgets, experiments or a live shadow is written, and hashed, without them."""
        data = write(self)
        if self.budgets is None:
            data.pop("budgets", None)
        if self.designs is None:
            data.pop("designs", None)
        if self.shadow == 0:
            data.pop("shadow", None)
        return without(data, self, "exploration_pool")


def market_jobs(spec: Market | None, n_arms: int, workers: int) -> int:
    """How many processes at a time live the markets of so many arms; 0: the run's own does, one by one."""
    at_once = min(n_arms, workers)
    is_worth = spec is not None and spec.days * DAY * spec.requests_per_second >= WORTH_A_PROCESS
    return at_once if is_worth and at_once > 1 else 0


def find_profile(profile: str, folder: Path) -> Path | None:
    """The file of a profile: looked for from the working folder, then beside the scenario."""
    return next((path for path in (Path(profile), folder / profile) if path.is_file()), None)
