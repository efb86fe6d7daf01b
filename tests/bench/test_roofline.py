"""The arithmetic floor counts what the formulas need, not what the kernels do."""

import numpy as np
import pytest

from cascade_sim.bench import Spread, in_turn, roofline, serving
from cascade_sim.cascade.cost import SIGMOID_FLOPS


@pytest.fixture(scope="module")
def arm():
    return serving.build()[1]


def test_more_candidates_are_more_work_and_the_request_side_counts_once(arm):
    work = roofline.request_work(arm)
    module = arm.stages[0].scorer.module
    request = 2 * sum(parameter.numel() for parameter in module.request_tower.parameters())
    width = 14 + 2  # and the two biases
    assert work["pre-ranking"].flops == request + 500 * (2 * width + SIGMOID_FLOPS + 1)
    assert work["pre-ranking"].bytes == 500 * (4 * width + 4 + 4)


@pytest.mark.parametrize(("flops", "read", "micros"), [(3e9, 1e6, 3.0), (1e6, 4e6, 4.0)])
def test_the_longer_of_calculating_and_reading_counts(flops, read, micros):
    peak = roofline.Peak(flops=1e15, bandwidth=1e12)
    assert roofline.Work(flops, read).micros(peak) == pytest.approx(micros)


def test_the_loops_do_what_they_are_timed_for():
    values = np.arange(4 * roofline.ROW, dtype=np.float32)
    assert roofline._read(values, 2) == 2 * values.sum()
    # x -> 0.999 x + 0.001 stays at 1 and takes every other number towards it.
    assert 80 < roofline._multiply_add(50) < roofline.CHAINS * 8 * 5
    assert roofline._multiply_add(20_000) == pytest.approx(80, rel=1e-3)


def test_multiplying_and_adding_run_in_vectors_and_are_measured():
    peak = roofline.measured_peak(1e5, repeats=2, steps=1000)
    assert peak.flops > 0 and peak.bandwidth > 0


def test_what_is_compared_takes_turns():
    order = []
    spreads = in_turn({name: lambda name=name: order.append(name) or float(len(order)) for name in "ab"}, 3)
    assert order == ["a", "b"] * 3
    assert spreads["a"] == Spread(1.0, 2.0, 3.0, 4.0, 3) and spreads["b"].median == 4.0


def test_a_spread_in_another_unit():
    assert Spread.of([1.0, 3.0, 2.0]).times(10.0) == Spread(10.0, 15.0, 20.0, 25.0, 3)
    assert Spread.of([1.0, 3.0, 2.0]).text() == "2.0 (least 1.0, quartiles 1.5 to 2.5)"
