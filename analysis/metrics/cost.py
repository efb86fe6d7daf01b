"""Quality against what a request costs: the points of a study's arms, and those that no other beats.

The cost of an arm is in FLOPs by formula. Retrieval is left out where it costs the same in all arms: what all
have in common would hide what tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cascade_sim.analysis.statistics.estimates import Estimate, finite
from cascade_sim.analysis.statistics.moves import frontier

ALL, SCORING = "flops", "scoring_flops"


@dataclass(frozen=True)
class CostPoint:
    """An arm: the FLOPs of a request, and a measure of its quality."""

    arm: str
    flops: float
    quality: Estimate

    @property
    def values(self) -> dict[str, float]:
        return {"quality": float(self.quality.value or 0.0), "flops": self.flops}


def stages_of(metrics: Mapping[str, Any], arm: str) -> list[Mapping[str, Any]]:
    """What each stage of an arm costs; nothing where a study does not know."""
    stages: list[Mapping[str, Any]] = ((metrics.get("cost") or {}).get(arm) or {}).get("stages") or []
    return stages


def compared_cost(metrics: Mapping[str, Any], arms: Iterable[str]) -> str:
    """Which total arms are compared by: SCORING where retrieval costs all of them the same, else ALL."""
    searches = {finite(stages[0].get("flops")) for arm in arms if (stages := stages_of(metrics, arm))}
    return SCORING if len(searches) == 1 else ALL


def flops_of(metrics: Mapping[str, Any], arm: str, total: str) -> float | None:
    """FLOPs of a request of an arm; None where not known."""
    return finite(((metrics.get("cost") or {}).get(arm) or {}).get(total))


def cost_points(
    metrics: Mapping[str, Any], arms: Sequence[str], quality: Mapping[str, Estimate]
) -> list[CostPoint]:
    """The arms whose cost and quality are both known, in their order."""
    total, points = compared_cost(metrics, arms), []
    for arm in arms:
        flops, own = flops_of(metrics, arm, total), quality.get(arm, Estimate())
        if flops is not None and own.value is not None:
            points.append(CostPoint(arm, flops, own))
    return points


def cost_frontier(points: Sequence[CostPoint]) -> list[CostPoint]:
    """The points that no other beats, the cheapest first.

    >>> of = lambda arm, flops, value: CostPoint(arm, flops, Estimate(value))
    >>> [point.arm for point in cost_frontier([of("a", 9.0, 2.0), of("b", 1.0, 1.0), of("c", 5.0, 0.5)])]
    ['b', 'a']
    """
    found = [points[i] for i in frontier([point.values for point in points], "quality", "flops")]
    return sorted(found, key=lambda point: point.flops)
