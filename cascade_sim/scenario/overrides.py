"""Which parameters a what-if may turn, and what an arm becomes when some of them are turned.

A parameter decides how requests are served: stage sizes, models, bids, fusions, slots, auction and bid rule.
What was settled before serving (world, traffic, training) is no parameter: it needs a run of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cascade_sim.auction.pricing import NO_INCREMENT, PARAMETERS, RULES
from cascade_sim.foundation.errors import UserError, did_you_mean, nearest
from cascade_sim.scenario.assignments import key_and_value, split_values, yaml_value
from cascade_sim.scenario.checks import check_scenario
from cascade_sim.scenario.data import scenario_data
from cascade_sim.scenario.messages import explain, path_text, schema_at, unknown_key
from cascade_sim.scenario.schema import ArmSpec, Retrieval, Scenario, resolve_arm, resolved_arms
from cascade_sim.scenario.sections import UNSAID
from cascade_sim.scenario.serving_parameters import ParamPath, arm_parameters, scenario_path
from cascade_sim.scenario.yaml import Problem, paths_in

MAX_VALUES = 100

# Why a part of the scenario cannot be changed after the fact.
SETTLED = {
    "world": "it changes the world, which all that was served and learned rests on",
    "seed": "another seed is another world",
    "traffic": "it changes the traffic, which a what-if serves again as it was",
    "models": "it changes what models are trained, and a what-if takes them as they are",
    "joint": "it changes how models are trained, and a what-if takes them as they are",
    "phases": "it changes how much was served and learned from",
    "market": "it is about the market's days, and a what-if serves the evaluation again",
    "arms": "it is about the market's days, and a what-if serves the evaluation again",
}


class Refused(Exception):  # noqa: N818 (a verdict, turned into a UserError where the words' places are known)
    """Why changes cannot be made: `reasons` are (text, place among the changes), the first one at `at`."""

    def __init__(self, text: str, at: int = 0, *others: tuple[str, int]) -> None:
        super().__init__(text)
        self.at = at
        self.reasons = ((text, at), *others)


class Mistyped(Refused):  # noqa: N818
    """No parameter of that name, or a value of the wrong type: wrong whatever else is changed."""


Reasons = list[tuple[str, int]]


@dataclass(frozen=True)
class Change:
    """One parameter turned; `at` is the place of the words it comes from."""

    parameter: ParamPath
    value: Any
    at: int = 0

    @property
    def path(self) -> str:
        """The parameter as the scenario file writes it: cascade.pre_ranking.size."""
        return scenario_path(self.parameter)


Point = tuple[Change, ...]  # turned together: one other way to serve


def parse_points(texts: Sequence[str], scenario: Scenario, arm: str) -> list[Point]:
    """The ways to serve that some `path=value` ask for: one, or as many as one of them lists values.

    `auction.reserve_cpc=0.1,0.2` lists two. Commas inside brackets belong to the value. Raises Refused.
    """
    given = []
    for at, (path, values) in enumerate(check_words(texts)):
        given.append((path, [_value(part, at) for part in values]))
    return _points(_listed(given, scenario, arm))


def check_words(texts: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Path and values of each `path=value`, as far as they can be read without a scenario. Raises Refused."""
    read: list[tuple[str, list[str]]] = []
    reasons: Reasons = []
    for at, text in enumerate(texts):
        try:
            path, values = key_and_value(text)
            read.append((path, split_values(values)))
        except ValueError as reason:
            reasons.append((f"{reason}; write path.to.parameter=value", at))
            continue
        for part in read[-1][1]:
            try:
                _value(part, at)
            except Refused as refused:
                reasons += refused.reasons
                break
    _refuse_all(reasons)
    return read


def _refuse_all(reasons: Reasons) -> None:
    if reasons:
        (text, at), *others = sorted(reasons, key=lambda reason: reason[1])
        raise Mistyped(text, at, *others)


def given_points(changes: Mapping[str, Any], scenario: Scenario, arm: str) -> list[Point]:
    """The same from {path: value}; a list or tuple is several values."""
    given = []
    for path, value in changes.items():
        values = list(value) if isinstance(value, list | tuple) else [value]
        given.append((path, [_plain(item) for item in values]))
    return _points(_listed(given, scenario, arm))


def _listed(given: Sequence[tuple[str, list[Any]]], scenario: Scenario, arm: str) -> list[list[Change]]:
    """The changes of each path, a value each; Refused with all that is wrong."""
    listed: list[list[Change]] = []
    reasons: Reasons = []
    for at, (path, values) in enumerate(given):
        try:
            listed.append(_changes(path, values, scenario, arm, at))
        except Refused as refused:
            reasons += refused.reasons
    _refuse_all(reasons)
    return listed


def _plain(value: Any) -> Any:
    """A number of numpy's is a number."""
    return value.item() if hasattr(value, "item") else value


def _changes(path: str, values: list[Any], scenario: Scenario, arm: str, at: int) -> list[Change]:
    if not values:
        raise Refused("has no value", at)
    if len(values) > MAX_VALUES:
        raise Refused(f"{len(values)} values; at most {MAX_VALUES} at a time", at)
    for i, value in enumerate(values):
        if any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values[:i]):
            raise Refused(f"{value} is given twice", at)
    try:
        parameter = find_parameter(path, scenario, arm)
    except Refused as reason:
        raise Refused(str(reason), at) from None
    return [Change(parameter, value, at) for value in values]


def _points(listed: list[list[Change]]) -> list[Point]:
    if not listed:
        raise Refused("nothing to change; give at least one path.to.parameter=value")
    for at, changes in enumerate(listed):
        if any(changes[0].parameter == other[0].parameter for other in listed[:at]):
            raise Refused(f"{changes[0].path} is set twice; list its values with commas between them", at)
    several = [at for at, changes in enumerate(listed) if len(changes) > 1]
    if len(several) > 1:
        raise Refused(
            "only one parameter may have several values; ask once for each value of this one", several[1]
        )
    count = max(len(changes) for changes in listed)
    return [tuple(changes[i if len(changes) > 1 else 0] for changes in listed) for i in range(count)]


def _value(text: str, at: int) -> Any:
    try:
        value = yaml_value(text)
    except ValueError as reason:
        raise Refused(str(reason), at) from None
    if value is None:
        raise Refused("has no value; write path.to.parameter=value", at)
    return value


def find_parameter(path: str, scenario: Scenario, arm: str) -> ParamPath:
    """The parameter that a path means: as in the scenario file, as the arm writes it, or its unambiguous
    end.
    """
    steps = tuple(path.split("."))
    own = steps
    if steps[0] == "arms" and len(steps) > 2:
        if steps[1] != arm:
            raise Refused(f"the question is about arm '{arm}'; to ask about '{steps[1]}', give that arm")
        own = steps[2:]
    elif steps[0] == "cascade":
        own = steps[1:]
    elif steps[0] == "fusions" and len(steps) > 1:
        if len(steps) > 2 and steps[1] not in scenario.fusions:
            known = ", ".join(scenario.fusions) or "none"
            hint = did_you_mean(steps[1], scenario.fusions)
            raise Refused(
                f"no fusion '{steps[1]}' in fusions{hint or ';'} {'Known' if hint else 'known'}: {known}"
            )
        return steps
    earlier = scenario.cascade.pre_ranking.earlier
    own_arm = resolved_arms(scenario).get(arm)
    parameters = arm_parameters(earlier, () if own_arm is None else own_arm.retrieval.routes)
    if own[:1] == ("pre_ranking",) and len(own) == 3 and own[1] in earlier:
        own = ("pre_ranking", "earlier", *own[1:])  # by the name of the step alone
    if own in parameters or (own[:-1] in parameters and own[-2:-1] == ("options",)):
        return own
    if own == steps:  # a short name, unless the scenario itself has something of that name
        ends = [parameter for parameter in parameters if parameter[-len(own) :] == own]
        if len(ends) == 1:
            return ends[0]
        if ends:
            names = " or ".join(scenario_path(parameter) for parameter in ends)
            raise Refused(f"'{path}' may mean {names}; write which")
    raise Refused(_no_parameter(path, steps, own, parameters))


def _no_parameter(path: str, steps: ParamPath, own: ParamPath, parameters: list[ParamPath]) -> str:
    if len(own) <= 1 and (not own or own[0] in {parameter[0] for parameter in parameters}):
        inside = ", ".join(
            scenario_path(parameter) for parameter in parameters if not own or parameter[0] == own[0]
        )
        return f"'{path}' is a section; set one of its parameters: {inside}"
    for i in range(len(steps) if steps[0] in Scenario.model_fields else 0):
        if schema_at(steps[: i + 1]) is None:
            return unknown_key(steps[: i + 1])
    if steps[0] in Scenario.model_fields and steps[0] != "cascade":  # all of that decides how one is served
        why = SETTLED.get(steps[0], "it does not decide how a request is served")
        return (
            f"{path} cannot be changed after the fact: {why}. It needs a new run: "
            f"`run SCENARIO --set {path}=…`, or `sweep` for several values"
        )
    names = [scenario_path(parameter) for parameter in parameters]
    last = nearest(steps[-1], [parameter[-1] for parameter in parameters])
    near = nearest(path, names) or next(
        (scenario_path(parameter) for parameter in parameters if parameter[-1] == last), None
    )
    hint = f"; did you mean '{near}'? Known" if near else "; known"
    return f"unknown parameter '{path}'{hint}: {', '.join(names)}, fusions.NAME"


def checked_points(points: Sequence[Point], scenario: Scenario, arm: str, folder: Path) -> None:
    """Refused with all that is wrong with the values of some points, each once; nothing is built."""
    spec, reasons = resolved_arms(scenario)[arm], dict[tuple[str, int], None]()
    for point in points:
        try:
            apply_overrides(scenario, spec, point, folder)
        except Refused as refused:
            reasons |= dict.fromkeys(refused.reasons)
    if reasons:
        (text, at), *others = sorted(reasons, key=lambda reason: reason[1])
        raise Refused(text, at, *others)


def apply_overrides(
    scenario: Scenario, spec: ArmSpec, point: Point, folder: Path
) -> tuple[Scenario, ArmSpec]:
    """The arm with parameters changed, and the scenario it belongs to (with the fusions it may have changed).

    Checked like an arm of a scenario; Refused with the place of the change that is to blame.
    """
    data = scenario_data(scenario)
    data.pop("what_if", None)  # what is checked here may come from there
    name = "what-if"
    while name in data["arms"]:
        name += "-"
    data["arms"][name] = overrides_of(spec)
    places: dict[ParamPath, Change] = {}
    turned = {change.parameter for change in point}
    for parameter in turned:
        if parameter[0] == "pre_ranking" and parameter[-1] in (
            "size",
            "sizes",
        ):  # one of them takes the other's place
            step = data["arms"][name]
            for key in parameter[:-1]:
                step = step[key]
            step.pop("sizes" if parameter[-1] == "size" else "size", None)
    data["arms"][name]["retrieval"] = _without_replaced(spec.retrieval, turned)
    if ("auction", "reserve_cpc") in turned:
        data["arms"][name]["auction"].pop("logged_reserves")  # each request's own gives way
    for change in point:
        if change.parameter == ("auction", "pricing") and change.value in list(RULES):
            foreign = set(PARAMETERS) - set(RULES[change.value].parameters)
            for of_rule in (*foreign, *(["increment"] if change.value in NO_INCREMENT else [])):
                data["arms"][name]["auction"].pop(of_rule, None)  # of the rule it had
    for change in point:
        at: ParamPath = (
            change.parameter if change.parameter[0] == "fusions" else ("arms", name, *change.parameter)
        )
        section: Any = data
        for step in at[:-1]:
            section = section.setdefault(step, {})
        section[at[-1]] = change.value
        if change.parameter == ("retrieval", "routes") and isinstance(change.value, dict):
            section[at[-1]] = _with_routes(spec.retrieval, change.value)
        places[at] = change
    changed = None
    try:
        changed = Scenario.model_validate(data)
        given = {path for place, change in places.items() for path in paths_in(change.value, place)}
        problems = check_scenario(changed, given, folder)
    except ValidationError as error:
        problems = explain(error.errors(include_url=False))
    reasons: Reasons = []
    is_mistyped = changed is None
    for problem in problems:
        text = problem.text.replace(f"arms.{name}.", "")  # a name that the user did not give
        place = next((place for place in places if problem.path[: len(place)] == place), None)
        if place is not None:
            inner = path_text(problem.path[len(place) :])
            reasons.append((f"{inner}: {text}" if inner else text, places[place].at))
        elif problem.path[:2] == ("arms", name) or changed is None:
            reasons.append((f"{path_text(problem.path[2:])}: {text}", point[0].at))
            is_mistyped = False
    if reasons:
        (text, at_change), *others = reasons
        raise (Mistyped if is_mistyped else Refused)(text, at_change, *others)
    assert changed is not None
    return changed, resolve_arm(changed, changed.arms[name])


def _without_replaced(retrieval: Retrieval, turned: set[ParamPath]) -> dict[str, Any]:
    """An arm's retrieval as its section writes it, without what gives way to what is turned."""
    is_one = ("retrieval", "kind") in turned or ("retrieval", "model") in turned
    if is_one and retrieval.routes:
        return {"size": retrieval.total}  # one retriever in place of all
    if ("retrieval", "routes") in turned:
        return {}
    data = retrieval.spelled_out
    for at in retrieval.parts:
        section = data["routes"][at[1]] if at else data
        gone: tuple[str, ...] = ()
        if ("retrieval", *at, "kind") in turned:
            gone = ("options", "model", "bid_weight")
        if ("retrieval", *at, "model") in turned:
            gone = ("kind", "options", "group", "overlap")
        for key in gone:
            section.pop(key, None)
    return data


def _with_routes(retrieval: Retrieval, routes: dict[str, Any]) -> dict[str, Any]:
    """Changes to routes of an arm, and further ones, with all that it has."""
    known = {name: route.spelled_out for name, route in retrieval.routes.items()}
    changed = {
        name: {**known[name], **route} if name in known and isinstance(route, dict) else route
        for name, route in routes.items()
    }
    return {**known, **changed}


def check_what_if(scenario: Scenario, folder: Path) -> Iterator[Problem]:
    """What is wrong with the questions of `what_if`; each is checked like an arm of the scenario."""
    baseline = scenario.report.baseline
    if baseline not in scenario.arms:
        return  # said elsewhere
    spec = resolve_arm(scenario, scenario.arms[baseline])
    for name, words in scenario.what_if.items():
        try:
            for point in parse_points(words, scenario, baseline):
                apply_overrides(scenario, spec, point, folder)
        except Refused as reason:
            for text, place in reason.reasons:
                at = ("what_if", name, place)
                yield Problem(at, f"{words[place]}: {text}", uses=(at, ("arms", baseline)))


def overrides_of(spec: ArmSpec) -> dict[str, Any]:
    """An arm with nothing inherited, as the `arms` section of a scenario would write it."""
    data = spec.model_dump(mode="json", exclude_none=True)
    data["auction"] |= {key: getattr(spec.auction, key) for key in UNSAID}
    sizes = data.pop("sizes", None)
    if sizes is not None:
        del data["pre_ranking"]["size"]
        data["pre_ranking"]["sizes"] = sizes
    for name, of_step in data.pop("earlier_sizes").items():
        del data["pre_ranking"]["earlier"][name]["size"]
        data["pre_ranking"]["earlier"][name]["sizes"] = of_step
    return {**data, "retrieval": spec.retrieval.spelled_out}


def refuse(reason: Refused, words: Sequence[str], source: str = "") -> UserError:
    """The error for people: the words that are to blame, and why; a line each."""
    if not words:
        return UserError(str(reason))
    return UserError("\n".join(f"{source}{words[at]}: {text}" for text, at in reason.reasons))
