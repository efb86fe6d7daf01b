from pathlib import Path

import pytest
import torch

from answers.told import refused
from cascade_sim.cascade.scorers import CoActionScorer, TorchScorer, TowersScorer
from cascade_sim.models.nets.coaction import CoAction
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.training.modules import build_module, find_class, make_scorer
from worlds.tiny_market import tiny_scenario

OWN = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, request_width, ad_width, pair_width, width=4):
        super().__init__()
        self.layer = nn.Linear(ad_width, width)

    def forward(self, request, ads, pair):
        return self.layer(ads).sum(-1)

class Plain:
    pass
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    return path


@pytest.fixture(scope="module")
def specs():
    return tiny_scenario().models


def test_the_built_in_kinds_are_nets_with_fused_scorers(sim, specs):
    view = sim.view(specs["rank"].features)
    ranker = build_module("rank", specs["rank"], view, 1)
    towers = build_module("logloss", specs["logloss"], view, 1)
    assert isinstance(ranker, CoAction) and isinstance(towers, TwoTowers)
    assert isinstance(make_scorer("rank", "logloss", view, ranker), CoActionScorer)
    ltr = make_scorer("logloss", "ltr", view, towers)
    assert isinstance(ltr, TowersScorer) and ltr.link == "exp"
    assert ranker.out.shape == (16,) and ranker.dims == 8


def test_weights_come_from_the_seed_and_disturb_no_other_draw(sim, specs):
    view = sim.view(specs["logloss"].features)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    a, b, c = (build_module("logloss", specs["logloss"], view, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    weight = "request_tower.linear.weight"
    assert torch.equal(a.state_dict()[weight], b.state_dict()[weight])
    assert not torch.equal(a.state_dict()[weight], c.state_dict()[weight])


def test_a_class_of_ones_own_is_found_by_file_and_gets_its_options(sim, specs, own):
    view = sim.view(specs["logloss"].features)
    spec = specs["logloss"].model_copy(update={"kind": f"{own}:Mine", "options": {"width": 7}})
    module = build_module("mine", spec, view, 1)
    assert module.layer.out_features == 7
    assert isinstance(make_scorer("mine", "logloss", view, module), TorchScorer)


def test_a_path_is_looked_for_beside_the_scenario_too(own):
    assert find_class("mine.py:Mine", own.parent).__name__ == "Mine"
    with refused("'mine.py'"):
        find_class("mine.py:Mine", Path("."))


def test_a_class_of_ones_own_is_found_by_package(sim):
    assert find_class("cascade_sim.models.nets.towers:TwoTowers") is TwoTowers


def test_a_kind_that_cannot_be_used_is_refused_with_the_reason(own, sim, specs, tmp_path):
    with refused("'tower'", "'towers'?"):
        find_class("tower")
    with refused("'Yours'", "Mine"):
        find_class(f"{own}:Yours")
    with refused("Plain", "torch.nn.Module"):
        find_class(f"{own}:Plain")
    with refused("no.such.package", "ModuleNotFoundError"):
        find_class("no.such.package:Net")
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with refused("bad.py", "ZeroDivisionError"):
        find_class(f"{tmp_path / 'bad.py'}:Net")
    spec = specs["logloss"].model_copy(update={"kind": f"{own}:Mine", "options": {"depth": 7}})
    with refused("'mine'", "depth"):
        build_module("mine", spec, sim.view(("quality",)), 1)


def test_two_files_of_one_name_are_not_taken_for_each_other(own, tmp_path):
    import inspect

    other = tmp_path / "elsewhere" / "mine.py"
    other.parent.mkdir()
    other.write_text(OWN.replace("width=4", "width=5"))
    first, second = find_class(f"{own}:Mine"), find_class(f"{other}:Mine")
    assert inspect.getfile(first) == str(own) and inspect.getfile(second) == str(other)
