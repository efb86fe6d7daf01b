"""Every figure of a study as SVG text; the same metrics give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cascade_sim.analysis.report.figures.arms import culprit, lifts, rcs_vs_revenue
from cascade_sim.analysis.report.figures.compute import compute_hours, compute_latency, compute_value
from cascade_sim.analysis.report.figures.critical_bids import critical_bids
from cascade_sim.analysis.report.figures.designs import design_effects, design_sequence
from cascade_sim.analysis.report.figures.drift import drift_calibrator, drift_order, drift_scale
from cascade_sim.analysis.report.figures.funnel import funnel
from cascade_sim.analysis.report.figures.learning import learning_recall, learning_revenue
from cascade_sim.analysis.report.figures.market import (
    market_hours,
    market_multipliers,
    market_spend,
    market_wins,
)
from cascade_sim.analysis.report.figures.models import reliability, score_distributions
from cascade_sim.analysis.report.figures.objectives import miscalibration, objective_reliability
from cascade_sim.analysis.report.figures.off_policy import off_policy_targets
from cascade_sim.analysis.report.figures.pareto import pareto
from cascade_sim.analysis.report.figures.style import style, svg_text
from cascade_sim.analysis.report.figures.whatif import what_if_curves, what_if_lifts

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
    "objective_reliability": (objective_reliability, "True CTR against predicted CTR, by ranker"),
    "miscalibration": (miscalibration, "Calibration error, CPC error and RPM of each ranker"),
    "pareto": (pareto, "GAUC against LogLoss and against ECE of every ranker of the sweep"),
    "critical_bids": (
        critical_bids,
        "Critical bids as a share of the bid, in the auction and through the cascade",
    ),
    "what_if_curves": (what_if_curves, "Revenue per request and slots filled against a knob"),
    "what_if_lifts": (what_if_lifts, "Lift of revenue per request of single changes"),
    "off_policy_targets": (off_policy_targets, "Off-policy estimates of revenue relative to the truth"),
    "market_hours": (market_hours, "Revenue, CPC and requests by hour, by arm"),
    "market_wins": (market_wins, "Impressions won per request taken part in, by hour and kind of bidder"),
    "market_spend": (market_spend, "Share of the budget spent over the day, by kind of bidder"),
    "market_multipliers": (
        market_multipliers,
        "Mean bid relative to the starting bid, by kind of bidder and arm",
    ),
    "compute_value": (
        compute_value,
        "Revenue per 1000 requests against server time per request, by arm",
    ),
    "compute_latency": (compute_latency, "Share of requests that ranking answered within a time, by arm"),
    "compute_hours": (compute_hours, "Load of the busiest servers and late requests by hour, by arm"),
    "design_effects": (design_effects, "Lift in revenue per request by each design, against the truth"),
    "design_sequence": (design_sequence, "The trial by request over its days, with intervals"),
    "learning_recall": (learning_recall, "True-value recall of every deployment over time, by arm"),
    "learning_revenue": (learning_revenue, "Revenue per request by day, by arm"),
    "drift_order": (drift_order, "Mean score, scale and AUC over time, rankers trained for order alone"),
    "drift_calibrator": (drift_calibrator, "Mean score, scale and AUC over time, rankers with a calibrator"),
    "drift_scale": (drift_scale, "Mean score, scale and AUC over time, rankers with a regression part"),
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
