"""What serving costs, arm by arm: FLOPs and bytes by formula, and microseconds as measured.

FLOPs and bytes follow from the nets and from the candidates that stages were handed: they are the same for
the same scenario, and are written to metrics.json. Microseconds are of this machine, and go to manifest.json
with other times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from cascade_sim.cascade.arm_cost import stage_costs
from cascade_sim.cascade.serve import Arm, Block, Platform, each_pass, priced
from cascade_sim.study.evaluate import ArmEvaluation, Evaluation

ROUNDS, REQUESTS = 5, 128  # the median of so many rounds, each of other requests


def cost_section(evaluation: ArmEvaluation) -> dict[str, Any]:
    """{"cost": {arm: {"stages": [...], "flops", "bytes", "scoring_flops"}}}, of a request; None: not known.

    `scoring_flops` are those of all stages but retrieval. {} for a log, whose scores are given.
    """
    if not evaluation.sim.environment.has("corpus"):
        return {}
    return {"cost": {name: _arm_cost(evaluation, name, arm) for name, arm in evaluation.arms.items()}}


def _arm_cost(evaluation: ArmEvaluation, name: str, arm: Arm) -> dict[str, Any]:
    left = evaluation.tallies[name].sizes / evaluation.n_requests  # after each stage; the last are shown
    stages = stage_costs(arm, evaluation.sim.world.n_ads, left[:-1].tolist())
    return {
        "stages": [asdict(stage) for stage in stages],
        "flops": _total([stage.flops for stage in stages]),
        "bytes": _total([stage.bytes for stage in stages]),
        "scoring_flops": _total([stage.flops for stage in stages[1:]]),
    }


def totals(cost: Mapping[str, Any]) -> dict[str, float | None]:
    """Of an arm's cost what is of all stages together."""
    return {name: value for name, value in cost.items() if name != "stages"}


def _total(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def measured_micros(
    evaluation: Evaluation, clock: Callable[[], float] = time.thread_time
) -> dict[str, dict[str, float]]:
    """Microseconds of CPU time a request, {arm: {stage: µs}}: the last stage with the auction.

    Arms take turns, and nothing is kept of what another has computed, as it is in the evaluation: a model in
    two stages is asked twice. But answers of retrieval that are kept per user are looked up. {} for a log.
    """
    if not evaluation.sim.environment.has("corpus"):
        return {}
    taken: dict[str, list[list[float]]] = {name: [] for name in evaluation.arms}
    for block in _parts(evaluation):
        for name, arm in evaluation.arms.items():
            spent = stage_seconds(block, arm, evaluation.sim.platform, clock)
            taken[name].append([1e6 * seconds / len(block) for seconds in spent])
    return {
        name: dict(zip(arm.stage_names, np.median(taken[name], axis=0).tolist(), strict=True))
        for name, arm in evaluation.arms.items()
        if taken[name]
    }


def _parts(evaluation: Evaluation) -> list[Block]:
    """Requests of the evaluation: as many parts as there are rounds, or fewer of a short one."""
    arrivals, n = evaluation.sim.arrivals, evaluation.n_requests
    parts: list[Block] = []
    index, left = 0, n
    while left > 0 and len(parts) < ROUNDS:
        block = arrivals.block("evaluate", index, n)
        starts = range(0, len(block), REQUESTS)
        parts += [block.take(slice(start, start + REQUESTS)) for start in starts]
        index, left = index + 1, left - len(block)
    return parts[:ROUNDS]


def stage_seconds(block: Block, arm: Arm, platform: Platform, clock: Callable[[], float]) -> list[float]:
    """What each stage of an arm takes for a block, retrieval first; the last one with the auction."""
    marks, passes = [clock()], []
    for made in each_pass(block, arm, platform):
        marks.append(clock())
        passes.append(made)
    priced(block, passes[-1], arm, platform)
    spent: list[float] = np.diff([*marks, clock()]).tolist()
    return spent


def mean_micros(worlds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The mean over worlds of what each measured; what a world lacks is left out.

    >>> mean_micros([{"a": {"ranking": 2.0}}, {"a": {"ranking": 4.0}}])
    {'a': {'ranking': 3.0}}
    """
    first = worlds[0] if worlds else {}
    return {
        arm: {
            stage: float(np.mean([world[arm][stage] for world in worlds]))
            for stage in stages
            if all(stage in world.get(arm, {}) for world in worlds)
        }
        for arm, stages in first.items()
    }
