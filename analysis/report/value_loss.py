"""Which stage loses the most value, and what to do about it, in words.

Losses are sequential, and each stage is also made perfect alone (environments.evaluators.corpus). Advice is
given where intervals support it: losses and gains of two stages are compared on the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cascade_sim.analysis.report.text_helpers import listed, stage_name
from cascade_sim.analysis.statistics.estimates import (
    NBSP,
    Estimate,
    arm_value,
    estimate,
    number_text,
    percent_text,
    scaled,
)

# Recipes that aim at ranking's best ads, which came out ahead in the studies (docs/results/cascade.md).
OF_THE_HEAD = ("arf", "infonce", "dftopk", "listwise")


def losses(metrics: Mapping[str, Any], arm: str) -> list[tuple[str, Estimate, float | None]]:
    """(stage, true eCPM lost per request, its share of the best possible), in the cascade's order."""
    attribution = (metrics.get("attribution") or {}).get(arm) or {}
    best = estimate(attribution.get("ecpm_best")).value
    rows = []
    for row in attribution.get("stages") or []:
        lost = estimate(row.get("ecpm_lost"))
        rows.append((row["stage"], lost, lost.value / best if best and lost.value is not None else None))
    return rows


def value_lost(metrics: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Headline and paragraphs on the stage that loses most with the baseline, and on what to do about it.

    None without an attribution.
    """
    baseline = metrics["baseline"]
    rows = [(stage, share) for stage, _, share in losses(metrics, baseline) if share is not None]
    if not rows:
        return None
    own = metrics["attribution"][baseline]
    best = own["ecpm_best"]
    shown = f"{number_text(100 * own['ecpm_shown'] / best, 1)}{NBSP}%"
    noise = irreducible_share(metrics, baseline)
    if noise is not None:
        rows = avoidable_shares(metrics, baseline)
    if max(share for _, share in rows) <= 0:
        return (
            "No stage loses value.",
            f"{baseline} shows {shown} of the true value (bid × true CTR) that the corpus could give.",
        )
    parts = [f"{stage_name(stage)} {number_text(100 * share, 1)}{NBSP}%" for stage, share in rows]
    text = (
        f"With {baseline}, pages have {shown} of the true value (bid × true CTR) that the best ads of the "
        "whole corpus would give. "
    )
    if noise is None:
        text += f"Lost on the way: {listed(parts)}."
    else:
        text += (
            f"No model can know {number_text(100 * noise, 1)}{NBSP}%, the noise of user and ad pairs. "
            f"Avoidable losses: {listed(parts)}."
        )
    revenue = estimate(own.get("revenue")).value
    if revenue is not None and own["ecpm_shown"]:
        text += (
            f" Advertisers pay {number_text(100 * revenue / own['ecpm_shown'], 0)}{NBSP}% of the value shown."
        )
    headline, advice = _what_to_do(metrics, dict(rows))
    return (headline, text, advice) if advice else (headline, text)


def _what_to_do(metrics: Mapping[str, Any], shares: Mapping[str, float]) -> tuple[str, str]:
    """(headline, advice): the stages that lose most, and the one whose perfection alone pays most."""
    own = metrics["attribution"][metrics["baseline"]]
    most = not_behind({stage: Estimate(share) for stage, share in shares.items()}, own.get("avoidable_gaps"))
    headline = _headline(most, n=len(shares))
    gains = perfect_gains(metrics)
    if not gains:
        return f"{headline}.", ""
    paying = {stage: gain for stage, gain in gains.items() if gain.is_above_zero}
    if not paying:
        return (
            f"{headline}, but no stage made perfect alone would raise the value shown significantly.",
            _alone(most, gains),
        )
    top = not_behind(paying, own.get("perfect_gaps"))
    both = [stage for stage in most if stage in top]
    if not both:
        headline += f"; {listed([stage_name(stage) for stage in top])} made perfect alone would gain more"
    advised = both or top
    told = [_alone([*dict.fromkeys([*advised, *most])], gains)]
    if 1 < len(advised) == len(shares):
        told.append("More `report.detail_requests`, or more worlds (`--seeds`), can tell them apart.")
    else:
        told += [_advice(metrics, one) for one in advised]
    return f"{headline}.", " ".join(line for line in told if line)


def _headline(most: list[str], n: int) -> str:
    """Which of n stages lose the most value, without the full stop."""
    if 1 < len(most) == n:
        return "No stage loses significantly more value than the others"
    names, verb = listed([stage_name(stage) for stage in most]), "loses" if len(most) == 1 else "lose"
    return f"{names[0].upper()}{names[1:]} {verb} the most value"


def not_behind(values: Mapping[str, Estimate], gaps: Mapping[str, Any] | None) -> list[str]:
    """The stage of the largest value, first, and those that are not significantly behind it.

    `gaps`: {stage: {other: stage less other}}; a run without them names the first alone.
    """
    top = max(values, key=lambda stage: values[stage].value or 0.0)
    ahead = (gaps or {}).get(top) or {}
    return [top, *(one for one in values if one in ahead and not estimate(ahead[one]).is_above_zero)]


def _alone(stages: list[str], gains: Mapping[str, Estimate]) -> str:
    """By how much these stages, each made perfect alone, would change the value shown."""
    told = [f"{stage_name(stage)} by {percent_text(gains[stage])}" for stage in stages if stage in gains]
    first, *others = told or [""]
    head = first.replace(" by ", " would change the value shown by ", 1)
    return f"Made perfect alone, {listed([head, *others])}." if told else ""


def _advice(metrics: Mapping[str, Any], stage: str) -> str:
    """What to try about a stage, as keys of an arm or a model; empty where its settings are not known."""
    settings = (metrics["attribution"][metrics["baseline"]].get("settings") or {}).get(stage)
    return ADVICE[settings["kind"]](metrics, stage, settings) if settings else ""


def _larger(settings: Mapping[str, Any]) -> str:
    return f"a larger `{settings['key']}.size` ({number_text(settings['size'], 0)} now)"


def _of_similarity(metrics: Mapping[str, Any], stage: str, settings: Mapping[str, Any]) -> str:
    return (
        "Retrieval goes by a fixed similarity: try an arm with a learned retriever (`retrieval: {model: "
        f"NAME}}`, a model with an inner product), or with {_larger(settings)}."
    )


def _of_learned(metrics: Mapping[str, Any], stage: str, settings: Mapping[str, Any]) -> str:
    return (
        f"Try {_larger(settings)}, another recipe or more samples for its model (`models."
        f"{settings['model']}`), or a second route (`retrieval.routes`)."
    )


def _of_routes(metrics: Mapping[str, Any], stage: str, settings: Mapping[str, Any]) -> str:
    only = {
        route: arm_value(metrics, metrics["baseline"], f"best_page_recall_only_by_{route}")
        for route in settings["routes"]
    }
    told = [f"{route} {percent_text(share, signed=False)}" for route, share in only.items() if share.value]
    sizes = [f"{number_text(size, 0)} of {route}" for route, size in settings["routes"].items()]
    alone = f"Of the best page the routes alone bring: {listed(told)}. " if told else ""
    return (
        f"{alone}Try other quotas (`retrieval.routes.NAME.size`; now {listed(sizes)}), or a learned route "
        "(`model: NAME` in place of its kind)."
    )


def _of_custom(metrics: Mapping[str, Any], stage: str, settings: Mapping[str, Any]) -> str:
    return (
        f"Try {_larger(settings)}, a learned retriever (`retrieval: {{model: NAME}}`), or both as routes "
        "(`retrieval.routes`)."
    )


def _of_step(metrics: Mapping[str, Any], stage: str, settings: Mapping[str, Any]) -> str:
    key, larger = settings["key"], _larger(settings)
    model = f"a trained model (`{key}.model`)"
    if settings.get("recipe"):
        others = [name for name in OF_THE_HEAD if name != settings["recipe"]]
        model = (
            f"a recipe that the ranker teaches (`models.{settings['model']}.recipe`, {settings['recipe']} "
            f"now; for its best ads: {', '.join(others)})"
        )
    bid = f"ranking's bid (`{key}.bid: {settings['ranking_bid']}`)"
    parted = parted_by(metrics, stage)
    if settings["bid"] == settings["ranking_bid"] or parted == "model":
        return f"{stage_name(stage).capitalize()}: try {model}, or {larger}."
    if parted == "bid":
        return f"{stage_name(stage).capitalize()}: its bid parts it from ranking; try {bid}, or {larger}."
    return f"{stage_name(stage).capitalize()}: try {model}, {bid}, or {larger}."


def parted_by(metrics: Mapping[str, Any], stage: str) -> str:
    """What parts a step from ranking more, by the ablation: its "model" or its "bid"; else nothing."""
    rows = [row for row in metrics.get("ablation") or [] if row.get("stage") in (None, stage)]
    rcs = {row["role"]: estimate(row.get("rcs")) for row in rows}
    model, bid = rcs.get("model", Estimate()), rcs.get("bid", Estimate())
    if model.low is None or model.high is None or bid.low is None or bid.high is None:
        return ""
    return "model" if model.low > bid.high else "bid" if bid.low > model.high else ""


def _of_ranking(metrics: Mapping[str, Any], stage: str, settings: Mapping[str, Any]) -> str:
    base = metrics["baseline"]
    lost = {name: share for name, _, share in losses(metrics, base)}[stage]
    avoidable = dict(avoidable_shares(metrics, base)).get(stage)
    if lost is None or avoidable is None:
        return ""
    told = (
        f"Of the {number_text(100 * lost, 1)}{NBSP}% that ranking loses, features tell "
        f"{number_text(100 * min(avoidable, lost), 1)} points"
    )
    if settings.get("recipe"):
        told += f": more data or other features for its model (`models.{settings['model']}`) may keep them"
    return f"{told}."


# What to try, by the kind of stage that metrics.json names.
ADVICE: dict[str, Callable[[Mapping[str, Any], str, Mapping[str, Any]], str]] = {
    "similarity": _of_similarity,
    "learned": _of_learned,
    "routes": _of_routes,
    "custom": _of_custom,
    "step": _of_step,
    "ranking": _of_ranking,
}


def perfect_stage(metrics: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """(stage, gains) of the baseline with that stage made perfect, in their order; empty if not measured."""
    own = (metrics.get("attribution") or {}).get(metrics["baseline"]) or {}
    gains = own.get("perfect_stage") or {}
    return [(row["stage"], gains[row["stage"]]) for row in own.get("stages") or [] if row["stage"] in gains]


def perfect_gains(metrics: Mapping[str, Any]) -> dict[str, Estimate]:
    """By how much of itself each stage, made perfect alone, would raise the value shown; {} if unknown."""
    shown = ((metrics.get("attribution") or {}).get(metrics["baseline"]) or {}).get("ecpm_shown")
    gains = {stage: estimate(entry["ecpm_gain"]) for stage, entry in perfect_stage(metrics)}
    return {
        stage: scaled(gain, 1.0 / shown) for stage, gain in gains.items() if shown and gain.value is not None
    }


def irreducible_share(metrics: Mapping[str, Any], arm: str) -> float | None:
    """Share of the best possible value that no feature tells; None where that was not measured."""
    own = (metrics.get("attribution") or {}).get(arm) or {}
    known, best = estimate(own.get("ecpm_best_known")).value, estimate(own.get("ecpm_best")).value
    return None if known is None or not best else 1.0 - known / best


def avoidable_shares(metrics: Mapping[str, Any], arm: str) -> list[tuple[str, float]]:
    """(stage, share of the best possible value that it loses although features tell it), in their order."""
    own = metrics["attribution"][arm]
    lost = {stage: estimate(entry).value for stage, entry in (own.get("ecpm_avoidable") or {}).items()}
    stages = [row["stage"] for row in own["stages"]]
    return [(stage, (lost.get(stage) or 0.0) / own["ecpm_best"]) for stage in stages]
