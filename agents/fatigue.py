"""Fatigue: users who have seen many ads recently click less.

Each user has a memory of exposures, [U] float64 >= 0, that grows by 1 with every ad shown and halves every
half-life. It starts as zeros.
"""

import numpy as np

HOUR = 3_600.0


def fatigue_shift(state: np.ndarray, users: np.ndarray, *, strength: float) -> np.ndarray:
    """What fatigue adds to the click logit: -strength * log(1 + memory of the user).  [R]

    0 for a user without exposures and for strength 0. Users [R] int.
    """
    return 0.0 - strength * np.log1p(state[users])


def fatigued(true_ctr: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """The CTR whose logit is that of true_ctr plus the shift: q / (q + (1 - q) e^-shift).  [R, k]

    shift [R], finite, serves every slot of its request. 0 and 1 stay 0 and 1; a shift of 0 changes no bit.
    """
    shift = np.asarray(shift, dtype=np.float64)[:, None]
    rest = (1 - true_ctr) * np.exp(-shift)
    return np.where(shift == 0, true_ctr, true_ctr / (true_ctr + rest))


def after(
    state: np.ndarray, users: np.ndarray, impressions: np.ndarray, dt: float, *, half_life_hours: float
) -> np.ndarray:
    """The memory after a window of dt seconds: (memory + the window's exposures) * 2^(-dt / half-life).  [U]

    users [R] int and impressions [R] (ads shown to that request's user) in any order, users repeated or not:
    the exposures are integers, so their sum is exact. All of a window's exposures count as if made at
    its beginning, so keep the windows fixed and short beside the half-life. An infinite half-life never
    forgets. Returns a new array; TypeError for impressions that are not integers.
    """
    impressions = np.asarray(impressions)
    if impressions.dtype.kind not in "biu":
        raise TypeError(f"impressions must be integers, not {impressions.dtype}")
    if not (half_life_hours > 0 and dt >= 0):
        raise ValueError(f"needs a half-life > 0 and a time >= 0, not {half_life_hours} h and {dt} s")
    seen = np.bincount(users, weights=impressions, minlength=len(state))
    if len(seen) > len(state):
        raise ValueError(f"user {int(np.max(users))} is not among the {len(state)} users")
    return (state + seen) * 0.5 ** (dt / (half_life_hours * HOUR))
