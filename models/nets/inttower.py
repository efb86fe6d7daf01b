"""Interaction towers: each layer of the request's tower meets the ad's last one (Li et al., IntTower, 2022).

    z_1 = x, z_2 = relu(W x)                                 the request's layers, the first its features
    u_l^h = U_l^h z_l                                        heads h = 1..4 of layer l               [D]
    v^h = V^h y + T^h relu(S y)                              heads of the ad's last layer            [D]
    logit = Σ_l Σ_h o_lh max_h' <u_l^h, v^h'> + b_u(x) + b_a(y) + b
Both sides are computed apart, the ad's once per deployment; only the maxima are of the pair. In the paper
all layers are curved and every o_lh is 1, where they start here; the linear paths are those of the built-in
towers, without which nets of this size learn less. With several heads of an objective each has its own o's
and b's.
"""

import torch
from torch import nn

from cascade_sim.foundation.limits import INTTOWER_HEADS
from cascade_sim.foundation.net_shapes import INTTOWER_LAYERS
from cascade_sim.models.nets.heads import LinedNet
from cascade_sim.models.nets.towers import Tower


class InterTowers(LinedNet):
    """Towers of medium cost. `hidden`: the width of W and S; `dims` = D, the length of a head's code."""

    LAYERS, CODES = INTTOWER_LAYERS, INTTOWER_HEADS
    LINES, SHARED = ("request_line", "ad_line"), ("request_layer", "request_codes", "ad_tower")

    def lay(self, request_width: int, ad_width: int, pair_width: int) -> None:
        coded = self.CODES * self.dims
        self.request_layer = nn.Linear(request_width, self.hidden)
        widths = (request_width, self.hidden)
        self.request_codes = nn.ModuleList(nn.Linear(width, coded) for width in widths)
        self.ad_tower = Tower(ad_width, self.hidden, coded)
        self.request_line = nn.Linear(request_width, self.heads)
        self.ad_line = nn.Linear(ad_width, self.heads)
        self.out = nn.Parameter(torch.ones(self.LAYERS * self.CODES, *self.of_head))
        self.bias = nn.Parameter(torch.zeros(self.of_head))

    def request_code(self, request: torch.Tensor) -> torch.Tensor:
        """The heads of every layer, those of a layer side by side.  [R, Fr] -> [R, L H, D]"""
        layers = (request, torch.relu(self.request_layer(request)))
        codes = [code(layer) for code, layer in zip(self.request_codes, layers, strict=True)]
        return torch.cat(codes, dim=-1).unflatten(-1, (self.LAYERS * self.CODES, self.dims))

    def ad_code(self, ads: torch.Tensor) -> torch.Tensor:
        """The heads of the last layer.  [.., Fa] -> [.., H, D]"""
        return self.ad_tower(ads).unflatten(-1, (self.CODES, self.dims))

    def forward(self, request: torch.Tensor, ads: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """[R, Fr], [R, n, Fa], [R, n, P] -> logits [R, n], of several heads [R, n, heads].

        The pair features are not used.
        """
        met = torch.einsum("rld,rnhd->rnlh", self.request_code(request), self.ad_code(ads))
        lines = self.request_line(request)[:, None, :] + self.ad_line(ads)
        return self.logits(met.amax(-1), lines)
