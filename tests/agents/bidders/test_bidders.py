"""What every bidder of the table has to keep, whatever its rule."""

import numpy as np
import pytest

from cascade_sim.agents.bidders import BIDDERS
from cascade_sim.agents.bidding import Feedback, MarketTime, Portfolio
from worlds.synthetic_market import SyntheticMarket

MANY = {name: {} for name in BIDDERS} | {"multiplier each update": {"every": "update"}}


def build(name, portfolio):
    return BIDDERS[name.split()[0]](portfolio, **MANY[name])


def test_the_table_has_every_rule_by_its_name():
    assert list(BIDDERS) == ["fixed", "shading", "target_cpa", "multiplier", "adaptive", "pid", "throttling"]


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("stop", [1, 40, 96, 97, 150])  # also at midnight and just after
@pytest.mark.few(8)
def test_a_restored_bidder_bids_the_same_bits_for_ever(name, stop):
    market = SyntheticMarket(m=30, seed=5, clicks_per_day=(100.0, 1000.0))
    old, history = build(name, market.portfolio), []

    class Recorded:
        """Notes what the market tells, and hands the answers of `old` through."""

        bids, participation = old.bids, old.participation

        def observe(self, feedback, now):
            old.observe(feedback, now)
            history.append((feedback, now))
            if len(history) == stop:
                self.saved = old.state()
            answers.append((old.bids(now), old.participation(now)))

    answers: list = []
    recorded = Recorded()
    market.run(recorded, days=2, minutes=15)
    new = build(name, market.portfolio)
    new.restore(recorded.saved)
    for (feedback, now), (bids, passing) in list(zip(history, answers, strict=True))[stop:]:
        new.observe(feedback, now)
        assert new.bids(now).tobytes() == bids.tobytes()
        assert new.participation(now).tobytes() == passing.tobytes()


@pytest.mark.parametrize("name", MANY)
def test_an_advertiser_with_a_budget_of_0_never_bids(name):
    market = SyntheticMarket(m=20, seed=6)
    budget = market.budget.copy()
    budget[::2] = 0
    market.budget = budget
    poor = Portfolio(market.value, market.owner, market.portfolio.mean_pcvr, budget)
    history = market.run(build(name, poor), days=2, minutes=60)
    assert (history.bid[:, :, ::2] == 0).all() and (history.bid[:, :, 1::2] > 0).all()


@pytest.mark.parametrize("name", MANY)
def test_without_traffic_bids_stay_as_they_were(name):
    market = SyntheticMarket(m=10, seed=7)
    bidder, nothing = build(name, market.portfolio), np.zeros(10, dtype=np.int64)
    # Shading alternates between two bids, so the same update number of a fresh one is the comparison.
    first = build(name, market.portfolio).bids(MarketTime(0.0, 0, 0.0, 0.0))
    for i in range(1, 97):
        now = SyntheticMarket.time_at(i, 48)
        bidder.observe(Feedback(*[nothing] * 6), now)
    assert bidder.bids(now) == pytest.approx(first)
    assert (bidder.participation(now) == 1.0).all()


@pytest.mark.parametrize("name", MANY)
def test_bids_do_not_depend_on_who_else_is_acted_for(name):
    """The first 10 advertisers alone are bid for as among all 20."""
    market = SyntheticMarket(m=20, seed=8)
    among, said = build(name, market.portfolio), []

    class Recorded:
        bids, participation = among.bids, among.participation

        def observe(self, feedback, now):
            among.observe(feedback, now)
            said.append((feedback, now))

    market.run(Recorded(), days=2, minutes=60)
    mine = market.owner < 10
    part = market.portfolio
    alone = build(
        name, Portfolio(part.value[mine], part.owner[mine], part.mean_pcvr[mine], part.budget_micros[:10])
    )
    for feedback, now in said:
        alone.observe(Feedback(*(value[:10] for value in vars(feedback).values())), now)
    assert alone.bids(now) == pytest.approx(among.bids(now)[mine], rel=1e-12)


BAD_OPTIONS = [
    ("fixed", {"factor": -1}, "option factor: expected a number 0 or more, found -1"),
    ("shading", {"step": 0}, "option step: expected a number in (0, 100], found 0"),
    ("shading", {"dither": 0.6}, "option dither: expected a number in [0.01, 0.5], found 0.6"),
    ("shading", {"memory": 0}, "option memory: expected a number above 0, found 0"),
    ("shading", {"min_shade": 2}, "option min_shade: expected a number in (0, 1], found 2"),
    ("target_cpa", {"cpa": 0}, "option cpa: expected a number above 0, found 0"),
    ("target_cpa", {"k": 11}, "option k: expected a number in (0, 10], found 11"),
    ("target_cpa", {"prior": 0}, "option prior: expected a number above 0, found 0"),
    ("target_cpa", {"memory": 0}, "option memory: expected a number above 0, found 0"),
    ("target_cpa", {"delay": -1}, "option delay: expected a number 0 or more, found -1"),
    ("target_cpa", {"arriving": 0}, "option arriving: expected a number in (0, 1], found 0"),
    ("target_cpa", {"max_correction": 1}, "option max_correction: expected a number in (1, 1000], found 1"),
    ("multiplier", {"step": 0}, "option step: expected a number in (0, 10], found 0"),
    ("multiplier", {"every": "hour"}, "option every: expected one of day, update, found 'hour'"),
    ("multiplier", {"max_lambda": 1}, "option max_lambda: expected a number in (1, 1e+06], found 1"),
    ("adaptive", {"epsilon": 0}, "option epsilon: expected a number in (0, 100], found 0"),
    ("adaptive", {"max_mu": 0}, "option max_mu: expected a number in (0, 1e+06], found 0"),
    ("pid", {"k_p": -1}, "option k_p: expected a number in [0, 10], found -1"),
    ("pid", {"k_i": 0}, "option k_i: expected a number in (0, 100], found 0"),
    ("pid", {"k_d": None}, "option k_d: expected a number in [0, 10], found None"),
    ("pid", {"max_phi": 21}, "option max_phi: expected a number in (0, 20], found 21"),
    ("pid", {"window": 0}, "option window: expected a number in (0, 1], found 0"),
    ("throttling", {"floor": 0}, "option floor: expected a number in (0, 1], found 0"),
    ("throttling", {"window": 31}, "option window: expected a number in (0, 30], found 31"),
    ("throttling", {"caution": 6}, "option caution: expected a number in [0, 5], found 6"),
]


@pytest.mark.parametrize(("name", "options", "text"), BAD_OPTIONS, ids=str)
def test_a_bad_option_is_named_with_its_value_and_the_range(name, options, text):
    with pytest.raises(ValueError) as raised:
        BIDDERS[name](SyntheticMarket(m=2).portfolio, **options)
    assert str(raised.value) == text
