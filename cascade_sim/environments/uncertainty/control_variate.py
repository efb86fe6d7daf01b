"""The click model as a control variate of lifts: less noise of single clicks, where the model is borne out.

Where a page keeps an ad in its slot, its logged click is on both sides of a lift, at two prices; where it
moves the ad, on one side alone. Either way the lift has the noise of single clicks c, whose mean the model,
which did not see them, gives as m. With D the column of the baseline, N that of the arm, r = sum N / sum D,

    N' = N + b C,    C = sum over kept clicks of (price_N - r price_D) (m - c)

C has a mean of 0 as far as the model is right, so N' has the mean of N. What the model may be off by is
bounded by the log's own clicks (`misfit`), and more where C itself contradicts the model significantly:
b is the weight with the least variance of N', that of the misfit among it, and the intervals hold both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cascade_sim.logs.replay.misfit import Misfit

CONTROLS = {"expected_clicks": "control_clicks", "expected_revenue": "control_revenue"}
CONTRADICTED = 3.0  # variances: what of C squared is beyond so many of them is misfit


class Side(NamedTuple):
    """A column of an arm, by resampling unit, and what of it the model has a part in."""

    column: np.ndarray  # [units]
    control: np.ndarray  # [units] what the model expects of kept clicks beyond what was logged
    groups: np.ndarray  # [groups] what it expects of them, by group of the misfit
    moved: np.ndarray  # [units] how the column's sum moves with what the model was fitted to
    control_moved: np.ndarray  # [units] and the control's


@dataclass(frozen=True)
class Control:
    """What an arm's column gets: `weight` times `rows`."""

    weight: float
    rows: np.ndarray
    moved: np.ndarray  # how the sum of rows moves with what the model was fitted to
    deviation: float  # of the sum of rows, by what the model may be off

    @property
    def added(self) -> np.ndarray:
        return self.weight * self.rows

    @property
    def widened(self) -> np.ndarray:
        """The same sum, with the spread of the fit, and of the misfit in signs that sum to 0."""
        signs = np.where(np.arange(len(self.rows)) % 2, 1.0, -1.0)
        signs -= signs.mean()
        scale = np.sqrt(np.sum(signs**2)) or 1.0
        return self.weight * (self.rows + self.moved + self.deviation / scale * signs)


def control(arm: Side, base: Side, misfit: Misfit) -> Control | None:
    """For a column's lift over the baseline; None where there is nothing to control."""
    total = float(base.column.sum())
    if not total:
        return None
    ratio = float(arm.column.sum()) / total
    rows = arm.control - ratio * base.control
    if not np.any(rows):
        return None
    moved = arm.control_moved - ratio * base.control_moved
    noise = arm.column + arm.moved - ratio * (base.column + base.moved)
    own, noise = _centred(rows + moved), _centred(noise)
    variance = float(np.sum(own**2))
    off = misfit.deviation(arm.groups - ratio * base.groups) ** 2
    off = max(off, float(rows.sum()) ** 2 - CONTRADICTED * variance)
    weight = float(np.clip(-np.sum(own * noise) / (variance + off), 0.0, 1.0))
    return Control(weight, rows, moved, float(np.sqrt(off)))


def _centred(rows: np.ndarray) -> np.ndarray:
    centred: np.ndarray = rows - rows.mean()
    return centred
