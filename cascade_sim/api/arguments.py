"""What the functions take: scenarios and runs in any form, and words for what is none of these."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from cascade_sim.api.results import ImportResult, RunResult
from cascade_sim.foundation.errors import ScenarioError, UserError

if TYPE_CHECKING:
    from cascade_sim.diagnostics.reopen import Trust
    from cascade_sim.scenario.schema import Scenario

NOT_A_PATH = "scenario"  # what a scenario that is no file is called in messages
ScenarioLike: TypeAlias = "str | Path | Mapping[str, Any] | Scenario"
RunLike: TypeAlias = str | Path | RunResult | ImportResult  # a log store is opened as a run is
Texts: TypeAlias = str | Sequence[str]  # one, or several
Function = TypeVar("Function", bound=Callable[..., Any])
PLAIN: dict[str, tuple[type, str]] = {"int": (int, "an integer"), "str": (str, "text")}


def plain_arguments(function: Function) -> Function:
    """Takes numpy's numbers and arrays as numbers and lists; refuses what is no integer or no text."""
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        for name, value in bound.arguments.items():
            parameter = signature.parameters[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                continue
            value = as_plain(value) if isinstance(value, Mapping) or hasattr(value, "tolist") else value
            bound.arguments[name] = value
            kinds = str(parameter.annotation).split(" | ")
            if not {*kinds} <= {*PLAIN, "None"} or (value is None and "None" in kinds):
                continue
            plain = [kind for kind in kinds if kind in PLAIN]
            if isinstance(value, bool) or not isinstance(value, tuple(PLAIN[kind][0] for kind in plain)):
                what = " or ".join(PLAIN[kind][1] for kind in plain)
                raise UserError(f"{name}: expected {what}, found {value!r}")
        return function(*bound.args, **bound.kwargs)

    return cast("Function", checked)


@contextmanager
def as_file(scenario: ScenarioLike) -> Iterator[Path]:
    """The file of a scenario; one that is none is written out as long as it is needed."""
    import io

    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from cascade_sim.scenario.file import scenario_data
    from cascade_sim.scenario.schema import Scenario

    if isinstance(scenario, str | Path):
        yield Path(scenario)
        return
    if not isinstance(scenario, Mapping | Scenario):
        raise UserError(f"scenario: expected the path of a file or a dict, found {scenario!r}")
    data = scenario_data(scenario) if isinstance(scenario, Scenario) else as_plain(scenario)
    text = io.StringIO()
    try:
        YAML(typ="safe").dump(data, text)
    except YAMLError as error:
        raise UserError(f"{NOT_A_PATH}: holds what YAML cannot: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{NOT_A_PATH}.yaml"
        file.write_text(text.getvalue(), encoding="utf-8")
        try:
            yield file
        except ScenarioError as error:  # lines of a file that was made here mean nothing
            raise ScenarioError([_without_place(line, str(file)) for line in error.problems]) from None


def as_plain(value: Any) -> Any:
    """Mappings and sequences of any kind as dicts and lists, numpy's numbers as numbers."""
    if isinstance(value, Mapping):
        return {str(key): as_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(inner) for inner in value]
    return value.tolist() if hasattr(value, "tolist") else value  # numpy's numbers and arrays


def _without_place(line: str, file: str) -> str:
    """`/…/scenario.yaml:3:5 world.ads: …` as `scenario world.ads: …`."""
    if not line.startswith(file):
        return line
    place, _, text = line[len(file) :].partition(" ")
    return f"{NOT_A_PATH}: {text}" if place.startswith(":") else f"{NOT_A_PATH}{line[len(file) :]}"


def checked_overrides(given: Sequence[str]) -> Sequence[str]:
    """The overrides of `set`, which is easily given a text where a list is meant."""
    if isinstance(given, str):
        raise UserError(
            f"set: expected a list of 'path.to.key=value', found the text {given!r}; write [{given!r}]"
        )
    return given


def as_texts(given: Texts) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def at_least_one(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise UserError(f"{name}: expected an integer from 1, found {number}")


def run_path(run: RunLike) -> Path:
    if not isinstance(run, str | Path | RunResult | ImportResult):
        raise UserError(f"expected the folder of a run, or what run() returned, found {run!r}")
    return Path(run) if isinstance(run, str | Path) else run.path


def trusted(run: RunLike, trust: Trust) -> Trust:
    return True if isinstance(run, RunResult) and run.trust else trust
