"""A believable metrics.json, manifest and scenario for tests of the report. The numbers are invented."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from answers.compute import with_compute
from answers.cost import make_costs, make_micros
from answers.critical_bids import make_critical_bids
from answers.designs import make_designs
from answers.drift import with_drift
from answers.learning import learning_market
from answers.objectives import make_objectives
from answers.off_policy import make_off_policy
from answers.whatif import make_what_ifs

# arm: (rcs, single-objective rcs, expected CTR lift, expected RPM lift, proxy-ECE, proxy-PCOC)
ARMS: dict[str, tuple[float, float, float, float, float | None, float | None]] = {
    "logloss-small": (0.589, 0.915, -0.030, -0.029, 0.0093, 1.84),
    "logloss-med": (0.625, 0.921, -0.014, -0.015, 0.0089, 1.71),
    "logloss": (0.657, 0.925, 0.0, 0.0, 0.0085, 1.62),
    "ltr": (0.789, 0.957, 0.107, 0.033, None, None),
    "distill-pre": (0.798, 0.956, 0.103, 0.037, 0.0011, 1.02),
    "random": (0.201, 0.201, -0.412, -0.466, None, None),
    "bid_only": (0.312, 0.118, -0.551, -0.383, None, None),
    "pctr_only": (0.548, 0.925, 0.281, -0.094, 0.0085, 1.62),
    "ranker": (1.0, 1.0, 0.112, 0.058, 0.0, 1.0),
}
BASE = {
    "retrieval_rcs": 0.42,
    "true_value_recall": 0.61,
    "ctr": 0.0512,
    "expected_ctr": 0.0509,
    "rpm": 41.7,
    "expected_rpm": 41.55,
    "revenue_per_request": 0.2085,
    "expected_revenue_per_request": 0.2078,
    "cpc": 0.815,
    "cpc_error": 0.161,
    "cpc_bias": 0.038,
    "revenue_pcoc": 1.11,
    "payment_error_vs_oracle": 0.44,
    "welfare_vs_oracle": 0.71,
    "revenue_vs_oracle": 0.83,
}
LIFTED_BY_RPM = {
    "rpm",
    "expected_rpm",
    "revenue_per_request",
    "expected_revenue_per_request",
    "welfare_vs_oracle",
}
SEES_CLICKS = {"ctr", "rpm", "revenue_per_request"}
SCENARIO_TEXT = """\
name: ads
seed: 1
world: {users: 4000, ads: 20000, advertisers: 2000}
arms:
  logloss: {pre_ranking: {model: logloss}}
  distill-pre: {pre_ranking: {model: distill-pre}}
"""


def entry(
    value: float | None, width: float, lift: tuple[float, float] | None = None, sd: float | None = None
) -> Any:
    """A metric with a symmetric interval; `lift` is (value, half width)."""
    if value is None:
        return {"value": None, "low": None, "high": None, "lift": None}
    made: dict[str, Any] = {"value": value, "low": value - width, "high": value + width}
    if lift is not None:
        made["lift"] = {"value": lift[0], "low": lift[0] - lift[1], "high": lift[0] + lift[1]}
    if sd is not None:
        made["sd"] = sd * width
        if lift is not None:
            made["lift"]["sd"] = sd * lift[1]
    return made


def arm_entries(arm: str, rng: random.Random, sd: float | None) -> dict[str, Any]:
    rcs, single, ctr_lift, rpm_lift, ece, pcoc = ARMS[arm]
    compared = arm != "logloss"
    wide = 1.0 if sd is None else 2.5  # worlds differ more than evaluations of one world

    def made(value: float | None, width: float, lift: float, lift_width: float) -> Any:
        return entry(value, width * wide, (lift, lift_width * wide) if compared else None, sd)

    values = {}
    for name, level in (("rcs", rcs), ("single_objective_rcs", single)):
        for part, shift in (("", 0.0), ("_exposed", 0.04), ("_unexposed", -0.06)):
            width = 0.0 if level == 1 else 0.006
            share = 1.0 if level == 1 else level + shift
            values[name + part] = made(share, width, share / 0.657 - 1, 1.4 * width)
    for part, shift in (("_exposed", 0.03), ("_unexposed", -0.05)):
        values["true_value_recall" + part] = made(0.6 + shift + rpm_lift, 0.006, rpm_lift, 0.008)
    values["proxy_ece"] = made(ece, 0.0002, (ece or 0) / 0.0085 - 1, 0.02)
    values["proxy_ece_relative"] = made(ece and ece / 0.011, 0.01, (ece or 0) / 0.0085 - 1, 0.02)
    values["proxy_pcoc"] = made(pcoc, 0.01, (pcoc or 0) / 1.62 - 1, 0.01)
    for name, level in BASE.items():
        lift = rng.uniform(-0.05, 0.05)
        lift = rpm_lift if name in LIFTED_BY_RPM else ctr_lift if name.endswith("ctr") else lift
        noise = 0.013 if name in SEES_CLICKS else 0.004
        if name in SEES_CLICKS and compared:
            lift += rng.gauss(0, 0.006)
        values[name] = made(level * (1 + lift), level * noise, lift, noise * (1 + abs(lift)))
    return values


def stage(name: str, dropped: float, lost: float, total: float) -> dict[str, Any]:
    return {
        "stage": name,
        "dropped": entry(dropped, 0.01),
        "ecpm_lost": entry(lost, 0.03 * lost),
        "share": lost / total,
    }


def attribution(arm: str) -> dict[str, Any]:
    best, retrieval, ranking = 612.0, 171.0, 38.0
    pre_ranking = 160.0 * (1.06 - ARMS[arm][0])
    total = retrieval + pre_ranking + ranking
    return {
        "requests": 1024,
        "stages": [
            stage("retrieval", 0.41, retrieval, total),
            stage("pre_ranking", 0.6 * (1 - ARMS[arm][0]), pre_ranking, total),
            stage("ranking", 0.09, ranking, total),
        ],
        "ecpm_best": best,
        "ecpm_shown": best - total,
    }


def histogram(mean: float, sd: float, edges: list[float]) -> list[float]:
    middles = [(a + b) / 2 for a, b in zip(edges, edges[1:], strict=False)]
    return [math.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * math.sqrt(2 * math.pi)) for x in middles]


def curves() -> dict[str, Any]:
    won = [-4 + 0.1 * i for i in range(41)]
    seen = [-6 + 0.12 * i for i in range(51)]
    means = {"logloss-small": (-1.42, -2.1), "logloss-med": (-1.4, -2.2), "logloss": (-1.38, -2.3)}
    means |= {"distill-pre": (-1.34, -2.75), "rank": (-1.35, -2.8)}
    ranker = [10 ** (-5 + 0.2 * i) for i in range(20)]
    squeeze = {"logloss-small": 0.62, "logloss-med": 0.68, "logloss": 0.74, "distill-pre": 0.985}
    return {
        "score_distribution": {
            "win_set": {"edges": won, "density": {m: histogram(v[0], 0.36, won) for m, v in means.items()}},
            "pre_ranking_set": {
                "edges": seen,
                "density": {m: histogram(v[1], 0.62, seen) for m, v in means.items()},
            },
        },
        "proxy_reliability": {
            m: {
                "predicted": [0.1 * (p / 0.1) ** k for p in ranker],
                "ranker": ranker,
                "count": [500] * len(ranker),
            }
            for m, k in squeeze.items()
        },
    }


def models() -> dict[str, Any]:
    gauc = {"logloss-small": 0.702, "logloss-med": 0.711, "logloss": 0.724}
    gauc |= {"ltr": 0.745, "distill-pre": 0.752, "rank": 0.806}
    made = {}
    for name, level in gauc.items():
        made[name] = {
            part: {
                "auc": entry(level + up, 0.003),
                "gauc": entry(level, 0.002),
                "ndcg": entry(level + 0.1, 0.002),
                "logloss": None if name == "ltr" else entry(0.171 * scale - 0.02 * level, 0.001),
                "ece": None if name == "ltr" else entry(0.004 * scale, 0.0003),
                "pcoc": None if name == "ltr" else entry(1 + 0.9 * (0.806 - level) * 8 * scale, 0.02),
                "mean_prediction": None if name == "ltr" else entry(0.052 * scale, 0.0004),
            }
            for part, up, scale in (("win_set", 0.01, 1.0), ("pre_ranking_set", 0.05, 0.21))
        }
    return made


def contrasts() -> dict[str, Any]:
    """Every arm of the scenario against every other arm, in revenue per request and RPM, here the same."""
    revenue = {arm: 1 + row[3] for arm, row in ARMS.items()}
    return {
        arm: {
            rival: {
                measure: entry(revenue[arm] / revenue[rival] - 1, 0.003)
                for measure in ("expected_revenue_per_request", "expected_rpm")
            }
            for rival in ARMS
            if rival != arm
        }
        for arm in list(ARMS)[:5]
    }


def make_metrics(seeds: int = 0) -> dict[str, Any]:
    """A study of nine arms; with `seeds`, the mean over so many worlds and the spread between them."""
    rng = random.Random(7)
    sd = math.sqrt(seeds) / 2.0 if seeds else None
    rows = [
        ("as it is", "init", "logloss", 0.657, 0.0, 0.0),
        ("bid", "opt", "logloss", 0.862, 0.02, 0.034),
        ("model", "init", "rank", 0.956, 0.078, 0.051),
        ("both", "opt", "rank", 1.0, 0.112, 0.058),
    ]
    made: dict[str, Any] = {
        "name": "ads",
        "seed": 1,
        "semantics": 1,
        "version": "0.1.0",
        "scenario_hash": "8c1f0a77d2b94e65",
        "requests": 10000,
        "baseline": "logloss",
        "arms": {arm: arm_entries(arm, rng, sd) for arm in ARMS},
        "ablation": [
            {
                "role": role,
                "bid": bid,
                "model": model,
                "rcs": entry(rcs, 0.0 if rcs == 1 else 0.006),
                "ctr": entry(0.0509 * (1 + ctr), 0.0003, (ctr, 0.004)),
                "rpm": entry(41.55 * (1 + rpm), 0.2, (rpm, 0.004)),
                "expected_revenue_per_request": entry(0.2078 * (1 + rpm), 0.001, (rpm, 0.004)),
            }
            for role, bid, model, rcs, ctr, rpm in rows
        ],
        "contrasts": contrasts(),
        "detail": {"corpus_requests": 512, "quality_requests": 768},
        "attribution": {arm: attribution(arm) for arm in ARMS},
        "funnel": {
            arm: {"corpus": 20000, "pre_ranking_set": 500.0, "competitive_set": 100.0, "win_set": 4.98}
            for arm in ARMS
        },
        "cost": make_costs(),
        "micros": make_micros(),
        "models": models(),
        "curves": curves(),
        "objectives": make_objectives(),
        "critical_bids": make_critical_bids(list(ARMS)),
        "what_if": make_what_ifs(),
        "off_policy": make_off_policy(),
        "market": learning_market(list(ARMS)[:5]),
    }
    with_compute(made)
    with_drift(made)
    made["market"]["designs"] = make_designs()
    if seeds:
        made["seeds"] = {"n": seeds, "seeds": list(range(1, seeds + 1))}
    return made


def make_manifest() -> dict[str, Any]:
    shared = ("name", "seed", "semantics", "version", "scenario_hash")
    return {
        **{key: value for key, value in make_metrics().items() if key in shared},
        "packages": {"numpy": "2.1.3", "torch": "2.13.0", "python": "3.12.4"},
        "started": "2025-01-31T12:00:00Z",
        "seconds": {"cold_start": 3.1, "log": 16.42, "train": 61.0, "shadow": 2.2, "evaluate": 11.9},
        "requests_per_second": 15873.2,
        "status": "complete",
    }


def renamed(metrics: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The same metrics with a name replaced wherever it occurs."""
    return json.loads(json.dumps(metrics).replace(json.dumps(old), json.dumps(new)))


EVIL = '<script>alert("1")</script>'


def hostile_metrics() -> dict[str, Any]:
    """make_metrics() with names that are markup, mathematics, or hidden to matplotlib."""
    metrics = make_metrics()
    for old, new in (
        ("distill-pre", EVIL),
        ("ads", EVIL),
        ("ltr", "$x_1$"),
        ("logloss-med", "_hidden"),
        ("paced", EVIL),
    ):
        metrics = renamed(metrics, old, new)
    return metrics


def minimal_metrics() -> dict[str, Any]:
    """The least a run can hold: one arm, no optional section, undefined measures."""
    return {
        "name": "bare",
        "seed": 0,
        "requests": 10,
        "baseline": "only",
        "arms": {
            "only": {
                "rcs": {"value": 0.5, "low": 0.4, "high": 0.6},
                "ctr": None,
                "expected_rpm": {"value": None, "low": None, "high": None},
            }
        },
    }
