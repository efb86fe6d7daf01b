"""What a run works with: its defaults, what a user's options make of it, and a folder that does not stay."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from answers.told import refused
from cascade_sim.context import RunContext, run_context, scratch_context
from cascade_sim.engines.local import Local
from worlds.tiny_market import tiny_scenario

MEANS = {"workers": 2, "device": "cpu", "quiet": True}


def test_a_context_is_by_default_of_this_machine_and_in_silence():
    context = RunContext(Path("out"))
    assert (context.home, context.workers, context.device) == (Path("."), 1, "auto")
    assert isinstance(context.engine, Local) and context.progress.is_quiet
    assert context.progress is not RunContext(Path("out")).progress  # its seconds are of one run
    with pytest.raises(FrozenInstanceError):
        context.workers = 2


def test_options_become_a_context():
    context = run_context(Path("out"), [tiny_scenario()], **MEANS)
    assert (context.out, context.workers, context.device) == (Path("out"), 2, "cpu")
    assert context.progress.is_quiet and not (context.engine.is_elsewhere or context.engine.is_far)


@pytest.mark.parametrize(("address", "is_far"), [(None, False), ("10.0.0.1:6379", True)])
def test_an_engine_takes_part_in_a_context_before_it_is_entered(address, is_far):
    context = run_context(Path("out"), [tiny_scenario()], **MEANS, engine="ray", address=address)
    assert context.engine.is_elsewhere and context.engine.is_far is is_far


def test_a_wrong_engine_is_refused_with_a_suggestion():
    with refused("--engine:", "'ray'?"):
        run_context(Path("out"), [tiny_scenario()], **MEANS, engine="rey")


def test_a_scratch_folder_is_gone_at_the_end_also_after_a_failure():
    with pytest.raises(ZeroDivisionError), scratch_context(workers=3) as context:
        assert context.out.is_dir() and context.workers == 3
        (context.out / "log").write_text("x")
        raise ZeroDivisionError
    assert not context.out.exists()
