"""A metrics.json that has answers from randomised logs. The numbers are invented."""

from answers.off_policy import make_off_policy


def metrics(seeds=False):
    pooled = {"seeds": {"n": 3, "seeds": [1, 2, 3]}} if seeds else {}
    return {"off_policy": make_off_policy(), **pooled}
