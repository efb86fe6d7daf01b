import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade_sim.foundation import kernels
from cascade_sim.foundation.kernels import (
    dot_scores,
    exp_float32,
    hinge_scores,
    nearest_rows,
    pad_lanes,
    select_top,
    sigmoid_inplace,
    tile_scores,
    tiled,
)
from effort import examples


def naive_top(ids, score, c):
    """The c best by (score, then smaller id), in the order of the columns, by sorting."""
    chosen = np.full((len(ids), c), -1, np.int32)
    columns = np.full((len(ids), c), -1, np.int32)
    for r in range(len(ids)):
        real = [j for j in range(ids.shape[1]) if ids[r, j] >= 0]
        best = sorted(sorted(real, key=lambda j: (-float(score[r, j]), ids[r, j]))[:c])
        chosen[r, : len(best)], columns[r, : len(best)] = ids[r, best], best
    return chosen, columns


def rows(n_requests, n, seed=0):
    """Ascending ad ids, with padding of every length at the end of the rows."""
    rng = np.random.default_rng(seed)
    ids = np.sort(np.argsort(rng.random((n_requests, 3 * n + 1)), axis=1)[:, :n], axis=1).astype(np.int32)
    ids[np.arange(n) >= rng.integers(0, n + 1, n_requests)[:, None]] = -1
    ids[0] = np.arange(n)
    return ids, rng


def check(ids, score, c):
    found = select_top(ids, score.astype(np.float32), c)
    expected = naive_top(ids, score.astype(np.float32), c)
    assert np.array_equal(found[0], expected[0]) and np.array_equal(found[1], expected[1])


@pytest.mark.parametrize("c", [1, 7, 39, 40, 55])
def test_selection_equals_sorting_with_padding_negative_scores_and_ties(c):
    ids, rng = rows(60, 40, seed=c)
    check(ids, rng.standard_normal(ids.shape), c)
    check(ids, rng.integers(-2, 3, ids.shape).astype(float) + 0.5, c)


def test_selection_takes_the_smallest_ids_of_equal_scores():
    ids, _ = rows(20, 30)
    for level in (-3.5, 0.0, 1e-30, 7.0):
        check(ids, np.full(ids.shape, level), 9)
    assert select_top(np.array([[2, 5, 8]], np.int32), np.ones((1, 3), np.float32), 2)[0].tolist() == [[2, 5]]


@pytest.mark.parametrize("outlier", [1e30, -1e30, 3e38, np.inf])
def test_one_huge_outlier_does_not_blur_the_others(outlier):
    ids, rng = rows(40, 300)
    score = 1e-3 + 1e-6 * rng.random(ids.shape)
    score[:, 11] = outlier
    check(ids, score, 50)


def test_scores_over_the_whole_range_of_floats_are_told_apart():
    ids, rng = rows(40, 200)
    score = rng.choice([-1, 1], ids.shape) * 10.0 ** rng.uniform(-44, 38, ids.shape)
    check(ids, score, 33)
    near = 1 + np.finfo(np.float32).eps * rng.integers(0, 400, ids.shape)
    check(ids, near, 33)


@given(st.data())
@examples(150)
def test_selection_equals_sorting_for_any_scores(data):
    n, c = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 14))
    floats = st.floats(width=32, allow_nan=False).map(lambda x: x + 0.0)  # no -0.0: it would equal 0.0
    score = np.array([data.draw(st.lists(floats, min_size=n, max_size=n))], np.float32) + np.float32(0)
    ids = np.arange(n, dtype=np.int32)[None, :].copy()
    ids[0, data.draw(st.integers(0, n)) :] = -1
    check(ids, score, c)


def test_nothing_is_selected_from_nothing():
    for n in (0, 5):
        ids = np.full((3, n), -1, np.int32)
        chosen, columns = select_top(ids, np.ones((3, n), np.float32), 4)
        assert chosen.shape == (3, 4) and np.all(chosen == -1) and np.all(columns == -1)


def test_selection_does_not_change_its_inputs():
    ids, rng = rows(10, 30)
    score = rng.random(ids.shape).astype(np.float32)
    before = ids.copy(), score.copy()
    select_top(ids, score, 5)
    assert np.array_equal(ids, before[0]) and np.array_equal(score, before[1])


def test_a_dot_score_is_the_product_of_the_two_codes_and_padding_scores_0():
    ids, rng = rows(20, 15)
    u, a = rng.standard_normal((20, 13)), rng.standard_normal((60, 13))
    found = dot_scores(pad_lanes(u), pad_lanes(a), ids)
    expected = np.einsum("rd,rnd->rn", u, a[ids]) * (ids >= 0)
    assert found == pytest.approx(expected, abs=1e-5)
    hinge = hinge_scores(pad_lanes(u), pad_lanes(a), ids, 0.5)
    assert hinge == pytest.approx(np.maximum(expected - 0.5, 0) * (ids >= 0), abs=1e-5)


def test_a_score_has_the_same_bits_alone_and_in_a_block():
    ids, rng = rows(33, 15)
    u, a = pad_lanes(rng.standard_normal((33, 21))), pad_lanes(rng.standard_normal((60, 21)))
    whole = dot_scores(u, a, ids)
    for r in range(33):
        assert np.array_equal(dot_scores(u[r : r + 1], a, ids[r : r + 1]), whole[r : r + 1])
        assert np.array_equal(dot_scores(u[r : r + 1], a, ids[r : r + 1, 3:4].copy()), whole[r : r + 1, 3:4])


def test_padding_to_lanes_adds_zeros_only():
    m = np.arange(18.0).reshape(2, 9)
    padded = pad_lanes(m)
    assert padded.shape == (2, 16) and padded.dtype == np.float32
    assert np.array_equal(padded[:, :9], m) and not padded[:, 9:].any()
    assert pad_lanes(np.ones((2, 8))).shape == (2, 8)


def numbers(n, seed=0):
    generator = np.random.default_rng(seed)
    return np.concatenate([-generator.exponential(10, n), np.linspace(-87, 0, n)]).astype(np.float32)


def kernel_exp(x):
    out = np.empty_like(x)
    exp_float32(x, np.empty_like(x), out)
    return out


def test_the_exponential_is_within_two_units_in_the_last_place():
    x = numbers(200_000)
    x = x[x >= -87]
    exact = np.exp(x.astype(np.float64))
    assert np.abs(kernel_exp(x) / exact - 1).max() < 2 * np.finfo(np.float32).eps
    assert kernel_exp(np.zeros(1, np.float32))[0] == 1.0


def test_far_below_nothing_is_left_and_nothing_breaks():
    x = np.array([-88, -1e4, -1e19, -np.finfo(np.float32).max], np.float32)
    assert ((kernel_exp(x) >= 0) & (kernel_exp(x) < 1e-37)).all()


def test_its_bits_are_those_of_one_rounded_operation_after_the_other():
    """So they are the same on every processor, however many numbers it takes at once."""
    k = kernels
    x = numbers(10_007)
    v = np.maximum(x, k.LEAST)
    turn = v * k.LOG2_E + k.MAGIC
    r = (v - (turn - k.MAGIC) * k.LN2_HIGH) - (turn - k.MAGIC) * k.LN2_LOW
    p = k.C5 * r + k.C4
    for c in (k.C3, k.C2, k.C1, k.C0):
        p = p * r + c
    plain = (p * (r * r) + r) + k.UNIT
    plain.view(np.int32)[:] += turn.view(np.int32) << 23
    assert plain.dtype == np.float32 and plain.tobytes() == kernel_exp(x).tobytes()


def test_the_sigmoid_is_exact_to_float32_and_saturates():
    x = np.array([[-200.0, -90, -10, -1, 0, 1, 10, 90, 200]], np.float32)
    found = sigmoid_inplace(x.copy())
    assert found == pytest.approx(1 / (1 + np.exp(-x.astype(np.float64))), rel=1e-6, abs=2e-38)
    assert 0 <= found[0, 0] < 2e-38 and found[0, -1] == 1
    scattered = np.linspace(-12, 5, 999, dtype=np.float32)[None, :]
    whole = sigmoid_inplace(scattered.copy())
    for j in range(0, 999, 37):
        assert sigmoid_inplace(scattered[:, j : j + 1].copy())[0, 0] == whole[0, j]


def plain_nearest(code, ads, c):
    """All similarities, then the selection of stages: the plain way."""
    ids = np.tile(np.arange(len(ads), dtype=np.int32), (len(code), 1))
    score = dot_scores(pad_lanes(code), pad_lanes(ads), ids)
    return score, select_top(ids, score, c)[0]


@pytest.mark.parametrize("dims", [1, 7, 8, 9, 15, 16, 17, 23, 33])
def test_similarities_of_tiles_are_the_dot_products_to_the_last_bit(dims):
    draw = np.random.default_rng(dims)
    code, ads = (draw.standard_normal((n, dims)).astype(np.float32) for n in (3, 21))
    ads[2], code[0, 0] = -0.0, 0.0
    found = tile_scores(code, tiled(ads), len(ads))
    expected, _ = plain_nearest(code, ads, 1)
    assert np.array_equal(found.view(np.int32), expected.view(np.int32))


@examples(150)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.one_of(st.integers(1, 40), st.integers(2000, 7000)),
    share=st.floats(0, 1),
    dims=st.integers(1, 19),
    n_requests=st.sampled_from([1, 3, 67]),
    grain=st.sampled_from([0.0, 0.5, 2.0]),  # coarse numbers: many ties
    order=st.sampled_from(["drawn", "nearest last", "nearest first"]),
)
def test_the_nearest_are_those_of_the_plain_way(seed, n, share, dims, n_requests, grain, order):
    draw = np.random.default_rng(seed)
    code, ads = (draw.standard_normal((m, dims)).astype(np.float32) for m in (n_requests, n))
    if grain:
        code, ads = np.round(code / grain) * np.float32(grain), np.round(ads / grain) * np.float32(grain)
    if order != "drawn":  # the rows at the front are no fair sample then
        near = np.argsort(ads @ code[0], kind="stable")
        ads = ads[near if order == "nearest last" else near[::-1]]
    c = max(1, min(n, round(n * share**3)))
    _, expected = plain_nearest(code, ads, c)
    found = nearest_rows(code, tiled(ads), n, c)
    assert found.dtype == np.int32 and np.array_equal(found, expected)


@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1e18])
def test_the_nearest_are_found_among_the_tiniest_and_the_largest_numbers(scale):
    draw = np.random.default_rng(5)
    code = np.ones((2, 1), np.float32)
    ads = (draw.standard_normal((5000, 1)) * scale).astype(np.float32)
    _, expected = plain_nearest(code, ads, 50)
    assert np.array_equal(nearest_rows(code, tiled(ads), 5000, 50), expected)


def test_a_search_that_began_too_high_begins_again(monkeypatch):
    """Nearest first, thousands of them: by the front, nearly all would be near."""
    ads = np.concatenate([np.arange(3000, 0, -1), np.zeros(20_000)]).astype(np.float32)[:, None]
    code = np.ones((1, 1), np.float32)
    assert kernels.TILES_AT_ONCE * 8 < 3000
    found = nearest_rows(code, tiled(ads), len(ads), 2900)
    assert found.tolist() == [list(range(2900))]
    assert np.array_equal(nearest_rows(code, tiled(ads), len(ads), 3500)[0], np.arange(3500))
