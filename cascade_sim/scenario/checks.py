"""What keys of a scenario say about each other. Each check yields the contradictions it finds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from math import pi, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascade_sim.auction.pricing import NO_INCREMENT, RULES, missing, needless
from cascade_sim.foundation.errors import UserError, did_you_mean, unknown_name
from cascade_sim.foundation.limits import LANES
from cascade_sim.models.features import HISTORY, PAIR_FEATURE
from cascade_sim.models.nets import NETS_TEXT
from cascade_sim.models.objectives import OBJECTIVES
from cascade_sim.models.recipes import MAX_CHUNKS, RECIPES, STEPS
from cascade_sim.scenario.log_support import (
    check_logged,
    evidence_conflicts,
    logged_about,
    seat_fault,
    stage_models_of,
)
from cascade_sim.scenario.market import BUILT_IN_PROFILES, DAY, PREFIX, Market, Sizes, find_profile
from cascade_sim.scenario.models import DELAY_KEYS, OBJECTIVE_KEYS, check_objective, check_recipe
from cascade_sim.scenario.plugins import (
    BIDDER_KINDS,
    INNER_PRODUCTS,
    MODEL_KEYS,
    MODEL_KINDS,
    RETRIEVER_KINDS,
    Reference,
    check_reference,
    inner_product_fault,
    references,
    written_faults,
    written_signature,
)
from cascade_sim.scenario.questions import OffPolicy
from cascade_sim.scenario.schema import (
    AUTOMATIC_ARMS,
    BUILT_IN_FEATURES,
    BUILT_IN_SCORERS,
    EMBEDDED_FEATURES,
    KNOWN,
    LOGGED,
    LOGGED_PRE,
    VECTOR_FEATURES,
    ArmOverrides,
    ArmSpec,
    ModelSpec,
    Route,
    Scenario,
    World,
    control_arm,
    resolve_arm,
    retrievals,
)
from cascade_sim.scenario.sections import SIMILARITY, SIMILARITY_KEYS
from cascade_sim.scenario.targets import PARAMETER_KEYS, Target, parse_target
from cascade_sim.scenario.teaching import check_teaching
from cascade_sim.scenario.user_code.signatures import Fault
from cascade_sim.scenario.yaml import KeyPath, Problem

if TYPE_CHECKING:
    from cascade_sim.logs.store.format import About

MIN_HAZARD = sqrt(2.0 / pi)  # of the standard normal at 0, as where tails are drawn (agents.advertisers)
FURTHEST_BELOW = 4.0  # sigmas between squashing and 0: a normal draw falls further once in 32,000


def check_scenario(scenario: Scenario, given: Collection[KeyPath], folder: Path) -> list[Problem]:
    """All contradictions but those in `what_if`, whose questions are checked as arms (changes.check_what_if).

    `given` are the paths the user wrote, `folder` is where the scenario file lies.
    """
    about = logged_about(scenario, folder)
    return [
        *check_logged(scenario, given, folder),
        *(_check_world(scenario) if scenario.world.replay is None else ()),
        *_check_names(scenario),
        *_check_classes(scenario, folder),
        *_check_retrieval(scenario, given),
        *_check_models(scenario, given, folder),
        *check_teaching(scenario),
        *_check_arms(scenario, given, about),
        *_check_market(scenario.market, folder),
        *_check_pools(scenario),
        *_check_training(scenario),
        *_check_off_policy(scenario),
        *_check_designs(scenario),
    ]


def _check_world(scenario: Scenario) -> Iterator[Problem]:
    world = scenario.world
    ads, advertisers = ("world", "ads"), ("world", "advertisers")
    if world.advertisers > world.ads:
        text = f"{world.advertisers} advertisers cannot share {world.ads} ads; use at most {world.ads}"
        yield Problem(advertisers, text, uses=(ads, advertisers))
    for i, (before, effect) in enumerate(
        zip(world.slot_effects, world.slot_effects[1:], strict=False), start=1
    ):
        if effect > before:
            text = f"{effect} is more than {before} in the slot before; slot effects never rise"
            yield Problem(("world", "slot_effects", i), text, uses=(("world", "slot_effects"),))
    for name in world.groups:
        if name in BUILT_IN_FEATURES:
            yield Problem(
                ("world", "groups", name), f"'{name}' is a built-in feature; give the group another name"
            )
    groups = ("world", "groups")
    group = world.conversion.anti_correlated_group
    if group is not None and group not in world.groups:
        text = unknown_name("group", group, world.groups) + " (or null for none)"
        yield Problem(("world", "conversion", "anti_correlated_group"), text, uses=(groups,))
    delay = world.conversion.delay
    if delay is not None:
        at: KeyPath = ("world", "conversion", "delay")
        if len(delay.means) != len(delay.weights):
            text = f"{len(delay.weights)} weights for {len(delay.means)} means; give one for each"
            yield Problem((*at, "weights"), text, uses=((*at, "weights"), (*at, "means")))
        elif abs(sum(delay.weights) - 1) >= 1e-9:
            text = f"must sum to 1, found {sum(delay.weights):g}"
            yield Problem((*at, "weights"), text, uses=((*at, "weights"),))
    fault = tail_fault(world.bids.tail, world.bids.sigma)
    if fault:
        yield Problem(("world", "bids", "tail"), fault, uses=(("world", "bids", "sigma"),))
    yield from _check_hidden(world)


def _check_hidden(world: World) -> Iterator[Problem]:
    """What is wrong with the parts of the truth that no feature shows."""
    groups = ("world", "groups")
    if world.intent is not None and world.intent.group is not None:
        at, group, dims = ("world", "intent"), world.intent.group, world.intent.dims
        if group not in world.groups:
            text = unknown_name("group", group, world.groups) + " (or null for vectors that no model sees)"
            yield Problem((*at, "group"), text, uses=(groups,))
        elif dims is not None and dims != world.groups[group].dims:
            text = f"{dims} is not the length of {group}'s vectors, {world.groups[group].dims}; remove dims"
            yield Problem((*at, "dims"), text, uses=((*at, "group"), groups))
    for name in world.seasonality.groups if world.seasonality is not None else ():
        if name not in world.groups:
            text = unknown_name("group", name, world.groups)
            yield Problem(("world", "seasonality", "groups", name), text, uses=(groups,))


def tail_fault(tail: float | None, sigma: float) -> str:
    """Why a log-normal law of this sigma cannot have this Pareto tail; empty if it can."""
    if tail is None or tail * sigma >= MIN_HAZARD:
        return ""
    if sigma == 0:
        return "a law without spread has no tail; raise sigma, or remove tail"
    least = MIN_HAZARD / sigma
    return (
        f"a tail of {tail:g} would begin below the median of a sigma of {sigma:g}; use at least {least:.3g}"
    )


def _check_names(scenario: Scenario) -> Iterator[Problem]:
    reserved = {
        "models": (
            (*BUILT_IN_SCORERS, KNOWN, LOGGED, LOGGED_PRE),
            "is built in; give the model another name",
        ),
        "arms": (AUTOMATIC_ARMS, "is the name of an automatic arm; give this one another name"),
        "fusions": (("ecpm",), "is the built-in fusion; give this one another name"),
    }
    named: dict[str, Mapping[str, object]] = {
        "models": scenario.models,
        "arms": scenario.arms,
        "fusions": scenario.fusions,
    }
    for section, (names, text) in reserved.items():
        for name in named[section]:
            if name in names:
                yield Problem((section, name), f"'{name}' {text}")
    baseline = scenario.report.baseline
    if baseline not in scenario.arms:
        path = ("report", "baseline")
        yield Problem(path, unknown_name("arm", baseline, scenario.arms), uses=(path,))
    elif resolve_arm(scenario, scenario.arms[baseline]).sizes is not None:
        # Other arms are the baseline with other stage models, for which its rule was not learned.
        path = ("report", "baseline")
        text = f"'{baseline}' has sizes by request; name an arm of one size"
        yield Problem(path, text, uses=(path, ("arms", baseline, "pre_ranking", "sizes")))


def _check_retrieval(scenario: Scenario, given: Collection[KeyPath]) -> Iterator[Problem]:
    """What is wrong with retrievers and how they are merged; their sizes are seen to with the arms."""
    for at, retrieval in retrievals(scenario):
        for key in Route.model_fields if retrieval.routes else ():
            if (*at, key) in given:
                text = f"means nothing beside routes, each of which has its own {key}; set routes.NAME.{key}"
                text += f" (together {retrieval.total})" if key == "size" else ""
                yield Problem((*at, key), text, uses=((*at, key), (*at, "routes")))
        for place, route in retrieval.parts.items():
            yield from _check_route(scenario, given, (*at, *place), route)
    for name, arm in scenario.arms.items():
        known = scenario.cascade.retrieval.routes
        for called, own in ((arm.retrieval and arm.retrieval.routes) or {}).items():
            if known and called not in known and own.kind is None and own.model is None:
                text = unknown_name("route of cascade.retrieval", called, known)
                path: KeyPath = ("arms", name, "retrieval", "routes", called)
                yield Problem(path, f"{text} (a further one needs a kind or a model)", uses=(path,))


def _check_learned_route(
    scenario: Scenario, given: Collection[KeyPath], at: KeyPath, model: str
) -> Iterator[Problem]:
    """What is wrong with a retriever that searches by a model."""
    where = (*at, "model")
    for key in ("kind", "options", "group", "overlap"):
        if (*at, key) in given:
            text = f"means nothing beside model, by which the corpus is searched; remove {key} or model"
            yield Problem((*at, key), text, uses=((*at, key), where))
    if model not in scenario.models:
        yield Problem(where, unknown_name("model", model, scenario.models), uses=(("models",), where))
        return
    spec, section = scenario.models[model], ("models", model)
    if spec.kind in MODEL_KINDS.built_in and spec.kind not in INNER_PRODUCTS:
        text = f"'{model}' is of kind {spec.kind}, which has no inner product to search the corpus by; "
        text += (
            f"use a model of kind {' or '.join(INNER_PRODUCTS)}, or a class with encode_users and encode_ads"
        )
        yield Problem(where, text, uses=(where, (*section, "kind")))
    if PAIR_FEATURE in spec.features:
        text = f"'{model}' sees {PAIR_FEATURE}, a feature of user and ad together, and no inner product has "
        text += "it; remove it from the features"
        yield Problem(where, text, uses=(where, (*section, "features")))
    if spec.target != "click":
        text = f"'{model}' predicts conversions; retrieval needs a model of clicks"
        yield Problem(where, text, uses=(where, (*section, "target")))


def _check_route(
    scenario: Scenario, given: Collection[KeyPath], at: KeyPath, route: Route
) -> Iterator[Problem]:
    groups, kind = scenario.world.groups, (*at, "kind")
    if route.model is not None:
        yield from _check_learned_route(scenario, given, at, route.model)
        return
    if (*at, "bid_weight") in given:
        text = "is for a retriever that is a model; name it by model, or remove this"
        yield Problem((*at, "bid_weight"), text, uses=((*at, "bid_weight"),))
    for key in SIMILARITY_KEYS if route.kind != SIMILARITY else ():
        if (*at, key) in given:
            text = f"is for kind {SIMILARITY}; remove it, or write it under options for {route.kind}"
            yield Problem((*at, key), text, uses=((*at, key), kind))
    if route.kind == SIMILARITY and scenario.world.has("corpus") and route.group not in groups:
        uses = (("world", "groups"), kind)
        yield Problem((*at, "group"), unknown_name("group", route.group, groups), uses=uses)


def _check_models(scenario: Scenario, given: Collection[KeyPath], folder: Path) -> Iterator[Problem]:
    for name, spec in scenario.models.items():
        at = ("models", name)
        if spec.kind == "coaction" and spec.hidden % LANES:
            below, above = spec.hidden // LANES * LANES or LANES, (spec.hidden // LANES + 1) * LANES
            nearest = f"{below} or {above}" if below != above else str(above)
            text = f"{spec.hidden} is not a multiple of {LANES}, as kind coaction needs; use {nearest}"
            yield Problem((*at, "hidden"), text, uses=((*at, "hidden"), (*at, "kind")))
        yield from _check_features(scenario, at, spec)
        yield from _check_ids(scenario, given, at, spec)
        for recipe_key in dict.fromkeys(key for recipe in RECIPES.values() for key in recipe.read):
            fits = [name for name, recipe in RECIPES.items() if recipe_key in recipe.read]
            path = (*at, recipe_key)
            if path in given and recipe_key not in spec.trained_by.read:
                text = f"has no meaning for recipe {spec.recipe} (only for {' and '.join(fits)}); remove it"
                if recipe_key in STEPS:
                    text = f"its joint section says how it is trained; set joint.NAME.{recipe_key}"
                yield Problem(path, text, uses=((*at, "recipe"),))
        yield from check_recipe(spec, given, at)
        fault = inner_product_fault(spec.kind, folder) if spec.trained_by.crosses else ""
        if fault:
            uses = ((*at, "kind"), (*at, "recipe"))
            yield Problem((*at, "kind"), f"recipe {spec.recipe} {fault}", uses=uses)
        yield from check_objective(spec, given, at)
        yield from _check_target(scenario, given, at, spec)
        yield from _check_proxied(scenario, at, spec)
        if OBJECTIVES[spec.objective].n_heads > 1 and spec.kind in MODEL_KINDS.registered:
            text = f"{spec.objective} trains two heads, which only the kinds {NETS_TEXT} have"
            yield Problem((*at, "objective"), text, uses=((*at, "objective"), (*at, "kind")))
        if "data" in spec.trained_by.keys:
            yield from _check_data(scenario, at, spec)
        if "teacher" in spec.trained_by.keys:
            yield from _check_student(scenario, at, spec)


def _check_proxied(scenario: Scenario, at: KeyPath, spec: ModelSpec) -> Iterator[Problem]:
    """A model held to the ranker needs shadowed requests, and cannot be the ranker or teach as it does."""
    if spec.proxy_calibrator is None:
        return
    own, shadow = (*at, "proxy_calibrator"), ("phases", "shadow")
    if scenario.phases.shadow == 0:
        text = "0 leaves the proxy calibrator of model '{}' nothing to learn from; use at least 1"
        yield Problem(shadow, text.format(at[-1]), uses=(shadow, own))
    rankers = [scenario.cascade.ranking.model]
    rankers += [arm.ranking.model for arm in scenario.arms.values() if arm.ranking and arm.ranking.model]
    if at[-1] in rankers:
        text = "the model ranks, and a proxy calibrator holds pre-ranking to the ranker; remove it"
        yield Problem(own, text, uses=(own, ("cascade", "ranking", "model")))
    baseline = scenario.arms.get(scenario.report.baseline)
    if spec.teacher is None and baseline is not None:
        ranker = resolve_arm(scenario, baseline).ranking.model
        known = scenario.models.get(ranker)
        if known is None or not known.trained_by.has_objective:
            text = f"the baseline arm ranks by '{ranker}', which is no logloss model to be held to"
            yield Problem(own, text, uses=(own, ("report", "baseline"), ("cascade", "ranking", "model")))
    for name, other in scenario.models.items():
        if other.teacher == at[-1]:
            text = f"'{name}' learns from this model before its proxy calibrator is fitted; remove it"
            yield Problem(own, text, uses=(own, ("models", name, "teacher")))


def _check_features(scenario: Scenario, at: KeyPath, spec: ModelSpec) -> Iterator[Problem]:
    known = (*BUILT_IN_FEATURES, *scenario.world.groups)
    path: KeyPath = (*at, "features")
    for i, feature in enumerate(spec.features):
        if feature == "bid":
            text = "a model may not see the bid: a higher bid could hurt an ad; use the keys bid and fusion"
            yield Problem((*path, i), text)
        elif feature not in known:
            yield Problem(
                (*path, i), unknown_name("feature", feature, known), uses=(path, ("world", "groups"))
            )
        elif feature in spec.features[:i]:
            yield Problem((*path, i), f"'{feature}' is listed twice; remove one", uses=(path,))


def _check_target(
    scenario: Scenario, given: Collection[KeyPath], at: KeyPath, spec: ModelSpec
) -> Iterator[Problem]:
    """What is wrong with what a model predicts, and with how it treats conversions that come late."""
    target, recipe, correction = (*at, "target"), (*at, "recipe"), (*at, "delay_correction")
    if spec.target == "conversion":
        if not spec.trained_by.gives_probabilities:
            text = f"recipe {spec.recipe} learns the order of the fused score, which has no target; remove it"
            yield Problem(target, text, uses=(target, recipe))
        if spec.trained_by.has_objective:
            for key in OBJECTIVE_KEYS:
                if (*at, key) in given and getattr(spec, key) != type(spec).model_fields[key].default:
                    text = "is for models of clicks: single clicks are learned from by log loss; remove it"
                    yield Problem((*at, key), text, uses=((*at, key), target))
    delay, window = scenario.world.conversion.delay, (*at, "delay_window")
    for key in DELAY_KEYS:
        why = ""
        if spec.target != "conversion" or spec.trained_by.has_teacher:
            why = "is for logloss models with target conversion; remove it"
        elif delay is None:
            why = "conversions come at once in this world; add world.conversion.delay, or remove it"
        if why and getattr(spec, key) != type(spec).model_fields[key].default:
            yield Problem((*at, key), why, uses=((*at, key), target, ("world", "conversion", "delay")))
            return
    if spec.delay_correction == "none":
        if spec.delay_window is not None:
            text = "has no meaning without a delay_correction; use wait or elapsed, or remove it"
            yield Problem(window, text, uses=(window, correction))
        return
    if spec.delay_window is None:
        text = f"'{spec.delay_correction}' needs a delay_window, in seconds; add one"
        yield Problem(correction, text, uses=(correction, window))
        return
    lasts = sum(getattr(scenario.phases, phase) for phase in ("cold_start", "log"))
    lasts = lasts / scenario.traffic.requests_per_second
    if spec.delay_window >= lasts:
        text = (
            f"{spec.delay_window:g} s, but cold_start and log last about {lasts:.0f} s: no click is so old; "
            "use less, or more requests at a lower traffic.requests_per_second"
        )
        yield Problem(window, text, uses=(window, ("phases", "log"), ("traffic", "requests_per_second")))


def _check_ids(
    scenario: Scenario, given: Collection[KeyPath], at: KeyPath, spec: ModelSpec
) -> Iterator[Problem]:
    """What is wrong with the features that a model has embedding tables for."""
    path, key = (*at, "features"), (*at, "embedding")
    if key in given and not set(EMBEDDED_FEATURES) & set(spec.features):
        text = (
            f"has no meaning without {', '.join(EMBEDDED_FEATURES)} among the features; remove it, or add one"
        )
        yield Problem(key, text, uses=(path,))
    if HISTORY not in spec.features:
        return
    place = (*path, spec.features.index(HISTORY))
    if scenario.world.history is None:
        text = "the users of this world have no history; add world.history, or remove it"
        yield Problem(place, text, uses=(path, ("world", "history")))
        return
    groups = scenario.world.groups
    if not {"ad_id", "advertiser_id", "quality", "tier", *VECTOR_FEATURES, *groups} & set(spec.features):
        text = "a history is the mean of its ads as the model sees them, and it sees no ads; add ad_id"
        yield Problem(place, text, uses=(path,))


def _check_data(scenario: Scenario, at: KeyPath, spec: ModelSpec) -> Iterator[Problem]:
    path: KeyPath = (*at, "data")
    phases = scenario.phases
    for i, phase in enumerate(spec.data):
        if phase in spec.data[:i]:
            yield Problem((*path, i), f"'{phase}' is listed twice; remove one", uses=(path,))
    if not any(getattr(phases, phase) for phase in spec.data):
        keys = " or ".join(f"phases.{phase}" for phase in spec.data)
        text = f"no requests in {' and '.join(spec.data)}; set {keys} above 0"
        yield Problem(path, text, uses=(path, ("phases", "cold_start"), ("phases", "log")))
    is_chosen = phases.exploration < 1 and phases.log > 0 and "log" in spec.data
    if spec.recipe_values.get("positives") == "shown" and not is_chosen:
        text = "every page of these phases is random, so nothing was shown by choice; use log, or clicks"
        yield Problem(path, text, uses=(path, (*at, "recipe_options"), ("phases", "exploration")))


def _check_student(scenario: Scenario, at: KeyPath, spec: ModelSpec) -> Iterator[Problem]:
    path, recipe = (*at, "teacher"), (*at, "recipe")
    follows = spec.trained_by.follows  # then any model may be the teacher
    teachers = [n for n, s in scenario.models.items() if s.trained_by.has_objective or follows]
    known = ", ".join(teachers) or "none; add a model with recipe logloss"
    teacher = scenario.models.get(spec.teacher) if spec.teacher is not None else None
    if spec.teacher is None:
        text = f"missing; recipe {spec.recipe} learns from a logloss model. Known: {known}"
        yield Problem(path, text, uses=(path, recipe))
    elif spec.teacher == at[-1]:
        yield Problem(path, f"a model cannot be its own teacher; use one of: {known}", uses=(path, recipe))
    elif teacher is None:
        yield Problem(path, unknown_name("model", spec.teacher, teachers), uses=(path, recipe))
    elif spec.teacher not in teachers:
        text = f"'{spec.teacher}' is itself a student (recipe {teacher.recipe}); use one of: {known}"
        if not teacher.trained_by.has_teacher:
            text = f"'{spec.teacher}' learns by {teacher.recipe}, which gives no pCTR; use one of: {known}"
        yield Problem(path, text, uses=(path, recipe, ("models", spec.teacher, "recipe")))
    elif teacher.target != spec.target and spec.trained_by.gives_probabilities:
        text = f"'{spec.teacher}' predicts a {teacher.target} and this model a {spec.target}; make them agree"
        yield Problem(path, text, uses=(path, (*at, "target"), ("models", spec.teacher, "target")))
    elif teacher.target != "click" and not spec.trained_by.gives_probabilities:
        text = f"'{spec.teacher}' predicts conversions; {spec.recipe} needs a ranker, a model of clicks"
        yield Problem(path, text, uses=(path, recipe, ("models", spec.teacher, "target")))
    if scenario.phases.shadow == 0:
        text = f"0 leaves model '{at[-1]}' (recipe {spec.recipe}) nothing to learn from; use at least 1"
        yield Problem(("phases", "shadow"), text, uses=(("phases", "shadow"), recipe))
    if "chunks" in spec.trained_by.keys and spec.chunks > spec.sample.per_request:
        drawn: KeyPath = (*at, "sample", "per_request")
        text = f"{spec.chunks} chunks need as many ads; sample.per_request is {spec.sample.per_request}"
        yield Problem((*at, "chunks"), text, uses=((*at, "chunks"), drawn, recipe))
    if "chunking" in spec.trained_by.keys:
        yield from _check_chunking(scenario, at, spec)


def _check_chunking(scenario: Scenario, at: KeyPath, spec: ModelSpec) -> Iterator[Problem]:
    """Whether lists can be cut so: halving runs out of ads before it runs out of numbers, others do not."""
    chunks, chunking, drawn = (*at, "chunks"), (*at, "chunking"), (*at, "sample", "per_request")
    if spec.chunking != "halving" and spec.chunks >= MAX_CHUNKS:
        text = f"{spec.chunks} chunks by {spec.chunking} are too many; use at most {MAX_CHUNKS - 1}"
        yield Problem(chunks, text, uses=(chunks, chunking))
    slots, per_request = scenario.cascade.slots, spec.sample.per_request
    if spec.chunking == "exposed" and per_request < slots + spec.chunks - 1:
        text = (
            f"{per_request} ads of a request leave, beside the {slots} that are shown, too few for "
            f"{spec.chunks - 1} chunks of the rest; use at least {slots + spec.chunks - 1}"
        )
        yield Problem(drawn, text, uses=(drawn, chunking, chunks, ("cascade", "slots")))


# A conflict can be blamed on any of several keys; the first of them that the user wrote is named.
Blame = list[tuple[KeyPath, str]]


def _check_arms(
    scenario: Scenario, given: Collection[KeyPath], about: About | None = None
) -> Iterator[Problem]:
    """Conflicts in the deployed cascade once, and in each arm those that the arm itself brings about."""
    if scenario.world.replay is not None and about is None:
        return  # what an arm may ask of a log depends on the log, which is not there
    deployed = resolve_arm(scenario, ArmOverrides())
    for blame in _conflicts(scenario, deployed, about):
        keys = [(_deployed_path(key), text) for key, text in blame]
        key, text = next((k for k in keys if k[0] in given), keys[0])
        default = "" if key in given else " (the default)"
        yield Problem(key, text + default, uses=tuple(k for k, _ in keys))
    for name, overrides in scenario.arms.items():
        known, pre_ranking = scenario.cascade.pre_ranking.earlier, overrides.pre_ranking
        earlier = (pre_ranking.earlier if pre_ranking is not None else None) or {}
        for step, given_step in (("pre_ranking", pre_ranking), *earlier.items()):
            if given_step is not None and given_step.size is not None and given_step.sizes is not None:
                text = "means nothing beside sizes, which choose for each request; remove one of them"
                at: KeyPath = ("arms", name, *_stage_key(step))
                yield Problem((*at, "size"), text, uses=((*at, "size"), (*at, "sizes")))
        for step in earlier:
            if step not in known:
                path: KeyPath = ("arms", name, "pre_ranking", "earlier", step)
                yield Problem(path, unknown_name("step of cascade.pre_ranking", step, known), uses=(path,))
        for blame in _conflicts(scenario, resolve_arm(scenario, overrides), about):
            keys = [(("arms", name, *key), text) for key, text in blame]
            own = [k for k in keys if k[0] in given]
            if own:
                uses = tuple(k for k, _ in keys) + tuple(_deployed_path(k) for k, _ in blame)
                yield Problem(*own[0], uses=uses)


def _deployed_path(key: KeyPath) -> KeyPath:
    return key if key[0] in ("auction", "bidding", "world") else ("cascade", *key)


# What a step of pre-ranking cannot be called: names of stages, of sets, and of all steps at once.
_SETS = ("competitive", "win", "corpus", "retrieved")
TAKEN = ("retrieval", "pre_ranking", "ranking", "auction", "cascade", *_SETS, "all", "none")


def _size_conflicts(arm: ArmSpec, is_logged: bool = False) -> Iterator[Blame]:
    """Sizes of the competitive set against slots, retrieval and each other."""
    slots, retrieved, sizes = arm.slots, arm.retrieval_size, arm.sizes
    key: KeyPath = ("pre_ranking", "size" if sizes is None else "sizes")
    least = most = arm.pre_ranking.size
    if sizes is not None:
        yield from _rule_conflicts(key, sizes)
        key = (*key, "choices")
        least, most = min(sizes.choices), max(sizes.choices)
    if least <= slots and not (is_logged and least == retrieved):  # a small auction is what it was
        text = f"{least} leaves no runner-up to price the last of {slots} slots; use at least {slots + 1}"
        other = f"{slots} slots leave no runner-up among {least} pre-ranked ads; use at most {least - 1}"
        yield [(key, text), (("slots",), other)]
    for name, step in arm.pre_ranking.earlier.items():
        own: KeyPath = ("pre_ranking", "earlier", name)
        if name in TAKEN:
            yield [(own, f"{name!r} is the name of a stage or a set already; call the step otherwise")]
        rule = arm.earlier_sizes.get(name)
        if rule is not None:
            yield from _rule_conflicts((*own, "sizes"), rule)
        for size in (step.size,) if rule is None else rule.choices:
            if not most <= size <= retrieved:
                text = f"{size} is not between the {most} of later steps and the {retrieved} it is handed"
                yield [((*own, "size") if rule is None else (*own, "sizes", "choices"), text)]
        retrieved = min(retrieved, step.size)
    if most > retrieved:
        text = f"{most} is more than the {retrieved} retrieved ads; use at most {retrieved}"
        other = f"{retrieved} retrieved ads cannot fill a competitive set of {most}; use at least {most}"
        yield [(key, text), *_sizes_of_retrieval(arm, other)]


def _sizes_of_retrieval(arm: ArmSpec, text: str) -> Blame:
    """The keys that say how many ads are retrieved: one, or a quota of each route."""
    together = f"{text} (all routes together)" if arm.retrieval.routes else text
    return [(("retrieval", *place, "size"), together) for place in arm.retrieval.parts]


def _rule_conflicts(at: KeyPath, sizes: Sizes) -> Iterator[Blame]:
    """What is wrong with the sizes that a rule chooses from, by themselves."""
    choices: KeyPath = (*at, "choices")
    least, most = min(sizes.choices), max(sizes.choices)
    if any(a >= b for a, b in pairwise(sizes.choices)):
        yield [(choices, f"sizes must rise from one to the next, found {list(sizes.choices)}")]
    if not least <= sizes.mean <= most:
        text = f"{sizes.mean:g} is not a mean of the choices; use {least} to {most}"
        yield [((*at, "mean"), text), (choices, text)]


def _conflicts(scenario: Scenario, arm: ArmSpec, about: About | None = None) -> Iterator[Blame]:
    """Every conflict in one resolved arm, with the keys (as an arm writes them) that could be changed."""
    yield from _size_conflicts(arm, about is not None)
    if about is None:
        yield from _world_conflicts(scenario, arm)
    else:
        yield from evidence_conflicts(scenario, arm, about)
    yield from _auction_conflicts(scenario, arm)
    if arm.pre_ranking.earlier and about is not None:
        yield [(("pre_ranking", "earlier"), "a log has one step of pre-ranking; remove the earlier ones")]
    seats = stage_models_of(scenario, about)
    ranker = scenario.models.get(arm.ranking.model)
    is_order = ranker is not None and not ranker.trained_by.gives_probabilities
    is_priced = arm.auction.charging == "click" and (about is None or about.level != "winners")
    if (arm.ranking.model in ("random", "constant") or is_order) and is_priced:
        name = arm.ranking.model
        text = f"'{name}' predicts no probability, which prices need; use a logloss or distill model"
        if about is not None:
            text = (
                f"'{name}' predicts no probability, which prices per click need; log the ranker's pCTR (pctr)"
            )
        yield [(("ranking", "model"), text)]
    for name, seat in arm.sections:
        stage = _stage_key(name)
        models, fusions = (*scenario.models, *seats), ("ecpm", *scenario.fusions)
        if seat.model not in models:
            fault = (
                unknown_name("model", seat.model, models)
                if about is None
                else seat_fault(name, seat.model, about, models)
            )
            yield [((*stage, "model"), fault)]
        elif seat.model in scenario.models and scenario.models[seat.model].target != "click":
            text = f"'{seat.model}' predicts conversions; a stage needs a model of clicks (see bidding.pcvr)"
            yield [((*stage, "model"), text)]
        if seat.fusion not in fusions:
            yield [((*stage, "fusion"), unknown_name("fusion", seat.fusion, fusions))]
    yield from _pcvr_conflicts(scenario, arm)


def _stage_key(name: str) -> KeyPath:
    """The section of a scoring stage, as an arm writes it."""
    return (name,) if name in ("pre_ranking", "ranking") else ("pre_ranking", "earlier", name)


def _world_conflicts(scenario: Scenario, arm: ArmSpec) -> Iterator[Blame]:
    """What an arm asks of a synthetic world that is not in it."""
    slots, retrieved = arm.slots, arm.retrieval_size
    ads, effects = scenario.world.ads, len(scenario.world.slot_effects)
    slots_key = ("slots",)
    if arm.auction.logged_reserves:
        yield [(("auction", "logged_reserves"), "is for a replayed log (world.replay); set reserve_cpc")]
    if retrieved > ads:
        yield [
            *_sizes_of_retrieval(
                arm, f"{retrieved} is more than the {ads} ads of the world; use at most {ads}"
            ),
            (
                ("world", "ads"),
                f"{ads} ads are fewer than the {retrieved} to retrieve; use at least {retrieved}",
            ),
        ]
    churn = scenario.world.churn
    if churn is not None and churn.available_share * ads < retrieved <= ads:
        there, share = int(churn.available_share * ads), ("world", "churn", "available_share")
        text = f"{retrieved} is more than the {there} ads that are there at a time; use at most {there}"
        few = f"{there} ads at a time are fewer than the {retrieved} to retrieve; use {retrieved / ads:.3g}"
        yield [*_sizes_of_retrieval(arm, text), (share, few)]
    if slots > effects:
        text = (
            f"{slots} slots but {effects} slot effects; use at most {effects}, or lengthen world.slot_effects"
        )
        short = f"{effects} slot effects for {slots} slots; give at least {slots}"
        yield [(slots_key, text), (("world", "slot_effects"), short)]


def _auction_conflicts(scenario: Scenario, arm: ArmSpec) -> Iterator[Blame]:
    """What is wrong with the pricing rule and its parameters."""
    pricing, squashing = arm.auction.pricing, arm.auction.squashing
    if RULES[pricing].needs_squashing_1 and squashing != 1:
        text = f"{pricing} needs squashing 1, found {squashing:g}; use 1, or pricing gsp"
        yield [(("auction", "squashing"), text), (("auction", "pricing"), text)]
    for name, text in needless(pricing, arm.auction.parameters):
        yield [(("auction", name), text)]
    for name, text in missing(pricing, arm.auction.parameters):
        text = f"{text}; add auction.{name}"
        yield [(("auction", "pricing"), text), (("auction", name), text)]
    unit, micros = arm.auction.rounding, round(arm.auction.rounding * 1e6)
    if unit and (micros < 1 or abs(unit * 1e6 - micros) > 1e-6 * micros):
        yield [(("auction", "rounding"), f"{unit:g} is not of whole micro-units; use 0.000001 or more")]
    if not unit and arm.auction.rounding_how != "nearest":
        text = "prices are not rounded; add auction.rounding, such as 0.01"
        yield [(("auction", "rounding_how"), text), (("auction", "rounding"), text)]
    if arm.auction.increment and pricing in NO_INCREMENT:
        text = f"pricing {pricing} does not look at the next score; use increment 0, or gsp or soft_floor"
        yield [(("auction", "increment"), text), (("auction", "pricing"), text)]
    if arm.auction.charging != "click":
        for section in ("market", "off_policy"):
            if getattr(scenario, section) is not None:
                text = f"{section} charges clicks; use charging: click, or remove {section}"
                yield [(("auction", "charging"), text)]


def _pcvr_conflicts(scenario: Scenario, arm: ArmSpec) -> Iterator[Blame]:
    """What is wrong with whose pCVR the opt-bids of an arm come from."""
    rates = (KNOWN, *(name for name, spec in scenario.models.items() if spec.target == "conversion"))
    steps = [((*_stage_key(name), "pcvr"), step) for name, step in arm.steps]
    named = [(("bidding", "pcvr"), arm.bidding.pcvr), *((key, step.pcvr) for key, step in steps)]
    for key, name in named:
        if name is None or name in rates:
            continue
        if name in scenario.models:
            text = f"'{name}' predicts clicks; use a model with target conversion, or {KNOWN}"
        else:
            text = unknown_name("model of conversions", name, rates)
        yield [(key, text)]
    for key, step in steps:
        if step.pcvr is None:
            continue
        fusion = scenario.fusions.get(step.fusion)
        if step.bid != "opt" and (fusion is None or fusion.pcvr == 0):
            text = f"means nothing with bid {step.bid}, which has no pCVR; use bid: opt, or remove it"
            yield [(key, text)]
        if step.bid == "opt" and arm.bidding.rule == "none":
            text = "means nothing with bidding.rule none, by which an opt-bid is the init-bid; remove it"
            yield [(key, text), (("bidding", "rule"), text)]


def _check_market(market: Market | None, folder: Path) -> Iterator[Problem]:
    """What is wrong with the users and the traffic profile of a market."""
    if market is None:
        return
    fault = market.budgets and tail_fault(market.budgets.tail, market.budgets.sigma)
    if fault:
        yield Problem(("market", "budgets", "tail"), fault, uses=(("market", "budgets", "sigma"),))
    users = market.users
    if market.training is not None and users.click_model != "position":
        yield Problem(
            ("market", "training"),
            f"models learn what slots are examined from the slot effects, which '{users.click_model}' "
            "users do not follow; use click_model: position, or no training",
        )
    if market.profile not in BUILT_IN_PROFILES:
        fault = _profile_fault(market.profile, folder)
        if fault:
            yield Problem(("market", "profile"), fault)


def _check_pools(scenario: Scenario) -> Iterator[Problem]:
    """Pools of servers for stages that the cascade does not have."""
    compute = scenario.market.compute if scenario.market is not None else None
    steps = scenario.cascade.pre_ranking.earlier
    for name in compute.stages.of_steps if compute is not None else ():
        if name not in steps:
            at = ("market", "compute", "stages", name)
            stages = ("retrieval", *steps, "pre_ranking", "ranking")
            uses = (at, ("cascade", "pre_ranking", "earlier"))
            yield Problem(at, unknown_name("stage", name, stages), uses=uses)


def _check_classes(scenario: Scenario, folder: Path) -> Iterator[Problem]:
    """What is wrong with the models, bidders and click models that are named, and with their options."""
    for reference in references(scenario):
        at, kind = reference.section, (*reference.section, reference.key)
        text = check_reference(reference.kind, folder, reference.kinds)
        if text:
            yield Problem(kind, text, uses=(kind,))
            continue
        options: KeyPath = (*at, reference.options_key)
        faults = list(written_faults(reference, folder)) or list(_refused_values(reference))
        for option, text in faults:
            yield Problem(options if option is None else (*options, option), text, uses=(kind,))
        yield from _check_ignored(scenario, reference, folder)


def _refused_values(reference: Reference) -> Iterator[Fault]:
    """Tries the options of a built-in class on the least there is: a study must not find out at its end."""
    kinds, kind, options = reference.kinds, reference.kind, reference.options
    if not options or kind in kinds.keys or kind not in kinds.built_in or kinds is RETRIEVER_KINDS:
        return
    import numpy as np

    from cascade_sim.agents.bidding import Portfolio

    first: Any = np.ones(1)  # the effect of one slot
    if kinds is BIDDER_KINDS:
        first = Portfolio(np.ones(1), np.zeros(1, np.int64), np.full(1, 0.1), np.full(1, 10**6))
    try:
        kinds.built_in[kind](first, **options)
    except (TypeError, ValueError) as error:
        yield None, str(error)


def _check_ignored(scenario: Scenario, reference: Reference, folder: Path) -> Iterator[Problem]:
    """Keys of the built-in nets beside a custom class that has them too, but gets its options alone."""
    if reference.kinds is not MODEL_KINDS or reference.kind in MODEL_KINDS.built_in:
        return
    spec = scenario.models[str(reference.section[-1])]
    signature = written_signature(reference, folder)
    takes = signature.parameters if signature is not None else ()
    for key in MODEL_KEYS:
        value = getattr(spec, key)
        # The default is let through: a resolved scenario spells it out.
        is_set = value != type(spec).model_fields[key].default
        if is_set and key in takes and key not in spec.options:
            text = f"is for the kinds {NETS_TEXT}; write options: {{{key}: {value}}}"
            yield Problem((*reference.section, key), text, uses=((*reference.section, "kind"),))


def _profile_fault(profile: str, folder: Path) -> str:
    file = find_profile(profile, folder)
    if file is None:
        names = (*BUILT_IN_PROFILES, *(path.name for path in folder.glob("*.csv")))
        hint = did_you_mean(profile, names)
        return f"'{profile}' is no file{hint or '; use constant, daily, or a CSV file of 24 or 168 hours'}"
    from cascade_sim.agents.traffic_profiles import hourly

    try:
        hourly(file, 1.0)
    except (ValueError, OSError) as error:
        return str(error)
    return ""


def _check_training(scenario: Scenario) -> Iterator[Problem]:
    """What is wrong with `market.training` and with arms that explore."""
    for name, arm in scenario.arms.items():
        if arm.exploration is not None and scenario.market is None:
            at = ("arms", name, "exploration")
            text = "an arm explores in the market only; add a section market, or use phases.exploration"
            yield Problem(at, text, uses=(at, ("market",)))
    training = scenario.market.training if scenario.market is not None else None
    if training is None:
        for name, model in scenario.models.items():
            if model.refit:
                at = ("models", name, "refit")
                text = "calibrators are fitted anew where models are: add market.training, or remove it"
                yield Problem(at, text, uses=(at, ("market",)))
            if model.logged_scores_from is not None:
                at = ("models", name, "logged_scores_from")
                text = "models choose whose scores to learn beside in market.training: add it, or remove this"
                yield Problem(at, text, uses=(at, ("market",)))
        return
    for name in scenario.models:
        yield from _check_dumper(scenario, name)
    assert scenario.market is not None
    deployments = int(scenario.market.days * DAY // training.interval)
    if training.burn_in is not None and training.burn_in >= max(1, deployments):
        text = f"{training.burn_in} of {deployments} deployments would be left out; at least one must be left"
        yield Problem(("market", "training", "burn_in"), text)
    for name, overrides in scenario.arms.items():
        resolved = resolve_arm(scenario, overrides)
        for seat in resolved.seats:
            if seat in scenario.models and scenario.models[seat].trained_by.in_joint:
                text = f"'{seat}' of arm '{name}' is trained jointly, which markets do not; remove training"
                uses = (("arms", name), ("models", seat, "recipe"))
                yield Problem(("market", "training"), text, uses=uses)
        *steps, ranking = (stage.model for _, stage in resolved.sections)
        if not {*resolved.retrieval.models, *steps, ranking} & set(scenario.models):
            built_in = f"{', '.join(steps)} and {ranking} are built in"
            text = f"arm '{name}' has no model to train ({built_in})"
            yield Problem(("market", "training"), text, uses=(("arms", name),))
        for step_model in dict.fromkeys(steps):
            spec = scenario.models.get(step_model)
            if spec is not None and spec.logged_scores_from is not None and step_model != ranking:
                at = ("models", step_model, "logged_scores_from")
                text = f"'{step_model}' pre-ranks in arm '{name}'; only the ranking model has logged scores"
                yield Problem(at, text, uses=(at, ("arms", name)))


def _check_dumper(scenario: Scenario, name: str) -> Iterator[Problem]:
    """What is wrong with the model whose scores another learns beside."""
    at: KeyPath = ("models", name, "logged_scores_from")
    dumper = scenario.models[name].logged_scores_from
    others = [other for other, spec in scenario.models.items() if _gives_logits(spec) and other != name]
    if dumper is None or dumper in others:
        return
    if dumper == name:
        text = f"a model learns beside its own scores anyway; remove it, or use one of: {', '.join(others)}"
    elif dumper in scenario.models:
        text = f"the scores of '{dumper}' are no log-odds to learn beside; use one of: {', '.join(others)}"
    else:
        text = unknown_name("model", dumper, others)
    yield Problem(at, text, uses=(at,))


def _gives_logits(spec: ModelSpec) -> bool:
    return spec.trained_by.has_objective and OBJECTIVES[spec.objective].gives_logits()


def _check_designs(scenario: Scenario) -> Iterator[Problem]:
    """What is wrong with `market.designs`."""
    market = scenario.market
    spec = market.designs if market is not None else None
    if market is None or spec is None:
        return
    at: KeyPath = ("market", "designs")
    for key, arm in (("treatment", spec.treatment), ("control", spec.control)):
        if arm is not None and arm not in scenario.arms:
            yield Problem((*at, key), unknown_name("arm", arm, scenario.arms), uses=((*at, key),))
    if spec.treatment == control_arm(scenario):
        text = f"'{spec.treatment}' is the control; name another arm"
        yield Problem((*at, "treatment"), text, uses=((*at, "treatment"), (*at, "control")))
    if len(set(spec.kinds)) < len(spec.kinds):
        yield Problem((*at, "kinds"), f"each design runs once, found {', '.join(spec.kinds)}")
    if DAY % spec.switchback:
        text = f"{spec.switchback:g} does not divide a day of {DAY:.0f} seconds; use 3600, 7200, 86400 …"
        yield Problem((*at, "switchback"), text)
    if spec.washout >= spec.switchback:
        text = f"{spec.washout:g} leaves nothing of slots of {spec.switchback:g} seconds; use less"
        yield Problem((*at, "washout"), text, uses=((*at, "washout"), (*at, "switchback")))
    if spec.pre_days >= market.days:
        text = f"{spec.pre_days} leave no day of {market.days:g} for the trial; use fewer"
        yield Problem((*at, "pre_days"), text, uses=((*at, "pre_days"), ("market", "days")))
    for key, section in (("training", market.training), ("compute", market.compute)):
        if section is not None:
            what = "models that learn" if key == "training" else "servers"
            text = f"arms on trial cannot share {what} yet; remove market.{key} or market.designs"
            yield Problem(at, text, uses=(("market", key),))
    for name in scenario.arms:
        if name.startswith(PREFIX):
            text = f"names that begin with '{PREFIX}' belong to the designs; give the arm another name"
            yield Problem(("arms", name), text, uses=(at,))


def _check_off_policy(scenario: Scenario) -> Iterator[Problem]:
    """What is wrong with `off_policy`, seen against the baseline arm."""
    section = scenario.off_policy
    if section is None or scenario.report.baseline not in scenario.arms:
        return
    arm = resolve_arm(scenario, scenario.arms[scenario.report.baseline])
    if section.randomise is None and section.slates is None:
        yield Problem(
            ("off_policy",), "nothing is randomised; add randomise: {reserve_cpc: 0.3} or slates: {}"
        )
    yield from _check_parameters(section, arm)
    yield from _check_slates(section, arm)
    for name, changes in section.targets.items():
        at: KeyPath = ("off_policy", "targets", name)
        try:
            target = parse_target(name, changes, section.estimand)
        except UserError as error:
            yield Problem(at, str(error))
            continue
        fault = target_fault(target, section, arm, scenario)
        if fault:
            yield Problem(at, fault, uses=(("off_policy", "randomise"), ("off_policy", "slates")))


def target_fault(target: Target, section: OffPolicy, arm: ArmSpec, scenario: Scenario) -> str:
    """Why a log of this section cannot answer for a target; empty if it can."""
    sigmas = section.randomise.sigmas if section.randomise is not None else {}
    for parameter in target.parameters:
        if parameter not in sigmas:
            return (
                f"auction.{parameter} was not randomised, so a log cannot tell what changing it does; "
                f"set off_policy.randomise.{parameter}"
            )
    if target.is_slate and section.slates is None:
        return (
            "pages were not randomised, so a log cannot tell what another order does; set off_policy.slates"
        )
    if target.model is not None:
        known = [
            name
            for name, spec in scenario.models.items()
            if spec.trained_by.gives_probabilities and spec.target == "click"
        ]
        if target.model not in known:
            return f"ranking.model: {unknown_name('model', target.model, known)}"
    if target.is_launch:
        return ""  # its own gate says what the noise reached
    if (
        "squashing" in target.parameters
        and target.parameters["squashing"] < FURTHEST_BELOW * sigmas["squashing"]
    ):
        asked, least = target.parameters["squashing"], FURTHEST_BELOW * sigmas["squashing"]
        return f"auction.squashing: {asked:g} is too near 0 for this noise; use {least:g} or more"
    return ""


def _check_parameters(section: OffPolicy, arm: ArmSpec) -> Iterator[Problem]:
    at: KeyPath = ("off_policy", "randomise")
    if section.randomise is None:
        return
    sigmas = section.randomise.sigmas
    if not sigmas:
        yield Problem(
            at, f"names no parameter; give {' or '.join(PARAMETER_KEYS)} a standard deviation", uses=(at,)
        )
    if "reserve_cpc" in sigmas and arm.auction.reserve_cpc == 0:
        text = "a reserve of 0 times any noise is 0; give the baseline arm an auction.reserve_cpc above 0"
        yield Problem((*at, "reserve_cpc"), text, uses=(at, ("auction", "reserve_cpc")))
    if "squashing" in sigmas:
        if RULES[arm.auction.pricing].needs_squashing_1:
            text = (
                f"pricing {arm.auction.pricing} needs squashing 1 on every request; use gsp, "
                "or leave squashing alone"
            )
            yield Problem((*at, "squashing"), text, uses=(at, ("auction", "pricing")))
        if arm.auction.squashing < FURTHEST_BELOW * sigmas["squashing"]:
            most = arm.auction.squashing / FURTHEST_BELOW
            text = (
                f"{sigmas['squashing']:g} around a squashing of {arm.auction.squashing:g} would often fall "
                f"below 0; use at most {most:g}"
            )
            yield Problem((*at, "squashing"), text, uses=(at, ("auction", "squashing")))


def _check_slates(section: OffPolicy, arm: ArmSpec) -> Iterator[Problem]:
    if section.slates is None:
        return
    depth, at = section.slates.depth, ("off_policy", "slates", "depth")
    if depth <= arm.slots:
        text = f"{depth} ads leave nothing to choose for {arm.slots} slots; use at least {arm.slots + 1}"
        yield Problem(at, text, uses=(at, ("cascade", "slots")))
    if depth >= arm.pre_ranking.size:
        text = (
            f"{depth} of {arm.pre_ranking.size} ranked ads leave no runner-up to price the list; "
            f"use at most {arm.pre_ranking.size - 1}"
        )
        yield Problem(at, text, uses=(at, ("cascade", "pre_ranking", "size")))
