"""Feature views: which columns of the world a model may look at.

A view joins the visible features into one matrix per side. Request side: user features and the
context of the request; ad side: ad features; pair side: features of (user, ad) that only an
expensive stage can afford. Everything a model predicts, it predicts from a view. Ids are no columns of a
matrix: a view says which of them are seen, and a net has embedding tables for them (nets/ids.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cascade_sim.models.known import check_known
from cascade_sim.models.lazy import np

PAIR_FEATURE = "mismatch_pair"
ID_FEATURES = ("user_id", "ad_id", "advertiser_id")
HISTORY = "history"


@dataclass(frozen=True)
class FeatureView:
    """Visible features. user_table [U, Fu], ad_table [A, Fa] float32; context adds one request column."""

    names: tuple[str, ...]
    user_table: np.ndarray
    ad_table: np.ndarray
    has_context: bool
    pair_user: np.ndarray | None  # [U, d], already divided by sqrt(d)
    pair_ad: np.ndarray | None  # [A, d]
    pair_threshold: float
    advertiser: np.ndarray | None = None  # [A] int32, where advertiser_id is seen
    n_advertisers: int = 0
    history: np.ndarray | None = None  # [U, L] int32: ads, -1 for none; where history is seen

    @property
    def id_sizes(self) -> dict[str, int]:
        """How many there are of each id that is seen."""
        sizes = (len(self.user_table), len(self.ad_table), self.n_advertisers)
        return {name: n for name, n in zip(ID_FEATURES, sizes, strict=True) if name in self.names}

    @property
    def has_ids(self) -> bool:
        """Whether a net needs embedding tables to see all of it."""
        return bool(self.id_sizes) or self.history is not None

    @property
    def request_width(self) -> int:
        return self.user_table.shape[1] + int(self.has_context)

    @property
    def ad_width(self) -> int:
        return self.ad_table.shape[1]

    @property
    def pair_width(self) -> int:
        return 0 if self.pair_user is None else 1

    def arrays(self) -> dict[str, np.ndarray]:
        """All that the view holds, by name: equal for two views that show a model the same."""
        tables = {"view.user": self.user_table, "view.ad": self.ad_table}
        if self.pair_user is not None and self.pair_ad is not None:
            tables |= {"view.pair_user": self.pair_user, "view.pair_ad": self.pair_ad}
            tables["view.pair_threshold"] = np.array([self.pair_threshold])
        tables |= {f"view.{name}": np.array([size]) for name, size in self.id_sizes.items()}
        if self.advertiser is not None:
            tables["view.advertiser"] = self.advertiser
        if self.history is not None:
            tables["view.history"] = self.history
        return tables

    def request_features(self, users: np.ndarray, context: np.ndarray) -> np.ndarray:
        """What the model sees of requests: the user's row, and the context if visible.  [R, Fr] float32"""
        rows = self.user_table[users]
        if not self.has_context:
            return rows
        return np.concatenate([rows, context[:, None].astype(np.float32)], axis=1)

    def pair_features(self, users: np.ndarray, ads: np.ndarray) -> np.ndarray:
        """max(0, <u, a> - threshold) where visible.  [R], [R, n] -> [R, n, P] float32, P = 0 or 1"""
        if self.pair_user is None or self.pair_ad is None:
            return np.zeros((*ads.shape, 0), np.float32)
        affinity = np.einsum("rd,rnd->rn", self.pair_user[users], self.pair_ad[ads])
        return np.maximum(affinity - self.pair_threshold, 0.0, dtype=np.float32)[..., None]


def make_view(
    names: Sequence[str],
    user_features: Mapping[str, np.ndarray],
    ad_features: Mapping[str, np.ndarray],
    mismatch_threshold: float,
    advertiser: np.ndarray | None = None,
    n_advertisers: int = 0,
    history: np.ndarray | None = None,
) -> FeatureView:
    """Join the named features. A name present on both sides (a group's vectors) is taken on both.

    A side without any visible feature gets one constant column, so that every model has an input.
    `advertiser` [A] and `history` [U, L] are the world's, for views that name them.
    """
    known = sorted({"context", PAIR_FEATURE, *ID_FEATURES, HISTORY, *user_features, *ad_features})
    for name in names:
        check_known("feature", name, known)
    for name, ids in (("advertiser_id", advertiser), (HISTORY, history)):
        if name in names and ids is None:
            raise ValueError(f"feature {name!r} is named, and the world has none")

    def join(tables: Mapping[str, np.ndarray]) -> np.ndarray:
        columns = [tables[name] for name in names if name in tables]
        rows = len(next(iter(tables.values())))
        if not columns:
            return np.ones((rows, 1), np.float32)
        return np.ascontiguousarray(np.concatenate(columns, axis=1).astype(np.float32))

    has_pair = PAIR_FEATURE in names
    pair_user, pair_ad = user_features["mismatch"], ad_features["mismatch"]
    scale = np.float32(1.0 / np.sqrt(pair_user.shape[1]))
    return FeatureView(
        names=tuple(names),
        user_table=join(user_features),
        ad_table=join(ad_features),
        has_context="context" in names,
        pair_user=pair_user * scale if has_pair else None,
        pair_ad=pair_ad if has_pair else None,
        pair_threshold=mismatch_threshold,
        advertiser=advertiser if "advertiser_id" in names else None,
        n_advertisers=n_advertisers if "advertiser_id" in names else 0,
        history=history if HISTORY in names else None,
    )
