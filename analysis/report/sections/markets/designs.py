"""Experiments on a market in words and tables: what each design says, what is true, and which to trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.report.figures.designs import design_effects, design_sequence
from cascade_sim.analysis.report.readings import (
    DESIGN_NAMES,
    design_effect,
    design_kinds,
    design_truth,
    design_verdict,
    designs_of,
)
from cascade_sim.analysis.report.section import Columns, Figure, Section, TablePart, Text, titled
from cascade_sim.analysis.report.tables import Cell, Row, Table, column
from cascade_sim.analysis.report.text_helpers import listed
from cascade_sim.analysis.statistics.estimates import (
    MISSING,
    NBSP,
    Estimate,
    estimate,
    finite,
    interval_text,
    number_text,
    percent_text,
    scaled,
)

REVENUE = "revenue_per_request"
MEASURES = {
    REVENUE: "Revenue per request",
    "clicks_per_request": "Clicks per request",
    "ctr": "CTR",
    "cpc": "CPC",
}
MONEY, SHARE = Measure("", "money", "", digits=4), Measure("", "percent", "", 1)


def design_section(metrics: Mapping[str, Any]) -> Section | None:
    """The report's section on experiments; None for a study without any."""
    if not design_kinds(metrics):
        return None
    return Section(
        "designs",
        "Experiment designs: bias and precision",
        (design_words(metrics),),
        (
            Text(trust_words(metrics)),
            TablePart(designs_table(metrics)),
            Columns(
                (
                    Figure(
                        "design_effects",
                        design_effects,
                        "Lift in revenue per request by each design, against the truth",
                        "Lift in revenue per request as each design has it, with 95 % intervals; green: what "
                        "a launch brings, its band over days or worlds. Squares miss it; grey: too uncertain "
                        "to tell.",
                    ),
                    Figure(
                        "design_sequence",
                        design_sequence,
                        "The trial by request over its days, with intervals",
                        "The trial by request after every hour, all before included. Shaded: the interval "
                        "that holds at all looks together; dashed: the one for a single look; green: the "
                        "truth.",
                    ),
                )
            ),
            Text(sequence_words(metrics)),
            *titled(
                "What the days before the trial bring",
                cuped_table(metrics),
                Text(cuped_words(metrics), "small"),
            ),
            *titled("Other measures", measures_table(metrics), Text(_about(metrics), "small")),
        ),
        short="Experiments",
    )


def _with_verdict(metrics: Mapping[str, Any], word: str) -> list[str]:
    return [kind for kind in design_kinds(metrics) if design_verdict(metrics, kind) == word]


def designs_table(metrics: Mapping[str, Any]) -> Table:
    """A row for the truth and one per design: revenue per request in both arms, lift and bias."""
    kinds, designs = design_kinds(metrics), designs_of(metrics)

    def entries(key: str) -> list[Estimate]:
        return [design_truth(metrics, key), *(design_effect(metrics, kind, key) for kind in kinds)]

    spend = [Estimate(estimate(designs["kinds"][kind].get("spend_share")).value) for kind in kinds]
    units = [Estimate(finite(designs["kinds"][kind]["measures"][REVENUE].get("units"))) for kind in kinds]
    bias = [design_effect(metrics, kind, "lift_bias") for kind in kinds]
    columns = [
        column(MONEY, [Estimate(entry.value) for entry in entries("control")]),
        column(MONEY, [Estimate(entry.value) for entry in entries("treatment")]),
        column(SHARE, entries("lift"), signed=True),
        [Cell("0"), *column(SHARE, bias, signed=True)],
        [Cell(MISSING), *column(SHARE, spend)],
        [Cell(MISSING), *column(Measure("", "number", "", 0), units)],
    ]
    rows = _rows(kinds, columns, "Total treatment effect: all treated, less none treated.")
    versions = [str(designs["control"]), str(designs["treatment"])]
    headings = [*versions, "Lift %", "Bias, points", "Spend %", "Units"]
    groups = [("Revenue per request", 4), ("Treatment's share", 1), ("Interval rests on", 1)]
    return Table("Estimate by design", "Design", headings, rows, groups)


def _rows(kinds: Sequence[str], columns: Sequence[Sequence[Cell]], about_launch: str = "") -> list[Row]:
    """The launch, which is the truth, and then a row per design."""
    first, *others = ([cells[i] for cells in columns] for i in range(1 + len(kinds)))
    launch = Row("launch", first, "baseline", about_launch, "truth")
    return [launch, *(Row(DESIGN_NAMES[kind], cells) for kind, cells in zip(kinds, others, strict=True))]


def measures_table(metrics: Mapping[str, Any]) -> Table:
    """Lift and bias of the other measures."""
    kinds = design_kinds(metrics)
    names = [name for name in MEASURES if name != REVENUE and name in designs_of(metrics)["truth"]]
    columns = []
    for name in names:
        lifts = [
            design_truth(metrics, "lift", name),
            *(design_effect(metrics, kind, "lift", name) for kind in kinds),
        ]
        bias = [design_effect(metrics, kind, "lift_bias", name) for kind in kinds]
        columns += [column(SHARE, lifts, signed=True), [Cell("0"), *column(SHARE, bias, signed=True)]]
    rows = _rows(kinds, columns)
    groups = [(MEASURES[name], 2) for name in names]
    return Table("Other measures", "Design", ["Lift %", "Bias, points"] * len(names), rows, groups)


def cuped_table(metrics: Mapping[str, Any]) -> Table | None:
    """What the days before the trial bring to the design by user; None without them."""
    cuped = designs_of(metrics).get("cuped") or {}
    if not cuped:
        return None
    labels = {"revenue_per_user": "Revenue per user", REVENUE: "Revenue per request"}
    names = [name for name in labels if name in cuped]
    columns = [
        column(MONEY, [estimate(cuped[name]["plain"]) for name in names], signed=True),
        column(MONEY, [estimate(cuped[name]["adjusted"]) for name in names], signed=True),
        column(Measure("", "number", "", 2), [Estimate(finite(cuped[name]["theta"])) for name in names]),
        column(SHARE, [_saved(cuped[name]["variance_ratio"]) for name in names]),
    ]
    rows = [Row(labels[name], [cells[i] for cells in columns]) for i, name in enumerate(names)]
    headings = ["Difference", "with CUPED", "Theta", "Variance saved %"]
    return Table("CUPED, by user", "Measure", headings, rows)


def _saved(ratio: Any) -> Estimate:
    kept = estimate(ratio)
    flipped = [None if x is None else 1.0 - x for x in (kept.value, kept.high, kept.low)]
    return Estimate(*flipped)


def design_headline(metrics: Mapping[str, Any]) -> str:
    """What a launch brings, and which trials tell it."""
    real, names = design_truth(metrics), {}
    for word in ("right", "wrong"):
        names[word] = [DESIGN_NAMES[kind] for kind in _with_verdict(metrics, word)]
    parts = [f"unbiased within error: {listed(names['right'])}"] if names["right"] else []
    parts += [f"biased: {listed(names['wrong'])}"] if names["wrong"] else []
    told = "; ".join(parts) or "no design is conclusive"
    earns = f"{designs_of(metrics)['treatment']} earns {percent_text(Estimate(real.value))} per request"
    return f"With a 100 % rollout {earns}; {told}."


def design_words(metrics: Mapping[str, Any]) -> str:
    """What a launch brings, what the designs make of it, and whether splitting budgets corrects it."""
    designs, real, wrong = designs_of(metrics), design_truth(metrics), _with_verdict(metrics, "wrong")
    text = (
        f"With a 100 % rollout {designs['treatment']} earns {percent_text(Estimate(real.value))} per "
        f"request against {designs['control']}."
    )
    if wrong:
        biases = [design_effect(metrics, kind, "lift_bias") for kind in wrong]
        told = [f"{DESIGN_NAMES[kind]} {_points(bias)}" for kind, bias in zip(wrong, biases, strict=True)]
        over = sum(bias.is_above_zero for bias in biases)
        verb = "overstate" if over == len(wrong) else "misstate" if over else "understate"
        who = "Experiments" if "budget" in wrong else "Experiments in which the arms share budgets"
        text += f" {who} {verb} it: {listed(told)}."
    if "budget" in _with_verdict(metrics, "right"):
        text += (
            f" With split budgets the trial says {percent_text(design_effect(metrics, 'budget', 'lift'))}: "
            "what is left of the bias lies within its interval."
        )
    return text


def trust_words(metrics: Mapping[str, Any]) -> str:
    """Which design can be trusted here, which cannot, and of which the trial is too small to tell."""
    right, wrong, unclear, unknown = (
        _with_verdict(metrics, word) for word in ("right", "wrong", "unclear", "unknown")
    )
    right.sort(key=lambda kind: design_effect(metrics, kind, "lift_bias").half_width or 0.0)
    trusted = [
        f"{DESIGN_NAMES[kind]} (bias {_points(design_effect(metrics, kind, 'lift_bias'))})" for kind in right
    ]
    parts = [
        f"Unbiased within error: {listed(trusted)}." if trusted else "No design is unbiased within error."
    ]
    if wrong:
        parts.append(f"Biased: {listed([DESIGN_NAMES[kind] for kind in wrong])}.")
    if unclear:
        told = [
            f"{DESIGN_NAMES[kind]} {_points(design_effect(metrics, kind, 'lift_bias'))}" for kind in unclear
        ]
        parts.append(f"Inconclusive: {listed(told)}.")
    if unknown:
        parts.append(f"Without an interval: {listed([DESIGN_NAMES[kind] for kind in unknown])}.")
    return " ".join(parts)


def cuped_words(metrics: Mapping[str, Any]) -> str:
    cuped = designs_of(metrics).get("cuped") or {}
    saved = {name: _saved(cuped[name]["variance_ratio"]).value for name in cuped}
    whole, each = saved.get("revenue_per_user"), saved.get(REVENUE)
    if whole is None:
        return ""
    parts = [f"{number_text(100 * whole, 0)}{NBSP}% of the variance of revenue per user"]
    if each is not None:
        parts.append(f"{number_text(100 * each, 0)}{NBSP}% of that of revenue per request")
    return (
        f"What users did before the trial explains {listed(parts)}. CUPED makes intervals shorter; it does "
        "nothing against a bias."
    )


def sequence_words(metrics: Mapping[str, Any]) -> str:
    """When the trial by request, watched every hour, could have been stopped."""
    lines = designs_of(metrics).get("sequence") or {}
    if not lines.get("time"):
        return ""

    def first(low: str, high: str) -> float | None:
        ends = zip(lines["time"], lines[low], lines[high], strict=True)
        return next((t for t, a, b in ends if a is not None and b is not None and (a > 0 or b < 0)), None)

    valid, fixed = first("low", "high"), first("fixed_low", "fixed_high")
    seeds = " (means over worlds)" if metrics.get("seeds") else ""
    told = (
        f"first excludes zero at hour {number_text(valid, 0)}"
        if valid is not None
        else "never excludes zero in this time"
    )
    naive = f"; the interval for a single look does so at hour {number_text(fixed, 0)}" if fixed else ""
    return (
        f"Watched every hour{seeds}, the interval that holds at all looks {told}{naive}. Being sure early is "
        "not being right: it closes in on what this design measures, bias included."
    )


def _points(bias: Estimate) -> str:
    points = scaled(bias, 100.0)
    text = f"{number_text(points.value, 1, signed=True)} points {interval_text(points, 1, signed=True)}"
    return text.strip().replace(" ", NBSP)


def _about(metrics: Mapping[str, Any]) -> str:
    designs = designs_of(metrics)
    seeds, pre = metrics.get("seeds"), finite(designs.get("pre_days")) or 0.0
    hours = (finite(designs.get("switchback")) or 0.0) / 3600
    share = number_text(100 * (finite(designs.get("share")) or 0.0), 0)
    spread = (
        f"Intervals are Student t intervals between {seeds.get('n')} worlds."
        if seeds
        else "Intervals are those an experimenter would compute: by request, by user (cluster-robust), by "
        "time slot within hours of the day, and paired by day for split budgets. The truth is exact for "
        "these days; its own interval says how much it would vary over other days."
    )
    return (
        f"{number_text(finite(designs.get('days')), 1).removesuffix('.0')} days on trial, {share}{NBSP}% "
        f"treated{f', after {pre:.0f} with all on control' if pre else ''}. By request, by user and in "
        f"the switchback (slots of {number_text(hours, 1).removesuffix('.0')} hours) both arms draw on the "
        "same budgets and face the same bids. With split budgets each arm has its share of every budget and "
        "bidders of its own, and the requests of the trial by request. Bias is the lift less the launch's. "
        f"{spread}"
    )
