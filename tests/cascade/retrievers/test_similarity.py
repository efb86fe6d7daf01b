import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cascade_sim.cascade.retrievers import by_user as module
from cascade_sim.cascade.retrievers.similarity import Retrieval
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.kernels import is_full, n_filled
from cascade_sim.world.world import build_world
from worlds.tiny_market import tiny_scenario


@pytest.fixture(scope="module")
def world():
    return build_world(tiny_scenario().world, 1)


def make(world, **changes):
    weight = changes.pop("popularity", 0.0)
    spec = tiny_scenario(*[f"cascade.retrieval.{k}={v}" for k, v in changes.items()]).cascade.retrieval
    return Retrieval(world, spec, weight)


def nearest(similarity, size):
    """Brute force: sort by (similarity, smaller id), keep `size`, ascending ids."""
    return np.sort(np.argsort(-similarity, axis=1, kind="stable")[:, :size], axis=1)


def test_retrieval_equals_brute_force(world):
    dims = np.arange(4)[None, :]
    own_u = draws.normal(1, "user.retrieval", np.arange(150)[:, None], dims)
    own_a = draws.normal(1, "ad.retrieval", np.arange(600)[:, None], dims)
    similarity = np.sqrt(0.3) * world.user_features["G1"] @ world.ad_features["G1"].T.astype(np.float64)
    similarity += np.sqrt(0.7) * own_u @ own_a.T + 0.2 * world.popularity
    users = np.random.default_rng(0).integers(0, 150, 400).astype(np.int32)
    found = make(world, overlap=0.3, popularity=0.2)(users, 60)
    expected = nearest(similarity[users], 60)
    # Where float32 and float64 disagree, the two ads must be as near as rounding.
    last = np.take_along_axis(similarity[users], expected, 1).min(axis=1)
    assert np.all(np.take_along_axis(similarity[users], found, 1) >= last[:, None] - 1e-5)
    assert np.mean(found == expected) > 0.99
    assert np.all(np.diff(found, axis=1) > 0)


def test_full_overlap_is_the_groups_own_affinity(world):
    r = make(world, overlap=1.0)
    affinity = world.user_features["G1"].astype(np.float64) @ world.ad_features["G1"].T.astype(np.float64)
    found = r(np.arange(150, dtype=np.int32), 25)
    expected = nearest(affinity, 25)
    assert np.mean([len(np.intersect1d(a, b)) / 25 for a, b in zip(found, expected, strict=True)]) > 0.999


def test_without_overlap_retrieval_says_nothing_about_the_groups_affinity(world):
    r = make(world, overlap=0.0)
    users = np.arange(150, dtype=np.int32)
    affinity = world.user_features["G1"] @ world.ad_features["G1"].T
    retrieved = np.take_along_axis(affinity, r(users, 60), 1)
    assert abs(retrieved.mean()) < 5 * affinity.std() / np.sqrt(retrieved.size) * 3


def test_popular_ads_are_retrieved_for_everyone_when_popularity_weighs_all(world):
    r = make(world, popularity=100.0)
    top = np.sort(np.argsort(-world.popularity, kind="stable")[:10])
    assert all(len(np.intersect1d(row, top)) == 10 for row in r(np.arange(150, dtype=np.int32), 40))


def test_an_answer_does_not_depend_on_who_asks_along_or_whether_it_is_kept(world, monkeypatch):
    users = np.random.default_rng(0).integers(0, 150, 300).astype(np.int32)
    together = make(world)(users, 60)
    one_by_one = make(world)
    assert all(np.array_equal(one_by_one(users[i : i + 1], 60)[0], together[i]) for i in range(300))
    monkeypatch.setattr(module, "KEPT_IDS", 0)
    assert np.array_equal(make(world)(users, 60), together)


def test_the_answer_follows_the_similarity_it_reports(world):
    r = make(world, popularity=0.2)
    for user in (0, 77, 149):
        similarity = r.similarity(user)
        assert similarity.dtype == np.float32 and similarity.shape == (600,)
        assert np.array_equal(r(np.array([user], np.int32), 60)[0], nearest(similarity[None], 60)[0])


def test_a_users_answer_is_computed_once_and_only_when_asked_for(world, monkeypatch):
    r = make(world)
    asked = []
    real = r.nearest
    monkeypatch.setattr(
        r, "nearest", lambda users, size: (asked.extend(users.tolist()), real(users, size))[1]
    )
    for users in ([3, 5, 3], [5, 9], [3]):
        r(np.array(users, np.int32), 60)
    assert asked == [3, 5, 9]
    monkeypatch.setattr(module, "KEPT_IDS", 150 * 60 + 150 * 20 - 1)  # no room for a second size:
    asked.clear()
    for _ in range(2):
        r(np.array([3, 3, 5], np.int32), 20)
    assert asked == []  # it is chosen from the first


def counted(retrieval, monkeypatch):
    """The users that are looked up in the corpus from here on, in order."""
    asked, real = [], retrieval.nearest
    monkeypatch.setattr(
        retrieval, "nearest", lambda users, size: (asked.extend(users.tolist()), real(users, size))[1]
    )
    return asked


def test_more_users_than_room_are_kept_as_far_as_it_goes(world, monkeypatch):
    monkeypatch.setattr(module, "KEPT_IDS", 100 * 60)
    r = make(world)
    asked = counted(r, monkeypatch)
    for start in range(0, 150, 10):
        r(np.arange(start, start + 10, dtype=np.int32), 60)
        r(np.array([0, 1], np.int32), 60)  # these two come all the time
    assert asked == list(range(150))
    asked.clear()
    r(np.arange(100, 150, dtype=np.int32), 60)  # the last to come are known
    r(np.array([0, 1], np.int32), 60)
    assert asked == []
    r(np.arange(2, 12, dtype=np.int32), 60)  # those longest away are not
    assert asked == list(range(2, 12))


def test_answers_do_not_depend_on_the_room_nor_on_what_gave_way(world, monkeypatch):
    expected = {size: make(world)(np.arange(150, dtype=np.int32), size) for size in (60, 20, 75)}
    draw = np.random.default_rng(3)
    for room in (0, 60, 7 * 60, 100 * 60, 150 * 155):
        monkeypatch.setattr(module, "KEPT_IDS", room)
        r = make(world)
        for _ in range(60):
            size = int(draw.choice([60, 20, 75]))
            users = draw.integers(0, 150, int(draw.integers(1, 40))).astype(np.int32)
            assert np.array_equal(r(users, size), expected[size][users])


def test_threads_may_ask_at_once(world, monkeypatch):
    monkeypatch.setattr(module, "KEPT_IDS", 40 * 60)
    r = make(world)
    expected = make(world).nearest(np.arange(150, dtype=np.int32), 60)

    def ask(seed):
        draw = np.random.default_rng(seed)
        batches = [draw.integers(0, 150, 20).astype(np.int32) for _ in range(100)]
        return all(np.array_equal(r(users, 60), expected[users]) for users in batches)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(4)))


def test_a_world_beyond_the_room_is_not_looked_up_anew_for_every_block(world, monkeypatch):
    monkeypatch.setattr(module, "KEPT_IDS", 149 * 60)  # one user short
    r = make(world)
    asked = counted(r, monkeypatch)
    for _ in range(3):
        r(np.arange(100, dtype=np.int32), 60)
    assert len(asked) == 100


def test_sizes_are_kept_apart_and_a_smaller_one_is_a_subset(world):
    r = make(world)
    users = np.arange(100, dtype=np.int32)
    large, small = r(users, 60), r(users, 20)
    assert small.shape == (100, 20)
    assert all(np.isin(s, g).all() for s, g in zip(small, large, strict=True))


def test_where_all_are_retrieved_all_users_share_one_row_that_nobody_can_write_to(world):
    found = make(world)(np.arange(50, dtype=np.int32), 600)
    assert found.shape == (50, 600) and found.strides[0] == 0 and not found.flags.writeable
    assert is_full(found) and n_filled(found).tolist() == [600] * 50


def test_more_than_the_corpus_gives_the_corpus(world):
    assert np.array_equal(make(world)(np.array([3], np.int32), 10_000)[0], np.arange(600))


def test_a_caller_cannot_spoil_a_kept_answer(world):
    r = make(world)
    first = r(np.array([3], np.int32), 60)
    expected = first.copy()
    first[:] = -7
    assert np.array_equal(r(np.array([3], np.int32), 60), expected)


def test_the_nearest_come_first_when_asked_for(world):
    retrieval = make(world)
    users = np.array([3, 77, 3], np.int32)
    ids = retrieval(users, 60)
    found = retrieval.nearest_first(users, ids)
    assert np.array_equal(np.sort(found, axis=1), ids) and np.array_equal(found[0], found[2])
    similarity = np.stack([retrieval.similarity(user) for user in users])
    assert np.all(np.diff(np.take_along_axis(similarity, found, 1), axis=1) <= 0)
    assert np.array_equal(np.sort(found[:, :10], axis=1), retrieval(users, 10))
    padded = np.concatenate([ids[:, :5], np.full((3, 2), -1, np.int32)], axis=1)
    assert np.all(retrieval.nearest_first(users, padded)[:, 5:] == -1)


def test_with_all_lists_probed_the_answer_is_exact(world):
    exact, all_lists = make(world), make(world, probes=1000)
    users = np.arange(150, dtype=np.int32)
    assert np.array_equal(all_lists(users, 60), exact(users, 60))
    assert all_lists.share_found(60) == 1.0
    assert exact.share_found(60) is None


def test_more_lists_find_more_of_the_nearest(world):
    shares = [make(world, probes=probes).share_found(60) for probes in (1, 4, 16)]
    assert shares == sorted(set(shares))
    assert shares[0] > 0.05  # by chance, one of 48 lists would hold 0.02 of them
    assert shares[-1] > 0.8


def test_lists_with_fewer_ads_than_wanted_leave_places_empty(world):
    found = make(world, probes=1)(np.arange(20, dtype=np.int32), 200)
    assert found.shape == (20, 200)
    assert np.all((found >= 0).sum(axis=1) < 200)
    for row in found:
        filled = row[row >= 0]
        assert np.all(np.diff(filled) > 0)
        assert np.all(row[len(filled) :] == -1)


def test_approximate_answers_do_not_depend_on_who_asks_together(world):
    users = np.arange(150, dtype=np.int32)
    whole, one_by_one = make(world, probes=3)(users, 60), make(world, probes=3)
    assert np.array_equal(whole, np.concatenate([one_by_one(users[i : i + 7], 60) for i in range(0, 150, 7)]))


def test_without_the_library_the_command_that_installs_it_is_named(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"probes.*pip install 'cascade_sim\[faiss\]'"):
        make(world, probes=3)


@pytest.fixture(scope="module")
def churned():
    return build_world(tiny_scenario("world.churn={share: 0.5, life: 2.0}").world, 1)


def test_of_ads_that_come_and_go_the_nearest_that_are_there_are_found(churned):
    r, rng = make(churned), np.random.default_rng(2)
    users, times = rng.integers(0, 150, 300).astype(np.int32), rng.uniform(0, 10 * 86_400.0, 300)
    found = r.among_available(users, 60, times, churned.lives)
    for row, user, time in zip(found, users, times, strict=True):
        there = churned.lives.is_available(np.arange(600), time)
        similarity = np.where(there, r.similarity(user), -np.inf)
        assert np.array_equal(row, nearest(similarity[None], 60)[0])


def test_where_few_of_the_nearest_are_there_the_search_goes_on(churned, monkeypatch):
    users, times = np.arange(150, dtype=np.int32), np.linspace(0, 9 * 86_400.0, 150)
    usual = make(churned).among_available(users, 60, times, churned.lives)
    monkeypatch.setattr(module, "available_width", lambda size, share: size)
    assert np.array_equal(make(churned).among_available(users, 60, times, churned.lives), usual)


def test_a_request_for_more_ads_than_are_there_gets_those(churned):
    users, times = np.arange(20, dtype=np.int32), np.linspace(0, 9 * 86_400.0, 20)
    found = make(churned).among_available(users, 600, times, churned.lives)
    assert np.array_equal(found, churned.lives.corpus(times))


def test_living_ads_are_the_same_whoever_came_before_or_comes_beside(churned):
    users, times = np.arange(150, dtype=np.int32), np.linspace(0, 9 * 86_400.0, 150)
    r = make(churned)
    whole = r.among_available(users, 60, times, churned.lives)
    again = [
        r.among_available(users[i : i + 7], 60, times[i : i + 7], churned.lives) for i in range(0, 150, 7)
    ]
    assert np.array_equal(whole, np.concatenate(again))
