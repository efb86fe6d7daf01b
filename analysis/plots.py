"""Every figure of a study as SVG text; the same metrics give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from analysis.plot_style import style, svg_text
from analysis.plots_arms import culprit, lifts, rcs_vs_revenue
from analysis.plots_funnel import funnel
from analysis.plots_market import market_hours, market_multipliers, market_spend
from analysis.plots_models import reliability, score_distributions

FIGURES: dict[str, tuple[Callable[[Mapping[str, Any]], Any], str]] = {
    "rcs_vs_revenue": (rcs_vs_revenue, "Ranking consistency against the revenue lift of each arm"),
    "lifts": (lifts, "Lifts of revenue per request and CTR over the baseline, with 95 % intervals"),
    "culprit": (culprit, "Ranking consistency with one pre-ranking seat replaced at a time"),
    "funnel": (funnel, "Ads per stage, and where the true eCPM is lost"),
    "score_distributions": (
        score_distributions,
        "Distribution of predicted CTR on the win set and on the pre-ranking set",
    ),
    "reliability": (reliability, "Ranker prediction against pre-ranking prediction"),
    "market_spend": (market_spend, "Share of the budget spent over the day, by kind of bidder"),
    "market_multipliers": (market_multipliers, "Mean bid relative to the starting bid, by kind of bidder"),
    "market_hours": (market_hours, "Revenue and requests by hour, by arm"),
}


def draw_all(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Figure name → SVG; a figure whose data the study lacks is left out."""
    drawn = {}
    for name, (draw, title) in FIGURES.items():
        with style(name):
            figure = draw(metrics)
            if figure is not None:
                drawn[name] = svg_text(figure, name, title)
    return drawn
