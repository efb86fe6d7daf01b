"""Budgets, the ledger, and who bids for whom."""

from types import SimpleNamespace

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.agents.bidders import BIDDERS
from cascade_sim.agents.bidding import Feedback, MarketTime
from cascade_sim.cascade.ledger import NO_BUDGET, Ledger
from cascade_sim.environments.market_inputs import draw_budgets
from cascade_sim.foundation.errors import UserError
from cascade_sim.market.advertisers import BidderPopulation
from cascade_sim.scenario.market import BidderSpec, Budgets
from cascade_sim.study.simulation import Simulation
from worlds.timed_market import RECORDER, timed_scenario, write_bidder

START = MarketTime(0.0, 0, 0.0, 0.0)


@pytest.fixture(scope="module")
def sim():
    scenario = timed_scenario()
    return Simulation(scenario, scenario.seed)


def crowd(sim, bidders, home=None):
    specs = {name: BidderSpec.model_validate(spec) for name, spec in bidders.items()}
    budgets = np.full(sim.world.n_advertisers, 10**7)
    return BidderPopulation(sim, specs, budgets, home) if home else BidderPopulation(sim, specs, budgets)


def test_a_ledger_begins_each_day_with_the_whole_budget_and_remembers_all_spend():
    ledger = Ledger(np.array([100, 7, NO_BUDGET]))
    ledger.available -= [30, 7, 5_000]
    assert ledger.spend_today().tolist() == [30, 7, 5_000]
    ledger.new_day()
    assert ledger.spend_today().tolist() == [0, 0, 0] and ledger.available.tolist() == [100, 7, NO_BUDGET]
    ledger.available -= [1, 2, 3]
    ledger.new_day()
    assert ledger.spend().tolist() == [30 + 1, 7 + 2, 5_000 + 3]
    assert ledger.budget.tolist() == [100, 7, NO_BUDGET]


def test_budgets_are_log_normal_for_the_share_that_has_one():
    found = draw_budgets(Budgets(share=0.75, median=3.0, sigma=0.5), 20_000, seed=4)
    has_one = found < NO_BUDGET
    assert abs(has_one.mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 20_000)
    log = np.log(found[has_one] / 3e6)
    assert abs(log.mean()) < 4 * 0.5 / np.sqrt(15_000) and abs(log.std() - 0.5) < 0.02
    assert found.dtype == np.int64


def test_a_tail_of_budgets_is_pareto_and_leaves_the_smaller_half_as_it_is():
    plain, heavy = (
        draw_budgets(Budgets(share=1.0, median=3.0, sigma=1.0, tail=tail), 40_000, seed=4)
        for tail in (None, 1.2)
    )
    lower = plain <= np.median(plain)
    assert np.array_equal(plain[lower], heavy[lower])
    top = np.sort(heavy)[-4_000:]  # of a Pareto law, the mean of log(x / least) is 1 / tail
    assert np.log(top / top[0]).mean() == pytest.approx(1 / 1.2, rel=4 / np.sqrt(4_000))


def test_an_advertisers_budget_does_not_depend_on_how_many_there_are():
    spec = Budgets(share=0.5)
    assert draw_budgets(spec, 10, 1).tolist() == draw_budgets(spec, 1000, 1)[:10].tolist()
    assert draw_budgets(spec, 10, 1).tolist() != draw_budgets(spec, 10, 2).tolist()


def test_no_budget_is_below_a_micro_unit_or_beyond_what_the_ledger_can_hold():
    tiny = draw_budgets(Budgets(share=1.0, median=1e-9, sigma=0.0), 5, 1)
    assert tiny.tolist() == [1] * 5
    huge = draw_budgets(Budgets(share=1.0, median=1e9, sigma=5.0), 5_000, 1)
    assert huge.min() > 0 and huge.max() == 2**61 < NO_BUDGET


def test_bidders_get_their_shares_of_the_advertisers_and_every_advertiser_one():
    world = SimpleNamespace(
        n_advertisers=8_000, advertiser=np.arange(8_000), init_bid=np.ones(8_000), n_ads=8_000
    )
    bids = SimpleNamespace(mean_pcvr=np.full(8_000, 0.1))
    many = SimpleNamespace(world=world, seed=3, platform=SimpleNamespace(bids=bids))
    found = crowd(many, {"a": {"share": 2}, "b": {"share": 5}, "c": {"share": 1}})
    counts = np.bincount(found.kind_of, minlength=3)
    assert counts.sum() == 8_000
    expected = np.array([2, 5, 1]) / 8 * 8_000
    assert (np.abs(counts - expected) < 4 * np.sqrt(expected)).all()


def test_every_ad_gets_the_bid_of_its_own_advertisers_bidder(sim):
    found = crowd(sim, {"full": {}, "half": {"kind": "fixed", "options": {"factor": 0.5}}})
    bids = found.bids(START, sim.world.n_ads)
    factor = np.where(found.kind_of == 0, 1.0, 0.5)[sim.world.advertiser]
    assert set(factor) == {0.5, 1.0}
    assert (bids == sim.world.init_bid * factor).all()
    assert (found.participation(START, sim.world.n_advertisers) == 1.0).all()


def test_all_built_in_kinds_can_be_named_and_live_without_a_single_advertiser(sim):
    n = sim.world.n_advertisers
    found = crowd(sim, {"all": {"share": 1e9}, **{kind: {"kind": kind, "share": 1e-9} for kind in BIDDERS}})
    assert (found.kind_of == 0).all()
    zeros = np.zeros(n, np.int64)
    for time in (0.0, 300.0, 86_400.0):
        now = MarketTime(time, int(time // 86_400), (time % 86_400) / 86_400, (time % 86_400) / 86_400)
        found.observe(Feedback(zeros, zeros, zeros, zeros, zeros, zeros), now)
        assert (found.bids(now, sim.world.n_ads) == sim.world.init_bid).all()
        assert (found.participation(now, n) == 1.0).all()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"kind": "pdi"}, "market.bidders.mine: 'pdi' 'pid'?"),
        ({"kind": "pid", "options": {"k_p": 11}}, "market.bidders.mine: 'pid': k_p"),
        ({"kind": "own.py:Owm"}, "market.bidders.mine: 'Owm' 'Own'?"),
        ({"kind": "own.py:Own", "options": {"x": 1}}, "own.py:8: KeyError"),
    ],
)
def test_a_bidder_that_cannot_be_built_is_named(sim, tmp_path, spec, text):
    write_bidder(tmp_path, "    def __init__(self, portfolio, x=0):\n        {}[x]\n")
    with pytest.raises(UserError) as raised:
        crowd(sim, {"fixed": {}, "mine": spec}, tmp_path)
    assert tells(raised.value, *text.split())


def test_bidders_know_their_own_ads_and_budgets_and_no_others(sim, tmp_path):
    world, kind = sim.world, write_bidder(tmp_path, RECORDER)
    specs = {name: BidderSpec(kind=kind, share=share) for name, share in (("one", 0.3), ("other", 0.7))}
    budgets = np.arange(1, world.n_advertisers + 1)
    found = BidderPopulation(sim, specs, budgets, tmp_path)
    for i, bidder in enumerate(found.bidders):
        mine, known = np.nonzero(found.kind_of == i)[0], bidder.portfolio
        ads = np.nonzero(np.isin(world.advertiser, mine))[0]
        assert len(mine) > 2 and (known.value == world.init_bid[ads]).all()
        assert (mine[known.owner] == world.advertiser[ads]).all()
        assert (known.mean_pcvr == sim.platform.bids.mean_pcvr[ads]).all()
        assert (known.budget_micros == budgets[mine]).all()


@pytest.mark.parametrize(
    ("method", "answer", "text"),
    [
        ("bids", "self.value * np.nan", "bids 0 nan [0, 1e+06]"),
        ("bids", "-self.value", "bids 0 -"),
        ("bids", "self.value * np.inf", "entry 0 is inf"),
        ("bids", "self.value * 1e13", "bids [0, 1e+06]"),
        ("bids", "self.value[1:]", "bids 0 s: shape ["),
        ("bids", "self.value[:, None]", "bids 0 s: shape ["),
        ("bids", "1.0", "bids 0 s: shape [], ["),
        ("bids", "None", "bids 0 s: shape []"),
        ("bids", "'high'", "bids 0 s: shape []"),
        ("bids", "self.value.astype(str)", "bids 0 s: <U32"),
        ("bids", "self.value * 1j", "bids 0 s: complex128"),
        ("bids", "self.nothing", "own.py:8: AttributeError"),
        ("participation", "self.budget * 0 + 1.5", "entry 0 1.5 [0, 1]"),
        ("participation", "self.budget * np.nan", "participation 0 s: nan"),
        ("participation", "self.budget * 0 - 0.1", "participation 0 s: -0.1"),
        ("participation", "np.ones(3)", "participation 0 s: [3], ["),
        ("observe", "1 / 0", "own.py:8: ZeroDivisionError"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_refused_with_the_bidder_and_the_place(sim, tmp_path, method, answer, text):
    body = f"    def {method}(self, *given):\n        return {answer}\n"
    found = crowd(sim, {"fixed": {}, "mine": {"kind": write_bidder(tmp_path, body)}}, tmp_path)
    nothing = Feedback(*[np.zeros(sim.world.n_advertisers, np.int64)] * 6)
    with pytest.raises(UserError, match=r"^market\.bidders\.mine: ") as raised:
        found.bids(START, sim.world.n_ads)
        found.participation(START, sim.world.n_advertisers)
        found.observe(nothing, START)
    assert tells(raised.value, *text.split())
