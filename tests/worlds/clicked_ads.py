"""Users, ads and clicks of a known law, and a net to learn them."""

import numpy as np
import torch

from cascade_sim.models.features import make_view
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.models.training import (
    predict,
)

USERS, ADS = 60, 90


def features(rng):
    user = {"user": rng.standard_normal((USERS, 1)), "G1": rng.standard_normal((USERS, 3))}
    ad = {"quality": rng.standard_normal((ADS, 1)), "G1": rng.standard_normal((ADS, 3))}
    user["mismatch"], ad["mismatch"] = rng.standard_normal((USERS, 2)), rng.standard_normal((ADS, 2))
    return ({k: v.astype(np.float32) for k, v in side.items()} for side in (user, ad))


RNG = np.random.default_rng(0)


USER, AD = features(RNG)


VIEW = make_view(("user", "context", "quality", "G1", "mismatch_pair"), USER, AD, 0.0)


LOGIT = -0.5 + AD["quality"][:, 0] + 1.2 * USER["G1"] @ AD["G1"].T / np.sqrt(3)  # [USERS, ADS]


def net(kind=TwoTowers, seed=1):
    torch.manual_seed(seed)
    return kind(VIEW.request_width, VIEW.ad_width, VIEW.pair_width, hidden=16, dims=6)


def logits(module, users, ads):
    request = VIEW.request_features(users, np.zeros(len(users), np.float32))
    pair = VIEW.pair_features(users, ads)
    with torch.no_grad():
        inputs = (torch.from_numpy(request), torch.from_numpy(VIEW.ad_table[ads]), torch.from_numpy(pair))
        return predict(module, *inputs).numpy()
