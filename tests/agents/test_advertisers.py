import numpy as np
import pytest

from cascade_sim.agents.advertisers import log_normal_bids, owners

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
