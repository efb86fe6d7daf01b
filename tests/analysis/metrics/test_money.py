import warnings

import numpy as np
import pytest

from cascade_sim.analysis.metrics.money import (
    cpc_bias,
    cpc_error,
    payment_error_vs_oracle,
    revenue_pcoc,
    top_advertisers_share,
    welfare,
)
from cascade_sim.analysis.metrics.ratio import divide

SHOWN = np.array([[True, True], [True, False]])


def test_cpc_error_weighs_wrong_charges_by_expected_clicks():
    cpc, true = np.array([[2.0, 1.0], [3.0, 99.0]]), np.array([[1.5, 1.25], [3.0, np.nan]])
    clicks = np.array([[0.1, 0.4], [0.2, np.nan]])
    top, bottom = cpc_error(cpc, true, clicks, SHOWN)
    np.testing.assert_allclose(top, [0.1 * 0.5 + 0.4 * 0.25, 0])
    np.testing.assert_allclose(bottom, [0.1 * 1.5 + 0.4 * 1.25, 0.2 * 3])
    bias, same = cpc_bias(cpc, true, clicks, SHOWN)
    np.testing.assert_allclose(bias, [0.1 * 0.5 - 0.4 * 0.25, 0], atol=1e-15)
    np.testing.assert_array_equal(same, bottom)


def test_true_prices_have_neither_error_nor_bias_in_micro_units():
    cpc = np.array([[1_200_000, 800_000], [350_000, 0]])
    clicks = np.full((2, 2), 0.05)
    for parts in (cpc_error, cpc_bias):
        top, bottom = parts(cpc, cpc, clicks, SHOWN)
        assert (top == 0).all() and (bottom > 0).all()


def test_a_uniformly_high_prediction_shows_in_the_forecast():
    cpc, clicks = np.array([[2.0, 1.0], [3.0, 9.0]]), np.array([[0.1, 0.4], [0.2, 0.9]])
    top, bottom = revenue_pcoc(cpc, 1.1 * clicks, clicks, SHOWN)
    np.testing.assert_allclose(bottom, [0.1 * 2 + 0.4 * 1, 0.2 * 3])
    assert divide(top.sum(), bottom.sum()) == pytest.approx(1.1)


def test_welfare_compares_expected_value_with_the_oracle():
    top, bottom = welfare(
        [[2.0, 9.0]], [[0.1, 0.5]], [[True, False]], [[3.0, 1.0]], [[0.2, 0.1]], [[True, True]]
    )
    assert top[0] == pytest.approx(2 * 0.1)
    assert bottom[0] == pytest.approx(3 * 0.2 + 1 * 0.1)


def test_payment_error_is_taken_per_advertiser():
    assert payment_error_vs_oracle([3.0, 1.0, 0.0], [2.0, 1.0, 1.0]) == pytest.approx((1 + 0 + 1) / 4)
    assert payment_error_vs_oracle([[5, 5], [4, 6]], [[5, 5], [5, 5]]).tolist() == [0, 2 / 10]


def test_nothing_shown_is_undefined_at_the_last_division_and_never_warns():
    nothing = np.zeros((1, 2), bool)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        top, bottom = cpc_error([[np.nan, 1.0]], [[np.inf, 1.0]], [[np.inf, 1.0]], nothing)
        assert top[0] == 0 and bottom[0] == 0
        assert np.isnan(divide(top, bottom)[0])
        assert np.isnan(payment_error_vs_oracle([0.0], [0.0]))


def test_the_top_share_is_what_the_highest_payers_bring():
    """250 advertisers, of whom 2 are the top 1 %: 30 + 20 of 30 + 20 + 10 + 40 * 1; 207 pay nothing."""
    paid = np.zeros(250)
    paid[[7, 99, 200]] = 10.0, 30.0, 20.0
    paid[10:50] = 1.0
    assert top_advertisers_share(paid) == pytest.approx(50 / 100)
    assert top_advertisers_share([3.0, 1.0, 0.0]) == pytest.approx(3 / 4)  # at least one
    assert top_advertisers_share([5.0]) == 1.0
    assert top_advertisers_share([[1.0, 1.0], [0.0, 4.0]]).tolist() == [0.5, 1.0]


def test_without_revenue_there_is_no_top_share():
    assert np.isnan(top_advertisers_share([0.0, 0.0]))
