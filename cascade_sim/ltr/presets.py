"""The papers' set-ups for their data sets, as values of the command's options.

The paper on regression compatible ranking (Web30K, Yahoo, Istella) has three layers of 1024, 512 and 256,
batch norm after each, dropout 0.5, batches of 128, Adam, and tries the learning rates and alphas below.
Features go through sign(x) · log(1 + |x|), but for Yahoo's. That on scale calibration (Web30K, Istella) has
the same layers and also tunes dropout, the momentum of batch norm and y0; it does not say over which values.
Labels above 0 are the positives of both, and NDCG is of the grades in either task. The softmax of the latter
is one net for both tasks, trained on the grades: `softmax-grades` where the others learn from 0 and 1.

Neither gives all methods the same number of trainings: one with an alpha has 45, one without 3. Here each
has 45: three rates by five dropouts by three momenta for all, and of these with the fifteen alphas (or y0s)
a diagonal, on which each setting and each alpha is as frequent as any other. `--budget 0 --dropout 0.5
--momentum 0.1` is the grid as published. Neither paper says how many epochs there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

OBJECTIVES_OF = {
    "binary": (
        *("pointwise", "softmax-grades", "softmax", "listce"),
        *("multi_objective", "multi_objective-mean", "multi_task", "calibrated_softmax", "rcr"),
    ),
    "graded": (
        *("pointwise", "softmax", "listce", "multi_objective", "multi_objective-mean", "multi_task"),
        *("calibrated_softmax", "rcr_regression"),
    ),
}

ALPHAS = (0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1.0)

_PAPERS: Mapping[str, Any] = {
    "alpha": ALPHAS,
    "learning_rate": (0.01, 0.001, 0.0001),
    "dropout": (0.1, 0.2, 0.3, 0.5, 0.7),
    "momentum": (0.1, 0.01, 0.001),
    "y0": (0.1, 0.3, 1.0, 3.0, 10.0),
    "budget": 45,
    "layers": (1024, 512, 256),
    "batch": 128,
    "epochs": 30,
    "tables": "papers",
}


@dataclass(frozen=True)
class Preset:
    """What it is for, and the options that it sets where they are not given."""

    about: str
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


PRESETS = {
    "web30k": Preset("MSLR-WEB30K", _PAPERS),
    "yahoo": Preset("Yahoo LTR, set 1", {**_PAPERS, "inputs": "plain"}),
    "istella": Preset("Istella LETOR", _PAPERS),
    "small": Preset(
        "a file of a few hundred lists",
        {
            **_PAPERS,
            "alpha": (0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999),
            "learning_rate": (0.01, 0.003, 0.001),
            "dropout": (0.0, 0.2, 0.5),
            "momentum": (0.1,),
            "budget": 9,
            "layers": (64, 32),
            "batch": 8,
            "epochs": 20,
            "split": "seed",
            "seeds": 5,
        },
    ),
}
