"""The world: users, ads, advertisers and bids, drawn from the scenario and a seed.

Two objects that never mix. `World` is what a platform can see: features, bids, owners. `Truth`
(truth.py) holds the hidden click and conversion rates; models are never handed it.
All latents are standard normal, each drawn under its own purpose.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cascade_sim import draws
from cascade_sim.agents.advertisers import log_normal_bids, owners
from cascade_sim.agents.traffic import activity_cdf


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
    history: np.ndarray | None = None  # [U, L] int32: ads that each user clicked before time 0; None: not kept

    @property
    def n_users(self) -> int:
        return len(self.activity)

    @property
    def n_ads(self) -> int:
        return len(self.init_bid)


def build_world(spec, seed: int) -> World:
    """Draw a world. `spec` is the scenario's `world` section."""
    ads = np.arange(spec.ads)
    rank = np.argsort(np.argsort(draws.uniform(seed, "popularity", ads))) + 1.0
    log_popularity = -np.log(rank)
    return World(
        seed=seed,
        user_features=_in_parts(spec.users, lambda ids: _user_features(spec, seed, ids)),
        ad_features=_in_parts(spec.ads, lambda ids: _ad_features(spec, seed, ids)),
        init_bid=init_bids(spec, seed),
        advertiser=owners(draws.uniform(seed, "owner", ads), spec.advertisers),
        n_advertisers=spec.advertisers,
        activity=activity_cdf(spec.users, spec.user_activity),
        slot_effects=np.asarray(spec.slot_effects, dtype=np.float64),
        mismatch_threshold=spec.mismatch.threshold,
        popularity=(log_popularity - log_popularity.mean()) / max(log_popularity.std(), 1e-12),
    )


def init_bids(spec, seed: int) -> np.ndarray:
    """The init-bids of a world, without the rest of it.  [A] float64, per click"""
    ads = np.arange(spec.ads)
    tier, noise = (_latent(seed, purpose, ads, 1)[:, 0] for purpose in ("tier", "bid"))
    return log_normal_bids(tier, noise, spec.bids.median, spec.bids.sigma, spec.bids.tier_share)


def _latent(seed: int, purpose: str, ids: np.ndarray, dims: int) -> np.ndarray:
    return draws.normal(seed, purpose, ids[:, None], np.arange(dims)[None, :])


def _in_parts(n: int, make: Callable[[np.ndarray], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The tables that `make` draws for ids 0 … n-1, in float32.  {name: [n, d]}"""
    tables: dict[str, np.ndarray] = {}
    for at in draws.parts(n):
        for name, values in make(np.arange(at.start, at.stop)).items():
            tables.setdefault(name, np.empty((n, values.shape[1]), np.float32))[at] = values
    return tables


def _user_features(spec, seed: int, ids: np.ndarray) -> dict[str, np.ndarray]:
    tables = {"user": _latent(seed, "user", ids, 1)}
    for name, group in spec.groups.items():
        tables[name] = _latent(seed, f"user.{name}", ids, group.dims)
    tables["mismatch"] = _latent(seed, "user.mismatch", ids, spec.mismatch.dims)
    tables["conversion"] = _conversion(spec, seed, "user", ids, tables, 1.0)
    return tables


def _ad_features(spec, seed: int, ids: np.ndarray) -> dict[str, np.ndarray]:
    tables = {"quality": _latent(seed, "quality", ids, 1), "tier": _latent(seed, "tier", ids, 1)}
    for name, group in spec.groups.items():
        tables[name] = _latent(seed, f"ad.{name}", ids, group.dims)
    tables["mismatch"] = _latent(seed, "ad.mismatch", ids, spec.mismatch.dims)
    tables["conversion"] = _conversion(spec, seed, "ad", ids, tables, -1.0)
    return tables


def _conversion(
    spec, seed: int, side: str, ids: np.ndarray, tables: dict[str, np.ndarray], sign: float
) -> np.ndarray:
    """Vectors whose affinity drives conversions; `sign` is 1 for users and -1 for ads.

    With opposition rho to a group g: u = sqrt(rho) u_g + sqrt(1-rho) noise and
    a = -sqrt(rho) a_g + sqrt(1-rho) noise, so the affinities <u,a> correlate by -rho: what people
    click eagerly they buy a little less often.
    """
    conversion = spec.conversion
    own = _latent(seed, f"{side}.conversion", ids, conversion.dims)
    if conversion.opposed_to is not None and conversion.opposition > 0:
        shared = min(conversion.dims, spec.groups[conversion.opposed_to].dims)
        old, new = np.sqrt(conversion.opposition), np.sqrt(1.0 - conversion.opposition)
        opposed = tables[conversion.opposed_to][:, :shared]
        own[:, :shared] = sign * old * opposed + new * own[:, :shared]
    return own
