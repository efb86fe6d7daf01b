"""Who is trained before whom: a model may learn from lists that other models have made or scored.

learners(scenario)   # what learns from lists: models by name, and sections of models that learn together
waves(scenario)      # the same names in the order of their training; one pass of the shadow phase for each
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from cascade_sim.foundation.errors import unknown_name
from cascade_sim.scenario.joint import Joint, check_options
from cascade_sim.scenario.models import ModelSpec
from cascade_sim.scenario.schema import KNOWN, ArmSpec, Scenario, resolve_arm
from cascade_sim.scenario.yaml import KeyPath, Problem

Learner = ModelSpec | Joint
FIXED_SETS = ("competitive", "pre_ranking", "retrieved", "corpus")


def learners(scenario: Scenario) -> dict[str, Learner]:
    """What learns from the lists of the shadow phase, by name; `joint.NAME` stands for several models."""
    alone: dict[str, Learner] = {
        name: spec
        for name, spec in scenario.models.items()
        if spec.trained_by.has_teacher and not spec.trained_by.in_joint
    }
    return alone | {f"joint.{name}": section for name, section in scenario.joint.items()}


def place_of(learner: str) -> KeyPath:
    """The path of a learner's section in a scenario."""
    return ("joint", learner.removeprefix("joint.")) if "." in learner else ("models", learner)


def waves(scenario: Scenario) -> tuple[tuple[str, ...], ...]:
    """Names of learners, each wave after those that its lists need. In every wave the order of the file."""
    before = needs(scenario)
    made: list[tuple[str, ...]] = []
    order = TopologicalSorter(before)
    order.prepare()
    while order.is_active():
        ready = order.get_ready()
        made.append(tuple(name for name in before if name in ready))
        order.done(*ready)
    return tuple(made)


def needs(scenario: Scenario) -> dict[str, tuple[str, ...]]:
    """The learners that each learner's lists need: for their ads, or for a score of them.

    In the baseline a learner that its own lists need does not wait for itself: its first deployment serves.
    """
    found = learners(scenario)
    owner = {name: name for name in found} | {
        model: f"joint.{name}" for name, section in scenario.joint.items() for model in section.models
    }
    made = {}
    for name, learner in found.items():
        asked = {owner[model] for model in models_of_lists(scenario, learner) if model in owner}
        is_baseline = learner.sample.arm == scenario.report.baseline
        made[name] = tuple(other for other in found if other in asked and not (other == name and is_baseline))
    return made


def circle_of(before: Mapping[str, Collection[str]]) -> list[str]:
    """Learners of which each needs the next and the last the first; [] if there is no such circle."""
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))[:-1]
    return []


def models_of_lists(scenario: Scenario, learner: Learner) -> list[str]:
    """The models that have to be there before lists are made: the teacher, and those of stages."""
    follows = isinstance(learner, ModelSpec) and learner.trained_by.follows
    asked = [learner.teacher] if learner.teacher is not None and follows else []
    sample = learner.sample
    if sample.arm not in scenario.arms:
        return asked  # the baseline as far as it is there, or unknown
    arm = resolve_arm(scenario, scenario.arms[sample.arm])
    stages = [name for name, _ in arm.sections]
    if learner.has_exposed_chunk:
        last = len(stages)
    elif sample.set == "corpus":
        last = -1
    else:
        names = {"competitive": stages[-1], "retrieved": stages[0]}
        receiver = names.get(sample.set, sample.set)
        last = stages.index(receiver) if receiver in stages else -1
    if last >= 0:
        asked += arm.retrieval.models
    for _, section in (*arm.sections[: max(last, 0)], arm.sections[-1]):
        asked += [section.model, *(rate for rate in [arm.pcvr_of(section)] if rate != KNOWN)]
    return asked


def quotas_of(scenario: Scenario, joint: Joint) -> tuple[int, ...]:
    """How many ads of a list each model of a joint section hands on.

    `fixed`: the option quota, for all. `sizes`: as many of the list as its stage hands on of the corpus, at
    least k and not all.
    """
    values, n = joint.values, joint.sample.per_request
    if values["quotas"] == "fixed":
        return (int(values["quota"]),) * len(joint.models)
    arm = resolve_arm(scenario, scenario.arms[joint.sample.arm or scenario.report.baseline])
    share = {model: size / scenario.world.ads for model, size in sizes_in(arm).items()}
    return tuple(min(max(round(n * share[name]), int(values["k"])), n - 1) for name in joint.models)


def sizes_in(arm: ArmSpec) -> dict[str, int]:
    """How many ads the first stage of each model hands on in an arm, ranking apart."""
    sizes: dict[str, int] = {}
    for route in arm.retrieval.parts.values():
        if route.model is not None:
            sizes.setdefault(route.model, route.size)
    for _, step in arm.steps:
        sizes.setdefault(step.model, step.size)
    return sizes


def check_teaching(scenario: Scenario) -> Iterator[Problem]:
    """What is wrong with the lists that models learn from, and with models that learn together."""
    problems: list[Problem] = []
    for name, learner in learners(scenario).items():
        problems += _check_sample(scenario, (*place_of(name), "sample"), learner)
    for name, joint in scenario.joint.items():
        problems += _check_joint(scenario, ("joint", name), joint)
    problems += _check_members(scenario)
    yield from problems
    if problems:
        return
    circle = circle_of(needs(scenario))
    if circle:
        at: KeyPath = (*place_of(circle[0]), "sample", "arm")
        ways = [
            f"'{one}' learns from lists that need '{other}'" for one, other in pairwise([*circle, circle[0]])
        ]
        text = f"{', and '.join(ways)}; neither can be trained first: name another sample.set or sample.arm"
        if len(circle) == 1:
            text = f"{ways[0]} itself; name a sample.set before its stage, or the baseline"
        yield Problem(at, text, uses=tuple((*place_of(name), "sample", "arm") for name in circle))


def _check_sample(scenario: Scenario, at: KeyPath, learner: Learner) -> Iterator[Problem]:
    sample, world = learner.sample, scenario.world
    sets = (*FIXED_SETS, *scenario.cascade.pre_ranking.earlier)
    if sample.set not in sets:
        yield Problem((*at, "set"), unknown_name("set", sample.set, sets))
        return
    if sample.arm is not None:
        arm = (*at, "arm")
        if sample.arm not in scenario.arms:
            yield Problem(arm, unknown_name("arm", sample.arm, scenario.arms), uses=(arm, ("arms",)))
        elif resolve_arm(scenario, scenario.arms[sample.arm]).size_rules:
            text = f"'{sample.arm}' has sizes by request; name an arm of one size"
            yield Problem(arm, text, uses=(arm, ("arms", sample.arm)))
    if sample.set != "corpus":
        if sample.pool is not None:
            text = f"is for set corpus; of the {sample.set} set all ads are looked at: remove it"
            yield Problem((*at, "pool"), text, uses=((*at, "set"),))
        return
    if not world.has("corpus"):
        text = "this world knows only the ads that were logged for a request; use set retrieved"
        yield Problem((*at, "set"), text, uses=((*at, "set"), ("world",)))
        return
    there = world.ads if world.churn is None else int(world.churn.available_share * world.ads)
    for key, n in (("per_request", sample.per_request), ("pool", sample.pool or 0)):
        if n > there:
            text = f"{n} is more than the {there} ads that are there; use at most {there}"
            yield Problem((*at, key), text, uses=((*at, key), ("world", "ads")))
    if sample.pool is not None and sample.pool < sample.per_request:
        text = f"{sample.pool} ads are fewer than the {sample.per_request} of a list; use at least as many"
        yield Problem((*at, "pool"), text, uses=((*at, "per_request"),))
    if learner.has_exposed_chunk:
        text = "what was shown is not among the ads drawn from the corpus; use halving or quantiles"
        chunking = (*at[:-1], "chunking")
        yield Problem(chunking, text, uses=(chunking, (*at, "set")))


def _check_joint(scenario: Scenario, at: KeyPath, joint: Joint) -> Iterator[Problem]:
    """What is wrong with one section: its options, where its models sit, and who ranks its lists."""
    yield from check_options(joint, at)
    own = (*at, "sample", "arm")
    name = joint.sample.arm or scenario.report.baseline
    if scenario.phases.shadow == 0:
        text = f"0 leaves {'.'.join(map(str, at))} nothing to learn from; use at least 1"
        yield Problem(("phases", "shadow"), text, uses=(("phases", "shadow"), at))
    if name not in scenario.arms:
        return
    arm = resolve_arm(scenario, scenario.arms[name])
    ranker = scenario.models.get(arm.ranking.model)
    if ranker is None or not ranker.trained_by.has_objective:
        text = f"arm '{name}' ranks by '{arm.ranking.model}', which is no logloss model to learn from"
        yield Problem(own, text, uses=(own, ("cascade", "ranking", "model")))
    if joint.values["quotas"] != "sizes":
        return
    sizes = sizes_in(arm)
    for model in joint.models:
        if model in scenario.models and model not in sizes:
            text = f"'{model}' hands on nothing in arm '{name}', so it has no size; "
            text += f"name an arm that seats it, or quotas: fixed (it seats {', '.join(sizes)})"
            yield Problem((*at, "options", "quotas"), text, uses=((*at, "models"), own))


def _check_members(scenario: Scenario) -> Iterator[Problem]:
    """Every model of a joint section says so and is in no other; every model that says so is in one."""
    taken: dict[str, str] = {}
    for name, joint in scenario.joint.items():
        for i, model in enumerate(joint.models):
            at: KeyPath = ("joint", name, "models", i)
            uses = (("joint", name, "models"), ("models", model, "recipe"))
            spec = scenario.models.get(model)
            if spec is None:
                yield Problem(at, unknown_name("model", model, scenario.models), uses=(("models",), *uses))
            elif not spec.trained_by.in_joint:
                text = f"'{model}' is trained by itself (recipe {spec.recipe}); give it recipe: joint"
                yield Problem(at, text, uses=uses)
            if model in taken:
                where = "in this section twice" if taken[model] == name else f"also in joint.{taken[model]}"
                yield Problem(at, f"'{model}' is {where}; each model is trained once", uses=uses)
            taken.setdefault(model, name)
    for model, spec in scenario.models.items():
        if spec.trained_by.in_joint and model not in taken:
            recipe = ("models", model, "recipe")
            text = f"no joint section names '{model}'; add it to one, or give it another recipe"
            yield Problem(recipe, text, uses=(recipe, ("joint",)))
