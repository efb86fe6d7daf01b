"""Figures of what-ifs: revenue and slots filled against a parameter, and lifts of single changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.figures.parts import image_bytes
from cascade_sim.analysis.report.figures.style import (
    COLORS,
    INK,
    QUIET,
    bare,
    blank,
    short,
    signed_tick,
)
from cascade_sim.analysis.report.readings import (
    WHAT_IF_MEASURES,
    WHAT_IF_REVENUE,
    point_label,
    settings_text,
    value_text,
)
from cascade_sim.analysis.statistics.estimates import Estimate, estimate, finite, lift_of, scaled

CLICKED = "revenue_per_request"
IN_LIFTS = (
    WHAT_IF_REVENUE,
    CLICKED,
    "expected_rpm",
    "expected_ctr",
    "ctr",
    "cpc",
    "fill_rate",
    "rcs",
    "welfare_vs_oracle",
)
TITLE = "What would have been: lifts on the same requests, with 95 % intervals"


def is_curve(answer: Mapping[str, Any]) -> bool:
    """Whether one parameter takes several numbers, which have an axis of their own."""
    parameter = answer.get("parameter")
    values = [finite(point["settings"].get(parameter)) for point in answer["points"]] if parameter else []
    return len(values) > 1 and None not in values


def what_if_curves(metrics: Mapping[str, Any]) -> Any | None:
    """Two panels for each question that is a curve: revenue, and slots filled."""
    curves = {name: answer for name, answer in (metrics.get("what_if") or {}).items() if is_curve(answer)}
    if not curves:
        return None
    figure, grid = blank(3.5 * len(curves), nrows=2 * len(curves), ncols=1, squeeze=False)
    for i, answer in enumerate(curves.values()):
        _curve(grid[2 * i, 0], grid[2 * i + 1, 0], answer)
    _legend(figure)
    return figure


def what_if_lifts(metrics: Mapping[str, Any]) -> Any | None:
    """A row for each way to serve of the questions that are no curves: the lift of revenue per request."""
    rows: dict[str, Mapping[str, Any]] = {}
    for name, answer in (metrics.get("what_if") or {}).items():
        if not is_curve(answer):
            for point in answer["points"]:
                rows[name if len(answer["points"]) == 1 else f"{name}: {point_label(answer, point)}"] = point
    if not rows:
        return None
    figure, axes = blank(0.9 + 0.36 * len(rows))
    pairs = [
        (lift_of(p["metrics"].get(WHAT_IF_REVENUE)), lift_of(p["metrics"].get(CLICKED)))
        for p in rows.values()
    ]
    _rows(axes, list(rows), pairs, "lift of revenue per request, %")
    _legend(figure)
    return figure


def answer_figure(answer: Mapping[str, Any]) -> Any:
    """One question alone: its curve, its settings side by side, or the lifts of one change by measure."""
    if is_curve(answer):
        figure, (top, bottom) = blank(3.7, nrows=2, ncols=1)
        _curve(top, bottom, answer)
        _legend(figure)
        return figure
    points = answer["points"]
    if len(points) > 1:
        return what_if_lifts({"what_if": {value_text(answer["parameter"]): answer}})
    metrics = points[0]["metrics"]
    names = [name for name in IN_LIFTS if lift_of(metrics.get(name)).value is not None]
    figure, axes = blank(1.0 + 0.3 * len(names))
    pairs = [(lift_of(metrics[name]), Estimate()) for name in names]
    _rows(axes, [WHAT_IF_MEASURES[name].label for name in names], pairs, "lift, %", limit=30)
    axes.set_title(short(settings_text(points[0]["settings"]), 52), loc="left", color=INK)
    return figure


def answer_image(answer: Mapping[str, Any], kind: str) -> bytes:
    """The figure as the bytes of a file: kind "png" or "svg"."""
    return image_bytes(lambda: answer_figure(answer), "whatif", TITLE, kind)


def _curve(top: Any, bottom: Any, answer: Mapping[str, Any]) -> None:
    """Lift of revenue (expected: line and band, realised: hollow) above the share of slots filled."""
    parameter = answer["parameter"]
    points = sorted(answer["points"], key=lambda point: float(point["settings"][parameter]))
    at = [float(point["settings"][parameter]) for point in points]
    own = finite(answer["current"]["settings"].get(parameter))
    for axes in (top, bottom):
        bare(axes)
        if own is not None:
            axes.axvline(own, color=QUIET, linewidth=1.0, linestyle=(0, (4, 3)), zorder=2)
        axes.set_xlim(_around([*at, *([] if own is None else [own])]))
    for name, look in ((WHAT_IF_REVENUE, _EXPECTED), (CLICKED, _REALISED)):
        lifts = [scaled(lift_of(point["metrics"].get(name)), 100.0) for point in points]
        _line(top, at, lifts, look)
    top.axhline(0, color="#B8C0CA", linewidth=0.8, zorder=1)
    top.yaxis.set_major_formatter(signed_tick)
    top.set_title("Revenue per request, lift over the current setting, %", loc="left", color=INK)
    top.tick_params(labelbottom=False)
    filled = [scaled(estimate(point["metrics"].get("fill_rate")), 100.0) for point in points]
    _line(bottom, at, filled, _EXPECTED)
    bottom.set_ylim(0, 105)
    bottom.set_title("Fill rate, %", loc="left", color=INK)
    bottom.set_xlabel(parameter)


_EXPECTED: dict[str, Any] = {"color": COLORS[0], "linewidth": 1.7, "marker": "o", "markersize": 3.4}
_REALISED: dict[str, Any] = {
    "color": COLORS[1], "linestyle": "none", "marker": "o", "markersize": 4.2, "markerfacecolor": "white",
}  # fmt: skip
_CURRENT: dict[str, Any] = {"color": QUIET, "linewidth": 1.0, "linestyle": (0, (4, 3))}


def _line(axes: Any, at: Sequence[float], values: Sequence[Estimate], look: Mapping[str, Any]) -> None:
    known = [(x, v) for x, v in zip(at, values, strict=True) if v.value is not None]
    if not known:
        return
    sure = [(x, v.low, v.high) for x, v in known if v.low is not None and v.high is not None]
    if look is _EXPECTED and len(sure) == len(known):
        places, lows, highs = zip(*sure, strict=True)
        axes.fill_between(places, lows, highs, color=look["color"], alpha=0.22, linewidth=0, zorder=2.5)
    else:
        for x, low, high in sure:
            axes.plot([x, x], [low, high], color=look["color"], linewidth=1.0, alpha=0.7, zorder=2.8)
    axes.plot([x for x, _ in known], [v.value for _, v in known], zorder=3, **look)


def _rows(
    axes: Any, names: Sequence[str], pairs: Sequence[tuple[Estimate, Estimate]], xlabel: str, limit: int = 24
) -> None:
    """A row each, top to bottom: filled, expected; hollow, realised, a little below."""
    bare(axes, grid="x", left=False)
    axes.axvline(0, color=QUIET, linewidth=0.9, zorder=2)
    both = any(realised.value is not None for _, realised in pairs)
    for i, (expected, realised) in enumerate(pairs):
        for lift, look, shift in ((expected, _EXPECTED, -0.14 * both), (realised, _REALISED, 0.14)):
            if lift.value is None:
                continue
            percent = scaled(lift, 100.0)
            if percent.low is not None and percent.high is not None:
                axes.plot(
                    [percent.low, percent.high], [i + shift] * 2, color=look["color"], linewidth=1.4, zorder=3
                )
            axes.plot(
                [percent.value], [i + shift], zorder=4, **{**look, "linestyle": "none", "markersize": 4.4}
            )
    axes.set_yticks(range(len(names)), [short(name, limit) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(signed_tick)
    axes.set_xlabel(xlabel)


def _around(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = 0.03 * (high - low) or 0.5
    return low - room, high + room


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    looks = {"expected": _EXPECTED, "realised": _REALISED, "current": _CURRENT}
    figure.legend(
        [Line2D([], [], **look) for look in looks.values()],
        list(looks),
        loc="outside upper center",
        ncols=3,
        columnspacing=1.4,
    )
