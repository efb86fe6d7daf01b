"""Retrieval: the n ads of the corpus nearest to the user, exactly.

similarity(u, a) = sqrt(overlap) <u_g, a_g> + sqrt(1 - overlap) <u', a'> + popularity term,
with u', a' vectors of retrieval's own that say nothing about clicks: overlap is how much of what
retrieval looks for also moves the CTR. It sees the user alone, so a user's answer is computed at the
first visit and kept. No BLAS: a matrix product may change its last bits with the number of threads.
"""

import numpy as np

from cascade_sim import draws
from cascade_sim.kernels import dot_scores, pad_lanes, select_top
from cascade_sim.world.world import World

USERS_AT_ONCE = 64  # bounds the temporary table of similarities
KEPT_IDS = 100_000_000  # ids kept in all; beyond, the answers are computed anew for every block


class Retrieval:
    """Exact nearest ads by embedding similarity. Ties go to the smaller ad id."""

    def __init__(self, world: World, spec, popularity_weight: float = 0.0):
        u, a = world.user_features[spec.group], world.ad_features[spec.group]
        dims = np.arange(u.shape[1])[None, :]
        own_u = draws.normal(world.seed, "user.retrieval", np.arange(world.n_users)[:, None], dims)
        own_a = draws.normal(world.seed, "ad.retrieval", np.arange(world.n_ads)[:, None], dims)
        seen, own = np.sqrt(spec.overlap), np.sqrt(1.0 - spec.overlap)
        popularity = np.full((world.n_users, 1), popularity_weight)
        self._user = pad_lanes(np.hstack([seen * u, own * own_u, popularity]))
        self._ad = pad_lanes(np.hstack([a, own_a, world.popularity[:, None]]))
        self._ids = np.arange(world.n_ads, dtype=np.int32)
        self._kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # size -> answers [U, size], known [U]

    def __call__(self, users: np.ndarray, size: int) -> np.ndarray:
        """The pre-ranking set of each user, ad ids ascending.  [R] -> [R, min(size, A)] int32"""
        size = min(size, len(self._ids))
        if size not in self._kept and not self._has_room(size):
            asked, place = np.unique(users, return_inverse=True)
            return self.nearest(asked, size)[place]
        if size not in self._kept:
            self._kept[size] = (np.empty((len(self._user), size), np.int32), np.zeros(len(self._user), bool))
        answers, known = self._kept[size]
        new = np.unique(users[~known[users]])
        if len(new):
            # Two threads may compute the same user: they write the same values, and `known` comes last.
            answers[new] = self.nearest(new, size)
            known[new] = True
        return answers[users]

    def nearest(self, users: np.ndarray, size: int) -> np.ndarray:
        """The answers themselves, from the whole corpus.  [m] -> [m, size] int32, ids ascending"""
        answers = np.empty((len(users), size), np.int32)
        for start in range(0, len(users), USERS_AT_ONCE):
            part = users[start : start + USERS_AT_ONCE]
            ids = np.tile(self._ids, (len(part), 1))
            answers[start : start + len(part)] = select_top(
                ids, dot_scores(self._user[part], self._ad, ids), size
            )[0]
        return answers

    def nearest_first(self, users: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """The same ads, most similar first; of equals the smaller id.  [R], [R, m] ascending -> [R, m]"""
        distance = np.where(ids >= 0, -dot_scores(self._user[users], self._ad, ids), np.inf)
        order = np.argsort(distance, axis=1, kind="stable")
        return np.take_along_axis(ids, order, 1)

    def similarity(self, user: int) -> np.ndarray:
        """How near every ad is to this user.  [A] float32"""
        return dot_scores(self._user[user : user + 1], self._ad, self._ids[None, :])[0]

    def _has_room(self, size: int) -> bool:
        kept = sum(answers.size for answers, _ in self._kept.values())
        return kept + len(self._user) * size <= KEPT_IDS
