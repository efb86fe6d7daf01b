"""`cascade_sim serve`: a page on this machine where knobs are turned and the money is seen to move."""

from __future__ import annotations

from pathlib import Path

import click

from cascade_sim.commands.options import PATH
from cascade_sim.errors import UserError

EXIT_CODES = """\b
Exit code  0  stopped by Ctrl-C
           2  a mistake in the command, or an address that cannot be had"""
NEEDS = ("starlette", "uvicorn")


@click.command(epilog=EXIT_CODES)
@click.argument("runs", type=PATH, nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8350, show_default=True, help="0: any free one."
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Another than this machine needs --token."
)
@click.option("--token", metavar="SECRET", help="What a visitor has to know; at least 16 signs.")
@click.option(
    "--trust", is_flag=True, help="Run the code of model classes of one's own that came with the runs."
)
def command(runs: tuple[Path, ...], port: int, host: str, token: str | None, trust: bool) -> int:
    """Open finished runs and imported markets on a page: turn a knob, see the money move.

    Answers come from 2,048 requests at once and are refined to all. Nothing is written, and nothing leaves
    this machine. A run that cannot be opened is named on the page.
    """
    require_packages()
    from cascade_sim.live.server import Live, door_of, listening, serve_page

    door = door_of(host, token)
    listener = listening(host, port)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listener.getsockname()[1]}/" + (f"?token={token}" if token else "")
    live = Live(runs, trust)
    for offered in live.runs.offered:
        if offered.error is not None:
            click.echo(f"warning: {offered.error}", err=True)
    click.echo(f"{address}   (stop with Ctrl-C)")
    live.begin()
    try:
        serve_page(live, door, listener)
    except KeyboardInterrupt as interrupt:
        if type(interrupt) is not KeyboardInterrupt:
            raise
    finally:
        live.close()
        listener.close()
    click.echo("stopped")
    return 0


def require_packages() -> None:
    """UserError with the command to install what the page needs."""
    from importlib.util import find_spec

    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        raise UserError(
            f"the live page needs {' and '.join(missing)}; install with: pip install 'cascade_sim[live]'"
        )
