"""Made-up answers of an off-policy estimator to one question, many times over."""

import numpy as np


def normal_answers(n=4000, spread=1.0, claimed=1.0, bias=0.0, truth=10.0, seed=1):
    value = truth + bias + spread * np.random.default_rng(seed).normal(size=n)
    return value, value - 1.96 * claimed, value + 1.96 * claimed
