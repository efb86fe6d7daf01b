"""Conversions that come late: what a log that was cut off at some moment says of those still to come.

A click of age e has shown its conversion if that came within e. So with F(t) the share of the conversions
within a window W that come within t, a click of age e < W is seen to convert with probability F(e) * pCVR,
and the log loss of that is the one of a slot that is examined with probability F(e). `share_seen` estimates
F from the conversions seen so far; their delays are cut off at the ages of their clicks, which the estimate
allows for. Delays are taken to be alike for all users and ads.
"""

import numpy as np

STEPS = 64  # of the estimated share, at quantiles of the delays seen
MIN_OLD = 20  # conversions of clicks older than the window, on which the estimate rests


def share_seen(delay: np.ndarray, age: np.ndarray, window: float) -> tuple[np.ndarray, np.ndarray]:
    """F at rising delays from 0 to the window, from conversions seen by now.  [n], [n] -> [K + 1], [K + 1]

    delay: of each conversion, at most the age of its click. Where clicks are older than t, the share of the
    conversions within t that came within s < t is F(s) / F(t), whatever the age; F is the product of these
    ratios from the window down. ValueError where too few conversions are of clicks older than the window.
    """
    counts = delay <= window
    delay, age = np.asarray(delay, np.float64)[counts], np.asarray(age, np.float64)[counts]
    n_old = int((age >= window).sum())
    if n_old < MIN_OLD:
        raise ValueError(
            f"only {n_old} conversions are of clicks older than the window of {window:g} s, and {MIN_OLD} "
            "are needed to tell how late conversions come"
        )
    inner = np.quantile(delay, np.arange(1, STEPS) / STEPS)
    edges = np.unique([0.0, *inner, window])
    share = np.ones(len(edges))
    for k in range(len(edges) - 2, -1, -1):
        within = delay[(age >= edges[k + 1]) & (delay <= edges[k + 1])]
        ratio = (within <= edges[k]).mean() if len(within) else 1.0
        share[k] = share[k + 1] * ratio
    return edges, share


def correct_delays(
    delay: np.ndarray, age: np.ndarray, correction: str, window: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What to learn from clicks of these ages: which of them, their labels, and the chance to see a label.

    delay [N]: from click to conversion; infinite without one, and above the age where it is still to come.
    Gives keep [N] bool, and label and chance [N] float32. `none`: all clicks, what is not seen counts as no
    conversion. `wait`: clicks older than the window, whose conversions within it have all come. `elapsed`:
    all clicks, with the share of conversions that is seen by their age.
    """
    if correction == "none":
        keep, label, chance = np.ones(len(age), bool), delay <= age, np.ones(len(age))
    else:
        assert window is not None
        label = delay <= np.minimum(age, window)
        if correction == "wait":
            keep, chance = age >= window, np.ones(len(age))
        else:
            edges, share = share_seen(delay[label], age[label], window)
            chance = np.interp(age, edges, share)
            keep = chance > 0
    return keep, label.astype(np.float32), chance.astype(np.float32)
