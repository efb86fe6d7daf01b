"""Randomised logs of a study, what they say about the scenario's targets, and the truth beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.analysis.off_policy import OffPolicyEstimate
from cascade_sim.analysis.off_policy.launch import LaunchEstimate
from cascade_sim.cascade.serve import Arm
from cascade_sim.foundation.progress import Progress
from cascade_sim.ope.estimates import (
    Evidence,
    centre_forecast,
    estimates,
    inner_and_outer,
    launch_evidence,
    lift_of,
    page_gain,
    page_odds,
    parameter_evidence,
    parameter_forecast,
    parameter_truth,
    slate_evidence,
    slate_truth,
    slopes,
    true_slopes,
)
from cascade_sim.ope.log import (
    REWARDS,
    Floats,
    ParameterLog,
    SlateLog,
    randomiser,
    read_parameter_log,
    read_slate_log,
    write_logs,
)
from cascade_sim.scenario.questions import Estimand
from cascade_sim.scenario.targets import AS_LOGGED, Target, logged_parameters, parse_target
from cascade_sim.study.simulation import Simulation

Answer = dict[str, dict[str, Any]]  # {reward: {estimators: …}}


@dataclass(frozen=True)
class Logs:
    """The randomised logs of a run; None: that one was not asked for."""

    parameters: ParameterLog | None
    slates: SlateLog | None


def run_off_policy(sim: Simulation, arm: Arm, folder: Path, progress: Progress) -> dict[str, Any]:
    """Write the logs, answer for every target from them, and compare the answers with the truth."""
    section = sim.scenario.off_policy
    assert section is not None
    write_logs(sim, arm, folder, progress)
    logs = read_logs(sim, folder)
    targets = [parse_target(name, changes, section.estimand) for name, changes in section.targets.items()]
    asked = with_references(targets, logs, section.estimand)
    with progress.stage("off-policy estimates", len(asked), "targets") as bar:
        for log in (logs.parameters, logs.slates):
            if log is not None and log.visits.is_sample:
                bar.tell(f"from a sample of {len(log):,} of the logged requests")
        by_target = answers(sim, arm, logs, asked, (), bar.advance)
        slopes = slope_answers(sim, arm, logs.parameters) if logs.parameters is not None else {}
    with progress.stage("off-policy truth", len(asked), "targets") as bar:
        add_truth(by_target, sim, arm, logs, asked, bar.advance)
        if logs.parameters is not None:
            add_true_slopes(slopes, sim, arm, logs.parameters)
    return {**about(sim, arm, logs), "order": list(by_target), "targets": by_target, "slopes": slopes}


def read_logs(sim: Simulation, folder: Path) -> Logs:
    """The run's logs, as far as the scenario asks for them."""
    section, effects = sim.scenario.off_policy, sim.world.slot_effects
    assert section is not None
    return Logs(
        read_parameter_log(folder, sim.scenario, len(effects)) if section.randomise is not None else None,
        read_slate_log(folder, sim.scenario, effects) if section.slates is not None else None,
    )


def about(sim: Simulation, arm: Arm, logs: Logs) -> dict[str, Any]:
    """How the logs were made: the arm, the law of the parameters, the draw of the pages."""
    section = sim.scenario.off_policy
    assert section is not None
    logged: dict[str, Any] = {"arm": arm.name, "clip": section.clip}
    if logs.parameters is not None:
        law = randomiser(sim.scenario)
        logged["estimand"] = section.estimand
        logged["parameters"] = {
            "requests": len(logs.parameters),
            "centres": dict(law.centres),
            "sigmas": dict(law.sigmas),
        }
    if logs.slates is not None and section.slates is not None:
        logged["slates"] = section.slates.model_dump()
    return logged


def with_references(targets: Sequence[Target], logs: Logs, estimand: Estimand) -> list[Target]:
    """Parameters first, then pages, each led by the current policy: for launches without the log's noise."""
    made: list[Target] = []
    if logs.parameters is not None:
        made += [logged_parameters(estimand), *(target for target in targets if not target.is_slate)]
    if logs.slates is not None:
        pages = [target for target in targets if target.is_slate]
        made += [logged_pages(), *pages]
    return made


def logged_pages() -> Target:
    """The page policy that wrote the log: temperature None means the logged one."""
    return Target(f"pages {AS_LOGGED}", is_pages=True)


def answers(
    sim: Simulation,
    arm: Arm,
    logs: Logs,
    targets: Sequence[Target],
    names: Sequence[str] = (),
    on_target: Callable[[int], None] = lambda n: None,
) -> dict[str, dict[str, Any]]:
    """From logs alone: {target: {"log", "changes", "rewards": {reward: {"logged", "estimators", …}}}}.

    Beside them "estimand", of targets of the parameters only (`scenario.targets`): "launch" drops the noise.
    """
    by_target = {}
    for target in targets:
        rewards = {}
        for reward, evidence in evidence_of(sim, arm, logs, target).items():
            rewards[reward] = answer_of(evidence, names)
        by_target[target.name] = {
            "log": "slates" if target.is_slate else "parameters",
            **({} if target.is_slate else {"estimand": target.estimand}),
            "changes": target.words,
            "rewards": rewards,
        }
        on_target(1)
    return by_target


def evidence_of(sim: Simulation, arm: Arm, logs: Logs, target: Target) -> dict[str, Evidence]:
    """What the target's log says about it, reward by reward."""
    section = sim.scenario.off_policy
    assert section is not None
    if target.is_slate:
        log = logs.slates
        assert log is not None and section.slates is not None
        odds, gains = page_odds(sim, arm, log, target), page_gain(log)
        temperature = section.slates.temperature
        return {reward: slate_evidence(log, temperature, odds, reward, gains[reward]) for reward in REWARDS}
    assert logs.parameters is not None
    law, forecast = randomiser(sim.scenario), parameter_forecast(sim, arm, logs.parameters, target)
    if target.is_launch:
        current = centre_forecast(sim, arm, logs.parameters) if target.parameters else forecast
        return {
            reward: launch_evidence(logs.parameters, law, target, reward, forecast[reward], current[reward])
            for reward in REWARDS
        }
    return {
        reward: parameter_evidence(logs.parameters, law, target, reward, forecast[reward], section.clip)
        for reward in REWARDS
    }


def answer_of(evidence: Evidence, names: Sequence[str]) -> dict[str, Any]:
    """What the estimators say of a target and one reward."""
    from cascade_sim.analysis.off_policy.checks import mean_interval

    per_request = evidence.columns["reward"]
    logged = mean_interval(
        per_request.reshape(len(per_request), -1).sum(axis=1), evidence.settings.get("clusters")
    )
    made = estimates(evidence, names)
    answer: dict[str, Any] = {
        "logged": dict(zip(("value", "low", "high"), logged, strict=True)),
        "estimators": {name: estimate_row(estimate) for name, estimate in made.items()},
    }
    both = inner_and_outer(evidence)
    if both is not None:
        answer["inner"], answer["outer"] = _interval(both.inner), _interval(both.outer)
    if "conditional" not in evidence.columns:
        for name, row in answer["estimators"].items():
            row["lift"] = _interval(lift_of(name, evidence, made[name]))
    for name, estimate in made.items():
        if isinstance(estimate, LaunchEstimate):
            answer["estimators"][name] |= _launch_row(estimate, evidence)
    return answer


def _launch_row(estimate: LaunchEstimate, evidence: Evidence) -> dict[str, Any]:
    """What the row of a launch has besides: bias bounds, the current values by the same fit, the kernel."""
    widths = estimate.bandwidth or (None,) * len(evidence.settings["parameters"])
    return {
        "bias": estimate.bias,
        "current": _interval(estimate.current),
        "lift_bias": estimate.lift_bias,
        "lift_verdict": estimate.lift.diagnostics.verdict,
        "lift_reason": estimate.lift.diagnostics.reason,
        "inside": estimate.inside,
        "bandwidth": {
            parameter.name: None if width is None else width * parameter.sigma
            for parameter, width in zip(evidence.settings["parameters"], widths, strict=True)
        },
    }


def estimate_row(estimate: OffPolicyEstimate) -> dict[str, Any]:
    """An estimate as metrics.json holds it; a refused one has no value."""
    judged = estimate.diagnostics
    figures = ("n", "ess_share", "mean_weight", "largest_share", "clipped_mass", "verdict", "reason")
    return {
        "estimate": _interval(estimate),
        "no_estimate": float(judged.verdict == "refuse"),
        **{name: getattr(judged, name) for name in figures},
    }


def _interval(estimate: OffPolicyEstimate) -> dict[str, float | None]:
    is_refused = estimate.diagnostics.verdict == "refuse"
    return {"value": None if is_refused else estimate.value, "low": estimate.low, "high": estimate.high}


def slope_answers(sim: Simulation, arm: Arm, log: ParameterLog) -> dict[str, dict[str, Any]]:
    """{parameter: {reward: estimate row}}: the response to log reserve and to squashing, from the log
    alone.
    """
    law, forecast = randomiser(sim.scenario), centre_forecast(sim, arm, log)
    by_parameter: dict[str, dict[str, Any]] = {}
    for reward in REWARDS:
        for parameter, slope in slopes(log, law, reward, forecast[reward]).items():
            row = estimate_row(slope)
            row["relative"] = _interval(slope.relative)
            by_parameter.setdefault(parameter, {})[reward] = row
    return by_parameter


def add_truth(
    by_target: Mapping[str, dict[str, Any]],
    sim: Simulation,
    arm: Arm,
    logs: Logs,
    targets: Sequence[Target],
    on_target: Callable[[int], None] = lambda n: None,
) -> None:
    """Put the simulator's value beside each answer, and whether intervals cover it."""
    means: dict[str, dict[str, float]] = {}
    for estimand in sorted({target.estimand for target in targets if not target.is_slate}):
        assert logs.parameters is not None
        start = logged_parameters(estimand)
        means[start.name] = _means(parameter_truth(sim, arm, logs.parameters, start))
    for target in targets:
        served: Mapping[str, Floats]
        if target.is_slate:
            assert logs.slates is not None
            served = slate_truth(sim, arm, logs.slates, target)
        else:
            assert logs.parameters is not None
            served = parameter_truth(sim, arm, logs.parameters, target)
        means[target.name] = _means(served)
        on_target(1)
    for target in targets:
        for reward, answer in by_target[target.name]["rewards"].items():
            truth = means[target.name][reward]
            answer["truth"] = {"value": truth}
            current = {} if target.is_slate else means[logged_parameters(target.estimand).name]
            if current.get(reward):
                answer["true_lift"] = {"value": truth / current[reward] - 1.0}
            for row in answer["estimators"].values():
                _hold_against(row, truth)


def add_true_slopes(
    by_parameter: Mapping[str, Mapping[str, dict[str, Any]]], sim: Simulation, arm: Arm, log: ParameterLog
) -> None:
    """Put the simulator's slopes (finite differences of served rewards) beside the estimated ones."""
    for parameter, rewards in true_slopes(sim, arm, log).items():
        for reward, slope in rewards.items():
            by_parameter[parameter][reward]["truth"] = {"value": slope}
            _hold_against(by_parameter[parameter][reward], slope)


def _means(served: Mapping[str, Floats]) -> dict[str, float]:
    return {reward: float(np.mean(values)) for reward, values in served.items()}


def _hold_against(row: dict[str, Any], truth: float) -> None:
    value, low, high = (row["estimate"][end] for end in ("value", "low", "high"))
    row["error"] = {"value": None if value is None else value - truth}
    row["covers"] = None if low is None else float(low <= truth <= high)
