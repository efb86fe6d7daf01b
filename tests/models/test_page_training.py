import copy
import math
from functools import cache

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.analysis.metrics import gauc
from cascade_sim.models import page_training
from cascade_sim.models.examination import slot_log_odds
from cascade_sim.models.nets.coaction import CoAction
from cascade_sim.models.nets.cold import GatedNet
from cascade_sim.models.nets.inttower import InterTowers
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.models.objectives import OBJECTIVES, make_objective
from cascade_sim.models.page_training import (
    ClickedPages,
    make_pages,
    scores,
    served_net,
    start_at_base_rate,
    train_pages,
)
from cascade_sim.models.training import Impressions, TrainingPlan
from worlds.clicked_ads import AD, ADS, LOGIT, USER, USERS, VIEW, logits, net

assert USER and AD
SLOTS = np.array([1.0, 0.7, 0.5, 0.4], np.float32)


def pages(n, seed=1, sizes=(2, 3, 4)):
    """Requests of two to four slots, better ads above, with a deployed model that knows half the truth."""
    rng = np.random.default_rng(seed)
    size = rng.choice(sizes, n)
    users = np.repeat(rng.integers(0, USERS, n), size).astype(np.int32)
    request = np.repeat(1000 + 7 * np.arange(n), size).astype(np.int64)
    ads = rng.integers(0, ADS, len(users)).astype(np.int32)
    logit = LOGIT[users, ads]
    order = np.lexsort((-logit, request))
    users, ads, logit = users[order], ads[order], logit[order]
    slot = np.arange(len(users)) - np.repeat(np.cumsum(size) - size, size)
    seen = SLOTS[slot]
    click = (rng.random(len(users)) < seen / (1 + np.exp(-logit))).astype(np.float32)
    shown = Impressions(users, np.zeros(len(users), np.float32), ads, seen, click)
    return make_pages(shown, request, 1 / (1 + np.exp(-0.5 * logit)))


DATA = pages(4000)
EVERYONE, ALL_ADS = np.arange(USERS), np.tile(np.arange(ADS), (USERS, 1))


def fit(module, name, data=DATA, batching=None, **changes):
    plan = TrainingPlan(**{"epochs": 5, "batch": 512, "learning_rate": 0.02, **changes})
    return train_pages(module, VIEW, data, make_objective(name), plan, batching=batching)


@cache
def learned(name):
    """A net trained with the settings of `fit`, for several tests."""
    return trained(name)


def trained(name, kind=TwoTowers, seed=1, **changes):
    objective = make_objective(name)
    torch.manual_seed(seed)
    heads = {"heads": objective.n_heads} if objective.n_heads > 1 else {}
    module = kind(VIEW.request_width, VIEW.ad_width, VIEW.pair_width, hidden=16, dims=6, **heads)
    history = fit(module, name, **changes)
    return served_net(module, objective), history


def test_pages_are_cut_where_the_request_changes_and_taken_whole():
    data = pages(5, seed=3)
    assert data.lists[0] == 0 and data.lists[-1] == len(data.users) and len(data.request) == 5
    kept = data.take(np.array([False, True, False, False, True]))
    assert kept.request.tolist() == data.request[[1, 4]].tolist()
    first = slice(data.lists[1], data.lists[2])
    assert np.array_equal(kept.shown.ads[: kept.lists[1]], data.shown.ads[first])
    assert np.array_equal(kept.dumped[: kept.lists[1]], data.dumped[first])
    assert kept.lists[-1] == len(kept.users)


def test_a_dump_is_the_log_odds_of_what_was_served_and_nan_where_nothing_was():
    shown = Impressions(*(np.zeros(3, t) for t in (np.int32, np.float32, np.int32, np.float32, np.float32)))
    data = make_pages(shown, np.array([4, 4, 9]), np.array([0.2, 0.5, np.nan]))
    assert data.dumped[:2] == pytest.approx([math.log(0.2 / 0.8), 0.0], abs=1e-6) and np.isnan(data.dumped[2])
    assert data.lists.tolist() == [0, 2, 3]


@pytest.mark.drill
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_learns_to_order_ads_within_a_request(name):
    module, history = learned(name)
    score = logits(module, EVERYONE, ALL_ADS)
    lists = np.arange(USERS + 1) * ADS
    true = 1 / (1 + np.exp(-LOGIT))
    best = gauc(LOGIT.ravel(), true.ravel(), lists)
    assert gauc(score.ravel(), true.ravel(), lists) > best - 0.04 > 0.6
    assert len(history) == 5 and history[-1] < history[0]


@pytest.mark.parametrize("name", [name for name, kind in OBJECTIVES.items() if kind.has_scale])
@pytest.mark.few(2)
def test_an_objective_with_a_scale_predicts_the_ctr_of_a_fully_examined_slot(name):
    """Lower slots are seen less than half the time, and worse ads stand there."""
    if name == "multi_objective":
        pytest.skip("its two parts wish for different scores")
    objective = make_objective(name)
    score = torch.from_numpy(logits(learned(name)[0], EVERYONE, ALL_ADS).ravel())
    # The served net has one head, the objective's score.
    predicted = torch.sigmoid(score) if objective.n_heads == 2 else objective.predict(score[:, None])
    assert predicted.mean().item() == pytest.approx((1 / (1 + np.exp(-LOGIT))).mean(), rel=0.12)


@pytest.mark.parametrize("name", ["softmax", "ranknet", "approx_ndcg"])
@pytest.mark.few(1)
def test_an_objective_without_a_scale_is_not_handed_one(name):
    """The level of its scores is that of the first weights: around 0, for clicks of a few percent."""
    click = DATA.shown.click * (np.arange(len(DATA.users)) % 9 == 0)
    shown = Impressions(**{**DATA.shown.arrays(), "click": click})
    rare = ClickedPages(shown, DATA.lists, DATA.request, DATA.dumped)
    module, _ = trained(name, data=rare)
    rate = rare.shown.click.sum() / rare.shown.examination.sum()
    predicted = 1 / (1 + np.exp(-scores(module, VIEW, rare.shown)))
    assert rate < 0.06 and predicted.mean() > 3 * rate


@pytest.mark.parametrize("name", ["rcr", "sbcr", "jrc"])
def test_training_repeats_to_the_last_bit_and_leaves_its_samples_alone(name):
    before = copy.deepcopy(DATA.arrays())
    (one, first), (two, second) = (trained(name, epochs=1, seed=4) for _ in range(2))
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert all(np.array_equal(before[name], a, equal_nan=True) for name, a in DATA.arrays().items())


def test_batches_hold_whole_requests(monkeypatch):
    seen = []

    def judge(self, outputs, labels, lists, *, dumped=None):
        seen.append((np.diff(lists), len(labels)))
        return outputs.sum() * 0.0

    monkeypatch.setattr(OBJECTIVES["softmax"], "loss", judge)
    fit(net(), "softmax", epochs=1, batch=100)
    assert sorted(np.concatenate([sizes for sizes, _ in seen])) == sorted(np.diff(DATA.lists))
    assert all(sizes.sum() == n for sizes, n in seen)
    assert np.mean([n for _, n in seen[:-1]]) == pytest.approx(100, rel=0.05)


def test_self_boosted_samples_come_one_by_one_with_the_dump_of_their_page(monkeypatch):
    """Half of the pages have no dump: their samples have no pair."""
    data = pages(200, seed=8)
    without = np.repeat(np.arange(200) % 2 == 0, np.diff(data.lists))
    data = ClickedPages(
        data.shown, data.lists, data.request, np.where(without, np.nan, data.dumped).astype(np.float32)
    )
    seen = []

    def judge(self, outputs, labels, lists, *, dumped=None):
        seen.append((len(labels), dumped))
        return outputs.sum() * 0.0

    monkeypatch.setattr(OBJECTIVES["sbcr"], "loss", judge)
    fit(net(), "sbcr", data, epochs=1, batch=50)
    assert sum(n for n, _ in seen) == len(data.users) and max(n for n, _ in seen) == 50
    sizes = np.concatenate([np.diff(dumped.lists) for _, dumped in seen])
    of_page = np.diff(data.lists)
    assert sizes.sum() == (of_page[1::2] ** 2).sum()  # each sample brings its page, if that has a dump
    assert (sizes == 0).sum() == of_page[::2].sum()
    odds = slot_log_odds(torch.from_numpy(data.dumped), torch.from_numpy(data.shown.examination)).numpy()
    given = np.concatenate([dumped.scores.numpy() for _, dumped in seen])
    assert set(np.round(given, 4)) == set(np.round(odds[~without], 4))


@pytest.mark.parametrize("name", ["pointwise", "calibrated_softmax", "rcr_regression", "jrc", "multi_task"])
def test_training_starts_where_the_prediction_is_the_click_rate(name):
    objective = make_objective(name, **({"y0": 0.3} if name == "calibrated_softmax" else {}))
    torch.manual_seed(0)
    heads = {"heads": objective.n_heads} if objective.n_heads > 1 else {}
    module = CoAction(VIEW.request_width, VIEW.ad_width, VIEW.pair_width, **heads)
    start_at_base_rate(module, DATA.shown, objective)
    rate = DATA.shown.click.sum(dtype=np.float64) / DATA.shown.examination.sum(dtype=np.float64)
    predicted = objective.predict(module.bias.detach().reshape(1, -1))
    assert predicted.item() == pytest.approx(rate, rel=1e-5)
    assert make_objective("pointwise").start_score(0.2) == pytest.approx(math.log(0.2 / 0.8))


@pytest.mark.parametrize("kind", [TwoTowers, CoAction, InterTowers, GatedNet])
@pytest.mark.parametrize("name", ["multi_task", "jrc"])
def test_the_served_net_of_two_heads_gives_the_objectives_score(kind, name):
    objective = make_objective(name)
    torch.manual_seed(2)
    wide = kind(VIEW.request_width, VIEW.ad_width, VIEW.pair_width, hidden=16, dims=6, heads=2)
    fit(wide, name, epochs=1)
    users, ads = EVERYONE[:20], ALL_ADS[:20]
    score = objective.score(torch.from_numpy(logits(wide, users, ads)).reshape(-1, 2)).reshape(20, ADS)
    served = served_net(wide, objective)
    assert logits(served, users, ads) == pytest.approx(score.numpy(), abs=2e-5)
    assert type(served) is kind and served.state_dict().keys() == net(kind).state_dict().keys()


def test_a_model_without_the_heads_it_needs_stops_the_training_with_both_shapes():
    with pytest.raises(ValueError, match=r"returned shape \(.*, 1\), not \(.*, 1, 2\)"):
        fit(net(), "jrc")


def test_no_pages_leave_the_model_as_it_is():
    module, nothing = net(), DATA.take(np.zeros(len(DATA.request), bool))
    before = copy.deepcopy(module.state_dict())
    assert fit(module, "rcr", nothing) == [] and len(scores(module, VIEW, nothing.shown)) == 0
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_scores_are_the_nets_own():
    module = net(CoAction)
    users, ads = DATA.shown.users[:50], DATA.shown.ads[:50]
    first = Impressions(**{name: column[:50] for name, column in DATA.shown.arrays().items()})
    assert scores(module, VIEW, first, at_once=7) == pytest.approx(
        logits(module, users, ads[:, None])[:, 0], abs=1e-6
    )


def test_whole_pages_in_a_batch_are_the_same_loss_in_another_order():
    """With one batch for everything the order within it does not matter; with small ones it does."""
    whole = {"batch": 10**6, "epochs": 1, "data": pages(200)}
    small = {"batch": 32, "epochs": 1, "data": pages(200)}
    for name in [name for name, kind in OBJECTIVES.items() if kind.can_take_samples]:
        losses, nets = {}, {}
        for batching in ("samples", "lists"):
            losses[batching] = trained(name, batching=batching, **whole)[1][0]
            nets[batching] = trained(name, batching=batching, **small)[0]
        # pointwise: the mean over pages of their sums, which is that over samples times the mean page
        per_page = len(whole["data"].users) / 200 if name == "pointwise" else 1.0
        assert losses["lists"] == pytest.approx(per_page * losses["samples"], rel=1e-4)
        scored = [logits(nets[batching], EVERYONE, ALL_ADS) for batching in nets]
        assert np.abs(scored[0] - scored[1]).max() > 1e-3


def test_a_page_stays_in_one_batch_or_is_torn_apart(monkeypatch):
    data, seen = pages(60), []

    def watched(model, view, users, context, ads, real=page_training.outputs):
        seen.append(set(zip(users.tolist(), ads.tolist(), strict=True)))
        return real(model, view, users, context, ads)

    monkeypatch.setattr(page_training, "outputs", watched)
    page_of = {
        pair: i for i in range(60) for pair in _pairs(data, slice(data.lists[i], data.lists[i + 1]))
    }  # a pair on two pages counts as torn; there are few
    torn = {}
    for batching in ("samples", "lists"):
        seen.clear()
        trained("sbcr", batching=batching, batch=16, epochs=1, data=data)
        homes = [{page_of[pair] for pair in batch} for batch in seen]
        torn[batching] = sum(sum(page in batch for batch in homes) > 1 for page in range(60))
    assert torn["lists"] < 12 < 45 < torn["samples"]


def _pairs(data, rows):
    return list(zip(data.shown.users[rows].tolist(), data.shown.ads[rows].tolist(), strict=True))


def test_what_compares_the_ads_of_a_page_cannot_do_without_whole_pages():
    with refused("softmax", "whole pages", kind=ValueError):
        trained("softmax", batching="samples")
    assert all(kind.can_take_samples for kind in OBJECTIVES.values() if kind.trains_on == "samples")
