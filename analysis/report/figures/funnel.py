"""The funnel: how many ads each stage passes on, and where the true value is lost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import steps_of
from cascade_sim.analysis.report.comparisons import ordered_arms
from cascade_sim.analysis.report.figures.style import INK, LEAST, QUIET, bare, blank, mark, of_arms, short
from cascade_sim.analysis.report.readings import candidate_sets
from cascade_sim.analysis.report.text_helpers import stage_name
from cascade_sim.analysis.report.value_loss import avoidable_shares, irreducible_share, losses
from cascade_sim.analysis.statistics.estimates import estimate, finite, number_text

SHOWN, ON_BAR = "#3C6E91", "#FEFEFE"  # lettering on a bar stays light on a dark page
LOST = {
    "ranking": "#F2D0A4",
    "pre_ranking": "#E07A3F",
    "retrieval": "#A9B4C2",
}  # light, strong, grey: they differ in print, too
IRREDUCIBLE = "#E4E7EB"
OF_STEPS = ("#D9A6C2", "#B7C98B", "#C8B6E2", "#E6C35C")  # lost at earlier steps of pre-ranking, in turn


def funnel(metrics: Mapping[str, Any]) -> Any | None:
    """The baseline's stage sizes on top; below, per arm, the true value shown and lost at each stage."""
    found = (metrics.get("funnel") or {}).get(metrics["baseline"]) or {}
    sizes = [
        (stage_name(key), finite(found.get(key))) for key in ("corpus", *reversed(candidate_sets(metrics)))
    ]
    known = [(name, size) for name, size in sizes if size]
    arms = [
        arm for arm in ordered_arms(metrics) if any(share is not None for _, _, share in losses(metrics, arm))
    ]
    heights = ([0.5 + 0.27 * len(known)] if known else []) + ([0.75 + 0.3 * len(arms)] if arms else [])
    if not heights:
        return None
    figure, panels = blank(
        sum(heights) + 0.3, nrows=len(heights), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    axes = list(panels[:, 0])
    if known:
        _sizes(axes.pop(0), known, metrics["baseline"])
    if arms:
        _shares(figure, axes.pop(0), metrics, arms)
    return figure


def _sizes(axes: Any, known: list[tuple[str, float]], baseline: str) -> None:
    """Centred bars whose length is the logarithm of the size."""
    bare(axes, grid="none", left=False)
    axes.spines["bottom"].set_visible(False)
    for i, (_, size) in enumerate(known):
        length = math.log10(size) + 0.6  # a set of one ad still has a bar
        axes.barh(
            i,
            length,
            left=-length / 2,
            height=0.7,
            color=SHOWN,
            alpha=0.35 + 0.65 * i / max(1, len(known) - 1),
        )
        decimals = 0 if abs(size - round(size)) < 0.005 else 1 if size >= 10 else 2
        axes.text(
            0,
            i,
            number_text(size, decimals),
            ha="center",
            va="center",
            color=ON_BAR if i else INK,
            fontsize=8.0,
            fontweight="bold",
        )
    axes.set_yticks(range(len(known)), [name for name, _ in known])
    axes.set_xticks([])
    axes.set_ylim(len(known) - 0.5, -0.5)
    axes.set_title(f"Ads per request, {short(baseline)} (log scale)", loc="left", color=INK)


def _shares(figure: Any, axes: Any, metrics: Mapping[str, Any], arms: list[str]) -> None:
    """Stacked bars in percent of the best possible true eCPM: shown, then lost from last stage to first."""
    from matplotlib.patches import Patch

    bare(axes, grid="x", left=False)
    seen: dict[str, str] = {}
    earlier = [step for step in steps_of(metrics) if step not in LOST]
    colors = LOST | {step: OF_STEPS[i % len(OF_STEPS)] for i, step in enumerate(earlier)}
    for i, arm in enumerate(arms):
        attribution = metrics["attribution"][arm]
        best, shown = (
            estimate(attribution.get("ecpm_best")).value or 1.0,
            estimate(attribution.get("ecpm_shown")).value or 0.0,
        )
        noise = irreducible_share(metrics, arm)
        parts = [("shown", shown / best, SHOWN)]
        for stage, share in reversed(_shares_lost(metrics, arm)):
            what = "lost at" if noise is None else "avoidable at"
            parts.append((f"{what} {stage_name(stage)}", share, colors.get(stage, QUIET)))
        if noise is not None:
            parts.append(("irreducible", noise, IRREDUCIBLE))
        with of_arms(axes, arm):
            _bar(axes, i, parts)
        seen |= {name: color for name, _, color in parts if name not in seen}
    axes.set_yticks(
        range(len(arms)), [short(arm) + (" (baseline)" if arm == metrics["baseline"] else "") for arm in arms]
    )
    for tick, arm in zip(axes.get_yticklabels(), arms, strict=True):
        mark([tick], arm)
    axes.set(xlim=(0, 100), ylim=(len(arms) - 0.5, -0.5), xlabel="% of the best possible true value")
    axes.set_title("Value shown and lost", loc="left", color=INK)
    figure.legend(
        [Patch(color=color) for color in seen.values()],
        list(seen),
        loc="outside lower center",
        ncols=2,
        handlelength=1.2,
        columnspacing=1.6,
    )


def _shares_lost(metrics: Mapping[str, Any], arm: str) -> list[tuple[str, float]]:
    """What stages lose of the best possible; the avoidable part, where it is known."""
    if irreducible_share(metrics, arm) is not None:
        return avoidable_shares(metrics, arm)
    return [(stage, share or 0.0) for stage, _, share in losses(metrics, arm)]


def _bar(axes: Any, row: int, parts: Sequence[tuple[str, float, str]]) -> None:
    """Parts (name, share, colour) from left to right, with their percent where there is room."""
    start = 0.0
    for _, share, color in parts:
        width = max(100 * share, 0.0)  # a stage that happens to gain: the table has its number
        axes.barh(row, width, left=start, height=0.7, color=color, edgecolor="white", linewidth=0.6)
        if width >= 4.5:
            axes.text(
                start + width / 2,
                row,
                number_text(width, 0),
                ha="center",
                va="center",
                fontsize=LEAST,
                color=ON_BAR if color == SHOWN else INK,
            )
        start += width
