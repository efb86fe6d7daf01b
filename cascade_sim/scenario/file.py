"""Scenario files: read with overrides, refused with line and column.

`--set path.to.key=value`: change a scenario's data before it is checked.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cascade_sim.foundation.errors import MAX_OF_WORD, ScenarioError, did_you_mean, nearest, unknown_name
from cascade_sim.scenario.assignments import key_and_value, yaml_value
from cascade_sim.scenario.checks import check_scenario
from cascade_sim.scenario.data import dump_scenario, scenario_data, scenario_hash
from cascade_sim.scenario.log_support import with_acceptance, world_from_working_folder
from cascade_sim.scenario.market import BUILT_IN_PROFILES, Market, find_profile
from cascade_sim.scenario.messages import (
    explain,
    has_free_names,
    known_keys,
    path_text,
    schema_at,
    unknown_key,
)
from cascade_sim.scenario.overrides import check_what_if
from cascade_sim.scenario.plugins import from_working_folder, path_from_working_folder, shipped_file
from cascade_sim.scenario.schema import Scenario
from cascade_sim.scenario.sections import steps_by_name
from cascade_sim.scenario.yaml import MAX_TEXT, Document, KeyPath, Problem, parse, paths_in
from cascade_sim.storage.files import opened
from cascade_sim.version import folder_of

HOW_TO_NAME = "; give the path of a scenario file (.yaml), or the name of a shipped one, such as ads"

__all__ = ["apply_overrides", "dump_scenario", "load_scenario", "scenario_data", "scenario_hash"]


@dataclass(frozen=True)
class Override:
    """A changed value and the words on the command line that changed it."""

    path: KeyPath
    option: str


class _Refused(Exception):
    """The reason why an override cannot be applied."""


def apply_overrides(
    document: Document, overrides: Sequence[str], seed: int | None = None
) -> tuple[list[Override], list[str]]:
    """Apply in order, changing `document.data`. Returns those applied and a line for each that was refused.

    The value is YAML (`--set 'world.slot_effects=[1, 0.5]'`). A whole new entry under a free name may be set
    (`--set 'arms.wide={slots: 8}'`), but not a key inside an entry that does not exist: most often a typo.
    """
    applied, refused = [], []
    for text in overrides:
        option = f"--set {text}"
        try:
            path, value = _parsed(text)
            path = _with_section_of_step(path, document.data)
            applied.append(Override(_put(document.data, path, value), option))
        except _Refused as reason:
            refused.append(f"{option}: {reason}")
    _let_reserve_count(document.data, {override.path for override in applied})
    if seed is not None:
        document.data["seed"] = seed
        applied.append(Override(("seed",), f"--seed {seed}"))
    return applied, refused


def _let_reserve_count(data: dict[str, Any], changed: set[KeyPath]) -> None:
    """A reserve that is set takes the place of each request's own, as it does in an arm or a what-if."""
    own = data.get("auction")
    if isinstance(own, dict) and own.get("logged_reserves") is True and ("auction", "reserve_cpc") in changed:
        own["logged_reserves"] = ("auction", "logged_reserves") in changed


def _with_section_of_step(path: KeyPath, data: dict[str, Any]) -> KeyPath:
    """A path that goes by the name of a step of pre-ranking, in full: cascade.pre_ranking.earlier.NAME."""
    if path[0] == "pre_ranking":
        path = ("cascade", *path)
    at = path.index("pre_ranking") + 1 if "pre_ranking" in path[:-1] else 0
    known: Any = data
    for key in ("cascade", "pre_ranking", "earlier"):
        known = known.get(key) if isinstance(known, dict) else None
    return (*path[:at], "earlier", *path[at:]) if at and path[at] in (known or {}) else path


def _parsed(text: str) -> tuple[KeyPath, Any]:
    try:
        key, value = key_and_value(text)
        steps = key.split(".")
        if not all(steps):
            raise ValueError("the key is empty")
    except ValueError as reason:
        raise _Refused(f"{reason}; write path.to.key=value") from None
    try:
        return tuple(steps), yaml_value(value)
    except ValueError as reason:
        raise _Refused(str(reason)) from None


def _put(data: dict[str, Any], path: KeyPath, value: Any) -> KeyPath:
    """Set one value, making sections the file leaves out. Returns the path with list positions as ints."""
    here: Any = data
    for i in range(len(path)):
        parent, step = path[:i], path[i]
        last = i == len(path) - 1
        if isinstance(here, list):
            step = _index(here, parent, str(step))
            path = (*parent, step, *path[i + 1 :])
        elif isinstance(here, dict):
            _check_key(here, (*parent, step), last)
        else:
            raise _Refused(f"{path_text(parent)} is a single value and has no key '{step}'")
        if last:
            here[step] = value
        else:
            if isinstance(here, dict) and here.get(step) is None:
                here[step] = _default((*parent, step))
            here = here[step]
    return path


def _index(items: list[Any], parent: KeyPath, step: str) -> int:
    if not step.isdecimal() or int(step) >= len(items):
        raise _Refused(f"{path_text(parent)} is a list; use a position from 0 to {len(items) - 1}")
    return int(step)


def _check_key(here: dict[str, Any], path: KeyPath, last: bool) -> None:
    node = schema_at(path[:-1])
    if known_keys(node) and schema_at(path) is None:
        raise _Refused(unknown_key(path))
    is_of_arm = path[0] == "arms" and path[-2:-1] == (
        "earlier",
    )  # a step that the cascade has, as is checked
    inside_new_entry = has_free_names(node) and not last and path[-1] not in here and not is_of_arm
    if inside_new_entry and "options" not in path[:-1]:
        raise _Refused(unknown_name(f"entry in {path_text(path[:-1])}:", str(path[-1]), here))


def _default(path: KeyPath) -> Any:
    """What an override inside an absent section starts from.

    Entries under free names and list items come from the defaults: changing one must not lose the others.
    """
    node = schema_at(path)
    if node is not None and (has_free_names(node) or node.get("type") == "array"):
        return copy.deepcopy(node.get("default") or {})
    return {}


def load_scenario(path: Path | str, overrides: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """Read and check a scenario file, or the shipped scenario of that name.

    `overrides` are `path.to.key=value` with a YAML value, applied in order; `seed` comes last. The path of
    a file that was found beside the scenario (of a model, a bidder, a traffic profile) is rewritten to hold
    from the working folder.
    Raises ScenarioError with all problems, one line each: `file:line:column key: what is wrong; what to do`.
    """
    path = find_scenario(Path(path))
    document = parse(_read(path))
    if not document.problems and not isinstance(document.data, dict):
        document.problems.append(Problem((), _not_a_mapping(document.data)))
    if not isinstance(document.data, dict):
        raise ScenarioError([_line(path, document, [], problem) for problem in document.problems])
    _with_named_steps(document)
    applied, refused = apply_overrides(document, overrides, seed)
    problems = list(document.problems)
    scenario = None
    if not any(problem.path == () for problem in problems):  # a syntax error leaves nothing worth checking
        given = set(paths_in(document.data))
        scenario, violations = _validate(document.data, given, Path(path).parent)
        problems += violations
    if problems or refused or scenario is None:
        problems.sort(key=lambda problem: problem.mark or document.mark(problem.path))
        lines = [_line(path, document, applied, problem) for problem in problems]
        raise ScenarioError([*dict.fromkeys(lines), *refused])
    models = {
        name: spec.model_copy(
            update={
                key: from_working_folder(getattr(spec, key), Path(path).parent) for key in ("kind", "recipe")
            }
        )
        for name, spec in scenario.models.items()
    }
    market = scenario.market and _market_from_working_folder(scenario.market, Path(path).parent)
    world = with_acceptance(world_from_working_folder(scenario.world, Path(path).parent))
    found = _retrievers_from_working_folder(scenario, Path(path).parent)
    return scenario.model_copy(update={"models": models, "market": market, "world": world, **found})


def _retrievers_from_working_folder(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """The cascade and the arms with paths of retrievers that hold from the working folder."""

    def found(section: Any) -> Any:
        update: dict[str, Any] = {}
        if section.kind is not None:
            update["kind"] = from_working_folder(section.kind, folder)
        if getattr(section, "routes", None):
            update["routes"] = {name: found(route) for name, route in section.routes.items()}
        return section.model_copy(update=update)

    cascade = scenario.cascade.model_copy(update={"retrieval": found(scenario.cascade.retrieval)})
    arms = {
        name: arm if arm.retrieval is None else arm.model_copy(update={"retrieval": found(arm.retrieval)})
        for name, arm in scenario.arms.items()
    }
    return {"cascade": cascade, "arms": arms}


def _with_named_steps(document: Document) -> None:
    """Steps of pre-ranking that are written as a list have names to be addressed by, as in a mapping."""
    section, cascade = ("cascade", "pre_ranking"), document.data.get("cascade")
    if not isinstance(cascade, dict) or not isinstance(cascade.get("pre_ranking"), list):
        return
    steps = cascade["pre_ranking"]
    with suppress(ValueError):  # said when it is checked
        cascade["pre_ranking"] = steps_by_name(steps)
    if not isinstance(cascade["pre_ranking"], dict):
        return
    names: list[KeyPath] = [("earlier", step["name"]) for step in steps[:-1]] + [()]
    for marks in (document.keys, document.values):  # an error in a step points to its item
        for i, name in enumerate(names):
            inside = [path for path in marks if path[:3] == (*section, i)]
            marks.update({(*section, *name, *path[3:]): marks[path] for path in inside if name or path[3:]})


def _market_from_working_folder(market: Market, folder: Path) -> Market:
    """The same market with paths that hold from the working folder, where files lie beside the scenario."""
    bidders = {
        name: spec.model_copy(update={"kind": from_working_folder(spec.kind, folder)})
        for name, spec in market.bidders.items()
    }
    profile, file = market.profile, find_profile(market.profile, folder)
    if profile not in BUILT_IN_PROFILES and file is not None and file != Path(profile):
        profile = path_from_working_folder(file)
    kind = from_working_folder(market.users.click_model, folder)
    users = market.users.model_copy(update={"click_model": kind})
    return market.model_copy(update={"bidders": bidders, "profile": profile, "users": users})


def shipped_scenarios() -> dict[str, Path]:
    """The scenarios that come with this package, by name; files of variants are not among them."""
    return {name: file for name, file in _shipped().items() if not name.startswith(VARIANTS)}


def shipped_variants() -> dict[str, Path]:
    """The files of variants that come with this package, by name."""
    return {name: file for name, file in _shipped().items() if name.startswith(VARIANTS)}


VARIANTS = "consistency_"  # how the names of shipped files of variants begin


def _shipped() -> dict[str, Path]:
    return {file.stem: file for file in sorted(folder_of("scenarios").glob("*.yaml"))}


def find_scenario(path: Path) -> Path:
    """The file itself, or the shipped scenario for its name (`ads`) or path (`scenarios/ads.yaml`)."""
    is_name = path.name == str(path) and not path.suffix
    if is_name and not path.exists():
        return shipped_scenarios().get(path.name, path)
    return shipped_file(path) or path


def _read(path: Path) -> str:
    try:
        with opened(path, follows=True) as file:
            raw = file.read(4 * MAX_TEXT + 1)  # a large file is not read to its end
    except FileNotFoundError:
        beside = [str(p) for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        shipped = shipped_scenarios()
        near = did_you_mean(str(path), [*beside, *shipped])
        hint = near or did_you_mean(path.stem, shipped)  # scenarios/quick.yaml, where there is no checkout
        raise ScenarioError([f"{path}: no such file{hint or HOW_TO_NAME}"]) from None
    except IsADirectoryError:
        raise ScenarioError([f"{path}: is a folder; give the path of a scenario file (.yaml)"]) from None
    except OSError as error:
        raise ScenarioError([f"{path}: cannot be read: {error.strerror}"]) from None
    if len(raw) > 4 * MAX_TEXT:
        raise ScenarioError([f"{path}: more than {MAX_TEXT:,} characters; a scenario has a few thousand"])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        text = f"byte 0x{raw[error.start]:02x} is not UTF-8 text; save the file as UTF-8"
        raise ScenarioError([f"{path}:{line}:{column} {text}"]) from None


def _not_a_mapping(data: Any) -> str:
    if data is None:
        return "the file is empty; a scenario needs at least `name` and `arms`"
    kind = "a list" if isinstance(data, list) else "a single value"
    return f"expected a mapping (key: value) at the top, found {kind}"


def _validate(
    data: dict[str, Any], given: set[KeyPath], folder: Path
) -> tuple[Scenario | None, list[Problem]]:
    """The scenario and what is wrong with it.

    When single keys are refused, the rest is checked as if they were absent, so that one look shows all;
    what would only follow from a refused key is left out.
    """
    try:
        scenario = Scenario.model_validate(data)
        return scenario, _contradictions(scenario, given, folder)
    except ValidationError as error:
        problems = explain(error.errors(include_url=False))
    bad = _refused(problems)
    if any(len(path) == 1 and path[0] not in ("name", "description", "seed") for path in bad):
        return None, problems  # without a whole section the rest means little
    try:
        scenario = Scenario.model_validate(_without(data, bad))
    except ValidationError:
        return None, problems
    rest = _contradictions(scenario, given, folder)
    return None, problems + [
        p for p in rest if not any(_leads(b, use) for b in bad for use in (p.path, *p.uses))
    ]


def _contradictions(scenario: Scenario, given: set[KeyPath], folder: Path) -> list[Problem]:
    return [*check_scenario(scenario, given, folder), *check_what_if(scenario, folder)]


def _refused(problems: list[Problem]) -> list[KeyPath]:
    """Paths whose value cannot be trusted.

    Those refused (a bad item takes its list with it), and the key that an unknown key was likely meant as.
    """
    bad: list[KeyPath] = []
    for problem in problems:
        items = [i for i, step in enumerate(problem.path) if isinstance(step, int)]
        path = problem.path[: items[0]] if items else problem.path
        bad.append(path)
        known = known_keys(schema_at(path[:-1]))
        if known and path[-1] not in known:
            meant = nearest(str(path[-1]), known)
            bad += [(*path[:-1], meant)] if meant is not None else []
    return bad


def _leads(path: KeyPath, other: KeyPath) -> bool:
    """Whether `other` is `path` or inside it."""
    return other[: len(path)] == path


def _without(data: dict[str, Any], bad: list[KeyPath]) -> dict[str, Any]:
    """The data without refused keys; an entry under a free name stays, emptied, so that its name is known."""
    data = copy.deepcopy(data)
    for path in bad:
        parent: Any = data
        for step in path[:-1]:
            parent = parent.get(step) if isinstance(parent, dict) else None
        if not isinstance(parent, dict):
            continue
        if path[:-1] in (("models",), ("arms",), ("fusions",), ("world", "groups")):
            parent[path[-1]] = {}
        else:
            parent.pop(path[-1], None)
    data.setdefault("name", "unnamed")
    return data


def _line(path: Path | str, document: Document, applied: Sequence[Override], problem: Problem) -> str:
    """One line for people. A value that came from the command line is named as such."""
    key = path_text(problem.path)
    for override in reversed(applied):
        is_around = problem.path not in document.values and _leads(problem.path, override.path)
        if _leads(override.path, problem.path) or is_around:  # around: an entry that the file does not have
            words = override.option
            if len(words) > MAX_OF_WORD:  # what is wrong comes after it, and must still be on the line
                words = f"{words[:MAX_OF_WORD]}… ({len(words):,} characters)"
            return f"{words}: " + (f"{key}: " if problem.path != override.path else "") + problem.text
    line, column = problem.mark or document.mark(problem.path)
    return f"{path}:{line}:{column} {key + ': ' if key else ''}{problem.text}"
