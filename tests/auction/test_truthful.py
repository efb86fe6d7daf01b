"""VCG with reserves: to bid the value is best, nobody pays more than the bid, nobody less than the reserves.

By brute force in exact fractions: the bids that are tried lie on, just below and just above every score,
reserve and floor at which a place can change, so a bid between two of them fares like one that was tried.
"""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from cascade_sim.auction import auction, reprice, run_auction
from cascade_sim.auction.reference import reference_auction

AUCTIONS = 400
HAIR = Fraction(1, 2**20)


def random_auction(rng):
    """Bids in eighths, qualities in 16ths, effects in quarters: exact as doubles, with many ties."""
    bidders, slots = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    bids = (rng.integers(1, 33, bidders) / 8).tolist()
    qualities = (rng.integers(1, 17, bidders) / 16).tolist()
    rules = {
        "slots": slots,
        "pricing": "vcg",
        "reserve_cpc": float(rng.choice([0.0, 0.5, 1.0, 1.75])),
        "score_floor": float(rng.choice([0.0, 0.0, 0.25, 0.75])),
        "effects": np.sort(rng.choice([0.25, 0.5, 0.75, 1.0], slots))[::-1].tolist(),
        "ids": rng.permutation(bidders).tolist(),
    }
    return bids, qualities, rules


def own_outcome(bids, qualities, rules, me, bid):
    """(clicks expected of an ad that is clicked when seen, CPC) of one bidder with that bid."""
    winners, prices = reference_auction(
        [bid if column == me else other for column, other in enumerate(bids)], qualities, **rules
    )
    if me not in winners:
        return Fraction(0), Fraction(0)
    place = winners.index(me)
    return Fraction(rules["effects"][place]) * Fraction(qualities[me]), prices[place]


def steps_of(bids, qualities, rules, me):
    """Bids at which the place of a bidder can change, ascending."""
    own = Fraction(qualities[me])
    others = [
        Fraction(bid) * Fraction(quality) / own
        for column, (bid, quality) in enumerate(zip(bids, qualities, strict=True))
        if column != me
    ]
    return sorted({*others, Fraction(rules["reserve_cpc"]), Fraction(rules["score_floor"]) / own} - {0})


def myerson_price(bids, qualities, rules, me):
    """What the clicks of the lower bids demand: bid - (area under clicks up to the bid) / clicks."""
    bid = Fraction(bids[me])
    clicks, _ = own_outcome(bids, qualities, rules, me, bids[me])
    edges = [Fraction(0), *(step for step in steps_of(bids, qualities, rules, me) if step < bid), bid]
    area = sum(
        (high - low) * own_outcome(bids, qualities, rules, me, float((low + high) / 2))[0]
        for low, high in pairwise(edges)
    )
    return bid - area / clicks


def test_the_top_price_with_a_rival_and_a_reserve():
    """Bid 2.5 against 2: the upper half of the clicks at the rival's bid, the lower half at the reserve."""
    rules = {"slots": 2, "pricing": "vcg", "reserve_cpc": 1.0, "slot_effects": [1.0, 0.5]}
    assert run_auction([2.5, 2.0], [1.0, 1.0], **rules).cpc.tolist() == [0.5 * 2.0 + 0.5 * 1.0, 1.0]
    assert run_auction([1.5, 2.0], [1.0, 1.0], **rules).cpc.tolist() == [0.5 * 1.5 + 0.5 * 1.0, 1.0]
    listed = auction([2.5, 2.0], [1.0, 1.0], **rules)
    assert reprice([2.5, 2.0], [1.0, 1.0], **rules).tolist() == listed.cpc.tolist()

    def utility(bid, value=1.5):
        page = run_auction([bid, 2.0], [1.0, 1.0], **rules)
        place = page.winners.tolist().index(0)
        return rules["slot_effects"][place] * (value - page.cpc[place])

    assert utility(1.5) == 0.25 and utility(2.5) == 0.0


def test_a_reserve_per_click_is_another_score_for_each_ad():
    """The floor of the ad of quality .5 is half as high a score as that of the ad above it."""
    rules = {"slots": 2, "pricing": "vcg", "slot_effects": [1.0, 0.5]}
    bids, qualities = [4.0, 1.5, 1.25], [1.0, 0.5, 0.5]
    free = run_auction(bids, qualities, **rules)
    assert free.cpc.tolist() == [0.5 * 0.75 + 0.5 * 0.625, 1.25]
    # 1 per click is the score 1 of the first ad and .5 of the second, whose runner-up it does not reach.
    assert run_auction(bids, qualities, reserve_cpc=1.0, **rules).cpc.tolist() == [1.0, 1.25]
    # .7 is above the runner-up's score and below the second's.
    assert run_auction(bids, qualities, reserve_cpc=0.7, **rules).cpc == pytest.approx(
        [0.5 * 0.75 + 0.5 * 0.7, 1.25], rel=1e-15
    )


def test_no_bid_beats_the_value():
    rng = np.random.default_rng(20250301)
    tried = bound = 0
    for _ in range(AUCTIONS):
        bids, qualities, rules = random_auction(rng)
        me = int(rng.integers(len(bids)))
        value = Fraction(bids[me])

        def utility(bid, bids=bids, qualities=qualities, rules=rules, me=me, value=value):
            clicks, price = own_outcome(bids, qualities, rules, me, bid)
            return clicks * (value - price)

        truthful = utility(bids[me])
        assert truthful >= 0
        for step in steps_of(bids, qualities, rules, me):
            for bid in (step - HAIR, step, step + HAIR, 2 * step):
                assert utility(float(bid)) <= truthful + Fraction(1, 10**12), (
                    bids,
                    qualities,
                    rules,
                    me,
                    bid,
                )
                tried += 1
        bound += truthful > 0 and rules["reserve_cpc"] > 0 and rules["slots"] > 1
    assert tried > 3_000 and bound > 50


def test_prices_are_those_which_the_clicks_of_lower_bids_demand():
    rng = np.random.default_rng(20250302)
    raised = 0
    for _ in range(AUCTIONS):
        bids, qualities, rules = random_auction(rng)
        winners, prices = reference_auction(bids, qualities, **rules)
        no_reserves = {**rules, "reserve_cpc": 0.0, "score_floor": 0.0}
        eligible = [
            bid if own_outcome([bid], [quality], {**rules, "ids": [0]}, 0, bid)[0] else 0.0
            for bid, quality in zip(bids, qualities, strict=True)
        ]
        _, totals = reference_auction(eligible, qualities, **no_reserves)
        given = {name: rules[name] for name in ("slots", "pricing", "reserve_cpc", "score_floor", "ids")}
        page = run_auction(bids, qualities, slot_effects=rules["effects"], **given)
        for place, me in enumerate(winners):
            if me is None:
                assert page.winners[place] == -1 and page.cpc[place] == 0
                continue
            want = myerson_price(bids, qualities, rules, me)
            assert float(prices[place]) == pytest.approx(float(want), rel=1e-12)
            assert page.winners[place] == me and page.cpc[place] == pytest.approx(float(want), rel=1e-12)
            least = max(rules["reserve_cpc"], rules["score_floor"] / qualities[me])
            assert least <= page.cpc[place] <= bids[me]
            raised += want > max(Fraction(least), totals[place])
    assert raised > 50  # more than the harm to those who are there, raised to the reserve


def test_reserves_that_nobody_meets_change_no_digit():
    """All others are above one's reserve and the page is full: the same terms in the same order."""
    rng = np.random.default_rng(5)
    bid, quality = rng.uniform(1.0, 2.0, (200, 8)), rng.uniform(0.2, 0.4, (200, 8))
    rules = {"slots": 3, "pricing": "vcg", "slot_effects": [1.0, 0.7, 0.4]}
    free, low = (run_auction(bid, quality, **rules, reserve_cpc=reserve) for reserve in (0.0, 0.25))
    assert free.winners.tolist() == low.winners.tolist() and free.cpc.tolist() == low.cpc.tolist()
