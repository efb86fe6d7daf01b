"""Coverage of off-policy intervals: one long randomised log, cut into replications.

Requests are served in chunks of whole replications. Each chunk is logged, answered for by every estimator and
every target, and forgotten; what remains are the answers, and the sums of the truth. The truth of a target is
its mean expected reward over all requests of all replications, so its own error is sqrt(1 / replications)
of a replication's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cascade_sim.analysis.off_policy.coverage import Coverage, coverage_of
from cascade_sim.cascade.serve import Arm, Block
from cascade_sim.context import scratch_context
from cascade_sim.environments.arrivals import Arrivals
from cascade_sim.foundation.progress import Progress
from cascade_sim.ope.estimates import (
    Evidence,
    estimates,
    estimators_of,
    expected_rewards,
    launch_evidence,
    page_gain,
    page_odds,
    parameter_evidence,
    slate_evidence,
    slate_truth,
)
from cascade_sim.ope.log import (
    PARAMETERS,
    SLATES,
    decision_forecast,
    parameter_log,
    parameter_tables,
    randomiser,
    serve_parameters,
    slate_log,
    slate_tables,
)
from cascade_sim.scenario.schema import Scenario, requests_by_phase, resolved_arms
from cascade_sim.scenario.targets import Target
from cascade_sim.study.prepare import prepare
from cascade_sim.study.simulation import Simulation

AT_ONCE = 8192  # requests, about: large blocks are served faster, small ones fit the cache


@dataclass
class Answers:
    """All replications of one target: estimator -> [3, M] value, low, high (NaN: no estimate).

    `truth` is the sum of expected rewards until all requests are served, then their mean.
    """

    target: Target
    intervals: dict[str, NDArray[np.float64]]
    truth: float = 0.0
    ess_share: list[float] = field(default_factory=list)

    def put(self, replication: int, evidence: Evidence) -> None:
        for name, estimate in estimates(evidence, tuple(self.intervals)).items():
            self.intervals[name][:, replication] = (
                (np.nan,) * 3 if estimate.low is None else (estimate.value, estimate.low, estimate.high)  # type: ignore[assignment]
            )
            if name in ("ips", "local_dr", "slate_ips"):
                self.ess_share.append(estimate.diagnostics.ess_share or 0.0)


@dataclass(frozen=True)
class CoverageTable:
    """{target: {estimator: Coverage}} and the mean effective sample size of each target's whole weights."""

    rows: dict[str, dict[str, Coverage]]
    ess_share: dict[str, float]


def coverage_study(
    sim: Simulation,
    arm: Arm,
    targets: Sequence[Target],
    replications: int,
    requests: int,
    reward: str,
    on_requests: Callable[[int], None] = lambda n: None,
) -> CoverageTable:
    """Every estimator on every target. Targets of parameters and of pages have logs of their own."""
    made: list[Answers] = []
    for phase, run in ((PARAMETERS, _parameter_chunk), (SLATES, _slate_chunk)):
        asked = [target for target in targets if target.is_slate == (phase == SLATES)]
        if not asked:
            continue
        answers = [
            Answers(target, {name: np.full((3, replications), np.nan) for name in estimators_of(target)})
            for target in asked
        ]
        at_once = max(1, AT_ONCE // requests)
        traffic = sim.scenario.traffic.model_copy(update={"block": at_once * requests})
        arrivals = Arrivals(sim.world, traffic, phases=requests_by_phase(sim.scenario))
        total = replications * requests
        for index in range(-(-replications // at_once)):
            block = arrivals.block(phase, index, total)
            run(sim, arm, block, answers, index * at_once, requests, reward)
            on_requests(len(block))
        for answer in answers:
            answer.truth /= total
        made += answers
    return CoverageTable(
        rows={
            answer.target.name: {
                name: coverage_of(columns[0], columns[1], columns[2], answer.truth)
                for name, columns in answer.intervals.items()
            }
            for answer in made
        },
        ess_share={answer.target.name: float(np.mean(answer.ess_share)) for answer in made},
    )


def _parameter_chunk(
    sim: Simulation, arm: Arm, block: Block, answers: list[Answers], first: int, requests: int, reward: str
) -> None:
    assert sim.scenario.off_policy is not None
    log = parameter_log([parameter_tables(sim, block, arm)], arm.slots)
    law = randomiser(sim.scenario)
    noise = {parameter: log.noise[parameter] for parameter in law.sigmas}
    none = {parameter: np.zeros(len(block)) for parameter in law.sigmas}
    current, _ = serve_parameters(sim, block, arm, law, none)
    current_forecast = decision_forecast(current, sim.platform.slot_effects)[reward]
    for answer in answers:
        target = answer.target
        moved = law.moved(target.parameters)
        decision, _ = serve_parameters(sim, block, arm, moved, none if target.is_launch else noise)
        forecast = decision_forecast(decision, sim.platform.slot_effects)[reward]
        answer.truth += float(expected_rewards(sim, block, decision)[reward].sum())
        evidence = (
            launch_evidence(log, law, target, reward, forecast, current_forecast)
            if target.is_launch
            else parameter_evidence(log, law, target, reward, forecast, sim.scenario.off_policy.clip)
        )
        _answer(answer, evidence, first, len(block), requests)


def _slate_chunk(
    sim: Simulation, arm: Arm, block: Block, answers: list[Answers], first: int, requests: int, reward: str
) -> None:
    assert sim.scenario.off_policy is not None and sim.scenario.off_policy.slates is not None
    log = slate_log([slate_tables(sim, block, arm)], sim.scenario)
    gain, temperature = page_gain(log)[reward], sim.scenario.off_policy.slates.temperature
    for answer in answers:
        odds = page_odds(sim, arm, log, answer.target)
        answer.truth += float(slate_truth(sim, arm, log, answer.target)[reward].sum())
        _answer(answer, slate_evidence(log, temperature, odds, reward, gain), first, len(block), requests)


def _answer(answer: Answers, evidence: Evidence, first: int, n: int, requests: int) -> None:
    for i in range(n // requests):
        answer.put(first + i, evidence.rows(slice(i * requests, (i + 1) * requests)))


def trained(scenario: Scenario, progress: Progress) -> tuple[Simulation, Arm]:
    """The scenario's world with its models trained (or from the cache), and its baseline arm."""
    # its logs are needed for training alone
    with scratch_context(device="cpu", progress=progress) as context:
        sim = prepare(scenario, context).sim
    name = scenario.report.baseline
    return sim, sim.arm(name, resolved_arms(scenario)[name])
