"""One function builds paths of a run's folder and one opens its files: who does it otherwise is found."""

import ast

import pytest

from cascade_sim.storage.folder import ANSWERS, PREVIOUS, RUN_ENTRIES
from house.sources import SOURCES, parse, walk
from places import ROOT

ENTRIES = {*RUN_ENTRIES, ANSWERS, PREVIOUS}
CONSTANTS = {"MANIFEST", "METRICS", "CHECKPOINTS", "LOGS", "ANSWERS", "PREVIOUS", "BLOCKS", "PARTS"}
READS = {"read_bytes", "read_text", "safe_open", "ParquetFile", "read_table", "read_schema", "read_metadata"}

# Where files are opened otherwise, and why that is no file of a run.
ALLOWED = {
    "cascade_sim/storage/files.py": "what the others use",
    "cascade_sim/storage/lock.py": "opened to be written; it follows no link and waits for no pipe",
    "cascade_sim/storage/parquet.py": "writes to a temporary file, which it has just made",
    "cascade_sim/storage/environment.py": "what the system says of the processor",
    "cascade_sim/storage/code_version.py": "this package's own code",
    "cascade_sim/foundation/compilation.py": "machine code below the user's cache folder, checked otherwise",
    "cascade_sim/foundation/precompile.py": "this package's own code, and files that come with it",
    "cascade_sim/commands/studies/init.py": "files that come with this package",
    "cascade_sim/live/server.py": "files that come with this package",
    "analysis/report/template.py": "files that come with this package",
    "cascade_sim/scenario/memory.py": "what the system says of its memory",
    "cascade_sim/bench/losses.py": "what the system says of its memory",
    "cascade_sim/cli.py": "the null device, in place of a stdout that is gone",
    "cascade_sim/ltr/files.py": "a data set that the user names",
    "cascade_sim/logs/importing/sources.py": "log tables that the user names",
    "cascade_sim/logs/importing/importer.py": "log tables that the user names",
    "cascade_sim/logs/importing/spill.py": "a temporary folder of its own",
    "cascade_sim/logs/store/store.py": "a market that is being written",
    "agents/traffic_profiles.py": "a profile that the user names, found to be a regular file",
    "models/calibrators/__init__.py": "its caller has found a regular file",
}


def built(tree):
    """`folder / "metrics.json"` and `folder / METRICS`: paths of a run that `below` should have built."""
    told = {id(part) for n in walk(tree) if isinstance(n, ast.FormattedValue) for part in ast.walk(n)}
    divisions = [n for n in walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
    return [
        f"line {node.lineno}: / {ast.unparse(node.right)}"
        for node in divisions
        if is_entry(node.right) and id(node) not in told  # a path in a message is opened by none
    ]


def is_entry(node):
    """Whether this names an entry of a run: a text, a constant, or a text that begins as a world's folder."""
    if isinstance(node, ast.Constant):
        return node.value in ENTRIES
    if isinstance(node, ast.JoinedStr) and node.values:
        return str(getattr(node.values[0], "value", "")).startswith("seed-")
    return getattr(node, "id", getattr(node, "attr", "")) in CONSTANTS


def openings(tree):
    """Calls that open a file by its path, but for those of numpy that read from memory."""
    found = []
    for node in walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        is_numpy = ast.unparse(node.func) in (
            "np.load",
            "np.fromfile",
            "np.memmap",
            "np.lib.format.open_memmap",
        )
        of_memory = bool(node.args) and ast.unparse(node.args[0]).startswith(
            ("io.BytesIO(", "raw", "_checked(raw")
        )
        if (name in READS or name == "open" or is_numpy) and not of_memory and not is_of_our_table(node):
            found.append(f"line {node.lineno}: {ast.unparse(node.func)}")
    return found


def is_of_our_table(node):
    """`read_table(folder, name)` of storage.tables, which is not pyarrow's."""
    return isinstance(node.func, ast.Name) and node.func.id == "read_table"


def offenders(find, allowed=()):
    found = {path.relative_to(ROOT).as_posix(): find(parse(path)) for path in SOURCES}
    return {name: what for name, what in found.items() if what and name not in allowed}


def test_paths_of_a_run_are_built_by_one_function():
    assert offenders(built) == {}


def test_files_of_a_run_are_opened_by_one_function():
    assert offenders(openings, ALLOWED) == {}


def test_no_exception_outlives_its_reason():
    assert sorted(set(ALLOWED) - set(offenders(openings))) == []


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (built, 'load(folder / "metrics.json")'),
        (built, "(run.path / METRICS).exists()"),
        (built, "folder / seals.MANIFEST"),
        (built, 'out / "whatif" / name'),
        (built, 'out / f"seed-{n}" / name'),
        (openings, "json.loads(path.read_bytes())"),
        (openings, 'with path.open("rb") as file: pass'),
        (openings, "open(path)"),
        (openings, "np.load(path)"),
        (openings, "pq.ParquetFile(path)"),
        (openings, "safe_open(path, framework='pt')"),
    ],
)
def test_an_offender_would_be_found(find, text):
    assert len(find(ast.parse(text))) == 1


def test_what_the_functions_give_is_no_offence():
    text = 'read_file(below(folder, METRICS))\nnp.load(io.BytesIO(data))\nread_table(folder, "log")\na / b'
    assert built(ast.parse(text)) == openings(ast.parse(text)) == []
