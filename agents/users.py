"""Users: what they look at, click and buy. Pure functions of probabilities and uniform draws."""

import numpy as np


def click_probability(true_ctr: np.ndarray, slot_effects: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Return P(click) of the position-based model: slot effect * true CTR; 0 in an empty slot.

    Args:
        true_ctr: [R, k] float64 click probability of each ad in an examined slot.
        slot_effects: [>= k] float64 examination probabilities.
        shown: [R, k] bool, False in an empty slot.

    Returns:
        [R, k] float64.

    >>> click_probability(np.array([[0.1, 0.2]]), np.array([1.0, 0.5]), np.array([[True, False]])).tolist()
    [[0.1, 0.0]]
    """
    return np.where(shown, slot_effects[None, : true_ctr.shape[1]] * true_ctr, 0.0)


def happens(probability: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return whether events of these probabilities happen: u < p.

    The same u serves every arm (common random numbers), so raising a probability never removes a click.

    Args:
        probability: probabilities of any shape.
        u: uniform draws in (0, 1), broadcast.

    Returns:
        bool array.

    >>> happens(np.array([0.1, 0.5]), np.array([0.3, 0.3])).tolist()
    [False, True]
    """
    return u < probability
