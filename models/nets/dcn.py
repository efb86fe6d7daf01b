"""A deep and cross network: products of any two inputs, learned at low rank (Wang et al., DCN V2, 2021).

    x_0 = [request, ad, pair]                                           [F]
    x_{l+1} = x_0 * (U_l (V_l^T x_l) + b_l) + x_l                       U_l, V_l [F, R]
    logit = <x_L, c> + <relu(W x_0 + d), o> + b
Each cross layer raises the degree of the products by one; the hidden layer beside them learns the rest. With
several heads each has its own c, o and b, and all share the rest.
"""

import torch
from torch import nn

from cascade_sim.models.nets.heads import HeadedNet, unseen_by


class CrossNet(HeadedNet):
    """The built-in ranker of crossed features. `hidden`: the width of W; `dims` = R, the rank of a cross."""

    CROSSES = 2

    def lay(self, request_width: int, ad_width: int, pair_width: int) -> None:
        width = request_width + ad_width + pair_width
        self.down = nn.ModuleList(nn.Linear(width, self.dims, bias=False) for _ in range(self.CROSSES))
        self.up = nn.ModuleList(nn.Linear(self.dims, width) for _ in range(self.CROSSES))
        self.deep = nn.Linear(width, self.hidden)
        self.out_crossed = nn.Linear(width, self.heads, bias=False)
        self.out_deep = nn.Linear(self.hidden, self.heads, bias=False)
        self.bias = nn.Parameter(torch.zeros(self.of_head))

    def forward(self, request: torch.Tensor, ads: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """[R, Fr], [R, n, Fa], [R, n, P] -> logits [R, n], of several heads [R, n, heads]"""
        given = torch.cat([request.unsqueeze(1).expand(-1, ads.shape[1], -1), ads, pair], dim=-1)
        crossed = given
        for down, up in zip(self.down, self.up, strict=True):
            crossed = crossed + given * up(down(crossed))
        outputs = self.out_crossed(crossed) + self.out_deep(torch.relu(self.deep(given)))
        return (outputs if self.heads > 1 else outputs.squeeze(-1)) + self.bias

    @torch.no_grad()
    def widened(self, weights: torch.Tensor, drawn: bool = False) -> "CrossNet":
        """The net whose heads are this one's logit times the weights [heads], to train on from.

        `drawn`: and as much of fresh draws as leaves the sum of the heads by these weights as it is.
        """
        wide = self._with_heads(weights[:, None])
        if drawn:
            fresh, free = self.fresh(len(weights)), unseen_by(weights)
            for theirs, drawn_ones in (
                (wide.out_crossed, fresh.out_crossed),
                (wide.out_deep, fresh.out_deep),
            ):
                theirs.weight.add_(free @ drawn_ones.weight)
        return wide

    def folded(self, weights: torch.Tensor) -> "CrossNet":
        """The net of one head whose logit is the weighted sum of this one's.  weights [heads]"""
        return self._with_heads(weights[None, :])

    @torch.no_grad()
    def _with_heads(self, mix: torch.Tensor) -> "CrossNet":
        """The net whose heads are sums of this one's.  mix [new heads, heads]"""
        other = self.fresh(len(mix))
        for name in ("down", "up", "deep"):
            getattr(other, name).load_state_dict(getattr(self, name).state_dict())
        other.out_crossed.weight.copy_(mix @ self.out_crossed.weight)
        other.out_deep.weight.copy_(mix @ self.out_deep.weight)
        other.bias.copy_((mix @ self.bias.reshape(-1)).reshape(other.bias.shape))
        return other
