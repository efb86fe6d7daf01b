"""`cascade_sim serve`: a page on this machine that shows the effect of changed parameters."""

from __future__ import annotations

from pathlib import Path

import click

from cascade_sim.commands.options import PATH, accept_option
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import echo

EXIT_CODES = """\b
Exit code  0  stopped by Ctrl-C
           2  a mistake in the command, an address that cannot be had, or no run that opens"""
NEEDS = ("starlette", "uvicorn")


@click.command(epilog=EXIT_CODES)
@click.argument("runs", type=PATH, nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8350, show_default=True, help="0: any free one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--token", metavar="SECRET", envvar="CASCADE_SIM_TOKEN", show_envvar=True,
    help="Access token, at least 16 characters.  [default: generated]",
)  # fmt: skip
@click.option("--token-file", type=PATH, metavar="FILE", help="A file that holds it.")
@click.option("--trust", is_flag=True, help="Run the code of custom classes stored with the runs.")
@accept_option
def command(
    runs: tuple[Path, ...], port: int, host: str, token: str | None, token_file: Path | None, trust: bool
) -> int:
    """Explore finished runs in the browser: change a parameter, see the effect.

    A RUN may be an imported log. Answers come from 2,048 requests at once and are refined to all. Nothing is
    written, and nothing leaves this machine. A run that cannot be opened is named on the page.
    """
    require_packages()
    from cascade_sim.live.access import door_of, token_in
    from cascade_sim.live.server import Live, listening, serve_page

    if token_file is not None:
        if token is not None:
            raise UserError(
                "--token-file: a token is given by --token or CASCADE_SIM_TOKEN as well; give one"
            )
        token = token_in(token_file)
    listener = listening(host, port)
    live = None
    try:
        door = door_of(host, listener.getsockname()[1], token)
        live = Live(runs, trust)
        try:
            live.begin()
        finally:
            for offered in live.runs.offered:
                if offered.error is not None:
                    echo(f"warning: {offered.error}", err=True)
        echo(f"{door.address(host)}   (stop with Ctrl-C)")
        serve_page(live, door, listener)
    except KeyboardInterrupt as interrupt:
        if type(interrupt) is not KeyboardInterrupt:
            raise
    finally:
        if live is not None:
            live.close()
        listener.close()
    echo("stopped")
    return 0


def require_packages() -> None:
    """UserError with the command to install what the page needs."""
    from importlib.util import find_spec

    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        raise UserError(
            f"the live page needs {' and '.join(missing)}; install with: pip install 'cascade_sim[live]'"
        )
