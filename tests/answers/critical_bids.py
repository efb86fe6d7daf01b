"""A believable section of critical bids for metrics.json. The numbers are invented."""

from __future__ import annotations

from typing import Any

BINS = 50


def make_critical_bids(arms: list[str], requests: int = 200) -> dict[str, Any]:
    """Every arm needs more through the cascade than in the auction, each a little less than the one before.

    The last arm has no gap: there both critical bids are the same.
    """
    steps = len(arms) - 1
    return {
        "requests": requests,
        "arms": {arm: critical_arm(0.08 * (1 - i / steps) if steps else 0.08) for i, arm in enumerate(arms)},
    }


def critical_arm(gap: float) -> dict[str, Any]:
    """Spread evenly from 60 % of the bid on in the auction, and from 60 % + 2 gaps on in the cascade."""

    def made(value: float, width: float) -> dict[str, float]:
        return {"value": value, "low": value - width, "high": value + width}

    def evenly_from(start: float) -> list[float]:
        return [min(1.0, max(0.0, (i / BINS - start) / (1 - start))) for i in range(BINS + 1)]

    local, cascade = 0.8, 0.8 + gap
    return {
        "pricing": "gsp",
        "impressions": 1000,
        "with_gap": made(4 * gap, 0.01 if gap else 0.0),
        "local_mean": made(local, 0.01),
        "local_median": made(local, 0.012),
        "local_p90": made(0.96, 0.005),
        "cascade_mean": made(cascade, 0.01),
        "cascade_median": made(cascade, 0.012),
        "cascade_p90": made(0.96 + gap / 5, 0.005),
        "gap_share": made(gap, 0.004 if gap else 0.0),
        "gap": made(0.65 * gap, 0.003 if gap else 0.0),
        "cpc_of_local": made(1.0, 0.0),
        "cpc_of_cascade": made(local / cascade, 0.01 if gap else 0.0),
        "distribution": {
            "share_of_bid": [i / BINS for i in range(BINS + 1)],
            "local": evenly_from(0.6),
            "cascade": evenly_from(0.6 + 2 * gap),
        },
    }
