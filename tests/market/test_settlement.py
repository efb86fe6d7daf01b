"""Settlement against a second one in plain Python: one request at a time, integers, exact prices."""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from cascade_sim.cascade.ledger import take
from cascade_sim.cascade.page import Rules
from cascade_sim.market.settlement import RankedLists, list_pages

SLOTS = 3
NOBODY = np.full((1, 1), -1)
EFFECTS = (1.0, 0.7, 0.4)
PARAMETERS = {"soft_floor": {"soft_floor": 1.2}}  # of the rules that have any
N_ADS, N_OWNERS = 60, 9
OWNER = np.arange(N_ADS) % N_OWNERS


@dataclass(frozen=True)
class Case:
    """Ranked lists, and what users would do with each ad of them."""

    ads: np.ndarray
    bid: np.ndarray
    quality: np.ndarray
    true_ctr: np.ndarray
    click_draw: np.ndarray
    is_in: np.ndarray
    is_cut: np.ndarray
    entrants: np.ndarray
    is_auctioned: bool = True

    def lists(self):
        every = np.full(len(self.ads), self.is_auctioned)
        own = {name: value for name, value in vars(self).items() if name in RankedLists.__annotations__}
        rest = {"prediction": self.quality, "is_explored": every, "served_by_stage": every}
        rest["raw_score"] = np.full(self.ads.shape, np.nan, np.float32)
        return RankedLists(**{**own, **rest, "is_auctioned": every})


@dataclass(frozen=True)
class Outcome:
    column: np.ndarray
    cpc_micros: np.ndarray
    clicks: np.ndarray
    charges_micros: np.ndarray


def no_outcome(n_requests):
    shape = (n_requests, SLOTS)
    return Outcome(
        np.full(shape, -1), np.zeros(shape, np.int64), np.zeros(shape, bool), np.zeros(shape, np.int64)
    )


def random_lists(seed, n_requests=150, depth=12):
    """Ranked lists of random length with ties, throttled ads and certain and impossible clicks."""
    rng = np.random.default_rng(seed)
    ads = np.full((n_requests, depth), -1, np.int32)
    bid, quality = np.zeros(ads.shape), np.zeros(ads.shape)
    for r in range(n_requests):
        n = rng.integers(0, depth + 1)
        chosen = rng.choice(N_ADS, n, replace=False)
        b, q = rng.uniform(0.5, 2.0, n), rng.uniform(0.01, 0.5, n)
        if n > 2 and rng.random() < 0.5:  # a tie of score at the least
            b[:2], q[:2] = b[2], q[2]
        order = sorted(range(n), key=lambda i: (-(b[i] * q[i]), chosen[i]))  # noqa: B023
        ads[r, :n], bid[r, :n], quality[r, :n] = chosen[order], b[order], q[order]
    ctr = rng.choice([0.0, 0.3, 0.9, 1.0], ads.shape) * (ads >= 0)
    draw = rng.uniform(0, 1, ads.shape)
    is_in = rng.random(ads.shape) < 0.8
    entrants = rng.integers(-1, N_OWNERS, (n_requests, 7))
    return Case(ads, bid, quality, ctr, draw, is_in, np.zeros(n_requests, bool), entrants)


def plain_price(place, bids, qualities, pricing, reserve, score_floor):
    """CPC of one place of a list that is cut behind the runner-up, as an exact fraction."""
    bid, quality = Fraction(bids[place]), Fraction(qualities[place])
    if pricing == "first":
        return bid
    scores = [Fraction(b) * Fraction(q) for b, q in zip(bids, qualities, strict=True)]
    x = [*map(Fraction, EFFECTS), Fraction(0)]
    if pricing == "soft_floor" and bid < PARAMETERS[pricing]["soft_floor"]:
        return bid
    if pricing == "soft_floor":
        reserve = max(reserve, PARAMETERS[pricing]["soft_floor"])
    if pricing in ("gsp", "soft_floor"):
        needed = scores[place + 1] if place + 1 < len(scores) else Fraction(0)
    else:
        least = max(Fraction(reserve) * quality, Fraction(score_floor))
        below = [*scores[place + 1 :], *[Fraction(0)] * SLOTS][: SLOTS - place]
        total = sum((x[j] - x[j + 1]) * max(score, least) for j, score in enumerate(below, place))
        needed = total / x[place]
    return min(max(needed / quality, Fraction(reserve), Fraction(score_floor) / quality), bid)


def plain_settlement(lists, budgets, pricing, reserve, score_floor):
    """[(request, slot, ad, CPC, is clicked, charge)], what is left of the budgets, requests taken part in."""
    left = [int(budget) for budget in budgets]
    shown, took_part = [], [0] * N_OWNERS
    for r in range(len(lists.ads)):
        for advertiser in {int(one) for one in lists.entrants[r] if one >= 0 and left[one] > 0}:
            took_part[advertiser] += 1
        there = [
            j
            for j in range(lists.ads.shape[1])
            if lists.ads[r, j] >= 0 and lists.is_in[r, j] and left[OWNER[lists.ads[r, j]]] > 0
        ][: SLOTS + 1]
        bids = [float(lists.bid[r, j]) for j in there]
        qualities = [float(lists.quality[r, j]) for j in there]
        for slot, j in enumerate(there[:SLOTS]):
            price = plain_price(slot, bids, qualities, pricing, reserve, score_floor)
            cpc = min(floor(price * 10**6 + Fraction(1, 2)), floor(Fraction(bids[slot]) * 10**6))
            advertiser = OWNER[lists.ads[r, j]]
            click = bool(lists.click_draw[r, j] < EFFECTS[slot] * lists.true_ctr[r, j])
            charge = min(cpc, left[advertiser]) if click else 0
            left[advertiser] -= charge
            shown.append((r, slot, int(lists.ads[r, j]), cpc, click, charge))
    return shown, left, took_part


def settled(lists, budgets, pricing="gsp", reserve=0.0, score_floor=0.0, start=0, pages=None, counts=None):
    """The engine's settlement with users in between: where it stopped, its pages, and what is left."""
    left = np.array(budgets, np.int64)
    counts = np.zeros(N_OWNERS, np.int64) if counts is None else counts
    pages = pages or no_outcome(len(lists.ads))
    ranked, n = lists.lists(), len(lists.ads)
    while start < n:
        rules = Rules(SLOTS, np.array(EFFECTS), pricing, reserve, score_floor, PARAMETERS.get(pricing, {}))
        listed, stop = list_pages(ranked, OWNER, left, rules, start)
        if stop == start:
            return start, pages, left
        shown, place = listed.column >= 0, np.maximum(listed.column, 0)
        ctr, draw = (np.take_along_axis(a, place, 1) for a in (lists.true_ctr, lists.click_draw))
        clicks = shown & (draw < np.array(EFFECTS) * ctr)
        payer = OWNER[np.take_along_axis(lists.ads, place, 1)]
        due = np.where(clicks, listed.cpc_micros, 0)
        taken, stop = take(due, payer, left, ranked.entrants, counts, start, stop)
        rows = slice(start, stop)
        found = (listed.column, listed.cpc_micros, clicks, taken)
        for own, new in zip(vars(pages).values(), found, strict=True):
            own[rows] = new[rows]
        start = stop
    return start, pages, left


def rows_of(lists, pages):
    """Pages in the form of the plain settlement."""
    return [
        (
            r,
            slot,
            int(lists.ads[r, pages.column[r, slot]]),
            int(pages.cpc_micros[r, slot]),
            bool(pages.clicks[r, slot]),
            int(pages.charges_micros[r, slot]),
        )
        for r in range(len(lists.ads))
        for slot in range(SLOTS)
        if pages.column[r, slot] >= 0
    ]


def budgets_of(seed):
    """Some run out after a few clicks, one after a single micro-unit, one is empty, one never ends."""
    budgets = np.random.default_rng(seed).integers(1, 30_000_000, N_OWNERS)
    budgets[0], budgets[1], budgets[2] = 0, 1, 2**62
    return budgets


@pytest.mark.parametrize("pricing", ["gsp", "vcg", "first", "soft_floor"])
@pytest.mark.parametrize(("reserve", "score_floor"), [(0.0, 0.0), (0.4, 0.0), (0.0, 0.004), (0.45, 0.005)])
def test_settlement_equals_one_in_plain_python(pricing, reserve, score_floor):
    n_dry = n_clicks = 0
    for seed in range(6):
        lists, budgets = random_lists(seed), budgets_of(seed)
        expected, left, took_part = plain_settlement(lists, budgets, pricing, reserve, score_floor)
        counts = np.zeros(N_OWNERS, np.int64)
        stopped, pages, remaining = settled(lists, budgets, pricing, reserve, score_floor, counts=counts)
        assert stopped == len(lists.ads)
        assert rows_of(lists, pages) == expected
        assert remaining.tolist() == left and counts.tolist() == took_part
        n_dry += left[3:].count(0)
        n_clicks += sum(row[4] for row in expected)
    assert n_dry > 5 and n_clicks > 500  # the cases are there


def test_nobody_pays_more_than_the_budget_and_the_click_that_empties_it_is_charged_in_part():
    lists, budgets = random_lists(3), budgets_of(3)
    _, pages, left = settled(lists, budgets)
    ads = np.take_along_axis(lists.ads, np.maximum(pages.column, 0), 1)
    spent = np.zeros(N_OWNERS, np.int64)
    np.add.at(spent, OWNER[ads], pages.charges_micros)
    assert (spent == budgets - left).all() and (left >= 0).all()
    dry = (left == 0) & (budgets > 0)
    assert dry.sum() > 3 and (spent[dry] == budgets[dry]).all()
    in_part = pages.clicks & (pages.charges_micros < pages.cpc_micros)
    assert set(OWNER[ads[in_part]]) == set(np.nonzero(dry)[0])  # nobody else got a discount
    assert (pages.charges_micros[~pages.clicks] == 0).all()
    assert not (OWNER[ads] == 0)[pages.column >= 0].any()  # an empty budget shows nothing


def test_two_clicks_on_one_page_cannot_overdraw_a_budget_either():
    ads = np.array([[0, N_OWNERS, 1, 2]], np.int32)  # the first two belong to advertiser 0
    one = np.ones(ads.shape)
    quality = np.array([[0.4, 0.3, 0.2, 0.1]])
    lists = Case(ads, one, quality, one, 0.1 * one, one > 0, np.zeros(1, bool), NOBODY)
    _, pages, left = settled(lists, [1_000_000] * N_OWNERS, "first")
    assert pages.clicks[0].tolist() == [True] * 3
    assert pages.charges_micros[0].tolist() == [1_000_000, 0, 1_000_000] and left[0] == 0


@pytest.mark.parametrize("depth", [4, 6, 9])
def test_a_list_that_runs_out_is_asked_for_again_and_the_result_is_that_of_full_lists(depth):
    n_asked = 0
    for seed in range(8):
        full, budgets = random_lists(seed), budgets_of(seed)
        shorter = {
            k: v[:, :depth]
            for k, v in vars(full).items()
            if v is not True and v.ndim == 2 and k != "entrants"
        }
        cut = replace(full, **shorter, is_cut=np.ones(len(full.ads), bool))
        expected, left, took_part = plain_settlement(full, budgets, "gsp", 0.0, 0.0)
        counts = np.zeros(N_OWNERS, np.int64)
        stopped, pages, remaining = settled(cut, budgets, counts=counts)
        while stopped < len(full.ads):
            n_asked += 1
            assert (pages.column[stopped] == -1).all() and not pages.clicks[stopped].any()
            there = full.is_in[stopped] & (full.ads[stopped] >= 0)
            there &= remaining[OWNER[full.ads[stopped]]] > 0
            assert there[:depth].sum() <= SLOTS  # it was needed
            row = {k: v[stopped : stopped + 1] for k, v in vars(full).items() if k != "is_auctioned"}
            _, page, remaining = settled(Case(**row), remaining, counts=counts)
            for name, value in vars(page).items():
                getattr(pages, name)[stopped] = value[0]
            stopped, pages, remaining = settled(cut, remaining, start=stopped + 1, pages=pages, counts=counts)
        assert rows_of(full, pages) == expected
        assert remaining.tolist() == left and counts.tolist() == took_part
    assert n_asked > 8


def test_a_list_that_ended_by_itself_is_not_asked_for_again():
    ads = np.array([[4, 7, -1, -1, -1]], np.int32)
    there = (ads >= 0) * 1.0
    lists = Case(ads, there, there, 0 * there, there, there > 0, np.ones(1, bool), NOBODY)
    stopped, pages, _ = settled(lists, [5] * N_OWNERS)
    assert stopped == 1 and pages.column[0].tolist() == [0, 1, -1]


def test_an_ad_that_is_passed_over_prices_nobody():
    """The next in line moves up; the one that sits out is neither shown nor a runner-up."""
    ads = np.array([[0, 1, 2, 3, 4]], np.int32)
    bid = np.array([[5.0, 4.0, 3.0, 2.0, 1.0]])
    one = np.ones(ads.shape)
    is_in = np.array([[True, False, True, True, True]])
    lists = Case(ads, bid, one, 0 * one, one, is_in, np.zeros(1, bool), NOBODY)
    _, pages, _ = settled(lists, [10**9, 10**9, 0, *[10**9] * (N_OWNERS - 3)])  # ad 2 has no money
    assert pages.column[0].tolist() == [0, 3, 4]
    assert pages.cpc_micros[0].tolist() == [2_000_000, 1_000_000, 0]


def test_a_page_that_no_auction_made_costs_the_reserve_or_the_bid():
    ads = np.array([[0, 1, 2, 3, 4]], np.int32)
    bid = np.array([[0.2, 4.0, 0.5, 2.0, 1.0]])
    one = np.ones(ads.shape)
    case = Case(ads, bid, one, 0 * one, one, one > 0, np.zeros(1, bool), NOBODY, is_auctioned=False)
    _, pages, _ = settled(case, [10**9] * N_OWNERS, reserve=0.3)
    assert pages.column[0].tolist() == [0, 1, 2]  # as listed, though the second bids most
    assert pages.cpc_micros[0].tolist() == [200_000, 300_000, 300_000]
