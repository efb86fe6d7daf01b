"""Random distributions, each template loss minimised on them, and the regret against its bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from cascade_sim.analysis.metrics.lists import Floats
from cascade_sim.analysis.theory.examples import ranknet_optimum
from cascade_sim.analysis.theory.losses import LOSSES, TemplateLoss
from cascade_sim.analysis.theory.measures import Distribution, Gppm, c_phi, gppms, regret

_ROUNDING = 1e-12  # of a risk, relative: a difference of two risks is known no better
_SUPPORT = 6  # supervisions in a random distribution
_LARGEST = 7  # items


@dataclass(frozen=True)
class BoundCheck:
    """One loss against one measure: all points tried, on all distributions."""

    surrogate: Floats  # [P] (c · C_phi(2))² · (L(Δ, s) − L(Δ)): the bound is its square root
    regret: Floats  # [P]
    slack: Floats  # [P] what rounding may add to `surrogate`
    regret_at_optimum: float  # largest regret of the minimiser itself
    regret_after_descent: float  # largest regret where a descent from random scores ended

    @property
    def violations(self) -> int:
        """How many points lie above the bound by more than rounding explains."""
        bound = np.sqrt(np.maximum(self.surrogate, 0.0) + self.slack)
        return int((self.regret > bound * (1 + 1e-9) + _ROUNDING).sum())

    @property
    def closest(self) -> float:
        """The largest share of the bound that a regret reached, where rounding does not blur it."""
        clear = self.surrogate > 1e6 * self.slack
        return float((self.regret[clear] / np.sqrt(self.surrogate[clear])).max(initial=0.0))


def random_distribution(generator: np.random.Generator, measure: Gppm, n: int) -> Distribution:
    """A few random supervisions of n items with random probabilities.

    Drawn again until all expected utilities are positive: at 0 some minimisers are at infinity.
    """
    while True:
        if measure.supervision == "order":
            support: Floats = np.argsort(generator.random((_SUPPORT, n)), axis=1).astype(np.float64) + 1.0
        else:
            top = 5 if measure.supervision == "grades" else 2
            support = generator.integers(0, top, (_SUPPORT, n)).astype(np.float64)
        distribution = Distribution(support, generator.dirichlet(np.ones(_SUPPORT)))
        if distribution.mean(measure.utility(support)).min() > 0:
            return distribution


def trial_scores(generator: np.random.Generator, loss: TemplateLoss, u: Floats, eta: float) -> Floats:
    """Scores to try a bound on: around the minimiser at all scales, and where the bound is nearest.  [S, n]

    Nearest are scores in which a few pairs are just turned round: both items get the score that is best for
    their mean utility, the worse one a hair more.
    """
    n = u.size
    best = loss.best(u, eta)
    scale = 10.0 ** generator.uniform(-3, 0.5, (60, 1))
    tried = [best + scale * generator.standard_normal((60, n)), np.zeros((1, n))]
    order = np.argsort(-u)
    nested = [(order[i], order[n - 1 - i]) for i in range(n // 2)]
    every = list(combinations(order, 2))
    turned = [nested[:k] for k in range(1, len(nested) + 1)]
    turned += [[pair] for pair in every] + [[pair] for pair in nested]
    for pairs in turned:
        merged = u.copy()
        for better, worse in pairs:
            merged[[better, worse]] = (u[better] + u[worse]) / 2.0
        scores = loss.best(merged, eta)
        hair = 1e-9 * max(float(np.abs(best).max()), 1e-3)
        for better, worse in pairs:
            scores[better] -= hair
            scores[worse] += hair
        tried.append(scores[None])
    return np.concatenate(tried)


def descend(
    loss: TemplateLoss, distribution: Distribution, utility: Floats, eta: float, start: Floats
) -> Floats:
    """Every point on the way of a quasi-Newton descent of the inner risk.  [steps, n]"""
    from scipy.optimize import minimize  # type: ignore[import-untyped]

    def risk_and_slope(s: Floats) -> tuple[float, Floats]:
        step = 1e-6
        around = s + step * np.concatenate([np.eye(s.size), -np.eye(s.size), np.zeros((1, s.size))])
        risks = loss.risk(distribution, utility, around, eta)
        return float(risks[-1]), (risks[: s.size] - risks[s.size : -1]) / (2 * step)

    path = [start]
    minimize(
        risk_and_slope,
        start,
        jac=True,
        method="BFGS",
        callback=lambda s: path.append(s.copy()),
        options={"maxiter": 40},
    )
    return np.stack(path)


def study_bound(
    measure: Gppm, loss: TemplateLoss, distributions: int, seed: int, *, descents: bool = True
) -> BoundCheck:
    """Draw distributions and compare the regret with the bound, at many scores and along descents."""
    generator = np.random.default_rng(seed)
    points: list[tuple[Floats, Floats, Floats]] = []
    at_optimum = after = 0.0
    for i in range(distributions):
        n = 2 + i % (_LARGEST - 1)
        distribution = random_distribution(generator, measure, n)
        utility = measure.utility(distribution.support)
        u, eta = distribution.mean(utility), 1.05 * float(utility.max())
        best = loss.best(u, eta)
        tried = trial_scores(generator, loss, u, eta)
        if descents:
            path = descend(loss, distribution, utility, eta, best + generator.standard_normal(n))
            after = max(after, float(regret(measure, distribution, path[-1])))
            tried = np.concatenate([tried, path])
        least = loss.risk(distribution, utility, best, eta)
        scale = (loss.constant(u, eta) * c_phi(measure.phi(n))) ** 2
        gap = loss.risk(distribution, utility, tried, eta) - least
        slack = np.full(len(tried), scale * _ROUNDING * (1.0 + abs(float(least))))
        points.append((scale * gap, regret(measure, distribution, tried), slack))
        at_optimum = max(at_optimum, float(regret(measure, distribution, best)))
    surrogate, regrets, slack = (np.concatenate(column) for column in zip(*points, strict=True))
    return BoundCheck(surrogate, regrets, slack, at_optimum, after)


def study_bounds(
    distributions: int = 30,
    seed: int = 1,
    k: int = 3,
    measures: Mapping[str, Gppm] | None = None,
    advance: Callable[[int], None] = lambda n: None,
) -> dict[str, dict[str, BoundCheck]]:
    """Every template loss against every measure: {loss: {measure: BoundCheck}}; `advance` hears of each."""
    chosen = gppms(k) if measures is None else measures
    checks: dict[str, dict[str, BoundCheck]] = {}
    for name, loss in LOSSES.items():
        checks[name] = {}
        for i, measure in enumerate(chosen.values()):
            checks[name][measure.name] = study_bound(measure, loss, distributions, seed + 1000 * i)
            advance(1)
    return checks


def ranknet_misorders(
    distributions: int = 200, seed: int = 1, n: int = 4, k: int = 3
) -> dict[str, dict[str, float]]:
    """How often RankNet's own minimiser is not the best order, on random distributions of n items.

    {measure: {"share": of distributions with a regret, "regret": mean regret as a share of the best value}},
    for the measures of grades and of clicks.
    """
    result = {}
    for measure in gppms(k).values():
        if measure.supervision == "order":
            continue
        generator = np.random.default_rng(seed)
        lost = []
        for _ in range(distributions):
            distribution = random_distribution(generator, measure, n)
            u = distribution.mean(measure.utility(distribution.support))
            best = float((np.sort(u)[::-1] * measure.phi(n)).sum())
            lost.append(float(regret(measure, distribution, ranknet_optimum(distribution))) / best)
        result[measure.name] = {
            "share": float(np.mean(np.array(lost) > 1e-9)),
            "regret": float(np.mean(lost)),
        }
    return result
