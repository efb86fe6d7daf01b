"""What may not be called anywhere, and what the command line may load at its start."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from house.sources import LEAVES, MODULES, SOURCES, imported, parse, walk
from places import ROOT

HEAVY = {"torch", "pandas", "matplotlib", "numba", "pyarrow", "scipy", "numpy", "simpy"}


def offending(find):
    """File -> what `find` finds in it, of the files where it finds anything."""
    found = {str(path.relative_to(ROOT)): find(path) for path in SOURCES}
    return {name: what for name, what in found.items() if what}


DANGEROUS = {"eval", "exec", "compile", "__import__", "load", "unsafe_load", "YAML"}  # last parts of names


def dangers(tree):
    """Calls that run or rebuild code from data."""
    found = []
    for node in walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if getattr(node.func, "attr", getattr(node.func, "id", "")) not in DANGEROUS:
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


def test_no_code_comes_out_of_data():
    pickles = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}
    # numba's machine code is code in any format: tests/foundation/test_compilation.py has what guards it.
    machine_code = {"cascade_sim/foundation/compilation.py": {"pickle"}}
    found = offending(lambda path: {name.split(".")[0] for name in imported(parse(path))} & pickles)
    assert found == machine_code
    assert offending(lambda path: dangers(parse(path))) == {}


def own_caches(tree):
    """Calls that leave machine code to numba's own cache, which does not see edits of what a kernel calls."""
    return [
        f"line {node.lineno}: {ast.unparse(node.func)}"
        for node in walk(tree)
        if isinstance(node, ast.Call) and any(keyword.arg == "cache" for keyword in node.keywords)
        if "jit" in ast.unparse(node) or "vectorize" in ast.unparse(node)
    ]


def test_all_kernels_are_kept_in_one_cache():
    assert offending(lambda path: own_caches(parse(path))) == {}
    text = "@njit(cache=True)\ndef f(): 0\npartial(numba.njit, cache=True)\ndict(cache=1)\n@njit\ndef g(): 0"
    assert len(own_caches(ast.parse(text))) == 2


def test_dangerous_calls_would_be_found():
    text = "eval('1')\nyaml.load(x)\nnp.load(f, allow_pickle=True)\nYAML(typ='unsafe')\ntorch.load(f)\n"
    assert len(dangers(ast.parse(text))) == 5


PRINTING = re.compile(
    r"print|(click|typer|rich)\.(echo|secho|print|style)|traceback\.print_\w+|sys\.std(out|err)\.write"
)


def prints(tree):
    """Calls that print past `cascade_sim.foundation.terminal.echo`; what they get is to be `shown` first."""
    calls = [node for node in walk(tree) if isinstance(node, ast.Call)]
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in calls
        if PRINTING.fullmatch(ast.unparse(node.func))
        and not any(ast.unparse(given).startswith("shown(") for given in node.args)
    ]


def test_what_is_printed_is_made_harmless_first():
    assert offending(lambda path: prints(parse(path))) == {}


def test_a_name_that_is_printed_as_it_is_would_be_found():
    text = "click.echo(name)\nprint(name)\ntraceback.print_exc()\nsys.stderr.write(name)\n"
    assert len(prints(ast.parse(text))) == 4 and prints(ast.parse("click.echo(shown(name))")) == []


def test_no_source_names_a_place_on_somebodys_machine():
    places = ("/work", "/tmp/", "/root", "/home/")
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    assert offending(lambda path: [place for place in places if place in texts[path]]) == {}


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


@pytest.mark.parametrize("module", sorted(m for m in MODULES if m.startswith("cascade_sim.commands.")))
def test_a_command_loads_heavy_packages_only_once_it_works(module):
    seen, heavy = reached_at_start(module)
    assert heavy == {} and module in seen


def test_the_command_line_starts_without_heavy_packages():
    seen, heavy = reached_at_start("cascade_sim.cli")
    assert {"cascade_sim.cli", "cascade_sim.foundation.errors"} <= seen and heavy == {}
    code = "import sys, cascade_sim.cli; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not set(loaded) & HEAVY and "click" in loaded
