import numpy as np
import pytest

from cascade_sim.agents.advertisers import MIN_HAZARD, log_normal_bids, owners, with_tail
from cascade_sim.scenario import checks

RNG = np.random.default_rng(0)
TIER, NOISE = RNG.standard_normal((2, 50_000))


def test_the_median_bid_and_the_spread_of_log_bids_are_as_asked():
    bid = log_normal_bids(TIER, NOISE, median=2.0, sigma=0.5, tier_share=0.7)
    assert np.median(bid) == pytest.approx(2.0, rel=0.02)
    assert np.log(bid).std() == pytest.approx(0.5, rel=0.02)


def test_the_tier_explains_its_share_of_the_variance_of_log_bids():
    log_bid = np.log(log_normal_bids(TIER, NOISE, 1.0, 0.35, tier_share=0.92))
    assert np.corrcoef(log_bid, TIER)[0, 1] ** 2 == pytest.approx(0.92, abs=0.01)


def test_share_0_ignores_the_tier_and_share_1_the_noise():
    assert np.array_equal(
        log_normal_bids(TIER, NOISE, 1.0, 0.5, 0.0), log_normal_bids(-TIER, NOISE, 1.0, 0.5, 0.0)
    )
    assert np.allclose(log_normal_bids(TIER, NOISE, 1.0, 0.5, 1.0), np.exp(0.5 * TIER))


def test_without_spread_everyone_bids_the_median():
    assert np.all(log_normal_bids(TIER, NOISE, 1.5, 0.0, 0.3) == 1.5)


def test_every_advertiser_owns_an_ad_and_portfolios_are_skewed():
    owner = owners(RNG.random(10_000), 100)
    counts = np.bincount(owner, minlength=100)
    assert counts.min() >= 1 and len(counts) == 100
    # P(floor(100 u^2) < 25) = P(u < 1/2): the first quarter of the advertisers owns about half the ads.
    assert counts[:25].sum() / 10_000 == pytest.approx(0.5, abs=0.03)


def test_one_ad_each_when_there_are_as_many_advertisers_as_ads():
    assert owners(RNG.random(5), 5).tolist() == [0, 1, 2, 3, 4]


def test_a_tail_is_pareto_above_and_log_normal_below():
    z = np.sort(RNG.standard_normal(400_000))
    sigma, tail = 0.5, 3.0
    x = np.exp(sigma * with_tail(z, sigma, tail))
    # The tail begins where the hazard of the standard normal is tail * sigma = 1.5, at 0.9685.
    start = 0.96854
    assert np.array_equal(x[z < start - 1e-3], np.exp(sigma * z[z < start - 1e-3]))
    assert np.median(x) == pytest.approx(1.0, rel=0.005)
    for times in (1.5, 2.0, 4.0):
        above = np.mean(x > np.exp(sigma * start) * times) / np.mean(x > np.exp(sigma * start))
        assert above == pytest.approx(times**-tail, rel=0.1)
    assert np.all(np.diff(x) >= 0) and x.max() > np.exp(sigma * z.max()) * 2
    assert np.all(x >= np.exp(sigma * z) - 1e-12)


def test_without_a_tail_nothing_changes_and_a_steep_one_changes_next_to_nothing():
    assert with_tail(TIER, 0.35, None) is TIER
    assert np.array_equal(
        log_normal_bids(TIER, NOISE, 1.0, 0.35, 0.9), log_normal_bids(TIER, NOISE, 1.0, 0.35, 0.9, None)
    )
    assert np.abs(with_tail(TIER, 0.35, 1000.0) - TIER).max() < 1e-9


def test_a_tail_that_would_reach_below_the_median_is_refused():
    least = np.sqrt(2 / np.pi) / 0.35
    assert np.isfinite(with_tail(TIER, 0.35, least * 1.000001)).all()
    with pytest.raises(ValueError, match="below the median"):
        with_tail(TIER, 0.35, least * 0.999)
    assert MIN_HAZARD == checks.MIN_HAZARD
