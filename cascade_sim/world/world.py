"""The world: users, ads, advertisers and bids, drawn from the scenario and a seed.

Two objects that never mix. `World` is what a platform can see: features, bids, owners. `Truth`
(truth.py) holds the hidden click and conversion rates; models are never handed it.
All latents are standard normal, each drawn under its own purpose.
"""

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

    @property
    def n_users(self) -> int:
        return len(self.activity)

    @property
    def n_ads(self) -> int:
        return len(self.init_bid)


def build_world(spec, seed: int) -> World:
    """Draw a world. `spec` is the scenario's `world` section."""
    users, ads = np.arange(spec.users), np.arange(spec.ads)

    def latent(purpose: str, ids: np.ndarray, dims: int) -> np.ndarray:
        return _latent(seed, purpose, ids, dims)

    user = {"user": latent("user", users, 1)}
    ad = {"quality": latent("quality", ads, 1), "tier": latent("tier", ads, 1)}
    for name, group in spec.groups.items():
        user[name] = latent(f"user.{name}", users, group.dims)
        ad[name] = latent(f"ad.{name}", ads, group.dims)
    user["mismatch"] = latent("user.mismatch", users, spec.mismatch.dims)
    ad["mismatch"] = latent("ad.mismatch", ads, spec.mismatch.dims)
    user["conversion"], ad["conversion"] = _conversion_latents(spec, user, ad, latent, users, ads)
    rank = np.argsort(np.argsort(draws.uniform(seed, "popularity", ads))) + 1.0
    log_popularity = -np.log(rank)
    return World(
        seed=seed,
        user_features={name: value.astype(np.float32) for name, value in user.items()},
        ad_features={name: value.astype(np.float32) for name, value in ad.items()},
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


def _conversion_latents(spec, user, ad, latent, users, ads):
    """Vectors whose affinity drives conversions.

    With opposition rho to a group g: u = sqrt(rho) u_g + sqrt(1-rho) noise and
    a = -sqrt(rho) a_g + sqrt(1-rho) noise, so the affinities <u,a> correlate by -rho: what people
    click eagerly they buy a little less often.
    """
    conversion = spec.conversion
    u = latent("user.conversion", users, conversion.dims)
    a = latent("ad.conversion", ads, conversion.dims)
    if conversion.opposed_to is not None and conversion.opposition > 0:
        shared = min(conversion.dims, spec.groups[conversion.opposed_to].dims)
        old, new = np.sqrt(conversion.opposition), np.sqrt(1.0 - conversion.opposition)
        u[:, :shared] = old * user[conversion.opposed_to][:, :shared] + new * u[:, :shared]
        a[:, :shared] = -old * ad[conversion.opposed_to][:, :shared] + new * a[:, :shared]
    return u, a
