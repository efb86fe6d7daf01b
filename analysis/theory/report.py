"""The theory study for people: a figure, a text, and plain numbers for a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cascade_sim.analysis.report.figures.style import COLORS, INK, MARKERS, QUIET, bare, load_matplotlib
from cascade_sim.analysis.theory.examples import preferred, regression_and_ranking_losses, two_halves
from cascade_sim.analysis.theory.study import BoundCheck

BoundChecks = Mapping[str, Mapping[str, BoundCheck]]
_SHOWN = 400  # points of a measure in a panel
_FLOOR = 1e-4  # of a plotted regret


def regret_figure(checks: BoundChecks) -> Any:
    """Regret against surrogate regret, a panel per loss, a colour per measure, the bound as a line.

    The surrogate regret is scaled by (c · C_phi(2))², so that one line √x is the bound of every point.
    Points without regret, or with hardly any, are left out: logarithmic axes have no place for them.
    """
    load_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(checks) // 3)
    figure = Figure(figsize=(8.6, 0.9 + 2.3 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, 3, sharex=True, sharey=True, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for axes, (loss, by_measure) in zip(grid, checks.items(), strict=False):
        bare(axes)
        for i, (measure, check) in enumerate(by_measure.items()):
            x, y = _thinned(check)
            handles[measure] = axes.plot(
                x,
                y,
                linestyle="",
                marker=MARKERS[i % len(MARKERS)],
                markersize=2.6,
                markeredgewidth=0,
                alpha=0.55,
                color=COLORS[i % len(COLORS)],
                rasterized=True,
            )[0]
        x = np.array([1e-9, 1e9])
        (handles["bound"],) = axes.plot(x, np.sqrt(x), color=INK, linewidth=1.2)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(1e-8, 1e4)
        axes.set_ylim(_FLOOR, 1e2)
        _decades(axes.xaxis, range(-8, 5, 4))
        _decades(axes.yaxis, range(-4, 3, 2))
        axes.set_title(loss, loc="left", color=INK)
        nearest = max(check.closest for check in by_measure.values())
        axes.text(
            0.04,
            0.92,
            f"nearest: {nearest:.1%} of the bound",
            transform=axes.transAxes,
            color=QUIET,
            fontsize=7.5,
        )
    for axes in grid[len(checks) :]:
        axes.set_axis_off()
    figure.supxlabel("surrogate regret × (c · C_phi)²", fontsize=8.5)
    figure.supylabel("regret of the measure", fontsize=8.5)
    legend = figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles), markerscale=2.0
    )
    for line in legend.get_lines():
        line.set_alpha(1.0)
    return figure


def _decades(axis: Any, exponents: range) -> None:
    """Label a logarithmic axis at these powers of ten alone, as plain numbers."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axis.set_major_locator(FixedLocator([10.0**e for e in exponents]))
    axis.set_major_formatter(lambda value, _position: f"{value:g}")
    axis.set_minor_locator(NullLocator())


def _thinned(check: BoundCheck) -> tuple[Any, Any]:
    """Points with a regret, the nearest to the bound among them, evenly thinned."""
    keep = np.flatnonzero((check.regret > _FLOOR) & (check.surrogate > 0))
    step = max(1, len(keep) // _SHOWN)
    nearness = np.argsort(-check.regret[keep] / np.sqrt(check.surrogate[keep]))
    keep = keep[np.unique(np.concatenate([nearness[:20], np.arange(0, len(keep), step)]))]
    return check.surrogate[keep], check.regret[keep]


def numbers(checks: BoundChecks, misorders: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """All findings as plain numbers, for JSON."""
    examples = two_halves()
    losses = regression_and_ranking_losses()
    return {
        "bounds": {
            loss: {
                measure: {
                    "points": int(check.regret.size),
                    "violations": check.violations,
                    "closest": check.closest,
                    "regret_at_optimum": check.regret_at_optimum,
                    "regret_after_descent": check.regret_after_descent,
                }
                for measure, check in by_measure.items()
            }
            for loss, by_measure in checks.items()
        },
        "equal_utilities": {
            name: {"-".join(str(i + 1) for i in order): float(value) for order, value in values.items()}
            for name, values in examples.items()
        },
        "ranknet_misorders": {name: dict(shares) for name, shares in misorders.items()},
        "regression_and_ranking": {name: [float(x) for x in value] for name, value in losses.items()},
    }


def text(checks: BoundChecks, misorders: Mapping[str, Mapping[str, float]]) -> str:
    """What the study found, as plain text."""
    measures = list(next(iter(checks.values())))
    every = [check for by_measure in checks.values() for check in by_measure.values()]
    points = sum(check.regret.size for check in every)
    broken = sum(check.violations for check in every)
    lines = [
        f"Regret bounds: {points:,} points, {broken} above their bound.",
        "Largest share of the bound that a regret reached:",
        _row("", measures),
    ]
    for loss, by_measure in checks.items():
        lines.append(_row(loss, [f"{check.closest:.3f}" for check in by_measure.values()]))
    worst = max(check.regret_at_optimum for check in every)
    lines += [f"Largest regret of a minimiser: {worst:.1g}", ""]
    lines += [
        "RankNet's own minimiser on random distributions:",
        _row("", list(misorders)),
        _row("not the best order", [f"{shares['share']:.1%}" for shares in misorders.values()]),
        _row("mean regret, of best", [f"{shares['regret']:.2%}" for shares in misorders.values()]),
        "",
        "Items 1, 2 right or items 3, 4 right, evenly: equal expected utilities, yet order 1-3-2-4 against"
        " 1-2-3-4 gives",
    ]
    for name, values in two_halves().items():
        gap = values[(0, 2, 1, 3)] - values[(0, 1, 2, 3)]
        lines.append(f"  {name:<4} {'+' if gap > 0 else '-'}{abs(gap)}")
    return "\n".join([*lines, "", *_compatible(), ""])


def _compatible() -> list[str]:
    from cascade_sim.analysis.theory.examples import COMPATIBLE_LABELS, COMPATIBLE_PREDICTIONS

    losses = regression_and_ranking_losses()
    lines = [f"Regression and ranking in one score, labels {_list(COMPATIBLE_LABELS)}:"]
    lines.append(_row("predictions", list(losses)))
    for i, predictions in enumerate(COMPATIBLE_PREDICTIONS):
        lines.append(_row(_list(predictions), [f"{values[i]:.3f}" for values in losses.values()]))
    for ranking in ("ListCE(sigmoid)", "SoftmaxCE"):
        best = preferred(losses["SigmoidCE"], losses[ranking])
        named = "none" if best is None else _list(COMPATIBLE_PREDICTIONS[best])
        lines.append(f"SigmoidCE + {ranking} prefers, in every mixture: {named}")
    return lines


def _list(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


def _row(head: str, cells: Sequence[str]) -> str:
    return f"  {head:<31}" + "".join(f"{cell:>16}" for cell in cells)
