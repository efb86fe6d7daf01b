"""Figures of experiments on a market: what each design says against the truth, and a trial as it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.report.figures.style import (
    COLORS,
    INK,
    LEAST,
    ON_PAPER,
    QUIET,
    bare,
    blank,
    signed_tick,
)
from cascade_sim.analysis.report.readings import (
    DESIGN_NAMES,
    design_effect,
    design_kinds,
    design_truth,
    design_verdict,
    designs_of,
)
from cascade_sim.analysis.statistics.estimates import Estimate, finite, number_text, scaled

TRUTH, RIGHT, WRONG, UNCLEAR = COLORS[2], COLORS[0], COLORS[1], QUIET


def design_effects(metrics: Mapping[str, Any]) -> Any | None:
    """The lift in revenue per request of each design with its interval; the truth as a band."""
    kinds = design_kinds(metrics)
    if not kinds:
        return None
    figure, axes = blank(0.95 + 0.42 * len(kinds))
    bare(axes, grid="x", left=False)
    real = scaled(design_truth(metrics), 100.0)
    if real.low is not None and real.high is not None:
        axes.axvspan(real.low, real.high, color=TRUTH, alpha=0.18, linewidth=0)
    if real.value is not None:
        axes.axvline(real.value, color=TRUTH, linewidth=1.6)
        label = f"truth {number_text(real.value, 1, signed=True)} %"
        axes.annotate(
            label, (real.value, 1.0), (3, 2), xycoords=("data", "axes fraction"), textcoords="offset points",
            color=TRUTH, va="bottom", ha="center",
        )  # fmt: skip
    places = list(range(len(kinds)))[::-1]
    for y, kind in zip(places, kinds, strict=True):
        effect = scaled(design_effect(metrics, kind, "lift"), 100.0)
        if effect.value is None:
            continue
        color = {"right": RIGHT, "wrong": WRONG}.get(design_verdict(metrics, kind), UNCLEAR)
        if effect.low is not None and effect.high is not None:
            axes.plot([effect.low, effect.high], [y, y], color=color, linewidth=2.2, solid_capstyle="butt")
        axes.plot([effect.value], [y], marker="s" if color == WRONG else "o", color=color, markersize=6)
        _name(axes, effect, y, color)
    axes.axvline(0.0, color=QUIET, linewidth=0.8)
    axes.set_yticks(places, [DESIGN_NAMES[kind] for kind in kinds])
    axes.set_ylim(-0.6, len(kinds) - 0.35)
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter(signed_tick)
    axes.set_xlabel("lift in revenue per request, %")
    return figure


def _name(axes: Any, effect: Estimate, y: float, color: str) -> None:
    """The value, right of its interval."""
    end = effect.value if effect.high is None else effect.high
    axes.annotate(
        number_text(effect.value, 1, signed=True), (end, y), (7, 0),
        textcoords="offset points", ha="left", va="center", color=color, fontsize=LEAST,
        bbox=ON_PAPER,
    )  # fmt: skip


def design_sequence(metrics: Mapping[str, Any]) -> Any | None:
    """The trial by request hour by hour: the estimate, the interval for all looks and that for one."""
    lines = designs_of(metrics).get("sequence") or {}
    rows = [
        (t / 24, *(finite(lines[name][i]) for name in ("estimate", "low", "high", "fixed_low", "fixed_high")))
        for i, t in enumerate(lines.get("time") or [])
    ]
    rows = [row for row in rows if all(value is not None for value in row)]
    if len(rows) < 2:
        return None
    days, value, low, high, fixed_low, fixed_high = (list(column) for column in zip(*rows, strict=True))
    figure, axes = blank(2.9)
    bare(axes, grid="y")
    axes.fill_between(days, low, high, color=COLORS[0], alpha=0.16, linewidth=0, label="holds at all looks")
    axes.plot(days, fixed_low, color=COLORS[1], linewidth=1.1, linestyle="--", label="for a single look")
    axes.plot(days, fixed_high, color=COLORS[1], linewidth=1.1, linestyle="--")
    axes.plot(days, value, color=INK, linewidth=1.6, label="by request, so far")
    real = design_truth(metrics, "difference").value
    if real is not None:
        axes.axhline(real, color=TRUTH, linewidth=1.6, label="truth")
    axes.axhline(0.0, color=QUIET, linewidth=0.8)
    # The first looks are so wide that they would flatten the rest.
    later = [(a, b) for day, a, b in zip(days, low, high, strict=True) if day >= min(0.5, days[-1] / 4)]
    ends = [*(a for a, _ in later), *(b for _, b in later), 0.0, real or 0.0]
    room = 0.06 * (max(ends) - min(ends))
    axes.set_ylim(min(ends) - room, max(ends) + room)
    axes.set_xlim(0, days[-1])
    axes.set(xlabel="day of the trial", ylabel="revenue per request,\ntreatment less control")
    figure.legend(loc="outside upper left", ncols=2, handlelength=1.8, columnspacing=1.4)
    return figure
