"""Arms compared with each other: lifts over the baseline, paired contrasts, and the order arms are shown in.

The order and every decision rest on revenue per request. Revenue per impression (RPM) and CTR rise when an
arm shows fewer, dearer places, so they describe an arm and do not decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import is_reference, reference_arms
from cascade_sim.analysis.statistics.estimates import Estimate, arm_lift, estimate


def lift_measure(metrics: Mapping[str, Any], measure: str) -> str:
    """`expected_` + measure where any arm has a lift of it, else the realised measure."""
    expected = f"expected_{measure}"
    has_expected = any(arm_lift(metrics, arm, expected).value is not None for arm in metrics["arms"])
    return expected if has_expected else measure


def revenue_lift(metrics: Mapping[str, Any], arm: str) -> Estimate:
    """The lift that decides: expected revenue per request where known, else from the clicks drawn."""
    return arm_lift(metrics, arm, lift_measure(metrics, "revenue_per_request"))


def rpm_lift(metrics: Mapping[str, Any], arm: str) -> Estimate:
    """The lift of expected RPM where known, else of the realised RPM."""
    return arm_lift(metrics, arm, lift_measure(metrics, "rpm"))


def ctr_lift(metrics: Mapping[str, Any], arm: str) -> Estimate:
    """The lift of expected CTR where known, else of the realised CTR."""
    return arm_lift(metrics, arm, lift_measure(metrics, "ctr"))


def contrast(
    metrics: Mapping[str, Any], arm: str, rival: str, measure: str = "revenue_per_request"
) -> Estimate:
    """A measure of the arm relative to the rival's, expected if known, paired; empty where not in the run."""
    measure = lift_measure(metrics, measure)
    if rival == metrics["baseline"]:
        return arm_lift(metrics, arm, measure)
    measures = ((metrics.get("contrasts") or {}).get(arm) or {}).get(rival) or {}
    return estimate(measures.get(measure))


def is_about_pre_ranking(metrics: Mapping[str, Any]) -> bool:
    """Whether arms differ in pre-ranking, as far as is known (`arm_changes`: a line per key that differs).

    Else nothing is said of pre-ranking: a study of pricing rules is not about the ranker's order.
    """
    return _is_about(metrics, "pre_ranking")


def is_about_candidates(metrics: Mapping[str, Any]) -> bool:
    """Whether arms differ in retrieval or in pre-ranking: in which ads come to the ranking stage."""
    return _is_about(metrics, "pre_ranking") or _is_about(metrics, "retrieval")


def _is_about(metrics: Mapping[str, Any], stage: str) -> bool:
    differ = [line for lines in (metrics.get("arm_changes") or {}).values() for line in lines]
    return not differ or any(line.startswith((stage, f"cascade.{stage}")) for line in differ)


def ordered_arms(metrics: Mapping[str, Any]) -> list[str]:
    """Arms by revenue per request, best first, the baseline at its own 0; reference arms after all others.

    The engine's own reference arms differ in pre-ranking: a study of something else does not show them.
    """
    references, shows_all = reference_arms(metrics), is_about_pre_ranking(metrics)

    def place(arm: str) -> tuple[bool, float, str]:
        lift = 0.0 if arm == metrics["baseline"] else revenue_lift(metrics, arm).value
        return (
            arm in references and arm != metrics["baseline"],
            -lift if lift is not None else float("inf"),
            arm,
        )

    shown = [
        arm for arm in metrics["arms"] if shows_all or not is_reference(arm) or arm == metrics["baseline"]
    ]
    return sorted(shown, key=place)


def candidates(metrics: Mapping[str, Any]) -> list[str]:
    """Arms that could be shipped instead of the baseline and have a revenue lift, best first."""
    references = reference_arms(metrics)
    return [
        arm
        for arm in ordered_arms(metrics)
        if arm != metrics["baseline"]
        and arm not in references
        and revenue_lift(metrics, arm).value is not None
    ]
