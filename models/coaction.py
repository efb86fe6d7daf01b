"""The co-action network: the ranking stage's model.

The ad writes the weights of a small matrix that acts on the request (feature co-action: Bian et al.,
CAN, 2022), so user and ad meet in a product rather than in a sum:
    m = M(ad)^T p(request)                                   M(ad) [P, M], p [P]
    h = U(request) + A(ad) + m C + pair * w                  [H + 1]
    logit = <relu(h_1..H), o> + h_{H+1} + b                  the last column is a linear path
"""

import torch
from torch import nn


class CoAction(nn.Module):
    """The built-in ranker. `hidden` = H; `dims` = P, the width of the request's projection."""

    UNITS = 8

    def __init__(self, request_width: int, ad_width: int, pair_width: int, hidden: int = 32, dims: int = 16):
        super().__init__()
        self.dims = dims
        self.project = nn.Linear(request_width, dims)
        self.ad_matrix = nn.Linear(ad_width, dims * self.UNITS)
        self.request_hidden = nn.Linear(request_width, hidden + 1)
        self.ad_hidden = nn.Linear(ad_width, hidden + 1)
        self.mix = nn.Linear(self.UNITS, hidden + 1, bias=False)
        self.pair = nn.Parameter(torch.zeros(pair_width, hidden + 1))
        self.out = nn.Parameter(torch.randn(hidden) / hidden**0.5)
        self.bias = nn.Parameter(torch.zeros(()))

    def matrix(self, ads: torch.Tensor) -> torch.Tensor:
        """The matrix each ad writes, scaled so that units start near unit size.  [.., Fa] -> [.., P, M]"""
        flat = self.ad_matrix(ads) / self.dims**0.5
        return flat.unflatten(-1, (self.dims, self.UNITS))

    def forward(self, request: torch.Tensor, ads: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """[R, Fr], [R, n, Fa], [R, n, P] -> logits [R, n]"""
        units = torch.matmul(self.project(request)[:, None, None, :], self.matrix(ads)).squeeze(-2)
        h = self.request_hidden(request)[:, None, :] + self.ad_hidden(ads) + self.mix(units)
        if pair.shape[-1]:
            h = h + pair @ self.pair
        return torch.relu(h[..., :-1]) @ self.out + h[..., -1] + self.bias
