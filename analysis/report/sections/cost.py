"""What a request costs, stage by stage, beside what it brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure, reference_arms
from cascade_sim.analysis.metrics.cost import (
    SCORING,
    CostPoint,
    compared_cost,
    cost_frontier,
    cost_points,
    flops_of,
    stages_of,
)
from cascade_sim.analysis.report.comparisons import contrast, lift_measure, ordered_arms
from cascade_sim.analysis.report.figures.cost import cost, rpm_lifts
from cascade_sim.analysis.report.section import Details, Figure, Section, TablePart, Text
from cascade_sim.analysis.report.tables import (
    Cell,
    Row,
    Table,
    arm_rows,
    column,
    lift_column,
    value_column,
)
from cascade_sim.analysis.report.text_helpers import listed, percent, stage_name
from cascade_sim.analysis.statistics.estimates import MISSING, Estimate, finite, percent_text

ABOUT = (
    "FLOPs are counted from the formulas of the models and the mean candidates that each stage was handed, a "
    "multiply-add as two; kB are the rows of users and ads that are read. Selection, fusion and the auction "
    "count as nothing, and so do random, constant and bid-only stages. What is computed of the ads once per "
    "deployment is not in them."
)
MEASURED = (
    " µs are CPU time on the machine of this run, of the simulator's own kernels: they compare stages with "
    "each other, and say little of another server. The last stage's have the auction in them."
)
KEPT = (
    " Retrieval that is kept per user is counted as a search for every request; its µs are of answers looked "
    "up."
)
FRONT = (
    "The frontier is by point estimates. An arm on it may still not differ significantly from its neighbours."
)
NUMBER, SHARE = Measure("", "number", ""), Measure("", "percent", "", 1)


def cost_section(metrics: Mapping[str, Any]) -> Section | None:
    """Costs of all arms; None where nothing of them is known."""
    arms = [arm for arm in ordered_arms(metrics) if stages_of(metrics, arm)]
    if not arms:
        return None
    kept = any(stage.get("is_kept") for arm in arms for stage in stages_of(metrics, arm))
    about = ABOUT + (MEASURED if _micros(metrics) else "") + (KEPT if kept else "")
    return Section(
        "cost",
        "Cost by stage",
        parts=(
            Text(cost_words(metrics), "finding"),
            Figure(
                "cost",
                cost,
                "Quality against FLOPs a request",
                "A point per arm; hollow ones are reference arms. Dashed: arms that no other beats in both. "
                "Up and to the left is better. Bars are 95 % intervals.",
            ),
            TablePart(totals_table(metrics, arms)),
            Text(FRONT, "small"),
            Details((TablePart(stages_table(metrics, arms)),), "Every stage of every arm"),
            Text(about, "small"),
        ),
        rests_on_data=True,
        short="Cost",
    )


def cost_words(metrics: Mapping[str, Any]) -> str:
    """What the best arm costs beside the cheapest, and whether that pays; of arms that can be shipped."""
    references = reference_arms(metrics)
    arms = [arm for arm in ordered_arms(metrics) if arm not in references or arm == metrics["baseline"]]
    points = cost_points(metrics, arms, rpm_lifts(metrics, arms))
    if len(points) < 2:
        return ""
    of = "after retrieval" if compared_cost(metrics, arms) == SCORING else "in all stages"
    cheap = min(points, key=lambda point: (point.flops, -point.values["quality"]))
    best = max(points, key=lambda point: (point.values["quality"], -point.flops))
    if all(point.flops == cheap.flops for point in points):
        return f"All arms take {flops_text(cheap.flops)} a request {of}: they differ in quality alone."
    if best is cheap:
        least = f"{best.arm} takes least, {flops_text(best.flops)} a request {of}"
        return f"{least}, and has the highest expected RPM."
    share = percent(cheap.flops / best.flops, 0)
    said = (
        f"{best.arm} has the highest expected RPM, at {flops_text(best.flops)} a request {of}. "
        f"{cheap.arm} takes {share} of that; its expected RPM is {_gap_text(metrics, cheap, best)}."
    )
    between = [p.arm for p in cost_frontier(points) if p not in (cheap, best)]
    return said + (f" Between them on the frontier: {listed(between)}." if between else "")


def _gap_text(metrics: Mapping[str, Any], cheap: CostPoint, best: CostPoint) -> str:
    gap = contrast(metrics, cheap.arm, best.arm, "rpm")
    if gap.value is None:  # the baseline is compared with others the other way round
        gap = _turned(contrast(metrics, best.arm, cheap.arm, "rpm"))
    if gap.value is None:
        return "lower"
    sure = "" if gap.is_below_zero else ", not significantly lower"
    return f"{percent_text(gap)} against it{sure}"


def _turned(lift: Estimate) -> Estimate:
    """The lift of b over a, of the lift of a over b."""

    def turned(x: float | None) -> float | None:
        return None if x is None or x <= -1 else 1.0 / (1.0 + x) - 1.0

    return Estimate(turned(lift.value), turned(lift.high), turned(lift.low))


def flops_text(flops: float) -> str:
    """
    >>> flops_text(1_234_000.0), flops_text(20_500.0), flops_text(0.0)
    ('1.23 MFLOPs', '20.5 kFLOPs', '0 FLOPs')
    """
    for size, unit in ((1e9, "GFLOPs"), (1e6, "MFLOPs"), (1e3, "kFLOPs")):
        if flops >= size:
            return f"{flops / size:.3g} {unit}"
    return f"{flops:.3g} FLOPs"


def totals_table(metrics: Mapping[str, Any], arms: Sequence[str]) -> Table:
    """A row per arm: what its stages take together, and the quality of its pages."""
    total, measure = compared_cost(metrics, arms), lift_measure(metrics, "rpm")
    entries = [metrics["cost"][arm] for arm in arms]
    micros = [sum(_micros(metrics).get(arm, {}).values()) or None for arm in arms]
    front = {point.arm for point in cost_frontier(cost_points(metrics, arms, rpm_lifts(metrics, arms)))}
    made: dict[str, list[Cell]] = {}
    if total == SCORING:
        scoring = [flops_of(metrics, arm, SCORING) for arm in arms]
        made["kFLOPs after retrieval"] = _numbers(scoring, 1e-3)
    made["kFLOPs"] = _numbers([finite(entry.get("flops")) for entry in entries], 1e-3)
    made["kB"] = _numbers([finite(entry.get("bytes")) for entry in entries], 1e-3)
    if any(micros):
        made["µs"] = _numbers(micros)
    n_cost = len(made)
    made["RPM"] = value_column(metrics, arms, measure)
    made["RPM lift %"] = lift_column(metrics, arms, measure)
    made["RCS %"] = value_column(metrics, arms, "rcs")
    made["frontier"] = [Cell("yes" if arm in front else "") for arm in arms]
    rows = arm_rows(metrics, arms, list(made.values()))
    groups = [("A request", n_cost), ("Pages", 3), ("FLOPs and RPM", 1)]
    return Table("Cost and quality", "Arm", list(made), rows, groups)


def stages_table(metrics: Mapping[str, Any], arms: Sequence[str]) -> Table:
    """A row per stage of every arm: candidates, FLOPs, bytes and time, with its share of the arm's."""
    found = [(arm, stage) for arm in arms for stage in stages_of(metrics, arm)]
    spent = [finite(_micros(metrics).get(arm, {}).get(stage.get("stage"))) for arm, stage in found]
    whole = {
        arm: sum(t or 0.0 for (own, _), t in zip(found, spent, strict=True) if own == arm) for arm in arms
    }
    flops = [finite(stage.get("flops")) for _, stage in found]
    of_arm = [flops_of(metrics, arm, "flops") for arm, _ in found]
    made: dict[str, list[Cell]] = {
        "stage": [Cell(stage_name(str(stage.get("stage")))) for _, stage in found],
        "by": [Cell(_by(stage)) for _, stage in found],
        "candidates": _numbers([finite(stage.get("candidates")) for _, stage in found]),
        "kFLOPs": _numbers(flops, 1e-3),
        "% of FLOPs": _shares(flops, of_arm),
        "kB": _numbers([finite(stage.get("bytes")) for _, stage in found], 1e-3),
    }
    if any(time is not None for time in spent):
        made["µs"] = _numbers(spent)
        made["% of µs"] = _shares(spent, [whole[arm] for arm, _ in found])
    rows = [Row(arm, [cells[i] for cells in made.values()], arm=arm) for i, (arm, _) in enumerate(found)]
    return Table("Every stage", "Arm", list(made), rows)


def _by(stage: Mapping[str, Any]) -> str:
    return f"{stage.get('model')}{', kept per user' if stage.get('is_kept') else ''}"


def _numbers(values: Sequence[float | None], factor: float = 1.0) -> list[Cell]:
    """A column of numbers, each with three significant digits: costs are orders of magnitude apart."""
    return [
        Cell(MISSING) if value is None else column(NUMBER, [Estimate(factor * value)])[0] for value in values
    ]


def _shares(parts: Sequence[float | None], wholes: Sequence[float | None]) -> list[Cell]:
    pairs = zip(parts, wholes, strict=True)
    return column(SHARE, [Estimate(p / w if p is not None and w else None) for p, w in pairs])


def _micros(metrics: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Measured times by arm and stage, of the manifest; nothing where they were not taken."""
    found = metrics.get("micros")
    by_arm = found if isinstance(found, Mapping) else {}
    return {
        str(arm): {stage: time for stage, time in own.items() if finite(time) is not None}
        for arm, own in by_arm.items()
        if isinstance(own, Mapping)
    }
