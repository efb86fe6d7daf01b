"""A calibrator's map that is trained in the batches of its net."""

import copy
import math

import numpy as np
import pytest
import torch

from cascade_sim.models.calibrators import PiecewiseLinear
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.models.objectives import make_objective
from cascade_sim.models.page_training import make_pages, scores, served_net, train_pages
from cascade_sim.models.training import Impressions, TrainingPlan
from worlds.clicked_ads import ADS, LOGIT, USER, USERS, VIEW

SLOTS = np.array([1.0, 0.7, 0.5, 0.4], np.float32)
# Users click more or less as a whole, which no order within a request can show.
TRUE = 1 / (1 + np.exp(-(LOGIT - 1.0 + 1.2 * USER["user"])))


def pages(n, seed=1):
    """Requests of four slots with clicks of TRUE; ads in a random order."""
    rng = np.random.default_rng(seed)
    users = np.repeat(rng.integers(0, USERS, n), len(SLOTS)).astype(np.int32)
    ads = rng.integers(0, ADS, len(users)).astype(np.int32)
    seen = np.tile(SLOTS, n)
    click = (rng.random(len(users)) < seen * TRUE[users, ads]).astype(np.float32)
    shown = Impressions(users, np.zeros(len(users), np.float32), ads, seen, click)
    return make_pages(shown, np.repeat(np.arange(n), len(SLOTS)), TRUE[users, ads])


DATA = pages(800)


def fresh_map(data=DATA, hidden=(24,)):
    shown = data.shown
    return PiecewiseLinear.untrained(view_of(shown.users), hidden=hidden, seed=2)


def view_of(users):
    return VIEW.request_features(users, np.zeros(len(users), np.float32))


def trained(name, beside=None, data=DATA, batching=None, **changes):
    objective = make_objective(name)
    torch.manual_seed(1)
    heads = {"heads": objective.n_heads} if objective.n_heads > 1 else {}
    module = TwoTowers(VIEW.request_width, VIEW.ad_width, VIEW.pair_width, hidden=16, dims=6, **heads)
    plan = TrainingPlan(**{"epochs": 2, "batch": 256, "learning_rate": 0.02, "seed": 3, **changes})
    history = train_pages(module, VIEW, data, objective, plan, beside=beside, batching=batching)
    return served_net(module, objective), history


@pytest.mark.parametrize(
    ("name", "batching"), [("sbcr", None), ("sbcr", "lists"), ("softmax", None), ("jrc", None)]
)
def test_the_net_is_to_the_last_bit_what_it_is_without_the_map(name, batching):
    calibrator = fresh_map()
    before = copy.deepcopy(calibrator.map.state_dict())
    alone, loss = trained(name, batching=batching)
    beside, same = trained(name, calibrator.map, batching=batching)
    assert loss == same
    assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), beside.parameters(), strict=True))
    assert not torch.equal(before["common"], calibrator.map.common)
    assert not any(parameter.requires_grad for parameter in calibrator.map.parameters())


def test_a_map_repeats_to_the_last_bit_and_its_own_seed_does_not_reach_the_net():
    one, two, other = fresh_map(), fresh_map(), fresh_map(hidden=(8, 8))
    nets = [trained("sbcr", calibrator.map)[0] for calibrator in (one, two, other)]
    for name, values in one.arrays().items():
        assert np.array_equal(values, two.arrays()[name])
    weights = [torch.cat([p.flatten() for p in net.parameters()]) for net in nets]
    assert torch.equal(weights[0], weights[1]) and torch.equal(weights[0], weights[2])


def test_no_gradient_of_the_map_reaches_scores_or_features():
    calibrator = fresh_map()
    score = torch.randn(7, requires_grad=True)
    request = torch.from_numpy(view_of(np.arange(7))).requires_grad_()
    calibrator.map.requires_grad_()
    calibrator.map.loss(score, torch.ones(7), request, torch.full((7,), 0.6)).backward()
    assert score.grad is None and request.grad is None
    assert calibrator.map.common.grad.abs().sum() > 0


def test_the_loss_of_a_slot_is_that_of_its_chance_to_be_looked_at_times_g():
    """g = 0.2 for a fresh map at log(1/4); x = 0.5: a click costs −log 0.1, a skip −log 0.9."""
    fresh = PiecewiseLinear.untrained(np.zeros((0, 0), np.float32)).map
    score, seen = torch.full((2,), math.log(0.25)), torch.full((2,), 0.5)
    loss = fresh.loss(score, torch.tensor([1.0, 0.0]), None, seen)
    assert loss.item() == pytest.approx(-(math.log(0.1) + math.log(0.9)) / 2)
    assert fresh.loss(score, torch.tensor([1.0, 0.0]), None, torch.ones(2)).item() == pytest.approx(
        fresh.loss(score, torch.tensor([1.0, 0.0])).item()
    )


@pytest.fixture(scope="module")
def softmax():
    """A ranker without a scale, and the map that was trained with it."""
    data = pages(5000)
    calibrator = fresh_map(data)
    net, _ = trained("softmax", calibrator.map, data, epochs=6)
    return net, calibrator


def test_a_map_mends_a_sigmoid_that_is_off_by_request(softmax):
    """Quarters of the users by how much they click; lower slots are seen less than half the time."""
    net, calibrator = softmax
    score = all_scores(net)
    predicted = calibrator(score, view_of(np.repeat(np.arange(USERS), ADS))).reshape(USERS, ADS)
    sigmoid = (1 / (1 + np.exp(-score))).reshape(USERS, ADS)
    quarters = np.array_split(np.argsort(TRUE.mean(axis=1)), 4)
    off = [sigmoid[users].sum() / TRUE[users].sum() for users in quarters]
    mended = [predicted[users].sum() / TRUE[users].sum() for users in quarters]
    assert max(off) / min(off) > 2.5
    assert mended == pytest.approx([1.0] * 4, abs=0.2)


def test_the_order_within_a_request_stays_the_nets(softmax):
    net, calibrator = softmax
    score = all_scores(net).reshape(USERS, ADS)
    for user in range(USERS):
        predicted = calibrator(score[user], view_of(np.full(ADS, user)))
        assert np.array_equal(np.argsort(predicted, kind="stable"), np.argsort(score[user], kind="stable"))


def all_scores(net):
    users = np.repeat(np.arange(USERS, dtype=np.int32), ADS)
    ads = np.tile(np.arange(ADS, dtype=np.int32), USERS)
    nothing = np.zeros(len(users), np.float32)
    return scores(net, VIEW, Impressions(users, nothing, ads, nothing + 1, nothing))
