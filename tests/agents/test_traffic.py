import numpy as np
import pytest

from cascade_sim.agents.traffic import Visitors, activity_cdf, arrival_times, visitors


def test_arrivals_add_up_their_gaps_at_the_given_rate():
    assert arrival_times(np.array([1.0, 2.0, 0.5]), 4.0, start=10.0) == pytest.approx(
        [10 + 1 / 4, 10 + 3 / 4, 10 + 3.5 / 4]
    )


def test_no_requests_have_no_arrival_times():
    assert arrival_times(np.zeros(0), 50.0).shape == (0,)


def test_users_visit_in_proportion_to_a_power_of_their_rank():
    cdf = activity_cdf(4, 1.0)
    total = 1 + 1 / 2 + 1 / 3 + 1 / 4
    assert cdf == pytest.approx([1 / total, 1.5 / total, (1.5 + 1 / 3) / total, 1])
    assert cdf[-1] == 1.0


def test_exponent_0_makes_all_users_alike():
    assert activity_cdf(5, 0.0) == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


def test_the_cdf_ends_at_exactly_1_for_many_users():
    assert activity_cdf(100_003, 0.56)[-1] == 1.0


def test_visitors_follow_the_cdf_and_its_edges():
    cdf = np.array([0.5, 0.75, 1.0])
    u = np.array([1e-9, 0.4999, 0.5, 0.7499, 0.75, 1 - 1e-16])
    assert visitors(u, cdf).tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("n_users", [1, 2, 3, 4, 1000, 4096, 5000])
def test_a_guide_finds_the_same_visitors(n_users):
    cdf = activity_cdf(n_users, 0.56)
    edges = np.concatenate([cdf[:-1], np.nextafter(cdf, 0), np.nextafter(cdf[:-1], 1), np.arange(64) / 64])
    u = np.concatenate([edges, np.random.default_rng(1).random(5000), [np.nextafter(0, 1), 1 - 2**-53]])
    assert Visitors(cdf)(u).tolist() == visitors(u, cdf).tolist()


def test_a_single_user_sends_every_request():
    assert np.all(visitors(np.linspace(0.001, 0.999, 50), activity_cdf(1, 0.56)) == 0)
