"""What another policy would have earned, for slates of K slots with a reward per slot.

A slate is filled from the top: a_k ~ π(· | x, a_<k). Per request and slot, [R, K]:

    reward       r_k
    conditional  ρ_k = π*(a_k | x, a_<k) / π(a_k | x, a_<k)
    marginal     m_k = P*(a_k at slot k | x) / P(a_k at slot k | x)

Estimated is the mean over requests of Σ_k r_k under the target policy. With w_k = ρ_1 ··· ρ_k, w_0 = 1:

    slate_ips               Σ_k w_K r_k     no assumption; the product over all slots has the most variance
    reward_interaction_ips  Σ_k w_k r_k     r_k depends on slots up to k only (McInerney et al. 2020)
    independent_ips         Σ_k m_k r_k     r_k depends on what is in slot k only (Li et al. 2018)
    cascade_dr              Σ_k w_{k-1} v̂_k + w_k (r_k − q̂_k)    as reward_interaction_ips, with a model that
                                            cuts variance and need not be right (Kiyohara et al. 2022)

Slates shorter than K are padded with reward 0, ratio 1 and forecasts 0. Every slot's weights are judged and
the worst verdict is reported (`checks`); for the mean weight the level is divided by K. Intervals
and clusters: as in the package.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cascade_sim.analysis.off_policy.checks import Diagnostics, diagnose, worst_of
from cascade_sim.analysis.off_policy.intervals import OffPolicyEstimate, estimate_from
from cascade_sim.analysis.off_policy.noise import Floats


def slate_ips(
    reward: ArrayLike, conditional: ArrayLike, *, clusters: ArrayLike | None = None
) -> OffPolicyEstimate:
    """IPS of whole slates: mean of (Π_k ρ_k) (Σ_k r_k).  reward, conditional: [R, K]"""
    r, rho = _slates(reward=reward, conditional=conditional)
    w = rho.prod(axis=1)
    return _mean_of("slate_ips", w * r.sum(axis=1), diagnose(w, clusters=clusters), r, clusters)


def reward_interaction_ips(
    reward: ArrayLike, conditional: ArrayLike, *, clusters: ArrayLike | None = None
) -> OffPolicyEstimate:
    """Mean of Σ_k (ρ_1 ··· ρ_k) r_k: a slot's reward is weighted by the slots above it and its own."""
    r, rho = _slates(reward=reward, conditional=conditional)
    w = _prefix_products(rho)
    return _mean_of("reward_interaction_ips", (w * r).sum(axis=1), _by_slot(w, clusters), r, clusters)


def independent_ips(
    reward: ArrayLike, marginal: ArrayLike, *, clusters: ArrayLike | None = None
) -> OffPolicyEstimate:
    """Mean of Σ_k m_k r_k: biased as soon as a slot's reward depends on other slots."""
    r, m = _slates(reward=reward, marginal=marginal)
    return _mean_of("independent_ips", (m * r).sum(axis=1), _by_slot(m, clusters), r, clusters)


def cascade_dr(
    reward: ArrayLike,
    conditional: ArrayLike,
    q_logged: ArrayLike,
    v_target: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
) -> OffPolicyEstimate:
    """Cascade doubly robust, from the last slot up.  all [R, K]

    q_logged: q̂_k = Q̂_k(x, a_<=k), the model's forecast of Σ_{j>=k} r_j under the target policy from slot
    k + 1 on, given the logged slots up to and including k. v_target: v̂_k = E_{a_k ~ π*(·|x, a_<k)}[Q̂_k(x,
    a_<k, a_k)], given the logged slots above k. With V̂_{K+1} = 0,

        V̂_k = v̂_k + ρ_k (r_k + V̂_{k+1} − q̂_k),    the request's term is V̂_1.

    By induction E[V̂_k | a_<k] is the target's reward from slot k on, whatever Q̂ is, as
    E_π[ρ_k q̂_k | a_<k] = v̂_k. Q̂ = 0 gives reward_interaction_ips.
    """
    r, rho, q, v = _slates(reward=reward, conditional=conditional, q_logged=q_logged, v_target=v_target)
    term = np.zeros(len(r))
    for k in reversed(range(r.shape[1])):
        term = v[:, k] + rho[:, k] * (r[:, k] + term - q[:, k])
    return _mean_of("cascade_dr", term, _by_slot(_prefix_products(rho), clusters), r, clusters)


def _mean_of(
    name: str, terms: Floats, diagnostics: Diagnostics, reward: Floats, clusters: ArrayLike | None
) -> OffPolicyEstimate:
    value = float(terms.mean())
    return estimate_from(name, value, terms - value, diagnostics, reward.sum(axis=1), clusters)


def _prefix_products(ratios: Floats) -> Floats:
    """Weights of the slots down to k, w_k = ρ_1 ··· ρ_k.  [R, K]"""
    return np.cumprod(ratios, axis=1, dtype=np.float64)


def _by_slot(weights: Floats, clusters: ArrayLike | None) -> Diagnostics:
    """The diagnostics of the slot whose weights [R, K] are worst."""
    slots = weights.shape[1]
    return worst_of((diagnose(w, clusters=clusters, comparisons=slots) for w in weights.T), "slot")


def _slates(**columns: ArrayLike) -> list[Floats]:
    """The arguments as float64 [R, K] of one shape; ratios (conditional, marginal) must not be negative."""
    tables = {name: np.asarray(values, np.float64) for name, values in columns.items()}
    shape = tables["reward"].shape
    if len(shape) != 2 or not shape[0] or not shape[1]:
        raise ValueError(f"reward has shape {shape}; expected (R, K), requests by slots, neither being empty")
    for name, table in tables.items():
        if table.shape != shape:
            raise ValueError(f"{name} has shape {table.shape}; expected {shape}, as reward")
        is_ratio = name in ("conditional", "marginal")
        is_bad = ~np.isfinite(table) | ((table < 0) if is_ratio else False)
        if is_bad.any():
            row, slot = (int(at[0]) for at in np.nonzero(is_bad))
            wanted = "finite and not negative" if is_ratio else "finite"
            raise ValueError(f"{name}[{row}, {slot}] is {table[row, slot]}; it must be {wanted}")
    return list(tables.values())


SLATE_ESTIMATORS = {
    "slate_ips": slate_ips,
    "reward_interaction_ips": reward_interaction_ips,
    "independent_ips": independent_ips,
    "cascade_dr": cascade_dr,
}
