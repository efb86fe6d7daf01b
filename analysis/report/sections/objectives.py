"""Objectives of the ranking stage, in words and tables: how each ranks, whether it means what it says, and
what that does to prices. Only for studies whose rankers are trained for several objectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cascade_sim.analysis.metrics import spearman
from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES, MODEL_MEASURES
from cascade_sim.analysis.report.figures.objectives import miscalibration, objective_reliability
from cascade_sim.analysis.report.readings import model_value, objective_arms
from cascade_sim.analysis.report.section import Columns, Figure, Section, TablePart, Text
from cascade_sim.analysis.report.tables import Cell, Row, Table, column, lift_column, value_column
from cascade_sim.analysis.statistics.estimates import NBSP, arm_value, number_text

# Rankers without scale have an ECE thirty times that of the others, which would leave these two digits.
QUALITY_MEASURES = {**MODEL_MEASURES, "ece": replace(MODEL_MEASURES["ece"], decimals=4)}
OFF_SCALE = 1.5  # a PCOC beyond this factor of 1, either way, is called off the scale
QUALITY = ("gauc", "ndcg", "logloss", "ece", "pcoc")
FITTED = {"joint": ", trained with it", "training": " on the same pages"}
ON_PRE_RANKING_SET = ("gauc", "ndcg", "pcoc")
PAID = ("cpc_error", "revenue_pcoc", "welfare_vs_oracle")
ABOUT = (
    "Predictions are judged on the pages and the pre-ranking sets of {baseline}, against the true CTR. "
    "NDCG has the true CTR as its gain. CTR, RPM and what advertisers pay are of each ranker's own pages. "
    "A ranker trained for order alone does not know its scale: its sigmoid is taken for a probability, "
    "which the auction needs. A calibrator sees the score, so it can correct the scale of all requests "
    "together; one with features of the request can correct each."
)


def objectives_section(metrics: Mapping[str, Any]) -> Section | None:
    """The report's section on objectives; None for a study whose rankers have one and the same."""
    if not objective_arms(metrics):
        return None
    return Section(
        "objectives",
        "Ranker objectives",
        (objectives_words(metrics),),
        (
            TablePart(quality_table(metrics), margins=True),
            TablePart(objectives_money_table(metrics)),
            Text(ABOUT.format(baseline=metrics["baseline"])),
            Columns(
                (
                    Figure(
                        "objective_reliability",
                        objective_reliability,
                        "True CTR against predicted CTR, by ranker",
                        "The true CTR where a ranker predicts a given one, on the win set. On the diagonal "
                        "predictions mean what they say.",
                    ),
                    Figure(
                        "miscalibration",
                        miscalibration,
                        "Calibration error, CPC error and RPM of each ranker",
                        "From a wrong scale to wrong prices, and from wrong prices to revenue: a point per "
                        "ranker.",
                    ),
                )
            ),
        ),
        short="Objectives",
    )


def quality_table(metrics: Mapping[str, Any]) -> Table:
    """How each ranker orders, and whether its predictions are on the scale of the truth."""
    arms = list(objective_arms(metrics))
    parts = [("win_set", QUALITY), ("pre_ranking_set", ON_PRE_RANKING_SET)]
    columns = [
        column(QUALITY_MEASURES[name], [model_value(metrics, arm, name, part) for arm in arms])
        for part, names in parts
        for name in names
    ]
    headings = [MODEL_MEASURES[name].heading for _, names in parts for name in names]
    groups = [("Win set", len(QUALITY)), ("Pre-ranking set", len(ON_PRE_RANKING_SET))]
    return Table("Objectives", "Ranker", headings, _rows(metrics, columns), groups)


def objectives_money_table(metrics: Mapping[str, Any]) -> Table:
    """What each ranker shows, earns and charges."""
    arms = list(objective_arms(metrics))
    columns = [
        value_column(metrics, arms, "rcs"),
        lift_column(metrics, arms, "expected_ctr"),
        lift_column(metrics, arms, "expected_rpm"),
        *(value_column(metrics, arms, name) for name in PAID),
    ]
    headings = ["RCS %", "CTR lift %", "RPM lift %", *(ARM_MEASURES[name].heading for name in PAID)]
    return Table("What objectives do to pages and prices", "Ranker", headings, _rows(metrics, columns))


def _rows(metrics: Mapping[str, Any], columns: Sequence[Sequence[Cell]]) -> list[Row]:
    rows = []
    for i, (arm, model) in enumerate(objective_arms(metrics).items()):
        kind = "baseline" if arm == metrics["baseline"] else ""
        rows.append(Row(arm, [made[i] for made in columns], kind, hint=_how(model), arm=arm))
    return rows


def _how(model: Mapping[str, Any]) -> str:
    """ "softmax, then platt"."""
    text = str(model["objective"]) + (f" with {model['ranking']}" if model.get("ranking") else "")
    if model.get("calibrator"):
        text += f", then {model['calibrator']}" + FITTED.get(model.get("fit", ""), "")
    return text


def objectives_words(metrics: Mapping[str, Any]) -> str:
    """Who orders best, who is off the scale, and whether prices follow calibration."""
    arms = list(objective_arms(metrics))
    said = []
    best = _best(metrics, arms, "gauc", largest=True)
    closest = _best(metrics, arms, "logloss", largest=False)
    if best and closest:
        said.append(f"{best} orders best (GAUC), {closest} has the least LogLoss.")
    off = []
    for arm in arms:
        pcoc = model_value(metrics, arm, "pcoc").value
        if pcoc is not None and pcoc > 0 and not 1 / OFF_SCALE <= pcoc <= OFF_SCALE:
            off.append(f"{arm} (PCOC{NBSP}{number_text(pcoc, 2)})")
    if off:
        said.append(f"Off the scale: {', '.join(off)}.")
    ece = [model_value(metrics, arm, "ece").value for arm in arms]
    error = [arm_value(metrics, arm, "cpc_error").value for arm in arms]
    welfare = [arm_value(metrics, arm, "welfare_vs_oracle").value for arm in arms]
    first, second = rank_correlation(ece, error), rank_correlation(error, welfare)
    if first is not None and second is not None:
        said.append(
            f"Over the {len(arms)} rankers, CPC error follows ECE with a rank correlation of "
            f"{number_text(first, 2, signed=True)}, and welfare follows CPC error with "
            f"{number_text(second, 2, signed=True)}."
        )
    return " ".join(said)


def _best(metrics: Mapping[str, Any], arms: Sequence[str], measure: str, *, largest: bool) -> str | None:
    values = {arm: model_value(metrics, arm, measure).value for arm in arms}
    known = {arm: value for arm, value in values.items() if value is not None}
    if not known:
        return None
    return max(known, key=lambda arm: known[arm] if largest else -known[arm])


def rank_correlation(x: Sequence[float | None], y: Sequence[float | None]) -> float | None:
    """Spearman's, over the pairs that have both; None where there are fewer than three or no spread."""
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
    if len(pairs) < 3 or any(len({pair[i] for pair in pairs}) < 2 for i in (0, 1)):
        return None
    return float(spearman([a for a, _ in pairs], [b for _, b in pairs]).value[0])
