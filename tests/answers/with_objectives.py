"""Rankers with other objectives in a believable metrics.json. The numbers are invented."""

import copy

# arm: (objective, calibrator, GAUC, LogLoss, ECE, PCOC, CPC error, welfare)
RANKERS = {
    "logloss": ("pointwise", None, 0.61, 0.360, 0.004, 1.01, 0.20, 0.75),
    "ltr": ("softmax", None, 0.64, 2.500, 0.540, 7.80, 0.90, 0.55),
    "distill-pre": ("softmax", "platt", 0.63, 0.370, 0.020, 0.70, 0.30, 0.70),
}


def with_objectives(metrics):
    found = copy.deepcopy(metrics)
    arms, reliability = {}, {}
    for arm, (objective, calibrator, gauc, logloss, ece, pcoc, cpc_error, welfare) in RANKERS.items():
        arms[arm] = {"model": arm, "objective": objective, "calibrator": calibrator}
        values = {"gauc": gauc, "ndcg": 0.9, "logloss": logloss, "ece": ece, "pcoc": pcoc}
        entries = {name: {"value": v, "low": v, "high": v} for name, v in values.items()}
        found["models"][arm] = {"win_set": entries, "pre_ranking_set": entries}
        found["arms"][arm]["cpc_error"]["value"] = cpc_error
        found["arms"][arm]["welfare_vs_oracle"]["value"] = welfare
        reliability[arm] = {"count": [100.0, 50.0, 0.0, 0.1], "predicted": [5.0, 10.0, 0.0, 0.09],
                            "truth": [5.0 / pcoc, 10.0 / pcoc, 0.0, 0.01]}  # fmt: skip
    found["objectives"] = {"arms": arms, "reliability": reliability}
    return found
