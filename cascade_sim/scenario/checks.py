"""What keys of a scenario say about each other. Each check yields the contradictions it finds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from cascade_sim.errors import unknown_name
from cascade_sim.models.recipes import RECIPES
from cascade_sim.scenario.market import check_designs, check_market, check_training
from cascade_sim.scenario.models import check_objective
from cascade_sim.scenario.plugins import check_reference
from cascade_sim.scenario.questions import check_off_policy
from cascade_sim.scenario.schema import (
    AUTOMATIC_ARMS,
    BUILT_IN_FEATURES,
    SEATS,
    ArmOverrides,
    ArmSpec,
    ModelSpec,
    Scenario,
    resolve_arm,
)
from cascade_sim.scenario.whatif import check_what_if
from cascade_sim.scenario.yaml import KeyPath, Problem


def check_scenario(scenario: Scenario, given: Collection[KeyPath], folder: Path) -> list[Problem]:
    """All contradictions. `given` are the paths the user wrote, `folder` is where the scenario file lies."""
    return [
        *_check_world(scenario),
        *_check_names(scenario),
        *_check_models(scenario, given, folder),
        *_check_arms(scenario, given),
        *check_market(scenario.market, folder),
        *check_training(scenario),
        *check_off_policy(scenario),
        *check_what_if(scenario, folder),
        *check_designs(scenario),
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
    group = world.conversion.opposed_to
    if group is not None and group not in world.groups:
        text = unknown_name("group", group, world.groups) + " (or null for none)"
        yield Problem(("world", "conversion", "opposed_to"), text, uses=(groups,))
    group = scenario.cascade.retrieval.group
    if group not in world.groups:
        yield Problem(
            ("cascade", "retrieval", "group"), unknown_name("group", group, world.groups), uses=(groups,)
        )


def _check_names(scenario: Scenario) -> Iterator[Problem]:
    reserved = {
        "models": (SEATS, "is a built-in seat; give the model another name"),
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
        # Other arms are the baseline with other seats, for which its rule was not learned.
        path = ("report", "baseline")
        text = f"'{baseline}' has sizes by request; name an arm of one size"
        yield Problem(path, text, uses=(path, ("arms", baseline, "pre_ranking", "sizes")))


def _check_models(scenario: Scenario, given: Collection[KeyPath], folder: Path) -> Iterator[Problem]:
    for name, spec in scenario.models.items():
        at = ("models", name)
        text = check_reference(spec.kind, folder)
        if text:
            yield Problem((*at, "kind"), text, uses=((*at, "kind"),))
        yield from _check_features(scenario, at, spec)
        for recipe_key in dict.fromkeys(key for recipe in RECIPES.values() for key in recipe.keys):
            fits = [name for name, recipe in RECIPES.items() if recipe_key in recipe.keys]
            path = (*at, recipe_key)
            if path in given and spec.recipe not in fits:
                text = f"has no meaning for recipe {spec.recipe} (only for {' and '.join(fits)}); remove it"
                yield Problem(path, text, uses=((*at, "recipe"),))
        yield from check_objective(spec, given, at)
        yield from (_check_student if spec.trained_by.has_teacher else _check_data)(scenario, at, spec)


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


def _check_data(scenario: Scenario, at: KeyPath, spec: ModelSpec) -> Iterator[Problem]:
    path: KeyPath = (*at, "data")
    phases = scenario.phases
    for i, phase in enumerate(spec.data):
        if phase in spec.data[:i]:
            yield Problem((*path, i), f"'{phase}' is listed twice; remove one", uses=(path,))
    if not any(getattr(phases, phase) for phase in spec.data):
        keys = " or ".join(f"phases.{phase}" for phase in spec.data)
        text = f"no requests in {' and '.join(spec.data)}; set {keys} above 0"
        yield Problem(path, text, uses=(path, ("phases", "bootstrap"), ("phases", "log")))


def _check_student(scenario: Scenario, at: KeyPath, spec: ModelSpec) -> Iterator[Problem]:
    path, recipe = (*at, "teacher"), (*at, "recipe")
    teachers = [n for n, s in scenario.models.items() if not s.trained_by.has_teacher]
    known = ", ".join(teachers) or "none; add a model with recipe logloss"
    teacher = scenario.models.get(spec.teacher) if spec.teacher is not None else None
    if spec.teacher is None:
        text = f"missing; recipe {spec.recipe} learns from a logloss model. Known: {known}"
        yield Problem(path, text, uses=(path, recipe))
    elif spec.teacher == at[-1]:
        yield Problem(path, f"a model cannot be its own teacher; use one of: {known}", uses=(path, recipe))
    elif teacher is None:
        yield Problem(path, unknown_name("model", spec.teacher, teachers), uses=(path, recipe))
    elif teacher.trained_by.has_teacher:
        text = f"'{spec.teacher}' is itself a student (recipe {teacher.recipe}); use one of: {known}"
        yield Problem(path, text, uses=(path, recipe, ("models", spec.teacher, "recipe")))
    if scenario.phases.shadow == 0:
        text = f"0 leaves model '{at[-1]}' (recipe {spec.recipe}) nothing to learn from; use at least 1"
        yield Problem(("phases", "shadow"), text, uses=(("phases", "shadow"), recipe))
    if "chunks" in spec.trained_by.keys and spec.chunks > spec.sample.per_request:
        drawn: KeyPath = (*at, "sample", "per_request")
        text = f"{spec.chunks} chunks need as many ads; sample.per_request is {spec.sample.per_request}"
        yield Problem((*at, "chunks"), text, uses=((*at, "chunks"), drawn, recipe))


# A conflict can be blamed on any of several keys; the first of them that the user wrote is named.
Blame = list[tuple[KeyPath, str]]


def _check_arms(scenario: Scenario, given: Collection[KeyPath]) -> Iterator[Problem]:
    """Conflicts in the deployed cascade once, and in each arm those that the arm itself brings about."""
    deployed = resolve_arm(scenario, ArmOverrides())
    for blame in _conflicts(scenario, deployed):
        keys = [(_deployed_path(key), text) for key, text in blame]
        key, text = next((k for k in keys if k[0] in given), keys[0])
        default = "" if key in given else " (the default)"
        yield Problem(key, text + default, uses=tuple(k for k, _ in keys))
    for name, overrides in scenario.arms.items():
        pre_ranking = overrides.pre_ranking
        if pre_ranking is not None and pre_ranking.size is not None and pre_ranking.sizes is not None:
            text = "means nothing beside sizes, which choose for each request; remove one of them"
            at: KeyPath = ("arms", name, "pre_ranking")
            yield Problem((*at, "size"), text, uses=((*at, "size"), (*at, "sizes")))
        for blame in _conflicts(scenario, resolve_arm(scenario, overrides)):
            keys = [(("arms", name, *key), text) for key, text in blame]
            own = [k for k in keys if k[0] in given]
            if own:
                uses = tuple(k for k, _ in keys) + tuple(_deployed_path(k) for k, _ in blame)
                yield Problem(*own[0], uses=uses)


def _deployed_path(key: KeyPath) -> KeyPath:
    return key if key[0] in ("auction", "bidding", "world") else ("cascade", *key)


def _size_conflicts(arm: ArmSpec) -> Iterator[Blame]:
    """Sizes of the competitive set against slots, retrieval and each other."""
    slots, retrieved, sizes = arm.slots, arm.retrieval_size, arm.sizes
    key: KeyPath = ("pre_ranking", "size" if sizes is None else "sizes")
    least = most = arm.pre_ranking.size
    if sizes is not None:
        key = (*key, "choices")
        least, most = min(sizes.choices), max(sizes.choices)
        if any(a >= b for a, b in pairwise(sizes.choices)):
            yield [(key, f"sizes must rise from one to the next, found {list(sizes.choices)}")]
        if not least <= sizes.mean <= most:
            text = f"{sizes.mean:g} is not a mean of the choices; use {least} to {most}"
            yield [(("pre_ranking", "sizes", "mean"), text), (key, text)]
    if least <= slots:
        text = f"{least} leaves no runner-up to price the last of {slots} slots; use at least {slots + 1}"
        other = f"{slots} slots leave no runner-up among {least} pre-ranked ads; use at most {least - 1}"
        yield [(key, text), (("slots",), other)]
    if most > retrieved:
        text = f"{most} is more than the {retrieved} retrieved ads; use at most {retrieved}"
        other = f"{retrieved} retrieved ads cannot fill a competitive set of {most}; use at least {most}"
        yield [(key, text), (("retrieval", "size"), other)]


def _conflicts(scenario: Scenario, arm: ArmSpec) -> Iterator[Blame]:
    """Every conflict in one resolved arm, with the keys (as an arm writes them) that could be changed."""
    slots, retrieved = arm.slots, arm.retrieval_size
    ads, effects = scenario.world.ads, len(scenario.world.slot_effects)
    retrieval_key, slots_key = ("retrieval", "size"), ("slots",)
    yield from _size_conflicts(arm)
    if retrieved > ads:
        yield [
            (retrieval_key, f"{retrieved} is more than the {ads} ads of the world; use at most {ads}"),
            (
                ("world", "ads"),
                f"{ads} ads are fewer than the {retrieved} to retrieve; use at least {retrieved}",
            ),
        ]
    if slots > effects:
        text = (
            f"{slots} slots but {effects} slot effects; use at most {effects}, or lengthen world.slot_effects"
        )
        short = f"{effects} slot effects for {slots} slots; give at least {slots}"
        yield [(slots_key, text), (("world", "slot_effects"), short)]
    if arm.auction.pricing == "vcg" and arm.auction.squashing != 1:
        text = f"vcg needs squashing 1, found {arm.auction.squashing:g}; use 1, or pricing gsp"
        yield [(("auction", "squashing"), text), (("auction", "pricing"), text)]
    ranker = scenario.models.get(arm.ranking.model)
    is_order = ranker is not None and not ranker.trained_by.gives_probabilities
    if arm.ranking.model in ("random", "constant") or is_order:
        name = arm.ranking.model
        text = f"'{name}' predicts no probability, which prices need; use a logloss or distill model"
        yield [(("ranking", "model"), text)]
    for stage, seat in (("pre_ranking", arm.pre_ranking), ("ranking", arm.ranking)):
        models, fusions = (*scenario.models, *SEATS), ("ecpm", *scenario.fusions)
        if seat.model not in models:
            yield [((stage, "model"), unknown_name("model", seat.model, models))]
        if seat.fusion not in fusions:
            yield [((stage, "fusion"), unknown_name("fusion", seat.fusion, fusions))]
