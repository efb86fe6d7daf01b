"""A believable learning section of metrics.json. The numbers are invented."""

from __future__ import annotations

from typing import Any

from answers.market import make_market

# arm: (exploration, recall at the start, at the middle and at the end, lift of revenue per request)
LEARNERS = {"logloss": (0.0, 0.2, 0.6, 0.5, 0.0), "ltr": (0.1, 0.2, 0.65, 0.6, -0.04)}


def around(value: float, half: float = 0.02, **more: Any) -> dict[str, Any]:
    return {"value": value, "low": value - half, "high": value + half, **more}


def make_learning(arm: str) -> dict[str, Any]:
    """Two deployments in two days; the ltr arm explores, finds more at the end and earns less."""
    exploration, *recall, lift = LEARNERS[arm]
    is_base = arm == "logloss"
    more = {} if is_base else {"lift": around(lift, 0.01)}
    section = {
        "requests": 512,
        "interval": 86_400.0,
        "exploration": exploration,
        "time": [0.0, 86_400.0, 172_800.0],
        "version": [0, 1, 2],
        "recall": [around(x) for x in recall],
        "win_recall": [around(x / 2) for x in recall],
        "gauc": [around(0.8)] * 3,
        "pcoc": [around(1.2)] * 3,
        "shown_pcoc": [around(1.0)] * 3,
        "revenue_per_request": around(2.0 * (1 + lift), **more),
        "revenue_by_day": [around(x * (1 + lift), **more) for x in (1.5, 2.5)],
    }
    if not is_base:
        section["difference"] = {"recall": around(0.1), "win_recall": around(0.05, 0.06)}
        section["recall_difference"] = [around(0.0), around(0.05), around(0.1)]
    return section


def learning_market(arms: list[str], days: int = 1) -> dict[str, Any]:
    """The market of market_fixture with two arms that learn, over two days whatever its own."""
    market = make_market(arms, days)
    for arm in LEARNERS:
        market["arms"][arm]["learning"] = make_learning(arm)
    return market


def learning_metrics() -> dict[str, Any]:
    """The study of report_fixture with a market of two days."""
    return {**fixed_metrics(), "market": learning_market(["logloss", "ltr", "distill-pre"], 2)}


def fixed_metrics() -> dict[str, Any]:
    """The study of report_fixture with models that stay as they are."""
    from answers.report import make_metrics

    metrics = make_metrics()
    for section in metrics["market"]["arms"].values():
        section.pop("learning", None)
    return metrics
