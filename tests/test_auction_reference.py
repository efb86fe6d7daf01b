"""The engine's auction against the plain-Python one, on 100 thousand random requests."""

import numpy as np
import pytest
from reference_auction import reference_auction

from cascade_sim.auction import PRICINGS, auction, run_auction

BLOCKS, REQUESTS = 500, 200


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
    effects = np.sort(rng.choice([0.25, 0.5, 0.75, 1.0], slots))[::-1]
    return bid, quality, ids, effects, rules


def test_the_auction_agrees_with_the_reference_on_a_hundred_thousand_requests():
    rng = np.random.default_rng(20240607)
    seen = {"filled": 0, "empty": 0, "tied": 0}
    for _ in range(BLOCKS):
        bid, quality, ids, effects, rules = random_block(rng, REQUESTS)
        winners, cpc, _ = auction(bid, quality, ids=ids, slot_effects=effects, **rules)
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
    assert min(seen.values()) > 20_000, seen  # the sample reaches every branch often


@pytest.mark.parametrize("squashing", [0.0, 0.5, 1.0, 2.0])
def test_squashed_scores_agree_with_the_reference(squashing):
    rng = np.random.default_rng(7)
    bid, pctr = rng.integers(0, 6, (2000, 8)) / 4, rng.integers(0, 5, (2000, 8)) / 16
    winners, cpc = run_auction(bid, pctr, slots=3, squashing=squashing, reserve_cpc=0.25)
    for row in range(len(bid)):
        quality = [q**squashing if q > 0 else 0.0 for q in pctr[row].tolist()]
        want, prices = reference_auction(
            bid[row].tolist(), quality, slots=3, pricing="gsp", reserve_cpc=0.25, score_floor=0.0,
            effects=[1.0] * 3, ids=list(range(8)),
        )  # fmt: skip
        assert winners[row].tolist() == [-1 if w is None else w for w in want]
        assert cpc[row] == pytest.approx([float(p or 0) for p in prices], rel=1e-12)
