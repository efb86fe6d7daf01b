"""The parameters of an arm as the page shows them: what each is now, and between what it can be turned.

What can be turned is whatever `whatif` can turn; this only says how to offer it. A combination that the rules
forbid is refused by them, in their words. Parameters that are whole sections (sizes by request, fusions) have
no control, but the page takes them as words, like `--set`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np

from cascade_sim.auction.pricing import PARAMETERS, RULES
from cascade_sim.live.session import Session, Variant
from cascade_sim.scenario.overrides import overrides_of
from cascade_sim.scenario.schema import ArmOverrides
from cascade_sim.scenario.serving_parameters import ParamPath, arm_parameters, scenario_path

LABELS: dict[ParamPath, str] = {
    ("auction", "reserve_cpc"): "Reserve, per click",
    ("auction", "score_floor"): "Score floor",
    ("auction", "squashing"): "Squashing",
    ("auction", "pricing"): "Pricing",
    **{("auction", name): name.replace("_", " ").capitalize() for name in PARAMETERS},
    ("auction", "charging"): "Charged per",
    ("slots",): "Slots",
    ("retrieval", "model"): "Retriever",
    ("retrieval", "bid_weight"): "Weight of the bid in retrieval",
    ("retrieval", "size"): "Retrieved ads",
    ("pre_ranking", "size"): "Ads that reach ranking",
    ("pre_ranking", "model"): "Pre-ranker",
    ("pre_ranking", "bid"): "Pre-ranking bid",
    ("pre_ranking", "fusion"): "Pre-ranking fusion",
    ("pre_ranking", "pcvr"): "Pre-ranking pCVR",
    ("ranking", "model"): "Ranker",
    ("ranking", "bid"): "Ranking bid",
    ("ranking", "fusion"): "Ranking fusion",
    ("bidding", "rule"): "Bid rule",
    ("bidding", "range"): "Bid range",
    ("bidding", "pcvr"): "pCVR of opt-bids",
}
# The same of an earlier step of pre-ranking, which has a name.
STEP_LABELS = {
    "size": "Ads that leave {}",
    "model": "Model of {}",
    "bid": "Bid of {}",
    "fusion": "Fusion of {}",
    "pcvr": "pCVR of {}",
}
GROUPS = {"auction": "Auction", "slots": "Auction", "bidding": "Bids"}
STEPS = 200  # of a slider over an amount of money
CURVE = 13  # values of a curve


def parameters_of(session: Session, arm: str) -> list[dict[str, Any]]:
    """The controls for an arm in the order of LABELS: path, label, group, current value, ends or choices."""
    session.arm(Variant(arm))
    now = overrides_of(session.specs[arm])
    spec = session.specs[arm]
    steps, routes = tuple(spec.pre_ranking.earlier), spec.retrieval.routes
    known = set(arm_parameters(steps, routes))
    quotas: dict[ParamPath, str] = {
        ("retrieval", "routes", name, "size"): f"Ads of {name}" for name in routes
    }
    found = []
    for parameter, label in {**labels_of(steps), **quotas}.items():
        if parameter not in known:
            continue
        value: Any = now
        for step in parameter:
            value = value.get(step) if isinstance(value, dict) else None
        about = _about(session, arm, parameter, value)
        if about is not None:
            group = GROUPS.get(parameter[0], "Stages")
            found.append(
                {"path": scenario_path(parameter), "label": label, "group": group, "current": value, **about}
            )
    return found


def labels_of(steps: Sequence[str]) -> dict[ParamPath, str]:
    """What the parameters of an arm are called, in the order of its stages; `steps` are earlier ones."""
    labels: dict[ParamPath, str] = {}
    for parameter, label in LABELS.items():
        if parameter == ("pre_ranking", "size"):
            for step in steps:
                for key, words in STEP_LABELS.items():
                    labels["pre_ranking", "earlier", step, key] = words.format(step.replace("_", "-"))
        labels[parameter] = label
    return labels


def _size_range(session: Session, arm: str, step: str) -> dict[str, Any] | None:
    """How many ads a step of pre-ranking may hand on: what the next one hands on, to what it is handed."""
    spec = session.specs[arm]
    names = [name for name, _ in spec.steps]
    sizes, at = [spec.retrieval_size, *(own.size for _, own in spec.steps)], names.index(step)
    if step in spec.size_rules:
        return None  # a rule chooses it
    return _number(spec.slots + 1 if at == len(names) - 1 else sizes[at + 2], sizes[at], 1)


def _about(session: Session, arm: str, parameter: ParamPath, value: Any) -> dict[str, Any] | None:
    """What kind of control a parameter has; None for none."""
    spec = session.specs[arm]
    if parameter == ("auction", "reserve_cpc"):
        return _money(session, "bid", value)
    if parameter == ("auction", "score_floor"):
        return _money(session, "score", value)
    if parameter[0] == "auction" and parameter[1] in PARAMETERS:
        high, rules = PARAMETERS[parameter[1]].high, [r for r in RULES if parameter[1] in RULES[r].parameters]
        ends = _number(0.0, high, high / STEPS) if math.isfinite(high) else _money(session, "bid", value)
        return {**ends, "needs": {"path": "auction.pricing", "values": rules}}
    if parameter == ("auction", "squashing"):
        return _number(0.0, 2.0, 0.05)
    if parameter == ("bidding", "range"):
        return _number(0.0, 1.0, 0.05)
    if parameter == ("slots",):
        return _number(1, len(session.sim.world.slot_effects), 1)
    if parameter == ("retrieval", "bid_weight"):
        return None if spec.retrieval.model is None else _number(0.0, 2.0, 0.05)
    if parameter == ("retrieval", "size"):
        if not session.sim.environment.has("corpus"):
            return None  # the log has the candidates that it has
        if spec.retrieval.routes:
            return None  # each has its own
        return _number(spec.slots + 1, min(session.sim.world.n_ads, 2 * spec.retrieval_size), 1)
    if parameter[:2] == ("retrieval", "routes"):
        return _number(0, min(session.sim.world.n_ads, 2 * value), 1)
    if parameter[0] == "pre_ranking" and parameter[-1] == "size":
        return _size_range(session, arm, "pre_ranking" if len(parameter) == 2 else parameter[2])
    choices = [choice for choice in _choices(session, parameter) if choice is not None]
    return {"kind": "choice", "choices": choices} if len(choices) > 1 else None


def _retrieving(session: Session) -> list[str]:
    """The models of the run by which some arm retrieves."""
    return list(dict.fromkeys(model for spec in session.specs.values() for model in spec.retrieval.models))


def _choices(session: Session, parameter: ParamPath) -> list[str]:
    scenario = session.scenario
    if parameter == ("auction", "pricing"):
        return list(RULES)
    if parameter == ("retrieval", "model"):
        return _retrieving(session)
    if parameter[-1] == "model":
        return list(dict.fromkeys([*scenario.models, *session.sim.built_in]))
    if parameter[-1] == "fusion":
        return ["ecpm", *scenario.fusions]
    if parameter[-1] == "pcvr":
        learned = {name for spec in session.specs.values() for name in spec.pcvr_models}
        return ["known", *sorted(learned)] if learned else []
    section = next(
        kind
        for kind in get_args(ArmOverrides.model_fields[parameter[0]].annotation)
        if kind is not type(None)
    )
    return list(_literals(section.model_fields[parameter[-1]].annotation))


def _literals(kind: Any) -> Iterator[str]:
    """The words that a type allows, through optional ones."""
    for part in get_args(kind):
        if isinstance(part, str):
            yield part
        else:
            yield from _literals(part)


def _number(low: float, high: float, step: float) -> dict[str, Any]:
    return {"kind": "number", "low": low, "high": max(high, low), "step": step}


def _money(session: Session, what: str, current: Any) -> dict[str, Any]:
    """An amount from 0 to somewhat above the middle of the bids, or scores, of shown ads."""
    high = max(nice_ceiling(_most(session, what)), float(current or 0.0))
    return _number(0.0, high, nice_ceiling(high / STEPS))


def _most(session: Session, what: str) -> float:
    arm = session.arm(Variant(session.baseline))
    block = session.context(session.sample[0]).block
    page = session.sim.serve(block, arm).page
    shown = page.ads >= 0
    values = page.bid if what == "bid" else page.bid * page.quality
    return float(np.quantile(values[shown], 0.5)) if shown.any() else 1.0


def nice_ceiling(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten.

    >>> nice_ceiling(0.013), nice_ceiling(3.0)
    (0.02, 5.0)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    step = next(s for s in (1, 2, 5, 10) if s * power >= value * (1 - 1e-9))
    return float(f"{step * power:.10g}")


def curve_values(parameter: dict[str, Any]) -> list[Any]:
    """The values that a curve over a parameter goes through, the current one among them."""
    if parameter["kind"] == "choice":
        return list(parameter["choices"])
    low, high, step = parameter["low"], parameter["high"], parameter["step"]
    values = {round((low + (high - low) * i / (CURVE - 1)) / step) * step for i in range(CURVE)}
    if isinstance(parameter["current"], int | float):
        values.add(parameter["current"])
    is_whole = isinstance(low, int) and isinstance(step, int)
    return sorted(int(v) if is_whole else float(f"{v:.10g}") for v in values if low <= v <= high)
