"""Sweeps over what weighs order against scale: rankers of one objective that differ in its option.

The option is alpha for the joint objectives, y0 for those with a virtual item, beta for approx_ndcg. For the
report: which ranker is which, the games of each family's rankers against the others' on this world, and the
paired differences of every two.
"""

from typing import Any

from cascade_sim.analysis.metrics.calibration import ece_of_bins
from cascade_sim.analysis.metrics.ratio import divide
from cascade_sim.analysis.statistics.bootstrap import function_gaps
from cascade_sim.analysis.statistics.moves import strict_wins
from cascade_sim.models.objectives import OBJECTIVES
from cascade_sim.scenario.models import ModelSpec, objective_of
from cascade_sim.study.evaluate import Evaluation

ORDER, SCALE = "gauc", "logloss"
# Measure → the sums of model_quality.ModelQuality that it is made of, and how.
MEASURES = {
    ORDER: ("gauc", lambda sums: divide(sums[:, 0], sums[:, 1])),
    SCALE: ("logloss", lambda sums: divide(sums[:, 0], sums[:, 1])),
    "ece": ("bins", ece_of_bins),
}


def setting_of(spec: ModelSpec) -> dict[str, Any]:
    """{"option", "setting"}: what an objective can be set by, and the value in force; None without one."""
    options = OBJECTIVES[spec.objective].options
    if not options:
        return {"option": None, "setting": None}
    option = next(iter(options))
    given = getattr(spec, option)
    return {"option": option, "setting": options[option].default if given is None else given}


def family_of(spec: ModelSpec) -> str:
    """Rankers of one family differ in their setting only: rcr, rcr+platt, or multi_objective-mean."""
    how = "" if spec.fit == "held_out" else f"-{spec.fit}"
    return objective_of(spec).family + (f"+{spec.calibrator}{how}" if spec.calibrator else "")


def sweep_section(
    evaluation: Evaluation, arms: dict[str, dict[str, Any]], resamples: int, seed: int
) -> dict[str, Any]:
    """{"sweep": {"points", "wins", "gaps"}}; nothing if no objective has rankers of different settings.

    `arms`: arm → {"model", …} of the rankers trained by clicks. Predictions are judged on the baseline's own
    pages, which its ranker has chosen (what it over-estimates), so its ranker does not take part. A ranker
    that serves several arms takes part once, in the first of them.
    """
    specs, scenario = evaluation.sim.scenario.models, evaluation.sim.scenario
    own = evaluation.specs[scenario.report.baseline].ranking.model
    points: dict[str, dict[str, Any]] = {}
    for arm, served_by in arms.items():
        model = served_by["model"]
        taken = {point["model"] for point in points.values()}
        is_measured = all(name in _sums(evaluation, model) for name, _ in MEASURES.values())
        if model != own and model not in taken and is_measured:
            spec = specs[model]
            points[arm] = {
                "model": model,
                "objective": spec.objective,
                "family": family_of(spec),
                **setting_of(spec),
            }
    settings: dict[str, set[float]] = {}
    for point in points.values():
        settings.setdefault(point["family"], set()).add(point["setting"])
    if all(len(values) < 2 for values in settings.values()):
        return {}
    return {
        "sweep": {
            "points": points,
            "wins": _wins(evaluation, points),
            "gaps": _gaps(evaluation, points, resamples, seed),
        }
    }


def _sums(evaluation: Evaluation, model: str) -> dict[str, Any]:
    return evaluation.model_quality.by_model[model]["win_set"].sums


def _wins(evaluation: Evaluation, points: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Games between every two rankers of different families, on the values of this world."""
    cells = []
    for point in points.values():
        values = {
            measure: float(function(_sums(evaluation, point["model"])[name].sum(axis=0)[None])[0])
            for measure, (name, function) in MEASURES.items()
        }
        cells.append({"objective": point["family"], **values})
    return strict_wins(cells, ORDER, SCALE)


def _gaps(
    evaluation: Evaluation, points: dict[str, dict[str, Any]], resamples: int, seed: int
) -> dict[str, Any]:
    """{arm: {rival: {measure: {"value", "low", "high"}}}}, each pair once."""
    gaps: dict[str, dict[str, dict[str, Any]]] = {}
    for measure, (name, function) in MEASURES.items():
        sums = {arm: _sums(evaluation, point["model"])[name] for arm, point in points.items()}
        for arm, rivals in function_gaps(sums, function, resamples, seed).items():
            for rival, gap in rivals.items():
                gaps.setdefault(arm, {}).setdefault(rival, {})[measure] = gap
    return gaps
