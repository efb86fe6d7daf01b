"""Figures about predictions: how scores are distributed, and the proxy compared with the ranker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.figures.market import legend_columns, legend_room
from cascade_sim.analysis.report.figures.style import (
    INK,
    LEAST,
    QUIET,
    arm_colors,
    arm_markers,
    bare,
    blank,
    label,
    mark_legend,
    of_arms,
    percent_tick,
    ranker_model,
    score_models,
)
from cascade_sim.analysis.report.readings import candidate_sets
from cascade_sim.analysis.report.text_helpers import stage_name
from cascade_sim.analysis.statistics.estimates import finite

PANELS = {"win_set": "Win set: what was shown", "competitive_set": "Competitive set: what was handed on"}
LINES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))


def score_distributions(metrics: Mapping[str, Any]) -> Any | None:
    """Densities of log10 pCTR per set: the ranker's as a grey area, each pre-ranking model's as a line."""
    distributions = (metrics.get("curves") or {}).get("score_distribution") or {}
    panels = [
        (_panel_title(part), distributions[part])
        for part in candidate_sets(metrics)
        if (distributions.get(part) or {}).get("density")
    ]
    if not panels:
        return None
    colors, ranker = arm_colors(metrics), ranker_model(metrics)
    lines = {name: LINES[i % len(LINES)] for i, name in enumerate(score_models(metrics))}
    height = 0.8 + 1.75 * len(panels) + legend_room(_legend_names(list(lines), ranker))
    figure, grid = blank(height, nrows=len(panels), sharex=True, squeeze=False)
    handles: dict[str, Any] = {}
    for axes, (title, panel) in zip(grid[:, 0], panels, strict=True):
        bare(axes, grid="x")
        for model, density in panel["density"].items():
            if density is None or any(finite(height) is None for height in density):
                continue
            is_ranker = model == ranker
            with of_arms(axes, model):  # a model that is called like an arm goes with it, as its colour does
                if is_ranker:
                    axes.stairs(density, panel["edges"], fill=True, color="#D5DAE1", zorder=1)
                handles[model] = axes.stairs(
                    density,
                    panel["edges"],
                    color=colors[model],
                    linewidth=1.0 if is_ranker else 1.5,
                    linestyle="-" if is_ranker else lines[model],
                    zorder=2,
                )
        axes.set_title(title, loc="left", color=INK)
        axes.set_ylim(bottom=0)
        axes.set_yticks([])
        axes.set_ylabel("density", color=QUIET)
    last = grid[-1, 0]
    last.set_xlabel("predicted CTR (log scale)")
    low, high = _filled(panels)
    last.set_xlim(low, high)
    last.set_xticks(range(math.ceil(low), math.floor(high) + 1))
    last.xaxis.set_major_formatter(percent_tick)
    _legend(figure, handles, ranker)
    return figure


def _panel_title(part: str) -> str:
    """A set of candidates, and what it is."""
    step = stage_name(part.removesuffix("_set"))
    return PANELS.get(part, f"{step.capitalize()} set: what {step} must judge")


def _filled(panels: list[tuple[str, Any]]) -> tuple[float, float]:
    """The part of the axis where any curve rises above a hundredth of its peak, with a little room."""
    ends = []
    for _, panel in panels:
        edges = panel["edges"]
        for density in panel["density"].values():
            heights = [finite(height) or 0.0 for height in density or []]
            above = [i for i, height in enumerate(heights) if height > 0.01 * max(heights)]
            ends += [edges[above[0]], edges[above[-1] + 1]] if above else []
    if not ends:
        return panels[0][1]["edges"][0], panels[0][1]["edges"][-1]
    return min(ends) - 0.15, max(ends) + 0.15


def reliability(metrics: Mapping[str, Any]) -> Any | None:
    """Mean ranker pCTR against mean pre-ranking pCTR by bins; on the diagonal the proxy is calibrated."""
    reliability = (metrics.get("curves") or {}).get("proxy_reliability") or {}
    curves = {}
    for model, curve in reliability.items():
        points = zip((curve or {}).get("predicted") or [], (curve or {}).get("ranker") or [], strict=False)
        kept = [(x, y) for x, y in points if (finite(x) or 0.0) > 0 and (finite(y) or 0.0) > 0]
        if kept:  # a score of zero has no place on a log axis
            curves[model] = kept
    if not curves:
        return None
    colors, markers = arm_colors(metrics), arm_markers(metrics)
    figure, axes = blank(4.1 + legend_room(list(curves)))
    bare(axes)
    ends = [math.log10(value) for pairs in curves.values() for pair in pairs for value in pair]
    low, high = min(ends) - 0.15, max(ends) + 0.15
    axes.plot([low, high], [low, high], color=QUIET, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    handles = {}
    for model, pairs in curves.items():
        x, y = ([math.log10(pair[i]) for pair in pairs] for i in (0, 1))
        with of_arms(axes, model):
            handles[model] = axes.plot(
                x,
                y,
                color=colors[model],
                marker=markers[model],
                markersize=3.6,
                linewidth=1.3,
                markeredgewidth=0,
                zorder=2,
            )[0]
    step = max(1, math.ceil((high - low) / 6))
    ticks = range(math.ceil(low), math.floor(high) + 1, step)
    axes.set(
        xlim=(low, high),
        ylim=(low, high),
        xticks=ticks,
        yticks=ticks,
        aspect="equal",
        xlabel="mean pre-ranking pCTR",
        ylabel="mean ranker pCTR",
    )
    axes.xaxis.set_major_formatter(percent_tick)
    axes.yaxis.set_major_formatter(percent_tick)
    axes.text(
        0.04, 0.96, "pre-ranking too low", transform=axes.transAxes, va="top", color=QUIET, fontsize=LEAST
    )
    axes.text(
        0.96, 0.04, "pre-ranking too high", transform=axes.transAxes, ha="right", color=QUIET, fontsize=LEAST
    )
    _legend(figure, handles)
    return figure


def _legend_names(models: Sequence[str], ranker: str | None) -> list[str]:
    return [f"{name} (ranking stage)" if name == ranker else name for name in models]


def _legend(figure: Any, handles: Mapping[str, Any], ranker: str | None = None) -> None:
    """Names under the plot, in rows that fit the width."""
    names = _legend_names(list(handles), ranker)
    columns = legend_columns(names)
    made = figure.legend(
        list(handles.values()),
        [label(name) for name in names],
        loc="outside lower center",
        ncols=columns,
        handlelength=2.0,
        columnspacing=1.4,
    )
    mark_legend(made, list(handles), handles)
