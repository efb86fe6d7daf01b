import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from answers.told import refused
from cascade_sim.models.calibrators.steps import Histogram, Isotonic
from effort import examples


@given(st.integers(0, 10_000), st.integers(1, 80), st.booleans())
@examples(60)
def test_isotonic_agrees_with_scikit_learn(seed, n, ties):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-4, 5, n) / 3 if ties else rng.normal(size=n)
    labels = rng.integers(0, 2, n).astype(float) if seed % 2 else rng.random(n)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(scores, labels)
    new = np.concatenate([scores, rng.normal(0, 3, 50), [-200.0, 200.0]])
    np.testing.assert_allclose(Isotonic.fit(scores, labels)(new), theirs.predict(new), atol=1e-12)


def test_isotonic_pools_what_falls_and_draws_lines_between():
    found = Isotonic.fit([0.0, 1.0, 2.0, 4.0], [0.2, 0.6, 0.4, 1.0])
    # 0.6 and 0.4 pool to 0.5
    expected = [0.2, 0.2, (0.2 + 0.5) / 2, 0.5, 0.5, 0.75, 1.0, 1.0]
    assert found(np.array([-9.0, 0.0, 0.5, 1.0, 1.5, 3.0, 4.0, 9.0])) == pytest.approx(expected)


def test_the_line_between_has_a_gradient():
    found = Isotonic.fit([0.0, 2.0], [0.0, 1.0])
    score = torch.tensor([0.5, 7.0], requires_grad=True)
    found(score).sum().backward()
    assert score.grad.tolist() == [0.5, 0.0]


def test_isotonic_keeps_only_the_ends_of_its_levels():
    found = Isotonic.fit(np.arange(100.0), np.repeat([0.0, 1.0], 50))
    assert found.at.tolist() == [0, 49, 50, 99]


def test_infinite_scores_are_clipped():
    found = Isotonic.fit([0.0, 1.0], [0.25, 0.75])
    assert found(np.array([-np.inf, np.inf])).tolist() == [0.25, 0.75]


def test_histogram_bins_have_equal_counts_and_their_mean_labels():
    found = Histogram.fit([4.0, 1.0, 3.0, 2.0, 6.0, 5.0], [1.0, 0, 1, 0, 1, 0], bins=3)
    assert found.edges.tolist() == [2.5, 4.5]
    assert found(np.array([-9.0, 2.4, 2.5, 4.4, 4.5, 99.0])).tolist() == [0, 0, 1, 1, 0.5, 0.5]


def test_equal_scores_share_a_bin():
    found = Histogram.fit([0.0, 1.0, 1.0, 1.0, 1.0, 2.0], [1.0, 0, 1, 0, 0, 1], bins=6)
    assert found(np.array([0.0, 1.0, 2.0])).tolist() == [1, 0.25, 1]


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 12))
@examples(60)
def test_every_histogram_bin_predicts_the_mean_of_its_samples(seed, n, bins):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-6, 7, n) / 2 if seed % 2 else rng.normal(size=n)
    labels = rng.integers(0, 2, n).astype(float)
    found = Histogram.fit(scores, labels, bins=bins)
    assert 1 <= len(found.level) <= bins
    p = found(scores)
    for level in np.unique(p):
        assert labels[p == level].mean() == pytest.approx(level)
    assert p.mean() == pytest.approx(labels.mean())


def test_pseudo_counts_pull_bins_to_the_mean():
    found = Histogram.fit([0.0, 1.0], [0.0, 1.0], bins=2, pseudo_count=1.0)
    assert found.level.tolist() == [(0 + 0.5) / 2, (1 + 0.5) / 2]


def test_neighbouring_floats_can_be_told_apart():
    low = 1.0
    high = np.nextafter(low, 2)
    found = Histogram.fit([low, high], [0.0, 1.0], bins=2)
    assert found(np.array([low, high])).tolist() == [0, 1]


@pytest.mark.parametrize("options", [{"bins": 0}, {"pseudo_count": -1.0}])
def test_senseless_options_are_refused(options):
    with refused(next(iter(options)), kind=ValueError):
        Histogram.fit([1.0], [1.0], **options)
