"""Moves of ratios: formula against arithmetic, coverage against draws."""

import math

import numpy as np
import pytest

from cascade_sim.analysis.statistics.moves import (
    RelativeChange,
    beats,
    binomial_band,
    day_change,
    frontier,
    holm,
    holm_alpha,
    over_seeds,
    paired_change,
    paired_p,
    strict_wins,
    unpaired_change,
)


def test_a_price_cut_that_every_request_shares_is_known_without_any_doubt():
    top, bottom = np.array([1.0, 2.0, 5.0]), np.array([1.0, 1.0, 2.0])
    move = paired_change((top, bottom), (0.995 * top, bottom))
    assert move.relative == pytest.approx(-0.005, abs=1e-15)
    assert move.se == pytest.approx(0.0, abs=1e-15)
    assert move.p_value() < 1e-12


def test_the_standard_error_is_the_spread_of_the_groups_influences():
    before = (np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    after = (np.array([2.0, 3.0]), np.array([1.0, 1.0]))
    # t'/T' - t/T = 2/5 - 1/4 and 3/5 - 3/4: plus and minus 0.15; G / (G - 1) = 2
    move = paired_change(before, after)
    assert move.log == pytest.approx(math.log(5 / 4))
    assert move.se == pytest.approx(math.sqrt(2 * (0.15**2 + 0.15**2)))
    assert move.df == 1
    # unpaired: 2 * 2 * 0.25^2 before, 2 * 2 * 0.1^2 after
    other = unpaired_change(before, after)
    assert other.se == pytest.approx(math.sqrt(4 * 0.25**2 + 4 * 0.1**2))


def test_a_metric_that_is_gone_moves_by_minus_all_and_surely():
    move = paired_change((np.ones(4), np.ones(4)), (np.zeros(4), np.ones(4)))
    assert move.relative == -1.0 and move.p_value() == 0.0


def test_a_move_in_the_last_digits_is_no_change():
    assert RelativeChange(1e-10, 0.0, 5).p_value() == 1.0
    assert RelativeChange(1e-6, 0.0, 5).p_value() == 0.0


def test_what_was_nothing_before_cannot_move_relatively():
    with pytest.raises(ValueError, match="more than 0"):
        paired_change((np.zeros(4), np.ones(4)), (np.ones(4), np.ones(4)))
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_change((np.ones(4), np.ones(4)), (np.ones(5), np.ones(5)))


def test_the_smallest_change_seen_fails_in_95_of_100_draws():
    generator = np.random.default_rng(3)
    groups, alpha = 64, 0.05
    shape = (np.full(groups, 1.0), np.ones(groups))

    def fails(shift: float) -> bool:
        noisy = shape[0] * (1 + shift) + generator.normal(0, 0.05, groups)
        return paired_change(shape, (noisy, shape[1])).p_value() <= alpha

    seen = paired_change(shape, (1 + generator.normal(0, 0.05, groups), shape[1])).minimum_detectable_effect(
        alpha
    )
    power = np.mean([fails(seen) for _ in range(400)])
    false = np.mean([fails(0.0) for _ in range(400)])
    assert 0.90 <= power <= 0.99  # the noise of the first draw's own standard error is in it
    assert false <= 0.08


def test_a_tolerance_adds_to_what_is_seen_only_where_noise_is_smaller():
    exact, noisy = RelativeChange(0.0, 0.0, 100), RelativeChange(0.0, 0.01, 100)
    assert exact.minimum_detectable_effect(0.05, tolerance=0.005) == pytest.approx(0.005)
    assert noisy.minimum_detectable_effect(0.05, tolerance=0.005) == noisy.minimum_detectable_effect(0.05)


def test_intervals_of_skewed_unpaired_revenue_cover_the_truth():
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        before, after = (generator.exponential(1.0, (128, 8)).sum(axis=1) for _ in range(2))
        low, high = unpaired_change((before, np.full(128, 8.0)), (after, np.full(128, 8.0))).interval()
        covered += low <= 0.0 <= high
    assert 0.92 <= covered / 400 <= 0.98


def test_holm_multiplies_the_smallest_by_all_the_next_by_one_less_and_keeps_the_order():
    # 3 * 0.01, then 2 * 0.04, then max(0.08, 1 * 0.05)
    assert holm([0.04, 0.01, 0.05]) == pytest.approx([0.08, 0.03, 0.08])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    # 0.01 was compared with 0.05 / 3 and rejected; 0.04 against 0.05 / 2, where it stopped
    assert holm_alpha([0.04, 0.01, 0.05], 0.05) == pytest.approx([0.025, 0.05 / 3, 0.025])


def test_holm_errs_in_at_most_5_of_100_families_and_so_much_when_independent():
    generator = np.random.default_rng(7)
    families = generator.uniform(size=(4000, 6))
    errors = np.mean([min(holm(list(family))) <= 0.05 for family in families])
    assert 0.04 <= errors <= 0.06  # 1 - (1 - 0.05 / 6)^6 = 0.049


def test_the_binomial_band_is_clopper_and_pearsons():
    assert binomial_band(0, 10) == pytest.approx((0.0, 1 - 0.025**0.1))
    assert binomial_band(10, 10) == pytest.approx((0.025**0.1, 1.0))
    low, high = binomial_band(5, 100)
    assert (low, high) == pytest.approx((0.01643, 0.11284), abs=1e-4)


def test_few_days_have_no_interval_so_that_every_move_counts_and_five_days_have_one():
    before, after = (np.array([2.0, 4.0]), np.array([1.0, 1.0])), (np.array([2.0, 4.3]), np.array([1.0, 1.0]))
    move = day_change(before, after)
    assert move.relative == pytest.approx(6.3 / 6 - 1) and move.se == 0.0 and move.p_value() == 0.0
    assert day_change(before, before).p_value() == 1.0
    assert day_change(before, (np.zeros(2), np.ones(2))).relative == -1.0
    week = (np.arange(1.0, 8.0), np.ones(7)), (np.arange(1.0, 8.0) ** 1.01, np.ones(7))
    assert day_change(*week) == paired_change(*week)


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
