"""The figure of a bid landscape: what one ad gets and pays, against its bid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.figures.parts import image_bytes
from cascade_sim.analysis.report.figures.style import COLORS, INK, LEAST, QUIET, bare, blank

# title, line, and the points as realised
PANELS = (
    ("Impressions", "impressions", None),
    ("Clicks", "expected_clicks", "clicks"),
    ("Cost", "expected_cost", "cost"),
    ("Cost per click", "expected_cpc", "mean_cpc"),
)
IN_AUCTION: dict[str, Any] = {"color": QUIET, "linewidth": 1.1, "linestyle": (0, (1, 1.5))}
ABOVE: dict[str, Any] = {"color": COLORS[1], "alpha": 0.22, "linewidth": 0}
TITLE = "Impressions, clicks, cost and CPC of one ad against its bid"


def landscape_figure(columns: Mapping[str, Sequence[float]], own_bid: float) -> Any:
    """Lines: expected; hollow points: as realised in the run; vertical: the ad's own bid.

    The axis is the advertiser's init-bid. Where the platform enters the auction with another bid, that one
    bounds the cost per click: it is drawn too, and a cost above the init-bid is shaded.
    """
    figure, grid = blank(3.6, nrows=2, ncols=2, sharex=True)
    bids, entered = list(columns["bid"]), list(columns["auction_bid"])
    is_optimised = any(abs(entry - bid) > 1e-9 * bid for entry, bid in zip(entered, bids, strict=True))
    is_above = [cpc > bid for cpc, bid in zip(columns["expected_cpc"], bids, strict=True)]
    for axes, (title, line, points) in zip(grid.flat, PANELS, strict=True):
        bare(axes)
        axes.axvline(own_bid, color=QUIET, linewidth=1.0, linestyle=(0, (4, 3)), zorder=2)
        axes.plot(bids, columns[line], color=COLORS[0], linewidth=1.8, zorder=3)
        if points is not None:
            axes.plot(
                bids, columns[points], linestyle="none", marker="o", markersize=3.2,
                markerfacecolor="white", markeredgecolor=COLORS[1], zorder=4,
            )  # fmt: skip
        top = 1.08 * max(_largest(columns[name]) for name in (line, points or line))
        if title == "Cost per click":  # never above the bid that enters the auction
            axes.plot(bids, bids, color=QUIET, linewidth=0.9, zorder=1.5)
            inside = [bid for bid in bids if bid <= 0.9 * top]
            if inside and not is_optimised:
                axes.text(
                    inside[-1], inside[-1], "bid  ", ha="right", va="bottom", color=QUIET, fontsize=LEAST
                )
            if is_optimised:
                axes.plot(bids, entered, **IN_AUCTION, zorder=1.6)
            if any(is_above):
                shaded = {"where": is_above, "interpolate": True, **ABOVE}
                axes.fill_between(bids, bids, columns["expected_cpc"], **shaded)
        axes.set_title(title, loc="left", color=INK)
        axes.set_ylim(0, top)
        axes.set_xscale("log")
        axes.minorticks_off()
    ticks = _ticks(bids[0], bids[-1])
    grid.flat[0].set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    for axes in grid[1]:
        axes.set_xlabel("init-bid" if is_optimised else "bid")
    _legend(figure, is_optimised, any(is_above))
    return figure


def landscape_image(columns: Mapping[str, Sequence[float]], own_bid: float, kind: str) -> bytes:
    """The figure as the bytes of a file: kind "png" or "svg"."""
    return image_bytes(lambda: landscape_figure(columns, own_bid), "landscape", TITLE, kind)


def _largest(values: Sequence[float]) -> float:
    return max((value for value in values if math.isfinite(value)), default=0.0) or 1.0


def _ticks(low: float, high: float) -> list[float]:
    """Round bids, at most six."""
    if high <= low:
        return [low]
    ticks = [digit * 10.0**power for power in range(-13, 12) for digit in (1, 2, 5)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    return ticks[:: math.ceil(len(ticks) / 6)] or [low, high]


def _legend(figure: Any, is_optimised: bool, is_any_above: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    looks: dict[str, dict[str, Any]] = {
        "expected": {"color": COLORS[0], "linewidth": 1.8},
        "as realised in the run": {
            "linestyle": "none", "marker": "o", "markersize": 3.2,
            "markerfacecolor": "white", "markeredgecolor": COLORS[1],
        },
        "own bid": {"color": QUIET, "linewidth": 1.0, "linestyle": (0, (4, 3))},
    }  # fmt: skip
    if is_optimised:
        looks |= {"init-bid": {"color": QUIET, "linewidth": 0.9}, "bid in the auction": IN_AUCTION}
    handles: list[Any] = [Line2D([], [], **look) for look in looks.values()]
    labels = list(looks)
    if is_any_above:
        handles.append(Patch(**ABOVE))
        labels.append("CPC above the init-bid")
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
