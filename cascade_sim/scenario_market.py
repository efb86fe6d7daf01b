"""The `market` section of a scenario: simulated days with budgets and bidders that adapt."""

from typing import Annotated, Any

from pydantic import Field

from cascade_sim.scenario_sections import Section

# Kept here as names: the classes, in agents.bidders, need numpy, which a scenario's check does without.
BIDDER_KINDS = ("fixed", "shading", "target_cpa", "multiplier", "adaptive", "pid", "throttling")
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


class Market(Section):
    """Simulated time: traffic, budgets and bidders."""

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
    depth: int = Field(
        default=16, ge=2, le=1000, description="Ads of a request kept in rank order for settlement."
    )
    budgets: Budgets = Field(default=Budgets(), description="Daily budgets.")
    bidders: dict[str, BidderSpec] = Field(
        default={"fixed": BidderSpec()}, min_length=1, description="Who bids how, by name."
    )
