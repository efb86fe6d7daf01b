"""No code outside of `environments` asks which kind of world it is; the truth does not leave it."""

import ast

import pytest

from house.sources import MODULES, parse, walk

KINDS = {
    *("Synthetic", "Replayed", "Fitted"),
    *("ObservedClicks", "FittedTruth", "LoggedWorld", "FittedWorld", "ResampledReplay"),
    *("ReplayedArrivals", "ResampledArrivals"),
}
ASKED = {"replay", "fitted", "is_drawn", "is_replay"}
OF_A_WORLD = {
    "sim",
    "_sim",
    "environment",
    "_environment",
    "world",
    "replay",
}  # whose attributes these may be
SECTION = ("world", "replay")  # of a scenario: a spec, and no world
# What is by right about one kind. Who needs a replayed log, or a fitted world, says so with `Replayed.of`.
ABOUT_ONE_KIND = {
    "cascade_sim.scenario.sections": "the spec of a world, where its kind is declared",
    "cascade_sim.scenario.log_support": "checks of the section world.replay",
    "cascade_sim.logs.fit.realism": "compares fitted worlds alone, and refuses others before one is made",
}


def name_of(node):
    """The last part of a name: `sim` of `self.sim` and of `sim`; nothing of a call."""
    return getattr(node, "attr", getattr(node, "id", ""))


def kinds_asked(tree):
    """Places where code looks at the kind of a world."""
    found = []
    for node in walk(tree):
        is_asked = isinstance(node, ast.Attribute) and (name_of(node.value), node.attr) != SECTION
        if is_asked and node.attr in ASKED and name_of(node.value) in OF_A_WORLD:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.Call) and name_of(node.func) in ("isinstance", "issubclass", "type"):
            classes = {name_of(part) for given in node.args[1:] for part in ast.walk(given)}
            if classes & KINDS:
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.Compare) and any(
            isinstance(side, ast.Attribute) and side.attr == "kind" and name_of(side.value) in OF_A_WORLD
            for side in (node.left, *node.comparators)
        ):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def truths_taken(tree):
    """Places where the truth of an environment is taken out of it."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("truth", "_truth")
        and name_of(node.value) in OF_A_WORLD
    ]


def offending(find, but=()):
    outside = {
        n: p for n, p in MODULES.items() if not n.startswith("cascade_sim.environments") and n not in but
    }
    found = {name: find(parse(path)) for name, path in outside.items()}
    return {name: places for name, places in found.items() if places}


def test_no_code_outside_of_environments_asks_which_kind_a_world_is():
    assert offending(kinds_asked, ABOUT_ONE_KIND) == {}


def test_what_may_ask_still_does():
    """An entry of the list that asks nothing any more is to be removed."""
    assert set(offending(kinds_asked)) == set(ABOUT_ONE_KIND)


def test_the_truth_stays_in_its_environment():
    assert offending(truths_taken) == {}


@pytest.mark.parametrize(
    "line",
    [
        "if sim.replay is not None: pass",
        "x = self._sim.fitted.store",
        "if not session.sim.is_drawn: pass",
        "if scenario.world.is_replay: pass",
        "y = world.replay.fitted is None",
        "isinstance(sim.environment, Replayed)",
        "isinstance(x, (int, world.FittedWorld))",
        "if scenario.world.kind == 'replayed': pass",
    ],
)
def test_a_planted_question_would_be_found(line):
    assert len(kinds_asked(ast.parse(line))) == 1


def test_what_is_no_question_is_left_alone():
    text = (
        "Replayed.of(sim.environment).replay\nspec.kind == 'mlp'\nself.fitted\nassignment.is_drawn(block)\n"
    )
    assert kinds_asked(ast.parse(text)) == []
    assert len(truths_taken(ast.parse("sim.truth.ctr(a, b)\nenvironment._truth\nsubject.truth\n"))) == 2
