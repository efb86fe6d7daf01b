"""A believable `market.designs` of metrics.json. The numbers are invented: truth +4 %."""

from __future__ import annotations

from typing import Any

LIFTS = {"budget": (0.05, 0.02), "request": (0.30, 0.05), "switchback": (0.20, None), "user": (0.17, 0.15)}
MEASURES = ("clicks_per_request", "cpc", "ctr", "revenue_per_request")


def around(value: float, half: float | None) -> dict[str, Any]:
    ends = (None, None) if half is None else (value - half, value + half)
    return {"value": value, "low": ends[0], "high": ends[1]}


def effect(lift: float, half: float | None) -> dict[str, Any]:
    """A control that earns 0.1 per request."""
    return {
        "treatment": {"value": 0.1 * (1 + lift)},
        "control": {"value": 0.1},
        "difference": around(0.1 * lift, half and 0.1 * half),
        "lift": around(lift, half),
        "units": 100,
    }


def make_designs() -> dict[str, Any]:
    kinds = {}
    for kind, (lift, half) in LIFTS.items():
        bias = {
            "bias": around(0.1 * (lift - 0.04), half and 0.1 * half),
            "lift_bias": around(lift - 0.04, half),
        }
        kinds[kind] = {
            "requests": {"treatment": 500.0, "control": 500.0},
            "request_share": {"value": 0.5},
            "spend_share": {"value": 0.55},
            "overspend": 0.0,
            "measures": {name: {**effect(lift, half), **bias} for name in MEASURES},
        }
    return {
        "treatment": "new",
        "control": "old",
        "share": 0.5,
        "pre_days": 1,
        "days": 5.0,
        "switchback": 7200.0,
        "truth": {name: effect(0.04, 0.01) for name in MEASURES},
        "kinds": kinds,
        "cuped": {
            name: {
                "theta": 2.0, "plain": around(1.0, 0.5), "adjusted": around(0.9, 0.3),
                "variance_ratio": {"value": ratio}, "users": 200,
            }
            for name, ratio in (("revenue_per_user", 0.4), ("revenue_per_request", 0.9))
        },
        "sequence": {
            "time": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            "estimate": [None, 0.03, 0.03, 0.03, 0.03, 0.03],
            "low": [None, -0.05, -0.01, 0.01, 0.01, 0.02],
            "high": [None, 0.11, 0.07, 0.05, 0.05, 0.04],
            "fixed_low": [None, -0.01, 0.01, 0.02, 0.02, 0.025],
            "fixed_high": [None, 0.07, 0.05, 0.04, 0.04, 0.035],
        },
    }  # fmt: skip
