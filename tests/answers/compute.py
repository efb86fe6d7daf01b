"""A believable `compute` section for every arm of a market. The numbers are invented.

The more ads an arm ranks the more its servers do; from the third arm on, pages miss the deadline at noon.
"""

from __future__ import annotations

from typing import Any

STAGES = ("retrieval", "pre_ranking", "ranking")


def with_compute(metrics: dict[str, Any]) -> dict[str, Any]:
    """The same metrics; arm number i of the market ranks 50 * (i + 1) ads."""
    for i, arm in enumerate(metrics["market"]["arms"].values()):
        arm["compute"] = compute(50 * (i + 1), 0.1 * max(0, i - 1), len(arm["hours"]["requests"]))
    return metrics


def without_compute(metrics: dict[str, Any]) -> dict[str, Any]:
    """The same metrics of a study whose stages take no time."""
    for arm in metrics["market"]["arms"].values():
        arm.pop("compute", None)
    return metrics


def compute(size: int, late: float, n_hours: int, deadline: float = 100.0) -> dict[str, Any]:
    """Half of those in time take 20 ms, half 40; twice as many are late at noon."""
    edges = [float(10 * (i + 1)) for i in range(20)]
    counts = [0] * (len(edges) + 1)
    counts[1] = counts[3] = round(1200 * (1 - late))  # (10, 20] and (30, 40]
    counts[edges.index(deadline)] = round(2400 * late)
    return {
        "deadline": deadline,
        "latency": {"mean": 30.0, "p50": 20.0, "p90": 40.0, "p99": 99.0, "edges": edges, "counts": counts},
        "answered": {"ranking": 1 - late, "pre_ranking": late, "retrieval": 0.0, "none": 0.0},
        "late": late,
        "mean_size": float(size),
        "server_ms_per_request": 10.0 + 0.2 * size,
        "revenue_per_server_second": 20.0,
        "stages": {
            name: {"servers": 2, "utilisation": load, "wait": 1.5, "server_ms_per_request": ms}
            for name, load, ms in zip(STAGES, (0.1, 0.2, 0.004 * size), (4.0, 6.0, 0.2 * size), strict=True)
        },
        "hours": {
            "time": [float(h) for h in range(n_hours)],
            "requests": [100] * n_hours,
            "late": [2 * late if h % 24 == 12 else late for h in range(n_hours)],
            "utilisation": {name: [0.1 * (i + 1)] * n_hours for i, name in enumerate(STAGES)},
        },
    }
