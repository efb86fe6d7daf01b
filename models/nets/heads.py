"""What the nets of the cascade have in common: how they are asked for, and heads, of which one serves."""

from collections.abc import Iterator
from typing import ClassVar, Self

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


class LinedNet(HeadedNet):
    """A net that ends in  logit of head k = <z, o_k> + line_k + b_k: units z that all heads share.

    The lines are the last outputs of the layers LINES, one a head, summed; what these layers give before them
    and SHARED, layers or weights, make the units. `lay` makes the layers, `out` [units, *of_head] and `bias`.
    """

    LINES: ClassVar[tuple[str, ...]]  # linear layers, or weights [inputs, outputs]
    SHARED: ClassVar[tuple[str, ...]]
    out: nn.Parameter
    bias: nn.Parameter

    def logits(self, units: torch.Tensor, lines: torch.Tensor) -> torch.Tensor:
        """[.., units], [.., heads] -> [..], of several heads [.., heads]"""
        return units @ self.out + (lines if self.heads > 1 else lines[..., -1]) + self.bias

    @torch.no_grad()
    def widened(self, weights: torch.Tensor, drawn: bool = False) -> Self:
        """The net whose heads are this one's logit times the weights [heads], to train on from.

        `drawn`: and as much of fresh draws as leaves the sum of the heads by these weights as it is.
        """
        wide, n = self.fresh(len(weights)), len(weights)
        free = unseen_by(weights) if drawn else torch.zeros(n, n)
        for theirs, own in zip(wide._rows(), self._rows(), strict=True):
            own_line = weights.reshape(n, *[1] * (own.dim() - 1)) * own[-1]
            theirs[-n:] = own_line + free @ theirs[-n:]
            theirs[:-n] = own[:-1]
        wide.out.copy_(torch.outer(self.out, weights) + wide.out @ free)
        wide.bias.copy_(self.bias * weights)
        return wide._with_shared(self)

    @torch.no_grad()
    def folded(self, weights: torch.Tensor) -> Self:
        """The net of one head whose logit is the weighted sum of this one's.  weights [heads]"""
        folded, n = self.fresh(), len(weights)
        for theirs, own in zip(folded._rows(), self._rows(), strict=True):
            theirs[-1] = weights @ own[-n:]
            theirs[:-1] = own[:-n]
        folded.out.copy_(self.out @ weights)
        folded.bias.copy_(self.bias @ weights)
        return folded._with_shared(self)

    def _rows(self) -> Iterator[torch.Tensor]:
        """What the layers LINES have of each of their outputs.  [outputs, ..]"""
        for name in self.LINES:
            layer = getattr(self, name)
            if isinstance(layer, nn.Parameter):
                yield layer.T
                continue
            yield layer.weight
            if layer.bias is not None:
                yield layer.bias

    def _with_shared(self, other: "LinedNet") -> Self:
        for name in self.SHARED:
            own, theirs = getattr(self, name), getattr(other, name)
            if isinstance(own, nn.Parameter):
                own.copy_(theirs)
            else:
                own.load_state_dict(theirs.state_dict())
        return self


def unseen_by(weights: torch.Tensor) -> torch.Tensor:
    """Takes from heads what their sum by these weights sees, and leaves the rest.  [n] -> [n, n]"""
    return torch.eye(len(weights)) - torch.outer(weights, weights) / weights.square().sum()
