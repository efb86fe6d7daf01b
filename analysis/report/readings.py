"""What tables, words and figures read from metrics.json: which arms and kinds there are, in which order, and
where their numbers are. All of it takes the metrics of a study; what a study lacks is empty or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import (
    AFTER_STEPS,
    ALL_STEPS,
    ARM_MEASURES,
    PAGE_MEASURES,
    REPLAY_MEASURES,
    Measure,
    after_step,
    arm_measure,
    steps_of,
)
from cascade_sim.analysis.report.comparisons import ordered_arms
from cascade_sim.analysis.report.text_helpers import listed, stage_name
from cascade_sim.analysis.statistics.estimates import Estimate, estimate, finite, lift_of, number_text


def _arms_of(metrics: Mapping[str, Any], part: str) -> list[str]:
    """The arms of which a part of the metrics says anything, in the order of the arms table."""
    arms = (metrics.get(part) or {}).get("arms") or {}
    return [arm for arm in ordered_arms(metrics) if arms.get(arm)]


# The market


def market_arms(metrics: Mapping[str, Any]) -> list[str]:
    """The arms that lived through the market, in the order of the arms table."""
    return _arms_of(metrics, "market")


def market_baseline(metrics: Mapping[str, Any]) -> str | None:
    """The arm others are compared with: the study's baseline, or the first if that had no market."""
    arms = market_arms(metrics)
    if not arms:
        return None
    return metrics["baseline"] if metrics["baseline"] in arms else arms[0]


def bidder_kinds(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The baseline's kinds of bidders, smoothest spending first, those without any budget last."""
    arm = market_baseline(metrics)
    bidders = (metrics["market"]["arms"][arm].get("bidders") or {}) if arm is not None else {}
    kinds = {name: kind for name, kind in bidders.items() if kind}

    def place(name: str) -> tuple[bool, float, str]:
        gap = finite(kinds[name].get("max_pacing_error"))
        return not has_budget(kinds[name]), float("inf") if gap is None else gap, name

    return {name: kinds[name] for name in sorted(kinds, key=place)}


def has_budget(kind: Mapping[str, Any]) -> bool:
    """Whether any advertiser of the kind has a budget; without one there is no pace to keep."""
    return (finite(kind.get("with_budget")) or 0.0) > 0


# Stages


def candidate_sets(metrics: Mapping[str, Any]) -> list[str]:
    """The sets that stages hand on, by who receives them, the win set first."""
    steps = steps_of(metrics) or ["pre_ranking"]
    return ["win_set", "competitive_set", *(f"{step}_set" for step in reversed(steps))]


# Latency and compute


STAGE_HEADINGS = {"retrieval": "Retrieval", "pre_ranking": "Pre-ranking", "ranking": "Ranking"}


def stage_headings(metrics: Mapping[str, Any]) -> dict[str, str]:
    """The stages of the cascade in their order, and how tables call them.

    The order is that of the loss attribution: a mapping in metrics.json is sorted by name. Without one there
    are the three that every cascade has.
    """
    attribution = next(iter((metrics.get("attribution") or {}).values()), None) or {}
    names = [row["stage"] for row in attribution.get("stages") or ()] or list(STAGE_HEADINGS)
    return {name: STAGE_HEADINGS.get(name, name.replace("_", "-").capitalize()) for name in names}


def compute_arms(metrics: Mapping[str, Any]) -> list[str]:
    """The arms whose stages cost time, the cheapest first."""
    arms = [arm for arm in market_arms(metrics) if metrics["market"]["arms"][arm].get("compute")]

    def cost(arm: str) -> float:
        spent = market_value(metrics, arm, ("compute", "server_ms_per_request"))
        return float("inf") if spent is None else spent

    return sorted(arms, key=cost)


def market_value(metrics: Mapping[str, Any], arm: str, keys: tuple[str, ...]) -> float | None:
    """A number of an arm's market section; None where it is missing."""
    node: Any = metrics["market"]["arms"][arm]
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    return finite(node)


# Models that learn


def learning_of(metrics: Mapping[str, Any], arm: str) -> Mapping[str, Any]:
    """An arm's learning section; empty where it has none."""
    own = ((metrics.get("market") or {}).get("arms") or {}).get(arm) or {}
    return own.get("learning") or {}


def deployments(metrics: Mapping[str, Any], arm: str, measure: str) -> list[tuple[float, Estimate]]:
    """(seconds, estimate) of every deployment of an arm's models that has a value."""
    section = learning_of(metrics, arm)
    times = [finite(time) for time in section.get("time") or []]
    values = [estimate(entry) for entry in section.get(measure) or []]
    pairs = zip(times, values, strict=False)
    return [(time, value) for time, value in pairs if time is not None and value.value is not None]


def learning_arms(metrics: Mapping[str, Any]) -> list[str]:
    """The arms whose models learn in the market, those that explore least first."""
    arms = [arm for arm in market_arms(metrics) if learning_of(metrics, arm).get("recall")]
    return sorted(arms, key=lambda arm: (finite(learning_of(metrics, arm).get("exploration")) or 0.0, arm))


# How models were trained


def training_lines(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The lines of the trainings that were watched, by model; first deployments among them."""
    section = metrics.get("training") or {}
    return {model: line for model, line in section.items() if line and len(line.get("steps") or []) > 1}


# Rankers that drift


# What keeps a ranker's scale, if anything does: what sentences say, and its heading.
RANKER_GROUPS = {
    "order": "trained for order alone",
    "calibrator": "followed by a calibrator",
    "scale": "with a regression part",
}


RANKER_SETTINGS = ("objective", "ranking", "batching", "logged_scores_from", "calibrator", "fit", "refit")


def drift_arms(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Arm → what its ranker is trained for, by group, then as in the file; empty if all are trained alike."""
    told = {arm: learning_of(metrics, arm).get("ranker") for arm in learning_arms(metrics)}
    rankers = {
        arm: ranker for arm, ranker in told.items() if ranker and learning_of(metrics, arm).get("mean_score")
    }
    if len({tuple(str(ranker.get(key)) for key in RANKER_SETTINGS) for ranker in rankers.values()}) < 2:
        return {}
    order, places = list(RANKER_GROUPS), list(metrics["market"]["arms"])
    names = sorted(rankers, key=lambda arm: (order.index(group_of(rankers[arm])), places.index(arm)))
    return {arm: rankers[arm] for arm in names}


def group_of(ranker: Mapping[str, Any]) -> str:
    """What gives a ranker its scale: nothing ("order"), a "calibrator", or its own objective ("scale")."""
    if ranker.get("calibrator"):
        return "calibrator"
    return "scale" if ranker.get("has_scale") else "order"


def arms_of(metrics: Mapping[str, Any], group: str) -> list[str]:
    """The arms of one group."""
    return [arm for arm, ranker in drift_arms(metrics).items() if group_of(ranker) == group]


# Experiments


DESIGN_NAMES = {
    "request": "by request",
    "user": "by user",
    "switchback": "switchback",
    "budget": "split budgets",
}


def designs_of(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section of metrics.json; empty for a study without experiments."""
    return (metrics.get("market") or {}).get("designs") or {}


def design_kinds(metrics: Mapping[str, Any]) -> list[str]:
    """The designs that ran, those with common budgets first."""
    kinds = designs_of(metrics).get("kinds") or {}
    return [kind for kind in DESIGN_NAMES if kind in kinds]


def design_effect(
    metrics: Mapping[str, Any], kind: str, key: str, measure: str = "revenue_per_request"
) -> Estimate:
    """An entry of a design's measure: lift, lift_bias, difference, bias, treatment or control."""
    return estimate(designs_of(metrics)["kinds"][kind]["measures"][measure].get(key))


def design_truth(
    metrics: Mapping[str, Any], key: str = "lift", measure: str = "revenue_per_request"
) -> Estimate:
    return estimate(designs_of(metrics)["truth"][measure].get(key))


def design_verdict(metrics: Mapping[str, Any], kind: str) -> str:
    """ "wrong" if the interval of the bias lies off zero, "unknown" without one, else "right" or "unclear".

    Not to see a bias is no proof that there is none: "unclear" is an interval that holds zero and also what
    the least of the clearly wrong designs is off by or, if none is, as much as the effect itself.
    """
    bias = design_effect(metrics, kind, "lift_bias")
    if bias.value is None or bias.low is None or bias.high is None:
        return "unknown"
    if not bias.low <= 0 <= bias.high:
        return "wrong"
    others = [design_effect(metrics, other, "lift_bias") for other in design_kinds(metrics)]
    clear = [abs(other.value or 0.0) for other in others if other.is_above_zero or other.is_below_zero]
    margin = min(clear, default=abs(design_truth(metrics).value or 0.0))
    return "right" if max(-bias.low, bias.high) < margin else "unclear"


# Objectives


def objective_arms(metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Arm → the model, objective and calibrator of its ranking stage, the least LogLoss first."""
    arms = (metrics.get("objectives") or {}).get("arms") or {}

    def loss(arm: str) -> float:
        value = _of_model(metrics, arms[arm]["model"], "logloss", "win_set").value
        return float("inf") if value is None else value

    return {arm: arms[arm] for arm in sorted(arms, key=loss) if arm in metrics["arms"]}


def model_value(metrics: Mapping[str, Any], arm: str, measure: str, part: str = "win_set") -> Estimate:
    """A measure of the model that ranks in an arm."""
    return _of_model(metrics, metrics["objectives"]["arms"][arm]["model"], measure, part)


def _of_model(metrics: Mapping[str, Any], model: str, measure: str, part: str) -> Estimate:
    return estimate((((metrics.get("models") or {}).get(model) or {}).get(part) or {}).get(measure))


# Critical bids


def critical_arms(metrics: Mapping[str, Any]) -> list[str]:
    """The arms that have critical bids, in the order of the arms table."""
    return _arms_of(metrics, "critical_bids")


def critical_value(metrics: Mapping[str, Any], arm: str, metric: str) -> Estimate:
    """One number of one arm with its interval."""
    return estimate(metrics["critical_bids"]["arms"][arm].get(metric))


# Off-policy estimates


ESTIMATOR_NAMES = {
    "local_linear": "local linear",
    "local_dr": "local DR",
    "ips": "IPS",
    "clipped_ips": "clipped IPS",
    "snips": "SNIPS",
    "doubly_robust": "doubly robust",
    "switch_dr": "switch-DR",
    "slate_ips": "page IPS",
    "reward_interaction_ips": "interaction IPS",
    "independent_ips": "independent IPS",
    "cascade_dr": "cascade DR",
    "direct_method": "direct method",
}


# the estimator of each kind of question whose weights tell how much of the log is left
ESS_OF = ("local_dr", "ips", "slate_ips")


def is_launch(target: Mapping[str, Any]) -> bool:
    """Whether a target fixes its parameters; files of older versions have none that does."""
    return target.get("estimand") == "launch"


def targets_of(part: Mapping[str, Any], log: str) -> dict[str, Mapping[str, Any]]:
    """The targets that one of the two logs answers for, in their order."""
    return {name: target for name, target in ordered_targets(part).items() if target["log"] == log}


def ordered_targets(part: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """All targets in the order of the scenario, which JSON's sorted keys have lost."""
    names = part.get("order") or list(part["targets"])
    return {name: part["targets"][name] for name in names if name in part["targets"]}


def shown_estimate(row: Mapping[str, Any], truth: float | None) -> Estimate:
    """An estimate with its interval; over several worlds its error and that interval, from the truth on.

    Worlds differ in what they earn, so how far estimates of the level spread between them says little. Nor
    does their mean where some worlds refused: the truth is that of all, the answers are those of the others.
    """
    own, error = estimate(row["estimate"]), estimate(row.get("error"))
    if truth is None or error.value is None or error.low is None or error.high is None:
        return own
    return Estimate(truth + error.value, truth + error.low, truth + error.high)


# What-ifs


WHAT_IF_REVENUE = "expected_revenue_per_request"


WHAT_IF_MEASURES: dict[str, Measure] = {
    **{name: ARM_MEASURES[name] for name in (WHAT_IF_REVENUE, "revenue_per_request", "expected_rpm", "rpm")},
    **{name: ARM_MEASURES[name] for name in ("expected_ctr", "ctr", "cpc")},
    "fill_rate": PAGE_MEASURES["fill_rate"],
    **{
        name: ARM_MEASURES[name]
        for name in ("impressions_per_request", "expected_clicks_per_request", "surplus_per_request")
    },
    **{
        name: ARM_MEASURES[name]
        for name in ("rcs", "true_value_recall", "cpc_error", "cpc_bias", "revenue_pcoc")
    },
    **{
        name: ARM_MEASURES[name]
        for name in ("welfare_vs_oracle", "revenue_vs_oracle", "payment_error_vs_oracle")
    },
}

WHAT_IF_MEASURES |= REPLAY_MEASURES  # of an imported log
WHAT_IF_MEASURES |= {name: measure for name, measure in ARM_MEASURES.items() if name not in WHAT_IF_MEASURES}


def what_if_measures(names: Iterable[str]) -> dict[str, Measure]:
    """Of these measures, those that what-ifs show, in their order; those after a step come first."""
    known = list(names)
    found: dict[str, Measure] = {}
    for name, measure in WHAT_IF_MEASURES.items():
        steps = [one for one in known if one.startswith(after_step(name, ""))] if name in AFTER_STEPS else []
        found |= {one: arm_measure(one) for one in steps}
        found |= {name: measure} if name in known else {}
    return found


def value_text(value: Any) -> str:
    """A setting as people write it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:.10g}" if isinstance(value, int | float) else str(value)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings in a line: `auction.reserve_cpc = 0.2, cascade.slots = 4`."""
    return ", ".join(f"{path} = {value_text(value)}" for path, value in settings.items())


# Parameters that people call by a name of their own.
PARAMETER_NAMES = {
    "auction.reserve_cpc": "Reserve",
    "auction.squashing": "Squashing",
    "auction.score_floor": "Score floor",
    "cascade.slots": "Slots",
}


def no_evidence(found: Mapping[str, Any]) -> str:
    """The headline where too little of a log came out under its rule, whatever was asked; else nothing."""
    known = (found.get("replay") or {}).get("reproduced")
    if not known or known["is_enough"]:
        return ""
    lacking = listed(
        [
            f"{100 * known[name]:.1f} % of the {name} ({100 * least:g} % are needed)"
            for name, least in known["least"].items()
            if known[name] is not None and known[name] < least
        ]
    )
    return f"No evidence about the log: its rule reproduces {lacking}, so the figures are of another auction."


def parameter_text(settings: Mapping[str, Any]) -> str:
    """Settings as a headline names them: `Reserve 0.6`; a parameter without a name has its path."""
    return ", ".join(
        f"{PARAMETER_NAMES[path]} {value_text(value)}"
        if path in PARAMETER_NAMES
        else settings_text({path: value})
        for path, value in settings.items()
    )


def point_label(answer: Mapping[str, Any], point: Mapping[str, Any]) -> str:
    """A point among its like: the value of the parameter that varies, or all its settings."""
    parameter = answer.get("parameter")
    return value_text(point["settings"][parameter]) if parameter else settings_text(point["settings"])


# The ablation


def row_label(row: Mapping[str, Any], model: str | None = None) -> str:
    """The row's score, after the step that it is of where there are several: coarse: no bid × towers."""
    step = row.get("stage")
    if step is None:
        return score_label(row, model)
    return f"{'every step' if step == ALL_STEPS else stage_name(step)}: {score_label(row, model)}"


def score_label(row: Mapping[str, Any], model: str | None = None) -> str:
    """The row's pre-ranking score as people write it: init-bid × logloss."""
    return f"{bid_label(row)} × {row['model'] if model is None else model}"


def bid_label(row: Mapping[str, Any]) -> str:
    """The row's bid as people write it: init-bid, or opt-bid (pcvr) with the model it comes from."""
    if row["bid"] == "none":
        return "no bid"
    return f"{row['bid']}-bid" + (f" ({row['pcvr']})" if row.get("pcvr") else "")


def ablation_measures(metrics: Mapping[str, Any]) -> tuple[str, str]:
    """The CTR and revenue measures whose lifts the rows show: expected, and per request, where known."""
    rows = metrics.get("ablation") or []

    def first_known(*names: str) -> str:
        known = [name for name in names if any(lift_of(row.get(name)).value is not None for row in rows)]
        return known[0] if known else names[-1]

    revenue = first_known("expected_revenue_per_request", "revenue_per_request", "expected_rpm", "rpm")
    return first_known("expected_ctr", "ctr"), revenue


# On what measures rest


def detail_requests(metrics: Mapping[str, Any], key: str) -> str:
    """On how many requests a dear measure rests ("512 requests per arm and world"); empty if unknown."""
    n = finite((metrics.get("detail") or {}).get(key))
    if n is None and key == "corpus_requests":  # an older run says it arm by arm
        rows = [row for row in (metrics.get("attribution") or {}).values() if row]
        n = finite(rows[0].get("requests")) if rows else None
    if n is None:
        return ""
    return f"{number_text(n, 0)} requests{' of each world' if metrics.get('seeds') else ''}"
