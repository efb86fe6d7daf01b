import importlib.util
import sys

import pytest
import torch

from cascade_sim.models.nets.coaction import CoAction
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.storage import code_version, user_code
from cascade_sim.storage.code_version import model_code_digest, source_digest


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Two packages of a file each, in place of the project's."""
    for name in ("cascade_sim", "models", "analysis"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "one.py").write_text("x = 1\n")
        (tmp_path / name / "notes.txt").write_text("no code")
    names = (*code_version.PACKAGES,)
    monkeypatch.setattr(code_version, "_FOLDERS", {name: tmp_path / name for name in names})
    source_digest.cache_clear()
    yield tmp_path
    source_digest.cache_clear()


def again(*packages):
    source_digest.cache_clear()
    return source_digest(packages) if packages else source_digest()


def test_the_digest_is_of_the_content_and_the_names_of_all_python_files(sources):
    before = again()
    assert len(before) == 16 and int(before, 16) >= 0
    (sources / "cascade_sim" / "notes.txt").write_text("other notes")
    assert again() == before
    file = sources / "cascade_sim" / "deep" / "one.py"
    file.write_text("x = 2\n")
    changed = again()
    assert changed != before
    file.rename(file.with_name("two.py"))
    assert again() not in (before, changed)
    (sources / "cascade_sim" / "deep" / "two.py").write_text("x = 1\n")
    (sources / "cascade_sim" / "deep" / "two.py").rename(file)
    assert again() == before


@pytest.mark.parametrize("package", ["cascade_sim", "models", "analysis"])
def test_whatever_makes_a_result_is_part_of_its_code(sources, package):
    before, nets = again(), again("models")
    (sources / package / "new.py").write_text("")
    assert again() != before
    assert (again("models") != nets) == (package == "models")


def test_the_digest_of_the_project_is_that_of_its_own_files():
    source_digest.cache_clear()
    for package, some in (("cascade_sim", "cascade/serve.py"), ("models", "training.py")):
        assert (code_version._FOLDERS[package] / some).is_file()
    assert source_digest() != source_digest(("models",)) != source_digest(("cascade_sim",))


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


NET = "import torch\n\nclass Net(torch.nn.Module):\n    pass\n"


@pytest.fixture
def folder(tmp_path):
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_a_built_in_net_trains_by_our_own_code_alone():
    assert model_code_digest(TwoTowers(3, 3, 0)) == source_digest(("models",))
    assert model_code_digest(CoAction(3, 3, 0)) == source_digest(("models",))
    assert model_code_digest(torch.nn.Linear(1, 1)) != source_digest(("models",))


def test_a_model_of_ones_own_trains_by_its_file_what_that_imports_and_our_code(folder, monkeypatch):
    # Of modules that are written down as they are loaded, what was run counts, not what lies there now.
    finders = [finder for finder in sys.meta_path if type(finder).__module__ != user_code.__name__]
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.syspath_prepend(folder)
    (folder / "net.py").write_text("import deep.helper\n" + NET)
    (folder / "deep").mkdir()
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "deep" / "helper.py").write_text("a = 1\n")
    (folder / "beside.py").write_text("a = 1\n")
    net = load(folder / "net.py", "my_net").Net()
    before = model_code_digest(net)
    assert before.endswith(source_digest(("models",)))
    (folder / "beside.py").write_text("a = 2\n")
    load(folder / "beside.py", "beside")
    assert model_code_digest(net) == before  # the net does not import it
    seen = {before}
    for name in ("deep/helper.py", "deep/__init__.py", "net.py"):
        (folder / name).write_text((folder / name).read_text() + "# a change\n")
        assert model_code_digest(net) not in seen
        seen.add(model_code_digest(net))


def test_the_place_of_the_folder_does_not_matter(folder):
    digests = set()
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "net.py").write_text(NET)
        digests.add(model_code_digest(load(folder / name / "net.py", "net").Net()))
    assert len(digests) == 1


def test_modules_without_a_file_do_not_count_in_the_working_folder(folder, monkeypatch):
    """Torch's pseudo-modules say `__file__ = "_classes.py"`, which resolves into the working folder."""
    (folder / "net.py").write_text(NET)
    net = load(folder / "net.py", "my_net").Net()
    elsewhere = model_code_digest(net)
    monkeypatch.chdir(folder)
    assert any(getattr(module, "__file__", None) == "_classes.py" for module in list(sys.modules.values()))
    assert model_code_digest(net) == elsewhere
