"""The auction: rules, compiled kernels, and a plain-Python reference.

What needs numpy is imported when it is asked for: a scenario looks at the pricing rules alone.
"""

from typing import TYPE_CHECKING, Any

from cascade_sim.auction.pricing import PRICINGS, WAYS

if TYPE_CHECKING:
    from cascade_sim.auction.rules import (
        EXACT,
        MICROS,
        AuctionResult,
        RankedAuction,
        Rounding,
        auction,
        dot_auction,
        floor_micros,
        reprice,
        round_prices,
        run_auction,
        to_micros,
    )

__all__ = [
    "EXACT",
    "MICROS",
    "PRICINGS",
    "WAYS",
    "AuctionResult",
    "RankedAuction",
    "Rounding",
    "auction",
    "dot_auction",
    "floor_micros",
    "reprice",
    "round_prices",
    "run_auction",
    "to_micros",
]


if not TYPE_CHECKING:  # a type checker should refuse a name that is none

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from cascade_sim.auction import rules

        return getattr(rules, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
