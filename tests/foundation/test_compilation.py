"""The cache of machine code: never stale, never loaded when damaged or another's, compiled once."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module

import numba
import pytest

from cascade_sim.foundation import compilation, precompile
from cascade_sim.foundation.progress import Progress
from house import kernels_of_a_run
from places import ROOT

OUTER = """
from cascade_sim.foundation.compilation import kernel
from inner import SHIFT, half

@kernel
def outer(x):
    return half(x) + SHIFT
"""
INNER = """
from cascade_sim.foundation.compilation import kernel
from deep import factor

SHIFT = 10

@kernel
def half(x):
    return factor() * x
"""
DEEP = """
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

@intrinsic
def factor(context):
    return types.float64(), lambda context, builder, signature, args: ir.Constant(ir.DoubleType(), 0.5)
"""
CALL = """
from cascade_sim.foundation import compilation

compiled = []
with compilation.watched(lambda name, is_done: is_done or compiled.append(name)):
    from outer import outer
    print(outer(8.0), *compiled)
"""


def write_sources(folder):
    folder.mkdir()
    for name, text in (("outer", OUTER), ("inner", INNER), ("deep", DEEP)):
        (folder / f"{name}.py").write_text(text)
    return folder


def call(sources, place, **more):
    """What the outermost kernel returns in a new process, and which kernels were compiled there."""
    paths = os.pathsep.join([str(sources), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {compilation.FOLDER_VARIABLE: str(place / "cache"), **more}
    done = subprocess.run([sys.executable, "-c", CALL], cwd=place, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result, *compiled = done.stdout.split()
    return float(result), compiled


@pytest.fixture
def sources(tmp_path):
    return write_sources(tmp_path / "sources")


@pytest.fixture
def called(tmp_path):
    return partial(call, place=tmp_path)


@pytest.fixture(scope="module")
def first_cache(tmp_path_factory):
    """The cache after a first call."""
    folder = tmp_path_factory.mktemp("compiled")
    assert call(write_sources(folder / "sources"), folder) == (14.0, ["outer.outer", "inner.half"])
    return folder / "cache"


@pytest.fixture
def compiled(first_cache, tmp_path):
    """A copy of that cache in the place of this test."""
    shutil.copytree(first_cache, tmp_path / "cache")


def files(folder):
    return sorted(folder.rglob("*.kernel"))


@pytest.mark.few(1)
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("file", "old", "new", "result", "anew"),
    [
        ("deep.py", "0.5", "0.25", 12.0, ["outer.outer", "inner.half"]),
        ("inner.py", "factor() * x", "factor() * x + 1", 15.0, ["outer.outer", "inner.half"]),
        ("inner.py", "SHIFT = 10", "SHIFT = 20", 24.0, ["outer.outer", "inner.half"]),
        ("outer.py", "+ SHIFT", "- SHIFT", -6.0, ["outer.outer"]),
    ],
)
def test_an_edit_of_whatever_a_kernel_reaches_is_compiled(called, sources, file, old, new, result, anew):
    (sources / file).write_text((sources / file).read_text().replace(old, new))
    assert called(sources) == (result, anew)
    (sources / file).write_text((sources / file).read_text().replace(new, old))
    assert called(sources) == (14.0, [])


@pytest.mark.usefixtures("compiled")
def test_a_copy_of_the_same_sources_compiles_nothing(called, sources, tmp_path):
    shutil.copytree(sources, tmp_path / "elsewhere" / "copy")
    assert called(tmp_path / "elsewhere" / "copy") == (14.0, [])


@pytest.mark.usefixtures("compiled")
def test_a_file_with_a_flipped_bit_is_compiled_anew(called, sources, tmp_path):
    for kept in files(tmp_path / "cache"):
        content = bytearray(kept.read_bytes())
        content[len(content) // 2] ^= 1
        kept.write_bytes(content)
    assert called(sources) == (14.0, ["outer.outer", "inner.half"])
    assert called(sources) == (14.0, [])
    for kept in files(tmp_path / "cache"):
        kept.write_bytes(kept.read_bytes()[:20])
    assert called(sources) == (14.0, ["outer.outer", "inner.half"])


@pytest.mark.drill
@pytest.mark.usefixtures("compiled")
def test_a_file_under_the_name_of_another_is_not_loaded(called, sources, tmp_path):
    half, outer = files(tmp_path / "cache")
    shutil.copy(half, outer)
    assert called(sources) == (14.0, ["outer.outer"])


@pytest.mark.usefixtures("compiled")
@pytest.mark.drill
@pytest.mark.parametrize("kind", ["cache", "folder", "file", "link"])
def test_what_another_user_could_have_written_is_not_loaded(called, sources, tmp_path, kind):
    _, kept = files(tmp_path / "cache")
    if kind == "link":
        kept.rename(tmp_path / "moved")
        kept.symlink_to(tmp_path / "moved")
    else:
        {"file": kept, "folder": kept.parent, "cache": tmp_path / "cache"}[kind].chmod(0o777)
    anew = ["outer.outer", "inner.half"] if kind in ("cache", "folder") else ["outer.outer"]
    assert called(sources, XDG_CACHE_HOME=str(tmp_path / "home")) == (14.0, anew)
    assert len(files(tmp_path / "home")) == (2 if kind == "cache" else 0)


@pytest.mark.usefixtures("compiled")
@pytest.mark.drill
def test_settings_of_numba_have_machine_code_of_their_own(called, sources, tmp_path):
    assert called(sources, NUMBA_BOUNDSCHECK="1")[1] == ["outer.outer", "inner.half"]
    assert called(sources, NUMBA_OPT="0")[1] == ["outer.outer", "inner.half"]
    assert called(sources, NUMBA_NUM_THREADS="1")[1] == []
    assert len({kept.parent for kept in files(tmp_path / "cache")}) == 3


@pytest.mark.drill
def test_folders_by_name_by_home_and_where_neither_can_be_written(called, sources, tmp_path):
    none = {compilation.FOLDER_VARIABLE: ""}
    called(sources, **none, XDG_CACHE_HOME=str(tmp_path / "xdg"))
    called(sources, **none, NUMBA_CACHE_DIR=str(tmp_path / "numba"))
    called(sources, **none, XDG_CACHE_HOME="", HOME=str(tmp_path / "home"))
    (tmp_path / "tmp").mkdir()
    # A device is no folder, whoever asks; a home that cannot be written shows the same way.
    unwritable = {"XDG_CACHE_HOME": os.devnull, "TMPDIR": str(tmp_path / "tmp")}
    called(sources, **none, **unwritable)
    for folder in ("xdg/cascade_sim/kernels", "numba/cascade_sim", "home/.cache/cascade_sim/kernels", "tmp"):
        assert len(files(tmp_path / folder)) == 2, folder
    assert called(sources, **none, **unwritable) == (14.0, [])


@pytest.mark.drill
def test_processes_that_start_together_compile_each_kernel_once(called, sources):
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: called(sources), range(3)))
    assert [result for result, _ in done] == [14.0] * 3
    assert sorted(name for _, names in done for name in names) == ["inner.half", "outer.outer"]


def test_old_states_of_the_sources_and_old_stacks_are_removed(tmp_path):
    folder = tmp_path / "numba-now"
    for name in ["numba-now", *(f"numba-{i}" for i in range(6))]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "f-00-00.kernel").write_text("")
        os.utime(tmp_path / name, (100 if name == "numba-now" else int(name[-1]),) * 2)
    for i in range(12):
        (folder / f"f-00-{i:02}.kernel").write_text("")
        os.utime(folder / f"f-00-{i:02}.kernel", (i, i))
    os.utime(folder, (100, 100))
    compilation._tidy(folder / "f-00-99.kernel")
    kept = range(12 - compilation.EDITIONS + 1, 12)
    assert sorted(path.name for path in folder.iterdir()) == [f"f-00-{i:02}.kernel" for i in kept]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["numba-3", "numba-4", "numba-5", "numba-now"]


def test_what_has_no_digest_is_not_kept():
    with pytest.raises(compilation._UnknownContent):
        compilation._Sources().add("odd", object(), [])


def listed():
    return precompile.LIST.read_text(encoding="utf-8").splitlines()


def test_every_line_of_the_list_is_a_kernel_and_its_types():
    for line in listed():
        name, _, texts = line.partition(": ")
        module, _, kernel = name.rpartition(".")
        if texts:
            types = tuple(precompile._type(*match.groups()) for match in precompile._TYPE.finditer(texts))
            assert precompile.line_of(module, kernel, types) == line
            assert hasattr(import_module(module), kernel), line
    assert precompile.line_of("m", "f", (numba.types.UniTuple(numba.types.int64, 2),)) == ""


@pytest.mark.drill
def test_the_list_is_compiled_once_by_several_processes(tmp_path, monkeypatch):
    lines = [
        line
        for line in listed()
        if line.startswith(
            ("cascade_sim.foundation.kernels.is_finite", "cascade_sim.foundation.kernels._is_full")
        )
    ]
    monkeypatch.setattr(precompile, "LIST", tmp_path / "list.txt")
    precompile.LIST.write_text("\n".join([*lines, "cascade_sim.foundation.kernels.gone: int64"]))
    monkeypatch.setenv(compilation.FOLDER_VARIABLE, str(tmp_path / "cache"))
    precompile._mark.cache_clear()
    precompile.precompile(Progress(quiet=True), workers=2)
    kept = {file.name.partition("-")[0] for file in files(tmp_path / "cache")}
    assert {line.partition(":")[0] for line in lines} <= kept
    monkeypatch.setattr(precompile, "run_jobs", None)  # would fail if there were anything to do
    precompile.precompile(Progress(quiet=True), workers=2)
    precompile._mark.cache_clear()


@pytest.mark.drill
def test_the_list_has_the_kernels_of_a_usual_run():
    assert listed() == kernels_of_a_run.of_quick(), "python tests/house/kernels_of_a_run.py writes it"
