"""A small full net with cross features and a gate for each group of features (Wang et al., COLD, 2020).

    c = P x * Q y                                                       cross features          [D]
    s = sigmoid(G_x x + G_y y + G_c c + pair G_p + g)                   a gate of each group    [4]
    h = s_1 U x + s_2 V y + s_3 W c + s_4 pair w + d                                            [H + 1]
    logit = <relu(h_1..H), o> + h_{H+1} + b                             the last column is a linear path
x are the request's features, y the ad's: the groups are request, ad, crosses and pair features. The gate
(squeeze and excitation) says of a pair which groups count. What is linear in x or in y alone is computed
apart, of the ad once per deployment; crosses, gates and the hidden layer are of the pair. With several heads
each has its own o, b and linear column of h, and all share the rest.
"""

import torch
from torch import nn

from cascade_sim.foundation.net_shapes import COLD_GROUPS
from cascade_sim.models.nets.heads import LinedNet


class GatedNet(LinedNet):
    """A net of medium cost. `hidden` = H; `dims` = D, the number of cross features."""

    GROUPS = COLD_GROUPS
    LINES = ("request_hidden", "ad_hidden", "cross_hidden", "pair", "shift")
    SHARED = ("request_cross", "ad_cross", "request_gate", "ad_gate", "cross_gate", "pair_gate")

    def lay(self, request_width: int, ad_width: int, pair_width: int) -> None:
        width = self.hidden + self.heads
        self.request_cross = nn.Linear(request_width, self.dims)
        self.ad_cross = nn.Linear(ad_width, self.dims)
        self.request_gate = nn.Linear(request_width, self.GROUPS)
        self.ad_gate = nn.Linear(ad_width, self.GROUPS, bias=False)
        self.cross_gate = nn.Linear(self.dims, self.GROUPS, bias=False)
        self.pair_gate = nn.Parameter(torch.zeros(pair_width, self.GROUPS))
        self.request_hidden = nn.Linear(request_width, width, bias=False)
        self.ad_hidden = nn.Linear(ad_width, width, bias=False)
        self.cross_hidden = nn.Linear(self.dims, width, bias=False)
        self.pair = nn.Parameter(torch.zeros(pair_width, width))
        self.shift = nn.Parameter(torch.zeros(1, width))
        self.out = nn.Parameter(torch.randn(self.hidden, *self.of_head) / self.hidden**0.5)
        self.bias = nn.Parameter(torch.zeros(self.of_head))

    def forward(self, request: torch.Tensor, ads: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """[R, Fr], [R, n, Fa], [R, n, P] -> logits [R, n], of several heads [R, n, heads]"""
        cross = self.request_cross(request)[:, None, :] * self.ad_cross(ads)
        gate = self.request_gate(request)[:, None, :] + self.ad_gate(ads) + self.cross_gate(cross)
        if pair.shape[-1]:
            gate = gate + pair @ self.pair_gate
        of_request, of_ad, of_cross, of_pair = torch.sigmoid(gate).split(1, dim=-1)
        h = of_request * self.request_hidden(request)[:, None, :] + of_ad * self.ad_hidden(ads)
        h = h + of_cross * self.cross_hidden(cross) + self.shift[0]
        if pair.shape[-1]:
            h = h + of_pair * (pair @ self.pair)
        return self.logits(torch.relu(h[..., : self.hidden]), h[..., self.hidden :])
