"""Retrieval by similarity: the n ads nearest to the user, exactly unless the scenario says otherwise.

similarity(u, a) = sqrt(overlap) <u_g, a_g> + sqrt(1 - overlap) <u', a'> + popularity term,
with u', a' vectors of retrieval's own that say nothing about clicks: overlap is how much of what
retrieval looks for also moves the CTR. It sees the user alone.
"""

from typing import Any

import numpy as np

from cascade_sim.cascade.retrievers.by_user import UserRetrieval
from cascade_sim.cascade.retrievers.inner_product import AdIndex
from cascade_sim.foundation import random as draws
from cascade_sim.protocols import Retriever
from cascade_sim.world.world import World


def best_first(retriever: Retriever, block: Any, ids: np.ndarray) -> np.ndarray:
    """The same ads in a retriever's own order; of equals the smaller id.  [R, m] ascending -> [R, m]"""
    worst_last = np.where(ids >= 0, -retriever.score(block, ids), np.inf)
    return np.take_along_axis(ids, np.argsort(worst_last, axis=1, kind="stable"), 1)


class Retrieval(UserRetrieval):
    """Nearest ads by embedding similarity. Ties go to the smaller ad id.

    Exact, or with `probes` from a part of the corpus (`inverted_lists`).
    """

    name = "similarity"

    def __init__(self, world: World, spec, popularity_weight: float = 0.0):
        u, a = world.user_features[spec.group], world.ad_features[spec.group]
        dims = np.arange(u.shape[1])[None, :]
        seen, own = np.sqrt(spec.overlap), np.sqrt(1.0 - spec.overlap)
        users = np.empty((world.n_users, 2 * u.shape[1] + 1), np.float32)
        for at in draws.parts(world.n_users):
            own_u = draws.normal(world.seed, "user.retrieval", np.arange(at.start, at.stop)[:, None], dims)
            weight = np.full((at.stop - at.start, 1), popularity_weight)
            users[at] = np.hstack([seen * u[at], own * own_u, weight])

        def of_ads(at: slice) -> np.ndarray:
            own_a = draws.normal(world.seed, "ad.retrieval", np.arange(at.start, at.stop)[:, None], dims)
            return np.hstack([a[at], own_a, world.popularity[at, None]]).astype(np.float32)

        index = AdIndex(world.n_ads, users.shape[1], of_ads, spec.probes, world.seed)
        super().__init__(users, index)
