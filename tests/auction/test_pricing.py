"""The registry of pricing rules, and what the soft floor is held to."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim.auction import auction, reprice, run_auction
from cascade_sim.auction.pricing import PARAMETERS, RULES, Pricing, Slot, missing, needless, soft_floor
from cascade_sim.auction.reference import reference_auction
from places import ROOT


def random_auctions(seed, requests=2000, bidders=6):
    rng = np.random.default_rng(seed)
    return rng.lognormal(0, 0.7, (requests, bidders)), rng.beta(1, 20, (requests, bidders))


def with_floor(bid, pctr, floor, **rules):
    return run_auction(bid, pctr, slots=3, pricing="soft_floor", soft_floor=floor, **rules)


def test_three_bids_around_a_soft_floor():
    """Scores 0.20, 0.15, 0.12. Below the floor a bid pays itself; above, the floor lifts a lower price."""
    bid, pctr = [2.0, 3.0, 1.0], [0.10, 0.05, 0.12]
    prices = [with_floor(bid, pctr, floor).cpc.round(6).tolist() for floor in (0.0, 1.8, 2.0, 2.5, 9.0)]
    assert prices == [[1.5, 2.4, 0.0], [1.8, 2.4, 1.0], [2.0, 2.4, 1.0], [2.0, 2.5, 1.0], [2.0, 3.0, 1.0]]


def test_at_given_bids_a_higher_soft_floor_never_charges_less():
    """With gsp price p, floor f and bid b the price is min(b, max(p, f)): a reserve that shuts nobody out."""
    floors = np.linspace(0, 3, 61)
    prices = [
        min(soft_floor(Slot(bid=2.0, critical_bid=1.5, externality=0.0), floor), 2.0) for floor in floors
    ]
    assert np.all(np.diff(prices) >= 0) and prices[0] == 1.5 and prices[-1] == 2.0


def test_below_the_soft_floor_a_higher_bid_costs_more_and_above_it_nothing():
    """The same slot at 2.4, 2.5 and 4.0, with a floor of 2.5; a reserve of 2.5 would bar the first."""
    for bid, price in ((2.4, 2.4), (2.5, 2.5), (4.0, 2.5)):
        assert with_floor([bid, 1.0], [0.1, 0.1], 2.5).cpc[0] == price
    assert run_auction([2.4, 1.0], [0.1, 0.1], slots=1, reserve_cpc=2.5).winners.tolist() == [-1]


@pytest.mark.parametrize("reserves", [{}, {"reserve_cpc": 0.8}, {"score_floor": 0.05}, {"squashing": 0.5}])
def test_a_soft_floor_lies_between_second_and_first_price(reserves):
    bid, pctr = random_auctions(3)
    gsp, first = (run_auction(bid, pctr, slots=3, pricing=name, **reserves) for name in ("gsp", "first"))
    none, middle, above = (with_floor(bid, pctr, f, **reserves) for f in (0.0, 1.0, bid.max() * 1.01))
    np.testing.assert_array_equal(none.cpc, gsp.cpc)
    np.testing.assert_array_equal(above.cpc, first.cpc)
    for result in (none, middle, above):
        np.testing.assert_array_equal(result.winners, gsp.winners)
    is_shown = middle.winners >= 0
    assert np.all(gsp.cpc <= middle.cpc) and np.all(middle.cpc <= first.cpc)
    assert np.all(middle.cpc[is_shown] >= reserves.get("reserve_cpc", 0.0))
    assert (middle.cpc != gsp.cpc).sum() > 500 and (middle.cpc != first.cpc).sum() > 500


def test_thousands_of_soft_floors_agree_with_exact_fractions():
    bid, pctr = random_auctions(5)
    rng = np.random.default_rng(6)
    for rows in np.split(np.arange(len(bid)), 20):
        rules = {"reserve_cpc": float(rng.choice([0.0, 0.7])), "score_floor": float(rng.choice([0.0, 0.02]))}
        floor = float(rng.uniform(0, 2.5))
        winners, cpc = with_floor(bid[rows], pctr[rows], floor, **rules)
        for row, shown, prices in zip(rows, winners.tolist(), cpc.tolist(), strict=True):
            want, exact = reference_auction(
                bid[row].tolist(), pctr[row].tolist(), slots=3, pricing="soft_floor", soft_floor=floor,
                effects=[1.0] * 3, ids=list(range(6)), **rules,
            )  # fmt: skip
            assert shown == [-1 if column is None else column for column in want]
            for price, right in zip(prices, exact, strict=True):
                assert abs(Fraction(price) - (right or 0)) <= Fraction(1e-12) * (right or 0)


def test_repricing_keeps_to_the_soft_floor():
    rules = {"slots": 2, "pricing": "soft_floor", "soft_floor": 1.0}
    bid, quality = [2.0, 0.8, 0.5], [0.3, 0.3, 0.3]
    assert reprice(bid, quality, **rules).tolist() == [1.0, 0.8]
    assert auction(bid, quality, **rules).cpc.tolist() == [1.0, 0.8]
    assert reprice(bid, [0.0, 0.3, 0.3], **rules).tolist() == [2.0, 0.8]  # quality 0: no bid is enough


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"soft_floor": 1.0}, ValueError, "soft_floor gsp"),
        ({"pricing": "first", "soft_floor": 0.0}, ValueError, "soft_floor first"),
        ({"pricing": "soft_floor"}, ValueError, "pricing soft_floor"),
        (
            {"pricing": "soft_floor", "soft_floor": -1.0},
            ValueError,
            "-1.0 finite",
        ),
        ({"pricing": "soft_floor", "soft_floor": np.nan}, ValueError, "soft_floor is nan"),
        ({"pricing": "soft_floor", "soft_floor": np.inf}, ValueError, "soft_floor is inf"),
        ({"soft_flor": 1.0}, TypeError, "'soft_flor' 'soft_floor'?"),
        ({"reserve": 1.0}, TypeError, "unknown keyword 'reserve'"),
    ],
)
def test_parameters_that_do_not_fit_the_rule_are_refused(given, error, text):
    for run in (run_auction, auction, reprice):
        with refused(*text.split(), kind=error):
            run([2.0, 1.0], [0.1, 0.1], slots=1, **given)


def test_a_rule_says_which_parameters_it_takes():
    assert list(PARAMETERS) == ["soft_floor"]
    assert list(missing("gsp", ())) == list(needless("soft_floor", ["soft_floor"])) == []
    assert [name for name, _ in needless("vcg", PARAMETERS)] == ["soft_floor"]
    assert [name for name, _ in missing("soft_floor", ())] == ["soft_floor"]


def test_a_rule_registered_too_late_is_refused_in_words(monkeypatch):
    run_auction([1.0], [0.1], slots=1)
    monkeypatch.setitem(RULES, "half", Pricing(lambda slot: 0.5 * slot.bid))
    with refused("'half'", "registered", kind=ValueError):
        run_auction([1.0], [0.1], slots=1, pricing="half")


OWN = """
from cascade_sim.auction.pricing import RULES, Parameter, Pricing

def between(slot, share, least):
    return least + share * slot.bid + (1 - share) * slot.critical_bid

parameters = {"share": Parameter("of the bid", 1.0), "least": Parameter("CPC added")}
RULES["between"] = Pricing(between, parameters=parameters)
from cascade_sim.auction import reprice, run_auction

rules = {"slots": 2, "pricing": "between", "share": 0.5, "least": 0.25}
print(run_auction([2.0, 1.0, 0.5], [0.5, 0.5, 0.5], **rules).cpc.tolist())
print(reprice([2.0, 1.0, 0.5], [0.5, 0.5, 0.5], **rules, reserve_cpc=1.9).tolist())
print(run_auction([2.0, 1.0, 0.5], [0.5, 0.5, 0.5], slots=2).cpc.tolist())
for own in ({"share": 0.5}, {"share": 1.5, "least": 0.25}):
    try:
        run_auction([1.0], [0.5], slots=1, pricing="between", **own)
    except ValueError as error:
        print(error)
"""


@pytest.mark.drill
def test_a_rule_of_ones_own_is_compiled_priced_bounded_and_refused_like_the_others(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(OWN)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "NUMBA_CACHE_DIR": str(tmp_path / "numba")},
    )  # fmt: skip
    assert done.stdout.splitlines()[:3] == ["[1.75, 1.0]", "[1.9, 1.0]", "[1.0, 0.5]"]
    needed, bounded = done.stdout.splitlines()[3:]
    assert tells(needed, "between", "least") and tells(bounded, "share", 1.5, 1)  # fmt: skip
