"""Figures that compare arms: consistency against revenue, lifts with intervals, the ablation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import is_reference
from cascade_sim.analysis.report.comparisons import lift_measure, ordered_arms
from cascade_sim.analysis.report.figures.parts import error_bar
from cascade_sim.analysis.report.figures.style import (
    INK,
    LEAST,
    ON_PAPER,
    QUIET,
    arm_colors,
    arm_markers,
    bare,
    blank,
    mark,
    of_arms,
    place_labels,
    short,
    signed_tick,
)
from cascade_sim.analysis.report.readings import ablation_measures, row_label
from cascade_sim.analysis.statistics.estimates import (
    Estimate,
    arm_lift,
    arm_value,
    estimate,
    lift_of,
    number_text,
    scaled,
)


def rcs_vs_revenue(metrics: Mapping[str, Any]) -> Any | None:
    """RCS against the lift of revenue per request, with 95 % bars; arms far off are named below."""
    points = _consistency_points(metrics)
    if len(points) < 2:
        return None
    x_limits, y_limits = _focus(metrics, points)
    inside = {arm: at for arm, at in points.items() if _within(at, x_limits, y_limits)}
    colors, markers = arm_colors(metrics), arm_markers(metrics)
    figure, axes = blank(3.4 + 0.16 * (len(points) - len(inside)))
    bare(axes)
    axes.axhline(0, color=QUIET, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    bars = []
    for arm, (x, y) in inside.items():
        x_bar, y_bar = error_bar(x), error_bar(y)
        is_base = arm == metrics["baseline"]
        with of_arms(axes, arm):
            axes.errorbar(
                [x.value],
                [y.value],
                xerr=x_bar,
                yerr=y_bar,
                fmt=markers[arm],
                color=colors[arm],
                markersize=6.5,
                elinewidth=1.3,
                markerfacecolor="white" if is_base else colors[arm],
                markeredgewidth=1.6,
                zorder=3,
            )
        bars += [_extent(x, y.value, y.value), _extent(y, x.value, x.value, upright=True)]
    axes.set(
        xlim=x_limits,
        ylim=y_limits,
        xlabel="RCS, %",
        ylabel=f"{_revenue_title(metrics)},\nlift over {short(metrics['baseline'])}, %",
    )
    axes.yaxis.set_major_formatter(signed_tick)
    _list_the_rest(axes, {arm: at for arm, at in points.items() if arm not in inside})
    names = [f"{arm} (baseline)" if arm == metrics["baseline"] else arm for arm in inside]
    spots = [(x.value or 0.0, y.value or 0.0) for x, y in inside.values()]
    bars.append((*x_limits, 0.0, 0.0))  # the dashed line
    place_labels(axes, spots, names, [colors[arm] for arm in inside], bars, list(inside))
    return figure


def _list_the_rest(axes: Any, outside: Mapping[str, tuple[Estimate, Estimate]]) -> None:
    """Arms off the chart under it, a line each."""
    look: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
        "va": "top",
        "color": QUIET,
    }
    look["fontsize"] = LEAST
    for i, (arm, (x, y)) in enumerate(outside.items()):
        at = f"RCS {number_text(x.value, 0)}, revenue {number_text(y.value, 0, signed=True)} %"
        with of_arms(axes, arm):
            axes.annotate(f"Off the chart: {short(arm)} ({at})", (0, 0), (0, -32 - 11 * i), **look)


def _revenue_title(metrics: Mapping[str, Any]) -> str:
    is_expected = lift_measure(metrics, "revenue_per_request").startswith("expected")
    return "Expected revenue per request" if is_expected else "Revenue per request"


def _consistency_points(metrics: Mapping[str, Any]) -> dict[str, tuple[Estimate, Estimate]]:
    """(RCS, lift of revenue per request) in percent for every arm that has both; the baseline at 0."""
    measure = lift_measure(metrics, "revenue_per_request")
    points = {}
    for arm in ordered_arms(metrics):
        x = scaled(arm_value(metrics, arm, "rcs"), 100)
        y = Estimate(0.0) if arm == metrics["baseline"] else scaled(arm_lift(metrics, arm, measure), 100)
        if x.value is not None and y.value is not None:
            points[arm] = (x, y)
    return points


def _focus(metrics: Mapping[str, Any], points: Mapping[str, tuple[Estimate, Estimate]]) -> tuple[Any, Any]:
    """Axis limits that hold the arms under study and the ceiling; other reference arms only if near."""
    core = [
        at for arm, at in points.items() if not is_reference(arm) or arm in ("ranker", metrics["baseline"])
    ]
    tight = [_range([at[axis] for at in core], room=0.3) for axis in (0, 1)]
    near = [at for at in points.values() if _within(at, *tight)]
    return _range([at[0] for at in near], room=0.1), _range([at[1] for at in near], room=0.1)


def _range(values: Sequence[Estimate], room: float) -> tuple[float, float]:
    """From the lowest to the highest end of the intervals, with room on both sides."""
    ends = [end for value in values for end in (value.value, value.low, value.high) if end is not None]
    margin = room * max(max(ends) - min(ends), 1.0)
    return min(ends) - margin, max(ends) + margin


def _within(at: tuple[Estimate, Estimate], x_limits: Any, y_limits: Any) -> bool:
    return all(
        low <= value.value <= high
        for value, (low, high) in zip(at, (x_limits, y_limits), strict=True)
        if value.value is not None
    )


def _extent(
    along: Estimate, low: Any, high: Any, *, upright: bool = False
) -> tuple[float, float, float, float]:
    start = along.value if along.low is None else along.low
    end = along.value if along.high is None else along.high
    return (low, high, start, end) if upright else (start, end, low, high)  # type: ignore[return-value]


FOREST = {"revenue_per_request": "Revenue per request, lift, %", "ctr": "CTR lift, %"}


def lifts(metrics: Mapping[str, Any]) -> Any | None:
    """A forest plot of lifts of revenue per request and CTR: filled, expected; hollow, realised."""
    arms = [arm for arm in ordered_arms(metrics) if arm != metrics["baseline"]]
    if not any(
        arm_lift(metrics, arm, name).value is not None
        for arm in arms
        for measure in FOREST
        for name in (measure, f"expected_{measure}")
    ):
        return None
    colors = arm_colors(metrics)
    figure, panels = blank(0.9 + 0.34 * len(arms), ncols=2, sharey=True)
    for axes, (name, title) in zip(panels, FOREST.items(), strict=True):
        _forest(axes, metrics, arms, name, colors)
        axes.set_xlabel(title)
    panels[0].set_yticks(range(len(arms)), [short(arm) for arm in arms])
    for tick, arm in zip(panels[0].get_yticklabels(), arms, strict=True):
        tick.set_color(QUIET if is_reference(arm) else INK)
        mark([tick], arm)
    panels[0].set_ylim(len(arms) - 0.4, -0.6)
    figure.get_layout_engine().set(w_pad=0.1)
    return figure


def _forest(
    axes: Any, metrics: Mapping[str, Any], arms: Sequence[str], name: str, colors: Mapping[str, str]
) -> None:
    bare(axes, grid="x", left=False)
    axes.axvline(0, color=QUIET, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    rows = {
        arm: (
            scaled(arm_lift(metrics, arm, f"expected_{name}"), 100),
            scaled(arm_lift(metrics, arm, name), 100),
        )
        for arm in arms
    }
    ends = [
        end
        for arm in arms
        if not is_reference(arm) or arm == "ranker"
        for lift in rows[arm]
        for end in (lift.value, lift.low, lift.high)
        if end is not None
    ]
    ends = (
        ends or [end for pair in rows.values() for lift in pair for end in (lift.value,) if end is not None]
    ) + [0.0]
    span = max(max(ends) - min(ends), 1.0)
    left, right = min(ends) - 0.25 * span, max(ends) + 0.25 * span
    for i, arm in enumerate(arms):
        expected, realised = rows[arm]
        with of_arms(axes, arm):
            _forest_row(axes, i, expected, realised, (left, right), colors[arm])
    axes.set_xlim(left, right)
    axes.xaxis.set_major_formatter(signed_tick)


def _forest_row(
    axes: Any, row: int, expected: Estimate, realised: Estimate, limits: tuple[float, float], color: str
) -> None:
    main = expected if expected.value is not None else realised
    if main.value is None:
        return
    if not limits[0] <= main.value <= limits[1]:
        _clipped(axes, row, main.value, limits, color)
        return
    if expected.value is not None and realised.value is not None:
        axes.errorbar(
            [realised.value],
            [row + 0.2],
            xerr=error_bar(realised),
            fmt="o",
            color=color,
            markersize=3.2,
            markerfacecolor="white",
            elinewidth=0.8,
            alpha=0.75,
            zorder=2,
        )
    axes.errorbar(
        [main.value],
        [row - 0.08],
        xerr=error_bar(main),
        fmt="o",
        color=color,
        markersize=4.2,
        elinewidth=1.8,
        zorder=3,
    )


def _clipped(axes: Any, row: int, value: float, limits: tuple[float, float], color: str) -> None:
    """An arm beyond the axis: an arrow head at the edge, with the value beside it."""
    at_left = value < limits[0]
    inset = 0.03 * (limits[1] - limits[0])
    edge = limits[0] + inset if at_left else limits[1] - inset
    axes.plot([edge], [row], marker="<" if at_left else ">", color=color, markersize=4.5, zorder=3)
    axes.annotate(
        number_text(value, 0, signed=True),
        (edge, row),
        (6 if at_left else -6, 0),
        textcoords="offset points",
        ha="left" if at_left else "right",
        va="center",
        fontsize=LEAST,
        color=QUIET,
        bbox=ON_PAPER,
    )


def ablation(metrics: Mapping[str, Any]) -> Any | None:
    """RCS with parts of pre-ranking replaced by ranking's own, and the revenue lift that goes with it."""
    rows = [row for row in metrics.get("ablation") or [] if estimate(row.get("rcs")).value is not None]
    if not rows:
        return None
    colors = arm_colors(metrics)
    _, revenue = ablation_measures(metrics)
    heading = "revenue lift, %" if "revenue" in revenue else "RPM lift, %"
    figure, axes = blank(0.75 + 0.42 * len(rows))
    bare(axes, grid="x", left=False)
    for i, row in enumerate(rows):
        rcs = scaled(estimate(row["rcs"]), 100)
        axes.barh(
            i,
            rcs.value,
            height=0.62,
            color=colors.get(row["model"], QUIET),
            alpha=1.0 if row["bid"] == "opt" else 0.8,
        )
        axes.errorbar([rcs.value], [i], xerr=error_bar(rcs), fmt="none", ecolor=INK, elinewidth=1.1)
        axes.annotate(
            f"{number_text(rcs.value, 1)} %",
            (0, i),
            (6, 0),
            textcoords="offset points",
            va="center",
            color="white",
            fontweight="bold",
        )
        lift = scaled(lift_of(row.get(revenue)), 100)
        tone = INK if lift.is_above_zero or lift.is_below_zero else QUIET
        axes.text(114, i, number_text(lift.value, 1, signed=True), ha="center", va="center", color=tone)
    axes.text(114, -0.62, heading, ha="center", va="bottom", color=QUIET)
    axes.set_yticks(range(len(rows)), [row_label(row, short(row["model"])) for row in rows])
    axes.set(xlim=(0, 102), ylim=(len(rows) - 0.5, -0.5), xlabel="RCS, %", xticks=range(0, 101, 20))
    return figure
