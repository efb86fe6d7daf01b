"""Docstrings of public names: a first line that names the thing, arguments, returns, true examples."""

import doctest
import inspect
import re
import sys

import pytest

import cascade_sim
from cascade_sim import api, protocols
from cascade_sim.agents.registry import BIDDERS, CLICK_MODELS
from cascade_sim.agents.users import click_probability, happens
from cascade_sim.api.questions import checked_bids
from cascade_sim.auction.pricing import RULES
from cascade_sim.scenario.plugins import register_bidder, register_click_model, register_model

LONGEST = 100  # characters of a first line
UNCLEAR = re.compile(r"(What|Who|How|Where|When|Which|Does|Is|Are|Of|The)\b|.*\?$")
PUBLIC = {
    name: getattr(cascade_sim, name) for name in cascade_sim.__all__ if name.islower() and name[0] != "_"
}
FUNCTIONS = {
    **PUBLIC,
    **{one.__name__: one for one in (register_model, register_bidder, register_click_model, checked_bids)},
}
RESULTS = {name: getattr(api, name) for name in api.__all__ if inspect.isclass(getattr(api, name))}
PRICES = {name: rule.price for name, rule in RULES.items()}
AGENTS = {**BIDDERS, **CLICK_MODELS}
CONTRACTS = {name: getattr(protocols, name) for name in protocols.__all__}
PURE = {**PRICES, **AGENTS, "click_probability": click_probability, "happens": happens, "bids": checked_bids}


def members(cls):
    """Public methods and properties that a class itself defines."""
    found = {n: getattr(member, "fget", member) for n, member in vars(cls).items() if not n.startswith("_")}
    return {name: member for name, member in found.items() if inspect.isfunction(member)}


DOCUMENTED = {
    **FUNCTIONS,
    **PURE,
    **{
        f"{group}.{name}" if name else group: member
        for group, cls in {**RESULTS, **CONTRACTS}.items()
        for name, member in {"": cls, **members(cls)}.items()
    },
}


def unclear(text):
    """What is wrong with the first line of a docstring; nothing if it is a noun phrase or an imperative."""
    first = (text or "").strip().partition("\n")[0]
    if not first:
        return "no docstring"
    if UNCLEAR.match(first):
        return f"no noun phrase and no imperative: {first}"
    return f"{len(first)} characters: {first}" if len(first) > LONGEST else ""


def unnamed(function):
    """Arguments that the section Args: of a docstring lacks."""
    args = inspect.getdoc(function).partition("Args:")[2].partition("Returns:")[0]
    return [name for name in inspect.signature(function).parameters if not re.search(rf"\b{name}: ", args)]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_first_line_names_what_it_is_or_does(name):
    assert unclear(DOCUMENTED[name].__doc__) == ""


@pytest.mark.parametrize("text", [None, "What it is.", "The lives of ads.", "Is it good?", "x" * 101])
def test_an_unclear_first_line_would_be_found(text):
    assert unclear(text)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_lists_arguments_returns_and_errors(name):
    function, text = FUNCTIONS[name], inspect.getdoc(FUNCTIONS[name])
    assert unnamed(function) == [] and "Raises:" in text
    if inspect.signature(function).return_annotation not in (None, "None"):
        assert "Returns:" in text


@pytest.mark.parametrize("name", {**PRICES, **AGENTS})
def test_a_pricing_rule_a_bidder_and_a_click_model_list_their_arguments(name):
    assert unnamed({**PRICES, **AGENTS}[name]) == []


def test_a_missing_argument_would_be_found():
    def half(one, two):
        """Take two.

        Args:
            one: the first.
        """

    assert unnamed(half) == ["two"]


@pytest.mark.parametrize("name", PURE)
def test_the_example_is_true(name):
    names = {**vars(sys.modules[PURE[name].__module__])}
    (example,) = doctest.DocTestFinder(recurse=False).find(PURE[name], name, module=False, globs=names)
    tried = doctest.DocTestRunner(verbose=False).run(example)
    assert tried.attempted > 0 and tried.failed == 0
