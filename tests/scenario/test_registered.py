"""Classes that are registered in Python: named by scenarios of this process, part of a run's identity."""

import numpy as np
import pytest
from torch import nn

from answers.told import refused, tells
from cascade_sim.agents.bidding import Bidder
from cascade_sim.agents.click_models import PositionBased
from cascade_sim.context import RunContext, run_context
from cascade_sim.foundation.errors import ScenarioError, UserError
from cascade_sim.scenario import Scenario, load_scenario, plugins
from cascade_sim.scenario.messages import json_schema
from cascade_sim.scenario.schema import ArmOverrides, Auction, AuctionOverride
from cascade_sim.study.run import run_study
from worlds.timed_market import live

PLAIN = """name: plain
cascade: {pre_ranking: {model: truth}, ranking: {model: truth}}
arms: {now: {}}
"""


class Half(Bidder):
    def bids(self, now):
        return 0.5 * self.payable


class Once(PositionBased):
    pass


class Net(nn.Module):
    def __init__(self, request_width, ad_width, pair_width):
        super().__init__()
        self.weight = nn.Linear(ad_width, 1)

    def forward(self, request, ads, pair):
        return self.weight(ads).squeeze(-1)


class NoForward(nn.Module):
    pass


@pytest.fixture(autouse=True)
def forgotten_afterwards(monkeypatch):
    for kinds in (plugins.MODEL_KINDS, plugins.BIDDER_KINDS, plugins.CLICK_MODEL_KINDS):
        for name in list(kinds.registered):
            monkeypatch.delitem(kinds.registered, name)
    yield
    for kinds in (plugins.MODEL_KINDS, plugins.BIDDER_KINDS, plugins.CLICK_MODEL_KINDS):
        kinds.registered.clear()


def scenario_with(folder, text):
    file = folder / "own.yaml"
    file.write_text(PLAIN + text)
    return load_scenario(file)


ALL = "models: {m: {kind: net}}\nmarket: {bidders: {b: {kind: half}}, users: {click_model: once}}\n"


def register_all():
    plugins.register_model("net", Net)
    plugins.register_bidder("half", Half)
    plugins.register_click_model("once", Once)


def test_a_registered_name_may_be_used_in_scenarios_of_this_process(tmp_path):
    with pytest.raises(ScenarioError, match="unknown bidder 'half'"):
        scenario_with(tmp_path, ALL)
    register_all()
    assert isinstance(scenario_with(tmp_path, ALL), Scenario)
    with refused("'hallf'", "'half'?", kind=ScenarioError):
        scenario_with(tmp_path, "market: {bidders: {b: {kind: hallf}}}\n")


def test_one_class_and_one_line_make_a_bidder(tmp_path):
    plugins.register_bidder("half", Half)
    own, built_in = live({"days": 0.02, "bidders": {"b": {"kind": "half"}}}), live({"days": 0.02})
    fixed = live({"days": 0.02, "bidders": {"b": {"kind": "fixed", "options": {"factor": 0.5}}}})
    assert np.array_equal(own.log["cpc_micros"], fixed.log["cpc_micros"])
    assert own.log["cpc_micros"].sum() < built_in.log["cpc_micros"].sum()


def test_one_file_and_one_line_make_a_built_in_bidder(tmp_path, monkeypatch):
    source = "from cascade_sim.agents.bidding import Bidder\n\n\nclass Drilled(Bidder):\n    pass\n"
    (tmp_path / "drilled_bidder.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(plugins.BIDDERS._places, "drilled", "drilled_bidder:Drilled")
    market = scenario_with(tmp_path, "market: {bidders: {b: {kind: drilled}}}\n").market
    assert plugins.find_class(plugins.BIDDER_KINDS, market.bidders["b"].kind).__name__ == "Drilled"
    with refused("drilled", "'x'", kind=ScenarioError):
        scenario_with(tmp_path, "market: {bidders: {b: {kind: drilled, options: {x: 1}}}}\n")
    assert "drilled" in plugins.BIDDER_KINDS.forms


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: plugins.register_bidder("pid", Half), "'pid' built-in"),
        (lambda: plugins.register_bidder("half", 3), "register_bidder class 3"),
        (lambda: plugins.register_bidder("a.py:b", Half), "letters, digits"),
        (lambda: plugins.register_bidder("b", Once), "Once bids, participation, observe"),
        (
            lambda: plugins.register_click_model("b", Half),
            "expected, clicks",
        ),
        (lambda: plugins.register_model("b", Half), "Half torch.nn.Module"),
        (lambda: plugins.register_model("b", NoForward), "NoForward forward"),
    ],
)
def test_what_cannot_be_registered_is_refused_with_the_reason(call, text):
    with pytest.raises(UserError) as raised:
        call()
    assert tells(raised.value, *text.split())


def test_a_name_is_taken_until_it_is_replaced():
    plugins.register_bidder("half", Half)
    plugins.register_bidder("half", Half)  # the same again is no other

    class Other(Half):
        pass

    with refused("'half'", "Half"):
        plugins.register_bidder("half", Other)
    plugins.register_bidder("half", Other, replace=True)
    assert plugins.find_class(plugins.BIDDER_KINDS, "half") is Other


def test_the_source_of_a_registered_class_is_part_of_the_runs_identity(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text("from cascade_sim.agents.bidding import Bidder\n\n\nclass Mine(Bidder):\n    pass\n")
    plugins.register_bidder("mine", plugins.find_class(plugins.BIDDER_KINDS, f"{file}:Mine"))
    scenario = scenario_with(tmp_path, "market: {bidders: {b: {kind: mine}}}\n")
    before = plugins.named_files_digest(scenario, tmp_path)
    assert plugins.named_files_digest(scenario, tmp_path) == before
    file.write_text(file.read_text() + "# changed\n")
    assert plugins.named_files_digest(scenario, tmp_path) == before  # the class is still the one that was run
    again = plugins.find_class(plugins.BIDDER_KINDS, f"{file}:Mine")
    plugins.register_bidder("mine", again, replace=True)
    assert plugins.named_files_digest(scenario, tmp_path) != before


def test_code_that_cannot_be_read_is_never_taken_for_known():
    typed = type("Typed", (Half,), {"__module__": "typed_into_a_shell"})
    assert plugins.class_file(typed) is None
    assert plugins.class_source(typed) != plugins.class_source(typed)


def test_several_worlds_refuse_what_other_processes_cannot_know(tmp_path):
    register_all()
    scenario = scenario_with(tmp_path, ALL)
    with pytest.raises(UserError, match=r"models.m.kind: 'net' is registered .*test_registered.py:Net"):
        run_study(scenario, RunContext(tmp_path / "out"), seeds=2)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match=r"models.m.kind: 'net' is registered .*test_registered.py:Net"):
        run_context(tmp_path / "out", [scenario], workers=1, device="cpu", quiet=True, engine="ray")


def test_two_heads_are_for_built_in_nets(tmp_path):
    register_all()
    with pytest.raises(ScenarioError, match="two heads"):
        scenario_with(tmp_path, "models: {m: {kind: net, objective: jrc}}\n")


def test_overrides_are_made_from_the_sections():
    assert list(AuctionOverride.model_fields) == list(Auction.model_fields)
    assert list(ArmOverrides.model_fields["pre_ranking"].annotation.__args__[0].model_fields)[-1] == "sizes"
    own, arm = (json_schema()["$defs"][name]["properties"] for name in ("Auction", "AuctionOverride"))
    for key, node in own.items():
        given = {name: node[name] for name in ("minimum", "maximum", "enum", "type") if name in node}
        assert given.items() <= arm[key]["anyOf"][0].items() and arm[key]["default"] is None
        assert arm[key]["description"] == node["description"]


def test_names_are_those_of_the_registries():
    from cascade_sim.auction import PRICINGS

    schema = json_schema()["$defs"]
    assert schema["Auction"]["properties"]["pricing"]["enum"] == list(PRICINGS)
    assert ", ".join(plugins.BIDDERS) in schema["BidderSpec"]["properties"]["kind"]["description"]
    assert ", ".join(plugins.CLICK_MODELS) in schema["Users"]["properties"]["click_model"]["description"]
