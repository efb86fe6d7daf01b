"""How often each slot is looked at, learned from clicks with the net that explains them.

The chance of the first slot is 1: clicks tell how much less the others are looked at, and nothing of what all
have in common. log x_k = −softplus(5 b_k) for the slots below it, so that 0 < x_k < 1; they need not fall.
The 5 lets them move faster than weights do at the same learning rate: they are few, and every page tells of
them.
"""

import math

import numpy as np
import torch
from torch import nn

START = 0.8  # of every slot but the first
PACE = 5.0


class SlotEffects(nn.Module):
    """The chances of n slots, relative to the first, as parameters that are fitted.

    >>> SlotEffects(3).effects().round(3).tolist()
    [1.0, 0.8, 0.8]
    """

    def __init__(self, n_slots: int) -> None:
        super().__init__()
        self.below = nn.Parameter(torch.full((max(n_slots - 1, 0),), math.log(1 / START - 1) / PACE))

    def forward(self) -> torch.Tensor:
        """[n_slots], in (0, 1]"""
        return torch.cat([self.below.new_ones(1), torch.exp(-nn.functional.softplus(PACE * self.below))])

    @torch.no_grad()
    def effects(self) -> np.ndarray:
        """The same as plain numbers.  [n_slots] float64"""
        values: np.ndarray = self().cpu().double().numpy()
        return values
