"""The plain-Python auction itself, on examples worked out by hand; and the engine's against it, with ids."""

from fractions import Fraction

import numpy as np
import pytest

from cascade_sim.auction import PRICINGS, auction, run_auction
from cascade_sim.auction.kernels import FEW
from cascade_sim.auction.pricing import RULES
from cascade_sim.auction.reference import charge_micros, reference_auction, squashed

BLOCKS, REQUESTS = 100, 200


def reference(
    bids, qualities, *, slots, pricing="gsp", reserve_cpc=0.0, score_floor=0.0, effects=None, ids=None
):
    effects = [1.0] * slots if effects is None else effects
    return reference_auction(
        bids, qualities, slots=slots, pricing=pricing, reserve_cpc=reserve_cpc, score_floor=score_floor,
        effects=effects, ids=ids or list(range(len(bids))),
    )  # fmt: skip


def test_two_slots_of_200_and_100_clicks():
    def revenue(bids, pricing):
        _, prices = reference(bids, [1.0] * 3, slots=2, pricing=pricing, effects=[200.0, 100.0])
        return 200 * prices[0] + 100 * prices[1]

    assert revenue([10.0, 4.0, 2.0], "gsp") == 200 * 4 + 100 * 2 == 1000
    assert revenue([10.0, 4.0, 2.0], "vcg") == (100 * 4 + 100 * 2) + 100 * 2 == 800
    assert revenue([10.0, 3.0, 2.0], "gsp") == 800


BIDS, PCTRS = [2.0, 1.5, 1.0], [0.05, 0.10, 0.02]


@pytest.mark.parametrize(
    ("squashing", "rules", "winners", "prices"),
    [
        (1.0, {}, [1, 0], [1.0, 0.4]),
        (0.0, {}, [0, 1], [1.5, 1.0]),
        (0.5, {}, [1, 0], [2**0.5, 0.4**0.5]),
        (1.0, {"reserve_cpc": 1.2}, [1, 0], [1.2, 1.2]),
        (1.0, {"score_floor": 0.06}, [1, 0], [1.0, 1.2]),
    ],
)
def test_quality_and_reserves(squashing, rules, winners, prices):
    found, cpc = reference(BIDS, [squashed(q, squashing) for q in PCTRS], slots=2, **rules)
    assert found == winners
    assert [float(price) for price in cpc] == pytest.approx(prices, rel=1e-12)


def test_prices_are_exact():
    _, prices = reference([1.0, 1.0], [0.75, 0.25], slots=2)
    assert prices == [Fraction(1, 3), 0]


def test_slots_stay_empty_and_zeros_are_not_eligible():
    assert reference([0.0, 2.0, 1.0], [0.5, 0.0, 0.5], slots=3, reserve_cpc=0.5) == (
        [2, None, None],
        [Fraction(1, 2), None, None],
    )
    assert squashed(0.0, 0.0) == 0.0


def test_money_is_rounded_to_the_nearest_micro_unit_but_not_above_the_bid():
    assert charge_micros(0.0000015, 1.0) == 2
    assert charge_micros(1.0000007, 1.0000008) == 1_000_000
    assert charge_micros(0.000019, 0.000019) == 19  # times a million a hair below 19


def random_block(rng, requests):
    """Bids, qualities, ids [requests, c] and rules; half the blocks are small grids with many ties."""
    c = int(rng.integers(0, 13))
    if rng.random() < 0.5:
        bid = rng.integers(0, 5, (requests, c)) / 2
        quality = rng.integers(0, 5, (requests, c)) / 8
    else:
        bid = rng.lognormal(0, 1, (requests, c))
        quality = rng.beta(1, 20, (requests, c))
    ids = rng.permuted(np.tile(np.arange(c) * 3, (requests, 1)), axis=1)
    ids[rng.random((requests, c)) < 0.1] = -1
    slots = int(rng.integers(1, 7))
    rules = {
        "slots": slots,
        "pricing": str(rng.choice(PRICINGS)),
        "reserve_cpc": float(rng.choice([0, 0, 0.5, 1.0])),
        "score_floor": float(rng.choice([0, 0, 0.0625, 0.25])),
    }
    for name in RULES[rules["pricing"]].parameters:
        rules[name] = float(rng.choice([0.0, 0.5, 0.7, 1.0, 3.0]))
    effects = np.sort(rng.choice([0.25, 0.5, 0.75, 1.0], slots))[::-1]
    return bid, quality, ids, effects, rules


def test_the_auction_over_ready_made_qualities_agrees_with_the_reference():
    rng = np.random.default_rng(20240607)
    seen = {"filled": 0, "empty": 0, "tied": 0}
    for _ in range(BLOCKS):
        bid, quality, ids, effects, rules = random_block(rng, REQUESTS)
        winners, cpc, *_ = auction(bid, quality, ids=ids, slot_effects=effects, **rules)
        columns = (bid.tolist(), quality.tolist(), ids.tolist())
        expected = [
            reference_auction(b, q, ids=i, effects=effects.tolist(), **rules)
            for b, q, i in zip(*columns, strict=True)
        ]
        want_winners = [[-1 if w is None else w for w in row] for row, _ in expected]
        want_cpc = [[0.0 if p is None else float(p) for p in row] for _, row in expected]
        np.testing.assert_array_equal(winners, want_winners)
        np.testing.assert_allclose(cpc, want_cpc, rtol=1e-12, atol=0)
        seen["filled"] += int((winners >= 0).sum())
        seen["empty"] += int((winners < 0).sum())
        scores = np.sort(bid * quality, axis=1)
        seen["tied"] += int(((np.diff(scores) == 0) & (scores[:, 1:] > 0)).any(axis=1).sum())
    assert min(seen.values()) > 4_000, seen  # the sample reaches every branch often


@pytest.mark.parametrize("slots", [FEW - 2, FEW - 1, FEW, 30])
@pytest.mark.parametrize("has_ids", [True, False])
def test_long_pages_agree_with_the_reference(slots, has_ids):
    """Lists up to FEW are found another way than longer ones."""
    rng = np.random.default_rng(slots)
    bid, quality = rng.integers(0, 6, (200, 40)) / 4, rng.integers(0, 5, (200, 40)) / 16
    ids = rng.permuted(np.tile(np.arange(40), (200, 1)), axis=1) if has_ids else None
    found = auction(bid, quality, ids=ids, slots=slots, reserve_cpc=0.5)
    short = auction(bid, quality.astype(np.float32), ids=ids, slots=slots, reserve_cpc=0.5)
    for row in range(len(bid)):
        own = {} if ids is None else {"ids": ids[row].tolist()}
        want, prices = reference(
            bid[row].tolist(), quality[row].tolist(), slots=slots, reserve_cpc=0.5, **own
        )
        assert found.winners[row].tolist() == [-1 if w is None else w for w in want]
        assert found.cpc[row] == pytest.approx([float(p or 0) for p in prices], rel=1e-12)
    for field, other in zip(found, short, strict=True):
        np.testing.assert_array_equal(field, other)
    is_there = found.ranked >= 0
    np.testing.assert_array_equal(
        found.bid, np.where(is_there, np.take_along_axis(bid, found.ranked.clip(0), 1), 0.0)
    )


@pytest.mark.parametrize("squashing", [0.0, 0.5, 1.0, 2.0])
def test_squashed_scores_agree_with_the_reference(squashing):
    rng = np.random.default_rng(7)
    bid, pctr = rng.integers(0, 6, (500, 8)) / 4, rng.integers(0, 5, (500, 8)) / 16
    winners, cpc = run_auction(bid, pctr, slots=3, squashing=squashing, reserve_cpc=0.25)
    for row in range(len(bid)):
        quality = [squashed(q, squashing) for q in pctr[row].tolist()]
        want, prices = reference(bid[row].tolist(), quality, slots=3, reserve_cpc=0.25)
        assert winners[row].tolist() == [-1 if w is None else w for w in want]
        assert cpc[row] == pytest.approx([float(p or 0) for p in prices], rel=1e-12)


def test_the_reference_knows_every_rule_and_no_other():
    for pricing, rule in RULES.items():
        given = dict.fromkeys(rule.parameters, 0.5)
        _, prices = reference_auction(
            [1.0, 1.0], [0.5, 0.25], slots=1, pricing=pricing, reserve_cpc=0.0, score_floor=0.0,
            effects=[1.0], ids=[0, 1], **given,
        )  # fmt: skip
        assert prices == [1 if pricing == "first" else Fraction(1, 2)]
    with pytest.raises(ValueError, match="no pricing 'third'"):
        reference([1.0, 1.0], [0.5, 0.25], slots=1, pricing="third")
