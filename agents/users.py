"""Users: what they look at, click and buy. Pure functions of probabilities and uniform draws."""

import numpy as np


def click_probability(true_ctr: np.ndarray, slot_effects: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Position-based model: P(click in slot j) = examination x_j * true CTR; 0 in an empty slot.  [R, k]"""
    return np.where(shown, slot_effects[None, : true_ctr.shape[1]] * true_ctr, 0.0)


def happens(probability: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Whether an event of this probability happens under the luck u in (0, 1): u < p.  bool

    The same u serves every arm, so raising a probability never undoes a click.
    """
    return u < probability
