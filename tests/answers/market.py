"""A believable market section of metrics.json. The numbers are invented.

Traffic is even over the day. Three kinds of bidders: `paced` spends with traffic, lowers its bids and sits
half of the requests out, `greedy` has spent all by six in the morning, `open` has no budgets. A click costs
1.25 and is worth 2 to the advertiser.
"""

from __future__ import annotations

from typing import Any

PER_DAY = 48  # updates


def make_market(arms: list[str], days: int = 1) -> dict[str, Any]:
    """Every arm over the same days; each arm earns 1 % more than the one before."""
    return {
        "days": float(days),
        "window": 60.0,
        "update": 86_400.0 / PER_DAY,
        "arms": {arm: market_arm(days, 1.0 + 0.01 * i) for i, arm in enumerate(arms)},
    }


def market_arm(days: int, scale: float) -> dict[str, Any]:
    hours = 24 * days
    return {
        "requests": 2400 * days,
        "impressions": 9600 * days,
        "clicks": round(480 * days * scale),
        "conversions": 48 * days,
        "revenue": 600.0 * days * scale,
        "click_value": 960.0 * days * scale,
        "surplus": 360.0 * days * scale,
        "ctr": 0.05 * scale,
        "rpm": 62.5 * scale,
        "cpc": 1.25,
        "revenue_per_request": 0.25 * scale,
        "click_delay": 0.0,
        "unbilled_clicks": 0,
        "unbilled_revenue": 0.0,
        "pending_clicks": 0,
        "overspend_limit": 0.0,
        "overspend": 0.0,
        "overspend_share": 0.0,
        "beyond_limit": 0.0,
        "hours": {
            "time": [float(h) for h in range(hours)],
            "requests": [100] * hours,
            "impressions": [400] * hours,
            "clicks": [20] * hours,
            "conversions": [2] * hours,
            "charged_clicks": [20] * hours,
            "revenue": [scale * (50.0 if h % 24 < 6 else 50 / 3) for h in range(hours)],
            "click_value": [40.0 * scale] * hours,
        },
        "bidders": {
            "greedy": bidder(days, 40, 1.0, 6.0, 0.75, [min(1.0, 4 * x) for x in traffic()], 1.0),
            "open": {**bidder(days, 0, None, None, 1.0, [0.0] * PER_DAY, 1.2), "spend": 30.0 * days},
            "paced": bidder(days, 60, 0.25, 23.5, 0.04, [max(0.0, x - 0.04) for x in traffic()], 0.4),
        },
    }


def traffic() -> list[float]:
    return [(i + 1) / PER_DAY for i in range(PER_DAY)]


def bidder(
    days: int, n: int, dry: float | None, hour: float | None, gap: float, spent: list[float], bid: float
) -> dict[str, Any]:
    """`n` of 60 advertisers have a budget of 5 a day."""
    return {
        "advertisers": 60,
        "with_budget": n,
        "budget": 5.0 * n * days,
        "spend": 5.0 * n * days * spent[-1],
        "budget_utilisation": spent[-1] if n else None,
        "median_utilisation": spent[-1] if n else None,
        "budget_exhausted": dry,
        "exhaustion_hour": hour,
        "max_pacing_error": gap,
        "click_value": 400.0 * days,
        "surplus": 100.0 * days,
        "impressions": 2400 * days,
        "clicks": 200 * days,
        "win_rate": 0.25,
        "last_multiplier": bid,
        "hours": {"requests": [400] * 24 * days, "impressions": [100] * 24 * days},
        "curve": {
            "hour": [24 * (i + 1) / PER_DAY for i in range(PER_DAY * days)],
            "traffic_share": traffic() * days,
            "spend_share": spent * days,
            "multiplier": [1 + (bid - 1) * x for x in traffic()] * days,
            "participation": [0.5 if bid < 1 else 1.0] * PER_DAY * days,
            "advertisers": spread(days, spent) if n else None,
        },
    }


def spread(days: int, spent: list[float]) -> dict[str, Any]:
    """Some advertisers spend at half the pace of their kind, some are a tenth of the budget ahead."""
    return {
        "hour": [24 * (i + 1) / PER_DAY for i in range(PER_DAY * days)],
        "low": [0.5 * x for x in spent] * days,
        "median": spent * days,
        "high": [min(1.0, x + 0.1) for x in spent] * days,
        "single": [{"budget": 5.0, "share": spent * days}, {"budget": 5.5, "share": [0.25] * PER_DAY * days}],
    }
