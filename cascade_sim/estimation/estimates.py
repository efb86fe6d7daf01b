"""Estimates from randomised logs alone: rewards, weights and forecasts for the estimators of `analysis`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.analysis import off_policy
from cascade_sim.analysis.off_policy import OffPolicyEstimate
from cascade_sim.analysis.off_policy import slates as off_policy_slates
from cascade_sim.analysis.off_policy.bounds import Bounds, bounds
from cascade_sim.analysis.off_policy.gradient import Sensitivity, sensitivity
from cascade_sim.cascade.knobs import SCALES, Randomiser
from cascade_sim.estimation.data import Floats, KnobLog, SlateLog
from cascade_sim.estimation.slates import log_odds, log_propensities, page_values, slot_marginals
from cascade_sim.scenario.targets import Target

# estimators of pages, and the columns they need beside the reward
PAGES: dict[str, tuple[Callable[..., OffPolicyEstimate], tuple[str, ...]]] = {
    "slate_ips": (off_policy_slates.slate_ips, ("conditional",)),
    "reward_interaction_ips": (off_policy_slates.reward_interaction_ips, ("conditional",)),
    "independent_ips": (off_policy_slates.independent_ips, ("marginal",)),
    "cascade_dr": (off_policy_slates.cascade_dr, ("conditional", "q_logged", "v_target")),
}
KNOB_ESTIMATORS = tuple(off_policy.ESTIMATORS)
SLATE_ESTIMATORS = (*PAGES, "direct_method")
ESTIMATORS = tuple(dict.fromkeys((*KNOB_ESTIMATORS, *SLATE_ESTIMATORS)))


@dataclass(frozen=True)
class Evidence:
    """What a log says about one target and one reward: the columns of every estimator. Rows are requests."""

    columns: dict[str, NDArray[Any]]  # by the estimators' argument names, [R] or [R, K]
    settings: dict[str, float]  # clip, threshold
    limit: Floats | None  # [R], for bounds

    def rows(self, cut: slice) -> Evidence:
        """Some of the requests."""
        columns = {name: values[cut] for name, values in self.columns.items()}
        return Evidence(columns, self.settings, None if self.limit is None else self.limit[cut])


def knob_evidence(
    log: KnobLog, law: Randomiser, target: Target, reward: str, forecast: Floats, clip: float
) -> Evidence:
    """`forecast` [R]: the platform's, of this reward under the target."""
    columns = {
        "reward": log.reward[reward],
        "weights": law.weights(log.noise, target.knobs),
        "predicted_logged": log.forecast[reward],
        "predicted_target": forecast,
    }
    return Evidence(columns, {"clip": clip, "threshold": clip}, log.limit[reward])


def slate_evidence(log: SlateLog, temperature: float, odds: Floats, reward: str, gain: Floats) -> Evidence:
    """`odds` [R, d]: the target's log odds; `gain` [R, d]: what the click model expects of each listed ad."""
    logged = log_odds(log.listed.score, temperature)
    q_logged, v_target = page_values(odds, gain, log.slot_effects, log.places)
    columns = {
        "reward": log.reward[reward],
        "conditional": np.exp(log_propensities(odds, log.places)) / log.propensity,
        "marginal": slot_marginals(odds, log.places) / slot_marginals(logged, log.places),
        "q_logged": q_logged,
        "v_target": v_target,
        "predicted_target": v_target[:, 0],
    }
    return Evidence(columns, {}, None)


def estimate(name: str, evidence: Evidence) -> OffPolicyEstimate:
    """One estimator on the whole evidence, or on the rows of it that were cut out before."""
    given = evidence.columns
    if "conditional" not in given:
        return off_policy.evaluate(name, **given, **evidence.settings)
    if name == "direct_method":
        return off_policy.direct_method(given["predicted_target"])
    of_pages, needed = PAGES[name]
    return of_pages(given["reward"], *(given[column] for column in needed))


def estimates(evidence: Evidence, names: Iterable[str] = ()) -> dict[str, OffPolicyEstimate]:
    """Every estimator that fits the evidence, or those named."""
    known = SLATE_ESTIMATORS if "conditional" in evidence.columns else KNOB_ESTIMATORS
    return {name: estimate(name, evidence) for name in known if not names or name in names}


def inner_and_outer(evidence: Evidence) -> Bounds | None:
    """The bounds of a knob's target; None for pages."""
    if evidence.limit is None:
        return None
    columns = evidence.columns
    return bounds(columns["reward"], columns["weights"], evidence.settings["clip"], evidence.limit)


def slopes(log: KnobLog, law: Randomiser, reward: str, forecast: Floats) -> dict[str, Sensitivity]:
    """How the mean reward responds to each randomised knob; `forecast` [R] knows nothing of the noise."""
    return {
        knob: sensitivity(
            log.reward[reward], log.noise[knob], sigma, SCALES[knob], law.centres[knob], forecast
        )
        for knob, sigma in law.sigmas.items()
    }
