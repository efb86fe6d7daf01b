"""Conversions that come late: what the log says of those still to come, on samples of known delays."""

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.agents.conversions import DelayMixture, delays
from cascade_sim.models.delays import MIN_OLD, correct_delays, share_seen

MIXTURE = DelayMixture((0.4, 0.6), (30.0, 600.0), np.inf)
WINDOW, SPAN, RATE = 2400.0, 3600.0, 0.3


def clicks(n: int, seed: int = 5):
    """Delays (infinite without a conversion) and ages of n clicks, spread evenly over the span of a log."""
    rng = np.random.default_rng(seed)
    late = delays(rng.random(n), rng.random(n), MIXTURE)
    return np.where(rng.random(n) < RATE, late, np.inf), rng.random(n) * SPAN


def rate_of(delay, age, correction, window):
    """The rate p of clicks all alike: it makes sum y log(p) + (1 - y) log(1 - chance * p) largest."""
    keep, label, chance = correct_delays(delay, age, correction, window)
    label, chance = label[keep].astype(np.float64), chance[keep].astype(np.float64)
    low, high = 0.0, 1.0
    for _ in range(60):  # the slope of the likelihood falls with p
        p = (low + high) / 2
        slope = (label / p - (1 - label) * chance / (1 - chance * p)).sum()
        low, high = (p, high) if slope > 0 else (low, p)
    return p


def test_the_share_seen_is_that_of_the_delays_though_young_clicks_cut_them_off():
    delay, age = clicks(200_000)
    seen = delay <= age
    edges, share = share_seen(delay[seen], age[seen], WINDOW)
    true = MIXTURE.observed_within(edges) / MIXTURE.observed_within(WINDOW)
    assert share == pytest.approx(true, abs=0.02)
    assert share[0] == 0 and share[-1] == 1 and np.all(np.diff(share) >= 0)
    naive = (delay[seen][:, None] <= edges).mean(axis=0)  # short delays are seen more often
    assert np.abs(naive - true).max() > 0.05


def test_without_a_correction_the_rate_is_too_low_and_with_either_it_is_right():
    within = RATE * float(MIXTURE.observed_within(WINDOW))
    n, worlds = 20_000, 12
    found = {
        how: [rate_of(*clicks(n, seed), how, None if how == "none" else WINDOW) for seed in range(worlds)]
        for how in ("none", "wait", "elapsed")
    }
    error = {how: np.std(rates, ddof=1) / worlds**0.5 for how, rates in found.items()}
    for how in ("wait", "elapsed"):
        assert abs(np.mean(found[how]) - within) < 4 * error[how]
    # mean of F(age) over even ages, as share of F(window): what has come of a click of any age
    ages = np.linspace(0, SPAN, 10_001)
    assert np.mean(found["none"]) == pytest.approx(RATE * MIXTURE.observed_within(ages).mean(), abs=0.005)
    assert np.mean(found["none"]) < within - 20 * error["none"]
    assert error["elapsed"] < error["wait"]  # it learns from all clicks


def test_waiting_learns_from_old_clicks_alone():
    delay, age = np.array([10.0, 50.0, np.inf, 10.0]), np.array([200.0, 200.0, 200.0, 20.0])
    keep, label, chance = correct_delays(delay, age, "wait", 40.0)
    assert keep.tolist() == [True, True, True, False]
    assert label[keep].tolist() == [1, 0, 0] and np.all(chance == 1)


def test_what_is_still_to_come_counts_as_none_without_a_correction():
    keep, label, _ = correct_delays(
        np.array([10.0, 50.0, np.inf]), np.array([20.0, 20.0, 20.0]), "none", None
    )
    assert keep.all() and label.tolist() == [1, 0, 0]


def test_too_few_old_conversions_to_tell_the_delays_are_refused():
    delay, age = np.full(100, 5.0), np.full(100, 50.0)
    age[: MIN_OLD - 1] = 500.0
    with refused(MIN_OLD - 1, "conversions", kind=ValueError):
        share_seen(delay, age, 100.0)
