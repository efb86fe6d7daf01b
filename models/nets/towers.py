"""Two towers and a dot product: the model a pre-ranking stage can afford.

logit = <u(request), a(ad)> + b_u(request) + b_a(ad) + b.  Each tower is a linear map plus a small
ReLU layer. The ad side does not depend on the request, so it is computed once per deployment.
With several heads each weighs the products of the dot product in its own way and has its own b's.
"""

import torch
from torch import nn

from cascade_sim.models.nets.heads import HeadedNet, unseen_by


class Tower(nn.Module):
    """x -> V x + W2 relu(W1 x): a linear path and a curved one.  [.., F] -> [.., D]"""

    def __init__(self, width: int, hidden: int, dims: int):
        super().__init__()
        self.linear = nn.Linear(width, dims)
        self.inner = nn.Linear(width, hidden)
        self.outer = nn.Linear(hidden, dims, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.outer(torch.relu(self.inner(x)))


class TwoTowers(HeadedNet):
    """The built-in pre-ranking model. `dims` is the width of the dot product."""

    def lay(self, request_width: int, ad_width: int, pair_width: int) -> None:
        self.request_tower = Tower(request_width, self.hidden, self.dims + self.heads)
        self.ad_tower = Tower(ad_width, self.hidden, self.dims + self.heads)
        self.bias = nn.Parameter(torch.zeros(self.of_head))
        if self.heads > 1:
            self.head_weight = nn.Parameter(1.0 + torch.randn(self.dims, self.heads) / self.dims**0.5)

    def request_code(self, request: torch.Tensor) -> torch.Tensor:
        """[R, Fr] -> [R, D+2]: (u, b_u, 1)"""
        code = self.request_tower(request)
        return torch.cat([code, torch.ones_like(code[..., :1])], dim=-1)

    def ad_code(self, ads: torch.Tensor) -> torch.Tensor:
        """[.., Fa] -> [.., D+2]: (a, 1, b_a + b), so that logit = <request_code, ad_code>"""
        code = self.ad_tower(ads)
        return torch.cat([code[..., :-1], torch.ones_like(code[..., :1]), code[..., -1:] + self.bias], dim=-1)

    def forward(self, request: torch.Tensor, ads: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """[R, Fr], [R, n, Fa], [R, n, P] -> logits [R, n], of several heads [R, n, heads].

        The pair features are not used.
        """
        if self.heads > 1:
            request_code, ad_code = self.request_tower(request).unsqueeze(1), self.ad_tower(ads)
            products = request_code[..., : self.dims] * ad_code[..., : self.dims]
            own = request_code[..., self.dims :] + ad_code[..., self.dims :] + self.bias
            return products @ self.head_weight + own
        return (self.request_code(request).unsqueeze(1) * self.ad_code(ads)).sum(-1)

    @torch.no_grad()
    def widened(self, weights: torch.Tensor, drawn: bool = False) -> "TwoTowers":
        """The net whose heads are this one's logit times the weights [heads], to train on from.

        `drawn`: and as much of fresh draws as leaves the sum of the heads by these weights as it is.
        """
        wide = self.fresh(len(weights))
        free = unseen_by(weights) if drawn else torch.zeros(len(weights), len(weights))

        def widen(rows: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
            """The last row once for each head, times its weight.  [dims + 1, ..] -> [dims + heads, ..]"""
            heads = torch.stack([weight * rows[-1] for weight in weights])
            return torch.cat([rows[:-1], heads + free @ fresh[self.dims :]])

        for theirs, own in (
            (wide.request_tower, self.request_tower),
            (wide.ad_tower, self.ad_tower),
        ):
            theirs.inner.load_state_dict(own.inner.state_dict())
            theirs.linear.weight.copy_(widen(own.linear.weight, theirs.linear.weight))
            theirs.linear.bias.copy_(widen(own.linear.bias, theirs.linear.bias))
            theirs.outer.weight.copy_(widen(own.outer.weight, theirs.outer.weight))
        wide.head_weight.copy_(weights.expand(self.dims, -1) + wide.head_weight @ free)
        wide.bias.copy_(self.bias * weights)
        return wide

    @torch.no_grad()
    def folded(self, weights: torch.Tensor) -> "TwoTowers":
        """The net of one head whose logit is the weighted sum of this one's.  weights [heads]"""
        folded = self.fresh()
        request_scale, ad_scale = torch.ones(self.dims), self.head_weight @ weights
        for theirs, own, scale in (
            (folded.request_tower, self.request_tower, request_scale),
            (folded.ad_tower, self.ad_tower, ad_scale),
        ):

            def fold(rows: torch.Tensor, scale: torch.Tensor = scale) -> torch.Tensor:
                """The heads' rows as one, by their weights.  [dims + heads, ..] -> [dims + 1, ..]"""
                kept = rows[: self.dims] * scale.reshape(-1, *[1] * (rows.dim() - 1))
                return torch.cat([kept, (weights @ rows[self.dims :])[None]])

            theirs.inner.load_state_dict(own.inner.state_dict())
            theirs.linear.weight.copy_(fold(own.linear.weight))
            theirs.linear.bias.copy_(fold(own.linear.bias))
            theirs.outer.weight.copy_(fold(own.outer.weight))
        folded.bias.copy_(self.bias @ weights)
        return folded
