"""Made-up answers from randomised logs: one good, one refused, one about pages."""


def row(value, low, high, truth, verdict="ok", reason="", ess=0.9):
    is_refused = verdict == "refuse"
    shown = (
        {"value": None, "low": None, "high": None}
        if is_refused
        else {"value": value, "low": low, "high": high}
    )
    return {
        "estimate": shown,
        "no_estimate": float(is_refused),
        "covers": None if is_refused else float(low <= truth <= high),
        "n": 20000,
        "ess_share": ess,
        "mean_weight": 1.0,
        "largest_share": 0.0012,
        "clipped_mass": 0.0,
        "verdict": verdict,
        "reason": reason,
        "lift": {"value": 0.05, "low": 0.01, "high": 0.09},
    }


def target(log, truth, rows, changes):
    answer = {
        "logged": {"value": 0.28, "low": 0.27, "high": 0.29},
        "truth": {"value": truth},
        "true_lift": {"value": 0.04},
        "estimators": rows,
        "inner": {"value": 0.29, "low": 0.28, "high": 0.30},
        "outer": {"value": 0.29, "low": 0.28, "high": 0.35},
    }
    return {"log": log, "changes": changes, "rewards": {"revenue": answer, "clicks": answer}}


def launch_row(value, low, high, truth, **more):
    """Of an estimator of launches: no weights, but a bias bound, a kernel, and the current values."""
    return {
        **row(value, low, high, truth, **more),
        "mean_weight": None,
        "clipped_mass": None,
        "bias": 0.002,
        "current": {"value": 0.30, "low": 0.29, "high": 0.31},
        "lift": {"value": -0.02, "low": -0.05, "high": 0.01},
        "lift_bias": 0.006,
        "lift_verdict": "ok",
        "lift_reason": "",
        "inside": 12486,
        "bandwidth": {"auction.reserve_cpc": 0.3},
    }


def make_launches():
    """The same log asked about launches: one good, one refused."""
    part = make_off_policy()
    direct = row(0.33, 0.32, 0.34, 0.29, "warn", "bias unknown", None)
    near = {name: launch_row(0.292, 0.28, 0.30, 0.29) for name in ("local_linear", "local_dr")}
    refused = {"verdict": "refuse", "reason": "exploration is missing: too far", "ess": None}
    far = {name: launch_row(9, 9, 9, 0.3, **refused) for name in near}
    targets = {
        "near": target("parameters", 0.29, {**near, "direct_method": direct}, "auction.reserve_cpc=0.63"),
        "far": target("parameters", 0.30, {**far, "direct_method": direct}, "auction.reserve_cpc=0.28"),
    }
    for one in targets.values():
        one["estimand"] = "launch"
        for answer in one["rewards"].values():
            answer.pop("inner", None), answer.pop("outer", None)
    return {**part, "estimand": "launch", "targets": {**part["targets"], **targets}}


def make_off_policy():
    direct = row(0.33, 0.32, 0.34, 0.29, "warn", "bias unknown", None)
    near = {
        "ips": row(0.291, 0.28, 0.30, 0.29),
        "doubly_robust": row(0.293, 0.291, 0.30, 0.29),
        "direct_method": direct,
    }
    far = {"ips": row(9, 9, 9, 0.3, "refuse", "exploration is missing: too far", 0.001),
           "doubly_robust": row(9, 9, 9, 0.3, "refuse", "exploration is missing: too far", 0.001),
           "direct_method": direct}  # fmt: skip
    pages = {
        "slate_ips": row(0.2, 0.19, 0.21, 0.2),
        "cascade_dr": row(0.2, 0.19, 0.21, 0.2),
        "direct_method": direct,
    }
    part = {
        "arm": "production",
        "clip": 10.0,
        "parameters": {"requests": 20000, "centres": {"reserve_cpc": 0.7}, "sigmas": {"reserve_cpc": 0.3}},
        "slates": {"requests": 20000, "depth": 6, "temperature": 0.7},
        "targets": {
            "near": target("parameters", 0.29, near, "auction.reserve_cpc=0.63"),
            "far": target("parameters", 0.30, far, "auction.reserve_cpc=0.28"),
            "colder": target("slates", 0.2, pages, "slates.temperature=0.5"),
        },
        "slopes": {
            "reserve_cpc": {
                reward: {**row(-0.09, -0.12, -0.06, -0.08), "truth": {"value": -0.08}}
                for reward in ("revenue", "clicks")
            }
        },  # fmt: skip
    }
    return part
