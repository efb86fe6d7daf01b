"""What an ad's own bid decides: compared as the cascade compares, against the best ad left out."""

import numpy as np
import pytest

from cascade_sim.cascade.serve import serve
from cascade_sim.counterfactual.bid_response import best_outsider, order_key
from cascade_sim.foundation.kernels import select_top
from worlds.cascades import BID, PCTR, Bids, Table, arm, platform
from worlds.tiny_market import make_block

SPECIAL = np.array([-np.inf, -3.5, -1e-45, -0.0, 0.0, 1e-45, 0.3, 0.30000004, 7.0, np.inf], np.float32)


def test_keys_are_in_the_order_in_which_pre_ranking_selects():
    ids = np.arange(len(SPECIAL), dtype=np.int32)[None, :]
    order = np.argsort(order_key(SPECIAL))
    for c in range(1, len(SPECIAL) + 1):
        chosen = select_top(ids, SPECIAL[None, :], c)[0][0]
        assert sorted(order[-c:].tolist()) == chosen.tolist()
    assert len(set(order_key(SPECIAL).tolist())) == len(SPECIAL)


def served(candidates, size, bid=BID):
    found = arm(Table(PCTR), Table(PCTR), size=size, candidates=candidates)
    return serve(make_block([0, 1]), found, platform(Bids(bid)))


def test_the_best_ad_left_out():
    # bid * pCTR: .30 .20 .20 .20 .06 .09
    has_any, ad, key = best_outsider(served([0, 1, 2, 3, 4, 5], size=4))
    assert has_any.tolist() == [True, True] and ad.tolist() == [5, 5]
    assert key.tolist() == order_key(np.float32([0.09, 0.09])).tolist()


def test_of_equals_left_out_the_one_with_the_smallest_id_is_the_best():
    assert best_outsider(served([1, 2, 3, 5], size=1 + 1, bid=[3.0, 1.0, 4.0, 0.5, 0.2, 1.0]))[1][0] == 3
    assert best_outsider(served([0, 1, 3, 4], size=3, bid=[3.0, 1.0, 4.0, 0.5, 0.5, 1.0]))[1][0] == 4


@pytest.mark.parametrize("candidates", [[0, 1], [0, 1, 2, -1, -1]])
def test_nobody_is_left_out_where_all_fit(candidates):
    assert best_outsider(served(candidates, size=3))[0].tolist() == [False, False]
