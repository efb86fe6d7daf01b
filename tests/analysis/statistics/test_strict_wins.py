import math

import numpy as np
import pytest

from cascade_sim.analysis.statistics.strict_wins import (
    beats,
    frontier,
    holm,
    over_seeds,
    paired_p,
    strict_wins,
)


def cell(objective, ndcg, loss, alpha=None, seed=1, rate=0.1):
    return {
        "objective": objective, "ndcg": ndcg, "loss": loss,
        "alpha": alpha, "seed": seed, "learning_rate": rate,
    }  # fmt: skip


def test_the_paired_test_is_students():
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 1, 40), rng.normal(0.3, 1, 40)
    assert paired_p(a, b) == pytest.approx(ttest_rel(a, b).pvalue)
    a[3], b[7] = np.nan, np.nan
    assert paired_p(a, b) == pytest.approx(ttest_rel(a, b, nan_policy="omit").pvalue)


def test_the_paired_test_without_spread_or_without_lists():
    assert paired_p([1, 2, 3], [1, 2, 3]) == 1
    assert paired_p([1, 2, 3], [0, 1, 2]) == 0
    assert math.isnan(paired_p([1, np.nan], [0, 1]))


def test_holm_multiplies_by_the_comparisons_left_and_never_falls():
    assert holm([0.01, 0.04, 0.03, math.nan]) == pytest.approx(
        [3 * 0.01, 0.06, 2 * 0.03, math.nan], nan_ok=True
    )
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []


def test_a_strict_win_is_no_worse_in_both_and_better_in_one():
    base = cell("a", 0.5, 1.0)
    assert beats(cell("b", 0.5, 0.9), base) and beats(cell("b", 0.6, 1.0), base)
    assert not beats(base, base)
    assert not beats(cell("b", 0.6, 1.1), base) and not beats(base, cell("b", 0.6, 1.1))


def test_games_are_between_cells_of_one_rate_and_seed_whatever_their_alpha():
    cells = [
        cell("a", 0.5, 1.0, alpha=0.1),
        cell("a", 0.7, 0.8, alpha=0.9),
        cell("b", 0.6, 0.9),
        cell("b", 0.9, 0.1, seed=2),
        cell("a", 0.9, 0.1, seed=2),
        cell("b", 0.9, 0.1, rate=1.0),
    ]
    found = strict_wins(cells)
    assert found["a"]["b"] == {"games": 3, "won": 1, "lost": 1}
    assert found["b"]["a"] == {"games": 3, "won": 1, "lost": 1}


def test_the_frontier_is_what_nobody_beats():
    points = [cell("a", 0.5, 0.5), cell("b", 0.6, 0.6), cell("c", 0.55, 0.7), cell("d", 0.5, 0.5)]
    assert frontier(points) == [1, 0, 3]


def test_order_and_scale_may_have_other_names():
    one, other = {"objective": "a", "gauc": 0.7, "ece": 0.1}, {"objective": "b", "gauc": 0.7, "ece": 0.2}
    assert beats(one, other, "gauc", "ece") and not beats(other, one, "gauc", "ece")
    assert frontier([other, one], "gauc", "ece") == [1]
    found = strict_wins([one, other], "gauc", "ece")  # no rate and no seed: one game
    assert found["a"]["b"] == {"games": 1, "won": 1, "lost": 0}


def test_seeds_are_averaged():
    found = over_seeds([cell("a", 0.5, 1.0, 0.1), cell("a", 0.7, 2.0, 0.1, seed=2), cell("a", 0.1, 0.1, 0.9)])
    assert [(c["alpha"], c["ndcg"], c["loss"]) for c in found] == [
        (0.1, pytest.approx(0.6), pytest.approx(1.5)),
        (0.9, 0.1, 0.1),
    ]
