"""The world: users, ads, advertisers and bids, drawn from the scenario and a seed.

Two objects that never mix. `World` (seen.py) is what a platform can see: features, bids, owners.
`GroundTruth` (truth.py) holds the hidden click and conversion rates; models are never handed it.
All latents are standard normal, each drawn under its own purpose.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cascade_sim.agents.advertisers import log_normal_bids, owners
from cascade_sim.agents.traffic import activity_cdf
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.limits import DRAWN_AT_ONCE
from cascade_sim.world.availability import AdAvailability
from cascade_sim.world.truth import GroundTruth
from cascade_sim.world.visible import World

__all__ = ["World", "build_world", "clicked_before", "init_bids"]


def build_world(spec, seed: int) -> World:
    """Draw a world. `spec` is the scenario's `world` section."""
    ads = np.arange(spec.ads)
    rank = np.argsort(np.argsort(draws.uniform(seed, "popularity", ads))) + 1.0
    log_popularity = -np.log(rank)
    world = World(
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
        lives=None if spec.churn is None else AdAvailability(spec.churn, spec.ads, seed),
        is_timed=spec.is_timed,
    )
    if spec.history is None:
        return world
    return replace(world, history=clicked_before(world, GroundTruth(world, spec), spec.history))


def clicked_before(world: World, truth: GroundTruth, spec) -> np.ndarray:
    """Ads that users clicked before time 0, of all that they had seen.  [U, length] int32, ids may repeat

    Each is chosen out of `candidate_pool` ads drawn at random from the corpus, with odds exp(lasting logit),
    which for rare clicks are those of the CTR: the largest sum of logit and Gumbel noise.
    """
    history = np.empty((world.n_users, spec.length), np.int32)
    place, choice = np.arange(spec.length)[None, :, None], np.arange(spec.candidate_pool)[None, None, :]
    step = max(1, DRAWN_AT_ONCE // (spec.length * spec.candidate_pool))
    for start in range(0, world.n_users, step):
        users = np.arange(start, min(start + step, world.n_users))
        keys = (users[:, None, None], place, choice)
        seen = (draws.uniform(world.seed, "history ad", *keys) * world.n_ads).astype(np.int32)
        logit = truth.lasting_logit(users, seen.reshape(len(users), -1)).reshape(seen.shape)
        gumbel = -np.log(draws.exponential(world.seed, "history choice", *keys))
        chosen = np.argmax(logit + gumbel, axis=2)[:, :, None]
        history[users] = np.take_along_axis(seen, chosen, axis=2)[:, :, 0]
    return history


def init_bids(spec, seed: int) -> np.ndarray:
    """The init-bids of a world, without the rest of it.  [A] float64, per click"""
    ads = np.arange(spec.ads)
    tier, noise = (_latent(seed, purpose, ads, 1)[:, 0] for purpose in ("tier", "bid"))
    bids = spec.bids
    return log_normal_bids(tier, noise, bids.median, bids.sigma, bids.tier_share, bids.tail)


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

    With anti-correlation rho to a group g: u = sqrt(rho) u_g + sqrt(1-rho) noise and
    a = -sqrt(rho) a_g + sqrt(1-rho) noise, so the affinities <u,a> correlate by -rho: what people
    click eagerly they buy a little less often.
    """
    conversion = spec.conversion
    own = _latent(seed, f"{side}.conversion", ids, conversion.dims)
    if conversion.anti_correlated_group is not None and conversion.anti_correlation > 0:
        shared = min(conversion.dims, spec.groups[conversion.anti_correlated_group].dims)
        old, new = np.sqrt(conversion.anti_correlation), np.sqrt(1.0 - conversion.anti_correlation)
        opposed = tables[conversion.anti_correlated_group][:, :shared]
        own[:, :shared] = sign * old * opposed + new * own[:, :shared]
    return own
