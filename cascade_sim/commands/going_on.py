"""What an interrupted command tells its user: the command that goes on from there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import click
from click.core import ParameterSource


@contextmanager
def says_how_to_go_on(*more: str) -> Iterator[None]:
    """An interrupt inside carries the words of the command that is running, with `more` after them."""
    try:
        yield
    except KeyboardInterrupt:
        words = command_words(click.get_current_context())
        words += [word for word in more if word not in words]
        raise KeyboardInterrupt(f"go on with: {shlex.join(words)}") from None


def command_words(context: click.Context) -> list[str]:
    """The command as it was called: its arguments, and the options that were given."""
    words = ["python", "-m", "cascade_sim", str(context.info_name)]
    options: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE:
            continue
        if isinstance(parameter, click.Argument):
            words += [str(one) for one in (value if isinstance(value, tuple) else (value,))]
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            options += [parameter.opts[0]] if value else []
        else:
            values = value if isinstance(value, tuple) else (value,)
            options += [word for one in values for word in (parameter.opts[0], str(one))]
    return words + options
