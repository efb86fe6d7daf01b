import numpy as np
import pytest
from scipy import stats

from cascade_sim.agents.conversions import (
    DAY,
    DEFAULT_MIXTURE,
    HOUR,
    DelayMixture,
    calibrated_mixture,
    click_delays,
    delays,
)

U_COMPONENT, U_DELAY = np.random.default_rng(0).random((2, 200_000))


def test_a_third_of_the_conversions_come_within_the_hour_and_half_within_the_day():
    assert DEFAULT_MIXTURE.observed_within([HOUR, DAY]) == pytest.approx([1 / 3, 1 / 2], rel=1e-12)
    by_hand = sum(w * (1 - np.exp(-DAY / m)) for w, m in zip(*mixture_parts(), strict=True))
    assert by_hand == pytest.approx(1 / 2, rel=1e-12)


def mixture_parts():
    return DEFAULT_MIXTURE.weights, DEFAULT_MIXTURE.means


def test_drawn_delays_have_the_shares_of_the_mixture():
    delay = delays(U_COMPONENT, U_DELAY)
    for seconds, share in ((HOUR, 1 / 3), (DAY, 1 / 2)):
        deviation = np.sqrt(share * (1 - share) / len(delay))
        assert (delay <= seconds).mean() == pytest.approx(share, abs=4 * deviation)


def test_drawn_delays_follow_the_whole_curve():
    delay = delays(U_COMPONENT, U_DELAY)
    seen = delay[np.isfinite(delay)]

    def cdf(t):
        return DEFAULT_MIXTURE.observed_within(t) / (1 - DEFAULT_MIXTURE.never)

    assert stats.kstest(seen, cdf).pvalue > 0.01
    assert stats.kstest(seen, stats.expon(scale=seen.mean()).cdf).pvalue < 1e-9


def test_what_comes_after_the_window_is_never_observed():
    lost = sum(w * np.exp(-30 * DAY / m) for w, m in zip(*mixture_parts(), strict=True))
    assert DEFAULT_MIXTURE.never == pytest.approx(lost, rel=1e-10)
    assert 0.02 < lost < 0.03
    delay = delays(U_COMPONENT, U_DELAY)
    assert np.isinf(delay).mean() == pytest.approx(lost, abs=4 * np.sqrt(lost / len(delay)))
    assert delay[np.isfinite(delay)].max() <= 30 * DAY
    assert DEFAULT_MIXTURE.observed_within(90 * DAY) == 1 - DEFAULT_MIXTURE.never


def test_an_unlimited_window_loses_nothing():
    unlimited = calibrated_mixture(window=np.inf)
    assert unlimited.never == 0
    assert np.isfinite(delays(U_COMPONENT, U_DELAY, unlimited)).all()


def test_the_first_draw_picks_the_component_and_the_second_the_delay():
    mixture = DelayMixture((0.25, 0.0, 0.75), (10.0, 1.0, 1000.0), window=2000.0)
    u_component = np.array([0.1, 0.2499, 0.25, 0.999, 0.999])
    u_delay = np.array([0.5, 1 - np.exp(-2), 0.5, 1 - np.exp(-1.9), 1 - np.exp(-2.1)])
    assert delays(u_component, u_delay, mixture) == pytest.approx(
        [10 * np.log(2), 20, 1000 * np.log(2), 1900, np.inf]
    )


def test_extreme_draws_give_delays_and_not_errors():
    edge = np.array([2.0**-53, 1 - 2.0**-53])
    assert (delays(edge, edge) >= 0).all() and not np.isnan(delays(edge, edge)).any()
    assert delays(edge[::-1], edge)[1] == pytest.approx(600 * 53 * np.log(2))


def test_no_conversions_have_no_delays():
    assert delays(np.zeros(0), np.zeros(0)).shape == click_delays(np.zeros(0)).shape == (0,)


def test_other_shares_can_be_asked_for():
    mixture = calibrated_mixture((60.0, 2 * HOUR, 5 * DAY), within_hour=0.6, within_day=0.9)
    assert mixture.observed_within([HOUR, DAY]) == pytest.approx([0.6, 0.9], rel=1e-12)
    assert sum(mixture.weights) == pytest.approx(1) and min(mixture.weights) >= 0


@pytest.mark.parametrize(
    "options", [{"within_hour": 0.5, "within_day": 0.5}, {"within_day": 1.0}, {"within_hour": 0.0}]
)
def test_shares_out_of_reach_are_refused(options):
    with pytest.raises(ValueError, match="no mixture"):
        calibrated_mixture(**options)


def test_equal_means_cannot_be_calibrated():
    with pytest.raises(ValueError, match="must differ"):
        calibrated_mixture((60.0, 60.0, DAY))


@pytest.mark.parametrize(
    ("weights", "means", "window"),
    [
        ((), (), 1),
        ((1,), (1, 2), 1),
        ((0.5, 0.6), (1, 2), 1),
        ((-1, 2), (1, 2), 1),
        ((1,), (0,), 1),
        ((1,), (1,), 0),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(weights, means, window):
    with pytest.raises(ValueError):
        DelayMixture(weights, means, window)


def test_click_delays_are_exponential():
    delay = click_delays(U_DELAY, 5.0)
    assert stats.kstest(delay, stats.expon(scale=5.0).cdf).pvalue > 0.01
    assert click_delays(np.array([0.5]), 8.0) == pytest.approx(8 * np.log(2))


def test_a_click_may_come_at_once_but_not_before():
    assert click_delays(np.array([0.1, 0.9]), 0.0).tolist() == [0, 0]
    for mean in (-1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="click delay"):
            click_delays(np.array([0.5]), mean)
