"""Merged routes: quotas, duplicates, padding, and the order in which late answers take them."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cascade.retrievers.routes import MergedRoutes, Quota, brought_by, union
from cascade_sim.cascade.retrievers.similarity import best_first
from cascade_sim.cascade.serve import serve
from cascade_sim.cascade.timeout import BY_RETRIEVAL
from cascade_sim.scenario.schema import Retrieval, Route
from cascade_sim.study.simulation import Simulation
from worlds.cascades import BID, PCTR, Bids, Table, arm, platform
from worlds.tiny_market import make_block, tiny_scenario


class Best:
    """Brings the ads that stand first in an order of all, the same for everyone."""

    name = "best"

    def __init__(self, *order):
        self.order = np.array(order, np.int32)

    def retrieve(self, block, size, lives):
        return np.tile(np.sort(self.order[:size]), (len(block), 1))

    def score(self, block, ids):
        return -np.argsort(self.order).astype(np.float32)[ids]


FIRST, SECOND = Best(5, 3, 1, 0, 2, 4), Best(3, 4, 0, 5, 1, 2)
BLOCK = make_block([0, 1])


def merged(first, second):
    return MergedRoutes((Quota("first", FIRST, first), Quota("second", SECOND, second)))


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (2, 1, [3, 5, -1]),  # 5 and 3 of the first; the second brings 3 again
        (1, 2, [3, 4, 5]),
        (3, 3, [0, 1, 3, 4, 5, -1]),
        (2, 0, [3, 5]),  # a route of quota 0 is not asked
    ],
)
def test_each_route_brings_its_quota_and_no_ad_counts_twice(first, second, found):
    assert merged(first, second).retrieve(BLOCK, first + second, None).tolist() == [found, found]


def test_a_union_is_that_of_sets_and_its_padding_stands_at_the_end():
    rng = np.random.default_rng(3)
    parts = []
    for width in (4, 1, 6):
        rows = [np.sort(rng.choice(9, width, replace=False)) for _ in range(50)]
        kept = [rng.integers(0, width + 1) for _ in rows]
        parts.append(np.array([[*row[:n], *[-1] * (width - n)] for row, n in zip(rows, kept, strict=True)]))
    made = union([part.astype(np.int32) for part in parts], 11)
    assert made.shape == (50, 11) and made.dtype == np.int32
    for row, *sets in zip(made.tolist(), *(part.tolist() for part in parts), strict=True):
        expected = sorted({ad for one in sets for ad in one} - {-1})
        assert row == [*expected, *[-1] * (11 - len(expected))]


def test_routes_take_turns_at_the_pace_of_their_quotas():
    routes = merged(2, 4)  # first: 5 at 0, 3 at 1/2; second: 3 at 0, 4 at 1/4, 0 at 1/2, 5 at 3/4
    ids = routes.retrieve(BLOCK, 6, None)
    assert ids[0].tolist() == [0, 3, 4, 5, -1, -1]
    assert routes.score(BLOCK, ids)[0].tolist() == pytest.approx([0.5, 1.0, 0.75, 1.0, 0.0, 0.0])
    assert best_first(routes, BLOCK, ids)[0].tolist() == [3, 5, 4, 0, -1, -1]


def test_of_the_whole_corpus_those_above_0_are_the_ones_that_are_brought():
    for first, second in ((2, 1), (1, 3), (0, 2), (6, 6)):
        routes = merged(first, second)
        corpus = np.tile(np.arange(6, dtype=np.int32), (2, 1))
        brought = routes.retrieve(BLOCK, first + second, None)
        assert (
            np.flatnonzero(routes.score(BLOCK, corpus)[0] > 0).tolist()
            == brought[0][brought[0] >= 0].tolist()
        )


def test_a_late_answer_of_routes_is_their_order():
    pre, rank = Table(PCTR), Table(PCTR)
    one = arm(pre, rank, size=4, slots=2)
    one = replace(one, retrieval=replace(one.retrieval, retriever=merged(2, 4), size=6))
    page = serve(BLOCK, one, platform(Bids(BID)), np.full(2, BY_RETRIEVAL, np.int8))
    assert page.win_set.tolist() == [[3, 5], [3, 5]]


def test_which_routes_bring_an_ad():
    found = brought_by(merged(2, 1), BLOCK, np.array([[3, 5, 4, -1], [4, 0, 5, 3]]), None)
    assert {name: rows.tolist() for name, rows in found.items()} == {
        "first": [[True, True, False, False], [False, False, True, True]],
        "second": [[True, False, False, False], [False, False, False, True]],
    }
    assert brought_by(merged(2, 0), BLOCK, np.array([[5], [4]]), None).keys() == {"first"}
    assert brought_by(FIRST, BLOCK, np.array([[5], [4]]), None) == {}


def test_a_block_with_a_memo_asks_each_route_once():
    """An ad's routes are looked up in what was retrieved, so a dear retriever is not asked twice."""

    class Counted(Best):
        asked = 0

        def retrieve(self, block, size, lives):
            self.asked += 1
            return super().retrieve(block, size, lives)

    one = Counted(5, 3, 1, 0, 2, 4)
    routes = MergedRoutes((Quota("one", one, 2), Quota("other", SECOND, 1)))
    block = replace(BLOCK, memo=BlockCache())
    ids = routes.retrieve(block, 3, None)
    routes.brought_by(block, ids, None)
    assert one.asked == 1


@pytest.fixture(scope="module")
def sim():
    return Simulation(tiny_scenario("world.churn={available_share: 0.6, mean_lifetime_days: 0.02}"), 1)


def test_routes_of_a_world_whose_ads_come_and_go_bring_those_that_are_there(sim):
    block = sim.arrivals.block("evaluate", 0, 100)
    near, other = Route(size=30), Route(size=20, group="G4", overlap=1.0)
    routes = sim.retriever_of(Retrieval(routes={"near": near, "other": other}))
    found = routes.retrieve(block, 50, sim.platform.lives)
    assert sim.platform.lives.is_available(found, block.times[:, None])[found >= 0].all()
    for row, one, two in zip(
        found,
        sim.route_retriever(near).retrieve(block, 30, sim.platform.lives),
        sim.route_retriever(other).retrieve(block, 20, sim.platform.lives),
        strict=True,
    ):
        assert row[row >= 0].tolist() == sorted({*one.tolist(), *two.tolist()} - {-1})
    assert len({int((row >= 0).sum()) for row in found}) > 1  # some pairs of sets have more in common


def test_one_route_is_the_retriever_itself_and_sizes_share_an_index(sim):
    block = sim.arrivals.block("evaluate", 0, 100)
    alone = sim.retriever_of(Retrieval(size=40))
    assert sim.route_retriever(Route(size=7)) is alone is sim.retriever
    routes = sim.retriever_of(Retrieval(routes={"only": Route(size=40)}))
    assert np.array_equal(
        routes.retrieve(block, 40, sim.platform.lives), alone.retrieve(block, 40, sim.platform.lives)
    )
    assert routes == sim.retriever_of(Retrieval(routes={"only": Route(size=40)}))
