"""All code of a user's class is part of a run's identity and of the key of a trained model.

However the class is named, wherever the line that was edited stands, in a new process or in this one.
"""

import json
import sys

import pytest

from answers.told import tells
from cascade_sim.cli import main
from cascade_sim.foundation.errors import UserError
from cascade_sim.scenario import plugins
from cascade_sim.scenario.plugins import BIDDER_KINDS
from cascade_sim.storage import user_code
from cascade_sim.study import run as study
from worlds.timed_market import MARKET, WORLD

BIDDER = """
from cascade_sim.agents.bidders.fixed import Fixed
{imports}

class Own(Fixed):
    def bids(self, now):
        {late}
        return self.value * {factor}
"""
NET = """
import torch
{imports}

class Net(torch.nn.Module):
    def __init__(self, request_width, ad_width, pair_width):
        super().__init__()
        self.request_side = torch.nn.Linear(request_width, 4)
        self.ad_side = torch.nn.Linear(ad_width, 4)

    def forward(self, request, ads, pair):
        {late}
        return (self.request_side(request).unsqueeze(1) * self.ad_side(ads)).sum(-1) * {factor}
"""
# How the factor comes into the class: (imports at the top, line in the method, the factor), and its file.
WAYS = {
    "in its own file": ("", "", "1.00", None),
    "from a helper": ("from helping import FACTOR", "", "FACTOR", "helping.py"),
    "from a helper's helper": ("import between", "", "between.FACTOR", "helping.py"),
    "from a sub-folder": ("from deep.down.helping import FACTOR", "", "FACTOR", "deep/down/helping.py"),
    "from the folder's __init__": ("import deep.down.helping as h", "", "h.deep.FACTOR", "deep/__init__.py"),
    "imported when it is needed": ("", "from helping import FACTOR", "FACTOR", "helping.py"),
    "by a computed name": (
        "import importlib\nFACTOR = importlib.import_module('help' + 'ing').FACTOR",
        "",
        "FACTOR",
        "helping.py",
    ),
    "by a computed name, when it is needed": (
        "import importlib",
        "FACTOR = importlib.import_module('help' + 'ing').FACTOR",
        "FACTOR",
        "helping.py",
    ),
}
FORMS = {"module": "shelf.own:{}", "file": "own.py:{}", "file in a sub-folder": "shelf/own.py:{}"}
# Every way once, for tests that take seconds: two of them always, all by `make drill`.
PAIRS = [
    pytest.param(way, form, marks=() if n in (1, 6) else pytest.mark.drill)
    for n, (way, form) in enumerate(zip(WAYS, 3 * [*FORMS], strict=False))
]


def lay(folder, text, name, way, form, factor="1.00"):
    """The class and all that it needs, with this factor; the same number of bytes for each."""
    imports, late, used, where = WAYS[way]
    (folder / "shelf").mkdir(exist_ok=True)
    (folder / "deep" / "down").mkdir(parents=True, exist_ok=True)
    constant = f"FACTOR = {factor}\n"
    files = {
        "shelf/__init__.py": "",
        "deep/__init__.py": "",
        "deep/down/__init__.py": "",
        "deep/down/helping.py": "import deep\n",
        "between.py": "from helping import FACTOR\n",
    }
    if where is not None:
        files[where] = files.get(where, "") + constant
    place = "own.py" if form == "file" else "shelf/own.py"
    files[place] = text.format(imports=imports, late=late, factor=factor if where is None else used)
    for file, content in files.items():
        (folder / file).write_text(content)
    return FORMS[form].format(name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder on Python's path; what is loaded from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in user_code.loaded():
        sys.modules.pop(name, None)
    user_code._loaded.clear()
    user_code._late.clear()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", [way for way in WAYS if "computed" not in way])
def test_the_text_alone_shows_what_a_class_brings_in(folder, way, form):
    """Nothing is loaded: what is imported later counts as well."""
    kind = lay(folder, BIDDER, "Own", way, form)

    def digests():
        if plugins.is_file_reference(kind):
            return plugins.code_of_file(kind, folder)
        return user_code.code_from(kind.rpartition(":")[0])

    before = digests()
    lay(folder, BIDDER, "Own", way, form, "0.50")
    after = digests()
    assert before.keys() == after.keys() and before != after
    assert not any(name in sys.modules for name in ("helping", "between", "deep", "shelf"))
    assert not any("torch" in label or label.startswith("cascade_sim") for label in before)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", [way for way in WAYS if "when it is needed" not in way])
def test_a_class_is_loaded_as_it_is_written_now(folder, way, form):
    """Edited within the same second to as many bytes, in a process that has loaded it before."""
    for factor in ("1.00", "0.50", "1.00"):
        kind = lay(folder, BIDDER, "Own", way, form, factor)
        own = plugins.find_class(BIDDER_KINDS, kind, folder)
        bidder = own.__new__(own)
        bidder.value = 8.0
        assert bidder.bids(None) == 8.0 * float(factor)


SCENARIO = {
    **WORLD,
    "phases": {"cold_start": 64, "log": 64, "shadow": 0, "evaluate": 64},
    "arms": {"now": {}},
    "market": {**MARKET, "days": 0.005, "bidders": {"own": {"kind": "?"}}},
}


@pytest.fixture
def no_report(monkeypatch):
    monkeypatch.setattr(study, "write_report", lambda *arguments, **options: None)


def revenue(out):
    return json.loads((out / "metrics.json").read_text())["market"]["arms"]["now"]["revenue"]


def run(folder, out, kind, *options):
    market = {**SCENARIO["market"], "bidders": {"own": {"kind": kind}}}
    (folder / "own.yaml").write_text(json.dumps({**SCENARIO, "market": market}))
    return main(["run", "own.yaml", "--out", str(out), "--workers", "1", "--quiet", *options])


@pytest.mark.parametrize(("way", "form"), PAIRS)
@pytest.mark.few(1)
def test_an_edited_bidder_is_never_answered_with_the_old_revenue(folder, capsys, no_report, way, form):
    """25.61 where a fresh folder gave 10.44, exit 0: only files named x.py:Class were digested."""
    kind = lay(folder, BIDDER, "Own", way, form)
    assert run(folder, folder / "out", kind) == 0
    assert run(folder, folder / "out", kind, "--resume") == 0  # the same: it is there
    lay(folder, BIDDER, "Own", way, form, "0.50")
    capsys.readouterr()
    assert run(folder, folder / "out", kind, "--resume") == 2
    said = capsys.readouterr().err
    edited = WAYS[way][3]
    assert tells(said, "other content")
    assert (edited or "own").rpartition("/")[2].removesuffix(".py").replace("__init__", "deep") in said
    assert run(folder, folder / "out", kind) == 0 and run(folder, folder / "fresh", kind) == 0
    assert revenue(folder / "out") == revenue(folder / "fresh")


def test_a_class_that_is_edited_while_its_run_is_under_way_spoils_it(folder, capsys, monkeypatch, no_report):
    kind = lay(folder, BIDDER, "Own", "from a helper", "file")
    real = study._write_tables

    def edited(*arguments):
        lay(folder, BIDDER, "Own", "from a helper", "file", "0.50")
        return real(*arguments)

    monkeypatch.setattr(study, "_write_tables", edited)
    assert run(folder, folder / "out", kind) == 2
    assert tells(capsys.readouterr().err, "helping", "edited")
    assert json.loads((folder / "out" / "manifest.json").read_text())["status"] == "running"


@pytest.mark.drill
def test_the_worlds_of_a_study_are_not_taken_for_those_of_the_old_code(folder, no_report):
    """Not even if it was a module that nobody could see coming; the study knows what its worlds loaded."""
    from cascade_sim.scenario.file import load_scenario

    way = "by a computed name, when it is needed"
    for factor in ("1.00", "0.50"):
        kind = lay(folder, BIDDER, "Own", way, "module", factor)
        market = {**SCENARIO["market"], "bidders": {"own": {"kind": kind}}}
        (folder / "own.yaml").write_text(json.dumps({**SCENARIO, "market": market}))
        scenario = load_scenario(folder / "own.yaml")
        study.run_world(scenario, folder / "seed-1", "cpu")
        fresh = study.run_world(scenario, folder / f"fresh-{factor}", "cpu")
        assert revenue(folder / "seed-1") == fresh["market"]["arms"]["now"]["revenue"]
    manifest = json.loads((folder / "seed-1" / "manifest.json").read_text())
    assert "helping" in manifest["user_code"]  # it came in at the dry run


LATER = (
    "Own.n = getattr(Own, 'n', 0) + 1; "
    "FACTOR = importlib.import_module('help' + 'ing').FACTOR if Own.n > 3 else 1.0"
)


def test_what_comes_in_when_the_market_is_under_way_belongs_to_the_class_from_then_on(
    folder, capsys, monkeypatch, no_report
):
    monkeypatch.setitem(WAYS, "later", ("import importlib", LATER, "FACTOR", "helping.py"))
    kind = lay(folder, BIDDER, "Own", "later", "module")
    for out, key in (("first", "late_code"), ("second", "user_code")):
        assert run(folder, folder / out, kind) == 0
        assert "helping" in json.loads((folder / out / "manifest.json").read_text())[key]
    lay(folder, BIDDER, "Own", "later", "module", "0.50")
    for out in ("first", "second"):
        capsys.readouterr()
        assert run(folder, folder / out, kind, "--resume") == 2
        assert "helping" in capsys.readouterr().err


LEARNING = {
    **WORLD,
    "cascade": {**WORLD["cascade"], "ranking": {"model": "rank", "bid": "init"}},  # type: ignore[dict-item]
    "arms": {"now": {}},
}


@pytest.mark.parametrize(("way", "form"), PAIRS)
@pytest.mark.few(1)
def test_an_edited_net_is_trained_again(folder, monkeypatch, no_report, way, form):
    """RCS .607 from the cache where the retrained net gave .482: only neighbours in its folder counted."""
    from cascade_sim.training import fit as recipes

    trained = []
    real = recipes.train
    monkeypatch.setattr(recipes, "train", lambda *a, **o: trained.append(1) or real(*a, **o))
    monkeypatch.setenv("CASCADE_SIM_CACHE", str(folder / "cache"))
    weights = {}
    for step, factor in enumerate(("1.00", "0.50", "1.00")):
        kind = lay(folder, NET, "Net", way, form, factor)
        rank = {"kind": kind, "features": ["user", "quality", "G1"], "epochs": 1}
        (folder / "own.yaml").write_text(json.dumps({**LEARNING, "models": {"rank": rank}}))
        out = folder / f"out-{step}"
        assert main(["run", "own.yaml", "--out", str(out), "--workers", "1", "--quiet"]) == 0
        weights[step] = (out / "models" / "rank.safetensors").read_bytes()
    assert weights[0] == weights[2] != weights[1]
    # First deployment and model, twice; the third run finds those of the first.
    assert len(trained) == 4


def test_what_is_out_of_sight_is_kept_out_of_the_cache_not_taken_from_it(folder, monkeypatch):
    lay(folder, NET, "Net", "by a computed name, when it is needed", "file")
    own = plugins.find_class(plugins.MODEL_KINDS, "own.py:Net", folder)
    import torch

    net, before = own(3, 3, 0), user_code.loaded()
    assert "helping" not in user_code.code_of(own)
    net(torch.zeros(1, 3), torch.zeros(1, 2, 3), torch.zeros(1, 2, 0))
    assert user_code.note_late(own, before) == {"helping"} and "helping" in user_code.code_of(own)


def test_installed_packages_and_this_project_are_not_ones_own():
    import json as standard

    import numpy

    from cascade_sim.agents import bidding

    assert not any(user_code.is_own(module.__file__) for module in (standard, numpy, bidding, plugins))
    assert user_code.is_own(__file__) and not user_code.is_own("_classes.py")


def test_a_class_that_is_nowhere_is_told_as_before(folder):
    with pytest.raises(UserError, match="no file 'nowhere.py'"):
        plugins.find_class(BIDDER_KINDS, "nowhere.py:Own", folder)
