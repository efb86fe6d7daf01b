import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss, mean_squared_error

from cascade_sim.analysis.metrics import calibration as metrics_scale
from cascade_sim.analysis.metrics.calibration import (
    PROXY_BINS,
    bin_sums,
    ece,
    ece_of_bins,
    ece_per_request,
    log_loss_sums,
    logloss,
    mse,
    pcoc,
    pcoc_of_bins,
    pooled_curve,
    relative_ece_of_bins,
    reliability_curve,
)
from effort import examples
from worlds.ragged_lists import each_list, ragged


@pytest.fixture
def case():
    scores, labels, lists = ragged(11, ties=True)
    return 1 / (1 + np.exp(-scores)), (labels > 0).astype(float), lists


def test_log_loss_and_squared_error_agree_with_scikit_learn(case):
    p, y, lists = case
    found, squared = logloss(p, y, lists), mse(p, y, lists)
    for r, (q, z) in enumerate(each_list(p, y, lists=lists)):
        assert found.valid[r] == squared.valid[r] == (len(z) > 0)
        if found.valid[r]:
            assert found.value[r] == pytest.approx(log_loss(z, q, labels=[0, 1]), abs=1e-12)
            assert squared.value[r] == pytest.approx(mean_squared_error(z, q), abs=1e-12)
    assert found.mean(by="items") == pytest.approx(log_loss(y, p)) == pytest.approx(logloss(p, y).mean())
    assert squared.mean(by="items") == pytest.approx(mse(p, y).mean())


def test_pooled_ece_agrees_with_torchmetrics():
    torchmetrics = pytest.importorskip("torchmetrics")
    import torch

    rng = np.random.default_rng(0)
    p = rng.random(5000)
    y = (rng.random(5000) < p**2).astype(float)
    for bins in (10, 100):
        theirs = torchmetrics.functional.classification.binary_calibration_error(
            torch.tensor(p), torch.tensor(y).long(), n_bins=bins
        )
        assert ece(p, y, bins=bins).mean() == pytest.approx(float(theirs), abs=1e-6)


def test_ece_within_lists_is_that_of_each_list_alone(case, monkeypatch):
    p, y, lists = case
    whole = ece(p, y, lists, bins=10)
    for r, (q, z) in enumerate(each_list(p, y, lists=lists)):
        assert whole.valid[r] == (len(q) > 0)
        if whole.valid[r]:
            assert whole.value[r] == pytest.approx(ece(q, z, bins=10).value[0], abs=1e-12)
    monkeypatch.setattr(metrics_scale, "_CELLS", 20)  # many small tables instead of one
    np.testing.assert_array_equal(ece(p, y, lists, bins=10).value, whole.value)


def test_ece_per_request_cuts_each_list_into_bins_of_equal_count():
    p = np.array([0.9, 0.1, 0.2, 0.8, 0.4, 0.6])
    y = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    # bins by rising prediction: (.1 .2) (.4 .6) (.8 .9)
    expected = (abs(0.1 + 0.2 - 1) + abs(0.4 + 0.6 - 1) + abs(0.8 + 0.9 - 2)) / 6
    assert ece_per_request(p, y, bins=3).value[0] == pytest.approx(expected)
    two = ece_per_request(np.tile(p, 2), np.tile(y, 2), [0, 6, 6, 12], bins=3)
    assert two.value[[0, 2]] == pytest.approx([expected] * 2) and not two.valid[1]


def test_ece_per_request_agrees_with_the_definition_on_long_lists():
    rng = np.random.default_rng(3)
    lists = np.array([0, 57, 103, 300])
    p, y = rng.random(300), (rng.random(300) < 0.4).astype(float)
    for r, (q, z) in enumerate(each_list(p, y, lists=lists)):
        order = np.argsort(q)
        bins = [[j for i, j in enumerate(order) if i * 10 // len(q) == b] for b in range(10)]
        assert max(map(len, bins)) - min(map(len, bins)) <= 1
        expected = sum(len(b) / len(q) * abs(z[b].mean() - q[b].mean()) for b in bins)
        assert ece_per_request(p, y, lists).value[r] == pytest.approx(expected, abs=1e-12)


def test_lists_shorter_than_the_bins_have_one_item_per_bin():
    assert ece_per_request([0.3, 0.6], [1.0, 0.0]).value[0] == pytest.approx((0.7 + 0.6) / 2)


def test_equal_predictions_stay_together_whatever_their_order(case):
    p, y, lists = case
    rng = np.random.default_rng(1)
    order = np.concatenate([rng.permutation(np.arange(a, b)) for a, b in zip(lists, lists[1:], strict=False)])
    for metric in (ece_per_request, ece, logloss, mse):
        np.testing.assert_allclose(
            metric(p[order], y[order], lists).value, metric(p, y, lists).value, atol=1e-12
        )
    assert ece_per_request(np.full(4, 0.5), [1.0, 0, 1, 0]).value[0] == 0


def test_pcoc_is_undefined_without_clicks():
    found = pcoc([0.2, 0.4, 0.5], [1.0, 0.0, 0.0], [0, 2, 3, 3])
    assert found.valid.tolist() == [True, False, False]
    assert found.value[0] == pytest.approx(0.6 / 1) and np.isnan(found.value[1:]).all()
    assert pcoc([0.2, 0.4, 0.5], [1.0, 0.0, 0.0]).mean() == pytest.approx(1.1)


def test_certain_mistakes_are_clipped_not_infinite():
    assert logloss([0.0], [1.0]).value[0] == pytest.approx(-np.log(1e-12))


def test_nothing_gives_no_valid_value():
    for metric in (logloss, mse, ece, ece_per_request, pcoc):
        assert not metric([], []).valid[0] and metric([], [], [0]).value.size == 0


def test_predictions_that_are_not_numbers_are_refused():
    with pytest.raises(ValueError, match="predictions hold NaN"):
        ece([np.nan], [1.0])


def test_a_run_of_equal_predictions_goes_to_the_bin_of_its_middle():
    p, y = [0.1, 0.2, 0.2, 0.2, 0.2, 0.9], [1.0, 0, 0, 0, 0, 1]
    assert ece_per_request(p, y, bins=3).value[0] == pytest.approx((0.9 + 4 * 0.2 + 0.1) / 6)


def in_fifty(prediction, reference, valid=None):
    return bin_sums(prediction, reference, PROXY_BINS, valid)


def test_buckets_are_closed_below_and_one_is_in_the_last():
    count = in_fifty([[0.0, 0.0199, 0.02, 0.98, 1.0]], [[0.0] * 5])[0, 0]
    assert count[0] == 2 and count[1] == 1 and count[49] == 2 and count.sum() == 5


def test_every_edge_falls_into_the_bucket_it_opens():
    edges = np.arange(50) / 50
    assert in_fifty(edges[None, :], edges[None, :])[0, 0].tolist() == [1] * 50
    below = np.nextafter(edges[1:], 0)
    assert in_fifty(below[None, :], below[None, :])[0, 0].tolist() == [1] * 49 + [0]


def test_predictions_outside_the_unit_interval_fall_into_the_end_buckets():
    assert bin_sums([[-0.5, 1.5]], [[0.0, 0.0]], bins=4)[0, 0].tolist() == [1, 0, 0, 1]


def test_proxy_ece_adds_the_gaps_of_the_buckets():
    # bucket 5 of 50 holds 0.10 and 0.11: gap |(0.2 + 0.05) - 0.21|; bucket 30 holds 0.60: gap |0.3 - 0.6|
    sums = in_fifty([[0.10, 0.11, 0.60]], [[0.20, 0.05, 0.30]])
    expected = (abs(0.20 + 0.05 - 0.10 - 0.11) + abs(0.30 - 0.60)) / 3
    assert ece_of_bins(sums)[0] == pytest.approx(expected)
    assert relative_ece_of_bins(sums)[0] == pytest.approx(expected / ((0.20 + 0.05 + 0.30) / 3))


def test_errors_cancel_within_a_bucket_and_not_between_buckets():
    within = in_fifty([[0.505, 0.505]], [[0.605, 0.405]])
    between = in_fifty([[0.505, 0.705]], [[0.605, 0.605]])
    assert ece_of_bins(within)[0] == pytest.approx(0)
    assert ece_of_bins(between)[0] == pytest.approx(0.1)


def test_a_model_that_repeats_the_ranker_has_no_proxy_error():
    p = np.random.default_rng(0).random((20, 30))
    assert (ece_of_bins(in_fifty(p, p)) == 0).all()


def test_without_candidates_errors_are_undefined():
    sums = in_fifty([[0.5, 0.5]], [[0.5, 0.5]], valid=[[False, False]])
    assert np.isnan(ece_of_bins(sums)[0]) and np.isnan(relative_ece_of_bins(sums)[0])
    assert np.isnan(pcoc_of_bins(sums)[0])


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 60))
@examples(60)
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
    assert bin_sums([0.5, 0.25], [1.0, 0.0]).shape == (3, 100)


def test_metrics_of_summed_statistics_keep_the_leading_axes():
    sums = np.random.default_rng(0).random((2, 5, 3, 50))
    assert ece_of_bins(sums).shape == (2, 5)
    assert ece_of_bins(sums)[1, 3] == ece_of_bins(sums[1, 3])


def test_ece_weighs_bucket_gaps_by_their_share():
    rng = np.random.default_rng(3)
    p, y = rng.random(4000), rng.random(4000)
    bucket = np.minimum(np.floor(p * 100), 99)
    expected = sum(
        (bucket == b).mean() * abs(y[bucket == b].mean() - p[bucket == b].mean()) for b in np.unique(bucket)
    )
    assert ece_of_bins(bin_sums(p, y)) == pytest.approx(expected)


def test_pcoc_is_predicted_over_observed():
    p, y, lists = [0.5, 0.25, 0.75, 0.25], [0.5, 0.0, 1.0, 1.0], [0, 2, 4]
    assert pcoc(p, y, lists).value.tolist() == [0.75 / 0.5, 1.0 / 2.0]
    assert pcoc_of_bins(bin_sums(np.reshape(p, (2, 2)), np.reshape(y, (2, 2)))).tolist() == [1.5, 0.5]


def test_log_loss_agrees_with_scikit_learn_on_clicks():
    rng = np.random.default_rng(4)
    p, y = rng.random(500), rng.integers(0, 2, 500)
    total, count = log_loss_sums(p, y)
    assert count == 500
    assert total / count == pytest.approx(log_loss(y, p))


def test_log_loss_with_probabilities_is_least_at_the_truth():
    truth = np.array([[0.1, 0.7]])
    entropy = -sum(q * np.log(q) + (1 - q) * np.log(1 - q) for q in (0.1, 0.7))
    assert log_loss_sums(truth, truth)[0][0] == pytest.approx(entropy)
    assert log_loss_sums(truth + 0.01, truth)[0][0] > entropy < log_loss_sums(truth - 0.01, truth)[0][0]


def test_log_loss_is_clipped_and_ignores_padding():
    total, count = log_loss_sums([[0.0, 0.5, np.nan]], [[1.0, 1.0, 1.0]], [[True, False, True]])
    assert count[0] == 1
    assert total[0] == pytest.approx(-np.log(1e-12))


def test_log_loss_of_single_precision_certainty_is_finite():
    total, _ = log_loss_sums(np.array([1.0, 0.0], np.float32), [0.0, 1.0])
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
