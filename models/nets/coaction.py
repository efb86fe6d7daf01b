"""The co-action network: the ranking stage's model.

The ad writes the weights of a small matrix that acts on the request (feature co-action: Bian et al.,
CAN, 2022), so user and ad meet in a product rather than in a sum:
    m = M(ad)^T p(request)                                   M(ad) [P, M], p [P]
    h = U(request) + A(ad) + m C + pair * w                  [H + 1]
    logit = <relu(h_1..H), o> + h_{H+1} + b                  the last column is a linear path
With several heads each has its own o, b and linear column of h, and all share the rest.
"""

import torch
from torch import nn

from cascade_sim.foundation.limits import COACTION_UNITS
from cascade_sim.models.nets.heads import HeadedNet, unseen_by


class CoAction(HeadedNet):
    """The built-in ranker. `hidden` = H; `dims` = P, the width of the request's projection."""

    UNITS = COACTION_UNITS

    def lay(self, request_width: int, ad_width: int, pair_width: int) -> None:
        width = self.hidden + self.heads
        self.project = nn.Linear(request_width, self.dims)
        self.ad_matrix = nn.Linear(ad_width, self.dims * self.UNITS)
        self.request_hidden = nn.Linear(request_width, width)
        self.ad_hidden = nn.Linear(ad_width, width)
        self.mix = nn.Linear(self.UNITS, width, bias=False)
        self.pair = nn.Parameter(torch.zeros(pair_width, width))
        self.out = nn.Parameter(torch.randn(self.hidden, *self.of_head) / self.hidden**0.5)
        self.bias = nn.Parameter(torch.zeros(self.of_head))

    def matrix(self, ads: torch.Tensor) -> torch.Tensor:
        """The matrix each ad writes, scaled so that units start near unit size.  [.., Fa] -> [.., P, M]"""
        flat = self.ad_matrix(ads) / self.dims**0.5
        return flat.unflatten(-1, (self.dims, self.UNITS))

    def forward(self, request: torch.Tensor, ads: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """[R, Fr], [R, n, Fa], [R, n, P] -> logits [R, n], of several heads [R, n, heads]"""
        # `matrix` with its scale on the other side, which has fewer numbers, and without a product of
        # matrices for every pair: a quarter less time.
        request_in = self.project(request) / self.dims**0.5
        matrix = self.ad_matrix(ads).unflatten(-1, (self.dims, self.UNITS))
        units = (request_in[:, None, :, None] * matrix).sum(-2)
        h = self.request_hidden(request)[:, None, :] + self.ad_hidden(ads) + self.mix(units)
        if pair.shape[-1]:
            h = h + pair @ self.pair
        if self.heads > 1:
            return torch.relu(h[..., : self.hidden]) @ self.out + h[..., self.hidden :] + self.bias
        return torch.relu(h[..., :-1]) @ self.out + h[..., -1] + self.bias

    @torch.no_grad()
    def widened(self, weights: torch.Tensor, drawn: bool = False) -> "CoAction":
        """The net whose heads are this one's logit times the weights [heads], to train on from.

        `drawn`: and as much of fresh draws as leaves the sum of the heads by these weights as it is.
        """
        wide = self.fresh(len(weights))
        kept, joined = slice(None, self.hidden), slice(self.hidden, None)
        free = unseen_by(weights) if drawn else torch.zeros(len(weights), len(weights))
        for theirs, own in (
            (wide.request_hidden, self.request_hidden),
            (wide.ad_hidden, self.ad_hidden),
            (wide.mix, self.mix),
        ):
            heads = torch.outer(weights, own.weight[-1]) + free @ theirs.weight[joined]
            theirs.weight.copy_(torch.cat([own.weight[kept], heads]))
            if own.bias is not None:
                heads = weights * own.bias[-1] + free @ theirs.bias[joined]
                theirs.bias.copy_(torch.cat([own.bias[kept], heads]))
        wide.pair.copy_(torch.cat([self.pair[:, kept], torch.outer(self.pair[:, -1], weights)], dim=1))
        wide.out.copy_(torch.outer(self.out, weights) + wide.out @ free)
        wide.bias.copy_(self.bias * weights)
        wide.project.load_state_dict(self.project.state_dict())
        wide.ad_matrix.load_state_dict(self.ad_matrix.state_dict())
        return wide

    @torch.no_grad()
    def folded(self, weights: torch.Tensor) -> "CoAction":
        """The net of one head whose logit is the weighted sum of this one's.  weights [heads]"""
        folded = self.fresh()
        kept, joined = slice(None, self.hidden), slice(self.hidden, None)
        for theirs, own in (
            (folded.request_hidden, self.request_hidden),
            (folded.ad_hidden, self.ad_hidden),
            (folded.mix, self.mix),
        ):
            theirs.weight.copy_(torch.cat([own.weight[kept], (weights @ own.weight[joined])[None]]))
            if own.bias is not None:
                theirs.bias.copy_(torch.cat([own.bias[kept], (weights @ own.bias[joined])[None]]))
        folded.pair.copy_(torch.cat([self.pair[:, kept], (self.pair[:, joined] @ weights)[:, None]], dim=1))
        folded.out.copy_(self.out @ weights)
        folded.bias.copy_(self.bias @ weights)
        folded.project.load_state_dict(self.project.state_dict())
        folded.ad_matrix.load_state_dict(self.ad_matrix.state_dict())
        return folded
