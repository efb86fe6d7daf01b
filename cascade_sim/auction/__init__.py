"""The auction: rules, compiled kernels, and a plain-Python reference."""

from cascade_sim.auction.pricing import PRICINGS
from cascade_sim.auction.rules import (
    MICROS,
    AuctionResult,
    RankedAuction,
    auction,
    floor_micros,
    reprice,
    run_auction,
    to_micros,
)

__all__ = [
    "MICROS",
    "PRICINGS",
    "AuctionResult",
    "RankedAuction",
    "auction",
    "floor_micros",
    "reprice",
    "run_auction",
    "to_micros",
]
