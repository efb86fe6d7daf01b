"""The template of a user's own bidder: it is checked and bids like a built-in one."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from answers.told import refused
from cascade_sim.agents.bidding import MICROS, Feedback, MarketTime, Portfolio
from cascade_sim.commands.checks.check_bidder import command
from cascade_sim.training.modules import find_bidder
from places import ROOT
from worlds.synthetic_market import SyntheticMarket

KIND = "scenarios/my_bidder.py:Frugal"
NOON = MarketTime(43200.0, 0, 0.5, 0.5)


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_template_passes_every_check():
    result = CliRunner().invoke(command, [KIND, "--option", "margin=0.2", "--json"], standalone_mode=False)
    assert result.return_value == 0
    checks = json.loads(result.output)["checks"]
    assert {check["check"]: check["status"] for check in checks if check["status"] != "ok"} == {}


def test_the_template_bids_more_where_the_return_is_above_the_margin_and_less_where_below():
    portfolio = Portfolio(np.full(3, 2.0), np.arange(3), np.ones(3), np.full(3, 2**60))
    bidder = find_bidder(KIND)(portfolio, margin=0.5, step=0.1)
    bidder.share = np.full(3, 0.5)
    zero = np.zeros(3, dtype=np.int64)
    clicks, spend = np.array([1, 1, 0]), np.array([0.9, 1.1, 0.0])  # a margin of 0.5 is a cost of 1.0
    bidder.observe(Feedback(zero, clicks, (spend * MICROS).astype(np.int64), zero, zero, zero), NOON)
    assert bidder.bids(NOON) == pytest.approx(2.0 * 0.5 * np.array([1.1, 0.9, 1.0]))


def test_the_template_keeps_its_margin_in_a_first_price_market():
    market = SyntheticMarket(m=100, seed=1, pricing="first", no_budget=True)
    history = market.run(find_bidder(KIND)(market.portfolio), days=2, minutes=15)
    margin = 1 - history.spend[1].sum() / MICROS / history.value[1].sum()
    assert margin == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("option", [{"margin": 1.0}, {"step": 0.0}])
def test_the_template_names_an_option_out_of_range(option):
    with refused(next(iter(option)), kind=ValueError):
        find_bidder(KIND)(SyntheticMarket(m=2).portfolio, **option)
