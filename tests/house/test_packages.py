"""Packages import packages of lower layers only; no cycles; no package is too full to be listed."""

from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from house import layers_picture
from house.sources import LEAVES, MODULES, SOURCES, edges, imported, parse
from places import ROOT

# From the ground up. A package imports packages of lower layers and itself, inside functions and for type
# checkers too; packages of one layer do not know each other.
LAYERS = (
    {"version", "protocols"},
    {"foundation"},
    {"auction", "storage", *LEAVES},
    {"logs.store"},
    {"scenario", "engines"},
    {"world", "logs.importing", "context"},
    {"logs.replay"},
    {"cascade"},
    {"environments"},
    {"training", "logs.audit"},
    {"study"},
    {"market", "diagnostics", "ope", "ltr"},
    {"counterfactual", "logs.export"},
    {"live", "logs.fidelity"},
    {"logs.fit", "experiments", "regression", "checks", "bench"},
    {"study.run"},
    {"study.sweeps"},
    {"api"},
    {"commands", "pytest_plugin"},
    {"cli"},
    {"__main__"},
)
LAYER = {package: height for height, packages in enumerate(LAYERS) for package in packages}
MAX_MODULES = 24


@pytest.fixture(scope="module")
def imports():
    """Which modules each module imports."""
    return edges(MODULES)


@cache
def package(module):
    """The longest name in LAYER: cascade_sim.cascade.serve is in the package cascade.

    "" for cascade_sim itself, and for a folder that only holds packages.
    """
    parts = module.split(".")[1:]
    names = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    is_holder = any(name.startswith(f"{module}.") for name in (f"cascade_sim.{package}" for package in LAYER))
    found = next((name for name in names if name in LAYER), "")
    return found if found or is_holder or not parts else parts[0]


def test_every_package_has_its_layer():
    assert {package(module) for module in MODULES} - {""} == set(LAYER)


@pytest.mark.parametrize("name", sorted(LAYER))
def test_a_package_imports_only_from_below(name, imports):
    upward = [
        f"{module} imports {other}"
        for module, others in imports.items()
        for other in others
        if package(module) == name != package(other) and LAYER.get(package(other), len(LAYERS)) >= LAYER[name]
    ]
    assert upward == []


def cycle(graph):
    """Modules that import each other in a ring, or None."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_modules_import_each_other(imports):
    assert cycle(imports) is None


def test_a_cycle_of_lazy_imports_would_be_found(tmp_path):
    (tmp_path / "a.py").write_text("def f():\n    from cascade_sim import b\n")
    (tmp_path / "b.py").write_text("if TYPE_CHECKING:\n    from cascade_sim.a import f\n")
    made = {f"cascade_sim.{name}": tmp_path / f"{name}.py" for name in "ab"}
    ring = cycle(edges(made))
    assert set(ring) == set(made)


def test_nothing_is_imported_by_a_name_that_a_user_may_have():
    theirs = {*LEAVES, "tests", "scenarios"}
    firsts = {path: {name.split(".")[0] for name in imported(parse(path))} for path in SOURCES}
    assert {
        str(path.relative_to(ROOT)): names & theirs for path, names in firsts.items() if names & theirs
    } == {}


def test_the_picture_of_the_docs_shows_each_package_above_all_that_it_may_import():
    drawing = ElementTree.parse(ROOT / "docs" / "architecture.svg")
    heights = {text.text: float(text.get("y")) for text in drawing.iter("{http://www.w3.org/2000/svg}text")}
    assert set(LAYER) <= set(heights)
    for lower, upper in pairwise(LAYERS):
        assert min(heights[name] for name in lower) > max(heights[name] for name in upper)


def test_the_picture_of_the_docs_is_drawn_from_the_layers():
    drawn = layers_picture.FILE.read_text(encoding="utf-8")
    assert drawn == layers_picture.drawing(LAYERS), layers_picture.__doc__


def test_a_listing_of_any_folder_is_short_enough_to_read():
    folders = {path.parent for path in (*SOURCES, *(ROOT / "tests").rglob("*.py"))}
    crowded = {
        str(folder.relative_to(ROOT)): len(list(folder.glob("*.py")))
        for folder in folders
        if len(list(folder.glob("*.py"))) > MAX_MODULES
    }
    assert crowded == {}
