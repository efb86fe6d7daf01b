import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade_sim.cascade.serve import passes, serve
from cascade_sim.cascade.sizes import SizeRule, fit_size_rule, hull_steps, page_values, select_sizes, spread
from cascade_sim.foundation.kernels import select_top
from cascade_sim.scenario.schema import resolved_arms
from effort import examples

CHOICES = (25, 50, 100, 200)


def forced(choices, place):
    """A rule that gives everyone the same size."""
    one, nothing = np.array([place]), np.zeros(1)
    gain = np.zeros((1, len(choices)))
    return SizeRule(np.array(choices), np.zeros(0), gain, np.ones(1), one, one, nothing, 0.0, nothing, 1)


def two_kinds(n=8000, seed=0):
    """Half of the requests gain nothing beyond 25 ads; the other half gain 1 with every ad up to 200."""
    rng = np.random.default_rng(seed)
    is_deep = rng.random(n) < 0.5
    feature = np.where(is_deep, 1.0 + rng.random(n), rng.random(n))
    values = np.where(is_deep[:, None], np.array(CHOICES, float), 25.0)
    return feature, values, is_deep


def test_those_who_gain_nothing_get_the_smallest_size_and_the_others_what_is_saved():
    feature, values, is_deep = two_kinds()
    rule = fit_size_rule(feature, values, CHOICES, 100.0, 1)
    # 25 for one half leaves about 175 for the other, which the fixed size 100 cannot give to anyone.
    value_of_fixed = np.where(is_deep, 100.0, 25.0).mean()
    share = is_deep.mean()
    best = (1 - share) * 25 + share * ((100 - (1 - share) * 25) / share)
    assert rule.mean_size == pytest.approx(100.0)
    assert rule.mean_value == pytest.approx(best, rel=0.02) and rule.mean_value > 1.5 * value_of_fixed
    in_shallow = rule.edges < 0.9  # buckets that end before the deep ones begin
    assert in_shallow.any() and np.all(rule.choices[rule.high[:-1][in_shallow]] == 25)


def test_the_mean_size_meets_the_budget_on_other_requests():
    rng = np.random.default_rng(3)
    score = np.sort(rng.lognormal(0, 1.5, (20_000, 300)).astype(np.float32), axis=1)
    values = page_values(score, score * rng.lognormal(0, 1, score.shape), CHOICES, np.ones(3))
    feature = spread(score, CHOICES[0], CHOICES[-1])
    half = slice(0, 10_000), slice(10_000, None)
    rule = fit_size_rule(feature[half[0]], values[half[0]], CHOICES, 90.0, 1)
    sizes = rule.sizes(np.arange(10_000), score[half[1]])
    assert rule.mean_size == pytest.approx(90.0) and sizes.mean() == pytest.approx(90.0, rel=0.01)
    assert set(sizes) <= set(CHOICES) and len(set(sizes)) > 1


@given(st.integers(0, 10_000), st.sampled_from(CHOICES), st.sampled_from([1, 4, 16]))
@examples(200)
def test_on_its_own_requests_a_rule_is_never_worse_than_the_fixed_size_of_its_budget(seed, size, buckets):
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.exponential(1.0, (60, 4)) * rng.random((60, 1)) ** 3, axis=1)
    rule = fit_size_rule(rng.random(60), values, CHOICES, float(size), 1, buckets)
    assert rule.mean_size <= size + 1e-9
    assert rule.mean_value >= values[:, CHOICES.index(size)].mean() - 1e-9


@given(st.integers(0, 10_000))
@examples(50)
def test_more_budget_never_means_less_for_anyone(seed):
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.exponential(1.0, (300, 4)), axis=1)
    score = rng.exponential(1.0, (300, 250)).astype(np.float32)
    feature = spread(score, CHOICES[0], CHOICES[-1])
    before, value = np.zeros(300), 0.0
    for mean in (25.0, 40.0, 77.0, 100.0, 150.0, 200.0):
        rule = fit_size_rule(feature, values, CHOICES, mean, 1)
        sizes = rule.sizes(np.arange(300), score)
        assert np.all(sizes >= before) and rule.mean_value >= value - 1e-12
        before, value = sizes, rule.mean_value


def test_at_its_price_every_bucket_has_the_size_with_the_largest_surplus():
    rng = np.random.default_rng(5)
    values = np.cumsum(rng.exponential(1.0, (4000, 4)) / [[1, 2, 4, 8]], axis=1)
    rule = fit_size_rule(rng.random(4000), values, CHOICES, 80.0, 1)
    surplus = rule.gain - rule.price * rule.choices
    most = surplus.max(axis=1)
    for place in (rule.low, rule.high):
        assert surplus[np.arange(len(most)), place] == pytest.approx(most)
    assert (rule.part > 0).sum() <= 1


def test_size_that_buys_nothing_is_not_bought():
    values = np.tile([3.0, 3.0, 3.0, 3.0], (100, 1))
    rule = fit_size_rule(np.arange(100.0), values, CHOICES, 150.0, 1)
    assert rule.mean_size == 25.0 and rule.price == 0.0


def test_equal_features_share_a_bucket():
    rule = fit_size_rule(np.zeros(50), np.tile([1.0, 2, 3, 4], (50, 1)), CHOICES, 60.0, 1)
    assert len(rule.gain) == 1 and rule.mean_size == pytest.approx(60.0)


def test_a_mean_that_no_choice_gives_is_refused():
    with pytest.raises(ValueError, match="not between 25 and 200"):
        fit_size_rule(np.zeros(2), np.zeros((2, 4)), CHOICES, 24.0, 1)


def test_the_hull_skips_sizes_that_buy_less_than_the_next():
    sizes, gain = np.array([10, 20, 30, 40]), np.array([0.0, 1.0, 5.0, 6.0])
    assert hull_steps(sizes, gain) == [(0, 2, 5 / 20), (2, 3, 1 / 10)]
    assert hull_steps(sizes, np.array([1.0, 2.0, 2.0, 1.0])) == [(0, 1, 1 / 10)]


def test_the_spread_is_what_lies_between_the_smallest_and_the_largest_size():
    score = np.array([[5.0, 1.0, 4.0, 3.0, -2.0], [1.0, 0.0, 0.0, 0.0, -np.inf]], np.float32)
    assert spread(score, 2, 4).tolist() == [3.0 + 1.0, 0.0]
    assert spread(score, 2, 5).tolist() == [4.0, 0.0]  # what is not admitted counts as nothing


def test_the_page_is_filled_from_the_ads_that_pass():
    pre, rank = np.array([[4.0, 3.0, 2.0, 1.0]]), np.array([[1.0, 2.0, 8.0, 16.0]])
    values = page_values(pre, rank, (2, 3, 4), np.array([1.0, 0.5]))
    assert values.tolist() == [[2 + 0.5 * 1, 8 + 0.5 * 2, 16 + 0.5 * 8]]


def test_rows_of_different_sizes_are_each_selected_as_alone():
    rng = np.random.default_rng(0)
    ids, score = np.tile(np.arange(50, dtype=np.int32), (40, 1)), rng.random((40, 50)).astype(np.float32)
    sizes = rng.choice([5, 10, 20], 40)
    chosen_ids, columns = select_sizes(ids, score, sizes, 20)
    for r, size in enumerate(sizes):
        alone, places = select_top(ids[r : r + 1], score[r : r + 1], int(size))
        assert chosen_ids[r].tolist() == [*alone[0].tolist(), *[-1] * (20 - size)]
        assert columns[r].tolist() == [*places[0].tolist(), *[-1] * (20 - size)]


@pytest.mark.parametrize("name", ["logloss", "ltr", "random"])
def test_padding_up_to_the_largest_size_changes_no_page(study, name):
    sim = study.sim
    one = sim.arm(name, resolved_arms(sim.scenario)[name])
    block = sim.arrivals.block("evaluate", 0, 500)
    fixed = serve(block, one.with_stage(0, size=10), sim.platform)
    ruled = one.with_stage(0, size=30, size_rule=forced((10, 20, 30), 0))
    found = serve(block, ruled, sim.platform)
    assert np.all(found.competitive_set[:, 10:] == -1)
    assert np.array_equal(found.competitive_set[:, :10], fixed.competitive_set)
    for field in ("ranked_set", "ranked_pctr", "ranked_bid", "ranked_quality", "cpc_micros"):
        assert getattr(found, field).tobytes() == getattr(fixed, field).tobytes()
    assert passes(block, ruled, sim.platform)[-1].counts.tolist() == [10] * len(block)


def test_sizes_do_not_depend_on_the_requests_served_together():
    rng = np.random.default_rng(1)
    score = rng.lognormal(0, 2, (500, 300)).astype(np.float32)
    values = np.cumsum(rng.exponential(1.0, (500, 4)), axis=1)
    rule = fit_size_rule(spread(score, 25, 200), values, CHOICES, 80.0, 1)
    whole = rule.sizes(np.arange(500), score)
    parts = [rule.sizes(np.arange(i, min(i + 7, 500)), score[i : i + 7]) for i in range(0, 500, 7)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_a_request_with_nothing_beyond_the_smallest_size_gets_that():
    score = np.random.default_rng(1).exponential(1.0, (200, 250)).astype(np.float32)
    values = np.tile([1.0, 2.0, 3.0, 4.0], (200, 1))
    rule = fit_size_rule(spread(score, 25, 200), values, CHOICES, 200.0, 1)
    score[:50, 10:] = 0.0
    assert rule.sizes(np.arange(200), score).tolist() == [25] * 50 + [200] * 150
    emptied = rule.for_features(np.zeros(100))  # all others have run dry
    assert emptied.sizes(np.arange(50), score[:50]).tolist() == [25] * 50
