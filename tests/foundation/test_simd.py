"""Eight lanes do what a loop over single numbers does, in the order that is written down."""

import numpy as np
import pytest
from numba import njit

from cascade_sim.foundation.kernels import MIN_COLUMNS, PASSES, coaction_scores, dot_scores, pad_lanes
from cascade_sim.foundation.simd import (
    is_any_least8,
    lane8,
    load8,
    max8,
    prefetch_row,
    relu8,
    splat8,
    spread8,
    store8,
    sum8,
)

F = np.float32


@njit
def _all(table, row, out):
    """Every operation once."""
    prefetch_row(table, row)
    value = load8(table, (np.uint64(row), np.uint64(8)))
    out[0] = sum8(value)
    out[1] = lane8(value, 3)
    out[2] = sum8(relu8(value))
    out[3] = sum8(splat8(F(0.1)) * value + splat8(F(0.7)))
    out[4] = lane8(spread8(value, 5), 0) + lane8(spread8(value, 5), 7)
    out[5] = lane8(relu8(value), 6)
    other = load8(table, (np.uint64(row), np.uint64(0)))
    out[6], out[7] = sum8(max8(value, other)), sum8(max8(other, value))


@njit
def _compare(table, row, bound, out):
    """Eight numbers copied, and whether any is at least the bound."""
    value = load8(table, (np.uint64(row), np.uint64(8)))
    store8(out, (np.uint64(2),), value)
    return is_any_least8(value, splat8(bound))


def pairwise(v):
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]))


@pytest.fixture
def table():
    return np.random.default_rng(3).standard_normal((5, 24)).astype(F)


@pytest.mark.parametrize("row", [0, 4])
def test_every_operation_is_that_of_single_numbers(table, row):
    v, out = table[row, 8:16], np.zeros(8, F)
    _all(table, row, out)
    larger = np.maximum(v, table[row, :8])
    expected = [pairwise(v), v[3], pairwise(np.maximum(v, F(0))), pairwise(F(0.1) * v + F(0.7)), v[5] + v[5]]
    assert out[:5].tolist() == [float(x) for x in expected]
    assert out[6:].tolist() == [float(pairwise(larger))] * 2


def test_what_is_not_a_number_stays_so(table):
    table[0, 14], out = np.nan, np.zeros(8, F)
    _all(table, 0, out)
    assert np.isnan(out[5:]).all() and np.isnan(out[2]) and out[1] == table[0, 11]


def test_eight_numbers_are_stored_and_compared(table):
    v, out = table[2, 8:16], np.zeros(12, F)
    assert _compare(table, 2, v.max(), out) and not _compare(table, 2, np.nextafter(v.max(), F(9)), out)
    assert out.tolist() == [0.0, 0.0, *v.tolist(), 0.0, 0.0]
    table[2, 8:16] = np.nan
    assert not _compare(table, 2, F(-np.inf), out)


def single_dot(a, b):
    lanes = np.zeros(8, F)
    for d in range(0, len(a), 8):
        lanes = lanes + a[d : d + 8] * b[d : d + 8]
    return pairwise(lanes)


@pytest.mark.parametrize("dims", [1, 8, 14, 33])
def test_dot_products_are_those_of_single_numbers(dims):
    draw = np.random.default_rng(dims)
    request, ads = (pad_lanes(draw.standard_normal((n, dims))) for n in (3, 7))
    ids = draw.integers(-1, 7, (3, 11)).astype(np.int32)
    expected = [[single_dot(request[r], ads[a]) if a >= 0 else 0.0 for a in ids[r]] for r in range(3)]
    assert dot_scores(request, ads, ids).tolist() == np.array(expected, F).tolist()


@pytest.mark.parametrize("hidden", [8, 32])
def test_co_action_is_that_of_single_numbers(hidden):
    draw = np.random.default_rng(hidden)

    def normal(*shape):
        return draw.standard_normal(shape).astype(F)

    request_in, ad_matrix, out_weight, pair = normal(2, 5), normal(6, 5, 8), normal(1, hidden), normal(2, 4)
    request_hidden, ad_hidden = pad_lanes(normal(2, hidden + 1)), pad_lanes(normal(6, hidden + 1))
    mix, pair_weight = pad_lanes(normal(8, hidden + 1)), pad_lanes(normal(hidden + 1))
    ids = np.array([[0, 3, 5, -1], [1, 1, -1, 4]], np.int32)
    found = coaction_scores(
        request_in, request_hidden, ad_matrix, ad_hidden, mix, pair_weight, out_weight, pair, ids
    )
    for (r, j), a in np.ndenumerate(ids):
        if a < 0:
            assert found[r, j] == 0
            continue
        m = np.zeros(8, F)
        for i in range(5):
            m = m + request_in[r, i] * ad_matrix[a, i]
        own = request_hidden[r] + ad_hidden[a] + pair[r, j] * pair_weight
        terms = [m[i] * mix[i] for i in range(8)]
        left = (terms[0] + terms[1]) + (terms[2] + terms[3])
        h = own + left + ((terms[4] + terms[5]) + (terms[6] + terms[7]))
        assert found[r, j] == single_dot(np.maximum(h[:hidden], F(0)), out_weight[0]) + h[hidden]


def test_a_pair_has_the_same_bits_whatever_candidates_stand_beside_it():
    rng = np.random.default_rng(6)

    def table(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    n = 3 * PASSES * MIN_COLUMNS + 7  # several passes, the last one short
    ids = np.sort(rng.integers(0, 300, (5, n)), axis=1).astype(np.int32)
    ids[2, -3:] = -1
    pair = table(5, n)
    sides = (
        table(5, 16),
        table(5, 40),
        table(300, 16, 8),
        table(300, 40),
        table(8, 40),
        table(40),
        table(1, 32),
    )
    whole = coaction_scores(*sides, pair, ids)
    for j in (0, 15, 16, n // 2, n - 4, n - 1):
        alone = coaction_scores(*sides, pair[:, j : j + 1].copy(), ids[:, j : j + 1].copy())
        assert alone[:, 0].tobytes() == whole[:, j].tobytes()
    assert (whole[2, -3:] == 0).all() and (whole[:, :-3] != 0).all()
