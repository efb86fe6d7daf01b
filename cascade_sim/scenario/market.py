"""The `market` section of a scenario: simulated days with budgets and bidders that adapt."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from cascade_sim.scenario.compute import Compute
from cascade_sim.scenario.designs import Designs
from cascade_sim.scenario.plugins import check_reference, path_from_working_folder
from cascade_sim.scenario.plugins import from_working_folder as reference_from_working_folder
from cascade_sim.scenario.sections import Section
from cascade_sim.scenario.training import Training
from cascade_sim.scenario.yaml import Problem
from cascade_sim.suggest import did_you_mean, unknown_name

# Kept here as names: the classes, in agents.bidders, need numpy, which a scenario's check does without.
BIDDER_KINDS = ("fixed", "shading", "target_cpa", "multiplier", "adaptive", "pid", "throttling")
CLICK_MODEL_KINDS = ("position", "cascade")
BUILT_IN_PROFILES = ("constant", "daily")
Share = Annotated[float, Field(ge=0, le=1)]
DAY = 86_400.0


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
