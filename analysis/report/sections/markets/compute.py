"""Latency and compute in words and tables: who was answered in time, how busy servers were, what came in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.report.figures.compute import compute_hours, compute_latency, compute_value
from cascade_sim.analysis.report.readings import compute_arms, market_baseline, market_value, stage_headings
from cascade_sim.analysis.report.section import Columns, Figure, Section, TablePart, Text
from cascade_sim.analysis.report.tables import Cell, Table, arm_rows, column
from cascade_sim.analysis.report.text_helpers import percent
from cascade_sim.analysis.statistics.estimates import NBSP, Estimate, number_text

LEVEL = 0.005  # revenue within half a percent is called the same
# Where a number is in an arm's market section, and how people read it.
COLUMNS: dict[tuple[str, ...], Measure] = {
    ("compute", "mean_size"): Measure("Ads ranked", "number", "", 1),
    ("compute", "server_ms_per_request"): Measure("Server ms per request", "number", ""),
    ("compute", "latency", "p50"): Measure("Latency p50, ms", "number", ""),
    ("compute", "latency", "p90"): Measure("p90, ms", "number", ""),
    ("compute", "latency", "p99"): Measure("p99, ms", "number", ""),
    ("compute", "late"): Measure("Late", "percent", "", 2),
    ("revenue_per_request",): Measure("Revenue per request", "money", "", digits=4),
    ("rpm",): Measure("RPM", "money", "", digits=4),
    ("compute", "revenue_per_server_second"): Measure("Revenue per server second", "money", ""),
}
STAGE_COLUMNS = {
    "utilisation": Measure("Load", "percent", "", 1),
    "wait": Measure("Wait, ms", "number", ""),
    "server_ms_per_request": Measure("Server ms", "number", ""),
}


def compute_section(metrics: Mapping[str, Any]) -> Section | None:
    """The report's section on latency and compute; None for a study without it."""
    if not compute_arms(metrics):
        return None
    return Section(
        "compute",
        "Latency and compute",
        (compute_words(metrics),),
        (
            TablePart(arms_table(metrics)),
            Text(_about(metrics)),
            Columns(
                (
                    Figure(
                        "compute_value",
                        compute_value,
                        "Revenue per 1000 requests against server time per request, by arm",
                        "Revenue against server time, one point per arm.",
                    ),
                    Figure(
                        "compute_latency",
                        compute_latency,
                        "Share of requests that ranking answered within a time, by arm",
                        "What is missing at the deadline (dashed) was answered by an earlier stage.",
                    ),
                    Figure(
                        "compute_hours",
                        compute_hours,
                        "Load of the busiest servers and late requests by hour, by arm",
                        "Load of the busiest servers, and late requests.",
                    ),
                )
            ),
            TablePart(stages_table(metrics)),
            TablePart(answers_table(metrics)),
        ),
    )


def arms_table(metrics: Mapping[str, Any]) -> Table:
    """A row per arm: what it ranks, what that costs, how long pages take and what they earn."""
    arms = compute_arms(metrics)
    columns = [
        column(measure, [Estimate(market_value(metrics, arm, keys)) for arm in arms])
        for keys, measure in COLUMNS.items()
    ]
    headings = [measure.heading for measure in COLUMNS.values()]
    return Table("Latency and compute", "Arm", headings, arm_rows(metrics, arms, columns))


def stages_table(metrics: Mapping[str, Any]) -> Table:
    """The servers of each stage: load, mean wait, and server time per request."""
    arms, stages = compute_arms(metrics), stage_headings(metrics)
    columns: list[list[Cell]] = []
    for stage in stages:
        for name, measure in STAGE_COLUMNS.items():
            values = [
                Estimate(market_value(metrics, arm, ("compute", "stages", stage, name))) for arm in arms
            ]
            columns.append(column(measure, values))
    headings = [measure.heading for measure in STAGE_COLUMNS.values()]
    return Table(
        "Servers by stage",
        "Arm",
        headings * len(stages),
        arm_rows(metrics, arms, columns),
        [(name, len(headings)) for name in stages.values()],
    )


def answers_table(metrics: Mapping[str, Any]) -> Table:
    """Which stage's order requests got."""
    arms = compute_arms(metrics)
    share = Measure("", "percent", "", 2)
    answers = {**dict(reversed(stage_headings(metrics).items())), "none": "No stage"}
    columns = [
        column(share, [Estimate(market_value(metrics, arm, ("compute", "answered", stage))) for arm in arms])
        for stage in answers
    ]
    headings = [f"{name} %" for name in answers.values()]
    return Table("Stage that produced the served order", "Arm", headings, arm_rows(metrics, arms, columns))


def compute_words(metrics: Mapping[str, Any]) -> str:
    """How the baseline did against its deadline, and which arm earned most."""
    arms = compute_arms(metrics)
    if not arms:
        return ""
    base = market_baseline(metrics)
    base = base if base in arms else arms[0]
    late = market_value(metrics, base, ("compute", "late"))
    deadline = market_value(metrics, base, ("compute", "deadline"))
    half, most = (market_value(metrics, base, ("compute", "latency", q)) for q in ("p50", "p99"))
    text = (
        f"With {base}, {percent(late)} of requests missed the deadline of {_ms(deadline)}; "
        f"half were answered within {_ms(half)}, 99{NBSP}% within {_ms(most)}."
    )
    return f"{text} {_best_words(metrics, arms, base)}".rstrip()


def earned_most_words(metrics: Mapping[str, Any]) -> str:
    """Which arm earned most, at which cost; empty where there is nothing to compare."""
    arms, base = compute_arms(metrics), market_baseline(metrics)
    return _best_words(metrics, arms, base) if base in arms else ""


def _best_words(metrics: Mapping[str, Any], arms: list[str], base: str) -> str:
    """ "… earned most per request, …"; empty where there is nothing to compare."""
    earned = {arm: market_value(metrics, arm, ("revenue_per_request",)) for arm in arms}
    known = {arm: value for arm, value in earned.items() if value is not None}
    if len(known) < 2 or base not in known or known[base] <= 0:
        return ""
    best = max(known, key=lambda arm: known[arm])
    gain = known[best] / known[base] - 1
    if best == base or gain < LEVEL:
        return f"No arm earned more per request than {base} by {number_text(100 * LEVEL, 1)}{NBSP}% or more."
    cost, own = (market_value(metrics, arm, ("compute", "server_ms_per_request")) for arm in (best, base))
    text = f"{best} earned most per request, {number_text(100 * gain, 1)}{NBSP}% more than {base}"
    if cost is None or own is None or own <= 0:
        return text + "."
    change = cost / own - 1
    time = "the same" if abs(change) < LEVEL else f"{number_text(100 * change, 0, signed=True)}{NBSP}%"
    late = percent(market_value(metrics, best, ("compute", "late")))
    return f"{text}, with {time} server time and {late} late."


def _ms(value: float | None) -> str:
    return f"{number_text(value, 0)}{NBSP}ms"


def _about(metrics: Mapping[str, Any]) -> str:
    """The text below the table: what its columns mean, and how many servers each stage has."""
    first, stages = compute_arms(metrics)[0], stage_headings(metrics)
    servers = {
        heading: market_value(metrics, first, ("compute", "stages", stage, "servers"))
        for stage, heading in stages.items()
    }
    pools = ", ".join(
        f"{number_text(n, 0)} for {heading.lower()}" for heading, n in servers.items() if n is not None
    )
    return (
        f"Each stage has its own servers ({pools}), which take waiting requests in order. A request that a "
        "stage could not finish by the deadline gets the order of the stage before, at the deadline. Late "
        "counts all that were not answered by ranking. Load is busy time as a share of the servers' time."
    )
