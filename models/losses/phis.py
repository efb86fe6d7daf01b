"""What a pair costs: phi(d) of the score difference d = s_i - s_j of two items, when i should be before j.

    PHIS["logistic"].cost(d)                                  # its formula, in torch
    ordered_pairs(scores, labels, lists, phi="logistic")      # the loss made of it

A phi of one's own is its formula and a line in PHIS. Without a fused kernel it is computed by its formula on
every device, and engine="fused" is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from cascade_sim.models.known import check_known

Kernel = tuple[
    Any, ...
]  # a fused kernel of `engine.fused`, and what it wants beside scores, labels and lists


@dataclass(frozen=True)
class Phi:
    """Its formula, and its fused kernel for ordered (True) or valued pairs; see `engine.pairs`."""

    cost: Callable[[torch.Tensor], torch.Tensor]
    kernel: Callable[[bool], Kernel] | None = None
    is_for_values: bool = True


# Kernels are looked up when they are used: numba is loaded when first needed.
def _logistic(is_ordered: bool) -> Kernel:
    from cascade_sim.models.losses.kernels import logistic_pairs

    return logistic_pairs, is_ordered


def _exponential(is_ordered: bool) -> Kernel:
    from cascade_sim.models.losses.kernels_sums import exponential_pairs

    return exponential_pairs, is_ordered


def _squared(is_ordered: bool) -> Kernel:
    from cascade_sim.models.losses.kernels_sums import squared_ordered, squared_valued

    return (squared_ordered if is_ordered else squared_valued,)


def _squared_hinge(is_ordered: bool) -> Kernel:
    from cascade_sim.models.losses.kernels_sums import squared_hinge_ordered

    return (squared_hinge_ordered,)


PHIS: dict[str, Phi] = {
    "logistic": Phi(lambda d: -functional.logsigmoid(d), _logistic),  # softplus drops the tail from 20 on
    "exponential": Phi(lambda d: torch.exp(-d), _exponential),
    "squared": Phi(lambda d: (1 - d).square(), _squared),
    "squared_hinge": Phi(lambda d: torch.relu(1 - d).square(), _squared_hinge, is_for_values=False),
}


def phi_named(name: str, *, is_ordered: bool) -> Phi:
    """The phi of that name for such pairs, or a ValueError that lists the known ones."""
    known = {key: phi for key, phi in PHIS.items() if is_ordered or phi.is_for_values}
    check_known("phi", name, known)
    return known[name]
