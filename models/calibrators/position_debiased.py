"""Calibrators fitted to clicks of slots that are not always looked at: for the CTR of an examined slot."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.models.calibrators import Calibrator, calibrator_class

Floats = NDArray[np.float64]
ROUNDS, DEAR_ROUNDS = 50, 3
CLOSE = 1e-5  # relative change of the mean and of the largest probability at which rounds end


def fit_examined(
    name: str,
    scores: Floats,
    clicks: Floats,
    examination: Floats,
    *,
    request: NDArray[Any] | None = None,
    **options: Any,
) -> Calibrator:
    """A calibrator by name from scores [N], clicks [N] and the chances that the slots were looked at [N].

    P(click) = x · g(s). An ad that was not clicked may have been unseen: it would have been clicked with
    probability (1 − x) g / (1 − x g), which is its label in the next round (expectation-maximisation: the
    likelihood of the clicks never falls). With x = 1 the first round is the last. A calibrator that looks at
    the request (features [N, d]) is dear to train: it has few rounds, from the labels that Platt's end at.
    """
    kind = calibrator_class(name)
    if kind.uses_request:
        probability = fit_examined("platt", scores, clicks, examination)(scores)
    else:
        request = None
        probability = np.full(len(scores), min(float(clicks.sum() / max(examination.sum(), 1e-12)), 1.0))
    for _ in range(DEAR_ROUNDS if kind.uses_request else ROUNDS):
        labels = would_click(clicks, examination, probability)
        calibrator = kind.fit(scores, labels, request=request, **options)
        before, probability = probability, calibrator(scores, request)
        if np.abs(probability - before).max(initial=0.0) <= CLOSE * max(probability.max(initial=0.0), 1e-12):
            break
    return calibrator


def would_click(clicks: Floats, examination: Floats, probability: Floats) -> Floats:
    """Chance of a click had the slot been looked at, given what happened.  [N] each -> [N] in [0, 1]"""
    unseen = (1.0 - examination) * probability
    return np.where(clicks > 0, 1.0, unseen / np.maximum(unseen + 1.0 - probability, 1e-300))
