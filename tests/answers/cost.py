"""Costs of the invented study's arms: towers of three sizes, reference arms, and a search kept per user."""

from __future__ import annotations

from typing import Any

# arm: (model, FLOPs of pre-ranking, its bytes)
PRE_RANKING: dict[str, tuple[str, float, float]] = {
    "logloss-small": ("logloss-small", 12_000.0, 16_000.0),
    "logloss-med": ("logloss-med", 20_000.0, 24_000.0),
    "logloss": ("logloss", 28_000.0, 32_000.0),
    "ltr": ("ltr", 28_000.0, 32_000.0),
    "distill-pre": ("distill-pre", 28_000.0, 32_000.0),
    "random": ("random", 0.0, 0.0),
    "bid_only": ("constant", 0.0, 0.0),
    "pctr_only": ("logloss", 28_000.0, 32_000.0),
    "ranker": ("rank", 470_000.0, 360_000.0),
}
SEARCH, RANKING = (660_000.0, 1_320_000.0), (94_000.0, 72_000.0)


def stage(name: str, model: str, candidates: float, flops: float, read: float) -> dict[str, Any]:
    return {
        **{"stage": name, "model": model, "candidates": candidates, "flops": flops, "bytes": read},
        **{"ads_flops": 0.0, "is_kept": name == "retrieval"},
    }


def make_costs() -> dict[str, Any]:
    """The node of metrics.json."""
    found = {}
    for arm, (model, flops, read) in PRE_RANKING.items():
        stages = [
            stage("retrieval", "similarity", 20000, *SEARCH),
            stage("pre_ranking", model, 500.0, flops, read),
            stage("ranking", "rank", 100.0, *RANKING),
        ]
        scoring = flops + RANKING[0]
        whole = {"flops": SEARCH[0] + scoring, "scoring_flops": scoring}
        found[arm] = {"stages": stages, "bytes": sum(one["bytes"] for one in stages), **whole}
    return found


def make_micros() -> dict[str, dict[str, float]]:
    """What a manifest has: 1 µs for 10,000 FLOPs, and a look-up."""
    return {
        arm: {"retrieval": 0.4, "pre_ranking": flops / 1e4, "ranking": RANKING[0] / 1e4}
        for arm, (_, flops, _) in PRE_RANKING.items()
    }
