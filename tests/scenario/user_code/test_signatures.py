"""Options of a class are compared with its signature before anything is run."""

import pytest
from torch import nn

from answers.told import refused, tells
from cascade_sim.checks.model import check_model
from cascade_sim.context import RunContext
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario import load_scenario, plugins
from cascade_sim.scenario.plugins import find_module, register_model
from cascade_sim.scenario.user_code.signatures import signature_in
from cascade_sim.study.run import run_study

SOURCE = """
raise RuntimeError("a check must not run this")
import other
from base import Grandparent
from functools import wraps

class Net:
    def __init__(self, request_width, ad_width, pair_width, dims=12, *, hidden: int = 8): ...

class Child(Net):
    def forward(self): ...

class Grandchild(Grandparent): ...

class Open:
    def __init__(self, *widths, **options): ...

class Strict:
    def __init__(self, request_width, ad_width, pair_width, dims): ...

class Narrow:
    def __init__(self, width): ...

class Bids:
    def __init__(self, portfolio, margin=0.1): ...

class Clicks:
    def __init__(self, slot_effects, patience=0.5): ...

@wraps
class Decorated:
    def __init__(self, width): ...

class Made(metaclass=other.Meta): ...

class Far(other.Base): ...

Named = Net
"""
BASE = "class Grandparent:\n    def __init__(self, request_width, ad_width, pair_width, depth=2): ...\n"
MODELS = """name: own
cascade: {pre_ranking: {model: truth}, ranking: {model: truth}}
arms: {now: {}}
models:
  mine:
    kind: %s
    options: %s
"""
BIDDERS = """name: own
cascade: {pre_ranking: {model: truth}, ranking: {model: truth}}
arms: {now: {}}
market:
  bidders: {b: {kind: "%s", options: %s}}
"""
CLICKS = """name: own
cascade: {pre_ranking: {model: truth}, ranking: {model: truth}}
arms: {now: {}}
market: {users: {click_model: "%s", options: %s}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(SOURCE)
    (tmp_path / "base.py").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    plugins.MODEL_KINDS.registered.clear()


def problems(folder, text, *overrides):
    file = folder / "own.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError) as raised:
        load_scenario(file, overrides)
    return [line.removeprefix(f"{file}:") for line in raised.value.problems]


@pytest.mark.parametrize("kind", ["net.py:Net", "net:Net", "net.py:Child"])
def test_a_misspelt_option_of_a_model_is_refused_with_line_key_and_the_name_it_was_meant_as(folder, kind):
    (problem,) = problems(folder, MODELS % (kind, "{dim: 16}"))
    assert problem.startswith("7:15 models.mine.options.dim: ")
    assert tells(problem, "'dims'?", "hidden")


def test_an_option_that_the_command_line_gives_is_refused_as_such(folder):
    (problem,) = problems(folder, MODELS % ("net.py:Net", "{}"), "models.mine.options.dim=16")
    assert problem.startswith("--set models.mine.options.dim=16: ") and "'dims'" in problem


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        (BIDDERS % ("net.py:Bids", "{margn: 1}"), "market.bidders.b.options.margn", "'margin'"),
        (BIDDERS % ("pid", "{kp: 1}"), "market.bidders.b.options.kp", "'k_p'"),
        (CLICKS % ("net.py:Clicks", "{patient: 1}"), "market.users.options.patient", "'patience'"),
        (CLICKS % ("cascade", "{leav: 1}"), "market.users.options.leav", "leav"),
        (MODELS % ("towers", "{dim: 8}"), "models.mine.options.dim", "'dims'"),
        (MODELS % ("coaction", "{dims: 8}"), "models.mine.options.dims", "beside kind"),
        (MODELS % ("net.py:Grandchild", "{dept: 8}"), "models.mine.options.dept", "'depth'"),
        (MODELS % ("net.py:Net", "{ad_width: 8}"), "models.mine.options.ad_width", "the engine gives"),
        (MODELS % ("net.py:Strict", "{}"), "models.mine.options", "value dims"),
        (MODELS % ("net.py:Narrow", "{}"), "models.mine.options", "found Narrow(width)"),
    ],
)
def test_what_a_class_does_not_take_is_refused(folder, text, key, meant):
    (problem,) = problems(folder, text)
    assert f" {key}: " in problem and tells(problem, *meant.split())


def test_a_key_of_the_built_in_nets_is_not_lost_on_a_class_that_has_it_too(folder):
    (problem,) = problems(folder, (MODELS % ("net.py:Net", "{}")) + "    dims: 16\n")
    assert problem.startswith("8:5 models.mine.dims: ") and "options: {dims: 16}" in problem


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("net.py:Net", "{dims: 3, hidden: 2}"),
        ("net.py:Child", "{hidden: 2}"),
        ("net.py:Open", "{whatever: 1}"),
        ("net.py:Strict", "{dims: 1}"),
        ("net.py:Grandchild", "{depth: 1}"),
        # What only running the file could tell is left to who runs it.
        ("net.py:Decorated", "{a: 1}"),
        ("net.py:Made", "{a: 1}"),
        ("net.py:Far", "{a: 1}"),
        ("net.py:Named", "{a: 1}"),
    ],
)
def test_what_a_class_takes_or_may_take_passes_and_its_file_is_not_run(folder, kind, options):
    (folder / "own.yaml").write_text(MODELS % (kind, options))
    assert load_scenario("own.yaml").models["mine"].kind == kind


def test_a_base_that_is_its_own_base_has_no_signature(folder):
    (folder / "circle.py").write_text("from circle import A\n")
    assert signature_in(folder / "circle.py", "A", find_module) is None


class Registered(nn.Module):
    def __init__(self, request_width, ad_width, pair_width, dims=12):
        super().__init__()

    def forward(self, request, ads, pair):
        return ads.sum(-1)


def test_a_registered_class_is_asked_itself(folder):
    register_model("own-net", Registered)
    (problem,) = problems(folder, MODELS % ("own-net", "{dim: 16}"))
    assert tells(problem, "models.mine.options.dim", "'dims'?")


def test_a_run_asks_the_class_itself_before_it_touches_the_folder(folder):
    """A class whose signature is not in its text: `validate` cannot tell, a run must before it begins."""
    (folder / "late.py").write_text(
        "from torch import nn\n"
        "def make(base):\n"
        "    class Late(base):\n"
        "        def __init__(self, request_width, ad_width, pair_width, dims=12): ...\n"
        "    return Late\n"
        "Late = make(nn.Module)\n"
    )
    (folder / "own.yaml").write_text(MODELS % ("late.py:Late", "{dim: 16}"))
    scenario = load_scenario("own.yaml")
    with refused("models.mine.options.dim:", "'dims'?"):
        run_study(scenario, RunContext(folder / "run"))
    assert not (folder / "run").exists()


def test_check_model_refuses_options_that_a_built_in_net_would_not_see():
    with refused("towers:", "dim:", "'dims'"):
        check_model("towers", options={"dim": 3})
