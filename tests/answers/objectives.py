"""The section on objectives of a believable metrics.json. The numbers are invented."""

from __future__ import annotations

from typing import Any

OBJECTIVES = {"logloss": ("pointwise", None), "ltr": ("softmax", None), "distill-pre": ("softmax", "platt")}


def make_objectives(bins: int = 10) -> dict[str, Any]:
    """Three rankers, named like the arms they serve; predictions run to twice the truth."""
    arms = {
        arm: {"model": arm, "objective": objective, "calibrator": calibrator}
        for arm, (objective, calibrator) in OBJECTIVES.items()
    }
    middle = [(i + 0.5) / bins for i in range(bins)]
    curve = {
        "count": [100.0 - 9 * i for i in range(bins)],
        "predicted": [(100.0 - 9 * i) * p for i, p in enumerate(middle)],
        "truth": [(100.0 - 9 * i) * p / 2 for i, p in enumerate(middle)],
    }
    return {"arms": arms, "reliability": {arm: dict(curve) for arm in arms}, "sweep": make_sweep()}


def make_sweep() -> dict[str, Any]:
    """Two settings of one objective beside another; a fuller one is in sweep_fixture."""
    settings = {"logloss-small": ("rcr", "alpha", 0.1), "logloss-med": ("rcr", "alpha", 0.9)}
    settings["distill-pre"] = ("softmax", None, None)
    points = {
        arm: {"model": arm, "objective": name, "family": name, "option": option, "setting": value}
        for arm, (name, option, value) in settings.items()
    }
    games = {"games": 2, "won": 1, "lost": 0}
    turned = {"games": 2, "won": 0, "lost": 1}
    return {"points": points, "wins": {"rcr": {"softmax": games}, "softmax": {"rcr": turned}}, "gaps": {}}
