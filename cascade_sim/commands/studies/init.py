"""`cascade_sim init`: a folder to start from, with a scenario and custom classes."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from cascade_sim.commands.options import PATH
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import echo

# File in the new folder -> the shipped one it is a copy of.
TEMPLATES = {
    "scenario.yaml": "my_model.yaml",
    "my_model.py": "my_model.py",
    "my_bidder.py": "my_bidder.py",
    "my_user.py": "my_user.py",
    "test_revenue.py": "example_test_revenue.py",
}


@click.command()
@click.argument("folder", type=PATH, default=Path("."))
def command(folder: Path) -> None:
    """Create a project folder with a scenario, custom classes and a revenue test.

    Into FOLDER, by default this one. Each file says at its top what it is. A file that is there already is
    never replaced.
    """
    from cascade_sim.storage.files import storage_errors, write_file
    from cascade_sim.version import folder_of

    there = [name for name in TEMPLATES if (folder / name).exists()]
    if there:
        raise UserError(f"{folder / there[0]} is there already; give another folder, or move it away first")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give the name of a folder")
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, template in TEMPLATES.items():
        write_file(folder / name, (folder_of("scenarios") / template).read_bytes())
        echo(folder / name)
    go = "" if folder.resolve() == Path.cwd() else f"  cd {shlex.quote(str(folder))}\n"
    echo(
        f"\nTry, in this order:\n{go}"
        "  python -m cascade_sim run scenario.yaml\n"
        "  python -m cascade_sim check-model my_model.py:CrossedTowers\n"
        "  pytest --update-revenue-baseline && pytest"
    )
