import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss as reference_log_loss

from cascade_sim.analysis.metrics.calibration import (
    bin_sums,
    ece,
    ece_bins,
    log_loss,
    pcoc,
    pooled_curve,
    proxy_bins,
    proxy_ece,
    proxy_ece_relative,
    reliability_curve,
)


def test_buckets_are_closed_below_and_one_is_in_the_last():
    count = proxy_bins([[0.0, 0.0199, 0.02, 0.98, 1.0]], [[0.0] * 5])[0, 0]
    assert count[0] == 2 and count[1] == 1 and count[49] == 2 and count.sum() == 5


def test_every_edge_falls_into_the_bucket_it_opens():
    edges = np.arange(50) / 50
    assert proxy_bins(edges[None, :], edges[None, :])[0, 0].tolist() == [1] * 50
    below = np.nextafter(edges[1:], 0)
    assert proxy_bins(below[None, :], below[None, :])[0, 0].tolist() == [1] * 49 + [0]


def test_predictions_outside_the_unit_interval_fall_into_the_end_buckets():
    assert proxy_bins([[-0.5, 1.5]], [[0.0, 0.0]], bins=4)[0, 0].tolist() == [1, 0, 0, 1]


def test_proxy_ece_adds_the_gaps_of_the_buckets():
    # bucket 5 of 50 holds 0.10 and 0.11: gap |(0.2 + 0.05) - 0.21|; bucket 30 holds 0.60: gap |0.3 - 0.6|
    sums = proxy_bins([[0.10, 0.11, 0.60]], [[0.20, 0.05, 0.30]])
    expected = (abs(0.20 + 0.05 - 0.10 - 0.11) + abs(0.30 - 0.60)) / 3
    assert proxy_ece(sums)[0] == pytest.approx(expected)
    assert proxy_ece_relative(sums)[0] == pytest.approx(expected / ((0.20 + 0.05 + 0.30) / 3))


def test_errors_cancel_within_a_bucket_and_not_between_buckets():
    within = proxy_bins([[0.505, 0.505]], [[0.605, 0.405]])
    between = proxy_bins([[0.505, 0.705]], [[0.605, 0.605]])
    assert proxy_ece(within)[0] == pytest.approx(0)
    assert proxy_ece(between)[0] == pytest.approx(0.1)


def test_a_model_that_repeats_the_ranker_has_no_proxy_error():
    p = np.random.default_rng(0).random((20, 30))
    assert (proxy_ece(proxy_bins(p, p)) == 0).all()


def test_without_candidates_errors_are_undefined():
    sums = proxy_bins([[0.5, 0.5]], [[0.5, 0.5]], valid=[[False, False]])
    assert np.isnan(proxy_ece(sums)[0]) and np.isnan(proxy_ece_relative(sums)[0])
    assert np.isnan(pcoc(1.0, 0.0))


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 60))
@settings(max_examples=60)
def test_bin_sums_agree_with_a_loop_and_add_up_over_requests(seed, n, bins):
    rng = np.random.default_rng(seed)
    p, r, valid = rng.random((4, n)), rng.random((4, n)), rng.random((4, n)) < 0.7
    expected = np.zeros((4, 3, bins))
    edges = np.arange(1, bins) / bins
    for row, column in zip(*np.nonzero(valid), strict=True):
        bucket = sum(p[row, column] >= edge for edge in edges)
        expected[row, :, bucket] += [1, p[row, column], r[row, column]]
    sums = bin_sums(p, r, bins, valid)
    np.testing.assert_allclose(sums, expected, atol=1e-12)
    together = bin_sums(p.reshape(1, -1), r.reshape(1, -1), bins, valid.reshape(1, -1))
    np.testing.assert_allclose(sums.sum(0), together[0], atol=1e-12)
    batched = bin_sums(p.reshape(2, 2, n), r.reshape(2, 2, n), bins, valid.reshape(2, 2, n))
    np.testing.assert_array_equal(batched.reshape(sums.shape), sums)
    poisoned = bin_sums(np.where(valid, p, np.nan), np.where(valid, r, np.inf), bins)
    np.testing.assert_array_equal(poisoned, sums)


def test_a_flat_list_is_one_request():
    assert ece_bins([0.5, 0.25], [1.0, 0.0]).shape == (3, 100)


def test_metrics_of_summed_statistics_keep_the_leading_axes():
    sums = np.random.default_rng(0).random((2, 5, 3, 50))
    assert proxy_ece(sums).shape == (2, 5)
    assert proxy_ece(sums)[1, 3] == proxy_ece(sums[1, 3])


def test_ece_weighs_bucket_gaps_by_their_share():
    rng = np.random.default_rng(3)
    p, y = rng.random(4000), rng.random(4000)
    bucket = np.minimum(np.floor(p * 100), 99)
    expected = sum(
        (bucket == b).mean() * abs(y[bucket == b].mean() - p[bucket == b].mean()) for b in np.unique(bucket)
    )
    assert ece(ece_bins(p, y)) == pytest.approx(expected)


def test_pcoc_is_predicted_over_observed():
    assert pcoc([3.0, 1.0], [2.0, 4.0]).tolist() == [3 / 2, 1 / 4]


def test_log_loss_agrees_with_scikit_learn_on_clicks():
    rng = np.random.default_rng(4)
    p, y = rng.random(500), rng.integers(0, 2, 500)
    total, count = log_loss(p, y)
    assert count == 500
    assert total / count == pytest.approx(reference_log_loss(y, p))


def test_log_loss_with_probabilities_is_least_at_the_truth():
    truth = np.array([[0.1, 0.7]])
    entropy = -sum(q * np.log(q) + (1 - q) * np.log(1 - q) for q in (0.1, 0.7))
    assert log_loss(truth, truth)[0][0] == pytest.approx(entropy)
    assert log_loss(truth + 0.01, truth)[0][0] > entropy < log_loss(truth - 0.01, truth)[0][0]


def test_log_loss_is_clipped_and_ignores_padding():
    total, count = log_loss([[0.0, 0.5, np.nan]], [[1.0, 1.0, 1.0]], [[True, False, True]])
    assert count[0] == 1
    assert total[0] == pytest.approx(-np.log(1e-12))


def test_log_loss_of_single_precision_certainty_is_finite():
    total, _ = log_loss(np.array([1.0, 0.0], np.float32), [0.0, 1.0])
    assert total == pytest.approx(-2 * np.log(1e-12), rel=1e-4)


def test_the_reliability_curve_has_bins_of_equal_count():
    rng = np.random.default_rng(5)
    p = rng.permutation(np.arange(100) / 100)
    curve = reliability_curve(p, p**2, bins=20)
    assert curve["count"].tolist() == [5] * 20
    assert curve["predicted"][0] == pytest.approx(np.mean([0.00, 0.01, 0.02, 0.03, 0.04]))
    assert curve["reference"][-1] == pytest.approx(np.mean(np.array([0.95, 0.96, 0.97, 0.98, 0.99]) ** 2))


def test_equal_predictions_stay_in_one_bin_whatever_their_order():
    rng = np.random.default_rng(6)
    p, r = rng.integers(0, 7, 300) / 10, rng.random(300)
    curve, order = reliability_curve(p, r, bins=5), rng.permutation(300)
    shuffled = reliability_curve(p[order], r[order], bins=5)
    for name in curve:
        np.testing.assert_allclose(shuffled[name], curve[name], atol=1e-12)
    assert curve["count"].sum() == 300
    assert reliability_curve(np.full(50, 0.3), r[:50])["count"].tolist() == [50]


def test_the_reliability_curve_ignores_padding_and_may_be_empty():
    curve = reliability_curve([[0.1, 0.9]], [[0.2, 0.8]], valid=[[True, False]])
    assert [curve[name].tolist() for name in ("predicted", "reference", "count")] == [[0.1], [0.2], [1]]
    assert len(reliability_curve([], [])["count"]) == 0


def test_pooled_curves_of_different_lengths_keep_every_count_and_the_overall_means():
    short = {"predicted": [0.1, 0.3], "reference": [0.2, 0.2], "count": [30, 10]}
    long = {"predicted": [0.05, 0.2, 0.4], "reference": [0.1, 0.1, 0.5], "count": [10, 20, 10]}
    pooled = pooled_curve([short, long], bins=2)
    # by rising prediction: 10 at 0.05 and 30 at 0.1 | 20 at 0.2, 10 at 0.3 and 10 at 0.4
    assert pooled["count"].tolist() == [40, 40]
    assert pooled["predicted"] == pytest.approx([(10 * 0.05 + 30 * 0.1) / 40, (20 * 0.2 + 3 + 4) / 40])
    assert pooled["reference"] == pytest.approx([(10 * 0.1 + 30 * 0.2) / 40, (20 * 0.1 + 2 + 5) / 40])


def test_nothing_pools_to_nothing():
    empty = {"predicted": [], "reference": [], "count": []}
    assert all(len(column) == 0 for column in pooled_curve([empty, empty]).values())
