"""What all bidders start from: the portfolio, the state, the options."""

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.agents.bidding import Bidder, Feedback, MarketTime, Portfolio, number, one_of

PORTFOLIO = Portfolio(
    value=np.array([1.0, 2.0, 6.0]),
    owner=np.array([1, 0, 1]),
    mean_pcvr=np.array([0.1, 0.1, 0.1]),
    budget_micros=np.array([5, 0, 7], dtype=np.int64),
)
NOON = MarketTime(43200.0, 0, 0.5, 0.5)


class Counting(Bidder):
    STATE = ("seen", "n")

    def __init__(self, portfolio):
        super().__init__(portfolio)
        self.seen, self.n = np.zeros(3), np.array(0)

    def observe(self, feedback, now):
        self.seen, self.n = self.seen + feedback.clicks, self.n + 1


def news(clicks):
    zero = np.zeros(3, dtype=np.int64)
    return Feedback(zero, np.array(clicks), zero, zero, zero, zero)


def test_the_plain_bidder_bids_values_but_nothing_for_who_has_no_budget():
    bidder = Bidder(PORTFOLIO)
    assert bidder.bids(NOON).tolist() == [0.0, 2.0, 0.0]  # advertiser 1 has a budget of 0
    assert bidder.participation(NOON).tolist() == [1.0, 1.0, 1.0]
    assert bidder.state() == {}


def test_the_mean_over_the_ads_of_an_advertiser_is_0_for_one_without_ads():
    assert Bidder(PORTFOLIO).per_advertiser(PORTFOLIO.value).tolist() == [2.0, (1.0 + 6.0) / 2, 0.0]


def test_the_state_is_a_copy_and_is_put_back_as_it_was():
    old, new = Counting(PORTFOLIO), Counting(PORTFOLIO)
    old.observe(news([1, 2, 3]), NOON)
    state = old.state()
    old.observe(news([1, 1, 1]), NOON)
    assert state["seen"].tolist() == [1, 2, 3] and state["n"] == 1
    new.restore(state)
    new.observe(news([1, 1, 1]), NOON)
    assert new.seen.tobytes() == old.seen.tobytes() and new.n == old.n == 2
    assert state["seen"].tolist() == [1, 2, 3]


def test_a_state_of_other_names_or_another_shape_is_refused():
    bidder = Counting(PORTFOLIO)
    with refused("Counting", "n, seen", "found seen", kind=ValueError):
        bidder.restore({"seen": np.zeros(3)})
    with refused("'seen'", "[2]", "[3]", kind=ValueError):
        bidder.restore({"seen": np.zeros(2), "n": np.array(0)})


@pytest.mark.parametrize(
    ("value", "bounds", "text"),
    [
        (-1, {"low": 0.0}, "k: 0 -1"),
        (0, {"low": 0.0, "above": True}, "k: above 0, 0"),
        (3, {"low": 0.0, "high": 2.0}, "k: [0, 2], 3"),
        (0, {"low": 0.0, "high": 2.0, "above": True}, "k: (0, 2], 0"),
        ("1", {"low": 0.0}, "k: 0 '1'"),
        (True, {"low": 0.0}, "k: 0 True"),
        (float("nan"), {"low": 0.0}, "k: 0 nan"),
        (float("inf"), {"low": 0.0}, "k: finite inf"),
    ],
)
def test_an_option_out_of_range_is_named_with_its_value_and_the_range(value, bounds, text):
    with refused(*text.split(), kind=ValueError):
        number("k", value, **bounds)


def test_options_in_range_come_back_as_they_are():
    assert number("k", 2, 0.0, 2.0) == 2.0 and number("k", np.float64(0.5), 0.0) == 0.5
    assert one_of("every", "day", ("day", "update")) == "day"
    with refused("every", "day, update", "'week'", kind=ValueError):
        one_of("every", "week", ("day", "update"))
