import numpy as np
import pytest
from scipy import stats

from cascade_sim.foundation import random as draws

IDS = np.arange(200_000)


def test_a_draw_depends_on_seed_purpose_and_ids_alone():
    whole = draws.uniform(3, "click", IDS[:1000, None], np.arange(7)[None, :])
    for r, a in [(0, 0), (999, 6), (412, 3)]:
        assert draws.uniform(3, "click", r, a)[0] == whole[r, a]
    shuffled = np.random.default_rng(0).permutation(1000)
    assert np.array_equal(draws.uniform(3, "click", IDS[:1000][shuffled], 4), whole[shuffled, 4])


def test_neither_seeds_nor_purposes_nor_the_order_of_ids_share_their_draws():
    base = draws.uniform(1, "click", IDS, 5)
    others = [
        draws.uniform(2, "click", IDS, 5),
        draws.uniform(1, "conversion", IDS, 5),
        draws.uniform(1, "click", 5, IDS),
        draws.uniform(1, "click", IDS, 6),
        draws.uniform(1, "click", IDS + 1, 5),
    ]
    for other in others:
        keep = IDS != 5  # where both ids are 5 their order is no difference
        assert abs(np.corrcoef(base[keep], other[keep])[0, 1]) < 5 / np.sqrt(len(IDS))
        assert not np.any(base[keep] == other[keep])


def test_uniform_draws_are_uniform():
    u = draws.uniform(7, "test", IDS)
    counts = np.histogram(u, bins=100, range=(0, 1))[0]
    assert stats.chisquare(counts).pvalue > 1e-4
    pairs = np.histogram2d(u[::2], u[1::2], bins=20, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-4


def test_every_bit_is_a_fair_coin():
    raw = draws.bits(7, "test", IDS)
    for bit in range(64):
        ones = int(((raw >> np.uint64(bit)) & np.uint64(1)).sum())
        assert abs(ones - len(IDS) / 2) < 5 * np.sqrt(len(IDS) / 4)


@pytest.mark.parametrize("raw", [0, 1, 2**11, 2**63, 2**64 - 2**12, 2**64 - 1])
def test_no_draw_is_0_or_1_so_every_normal_is_finite(monkeypatch, raw):
    monkeypatch.setattr(draws, "bits", lambda *_: np.array([raw], np.uint64))
    assert 0 < draws.uniform(1, "x")[0] < 1
    assert np.isfinite(draws.normal(1, "x")[0])
    assert draws.exponential(1, "x")[0] > 0


def test_normal_draws_are_standard_normal_and_exponential_ones_have_mean_1():
    z = draws.normal(7, "test", IDS)
    assert stats.kstest(z[:20_000], "norm").pvalue > 1e-4
    assert stats.kstest(draws.exponential(7, "gap", IDS[:20_000]), "expon").pvalue > 1e-4


def test_padding_ids_are_drawn_like_any_other():
    assert 0 < draws.uniform(1, "click", 12, -1)[0] < 1


def test_ids_broadcast_and_no_ids_give_one_draw():
    assert draws.uniform(1, "x", IDS[:3, None], IDS[None, :4]).shape == (3, 4)
    assert draws.bits(1, "weights").shape == (1,)


@pytest.mark.parametrize("ids", [IDS, -IDS, IDS.astype(np.int32) - 1])
def test_many_draws_at_once_are_those_of_the_plain_arithmetic(ids, monkeypatch):
    rows = np.stack([ids[:9000], ids[9000:18_000], ids[1:9001]], axis=1).astype(np.int32)
    first = ids[:9000, None]
    cases = [(ids,), (first, rows), (first, rows[:, ::2]), (first, ids[None, :3])]
    compiled = [draws.uniform(5, "both", *case) for case in cases]
    monkeypatch.setattr(draws, "WORTH_COMPILED", 10**9)
    for case, found in zip(cases, compiled, strict=True):
        assert np.array_equal(found, draws.uniform(5, "both", *case))
