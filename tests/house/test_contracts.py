"""`cascade_sim.protocols` is the one page of contracts: documented, with examples, met by what is shipped."""

import ast
import doctest
import inspect

import pytest

from cascade_sim import protocols
from cascade_sim.agents.registry import BIDDERS, CLICK_MODELS
from cascade_sim.cascade import logged, scorers
from cascade_sim.cascade.request import Block
from cascade_sim.cascade.retrievers import similarity
from cascade_sim.environments.evaluators.log import LogEvaluator
from cascade_sim.environments.evaluators.truth import TruthEvaluator
from cascade_sim.environments.fitted import Fitted
from cascade_sim.environments.replayed import Replayed
from cascade_sim.environments.synthetic import Synthetic
from cascade_sim.environments.uncertainty.base import NoUncertainty
from cascade_sim.environments.uncertainty.click_model import ClickModelUncertainty
from cascade_sim.environments.uncertainty.replicates import ReplicateUncertainty
from cascade_sim.world.availability import AdAvailability
from house.sources import MODULES, parse, walk

CONTRACTS = [getattr(protocols, name) for name in protocols.__all__]
RECORDS = (protocols.Portfolio, protocols.MarketTime, protocols.Feedback)  # in the example of Bidder
SHIPPED = {
    protocols.Scorer: (scorers.RandomScorer, scorers.ConstantScorer, scorers.TruthScorer, scorers.ModelScorer,
                       logged.LoggedScorer),
    protocols.Retriever: (similarity.Retrieval, logged.LoggedRetrieval),
    protocols.Availability: (AdAvailability,),
    protocols.Bidder: tuple(BIDDERS.values()),
    protocols.ClickModel: tuple(CLICK_MODELS.values()),
    protocols.Evaluator: (TruthEvaluator, LogEvaluator),
    protocols.Uncertainty: (NoUncertainty, ClickModelUncertainty, ReplicateUncertainty),
    protocols.Environment: (Synthetic, Replayed, Fitted),
}  # fmt: skip


def methods(contract):
    """{name: function} that the contract itself declares."""
    return {
        name: member
        for name, member in vars(contract).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }


@pytest.mark.parametrize(
    "contract", [one for one in CONTRACTS if one not in RECORDS], ids=lambda c: c.__name__
)
def test_a_contract_has_an_example_that_is_true(contract):
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(contract, contract.__name__, module=False, globs={**vars(protocols)})
    tried = doctest.DocTestRunner(verbose=False).run(example)
    assert tried.attempted > 0 and tried.failed == 0


@pytest.mark.parametrize("contract", CONTRACTS, ids=protocols.__all__)
def test_a_method_names_its_arguments_and_what_it_returns(contract):
    for name, method in methods(contract).items():
        text, signature = method.__doc__, inspect.signature(method)
        assert ("Returns:" in text or "Return " in text) == (signature.return_annotation != "None"), name
        for argument in list(signature.parameters)[1:]:
            assert f"{argument}: " in text.partition("Args:")[2], f"{name}({argument})"


def positional(function):
    """How many arguments a method takes by position: at least, and at most."""
    taken = list(inspect.signature(function).parameters.values())[1:]
    return sum(one.default is one.empty for one in taken), len(taken)


@pytest.mark.parametrize(
    "contract, own", [(c, own) for c, classes in SHIPPED.items() for own in classes], ids=lambda c: c.__name__
)
def test_what_is_shipped_meets_its_contract(contract, own):
    for name, method in methods(contract).items():
        least, most = positional(getattr(own, name))
        needed, given = positional(method)
        assert least <= needed and most >= given, name


def test_a_block_has_what_scorers_and_retrievers_read():
    members = {name for name, member in vars(protocols.Requests).items() if isinstance(member, property)}
    assert members and members <= set(Block.__dataclass_fields__)


def contracts_in(tree):
    """Protocols and abstract classes that a file defines: {name: bases}."""
    classes = {
        node.name: [ast.unparse(base) for base in node.bases]
        for node in walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    return {
        name: bases
        for name, bases in classes.items()
        if any(base.split("[")[0].split(".")[-1] in ("Protocol", "ABC", name) for base in bases)
    }


def second_definitions(name, tree):
    """Contracts of this page that a file defines once more, and not by inheriting them."""
    return [
        f"{name}: {defined}"
        for defined, bases in contracts_in(tree).items()
        if defined in protocols.__all__ and not any(base.startswith(f"protocols.{defined}") for base in bases)
    ]


def test_each_contract_is_defined_once():
    others = {name: path for name, path in MODULES.items() if name != "cascade_sim.protocols"}
    assert [found for name, path in others.items() for found in second_definitions(name, parse(path))] == []


@pytest.mark.parametrize("bases", ["Protocol", "Protocol[T]", "abc.ABC", "other.Scorer"])
def test_a_second_definition_would_be_found(bases):
    assert second_definitions("mine", ast.parse(f"class Scorer({bases}): pass")) == ["mine: Scorer"]
    assert second_definitions("mine", ast.parse("class Scorer(protocols.Scorer): pass")) == []
