"""How good the predictions of every model are, where it was trained and where it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import MODEL_MEASURES
from cascade_sim.analysis.report.figures.models import reliability, score_distributions
from cascade_sim.analysis.report.readings import candidate_sets, detail_requests
from cascade_sim.analysis.report.section import Columns, Figure, Section, TablePart, Text, titled
from cascade_sim.analysis.report.tables import Row, Table, column
from cascade_sim.analysis.report.text_helpers import listed, stage_name
from cascade_sim.analysis.statistics.estimates import estimate


def models_section(metrics: Mapping[str, Any]) -> Section:
    """Quality of the models and their score distributions, for a study that has either."""
    table = models_table(metrics)
    requests = detail_requests(metrics, "quality_requests")
    first, *others = map(stage_name, candidate_sets(metrics))
    sets = [first, *(f"the {name}" for name in others)]
    about = (
        f"Against the true CTR{f', on {requests}' if requests else ''}. Undefined for models whose score is "
        "not a probability. ± is the longer half of the 95 % interval."
    )
    return Section(
        "models",
        "Model quality",
        parts=(
            Text(
                "A model trained on shown ads can look right on the win set and still be off on the "
                "pre-ranking set, most of which was never shown. Pre-ranking needs the second."
            ),
            Columns(
                (
                    Figure(
                        "score_distributions",
                        score_distributions,
                        f"Distribution of predicted CTR on the {listed(sets)}",
                        "Predicted CTR on each set. Where a line leaves the grey area, the pre-ranking "
                        "model disagrees with the ranker.",
                    ),
                    Figure(
                        "reliability",
                        reliability,
                        "Ranker prediction against pre-ranking prediction",
                        "The ranker's mean prediction where pre-ranking predicts a given CTR, on the "
                        f"pre-ranking set. On the diagonal the two agree. {_reliability_worlds(metrics)}",
                    ),
                )
            ),
            TablePart(table, margins=True),
            Text(about, "small") if table else None,
            TablePart(models_table(metrics, "pcvr_models"), margins=True),
            Text("Against the true conversion rate after a click, on the same requests.", "small")
            if metrics.get("pcvr_models")
            else None,
            *titled(
                "Calibration (PCOC) by candidate set",
                levels_table(metrics),
                Text(LEVELS, "small"),
                margins=True,
            ),
        ),
        rests_on_data=True,
        short="Predictions",
    )


LEVELS = (
    "PCOC is the mean prediction divided by the mean true CTR (models.NAME.SET.pcoc in metrics.json), "
    "proxy-PCOC the mean prediction divided by the ranker's mean prediction of the same ads "
    "(models.NAME.proxy_pcoc.SET). Sets are the baseline's. A student of sets that are mostly not shown may "
    "be right on average there and too low on the few ads that win, and a model of what was shown the other "
    "way round."
)


def levels_table(metrics: Mapping[str, Any]) -> Table | None:
    """PCOC and proxy-PCOC of every model on each set; None in runs that did not look at all sets."""
    models = metrics.get("models") or {}
    if not any((of or {}).get("competitive_set") for of in models.values()):
        return None
    measure, sets = MODEL_MEASURES["pcoc"], candidate_sets(metrics)
    columns = [
        column(measure, [estimate(((of or {}).get(part) or {}).get("pcoc")) for of in models.values()])
        for part in sets
    ] + [
        column(measure, [estimate(((of or {}).get("proxy_pcoc") or {}).get(part)) for of in models.values()])
        for part in sets
    ]
    rows = [Row(model, [made[i] for made in columns], arm=model) for i, model in enumerate(models)]
    groups = [("PCOC", len(sets)), ("Proxy-PCOC", len(sets))]
    return Table(
        "Calibration (PCOC) by candidate set", "Model", [_heading(part) for part in sets] * 2, rows, groups
    )


def _heading(part: str) -> str:
    return stage_name(part).capitalize()


def _reliability_worlds(metrics: Mapping[str, Any]) -> str:
    """What the reliability figure holds of a study over several worlds; empty for one world."""
    if not metrics.get("seeds"):
        return ""
    curves = [
        curve for curve in ((metrics.get("curves") or {}).get("proxy_reliability") or {}).values() if curve
    ]
    if curves and all(curve.get("worlds") for curve in curves):
        return f"All {curves[0]['worlds']} worlds pooled."
    return "Mean over worlds where their bins match, otherwise the first world alone."


TITLES = {"models": "Models", "pcvr_models": "pCVR models"}


def models_table(metrics: Mapping[str, Any], kind: str = "models") -> Table | None:
    """Quality of every model against the truth, on the win set and what pre-ranking judges; None if unknown.

    kind: `models`, of clicks, or `pcvr_models`, which opt-bids come from.
    """
    models = metrics.get(kind)
    if not models:
        return None
    columns, groups = [], []
    sets = [part for part in candidate_sets(metrics) if part != "competitive_set"]
    for part in sets:
        for name, measure in MODEL_MEASURES.items():
            columns.append(
                column(measure, [estimate(((of or {}).get(part) or {}).get(name)) for of in models.values()])
            )
        groups.append((_heading(part), len(MODEL_MEASURES)))
    # A model that is called like an arm goes with it where the page switches arms off, as in the figures.
    rows = [Row(model, [made[i] for made in columns], arm=model) for i, model in enumerate(models)]
    headings = [m.heading for m in MODEL_MEASURES.values()] * len(sets)
    if kind == "pcvr_models":
        headings = [heading.replace("pCTR", "pCVR") for heading in headings]
    return Table(TITLES[kind], "Model", headings, rows, groups)
