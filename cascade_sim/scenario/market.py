"""The `market` section of a scenario: simulated days with budgets and bidders that adapt.

Sections on compute: what stages cost, on which servers, how long a page may wait, and sizes by request.

The section `market.training`: models that learn from the market's own log and are redeployed.

The section `market.designs`: experiments on one market, held against what a launch would bring.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from cascade_sim.scenario.sections import MAX_ID, Section
from cascade_sim.scenario.yaml import Problem

if TYPE_CHECKING:
    from cascade_sim.scenario.schema import Scenario
from typing import TYPE_CHECKING

from cascade_sim.errors import unknown_name
from cascade_sim.scenario.sections import Name
from cascade_sim.scenario.yaml import KeyPath

if TYPE_CHECKING:
    from cascade_sim.scenario.schema import Scenario
import inspect
from pathlib import Path
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from cascade_sim.errors import did_you_mean
from cascade_sim.scenario.plugins import check_reference, path_from_working_folder
from cascade_sim.scenario.plugins import from_working_folder as reference_from_working_folder

STAGES = ("retrieval", "pre_ranking", "ranking")  # in the order a request meets them

DAY = 86_400.0


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
    """A pool of servers for every stage."""

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


class Compute(Section):
    """Stages take time. A request that runs out of it gets the order of the last stage that was done."""

    deadline: float = Field(
        default=100.0, gt=0, le=1e6, description="Milliseconds from arrival to the latest answer."
    )
    stages: Stages = Field(default=Stages(), description="Servers and costs of each stage.")
    jitter: float = Field(
        default=0.1,
        ge=0,
        le=3,
        description="Standard deviation of the log of service times; their mean stays as it is.",
    )


HOUR = 3600.0


class Training(Section):
    """Every arm trains its own copies of the models in its seats on what it has shown of late."""

    every: float = Field(default=6 * HOUR, gt=0, description="Seconds between two deployments.")
    history: float | None = Field(
        default=None,
        gt=0,
        description="Seconds of impressions to learn from; absent: as many as `every`.",
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
        description="Requests on which every deployment is held against the truth.",
    )


def check_training(scenario: Scenario) -> Iterator[Problem]:
    """What is wrong with `market.training` and with arms that explore."""
    for name, arm in scenario.arms.items():
        if arm.exploration is not None and scenario.market is None:
            at = ("arms", name, "exploration")
            text = "an arm explores in the market only; add a section market, or use phases.exploration"
            yield Problem(at, text, uses=(at, ("market",)))
    training = scenario.market.training if scenario.market is not None else None
    if training is None:
        for name, model in scenario.models.items():
            if model.refit:
                at = ("models", name, "refit")
                text = "calibrators are fitted anew where models are: add market.training, or remove it"
                yield Problem(at, text, uses=(at, ("market",)))
        return
    cascade = scenario.cascade
    for name, arm in scenario.arms.items():
        pre_ranking = (arm.pre_ranking and arm.pre_ranking.model) or cascade.pre_ranking.model
        ranking = (arm.ranking and arm.ranking.model) or cascade.ranking.model
        if pre_ranking not in scenario.models and ranking not in scenario.models:
            text = f"arm '{name}' has no model to train ({pre_ranking} and {ranking} are built in)"
            yield Problem(("market", "training"), text, uses=(("arms", name),))


PREFIX = "design-"  # of the tables and checkpoints of a design: no arm may be called like one
Kind = Literal["request", "user", "budget", "switchback"]


class Designs(Section):
    """Two arms on trial in one market.

    request, user  each request, or each user, belongs to an arm; budgets and bidders are common
    switchback     all requests of a time slot belong to an arm; budgets and bidders are common
    budget         requests as in `request`, and each arm has its share of every budget and its own bidders
    """

    treatment: Name = Field(description="The arm on trial.")
    control: Name | None = Field(default=None, description="The arm it is held against; absent: baseline.")
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
        default=1, ge=0, le=365, description="Days before the trial, with everybody on control (for CUPED)."
    )


def control_arm(scenario: Scenario) -> str:
    """The arm that the treatment is held against."""
    assert scenario.market is not None and scenario.market.designs is not None
    return scenario.market.designs.control or scenario.report.baseline


def check_designs(scenario: Scenario) -> Iterator[Problem]:
    """What is wrong with `market.designs`."""
    market = scenario.market
    spec = market.designs if market is not None else None
    if market is None or spec is None:
        return
    at: KeyPath = ("market", "designs")
    for key, arm in (("treatment", spec.treatment), ("control", spec.control)):
        if arm is not None and arm not in scenario.arms:
            yield Problem((*at, key), unknown_name("arm", arm, scenario.arms), uses=((*at, key),))
    if spec.treatment == control_arm(scenario):
        text = f"'{spec.treatment}' is the control; name another arm"
        yield Problem((*at, "treatment"), text, uses=((*at, "treatment"), (*at, "control")))
    if len(set(spec.kinds)) < len(spec.kinds):
        yield Problem((*at, "kinds"), f"each design runs once, found {', '.join(spec.kinds)}")
    if DAY % spec.switchback:
        text = f"{spec.switchback:g} does not divide a day of {DAY:.0f} seconds; use 3600, 7200, 86400 …"
        yield Problem((*at, "switchback"), text)
    if spec.washout >= spec.switchback:
        text = f"{spec.washout:g} leaves nothing of slots of {spec.switchback:g} seconds; use less"
        yield Problem((*at, "washout"), text, uses=((*at, "washout"), (*at, "switchback")))
    if spec.pre_days >= market.days:
        text = f"{spec.pre_days} leave no day of {market.days:g} for the trial; use fewer"
        yield Problem((*at, "pre_days"), text, uses=((*at, "pre_days"), ("market", "days")))
    for key, section in (("training", market.training), ("compute", market.compute)):
        if section is not None:
            what = "models that learn" if key == "training" else "servers"
            text = f"arms on trial cannot share {what} yet; remove market.{key} or market.designs"
            yield Problem(at, text, uses=(("market", key),))
    for name in scenario.arms:
        if name.startswith(PREFIX):
            text = f"names that begin with '{PREFIX}' belong to the designs; give the arm another name"
            yield Problem(("arms", name), text, uses=(at,))


# Kept here as names: the classes, in agents.bidders, need numpy, which a scenario's check does without.
BIDDER_KINDS = ("fixed", "shading", "target_cpa", "multiplier", "adaptive", "pid", "throttling")
CLICK_MODEL_KINDS = ("position", "cascade")
BUILT_IN_PROFILES = ("constant", "daily")
Share = Annotated[float, Field(ge=0, le=1)]


class Budgets(Section):
    """Daily budgets, log-normal over advertisers."""

    share: Share = Field(
        default=0.8, description="Share of advertisers with a daily budget; others have none."
    )
    median: float = Field(default=5.0, gt=0, le=1e9, description="Median daily budget.")
    sigma: float = Field(default=1.0, ge=0, le=5, description="Spread of the logarithm of budgets.")


class BidderSpec(Section):
    """A kind of bidder, and how many advertisers use it."""

    kind: str = Field(
        default="fixed",
        description="fixed, shading, target_cpa, multiplier, adaptive, pid, throttling, or file.py:Class.",
    )
    share: float = Field(
        default=1.0, gt=0, description="Share of advertisers, relative to the other bidders'."
    )
    options: dict[str, Any] = Field(default={}, description="Keyword arguments of the bidder.")


class SessionsSpec(Section):
    """Users come for several pages with pauses between them."""

    mean_pages: float = Field(default=3.0, ge=1, le=1000, description="Pages of a session on average.")
    pause_seconds: float = Field(default=45.0, ge=0, le=DAY, description="Mean pause between two pages.")


class Fatigue(Section):
    """Users who have seen many ads of late click less: -strength * log(1 + ads in memory) on the logit."""

    strength: float = Field(default=0.0, ge=0, le=10, description="0: no fatigue.")
    half_life_hours: float = Field(default=6.0, gt=0, le=10_000, description="Memory halves in this time.")


class Users(Section):
    """How users come and click."""

    click_model: str = Field(
        default="position", description="position, cascade, or file.py:Class of one's own."
    )
    options: dict[str, Any] = Field(default={}, description="Keyword arguments of the click model.")
    sessions: SessionsSpec | None = Field(
        default=None, description="Several pages per visit; absent: every request is a visit of its own."
    )
    fatigue: Fatigue = Field(default=Fatigue(), description="How ads seen of late lower the CTR.")


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
        gt=0,
        le=DAY,
        description="Seconds; bids and budgets' eligibility are those at its start.",
    )
    update: float = Field(default=300.0, gt=0, le=DAY, description="Seconds between updates of the bidders.")
    exploration: Share = Field(default=0.0, description="Share of requests whose page is filled at random.")
    checkpoint: float = Field(
        default=21_600.0, gt=0, description="Seconds between states from which a stopped run can go on."
    )
    compute: Compute | None = Field(
        default=None, description="What stages cost in time, on which servers; absent: no time at all."
    )
    depth: int = Field(
        default=16, ge=2, le=1000, description="Ads of a request kept in rank order for settlement."
    )
    users: Users = Field(default=Users(), description="How users come and click.")
    charging: Charging = Field(default=Charging(), description="When clicks are charged.")
    budgets: Budgets = Field(default=Budgets(), description="Daily budgets.")
    bidders: dict[str, BidderSpec] = Field(
        default={"fixed": BidderSpec()}, min_length=1, description="Who bids how, by name."
    )
    training: Training | None = Field(
        default=None, description="Models that learn from what they show; absent: they stay as they are."
    )
    designs: Designs | None = Field(
        default=None, description="Experiments on the market, held against the launch; absent: none."
    )

    @model_serializer(mode="wrap")
    def _without_absent_designs(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A market without experiments is written, and hashed, as before there were any."""
        data = write(self)
        if self.designs is None:
            data.pop("designs", None)
        return data


def check_market(market: Market | None, folder: Path) -> Iterator[Problem]:
    """What is wrong with the bidders and the traffic profile of a market; `folder` is the scenario's."""
    if market is None:
        return
    for name, spec in market.bidders.items():
        at = ("market", "bidders", name)
        fault = _kind_fault(spec.kind, folder)
        if fault:
            yield Problem((*at, "kind"), fault)
        elif spec.kind in BIDDER_KINDS and spec.options:
            fault = _options_fault(spec)
            if fault:
                yield Problem((*at, "options"), fault, uses=((*at, "kind"),))
    fault = _click_model_fault(market.users, folder)
    if fault:
        key = "options" if market.users.click_model in CLICK_MODEL_KINDS else "click_model"
        yield Problem(("market", "users", key), fault)
    if market.training is not None and market.users.click_model != "position":
        yield Problem(
            ("market", "training"),
            f"models learn what slots are examined from the slot effects, which '{market.users.click_model}' "
            "users do not follow; use click_model: position, or no training",
        )
    if market.profile not in BUILT_IN_PROFILES:
        fault = _profile_fault(market.profile, folder)
        if fault:
            yield Problem(("market", "profile"), fault)


def find_profile(profile: str, folder: Path) -> Path | None:
    """The file of a profile: looked for from the working folder, then beside the scenario."""
    return next((path for path in (Path(profile), folder / profile) if path.is_file()), None)


def from_working_folder(market: Market, folder: Path) -> Market:
    """The same market with paths that hold from the working folder, where files lie beside the scenario."""
    bidders = {
        name: spec.model_copy(update={"kind": reference_from_working_folder(spec.kind, folder)})
        for name, spec in market.bidders.items()
    }
    profile, file = market.profile, find_profile(market.profile, folder)
    if profile not in BUILT_IN_PROFILES and file is not None and file != Path(profile):
        profile = path_from_working_folder(file)
    kind = reference_from_working_folder(market.users.click_model, folder)
    users = market.users.model_copy(update={"click_model": kind})
    return market.model_copy(update={"bidders": bidders, "profile": profile, "users": users})


def _kind_fault(kind: str, folder: Path) -> str:
    if kind in BIDDER_KINDS:
        return ""
    if ":" in kind:
        return check_reference(kind, folder).partition("; expected")[0]  # what follows is about models
    if kind.endswith(".py"):
        return f"'{kind}' names no class; write {kind}:ClassName"
    return unknown_name("bidder", kind, BIDDER_KINDS) + ", or path/to/file.py:Class"


def _click_model_fault(users: Users, folder: Path) -> str:
    kind = users.click_model
    if kind not in CLICK_MODEL_KINDS:
        if ":" in kind:
            return check_reference(kind, folder).partition("; expected")[0]
        return unknown_name("click model", kind, CLICK_MODEL_KINDS) + ", or path/to/file.py:Class"
    if not users.options:
        return ""
    import numpy as np

    from cascade_sim.agents.click_models import CLICK_MODELS

    cls = CLICK_MODELS[kind]
    known = [name for name in inspect.signature(cls).parameters if name != "slot_effects"]
    unknown = [name for name in users.options if name not in known]
    if unknown:
        return unknown_name(f"option of {kind}", unknown[0], known)
    try:
        cls(np.ones(1), **users.options)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _options_fault(spec: BidderSpec) -> str:
    """Tries the options of a built-in bidder on one advertiser: a study must not find out at its end."""
    import numpy as np

    from cascade_sim.agents.bidders import BIDDERS
    from cascade_sim.agents.bidding import Portfolio

    known = [name for name in inspect.signature(BIDDERS[spec.kind]).parameters if name != "portfolio"]
    unknown = [name for name in spec.options if name not in known]
    if unknown:
        return unknown_name(f"option of {spec.kind}", unknown[0], known)
    one = Portfolio(np.ones(1), np.zeros(1, np.int64), np.full(1, 0.1), np.full(1, 10**6))
    try:
        BIDDERS[spec.kind](one, **spec.options)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _profile_fault(profile: str, folder: Path) -> str:
    file = find_profile(profile, folder)
    if file is None:
        names = (*BUILT_IN_PROFILES, *(path.name for path in folder.glob("*.csv")))
        hint = did_you_mean(profile, names)
        return f"'{profile}' is no file{hint or '; use constant, daily, or a CSV file of 24 or 168 hours'}"
    from cascade_sim.agents.traffic_profiles import hourly

    try:
        hourly(file, 1.0)
    except (ValueError, OSError) as error:
        return str(error)
    return ""
