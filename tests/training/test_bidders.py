"""From the name of a bidder to its class: built in, in a file, in a module."""

from pathlib import Path

import pytest

from answers.told import refused, tells
from cascade_sim.agents.bidders import BIDDERS
from cascade_sim.agents.bidders.paced import Pid
from cascade_sim.foundation.errors import UserError
from cascade_sim.scenario.plugins import BIDDER_KINDS, require_reference
from cascade_sim.training.modules import build_bidder, find_bidder
from worlds.synthetic_market import SyntheticMarket

SOURCE = "from agents.bidding import Bidder\n\n\nclass Mine(Bidder):\n    pass\n"


@pytest.mark.parametrize("name", BIDDERS)
def test_built_in_bidders_are_found_by_name(name):
    assert find_bidder(name) is BIDDERS[name]
    require_reference(name, Path("."), BIDDER_KINDS)


def test_a_class_is_found_in_a_file_beside_the_scenario_and_in_a_module(tmp_path):
    (tmp_path / "own.py").write_text(SOURCE)
    assert find_bidder("own.py:Mine", tmp_path).__name__ == "Mine"
    assert find_bidder("cascade_sim.agents.bidders.paced:Pid") is Pid


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("pdi", "'pdi' 'pid'?"),
        ("own.py", "'own.py' own.py:ClassName"),
        ("own.py:Mien", "'Mien' 'Mine'?"),
        ("own.py:", "'' class"),
        ("other.py:Mine", "'other.py'"),
        ("no_such_package.module:Mine", "no module 'no_such_package'"),
    ],
)
def test_a_name_that_leads_nowhere_is_an_error_that_says_what_there_is(tmp_path, kind, text):
    (tmp_path / "own.py").write_text(SOURCE)
    with pytest.raises(UserError) as raised:
        require_reference(kind, tmp_path, BIDDER_KINDS)
    assert tells(raised.value, *text.split()) and "towers" not in str(raised.value)


def test_what_is_found_wrong_only_when_imported_is_an_error_with_its_place(tmp_path):
    (tmp_path / "own.py").write_text(SOURCE + "\nimport no_such_module_at_all\n")
    require_reference("own.py:Mine", tmp_path, BIDDER_KINDS)
    with refused("own.py:7", "ModuleNotFoundError"):
        find_bidder("own.py:Mine", tmp_path)
    (tmp_path / "bare.py").write_text("Mine = 3\n")
    with refused("bare.py", "'Mine'"):
        find_bidder("bare.py:Mine", tmp_path)


def test_a_bidder_is_built_with_its_options_and_bad_ones_are_named():
    portfolio = SyntheticMarket(m=2).portfolio
    assert build_bidder("pid", portfolio, {"k_p": 0.5}).k_p == 0.5
    with refused("'pid'", "k_p", "[0, 10]", 11):
        build_bidder("pid", portfolio, {"k_p": 11})
    with refused("'pid'", "'gain'"):
        build_bidder("pid", portfolio, {"gain": 11})
