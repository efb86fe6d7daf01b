import math

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.analysis.off_policy.checks import diagnose
from cascade_sim.analysis.off_policy.intervals import denominator_finding, estimate_from, interval_findings
from cascade_sim.analysis.off_policy.noise import margins, standard_error

FINE = diagnose(np.ones(100))


def mean_of(x, diagnostics=FINE, **arguments):
    x = np.asarray(x, float)
    return estimate_from("mean", x.mean(), x - x.mean(), diagnostics, **arguments)


def test_the_interval_is_value_less_and_plus_its_margins():
    x = np.random.default_rng(0).exponential(size=100)
    found = mean_of(x)
    below, above = margins(x - x.mean())
    assert (found.low, found.high) == (found.value - below, found.value + above)
    assert found.standard_error == standard_error(x - x.mean())[0]
    assert (found.estimator, found.diagnostics) == ("mean", FINE)


def test_a_refused_log_gives_a_value_without_an_interval():
    found = mean_of(np.arange(100.0), diagnose(np.ones(10)))
    assert found.value == 49.5
    assert found.low is found.high is found.standard_error is None


def test_an_undefined_value_is_none():
    found = estimate_from("mean", math.nan, np.zeros(100), FINE)
    assert found.value is found.low is found.high is None


def test_a_log_without_reward_is_no_proof_of_zero():
    found = mean_of(np.zeros(100), reward=np.zeros(100))
    assert found.diagnostics.verdict == "refuse" and found.low is None
    assert tells(found.diagnostics.reason, "reward", "zero")


@pytest.mark.parametrize(("clicks", "verdict"), [(6, "warn"), (30, "ok")])
def test_ten_clicks_are_about_the_least(clicks, verdict):
    x = np.repeat([1.0, 0], [clicks, 1000 - clicks])
    found = mean_of(x, reward=x).diagnostics
    assert found.verdict == verdict
    assert tells(found.reason, 1000, "large values") == (verdict == "warn")


def test_few_clusters_warn_and_one_refuses():
    x = np.random.default_rng(0).normal(size=100)
    many, few, one = (
        mean_of(x, clusters=np.arange(100) % count).diagnostics.verdict for count in (25, 10, 1)
    )
    assert (many, few, one) == ("ok", "warn", "refuse")
    ((verdict, reason),) = interval_findings(np.zeros(1), None, None)
    assert verdict == "refuse" and tells(reason, "one request")


def test_a_ratio_needs_a_denominator_known_to_a_tenth():
    noisy, known = np.array([0.0, 2] * 40), np.array([0.0, 2] * 60)
    assert standard_error(noisy - 1)[0] > 0.1 > standard_error(known - 1)[0]
    assert denominator_finding(noisy, None)[0] == "warn"
    assert denominator_finding(known, None)[0] == "ok"
    assert denominator_finding(np.array([-1.0, 1]), None)[0] == "refuse"
