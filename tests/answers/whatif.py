"""Answers to what-ifs with invented numbers, for tests of tables, figures and pages."""

from __future__ import annotations

import math
from typing import Any

REVENUE = "expected_revenue_per_request"


def entry(value: float, current: float | None = None, half: float = 0.01) -> dict[str, Any]:
    found = {"value": value, "low": value - half, "high": value + half}
    if current is not None:
        gap = value - current
        found["difference"] = {"value": gap, "low": gap - half / 10, "high": gap + half / 10}
        lift = value / current - 1
        found["lift"] = {"value": lift, "low": lift - half, "high": lift + half}
    return found


def answer(
    *values: tuple[Any, float],
    parameter: str = "auction.reserve_cpc",
    current: Any = 0.4,
    worths: tuple[float | None, float | None] = (310.0, 62.0),
) -> dict[str, Any]:
    """Revenue 1.0 at the current value; each value is (setting, revenue)."""
    names = (
        REVENUE,
        "revenue_per_request",
        "fill_rate",
        "expected_ctr",
        "cpc",
        "rcs",
        "welfare_vs_oracle",
        "cpc_error",
    )
    logs = [
        {key: w and math.log(w + off) for key, off in (("value", 0), ("low", -5), ("high", 5))}
        for w in worths
    ]
    realised, expected = ({"log_times": one} for one in logs)
    return {
        "arm": "plain",
        "parameter": parameter if len(values) > 1 else None,
        "requests": 500,
        "current": {"settings": {parameter: current}, "metrics": {name: entry(1.0) for name in names}},
        "points": [
            {
                "settings": {parameter: setting},
                "metrics": {name: entry(revenue, 1.0) for name in names},
                "variance_reduction": {"realised": realised, "expected": expected},
            }
            for setting, revenue in values
        ],
        "held_fixed": ["all"],
        "notes": [],
    }


def make_what_ifs() -> dict[str, Any]:
    """The section of a study: a curve and a single change."""
    return {"reserve": answer((0.3, 0.9), (0.5, 1.05), (0.6, 1.0)), "dearer": answer((0.5, 1.05))}
