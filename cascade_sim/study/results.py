"""From the tallies of an evaluation to metrics.json: paired 95 % intervals, and seeds combined."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cascade_sim.analysis.metrics import calibration
from cascade_sim.analysis.metrics.catalogue import (
    ALL_STEPS,
    ARM_MEASURES,
    IN_LAST_STEP,
    REFERENCE_ARMS,
    Metric,
    is_reference,
    ratio_parts,
)
from cascade_sim.analysis.statistics.bootstrap import (
    Function,
    FunctionSample,
    RatioSample,
    ratio_intervals,
    seed_spread,
)
from cascade_sim.analysis.statistics.orders import order_between_worlds
from cascade_sim.cascade.serve import Arm, Stage
from cascade_sim.environments.evaluators.corpus import attribution_table
from cascade_sim.scenario.file import scenario_hash
from cascade_sim.scenario.models import ModelSpec
from cascade_sim.scenario.schema import ArmSpec
from cascade_sim.scenario.sections import PreRankingStep, Retrieval
from cascade_sim.study.cost import cost_section
from cascade_sim.study.evaluate import ArmEvaluation, ArmTally, Evaluation, Replaced
from cascade_sim.study.objectives import sweep_section
from cascade_sim.version import SEMANTICS, __version__

QUALITY_RESAMPLES = 200
# Arms are put in order between worlds by these; whether differences are relative, or in points.
ORDERED = {"rcs": False, "single_objective_rcs": False, "expected_ctr": True, "expected_rpm": True}
CONTRASTED = ("expected_revenue_per_request", "expected_rpm", "expected_ctr", "rcs")
IN_ABLATION = (
    *("rcs", "ctr", "expected_ctr", "rpm", "expected_rpm"),
    *("revenue_per_request", "expected_revenue_per_request"),
)


def collect(evaluation: Evaluation) -> dict[str, Any]:
    """The whole content of metrics.json for one seed."""
    sim = evaluation.sim
    report = sim.scenario.report
    baseline, resamples, seed = report.baseline, report.resamples, sim.seed
    metrics = measures_of(evaluation)
    sample = ratio_sample(evaluation, resamples, seed, metrics)
    measured = arm_metrics(evaluation, sample, baseline, resamples, seed, metrics)
    details = {name: evaluation.tallies[name].joined("detail") for name in evaluation.arms}
    details = {name: table for name, table in details.items() if table}
    return {
        "name": sim.scenario.name,
        "seed": sim.seed,
        "semantics": SEMANTICS,
        "version": __version__,
        "scenario_hash": scenario_hash(sim.scenario),
        "requests": evaluation.n_requests,
        "baseline": baseline,
        "references": references(evaluation),
        "arms": {name: measured[name] for name in evaluation.arms},
        # The paired lift of each arm of the scenario over every other arm, the automatic ones included.
        "contrasts": sample.contrasts(
            list(sim.scenario.arms), list(evaluation.arms), [name for name in CONTRASTED if name in metrics]
        ),
        "ablation": [
            {
                **ablation_row(key, arm, evaluation.baseline),
                **{metric: measured[arm.name][metric] for metric in IN_ABLATION if metric in metrics},
            }
            for key, arm in evaluation.ablations.items()
        ],
        "detail": {
            "corpus_requests": evaluation.n_detail,
            "quality_requests": getattr(evaluation, "n_quality", evaluation.n_detail),
        },
        "attribution": attribution(evaluation, details) if details else {},
        "funnel": {name: _funnel(evaluation, name) for name in evaluation.arms},
        "models": evaluation.model_quality.metrics(QUALITY_RESAMPLES, seed),
        "curves": evaluation.model_quality.curves(),
        **cost_section(evaluation),
        **_pcvr_models(evaluation),
        **_objectives(evaluation),
    }


def attribution(evaluation: Evaluation, details: dict[str, dict[str, np.ndarray]]) -> dict[str, Any]:
    """What each stage loses against the whole corpus; of the baseline also what its stages are set to."""
    report = evaluation.sim.scenario.report
    section = attribution_table(details, report.baseline, report.resamples, evaluation.sim.seed)
    if report.baseline in section:
        spec, models = evaluation.specs[report.baseline], evaluation.sim.scenario.models
        section[report.baseline]["settings"] = stage_settings(spec, models)
    return section


def stage_settings(spec: ArmSpec, models: Mapping[str, ModelSpec]) -> dict[str, dict[str, Any]]:
    """What may be changed about each stage of an arm: its kind, its keys in an arm, model and size."""
    found: dict[str, dict[str, Any]] = {"retrieval": _retrieval_settings(spec.retrieval)}
    for name, section in spec.sections:
        learned = {"recipe": models[section.model].recipe} if section.model in models else {}
        found[name] = {"kind": "ranking", "model": section.model, **learned}
        if isinstance(section, PreRankingStep):
            key = name if name == "pre_ranking" else f"pre_ranking.earlier.{name}"
            found[name] |= {
                **{"kind": "step", "key": key, "size": section.size},
                **{"bid": section.bid, "ranking_bid": spec.ranking.bid},
            }
    return found


def _retrieval_settings(retrieval: Retrieval) -> dict[str, Any]:
    kind = "similarity" if retrieval.is_similarity else "learned" if retrieval.model else "custom"
    if retrieval.routes:
        sizes = {route: own.size for route, own in retrieval.routes.items() if own.size}
        return {"kind": "routes", "routes": sizes}
    model = {"model": retrieval.model} if retrieval.model else {}
    return {"kind": kind, "key": "retrieval", "size": retrieval.size, **model}


def measures_of(evaluation: Evaluation) -> Mapping[str, Metric]:
    """The measures of an evaluation: all that its world can have."""
    known = {
        column
        for tally in evaluation.tallies.values()
        for table in (tally.columns, *tally.detail[:1])
        for column in table
    }
    return evaluation.sim.environment.measures(known)


def references(evaluation: Evaluation) -> dict[str, str]:
    """Arms that cannot ship, and why: the engine's own, and those that know more truth than the baseline.

    Where the baseline itself has the truth as a stage model, the arms are compared with each other under it.
    """
    arms, base = evaluation.specs, evaluation.specs[evaluation.sim.scenario.report.baseline]
    told = {name: text for name, text in REFERENCE_ARMS.items() if name in arms}
    if base.pre_ranking.earlier:  # what is before the last step is the baseline's
        told |= {name: text for name, text in IN_LAST_STEP.items() if name in arms}
    for name in evaluation.sim.scenario.arms:
        pairs = zip(arms[name].sections, base.sections, strict=True)
        knowing = [
            stage.replace("_", "-")
            for (stage, own), (_, current) in pairs
            if own.model == "truth" != current.model
        ]
        if knowing:
            told[name] = f"knows the true CTR in {' and '.join(knowing)}, which no model does"
    return told


def _objectives(evaluation: Evaluation) -> dict[str, Any]:
    """Which objective each arm's ranking stage is trained for; nothing if all rankers are plain."""
    specs = evaluation.sim.scenario.models
    rankers = {arm: evaluation.specs[arm].ranking.model for arm in evaluation.sim.scenario.arms}
    trained = {arm: model for arm, model in rankers.items() if model in specs}
    if all(specs[model].is_plain for model in trained.values()):
        return {}
    arms = {
        arm: {
            **{"model": model, "objective": specs[model].objective, "calibrator": specs[model].calibrator},
            **specs[model].model_dump(include={"ranking", "fit"}),  # where they are not the usual ones
        }
        for arm, model in trained.items()
        if specs[model].trained_by.has_objective
    }
    models = {trained[arm] for arm in arms}
    sweep = sweep_section(evaluation, arms, QUALITY_RESAMPLES, evaluation.sim.seed)
    reliability = evaluation.model_quality.reliability(models)
    return {"objectives": {"arms": arms, "reliability": reliability, **sweep}}


def _pcvr_models(evaluation: Evaluation) -> dict[str, Any]:
    """Quality of the models that opt-bids come from; nothing where the pCVR is known."""
    study = evaluation.pcvr_quality
    return {} if study is None else {"pcvr_models": study.metrics(QUALITY_RESAMPLES, evaluation.sim.seed)}


def vector_metrics(
    tallies: Mapping[str, ArmTally],
) -> list[tuple[dict[str, np.ndarray], dict[str, Function]]]:
    """Metrics that are functions of summed vectors: ({arm: [G, ...]}, {metric: its function of the sums})."""
    functions: dict[str, dict[str, Function]] = {}
    for metric in ARM_MEASURES.values():
        if metric.function is not None:
            of_kind = functions.setdefault(metric.vectors, {})
            of_kind[metric.name] = Function(metric.function, metric.rises_with_noise)
    of_arms = [
        ({arm: tally.vectors[kind] for arm, tally in tallies.items() if kind in tally.vectors}, of_kind)
        for kind, of_kind in functions.items()
    ]
    if any("payments" in tally.vectors for tally in tallies.values()):
        return of_arms  # what no arm has is undefined, and said to be
    return [(sums, of_kind) for sums, of_kind in of_arms if sums]  # of a log, which has no ground truth


def ratio_sample(
    evaluation: ArmEvaluation, resamples: int, seed: int, metrics: Mapping[str, Metric] = ARM_MEASURES
) -> RatioSample:
    """The metrics that are ratios of sums over requests, of every arm, on the data and on resamples."""
    parts = ratio_parts(metrics.values())
    drawn = RatioSample.of(evaluation.resampled(), parts, resamples, seed)
    return drawn.with_data(evaluation.controlled(), parts)


def vector_samples(evaluation: ArmEvaluation, resamples: int, seed: int) -> list[FunctionSample]:
    """The metrics that are functions of summed vectors, of every arm, on the data and on resamples."""
    return [
        FunctionSample.of(sums, functions, resamples, seed)
        for sums, functions in vector_metrics(evaluation.tallies)
    ]


def arm_metrics(
    evaluation: ArmEvaluation,
    sample: RatioSample,
    baseline: str,
    resamples: int,
    seed: int,
    metrics: Mapping[str, Metric] = ARM_MEASURES,
    samples: list[FunctionSample] | None = None,
) -> dict[str, dict]:
    """Every metric of every arm with its interval and lift over the baseline.

    `sample` has the ratios, `samples` the functions of vectors; None: they are drawn here.
    """
    tallies = evaluation.tallies
    measured = sample.intervals(baseline)
    vectors: list[str] = []
    for functions in vector_samples(evaluation, resamples, seed) if samples is None else samples:
        for metric, by_arm in functions.intervals(baseline).items():
            vectors.append(metric)
            for name, value in by_arm.items():
                measured[name][metric] = value
    looked_at = {name: tally.joined("detail") for name, tally in tallies.items() if tally.detail}
    of_corpus = ratio_parts(metrics.values(), of_corpus=True)
    if looked_at:
        for name, row in ratio_intervals(looked_at, of_corpus, baseline, resamples, seed).items():
            measured[name].update(row)
    nothing = {"value": None, "low": None, "high": None}
    for name in measured:
        for metric in (*vectors, *of_corpus):
            lift = {} if name == baseline else {"lift": dict(nothing)}
            measured[name].setdefault(metric, {**nothing, **lift})
    return measured


def ablation_row(key: Replaced, arm: Arm, baseline: Arm) -> dict[str, Any]:
    """What an arm of the ablation replaces; with the step where pre-ranking has several."""
    steps = [stage.name for stage in arm.stages[:-1]]
    at = -2 if key.stage == ALL_STEPS else steps.index(key.stage)
    own = arm.stages[at]
    return {
        **({"stage": key.stage} if len(steps) > 1 else {}),
        "bid": own.bid,
        **({"pcvr": own.pcvr} if own.pcvr else {}),
        "model": key.model,
        "role": ALL_STEPS if key.stage == ALL_STEPS else ablation_role(own, baseline.stages[at]),
    }


def ablation_role(own: Stage, before: Stage) -> str:
    """What of a step of pre-ranking is replaced; the fusion comes with the model."""
    has_other_bid = own.bid_name != before.bid_name
    has_other_model = own.scorer.name != before.scorer.name or own.fusion != before.fusion
    if has_other_bid and has_other_model:
        return "both"
    return "bid" if has_other_bid else "model" if has_other_model else "as it is"


def _funnel(evaluation: Evaluation, name: str) -> dict[str, float]:
    after = evaluation.tallies[name].sizes / evaluation.n_requests
    sizes = dict(zip(evaluation.all_arms()[name].set_names, after.tolist(), strict=True))
    return {"corpus": evaluation.sim.world.n_ads, **sizes}


def combine_seeds(studies: list[dict[str, Any]]) -> dict[str, Any]:
    """One metrics.json of several worlds: values are means, intervals the spread between seeds."""
    first = studies[0]
    combined = {
        key: first[key] if isinstance(first[key], str | int) else _combine([s[key] for s in studies])
        for key in first
        if all(key in study for study in studies)  # a run folder of an older version may lack a section
    }
    if "proxy_reliability" in combined.get("curves", {}):
        combined["curves"]["proxy_reliability"] = _pool_reliability(
            [study["curves"]["proxy_reliability"] for study in studies]
        )
    combined["seeds"] = {"n": len(studies), "seeds": [s["seed"] for s in studies]}
    orders = _orders(studies)
    return {**combined, "orders": orders} if orders else combined


def _orders(studies: list[dict[str, Any]]) -> dict[str, Any]:
    """How many worlds keep each order of the scenario's arms by ORDERED, and of the ablation rows by RCS."""
    worlds = [study.get("arms") or {} for study in studies]
    arms = [arm for arm in worlds[0] if not is_reference(arm) and all(arm in world for world in worlds)]
    found = {
        metric: order_between_worlds(
            {arm: [(world[arm].get(metric) or {}).get("value") for world in worlds] for arm in arms},
            is_relative=is_relative,
        )
        for metric, is_relative in ORDERED.items()
    }
    rows = ablation_labels(studies[0])
    if all(len(s.get("ablation") or []) == len(studies[0].get("ablation") or []) for s in studies):
        by_row = {row: [s["ablation"][i]["rcs"]["value"] for s in studies] for row, i in rows.items()}
        found["ablation"] = order_between_worlds(by_row, is_relative=False)
    return {name: order for name, order in found.items() if order is not None}


def ablation_labels(metrics: Mapping[str, Any]) -> dict[str, int]:
    """The rows of the ablation by what they put together, with their places; the baseline itself once."""
    labels = {}
    for i, row in enumerate(metrics.get("ablation") or []):
        name = f"{row['bid']} × {row['model']}"
        if "stage" in row:
            is_base = row["role"] == "as it is"
            name = "as it is" if is_base else f"{row['stage']}: {name}"
        labels[name] = i
    return labels


def _pool_reliability(worlds: list[dict[str, Any]]) -> dict[str, dict]:
    """One curve per model that every world has; bins differ between worlds, so they are pooled."""
    pooled = {}
    for model in worlds[0]:
        if not all(world.get(model) for world in worlds):
            continue
        curve = calibration.pooled_curve(
            [{**world[model], "reference": world[model]["ranker"]} for world in worlds]
        )
        pooled[model] = {
            "predicted": curve["predicted"].tolist(),
            "ranker": curve["reference"].tolist(),
            "count": curve["count"].tolist(),
            "worlds": len(worlds),
        }
    return pooled


# A bound holds in every world: what exceeds it most is what counts.
MAX_OF_ALL = ("overspend", "overspend_share", "beyond_limit")


def combine_sections(sections: list[dict[str, Any]]) -> dict[str, Any]:
    """The same section of several worlds as one: means, and intervals between worlds."""
    combined: dict[str, Any] = _combine(list(sections))
    return combined


def _combine(nodes: list[Any]) -> Any:
    """Spread of every {"value": …}, mean of other numbers, the first where seeds cannot be matched.

    What is None in some worlds (an hour at which no budget ran dry) comes from the worlds that have it.
    """
    nodes = [node for node in nodes if node is not None]
    if not nodes:
        return None
    first = nodes[0]
    if isinstance(first, dict):
        if "value" in first:
            spread = seed_spread([node["value"] for node in nodes])
            for key in ("lift", "difference"):
                if all(key in node for node in nodes):
                    spread[key] = seed_spread([node[key]["value"] for node in nodes])
            return spread
        return {
            key: max(n[key] for n in nodes) if key in MAX_OF_ALL else _combine([n[key] for n in nodes])
            for key in first
            if all(key in n for n in nodes)
        }
    if isinstance(first, list):
        if len({len(node) for node in nodes}) > 1:
            return first
        return [_combine(list(items)) for items in zip(*nodes, strict=True)]
    if isinstance(first, bool | str):
        return first
    return float(np.mean(nodes)) if len(set(nodes)) > 1 else first
