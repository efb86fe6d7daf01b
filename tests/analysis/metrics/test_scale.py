import numpy as np
import pytest
from sklearn.metrics import log_loss, mean_squared_error

from cascade_sim.analysis.metrics import scale as metrics_scale
from cascade_sim.analysis.metrics.scale import ece, ece_per_request, logloss, mse, pcoc
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
