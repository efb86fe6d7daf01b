"""Retrieval: the n ads of the corpus nearest to the user, exactly.

similarity(u, a) = sqrt(overlap) <u_g, a_g> + sqrt(1 - overlap) <u', a'> + popularity term,
with u', a' vectors of retrieval's own that say nothing about clicks: overlap is how much of what
retrieval looks for also moves the CTR. It sees the user alone, so a user's answer is computed once
and kept. Users are always computed in the same groups of 64, so that matrix products have one shape.
"""

import numpy as np

from cascade_sim import draws
from cascade_sim.kernels import select_top
from cascade_sim.world import World

USERS_AT_ONCE = 64
KEPT_IDS = 100_000_000  # beyond this many ids the answers are computed anew for every block


class Retrieval:
    """Exact nearest ads by embedding similarity. Ties go to the smaller ad id."""

    def __init__(self, world: World, spec, popularity_weight: float = 0.0):
        u, a = world.user_features[spec.group], world.ad_features[spec.group]
        dims = np.arange(u.shape[1])[None, :]
        own_u = draws.normal(world.seed, "user.retrieval", np.arange(world.n_users)[:, None], dims)
        own_a = draws.normal(world.seed, "ad.retrieval", np.arange(world.n_ads)[:, None], dims)
        seen, own = np.sqrt(spec.overlap), np.sqrt(1.0 - spec.overlap)
        self._user = np.hstack(
            [seen * u, own * own_u, np.full((world.n_users, 1), popularity_weight)]
        ).astype(np.float32)
        self._ad = np.ascontiguousarray(np.hstack([a, own_a, world.popularity[:, None]]).astype(np.float32).T)
        self._ids = np.arange(world.n_ads, dtype=np.int32)
        self._kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, users: np.ndarray, size: int) -> np.ndarray:
        """The pre-ranking set of each user, ad ids ascending.  [R] -> [R, min(size, A)] int32"""
        size = min(size, len(self._ids))
        groups = np.unique(users // USERS_AT_ONCE)
        if len(self._user) * size > KEPT_IDS:
            table = {int(g): self._answer(int(g), size) for g in groups}
            return np.stack([table[u // USERS_AT_ONCE][u % USERS_AT_ONCE] for u in users.tolist()])
        if size not in self._kept:
            known = np.zeros(-(-len(self._user) // USERS_AT_ONCE), dtype=bool)
            self._kept[size] = (np.empty((len(self._user), size), np.int32), known)
        kept, known = self._kept[size]
        for g in groups[~known[groups]]:
            # Two threads may compute the same group: they write the same values.
            kept[g * USERS_AT_ONCE : (g + 1) * USERS_AT_ONCE] = self._answer(int(g), size)
            known[g] = True
        return kept[users]

    def similarity(self, user: int) -> np.ndarray:
        """How near every ad is to this user, as retrieval sees it.  [A] float32"""
        return self._group_similarity(user // USERS_AT_ONCE)[user % USERS_AT_ONCE]

    def _group_similarity(self, group: int) -> np.ndarray:
        """[64, A]; rows beyond the last user are zero, so that the product always has one shape."""
        query = np.zeros((USERS_AT_ONCE, self._user.shape[1]), np.float32)
        rows = self._user[group * USERS_AT_ONCE : (group + 1) * USERS_AT_ONCE]
        query[: len(rows)] = rows
        return query @ self._ad

    def _answer(self, group: int, size: int) -> np.ndarray:
        similarity = self._group_similarity(group)
        ids = np.broadcast_to(self._ids, similarity.shape)
        n_users = min(USERS_AT_ONCE, len(self._user) - group * USERS_AT_ONCE)
        return select_top(ids, similarity, size)[0][:n_users]
