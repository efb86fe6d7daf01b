"""A believable study of rankers that learn on and on. The numbers are invented."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from answers.learning import around, learning_metrics, make_learning
from cascade_sim.analysis.metrics.stability import drift_section

DAYS = 60
# arm: (objective, batching, calibrator, refit, has a scale, first mean score, its change each time, PCOC)
RANKERS: dict[str, tuple[Any, ...]] = {
    "logloss": ("pointwise", None, None, False, True, -4.0, 0.0, 1.1),
    "ltr": ("softmax", None, None, False, False, -0.5, -0.02, 12.0),
    "distill-pre": ("softmax", None, "platt", True, False, -0.5, -0.02, 1.2),
}


def make_drift(arm: str) -> dict[str, Any]:
    """Two deployments a day; the score zigzags by 0.1 around a line."""
    objective, batching, calibrator, refit, has_scale, start, step, pcoc = RANKERS[arm]
    version = list(range(2 * DAYS + 1))
    score = [start + step * i + (0.1 if i % 2 else -0.1) for i in version]
    off = {"scale_off": [pcoc] * len(version), "shown_scale_off": [pcoc / 2 + 0.5] * len(version)}
    return {
        "requests": 256,
        "interval": 43_200.0,
        "exploration": 0.0,
        "ranker": {
            "model": arm, "objective": objective, "batching": batching, "calibrator": calibrator,
            "refit": refit, "has_scale": has_scale,
        },
        "time": [43_200.0 * i for i in version],
        "version": version,
        "recall": [around(0.5)] * len(version),
        "mean_score": [around(x) for x in score],
        "pcoc": [around(pcoc)] * len(version),
        "gauc": [around(0.7)] * len(version),
        "logloss": [around(0.1)] * len(version),
        "page_gauc": [around(0.6)] * len(version),
        "auc": [{"value": 0.8 - 0.01 * len(arm), "low": None, "high": None}] * len(version),
        "ece": [{"value": 0.02, "low": None, "high": None}] * len(version),
        "drift": drift_of(tuple(version), tuple(score), off),
        "settled": make_settled(arm),
        "revenue_per_request": around(2.0, **({} if arm == "logloss" else {"lift": around(-0.05, 0.01)})),
    }  # fmt: skip


def drift_of(version: tuple[int, ...], score: tuple[float, ...], off: dict[str, list[float]]) -> Any:
    """drift_section, computed once: its tests draw many series, and every report of these asks the same."""
    return deepcopy(_drift_once(version, score, tuple((name, tuple(x)) for name, x in off.items())))


@cache
def _drift_once(version: tuple[int, ...], score: tuple[float, ...], off: tuple[Any, ...]) -> Any:
    return drift_section(list(version), list(score), {name: list(x) for name, x in off})


def make_settled(arm: str) -> dict[str, Any]:
    """Means past the transient; the longer an arm's name, the worse it orders."""
    auc, base = ({"page": 0.7 - 0.01 * len(name), "all": 0.8 - 0.01 * len(name)} for name in (arm, "logloss"))
    return {
        "page_gauc": around(auc["page"]),
        "gauc": around(auc["all"]),
        "page_auc": {"value": auc["page"] + 0.1, "low": None, "high": None},
        "auc": {"value": auc["all"] + 0.1, "low": None, "high": None},
        "logloss": around(0.1),
        "ece": {"value": 0.02, "low": None, "high": None},
        "difference": {"page_gauc": around(auc["page"] - base["page"], 0.002)},
    }


def with_drift(metrics: dict[str, Any]) -> None:
    """Give the arms that learn the curves of a ranker, as many points as they have deployments."""
    arms = metrics["market"]["arms"]
    arms["distill-pre"]["learning"] = make_learning("ltr")
    for arm, section in arms.items():
        if arm in RANKERS:
            n, made = len(section["learning"]["time"]), make_drift(arm)
            curves = {key: made[key][:n] for key in ("mean_score", "logloss", "auc", "ece")}
            score = tuple(one["value"] for one in curves["mean_score"])
            off = {"scale_off": [1.2] * n, "shown_scale_off": [1.1] * n}
            drift = drift_of(tuple(made["version"][:n]), score, off)
            section["learning"] |= {**curves, "ranker": made["ranker"], "drift": drift}


def drift_metrics() -> dict[str, Any]:
    """The study of report_fixture with three rankers that learn for two months."""
    metrics = learning_metrics()
    for arm in RANKERS:
        metrics["market"]["arms"][arm]["learning"] = make_drift(arm)
    return metrics
