"""The template of a user's own click model: its expectation is what it does, and a market runs with it."""

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.market.visits import build_click_model
from cascade_sim.scenario.market import Users
from places import ROOT
from worlds.timed_market import live

KIND = "scenarios/my_user.py:RelevanceSeeker"
EFFECTS = np.array([1.0, 0.8, 0.6, 0.5])
DAY = 86_400.0


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def model(**options):
    return build_click_model(Users(click_model=KIND, options=options), EFFECTS)


@pytest.mark.parametrize("shown", [(True,) * 4, (True, True, False, False), (False, True, False, True)])
def test_clicks_average_to_the_expected_ones(shown):
    n, user = 100_000, model(patience=0.9, floor=0.2, taste=0.3, returns=0.4)
    ctr, is_shown = np.tile([0.5, 0.2, 0.9, 0.4], (n, 1)), np.tile(shown, (n, 1))
    clicked, examined = user.clicks(ctr, is_shown, *np.random.default_rng(1).random((2, n, 4)))
    expected = user.expected(ctr[:1], is_shown[:1])[0]
    assert clicked.mean(axis=0) == pytest.approx(expected, abs=4.5 * np.sqrt(0.25 / n))
    assert (clicked <= examined).all() and (examined <= is_shown).all()


def test_a_good_first_ad_sends_more_users_on_to_the_second():
    user = model(patience=1.0, floor=0.0, taste=0.1, returns=0.0)
    good, bad = user.expected(np.array([[0.1, 0.5], [0.001, 0.5]]), np.ones((2, 2), bool))[:, 1]
    assert good == pytest.approx(0.9 * 0.1 / 0.2 * 0.5)  # (1 - q) q / (q + taste) * q_2
    assert bad == pytest.approx(0.999 * 0.001 / 0.101 * 0.5)


def test_a_market_runs_with_it_and_realises_what_it_expects():
    """Clicks are counted in pages whose expectations are known; pages of a market are nearly independent."""
    options = {"patience": 0.9, "floor": 0.3}
    market = {"days": 0.1, "users": {"click_model": KIND, "options": options, "fatigue": {"strength": 0.2}}}
    found = live(market)
    expected, clicks = found.metrics["expected_clicks"], found.metrics["clicks"]
    variance = sum(float((s.expected_clicks * (1 - s.expected_clicks)).sum()) for s in found.settled)
    assert expected > 1000 and abs(clicks - expected) < 4 * np.sqrt(2 * variance)
    # The deeper the slot, the fewer users are left; the world's slot effects play no part.
    per_slot = sum(s.expected_clicks.sum(axis=0) for s in found.settled)
    assert per_slot[0] > per_slot[1] > per_slot[2] > 0


@pytest.mark.parametrize("option", [{"patience": 1.5}, {"floor": -0.1}, {"returns": 2.0}, {"taste": 0.0}])
def test_an_option_out_of_range_is_named_with_the_click_model(option):
    with refused("my_user", next(iter(option))):
        model(**option)
