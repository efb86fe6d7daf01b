"""A line behind a score: what Platt's scaling is for clicks, for grades."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cascade_sim.models.objectives import Objective


@dataclass(frozen=True)
class LinearlyCalibrated:
    """An objective whose predictions are slope · score + intercept: same order, another scale.

    The line is fitted by least squares, which is what grades are measured by. If all scores are equal it is
    level, at the mean label.
    """

    objective: Objective
    slope: float
    intercept: float

    @classmethod
    def fit(cls, objective: Objective, outputs: torch.Tensor, labels: torch.Tensor) -> LinearlyCalibrated:
        """Fit to outputs [N, n_heads] and labels [N] of data kept apart."""
        scores = objective.score(outputs).double().numpy()
        y = labels.double().numpy()
        away = scores - scores.mean()
        spread = float(away @ away)
        slope = float(away @ y) / spread if spread > 0 else 0.0
        return cls(objective, slope, float(np.mean(y) - slope * np.mean(scores)))

    @property
    def name(self) -> str:
        return f"{self.objective.family}+line"

    def score(self, outputs: torch.Tensor) -> torch.Tensor:
        """The objective's own.  [N, n_heads] -> [N]"""
        return self.objective.score(outputs)

    def predict(self, outputs: torch.Tensor, request: torch.Tensor | None = None) -> torch.Tensor:
        """The grade that the line gives.  [N, n_heads] -> [N]"""
        return self.slope * self.score(outputs) + self.intercept
