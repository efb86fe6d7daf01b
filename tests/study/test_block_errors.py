"""A block that cannot be served is named; what may pass is tried again."""

from types import SimpleNamespace

import pytest

from answers.told import refused
from cascade_sim.environments import arrivals
from cascade_sim.environments.arrivals import TRIES, Arrivals, BlockError, serve_block
from cascade_sim.foundation.errors import UserError
from worlds.tiny_market import make_block, tiny_scenario


class Failing:
    """Raises these, one per call; then serves."""

    def __init__(self, *errors):
        self.errors, self.calls = list(errors), 0

    def __call__(self, block):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return len(block)


BLOCK = make_block([1, 2, 3], first_request=2_000_000_256)
WHERE = "phase log, requests 2000000256 to 2000000258"


@pytest.mark.drill
@pytest.mark.parametrize("error", [MemoryError(), OSError(24, "Too many open files")])
def test_want_of_memory_or_files_may_pass(error):
    serve = Failing(*[error] * (TRIES - 1))
    assert serve_block("log", BLOCK, serve) == 3
    assert serve.calls == TRIES == 3


@pytest.fixture
def collected(monkeypatch):
    """Collections of garbage that were asked for; a real one takes a second in a process of many tests."""
    asked = []
    monkeypatch.setattr(arrivals, "gc", SimpleNamespace(collect=lambda: asked.append("all")))
    return asked


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "MemoryError"),
        (MemoryError("Unable to allocate 9.3 GiB"), "MemoryError: Unable to allocate 9.3 GiB"),
        (OSError(24, "Too many open files"), "OSError: [Errno 24] Too many open files"),
    ],
)
def test_a_block_that_fails_three_times_is_named(error, words, collected):
    serve = Failing(*[error] * 9)
    with pytest.raises(UserError) as caught:
        serve_block("log", BLOCK, serve)
    assert str(caught.value) == f"{WHERE} failed 3 times: {words}"
    assert serve.calls == 3 and caught.value.__cause__ is error
    assert collected == ["all"] * 2  # between two tries


def test_a_defect_is_named_at_once_and_a_message_for_people_is_left_as_it_is():
    # Wording: the error's own words come through as they are.
    serve = Failing(IndexError("out of bounds"))
    with pytest.raises(BlockError) as caught:
        serve_block("log", BLOCK, serve)
    assert str(caught.value) == f"{WHERE}: IndexError: out of bounds"
    assert serve.calls == 1 and isinstance(caught.value.__cause__, IndexError)
    serve = Failing(UserError("model 'mine': this page is not for me"))
    with refused("model 'mine':"):
        serve_block("log", BLOCK, serve)
    assert serve.calls == 1


@pytest.mark.drill
@pytest.mark.parametrize("workers", [1, 3])
def test_a_phase_names_the_block_that_ends_it_whoever_serves_it(sim, workers):
    served = []

    def serve(block):
        if block.requests[0] == 2_000_000_200:
            raise MemoryError
        return len(block)

    market = Arrivals(sim.world, tiny_scenario("traffic.block=100").traffic, workers)
    with refused("phase log", 2000000200, 2000000299, "3 times"):
        market.run_phase("log", 500, serve, lambda block, n: served.append(n))
    assert served == [100, 100]  # what came before it
