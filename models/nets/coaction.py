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
from cascade_sim.models.nets.heads import LinedNet


class CoAction(LinedNet):
    """The built-in ranker. `hidden` = H; `dims` = P, the width of the request's projection."""

    UNITS = COACTION_UNITS
    LINES, SHARED = ("request_hidden", "ad_hidden", "mix", "pair"), ("project", "ad_matrix")

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
        return self.logits(torch.relu(h[..., : self.hidden]), h[..., self.hidden :])
