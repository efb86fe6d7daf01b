"""Adam and AdamW, by torch's own step.

The classes of torch.optim import torch's compiler: 1.7 CPU-seconds of every process, for nothing here.
"""

from collections.abc import Iterable

import torch
from torch.optim.adam import adam

from cascade_sim.models.adam_rows import BETA1, BETA2, EPSILON, RowState, step_rows


class Adam:
    """`weight_decay` apart from the gradient, as in AdamW; at 0 both are the same.

    `tables`, which are among the parameters, and whatever has a sparse gradient, are stepped by rows: each
    row is a parameter of its own, with its own number of steps, and one that is not in the batch stays as it
    is, without decay. On the CPU, where their gradients are sparse, a step costs what its batch has.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimiser = Adam([weight], learning_rate=0.5)
    >>> (2 * weight).sum().backward()
    >>> optimiser.step()
    >>> weight.tolist()
    [0.5]
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        learning_rate: float,
        weight_decay: float = 0.0,
        tables: Iterable[torch.Tensor] = (),
    ) -> None:
        self.parameters = list(parameters)
        self._tables = {id(table) for table in tables}
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        # per parameter its number of steps, mean gradient and mean square; none before its first gradient
        self.state: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        self.rows: dict[int, RowState] = {}  # of tables
        self.number = 0  # of the step

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, share: float = 1.0) -> None:
        """One step at `share` of the learning rate, of every parameter that has a gradient."""
        self.number += 1
        moved, rate = [], self.learning_rate * share
        for at, parameter in enumerate(self.parameters):
            gradient = parameter.grad
            if gradient is not None and (gradient.is_sparse or id(parameter) in self._tables):
                if at not in self.rows:
                    self.rows[at] = RowState.of(parameter)
                step_rows(parameter, gradient, self.rows[at], self.number, rate, self.weight_decay)
            elif gradient is not None:
                moved.append((at, parameter))
        for at, parameter in moved:
            if at not in self.state:
                means = (torch.zeros_like(parameter) for _ in range(2))
                self.state[at] = (torch.tensor(0.0), *means)  # type: ignore[assignment]
        states = [self.state[at] for at, _ in moved]
        adam(
            [parameter for _, parameter in moved],
            [parameter.grad for _, parameter in moved if parameter.grad is not None],
            [mean for _, mean, _ in states],
            [square for _, _, square in states],
            [],
            [steps for steps, _, _ in states],
            decoupled_weight_decay=True,
            amsgrad=False,
            beta1=BETA1,
            beta2=BETA2,
            lr=rate,
            weight_decay=self.weight_decay,
            eps=EPSILON,
            maximize=False,
        )
