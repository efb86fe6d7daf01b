"""Mistakes that only a later phase would meet are told before any work: on a toy, and by the schema."""

import random

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.cli import main
from cascade_sim.foundation.errors import ScenarioError, UserError
from cascade_sim.market.advertisers import MAX_BID
from cascade_sim.market.dry_run import dry_run
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.plugins import require_options
from worlds.tiny_market import QUICK, TINY, tiny_scenario

OWN = """
import random
import numpy as np
import torch
from torch import nn
from cascade_sim.agents.bidding import Bidder
from cascade_sim.agents.click_models import PositionBased

class High(Bidder):
    def bids(self, now):
        return self.value * 1e9
class Words(Bidder):
    def bids(self, now):
        return np.array([str(value) for value in self.value])
class Complex(Bidder):
    def bids(self, now):
        return self.value + 1j
class Unlearned(Bidder):
    def observe(self, feedback, now):
        self.nothing
class Certain(PositionBased):
    def expected(self, true_ctr, shown):
        return true_ctr + 2.0
class Flat(nn.Module):
    def __init__(self, request_width, ad_width, pair_width):
        super().__init__()
        self.layer = nn.Linear(ad_width, 1)
        self.state = (random.random(), np.random.rand(), torch.rand(1))
    def forward(self, request, ads, pair):
        return self.layer(ads)
class Frozen(Flat):
    def forward(self, request, ads, pair):
        torch.set_grad_enabled(False)
        return self.layer(ads)[..., 0]
class Spoiling(Flat):
    def forward(self, request, ads, pair):
        result = self.layer(ads)[..., 0]
        ads += 1
        return result
class Sound(Flat):
    def forward(self, request, ads, pair):
        return self.layer(ads)[..., 0]
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("market={{bidders: {{mine: {{kind: '{own}:High'}}}}}}", ("market.bidders.mine", "1e+06")),
        ("market={{bidders: {{mine: {{kind: '{own}:Words'}}}}}}", ("market.bidders.mine", "real numbers")),
        ("market={{bidders: {{mine: {{kind: '{own}:Complex'}}}}}}", ("market.bidders.mine", "complex128")),
        ("market={{bidders: {{mine: {{kind: '{own}:Unlearned'}}}}}}", ("Unlearned", "AttributeError")),
        ("market={{users: {{click_model: '{own}:Certain'}}}}", ("click_model", "no probability")),
        ("models.logloss.kind={own}:Flat", ("model 'logloss'", "shape")),
        ("models.logloss.kind={own}:Frozen", ("model 'logloss'", "Frozen", "training")),
        ("models.logloss.kind={own}:Spoiling", ("model 'logloss'", "Spoiling", "training")),
    ],
)
def test_a_class_that_cannot_be_used_is_told_before_a_folder_is_made(override, words, own, tmp_path, capsys):
    given = [*TINY, override.format(own=own)]
    sets = [word for text in given for word in ("--set", text)]
    assert main(["run", str(QUICK), "--quiet", "--out", str(tmp_path / "run"), *sets]) == 2
    shown = capsys.readouterr().err
    assert all(word in shown for word in words), shown
    assert not (tmp_path / "run").exists()


def test_the_study_draws_as_if_nothing_had_been_rehearsed(own):
    scenario = tiny_scenario(f"models.logloss.kind={own}:Sound")

    def state():
        """Where the generators stand that Python, numpy and torch share."""
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = state()
    dry_run(scenario)
    assert state() == before


def test_bids_above_the_largest_are_told_with_the_keys_to_lower():
    with pytest.raises(UserError, match=f"{MAX_BID:,.0f}.* median .* sigma"):
        dry_run(tiny_scenario("market={}", "world.bids.median=10000", "world.bids.sigma=3"))
    dry_run(tiny_scenario("world.bids.median=10000", "world.bids.sigma=3"))  # without a market


@pytest.mark.parametrize("hidden", [9, 3, 17])
def test_a_width_that_the_compiled_net_cannot_take_is_refused_by_validate(hidden):
    with refused(hidden, 8, kind=ScenarioError):
        load_scenario(QUICK, [f"models.rank.hidden={hidden}"])
    load_scenario(QUICK, [f"models.logloss.hidden={hidden}"])  # two towers take any


@pytest.mark.parametrize("section", ["arms", "models", "fusions", "world.groups"])
def test_a_name_too_long_for_a_file_is_refused(section):
    load_scenario(QUICK, [f"{section}.{'a' * 100}={{}}"])
    with pytest.raises(ScenarioError, match="100 at most"):
        load_scenario(QUICK, [f"{section}.{'a' * 300}={{}}"])


def test_options_of_a_built_in_kind_are_refused_also_where_no_file_was_read():
    scenario = tiny_scenario()
    spec = scenario.models["rank"].model_copy(update={"options": {"layers": 3}})
    changed = scenario.model_copy(update={"models": {**scenario.models, "rank": spec}})
    with refused("models.rank.options.layers:", "coaction"):
        require_options(changed, QUICK.parent)
