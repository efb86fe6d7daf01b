"""Adam's step for some rows of a table: each row is a parameter of its own, with its own number of steps.

A loop on the CPU, for sparse gradients; torch elsewhere, for gradients of the whole table, which need no
sparse tensor (MPS has few) and nothing that the host would have to wait for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cascade_sim.foundation.compilation import kernel

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class RowState:
    """What Adam keeps of the rows [N, E] of a table."""

    powers: torch.Tensor  # [N, 2]: BETA1 and BETA2 to the number of a row's steps
    mean: torch.Tensor  # [N, E] of the gradients
    square: torch.Tensor  # [N, E], the mean of their squares
    spare: torch.Tensor  # [N, E]: room for a batch's sums
    seen: torch.Tensor  # [N]: the last batch that a row was in

    @classmethod
    def of(cls, table: torch.Tensor) -> RowState:
        powers = torch.ones(len(table), 2, dtype=table.dtype, device=table.device)
        mean, square, spare = (torch.zeros_like(table) for _ in range(3))
        return cls(powers, mean, square, spare, torch.zeros(len(table), dtype=torch.int64))

    @property
    def arrays(self) -> tuple[torch.Tensor, ...]:
        return self.powers, self.mean, self.square, self.spare, self.seen


def step_rows(
    table: torch.Tensor, gradient: torch.Tensor, state: RowState, number: int, rate: float, decay: float
) -> None:
    """Step those rows that a gradient names, be it sparse or of the whole table.

    `number`: of the step, above that of the one before. A row whose gradient is 0 stays as it is: it was not
    in the batch, or was looked up and did not count.
    """
    if not gradient.is_sparse or table.device.type != "cpu" or table.dtype != torch.float32:
        step_by_torch(table, gradient.to_dense(), state, rate, decay)
        return
    given = (gradient._indices()[0], gradient._values().contiguous(), table.detach(), *state.arrays)
    arrays: Any = [tensor.numpy() for tensor in given]
    _step(*arrays, number, np.float32(rate), np.float32(decay))  # type: ignore[call-arg]


def step_by_torch(
    table: torch.Tensor, slope: torch.Tensor, state: RowState, rate: float, decay: float
) -> None:
    """`step_rows` by a gradient [N, E] of the whole table, in operations that every device has."""
    counts = slope.any(dim=1, keepdim=True)
    beta1 = torch.where(counts, BETA1, 1.0)  # [N, 1]: what a row keeps
    beta2 = torch.where(counts, BETA2, 1.0)
    state.powers.mul_(torch.cat([beta1, beta2], dim=1))
    state.mean.mul_(beta1).add_(slope * (1 - BETA1))
    state.square.mul_(beta2).add_(slope.square() * (1 - BETA2))
    # Of a row that never counted the powers are 1: it would be 0 / 0, and is not taken.
    size = (state.square / (1 - state.powers[:, 1:])).sqrt() + EPSILON
    moved = table * (1 - rate * decay) - rate * (state.mean / (1 - state.powers[:, :1])) / size
    table.copy_(torch.where(counts, moved, table))


@kernel(error_model="numpy")
def _step(rows, values, table, powers, mean, square, spare, seen, number, rate, decay):
    width = table.shape[1]
    met = np.empty(len(rows), np.int64)
    n = 0
    for i in range(len(rows)):
        row = rows[i]
        if seen[row] == number:
            for j in range(width):
                spare[row, j] += values[i, j]
        else:
            seen[row] = number
            met[n] = row
            n += 1
            for j in range(width):
                spare[row, j] = values[i, j]
    beta1, beta2, epsilon = np.float32(BETA1), np.float32(BETA2), np.float32(EPSILON)
    one = np.float32(1)
    kept = one - rate * decay
    for i in range(n):
        row = met[i]
        is_zero = True
        for j in range(width):
            is_zero &= spare[row, j] == 0
        if is_zero:
            continue
        powers[row, 0] *= beta1
        powers[row, 1] *= beta2
        step, root = rate / (one - powers[row, 0]), one / np.sqrt(one - powers[row, 1])
        for j in range(width):
            slope = spare[row, j]
            mean[row, j] = mean[row, j] * beta1 + slope * (one - beta1)
            square[row, j] = square[row, j] * beta2 + slope * slope * (one - beta2)
            size = np.sqrt(square[row, j]) * root + epsilon
            table[row, j] = table[row, j] * kept - step * mean[row, j] / size
