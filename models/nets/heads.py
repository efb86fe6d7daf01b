"""What the nets of the cascade have in common: how they are asked for, and heads, of which one serves."""

from typing import Self

import torch
from torch import nn


class HeadedNet(nn.Module):
    """A net of request, ad and pair features. `hidden` and `dims` are widths within it, which it explains.

    `heads` > 1 is for training: `folded` makes the net of one head that serves. A net makes its layers in
    `lay`, and then its start depends on nothing but its sizes and torch's seed.
    """

    def __init__(
        self,
        request_width: int,
        ad_width: int,
        pair_width: int,
        hidden: int = 32,
        dims: int = 16,
        heads: int = 1,
    ):
        super().__init__()
        self.widths = (request_width, ad_width, pair_width)
        self.hidden, self.dims, self.heads = hidden, dims, heads
        self.lay(*self.widths)

    def lay(self, request_width: int, ad_width: int, pair_width: int) -> None:
        """Make the layers, whose draws go in their order."""
        raise NotImplementedError

    @property
    def of_head(self) -> tuple[int, ...]:
        """The shape of what every head has one of."""
        return () if self.heads == 1 else (self.heads,)

    def fresh(self, heads: int = 1) -> Self:
        """A net of the same widths with so many heads, newly drawn."""
        return type(self)(*self.widths, self.hidden, self.dims, heads)


def unseen_by(weights: torch.Tensor) -> torch.Tensor:
    """Takes from heads what their sum by these weights sees, and leaves the rest.  [n] -> [n, n]"""
    return torch.eye(len(weights)) - torch.outer(weights, weights) / weights.square().sum()
