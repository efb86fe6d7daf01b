"""The examples in the docstrings of what users import give what they say."""

import doctest
import importlib
import sys

import pytest

from cascade_sim.analysis.metrics import ORDER, SCALE
from cascade_sim.models.calibrators import CALIBRATORS
from cascade_sim.models.losses import LOSSES

MODULES = (
    "cascade_sim.protocols",
    "cascade_sim.auction.rules",
    "cascade_sim.models.losses",
    "cascade_sim.models.calibrators",
    "cascade_sim.models.objectives",
    "cascade_sim.analysis.metrics",
    "cascade_sim.analysis.off_policy",
    "cascade_sim.analysis.off_policy.launch",
)
REGISTERED = {**LOSSES, **ORDER, **SCALE, **CALIBRATORS}


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_true(name):
    tried = doctest.testmod(importlib.import_module(name))
    assert tried.attempted > 2 and tried.failed == 0


@pytest.mark.parametrize("name", REGISTERED)
def test_every_loss_metric_and_calibrator_has_an_example_that_is_true(name):
    registered = REGISTERED[name]
    names = {**vars(sys.modules[registered.__module__])}
    (example,) = doctest.DocTestFinder(recurse=False).find(registered, name, module=False, globs=names)
    tried = doctest.DocTestRunner(verbose=False).run(example)
    assert tried.attempted > 0 and tried.failed == 0


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "self_boosted_pair"])
def test_the_help_of_a_loss_has_its_formula_its_arguments_and_what_it_returns(name):
    text = LOSSES[name].__doc__
    assert text.index("Value of a list") < text.index("Args:") < text.index("Returns:")
