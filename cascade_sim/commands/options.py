"""Shared by commands: arguments and options, writing to the terminal, resuming a stopped command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from cascade_sim.engines import ENGINES, LOCAL
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import echo, shown
from cascade_sim.foundation.workers import usable_cores

if TYPE_CHECKING:
    from cascade_sim.analysis.report.tables import Table

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Function], Function]

PATH = click.Path(path_type=Path)
DEVICES = ("auto", "cpu", "cuda", "mps")
PLOT_KINDS = (".png", ".svg")

scenario_argument = click.argument("scenario", type=PATH)
run_argument = click.argument("run", type=PATH)
quiet_option = click.option("--quiet", is_flag=True, help="No progress on stderr.")
seed_option = click.option("--seed", type=click.IntRange(min=0), help="Seed, in place of the scenario's.")
reward_option = click.option(
    "--reward", type=click.Choice(["revenue", "clicks"]), default="revenue", show_default=True
)
class_option = click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="Keyword of the class; may be repeated."
)
resume_option = click.option(
    "--resume", is_flag=True, help="Resume the run that was stopped in the run folder."
)


def set_option(where: str = "") -> Decorator[Any]:
    """Overrides of keys of the scenario, `where` it is not plain which."""
    text = f"Override a key{where}; may be repeated."
    return click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=text)


def seeds_option(text: str, default: int | None) -> Decorator[Any]:
    """How many worlds; without a default the text says what is taken."""
    return click.option("--seeds", type=click.IntRange(min=1), default=default, show_default=True, help=text)


def out_option(text: str, metavar: str | None = None, **more: Any) -> Decorator[Any]:
    """Where to write: a folder, or a file as `metavar` says."""
    return click.option("--out", type=PATH, metavar=metavar, help=text, **more)


def workers_option(what: str) -> Decorator[Any]:
    text = f"{what}  [default: the usable cores]"
    return click.option("--workers", type=click.IntRange(min=1), default=usable_cores, help=text)


def engine_options(command: Function) -> Function:
    """Where the work is done."""
    engine = click.option(
        "--engine", metavar="NAME", default=LOCAL, show_default=True,
        help=f"Where the work is done: {', '.join(ENGINES)}. Results do not depend on it.",
    )  # fmt: skip
    address = click.option(
        "--address", metavar="HOST:PORT",
        help="Of a Ray cluster, whose CPUs are then used.  [default: this machine]",
    )  # fmt: skip
    return engine(address(command))


def device_option(default: str = "auto") -> Decorator[Any]:
    text = "Where models are trained."
    return click.option("--device", type=click.Choice(DEVICES), default=default, show_default=True, help=text)


def json_option(text: str) -> Decorator[Any]:
    return click.option("--json", "as_json", is_flag=True, help=text)


def arm_option(text: str) -> Decorator[Any]:
    return click.option("--arm", metavar="NAME", help=text)


def arms_option(text: str) -> Decorator[Any]:
    return click.option("--arm", "arms", multiple=True, metavar="NAME", help=text)


def _plot(context: click.Context, parameter: click.Parameter, file: Path | None) -> Path | None:
    if file is not None and file.suffix.lower() not in PLOT_KINDS:
        raise UserError(f"--plot: {file} should end in .png or .svg")
    return file


plot_option = click.option(
    "--plot", type=PATH, metavar="FILE", callback=_plot, help="Draw it: a .png or .svg file."
)


def _trust(context: click.Context, parameter: click.Parameter, given: bool) -> bool | Callable[[str], bool]:
    """True if it was given; on a terminal the user is asked, once for all the command loads."""
    if given or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return given
    answers: list[bool] = []

    def ask(words: str) -> bool:
        if not answers:
            answers.append(click.confirm(shown(f"{words}\nRun it?"), default=False, err=True))
        return answers[0]

    return ask


trust_option = click.option(
    "--trust", is_flag=True, callback=_trust,
    help="Run the code of custom models and retrievers that came with the run.  [default: ask on a terminal, "
    "else refuse]",
)  # fmt: skip


def _accept_mismatch(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        from cascade_sim.scenario.log_support import accepting_mismatch

        context.with_resource(accepting_mismatch())


accept_option = click.option(
    "--accept-mismatch", is_flag=True, expose_value=False, callback=_accept_mismatch,
    help="Continue with a log that its rule does not reproduce; answers are then no evidence about it.",
)  # fmt: skip


def keywords(options: Sequence[str]) -> dict[str, Any]:
    """Keywords of a class from `--option KEY=VALUE`, with values as a scenario has them."""
    from cascade_sim.scenario.assignments import key_and_value, yaml_value

    given = {}
    for text in options:
        try:
            key, value = key_and_value(text)
            if not key.isidentifier():
                raise ValueError(f"{key!r} is not the name of a keyword")
            given[key] = yaml_value(value)
        except ValueError as reason:
            raise UserError(f"--option {text}: {reason}; expected KEY=VALUE, such as dims=8") from None
    return given


def echo_table(table: Table, width: int) -> None:
    """Print a table, with colours if stdout is a terminal."""
    from cascade_sim.analysis.report.terminal import table_text

    echo(table_text(table, color=sys.stdout.isatty(), width=width))


def write_files(contents: Mapping[Path, bytes], *, is_output_json: bool = False) -> None:
    """Write files, making their folders, and print their paths; beside JSON, where they do not spoil it.

    What is there and was not written by the same command is not replaced.
    """
    from cascade_sim.storage.files import mark_of, refuse_other, storage_errors, write_file

    for path, content in contents.items():
        refuse_other(path, f"output of `{click.get_current_context().info_name}`", mark_of(content))
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
        echo(path, err=is_output_json)


@contextmanager
def says_how_to_go_on(*more: str) -> Iterator[None]:
    """An interrupt inside carries the words of the command that is running, with `more` after them."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        words = command_words(click.get_current_context())
        words += [word for word in more if word not in words]
        raise type(interrupt)(f"resume with: {shlex.join(words)}") from None


def command_words(context: click.Context) -> list[str]:
    """The command as it was called: its arguments, and the options that were given."""
    words = ["python", "-m", "cascade_sim", str(context.info_name)]
    options: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE:
            continue
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(parameter, click.Argument):
            words += [str(word) for word in values]
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            options += [parameter.opts[0]] if value else []
        else:
            options += [word for given in values for word in (parameter.opts[0], str(given))]
    return words + options
