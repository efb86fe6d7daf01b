"""The examples in the docstrings of what users import give what they say."""

import doctest
import importlib

import pytest

MODULES = (
    "cascade_sim.auction.rules",
    "cascade_sim.models.losses",
    "cascade_sim.models.calibrators",
    "cascade_sim.models.objectives",
    "cascade_sim.analysis.metrics",
    "cascade_sim.analysis.off_policy",
    "cascade_sim.analysis.off_policy.launch",
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_true(name):
    tried = doctest.testmod(importlib.import_module(name))
    assert tried.attempted > 2 and tried.failed == 0
