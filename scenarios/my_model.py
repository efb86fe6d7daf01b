"""What this is: a pre-ranker of one's own. What to do with it: change the net, name it in a scenario as
`kind: path/to/my_model.py:CrossedTowers` (from the working folder or beside the scenario), and test it first:

    python -m cascade_sim check-model my_model.py:CrossedTowers
"""

import torch
from torch import nn


class CrossedTowers(nn.Module):
    """A factorisation machine with a small net on top of its products.

    u = U request, a = A ad [D];  logit = sum(u * a) + <w, relu(M (u * a))> + linear terms + bias.
    Two towers only add their products up; here the net may also weigh them against each other.
    """

    # The engine gives the widths of the features the scenario lists; what follows comes from `options`.
    def __init__(self, request_width: int, ad_width: int, pair_width: int, dims: int = 12, hidden: int = 8):
        super().__init__()
        self.request_side = nn.Linear(request_width, dims + 1)  # D factors and one linear term
        self.ad_side = nn.Linear(ad_width, dims + 1)
        self.pair_side = nn.Linear(pair_width, 1, bias=False) if pair_width else None
        self.mix = nn.Linear(dims, hidden)
        self.out = nn.Linear(hidden, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(()))  # a scalar of this name starts at the mean click rate

    # Optional. What depends on the ad alone is then computed once per deployment, not once per request.
    def encode_ads(self, ads: torch.Tensor) -> torch.Tensor:
        """[.., Fa] -> [.., D+1]"""
        return self.ad_side(ads)

    def forward(self, request: torch.Tensor, ads: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """[R, Fr], [R, n, D+1] (without encode_ads: [R, n, Fa]), [R, n, P] -> logits [R, n]"""
        user = self.request_side(request).unsqueeze(1)  # [R, 1, D+1]
        product = user[..., :-1] * ads[..., :-1]  # [R, n, D]
        crossed = self.out(torch.relu(self.mix(product))).squeeze(-1)  # not squeeze(): n or R may be 1
        logit = product.sum(-1) + crossed + user[..., -1] + ads[..., -1] + self.bias
        return logit if self.pair_side is None else logit + self.pair_side(pair).squeeze(-1)
