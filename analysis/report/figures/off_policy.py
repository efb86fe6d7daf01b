"""The figure of off-policy estimates: how far each is from the truth, by target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.report.figures.style import (
    COLORS,
    INK,
    MARKERS,
    QUIET,
    bare,
    blank,
    label,
    short,
    signed_tick,
)
from cascade_sim.analysis.report.readings import ESTIMATOR_NAMES, shown_estimate, targets_of
from cascade_sim.analysis.statistics.estimates import estimate, finite

SHOWN = {
    "parameters": ("local_linear", "local_dr", "ips", "snips", "direct_method", "doubly_robust"),
    "slates": ("slate_ips", "independent_ips", "direct_method", "cascade_dr"),
}
POINTS = tuple(marker for marker in MARKERS if marker != "X")  # a cross is no estimate
WIDEST = 40.0  # percent of the truth: intervals beyond are cut at the edge


def off_policy_targets(metrics: Mapping[str, Any]) -> Any | None:
    """A panel per log: estimates of revenue relative to the truth, with intervals; a cross where none."""
    part = metrics.get("off_policy") or {}
    panels = {log: targets_of(part, log) for log in SHOWN} if part.get("targets") else {}
    panels = {log: targets for log, targets in panels.items() if targets and _is_known(targets)}
    if not panels:
        return None
    heights = [0.52 * len(targets) for targets in panels.values()]
    figure, grid = blank(
        1.5 + sum(heights), nrows=len(panels), squeeze=False, sharex=True,
        gridspec_kw={"height_ratios": heights},
    )  # fmt: skip
    shown = {
        log: tuple(
            name for name in SHOWN[log] if any(name in _estimators(target) for target in targets.values())
        )
        for log, targets in panels.items()
    }
    names = list(dict.fromkeys(name for log in panels for name in shown[log]))
    looks = {name: (COLORS[i % len(COLORS)], POINTS[i % len(POINTS)]) for i, name in enumerate(names)}
    reach = 5.0
    for axes, (log, targets) in zip(grid.flat, panels.items(), strict=True):
        reach = max(reach, _panel(axes, targets, shown[log], looks))
        axes.set_title(
            {"parameters": "Other parameters", "slates": "Other pages"}[log], loc="left", color=INK
        )
        axes.tick_params(labelbottom=True)
    last = grid.flat[-1]
    last.set_xlim(-1.05 * reach, 1.05 * reach)
    last.xaxis.set_major_formatter(signed_tick)
    last.set_xlabel("estimate of revenue per request, % off the truth")
    _legend(figure, looks)
    return figure


def _estimators(target: Mapping[str, Any]) -> Mapping[str, Any]:
    estimators: Mapping[str, Any] = target["rewards"]["revenue"]["estimators"]
    return estimators


def _is_known(targets: Mapping[str, Any]) -> bool:
    return all(estimate(target["rewards"]["revenue"].get("truth")).value for target in targets.values())


def _panel(axes: Any, targets: Mapping[str, Any], names: tuple[str, ...], looks: Mapping[str, Any]) -> float:
    """Draw one log's targets; returns how far to either side the axis must reach."""
    bare(axes, grid="x", left=False)
    axes.axvline(0, color=QUIET, linewidth=1.0, zorder=1)
    reach = 0.0
    for at, target in enumerate(targets.values()):
        answer = target["rewards"]["revenue"]
        truth = estimate(answer["truth"]).value or 1.0
        for i, name in enumerate(names):
            row = answer["estimators"].get(name)
            if row is None:
                continue
            y = at + 0.18 * (i - (len(names) - 1) / 2)
            color, marker = looks[name]
            own = shown_estimate(row, truth)
            if own.value is None or (finite(row.get("no_estimate")) or 0.0) >= 1:
                axes.plot([0.015], [y], marker="x", markersize=4.0, color=color, linestyle="none", zorder=3,
                          transform=axes.get_yaxis_transform())  # fmt: skip
                continue
            value, low, high = (
                None if end is None else min(max(100 * (end / truth - 1), -WIDEST), WIDEST)
                for end in (own.value, own.low, own.high)
            )
            if low is not None and high is not None:
                axes.plot([low, high], [y, y], color=color, linewidth=1.3, zorder=2)
                reach = max(reach, abs(low), abs(high))
            axes.plot([value], [y], marker=marker, markersize=3.8, color=color, linestyle="none", zorder=3)
            reach = max(reach, abs(value or 0.0))
    axes.set_yticks(range(len(targets)), [short(name) for name in targets])
    axes.set_ylim(len(targets) - 0.5, -0.5)
    return reach


def _legend(figure: Any, looks: Mapping[str, Any]) -> None:
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], color=color, marker=marker, markersize=4.0, linewidth=1.3)
        for color, marker in looks.values()
    ]
    marks.append(Line2D([], [], color=QUIET, marker="x", markersize=4.0, linestyle="none"))
    texts = [label(ESTIMATOR_NAMES.get(name, name)) for name in looks]
    figure.legend(marks, [*texts, "no estimate"], loc="outside upper center", ncols=3, columnspacing=1.2)
