"""Click models: exact click probabilities of a page, and sampled clicks.

Slots are in order, [R, k]; `shown` is False in empty ones. A custom click model is a class that keeps the
contract `cascade_sim.protocols.ClickModel`, built as `Class(slot_effects, **options)`.
"""

from dataclasses import dataclass

import numpy as np

from cascade_sim.agents.registry import CLICK_MODELS
from cascade_sim.agents.users import click_probability, happens
from cascade_sim.protocols import ClickModel

__all__ = ["CLICK_MODELS", "Cascade", "ClickModel", "PositionBased"]


@dataclass(frozen=True, eq=False)
class PositionBased:
    """Position-based model (PBM): P(click in slot j) = x_j * true CTR, x_j the slot effect.

    Args:
        slot_effects: [>= k] float64, examination probability of each slot.

    Raises:
        ValueError: slot effects that are no probabilities, or fewer of them than slots.

    >>> true_ctr, shown = np.array([[0.1, 0.2]]), np.array([[True, True]])
    >>> PositionBased(np.array([1.0, 0.5])).expected(true_ctr, shown).tolist()
    [[0.1, 0.1]]
    """

    slot_effects: np.ndarray  # [>= k], each in [0, 1]

    def __post_init__(self) -> None:
        effects = np.asarray(self.slot_effects, dtype=np.float64)
        if effects.ndim != 1 or not ((effects >= 0) & (effects <= 1)).all():
            raise ValueError("slot effects must be a list of probabilities")
        object.__setattr__(self, "slot_effects", effects)

    def expected(self, true_ctr: np.ndarray, shown: np.ndarray) -> np.ndarray:
        """Return x_j * true CTR; 0 in an empty slot.  [R, k] float64"""
        return click_probability(true_ctr, self._effects(true_ctr), shown)

    def clicks(
        self, true_ctr: np.ndarray, shown: np.ndarray, u_click: np.ndarray, u_continue: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sample clicks by u_click alone: clicked where u_click < x_j * true CTR.

        Examined where clicked, and else with P(examined | no click) = x (1 - q) / (1 - x q), by u_continue:
        in all with probability x_j.
        """
        expected = self.expected(true_ctr, shown)
        clicked = happens(expected, u_click)
        unclicked = np.where(shown, self._effects(true_ctr) * (1 - true_ctr), 0.0)
        # x q = 1 is always clicked: what stands for 0 / 0 does not matter.
        looked = happens(unclicked / np.maximum(1 - expected, np.finfo(float).tiny), u_continue)
        return clicked, clicked | looked

    def _effects(self, true_ctr: np.ndarray) -> np.ndarray:
        slots = true_ctr.shape[1]
        if slots > len(self.slot_effects):
            raise ValueError(f"{slots} slots, but only {len(self.slot_effects)} slot effects")
        return self.slot_effects[:slots]


@dataclass(frozen=True, eq=False)
class Cascade:
    """Cascade model: a user scans from the top and examines slot j + 1 only after slot j.

    With r_j = P(slot j is examined), r_1 = 1 and q_j the true CTR:
    r_{j+1} = r_j * ((1 - q_j) * continuation + q_j * continuation_after_click)
    An empty slot is passed over. continuation_after_click = 0 is the classic model with at most one click.

    Args:
        slot_effects: not used; examination follows from the ads above a slot.
        continuation: probability to go on after a slot without a click.
        continuation_after_click: probability to go on after a click.

    Raises:
        ValueError: a continuation that is no probability.

    >>> true_ctr, shown = np.array([[0.1, 0.2]]), np.array([[True, True]])
    >>> Cascade(continuation=0.5, continuation_after_click=0.0).expected(true_ctr, shown).round(3).tolist()
    [[0.1, 0.09]]
    """

    slot_effects: np.ndarray | None = None
    continuation: float = 0.85
    continuation_after_click: float = 0.5

    def __post_init__(self) -> None:
        for name in ("continuation", "continuation_after_click"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a probability, not {getattr(self, name)}")

    def expected(self, true_ctr: np.ndarray, shown: np.ndarray) -> np.ndarray:
        """Return r_j * q_j, exact; 0 in an empty slot.  [R, k] float64"""
        true_ctr = np.asarray(true_ctr, dtype=np.float64)
        expected = np.zeros(true_ctr.shape)
        reached = np.ones(true_ctr.shape[0])
        for j in range(true_ctr.shape[1]):
            ctr, filled = true_ctr[:, j], shown[:, j]
            expected[:, j] = np.where(filled, reached * ctr, 0.0)
            goes_on = (1 - ctr) * self.continuation + ctr * self.continuation_after_click
            reached = np.where(filled, reached * goes_on, reached)
        return expected

    def clicks(
        self, true_ctr: np.ndarray, shown: np.ndarray, u_click: np.ndarray, u_continue: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sample the scan slot by slot: a click where u_click < q_j, continued by u_continue."""
        clicked = np.zeros(true_ctr.shape, dtype=bool)
        examined = np.zeros(true_ctr.shape, dtype=bool)
        reached = np.ones(true_ctr.shape[0], dtype=bool)
        for j in range(true_ctr.shape[1]):
            examined[:, j] = reached & shown[:, j]
            clicked[:, j] = examined[:, j] & happens(true_ctr[:, j], u_click[:, j])
            goes_on = np.where(clicked[:, j], self.continuation_after_click, self.continuation)
            reached &= happens(goes_on, u_continue[:, j]) | ~shown[:, j]
        return clicked, examined
