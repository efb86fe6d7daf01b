"""What may not be called anywhere, and what the command line may load at its start."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from house.sources import LEAVES, SOURCES, imported, parse
from places import ROOT

HEAVY = {"torch", "pandas", "seaborn", "matplotlib", "numba", "pyarrow", "scipy", "numpy", "simpy"}


def names(paths):
    return [str(path.relative_to(ROOT)) for path in paths]


def dangers(tree):
    """Calls that run or rebuild code from data."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        call = ast.unparse(node.func)
        if call in ("eval", "exec", "compile", "__import__", "yaml.load", "yaml.unsafe_load", "torch.load"):
            found.append(f"line {node.lineno}: {call}")
        if call in ("np.load", "numpy.load") and any(k.arg == "allow_pickle" for k in node.keywords):
            found.append(f"line {node.lineno}: {call} with allow_pickle")
        if call.endswith("YAML") and any(
            k.arg == "typ" and ast.unparse(k.value) == "'unsafe'" for k in node.keywords
        ):
            found.append(f"line {node.lineno}: an unsafe YAML reader")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=names(SOURCES))
def test_no_code_comes_out_of_data(path):
    tree = parse(path)
    pickles = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}
    assert not {name.split(".")[0] for name in imported(tree)} & pickles
    assert dangers(tree) == []


def test_dangerous_calls_would_be_found():
    text = "eval('1')\nyaml.load(x)\nnp.load(f, allow_pickle=True)\nYAML(typ='unsafe')\ntorch.load(f)\n"
    assert len(dangers(ast.parse(text))) == 5


@pytest.mark.parametrize("path", SOURCES, ids=names(SOURCES))
def test_no_source_names_a_place_on_somebodys_machine(path):
    text = path.read_text(encoding="utf-8")
    assert not any(place in text for place in ("/work", "/tmp/", "/root", "/home/"))


def reached_at_start(first):
    """Our modules that importing `first` imports, and what of the heavy packages they load."""
    seen, heavy, waiting = set(), {}, [first]
    while waiting:
        name = waiting.pop()
        parts = name.split(".")
        base = ROOT / Path(*(parts[1:] if len(parts) > 1 and parts[1] in LEAVES else parts))
        path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        if name in seen or not path.is_file():
            continue
        seen.add(name)
        for other in imported(parse(path), only_at_start=True):
            if other.split(".")[0] in HEAVY:
                heavy.setdefault(name, set()).add(other.split(".")[0])
            elif other.split(".")[0] == "cascade_sim":
                waiting.append(other)
    return seen, heavy


@pytest.mark.parametrize(
    "command", sorted(p.stem for p in (ROOT / "cascade_sim" / "commands").glob("[a-z]*.py"))
)
def test_a_command_loads_heavy_packages_only_once_it_works(command):
    seen, heavy = reached_at_start(f"cascade_sim.commands.{command}")
    assert heavy == {} and f"cascade_sim.commands.{command}" in seen


def test_the_command_line_starts_without_heavy_packages():
    seen, heavy = reached_at_start("cascade_sim.cli")
    assert {"cascade_sim.cli", "cascade_sim.errors"} <= seen and heavy == {}
    code = "import sys, cascade_sim.cli; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not set(loaded) & HEAVY and "click" in loaded
