"""Old names of options are refused with their new name; every new name is an option of its command."""

import pytest

from answers.told import tells
from cascade_sim.cli import cli, main
from cascade_sim.commands.renamed import RENAMED

PAIRS = [(command, old, new) for command, names in RENAMED.items() for old, new in names.items()]


@pytest.mark.parametrize(("command", "old", "new"), PAIRS)
def test_an_old_option_is_refused_with_its_new_name(command, old, new, capsys):
    known = {name for option in cli.get_command(None, command).params for name in option.opts}
    assert new in known and old not in known
    for given in ([old, "1"], [f"{old}=1"]):
        assert main([command, *given]) == 2
        told = capsys.readouterr().err
        assert tells(told, f"error: {old}", f"`{command}`", new)


def test_an_unknown_option_is_refused_as_ever(capsys):
    assert main(["check", "--frsh", "1"]) == 2
    assert "is called" not in capsys.readouterr().err
