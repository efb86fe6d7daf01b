"""What a platform can see of a world: the side that models and stages are handed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cascade_sim.models.features import FeatureView, make_view
from cascade_sim.world.availability import AdAvailability


@dataclass(frozen=True)
class World:
    """What the platform sees. Row i of every user array is user i; likewise for ads."""

    seed: int
    user_features: dict[str, np.ndarray]  # name -> [U, d] float32
    ad_features: dict[str, np.ndarray]  # name -> [A, d] float32
    init_bid: np.ndarray  # [A] float64, per click
    advertiser: np.ndarray  # [A] int32
    n_advertisers: int
    activity: np.ndarray  # [U] cumulative share of visits
    slot_effects: np.ndarray  # [k] float64
    mismatch_threshold: float
    popularity: np.ndarray = field(repr=False)  # [A] standardised log popularity
    history: np.ndarray | None = (
        None  # [U, L] int32: ads that each user clicked before time 0; None: not kept
    )
    lives: AdAvailability | None = None  # when each ad is there; None: always
    is_timed: bool = False  # whether anything depends on when a request comes

    @property
    def n_users(self) -> int:
        return len(self.activity)

    @property
    def n_ads(self) -> int:
        return len(self.init_bid)

    def view(self, features: Sequence[str]) -> FeatureView:
        """What a model with these features sees."""
        return make_view(
            features, self.user_features, self.ad_features, self.mismatch_threshold,
            self.advertiser, self.n_advertisers, self.history,
        )  # fmt: skip
