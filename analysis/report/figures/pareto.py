"""The Pareto plot of a sweep: order against two measures of scale, a line per family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.pareto import ORDER, Point, families, sweep_points
from cascade_sim.analysis.report.figures.ltr import look_of
from cascade_sim.analysis.report.figures.parts import error_bar, joined
from cascade_sim.analysis.report.figures.style import (
    INK,
    LEAST,
    QUIET,
    bare,
    blank,
    mark_legend,
    of_arms,
    place_labels,
)
from cascade_sim.analysis.statistics.moves import frontier

PANELS = {"logloss": "LogLoss", "ece": "ECE"}
FAR = 3.0  # a point beyond so many times the median is off the chart


def pareto(metrics: Mapping[str, Any]) -> Any | None:
    """GAUC against LogLoss and against ECE: a point per ranker, its family's points joined by rising setting.

    The dashed line is the frontier of all; up and to the left is better. Points far to the right, of rankers
    without scale, are named under the panel.
    """
    points = sweep_points(metrics)
    by_family = families(points)
    if not any(len({p.setting for p in own}) > 1 for own in by_family.values()):
        return None
    look = look_of(list(by_family))
    figure, panels = blank(8.2, nrows=2)
    for axes, (scale, title) in zip(panels, PANELS.items(), strict=True):
        bare(axes)
        known = [point for point in points if point.measures[scale].value is not None]
        limit = _limit([_value(point, scale) for point in known])
        inside = [point for point in known if _value(point, scale) <= limit]
        for family, own in families(inside).items():
            _draw_family(axes, own, scale, look[family])
        _draw_frontier(axes, known, limit, scale)
        axes.margins(0.12)
        axes.set(xlabel=f"{title} on the win set (less is better)", ylabel="GAUC (more is better)")
        _label_ends(axes, inside, scale, look)
        _name_the_rest(axes, [point for point in known if point not in inside], scale)
    handles = {line.get_label(): line for axes in panels for line in axes.lines}
    shown = {name: line for name, line in handles.items() if not name.startswith("_")}
    made = figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=2, handlelength=1.8)
    alone = {family: own[0].arm for family, own in by_family.items() if len(own) == 1}
    mark_legend(made, [alone.get(name, "") for name in shown], alone.values())
    return figure


def _value(point: Point, measure: str) -> float:
    return float(point.measures[measure].value or 0.0)


def _limit(values: Sequence[float]) -> float:
    """The largest value that is drawn."""
    return FAR * sorted(values)[len(values) // 2]


def _draw_family(axes: Any, own: Sequence[Point], scale: str, look: Mapping[str, Any]) -> None:
    spots = [(_value(p, scale), _value(p, ORDER)) for p in own]
    joined(axes, [p.arm for p in own], spots, {"color": look["color"], "linewidth": 1.2, "zorder": 3})
    for point, (a, b) in zip(own, spots, strict=True):
        x_bar, y_bar = error_bar(point.measures[scale]), error_bar(point.measures[ORDER])
        with of_arms(axes, point.arm):
            axes.plot([a], [b], linestyle="none", markersize=5, markeredgewidth=0, zorder=3, **look)
            axes.errorbar(
                [a], [b], xerr=x_bar, yerr=y_bar, fmt="none", ecolor=look["color"], elinewidth=0.6, alpha=0.3
            )
    axes.plot([], [], linewidth=1.2, markersize=5, markeredgewidth=0, label=own[0].family, **look)


def _draw_frontier(axes: Any, known: Sequence[Point], limit: float, scale: str) -> None:
    """The points that no other beats in this panel's measures, ringed and joined."""
    cells = [{ORDER: _value(p, ORDER), scale: _value(p, scale)} for p in known]
    front = [i for i in frontier(cells, ORDER, scale) if cells[i][scale] <= limit]
    spots = [(cells[i][scale], cells[i][ORDER]) for i in front]
    line: dict[str, Any] = {"linestyle": (0, (3, 2)), "linewidth": 0.9, "color": INK, "zorder": 2}
    ring = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "markeredgewidth": 0.9}
    joined(axes, [known[i].arm for i in front], spots, line)
    for i, (x, y) in zip(front, spots, strict=True):
        with of_arms(axes, known[i].arm):
            axes.plot([x], [y], **{**line, **ring, "linestyle": "none"})
    axes.plot([], [], label="frontier", **line, **ring)


def _label_ends(axes: Any, inside: Sequence[Point], scale: str, look: Mapping[str, Any]) -> None:
    """The setting at both ends of every line."""
    ends = [p for own in families(inside).values() for p in (own[0], own[-1]) if len(own) > 1]
    spots = [(_value(p, scale), _value(p, ORDER)) for p in ends]
    names = [p.setting_text for p in ends]
    others = [(_value(p, scale), _value(p, scale), _value(p, ORDER), _value(p, ORDER)) for p in inside]
    place_labels(axes, spots, names, [look[p.family]["color"] for p in ends], others, [p.arm for p in ends])


def _name_the_rest(axes: Any, outside: Sequence[Point], scale: str) -> None:
    if not outside:
        return
    # Below the axis, where no point can lie.
    look: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "top"}
    look |= {"color": QUIET, "fontsize": LEAST}
    for i, point in enumerate(outside):
        at = f"{PANELS[scale]} {_value(point, scale):.3g}, GAUC {_value(point, ORDER):.3f}"
        with of_arms(axes, point.arm):
            axes.annotate(f"Off the chart: {point.name} ({at})", (0, 0), (0, -34 - 11 * i), **look)
