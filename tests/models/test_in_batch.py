"""In-batch softmax: its formula, what it learns of a known law, and its uniform negatives."""

import math

import numpy as np
import pytest
import torch

from cascade_sim.models.features import FeatureView
from cascade_sim.models.losses import stages
from cascade_sim.models.nets.coaction import CoAction
from cascade_sim.models.nets.ids import IdTables, with_tables
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.models.training import Positives, TrainingMonitor, TrainingPlan, train

KINDS_OF_USERS = 3


def law(n_ads, seed=0):
    """p(y|x) of each kind of user, with a skewed popularity in common.  [3, A]"""
    rng = np.random.default_rng(seed)
    popularity = 1.0 / (1 + np.arange(n_ads)) ** 0.8
    p = popularity * np.exp(rng.normal(0, 0.7, (KINDS_OF_USERS, n_ads)))
    return p / p.sum(axis=1, keepdims=True)


def view(n_ads):
    """Every user and every ad by a column of its own: nothing that a law says is out of reach."""
    users, ads = np.eye(KINDS_OF_USERS, dtype=np.float32), np.eye(n_ads, dtype=np.float32)
    return FeatureView(("user",), users, ads, False, None, None, 0.0)


def drawn(p, n, log_bid=None, seed=1):
    rng = np.random.default_rng(seed)
    users = rng.integers(0, len(p), n).astype(np.int32)
    ads = (rng.random((n, 1)) > np.cumsum(p, axis=1)[users]).sum(axis=1).astype(np.int32)
    log_bid = np.zeros(p.shape[1]) if log_bid is None else log_bid
    return Positives(users, np.zeros(n, np.float32), ads, np.arange(n), log_bid.astype(np.float32))


def learned(p, data, options, epochs=10, batch=256, monitor=None, net_seed=2):
    """Log softmax over all ads of what was learned, for each kind of user.  [3, A]"""
    n_ads = p.shape[1]
    torch.manual_seed(net_seed)
    net = TwoTowers(KINDS_OF_USERS, n_ads, 0, hidden=8, dims=4)
    plan = TrainingPlan(epochs, batch, 0.02, seed=3, monitor=monitor)
    train(net, view(n_ads), data, "in_batch", plan, options)
    with torch.no_grad():
        codes = net.request_code(torch.eye(KINDS_OF_USERS)), net.ad_code(torch.eye(n_ads))
        logit = (codes[0] @ codes[1].T).numpy()
    return logit - np.log(np.exp(logit).sum(axis=1, keepdims=True))


def normalised(log_p):
    return log_p - np.log(np.exp(log_p).sum(axis=1, keepdims=True))


def far(found, log_p):
    """Mean distance, ads weighted by the law."""
    return float((np.exp(log_p) * abs(found - log_p)).sum(axis=1).mean())


def test_with_the_own_ad_uncorrected_the_code_learns_log_p_of_a_tiny_law_and_without_logq_its_lift():
    p = law(6)
    data = drawn(p, 12_000)
    log_lift = normalised(np.log(p) - np.log(p.mean(axis=0)))
    exact = learned(p, data, {"correct_own": False})
    assert far(exact, np.log(p)) < 0.06 < 0.3 < far(exact, log_lift)
    # With uniform negatives the mixture is what is corrected by.
    assert far(learned(p, data, {"correct_own": False, "uniform": 256}), np.log(p)) < 0.06


def test_logq_keeps_popular_ads_from_being_punished():
    """Yi et al.: of many ads with small chances the code learns log p(y|x), without it log p(y|x)/p(y)."""
    p = law(80)
    data = drawn(p, 16_000)
    log_lift = normalised(np.log(p) - np.log(p.mean(axis=0)))
    corrected, plain = (learned(p, data, {"log_q": on}, epochs=6) for on in (True, False))
    assert far(corrected, np.log(p)) < 0.5 * far(plain, np.log(p))
    assert far(plain, log_lift) < far(plain, np.log(p))


def test_with_the_bid_the_code_learns_what_the_bid_does_not_say():
    p, log_bid = law(6), np.random.default_rng(5).normal(0, 1, 6)
    found = learned(p, drawn(p, 12_000, log_bid), {"correct_own": False})
    assert far(normalised(found + log_bid), np.log(p)) < 0.06


def by_hand(score, ads, log_chance, correct_own, uniform_ads=()):
    total, columns = 0.0, [*ads, *uniform_ads]
    for i, own in enumerate(ads):
        terms = []
        for j, other in enumerate(columns):
            if j == i:
                terms.append(score[i, i] - (log_chance[i] if correct_own else 0.0))
            elif other != own:
                more = 0.0 if correct_own else math.log(len(columns) - 1)
                terms.append(score[i, j] - log_chance[j] - more)
        own_term = score[i, i] - (log_chance[i] if correct_own else 0.0)
        total += math.log(sum(math.exp(term) for term in terms)) - own_term
    return total / len(ads)


@pytest.mark.parametrize("correct_own", [True, False])
def test_the_loss_is_that_of_a_plain_loop(correct_own):
    rng = np.random.default_rng(7)
    ads, extra = [3, 1, 3, 2], [1, 0, 3]
    columns = np.array([*ads, *extra])
    score, chance = rng.normal(0, 1, (4, 7)), rng.uniform(0.05, 0.5, 4)
    same = np.array([[j != i and columns[j] == columns[i] for j in range(7)] for i in range(4)])
    log_chance = np.log(chance)[columns]
    found = stages.in_batch(*map(torch.tensor, (score, same, log_chance)), correct_own)
    assert found.item() == pytest.approx(by_hand(score, ads, log_chance, correct_own, extra), rel=1e-12)


def test_the_chance_of_an_ad_is_that_of_the_mixture_and_never_nothing():
    share = torch.tensor([0.6, 0.4, 0.0], dtype=torch.float64)
    found = stages.log_chance(share, 6, 2, 4).exp()
    assert found.tolist() == pytest.approx([(6 * p + 2 / 4) / 8 for p in share.tolist()])
    assert stages.log_chance(share, 6, 0, 4)[2].exp().item() == pytest.approx(1e-9)


def test_uniform_negatives_let_ads_sink_that_are_never_positive():
    """Without them nothing is ever said of such ads, and they float where their first weights put them."""
    p = np.pad(law(6), ((0, 0), (0, 30)))
    data = drawn(p, 4_000)
    mass = {
        n: np.exp(learned(p, data, {"uniform": n, "correct_own": False}, epochs=6))[:, 6:].sum(axis=1).mean()
        for n in (0, 64)
    }
    assert mass[64] < 0.1 < 0.5 < mass[0]


def test_training_repeats_to_the_bit_and_whoever_looks_on_changes_nothing():
    p = law(6)
    data = drawn(p, 600)
    monitor = TrainingMonitor(data.take(np.arange(600) < 5))
    runs = [
        learned(p, data, {"uniform": 16}, epochs=2, batch=64, monitor=given)
        for given in (None, None, monitor)
    ]
    assert np.array_equal(runs[0], runs[1]) and np.array_equal(runs[0], runs[2])
    # Five rows meet each other's ads and any, so their loss says something.
    assert monitor.steps[-1] == 20 and np.mean(monitor.by_group[-1]) < np.mean(monitor.by_group[0])
    other = learned(p, data, {"uniform": 17}, epochs=2, batch=64)
    assert not np.array_equal(runs[0], other)


def test_a_net_with_tables_of_ids_learns_them_by_one_lookup_a_batch():
    p = law(6)
    data = drawn(p, 4_000)
    nothing = np.ones((KINDS_OF_USERS, 1), np.float32), np.ones((6, 1), np.float32)
    seen = FeatureView(("user_id", "ad_id"), *nothing, False, None, None, 0.0)
    torch.manual_seed(1)
    tables = IdTables(seen, 4)
    net = with_tables(TwoTowers(1 + tables.request_width, 1 + tables.ad_width, 0, hidden=8, dims=4), tables)
    before = {name: rows.detach().clone() for name, rows in tables.rows.items()}
    history = train(net, seen, data, "in_batch", TrainingPlan(4, 128, 0.02), {"uniform": 8})
    assert history[-1] < history[0]
    assert all((rows != before[name]).any(dim=1).all() for name, rows in tables.rows.items())


def test_a_net_without_two_codes_is_refused_in_words():
    data = drawn(law(6), 10)
    with pytest.raises(ValueError, match="CoAction.* encode_users"):
        train(CoAction(KINDS_OF_USERS, 6, 0, hidden=16), view(6), data, "in_batch", TrainingPlan(1, 8, 0.01))
