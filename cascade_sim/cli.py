"""The command line. Sub-commands are imported when they are called, so `--help` answers at once."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from cascade_sim.foundation.errors import Notice, UserError, lacks_memory, shortened, unknown_name
from cascade_sim.foundation.loading import keep_memory, leave_quickly, loading
from cascade_sim.foundation.signals import STOPPED, Terminated, check_interrupt, stoppable
from cascade_sim.foundation.terminal import echo, shown
from cascade_sim.version import __version__

# Group -> command -> the line that --help shows without importing it. What is under Checks as check-model
# is the attribute `command` of cascade_sim/commands/checks/check_model.py.
COMMAND_GROUPS = {
    "Studies": {
        "run": "Run a study: simulate, train, compare the arms, write the report.",
        "init": "Create a project folder with a scenario, custom classes and a revenue test.",
        "report": "Regenerate the report of a finished run.",
        "validate": "Check a scenario and summarise it, without running it.",
        "schema": "Print the JSON schema of scenario files, for editors.",
        "variants": "Run a study under several settings, side by side.",
        "sweep": "Run a grid of settings and report the Pareto-optimal ones.",
        "tune": "Tune model hyperparameters on held-out requests, with equal budgets.",
        "theory": "Verify regret bounds of surrogate losses numerically.",
        "ltr": "Compare objectives on learning-to-rank files.",
    },
    "Analysis": {
        "trace": "Explain one request: why an ad won or lost at each stage.",
        "whatif": "Re-evaluate a run under other serving parameters (same requests, common random numbers).",
        "serve": "Explore finished runs in the browser: change a parameter, see the effect.",
        "critical-bids": "Minimum bids that keep each slot, in the auction and through the cascade.",
        "landscape": "Impressions, clicks and cost of one ad as a function of its bid.",
        "compare": "Compare finished runs: scenario differences and metric differences.",
        "contrast": "Paired contrasts of arms over seeds, against one arm (Holm-adjusted).",
        "off-policy": "Off-policy estimates of other policies from randomised logs.",
        "coverage": "Measure the coverage of off-policy intervals over replicated logs.",
    },
    "Logs": {
        "import-logs": "Import auction logs for replay; every command opens them like a run.",
        "export-logs": "Write a run's auctions as log tables, with the mapping that imports them.",
        "audit-logs": "Re-run every logged auction under the declared rule and report mismatches.",
        "fit-world": "Fit a simulated world to an imported log.",
        "realism": "Test the realism of a fitted world against its log.",
    },
    "Checks": {
        "baseline": "Store a run's revenue baseline for `check`.",
        "check": "Test a scenario for revenue regressions against a baseline.",
        "check-power": "Measure the power and false-positive rate of `check`.",
        "check-model": "Test a custom model class for conformance.",
        "check-retriever": "Test a custom retriever class for conformance.",
        "check-bidder": "Test a custom bidder class for conformance.",
        "check-auctions": "Compare the auction with its plain-Python reference on random auctions.",
        "bench": "Measure the speed of serving, scoring and training.",
    },
}
COMMANDS = {
    name: (f"cascade_sim.commands.{group.lower()}.{name.replace('-', '_')}", text)
    for group, lines in COMMAND_GROUPS.items()
    for name, text in lines.items()
}


class LazyGroup(click.Group):
    """The commands of the table above, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with loading():
            command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise UserError(unknown_name("command", args[0], COMMANDS))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SystemExit as error:  # commands return their code: a user's class, in a place of no name
            raise UserError(f"a custom class ends the program, by sys.exit({error.code!r})") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))  # of all groups: one column of texts
        for group, lines in COMMAND_GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in lines.items()])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="cascade_sim")
def cli() -> None:
    """Simulate a multi-stage ad-ranking cascade with its auction, and compare what to change in it."""


def _words(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
    """A notice as a sentence, said once in a command; any other warning as Python has it."""
    if not issubclass(category, Notice):
        return shown(_FORMAT(message, category, *place, **more))
    text = f"note: {message}\n"
    if text in _said:
        return ""
    _said.add(text)
    return shown(text)


_FORMAT = warnings.formatwarning
_said: set[str] = set()  # notices of this command


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    0 done; 2 a mistake in the input, explained on stderr; 130 interrupted, 143 by SIGTERM. A traceback is a
    defect.
    """
    try:
        warnings.formatwarning = _words
        _said.clear()
        leave_quickly()
        keep_memory()
        with stoppable():
            return _answered(argv)
    except KeyboardInterrupt as interrupt:  # before the work, after it, or while its end is told
        return _stopped(interrupt)


def _answered(argv: Sequence[str] | None) -> int:
    try:
        try:
            code = cli.main(
                args=None if argv is None else list(argv), prog_name="cascade_sim", standalone_mode=False
            )
        except click.Abort:  # of an interrupt
            raise
        except (UserError, click.ClickException):
            check_interrupt()
            raise
        except Exception as error:
            check_interrupt()  # what breaks while a second Ctrl-C cuts through the cleaning up is no defect
            if lacks_memory(error):
                raise MemoryError(error) from error
            raise
        if sys.stdout is not None:  # it is closed: `cascade_sim … >&-`
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UserError as error:
        for line in getattr(error, "problems", (str(error),)):
            echo(f"error: {line}", err=True)
        return 2
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            echo(error.format_message())
            return 2
        if context is not None:
            echo(context.get_usage(), err=True)
        echo(f"error: {shortened(_message(error))}", err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        # click puts an Abort in place of the interrupt; a command may have said in it how to go on
        interrupts = (cause for cause in (error.__cause__, error) if isinstance(cause, KeyboardInterrupt))
        return _stopped(next(interrupts, KeyboardInterrupt()))
    except MemoryError as error:
        reason = f" ({shortened(str(error)).splitlines()[0]})" if str(error) else ""
        echo(
            f"error: there is not enough memory{reason}; `validate` tells how much a scenario takes", err=True
        )
        return 1
    except (BrokenPipeError, SystemExit):  # `cascade_sim schema | head`; click answers by an exit of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # of stdout on a full disk, or of a file in a place of no name
        with suppress(OSError):
            name = f" {error.filename}" if error.filename else ""
            echo(f"error: cannot read or write{name}: {error.strerror or error}", err=True)
        _drop_output()
        return 1


def _message(error: click.ClickException) -> str:
    """What click says, or the new name of an option that was renamed."""
    renamed = None
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        from cascade_sim.commands.renamed import renamed_option

        renamed = renamed_option(error.ctx.info_name, error.option_name)
    return renamed or error.format_message()


def _stopped(interrupt: KeyboardInterrupt) -> int:
    """Say that the command was stopped, and how to go on if it is known; the exit code."""
    is_end = isinstance(interrupt, Terminated)
    what, how = "terminated" if is_end else "interrupted", str(interrupt)
    echo(f"{what}; {how}" if how else what, err=True)
    return STOPPED if is_end else 130


def _drop_output() -> None:
    """What is left in the buffer has nowhere to go, and Python would complain at its end."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
