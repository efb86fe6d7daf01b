"""Nets whose logit is an inner product of a code of the request and a code of the ad.

logit(request, ad) = <u(request), v(ad)>, so the ads with the highest logits can be searched for in the
corpus (maximum inner product), and every request of a batch can be scored against every ad of it at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from cascade_sim.models.nets.towers import TwoTowers

Encoder = Callable[[torch.Tensor], torch.Tensor]


def encoders(module: nn.Module) -> tuple[Encoder, Encoder] | None:
    """The request's and the ad's encoder: [R, Fr] -> [R, D] and [.., Fa] -> [.., D]; None: it has none.

    Those of the built-in towers, or `encode_users` and `encode_ads` of a custom class.

    >>> u, v = encoders(TwoTowers(3, 5, 0))
    >>> u(torch.zeros(2, 3)).shape[1] == v(torch.zeros(7, 5)).shape[1]
    True
    """
    if isinstance(module, TwoTowers):
        return (module.request_code, module.ad_code) if module.heads == 1 else None
    users, ads = getattr(module, "encode_users", None), getattr(module, "encode_ads", None)
    return (users, ads) if callable(users) and callable(ads) else None
