"""Interaction towers: each layer of the request's tower meets the ad's last one (Li et al., IntTower, 2022).

    z_1 = relu(W_1 x), z_2 = relu(W_2 z_1)                             the request's layers, x its features
    u_l^h = U_l^h z_l                                                  heads h = 1..4 of layer l       [D]
    v^h = V^h y_2                                                      heads of the ad's last layer    [D]
    logit = Σ_l Σ_h o_lh max_h' <u_l^h, v^h'> + b_u(x) + b_a(y) + b    each head of the request with its best
Both sides are computed apart, the ad's once per deployment; only the maxima are of the pair. An o_lh is 1 at
the start: the paper's score is without. With several heads of an objective each has its own o's and b's.
"""

import torch
from torch import nn

from cascade_sim.foundation.limits import INTTOWER_HEADS, INTTOWER_LAYERS
from cascade_sim.models.nets.heads import LinedNet


class InterTowers(LinedNet):
    """Towers of medium cost. `hidden`: the width of their layers; `dims` = D, the length of a head's code."""

    LAYERS, CODES = INTTOWER_LAYERS, INTTOWER_HEADS
    LINES, SHARED = ("request_line", "ad_line"), ("request_layers", "request_codes", "ad_layers", "ad_codes")

    def lay(self, request_width: int, ad_width: int, pair_width: int) -> None:
        self.request_layers = self._layers(request_width)
        self.ad_layers = self._layers(ad_width)
        coded = self.CODES * self.dims
        self.request_codes = nn.ModuleList(nn.Linear(self.hidden, coded) for _ in range(self.LAYERS))
        self.ad_codes = nn.Linear(self.hidden, coded)
        self.request_line = nn.Linear(request_width, self.heads)
        self.ad_line = nn.Linear(ad_width, self.heads)
        self.out = nn.Parameter(torch.ones(self.LAYERS * self.CODES, *self.of_head))
        self.bias = nn.Parameter(torch.zeros(self.of_head))

    def _layers(self, width: int) -> nn.ModuleList:
        widths = [width, *[self.hidden] * (self.LAYERS - 1)]
        return nn.ModuleList(nn.Linear(own, self.hidden) for own in widths)

    def request_code(self, request: torch.Tensor) -> torch.Tensor:
        """The heads of every layer, those of a layer side by side.  [R, Fr] -> [R, L H, D]"""
        codes = []
        for layer, code in zip(self.request_layers, self.request_codes, strict=True):
            request = torch.relu(layer(request))
            codes.append(code(request).unflatten(-1, (self.CODES, self.dims)))
        return torch.cat(codes, dim=-2)

    def ad_code(self, ads: torch.Tensor) -> torch.Tensor:
        """The heads of the last layer.  [.., Fa] -> [.., H, D]"""
        for layer in self.ad_layers:
            ads = torch.relu(layer(ads))
        return self.ad_codes(ads).unflatten(-1, (self.CODES, self.dims))

    def forward(self, request: torch.Tensor, ads: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """[R, Fr], [R, n, Fa], [R, n, P] -> logits [R, n], of several heads [R, n, heads].

        The pair features are not used.
        """
        met = torch.einsum("rld,rnhd->rnlh", self.request_code(request), self.ad_code(ads))
        lines = self.request_line(request)[:, None, :] + self.ad_line(ads)
        return self.logits(met.amax(-1), lines)
