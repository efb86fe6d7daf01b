import numpy as np
import pytest

from cascade_sim.models.calibrators import CALIBRATORS
from cascade_sim.models.calibrators.position_debiased import fit_examined, would_click

RNG = np.random.default_rng(3)
N = 30_000
SCORES = RNG.normal(0.0, 2.0, N)
TRUE = 1 / (1 + np.exp(-(0.6 * SCORES - 1.0)))
SEEN = np.where(SCORES > 0, 1.0, RNG.choice([0.5, 0.7], N))  # good ads stand in good slots
CLICKS = (RNG.random(N) < SEEN * TRUE).astype(float)


def test_what_would_have_been_clicked_is_bayes_rule():
    """Not clicked at x = 0.5, p = 0.4: unseen and liked, 0.5 * 0.4, over all ways not to be clicked, 0.8."""
    found = would_click(np.array([0.0, 1.0, 0.0]), np.array([0.5, 0.5, 1.0]), np.array([0.4, 0.4, 0.4]))
    assert found == pytest.approx([0.2 / 0.8, 1.0, 0.0])


@pytest.mark.parametrize("name", ["platt", "isotonic", "histogram", "piecewise_linear"])
def test_a_calibrator_learns_the_probability_of_an_examined_slot(name):
    options = {"hidden": (8,), "epochs": 2, "intervals": 20} if name == "piecewise_linear" else {}
    found = fit_examined(name, SCORES, CLICKS, SEEN, **options)(SCORES)
    plain = CALIBRATORS[name].fit(SCORES, CLICKS, **options)(SCORES)
    low = SCORES < 0
    assert found[low].mean() == pytest.approx(TRUE[low].mean(), rel=0.08)
    assert plain[low].mean() < 0.75 * TRUE[low].mean()  # slots that are seldom seen look like bad ads
    assert found.mean() == pytest.approx(TRUE.mean(), rel=0.02)


def test_platt_finds_slope_and_level_from_half_seen_slots():
    found = fit_examined("platt", SCORES, CLICKS, SEEN)
    assert (found.slope, found.intercept) == pytest.approx((0.6, -1.0), abs=0.06)


def test_slots_that_are_always_seen_need_no_second_round():
    always = np.ones(N)
    found, plain = fit_examined("platt", SCORES, CLICKS, always), CALIBRATORS["platt"].fit(SCORES, CLICKS)
    assert (found.slope, found.intercept) == pytest.approx((plain.slope, plain.intercept), rel=1e-9)


@pytest.mark.drill
def test_a_request_conditioned_map_learns_another_level_for_each_request():
    """Half of the requests click twice as often in odds; the score does not know."""
    eager = RNG.integers(0, 2, N)
    true = 1 / (1 + np.exp(-(0.6 * SCORES - 1.5 + 1.2 * eager)))
    clicks = (RNG.random(N) < SEEN * true).astype(float)
    request = np.stack([eager, np.zeros(N)], axis=1)
    settings = {"hidden": (8,), "intervals": 20, "epochs": 3, "batch": 512, "learning_rate": 0.02}
    found = fit_examined("piecewise_linear", SCORES, clicks, SEEN, request=request, **settings)
    predicted = found(SCORES, request)
    for kind in (0, 1):
        assert predicted[eager == kind].mean() == pytest.approx(true[eager == kind].mean(), rel=0.06)
