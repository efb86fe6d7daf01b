"""A believable sweep over alpha in a metrics.json. The numbers are invented."""

from __future__ import annotations

from typing import Any

# arm: (family, option, setting, GAUC, LogLoss, ECE)
RANKERS: dict[str, tuple[str, str | None, float | None, float, float, float]] = {
    "point": ("pointwise", None, None, 0.60, 0.40, 0.02),
    "soft": ("softmax", None, None, 0.66, 2.00, 0.60),
    "rcr-b": ("rcr", "alpha", 0.9, 0.65, 0.42, 0.03),
    "rcr-a": ("rcr", "alpha", 0.1, 0.62, 0.39, 0.01),
    "mo-a": ("multi_objective", "alpha", 0.1, 0.61, 0.41, 0.02),
    "mo-b": ("multi_objective", "alpha", 0.9, 0.64, 0.50, 0.09),
}
NOISE = {"gauc": 0.015, "logloss": 0.015, "ece": 0.005}  # half the width of a paired interval


def entry(value: float, half: float) -> dict[str, float]:
    return {"value": value, "low": value - half, "high": value + half}


def with_sweep(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics with the rankers above, each serving an arm of its own name."""
    values = {arm: dict(zip(NOISE, row[3:], strict=True)) for arm, row in RANKERS.items()}
    points, gaps = {}, {}
    copied = next(arm for arm in metrics["arms"] if arm != metrics["baseline"])
    arms = list(RANKERS)
    for i, (arm, row) in enumerate(RANKERS.items()):
        metrics["arms"][arm] = metrics["arms"][copied]
        quality = {name: entry(value, 0.02) for name, value in values[arm].items()}
        metrics["models"][arm] = {"win_set": quality, "pre_ranking_set": quality}
        points[arm] = {
            "model": arm, "objective": row[0], "family": row[0], "option": row[1], "setting": row[2],
        }  # fmt: skip
        gaps[arm] = {
            other: {name: entry(values[arm][name] - values[other][name], NOISE[name]) for name in NOISE}
            for other in arms[i + 1 :]
        }
    wins = {
        "pointwise": {"softmax": (1, 0, 0), "rcr": (2, 0, 1), "multi_objective": (2, 0, 0)},
        "softmax": {"pointwise": (1, 0, 0), "rcr": (2, 0, 0), "multi_objective": (2, 0, 0)},
        "rcr": {"pointwise": (2, 1, 0), "softmax": (2, 0, 0), "multi_objective": (4, 2, 0)},
        "multi_objective": {"pointwise": (2, 0, 0), "softmax": (2, 0, 0), "rcr": (4, 0, 2)},
    }
    metrics["objectives"] = {
        "arms": {
            arm: {"model": arm, "objective": row[0], "calibrator": None} for arm, row in RANKERS.items()
        },
        "reliability": {},
        "sweep": {
            "points": points,
            "gaps": gaps,
            "wins": {
                family: {
                    rival: dict(zip(("games", "won", "lost"), counts, strict=True))
                    for rival, counts in rivals.items()
                }
                for family, rivals in wins.items()
            },
        },
    }
    return metrics


def without_sweep(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a study whose objectives have one setting each."""
    del metrics["objectives"]["sweep"]
    return metrics
