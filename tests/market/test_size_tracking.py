import numpy as np
import pytest

from cascade_sim.cascade.sizes import fit_size_rule, page_values, spread
from cascade_sim.market.compute import AdaptiveSizeRule

CHOICES = (10, 20, 40, 80)
MEAN = 30.0


def scores(n, seed, level=1.0):
    """Requests differ in how dear and how alike their ads are."""
    rng = np.random.default_rng(seed)
    own = rng.lognormal(0, 0.7, (n, 1)), rng.uniform(0.5, 2.0, (n, 1))
    return (level * own[0] * np.exp(own[1] * rng.normal(size=(n, 120)))).astype(np.float32)


@pytest.fixture(scope="module")
def rule():
    score = scores(6000, 0)
    seen_by_ranking = score * np.random.default_rng(9).lognormal(0, 1, score.shape)
    values = page_values(score, seen_by_ranking, CHOICES, np.ones(3))
    return fit_size_rule(spread(score, 10, 80), values, CHOICES, MEAN, 1)


def windows(level_at):
    """(requests, scores) of sixty windows of 200 requests; the level of scores moves between them."""
    for i in range(60):
        yield 200 * i + np.arange(200), scores(200, 100 + i, level_at(i))


def served(tracked, stream):
    """The sizes that a tracked rule gives."""
    found = []
    for requests, score in stream:
        found.append(tracked.rule.sizes(requests, score))
        tracked.see(tracked.rule.feature(score), found[-1])
    return np.concatenate(found)


def test_the_budget_is_kept_while_bids_fall_to_a_third(rule):
    stream = list(windows(lambda i: 3.0 ** (-i / 60)))
    fixed = np.concatenate([rule.sizes(requests, score) for requests, score in stream])
    tracked = served(AdaptiveSizeRule(rule), stream)
    assert fixed[-4000:].mean() < 0.75 * MEAN  # what happens without
    assert tracked[-4000:].mean() == pytest.approx(MEAN, rel=0.05)
    assert tracked.mean() == pytest.approx(MEAN, rel=0.03)


@pytest.mark.parametrize("level", [0.2, 5.0])
def test_a_sudden_change_of_all_bids_is_made_up_for(rule, level):
    tracked = served(AdaptiveSizeRule(rule), windows(lambda i: 1.0 if i < 20 else level))
    assert tracked.mean() == pytest.approx(MEAN, rel=0.02)


def test_where_nothing_moves_the_budget_is_kept_too(rule):
    assert served(AdaptiveSizeRule(rule), windows(lambda i: 1.0)).mean() == pytest.approx(MEAN, rel=0.02)


def test_edges_for_its_own_sample_are_its_own(rule):
    again = rule.for_features(rule.sample)
    assert again.edges == pytest.approx(rule.edges, rel=0.01)


def test_going_on_from_a_state_changes_no_bit(rule):
    stream = list(windows(lambda i: 0.97**i))
    whole = served(AdaptiveSizeRule(rule), stream)
    first, second = AdaptiveSizeRule(rule), AdaptiveSizeRule(rule)
    before = served(first, stream[:37])
    second.restore(first.state())
    assert np.array_equal(np.concatenate([before, served(second, stream[37:])]), whole)


def test_a_window_larger_than_the_memory_leaves_its_last_requests(rule):
    one, other = AdaptiveSizeRule(rule), AdaptiveSizeRule(rule)
    feature = np.random.default_rng(3).random(len(rule.sample) + 700)
    size = rule.mean_size
    one.see(feature, np.full(len(feature), size))
    for part in np.array_split(feature, 9):
        other.see(part, np.full(len(part), size))
    assert np.array_equal(one.rule.edges, other.rule.edges)
    assert one.state()["recent"].tolist() == other.state()["recent"].tolist()
