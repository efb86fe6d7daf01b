"""Classes of one's own that end the program, or raise what a signal should: errors with their name."""

import numpy as np
import pytest

from cascade_sim.agents.bidding import Feedback, MarketTime
from cascade_sim.cli import main
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.signals import stoppable
from cascade_sim.market.advertisers import BidderPopulation
from cascade_sim.market.visits import build_click_model
from cascade_sim.scenario.market import BidderSpec, Users
from cascade_sim.scenario.plugins import MODEL_KINDS, find_class
from cascade_sim.study.simulation import Simulation
from worlds.tiny_market import QUICK, TINY, tiny_scenario

ENDS = [
    ("sys.exit(0)", "SystemExit"),
    ("sys.exit()", "SystemExit"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt"),  # no signal came: it is the class that raises it
    ("raise GeneratorExit", "GeneratorExit"),
    ("raise Odd", "Odd"),
]
MODEL = """
import sys
from torch import nn
class Odd(BaseException):
    def __str__(self):
        sys.exit(0)
{at_import}
class Mine(nn.Module):
    def __init__(self, request_width, ad_width, pair_width):
        super().__init__()
        {at_start}
        self.layer = nn.Linear(ad_width, 1)
    def forward(self, request, ads, pair):
        {at_work}
        return self.layer(ads)[..., 0]
"""
PLACES = ("at_import", "at_start", "at_work")
NOTHING = dict.fromkeys(PLACES, "pass")


def write_model(folder, place, ends):
    file = folder / "mine.py"
    file.write_text(MODEL.format(**{**NOTHING, place: ends}))
    return f"{file}:Mine"


@pytest.mark.parametrize(("ends", "name"), ENDS)
@pytest.mark.parametrize("place", PLACES)
def test_a_model_that_ends_the_program_does_not_pass_its_check(place, ends, name, tmp_path, capsys):
    assert main(["check-model", write_model(tmp_path, place, ends)]) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAILED")]
    assert f": {name}: " in failed[0]


@pytest.mark.parametrize("place", PLACES)
def test_a_run_or_a_revenue_check_with_it_fails_with_the_class_named(place, tmp_path, capsys):
    kind = write_model(tmp_path, place, "sys.exit(0)")
    words = ["--set", f"models.logloss.kind={kind}"]
    for override in TINY:
        words += ["--set", override]
    assert main(["run", str(QUICK), "--out", str(tmp_path / "run"), "--quiet", *words]) == 2
    shown = capsys.readouterr().err
    assert "Mine" in shown and "SystemExit" in shown


@pytest.mark.parametrize(("ends", "name"), ENDS)
def test_an_import_that_ends_the_program_is_an_error(ends, name, tmp_path):
    kind = write_model(tmp_path, "at_import", ends)
    with stoppable(), pytest.raises(UserError, match=name):
        find_class(MODEL_KINDS, kind)


BIDDER = """
import sys
from cascade_sim.agents.bidding import Bidder
class Mine(Bidder):
    def __init__(self, portfolio):
        self.value = portfolio.value
        self.n = len(portfolio.budget_micros)
        {__init__}
    def bids(self, now):
        {bids}
        return self.value * 1.0
    def observe(self, feedback, now):
        {observe}
    def state(self):
        {state}
        return {{}}
"""


@pytest.mark.parametrize("method", ["__init__", "bids", "observe", "state"])
def test_a_bidder_that_ends_the_program_is_an_error_with_its_name(method, tmp_path):
    methods = {**dict.fromkeys(("__init__", "bids", "observe", "state"), "pass"), method: "sys.exit(0)"}
    (tmp_path / "mine.py").write_text(BIDDER.format(**methods))
    sim = Simulation(tiny_scenario(), 1)
    n = sim.world.n_advertisers
    with pytest.raises(UserError, match=r"^market\.bidders\.own: .*Mine.*mine\.py.*SystemExit"):
        specs = {"own": BidderSpec(kind=f"{tmp_path / 'mine.py'}:Mine")}
        crowd = BidderPopulation(sim, specs, np.full(n, 10**6), tmp_path)
        crowd.bids(MarketTime(0.0, 0, 0.0, 0.0), sim.world.n_ads)
        crowd.observe(Feedback(*[np.zeros(n, np.int64)] * 6), MarketTime(0.0, 0, 0.0, 0.0))
        crowd.state()


def test_check_bidder_fails_where_a_bidder_ends_the_program(tmp_path, capsys):
    methods = {**dict.fromkeys(("__init__", "bids", "observe", "state"), "pass"), "bids": "sys.exit(0)"}
    (tmp_path / "mine.py").write_text(BIDDER.format(**methods))
    assert main(["check-bidder", f"{tmp_path / 'mine.py'}:Mine"]) == 1
    assert "SystemExit" in capsys.readouterr().out


def test_a_click_model_that_ends_the_program_is_an_error_with_its_name(tmp_path):
    text = "import sys\nclass Mine:\n    def __init__(self, slot_effects):\n        sys.exit(0)\n"
    (tmp_path / "mine.py").write_text(text)
    users = Users(click_model=f"{tmp_path / 'mine.py'}:Mine")
    with pytest.raises(UserError, match=r"click_model .*Mine.*SystemExit"):
        build_click_model(users, np.ones(3))
