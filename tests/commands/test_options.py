"""An interrupted command says how to go on, in words that can be pasted."""

import click
import pytest

from cascade_sim import cli
from cascade_sim.cli import main
from cascade_sim.commands.options import says_how_to_go_on


@pytest.fixture
def stopped(monkeypatch):
    """A command that is interrupted while it works."""

    @click.command()
    @click.argument("file")
    @click.option("--set", "overrides", multiple=True)
    @click.option("--seeds", type=int, default=1)
    @click.option("--resume", is_flag=True)
    @click.option("--quiet", is_flag=True)
    def command(**parameters):
        with says_how_to_go_on("--resume"):
            raise KeyboardInterrupt

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda self, context, name: command)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a.yaml"], "run a.yaml --resume"),
        (["a.yaml", "--quiet", "--resume"], "run a.yaml --resume --quiet"),
        (["--seeds", "3", "my world.yaml"], "run 'my world.yaml' --seeds 3 --resume"),
        (
            ["a.yaml", "--set", "a.b=[1, 2]", "--set", "c=2"],
            "run a.yaml --set 'a.b=[1, 2]' --set c=2 --resume",
        ),
    ],
)
def test_the_command_is_said_as_it_was_called_and_how_it_goes_on(stopped, capsys, given, said):
    assert main(["run", *given]) == 130
    assert capsys.readouterr().err.strip().endswith(f": python -m cascade_sim {said}")


def test_what_cannot_go_on_is_just_interrupted(monkeypatch, capsys):
    @click.command()
    def command():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda self, context, name: command)
    assert main(["run"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"
