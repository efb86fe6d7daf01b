"""Two towers and a dot product: the model a pre-ranking stage can afford.

logit = <u(request), a(ad)> + b_u(request) + b_a(ad) + b.  Each tower is a linear map plus a small
ReLU layer. The ad side does not depend on the request, so it is computed once per deployment.
"""

import torch
from torch import nn


class Tower(nn.Module):
    """x -> V x + W2 relu(W1 x): a linear path and a curved one.  [.., F] -> [.., D]"""

    def __init__(self, width: int, hidden: int, dims: int):
        super().__init__()
        self.linear = nn.Linear(width, dims)
        self.inner = nn.Linear(width, hidden)
        self.outer = nn.Linear(hidden, dims, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.outer(torch.relu(self.inner(x)))


class TwoTowers(nn.Module):
    """The built-in pre-ranking model. `dims` is the width of the dot product."""

    def __init__(self, request_width: int, ad_width: int, pair_width: int, hidden: int = 32, dims: int = 14):
        super().__init__()
        self.request_tower = Tower(request_width, hidden, dims + 1)
        self.ad_tower = Tower(ad_width, hidden, dims + 1)
        self.bias = nn.Parameter(torch.zeros(()))

    def request_code(self, request: torch.Tensor) -> torch.Tensor:
        """[R, Fr] -> [R, D+2]: (u, b_u, 1)"""
        code = self.request_tower(request)
        return torch.cat([code, torch.ones_like(code[..., :1])], dim=-1)

    def ad_code(self, ads: torch.Tensor) -> torch.Tensor:
        """[.., Fa] -> [.., D+2]: (a, 1, b_a + b), so that logit = <request_code, ad_code>"""
        code = self.ad_tower(ads)
        return torch.cat([code[..., :-1], torch.ones_like(code[..., :1]), code[..., -1:] + self.bias], dim=-1)

    def forward(self, request: torch.Tensor, ads: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """[R, Fr], [R, n, Fa], [R, n, P] -> logits [R, n]. The pair features are not used."""
        return (self.request_code(request).unsqueeze(1) * self.ad_code(ads)).sum(-1)
