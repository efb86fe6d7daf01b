"""What is held out of training, what a training is watched on, and that watching changes nothing."""

import numpy as np
import pytest
import torch
from torch import nn

from cascade_sim.models.page_training import ClickedPages, make_pages
from cascade_sim.models.training import POINTS, Impressions, Lists, TrainingMonitor, TrainingPlan, train
from cascade_sim.scenario.models import ModelSpec
from cascade_sim.training import curves as module
from cascade_sim.training.curves import learning_curve_of, page_measures
from cascade_sim.training.parallel import partitioned
from worlds.clicked_ads import ADS, LOGIT, USERS, VIEW, net

SPEC = ModelSpec(features=("user",), validation=0.2)


def pages(n=3000, slots=3, seed=1):
    rng = np.random.default_rng(seed)
    users, ads = np.repeat(rng.integers(0, USERS, n), slots), rng.integers(0, ADS, n * slots)
    seen = np.tile(np.linspace(1, 0.5, slots), n).astype(np.float32)
    click = (rng.random(n * slots) < seen / (1 + np.exp(-LOGIT[users, ads]))).astype(np.float32)
    shown = Impressions(users.astype(np.int32), 0 * seen, ads.astype(np.int32), seen, click)
    return make_pages(shown, np.repeat(np.arange(n), slots), np.full(n * slots, 0.1))


def lists(n=500, m=6):
    ads = np.tile(np.arange(m, dtype=np.int32), (n, 1))
    nothing = np.zeros((n, m), np.float32)
    return Lists(
        np.arange(n) % USERS, np.zeros(n, np.float32), ads, nothing, nothing, ads.astype(np.int8), nothing
    )


def test_a_share_of_the_requests_is_held_out_whole_and_the_same_for_every_model():
    data = pages()
    parts = partitioned(data, SPEC, seed=5)
    kept, apart = set(parts.train.request), set(parts.held_out.request)
    assert not kept & apart and kept | apart == set(data.request)
    assert len(apart) == pytest.approx(0.2 * 3000, abs=4 * np.sqrt(0.2 * 0.8 * 3000))
    assert set(np.diff(parts.held_out.lists)) == {3}
    other = partitioned(data, SPEC.model_copy(update={"objective": "rcr", "calibrator": "platt"}), seed=5)
    assert set(other.held_out.request) == apart
    assert not set(other.calibration.request) & (apart | set(other.train.request))
    assert set(partitioned(data, SPEC, seed=6).held_out.request) != apart


def test_lists_of_students_are_held_out_too():
    parts = partitioned(lists(), SPEC, seed=5)
    assert len(parts.train.users) + len(parts.held_out.users) == 500
    assert isinstance(parts.watched, Lists) and 60 < len(parts.held_out.users) < 140


def test_without_validation_all_is_learned_from_and_watching_is_a_small_part_of_the_work():
    data = pages()
    parts = partitioned(data, SPEC.model_copy(update={"validation": 0.0, "epochs": 10}), seed=5)
    assert parts.train is data and len(parts.held_out.users) == 0
    most = module.SHARE_OF_WORK * 10 * 9000 / POINTS  # impressions at each of the points
    assert len(parts.watched.users) == pytest.approx(most, rel=0.3)


def test_at_most_so_many_impressions_are_watched(monkeypatch):
    monkeypatch.setattr(module, "MOST", 300)
    parts = partitioned(pages(), SPEC, seed=5)
    assert 200 < len(parts.watched.users) < 400 < len(parts.held_out.users)
    assert set(parts.watched.request) <= set(parts.held_out.request)


class Dropping(nn.Module):
    """A net that draws while it trains, and keeps a running mean."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(VIEW.ad_width), nn.Dropout(0.3)
        self.linear = nn.Linear(VIEW.ad_width, 1)

    def forward(self, request, ads, pair):
        return self.linear(self.drop(self.norm(ads[:, 0])))


@pytest.mark.parametrize("make", [net, Dropping])
def test_a_net_that_is_watched_ends_as_one_that_is_not(make):
    data, ends = pages(600), []
    for monitor in (
        None,
        TrainingMonitor(pages(200, seed=2).shown, lambda model: {"drawn": torch.rand(1).item()}),
    ):
        torch.manual_seed(3)
        model = make()
        history = train(model, VIEW, data.shown, "logloss", TrainingPlan(3, 64, 0.02, monitor=monitor))
        ends.append((history, {name: value.clone() for name, value in model.state_dict().items()}))
    assert ends[0][0] == ends[1][0]
    assert all(torch.equal(value, ends[1][1][name]) for name, value in ends[0][1].items())


def test_a_line_has_its_points_and_the_mean_loss_of_the_batches_between_them():
    monitor = TrainingMonitor(pages(200, seed=2).shown)
    history = train(net(), VIEW, pages(640).shown, "logloss", TrainingPlan(4, 96, 0.02, monitor=monitor))
    line = learning_curve_of(monitor)
    assert line["steps"] == [4 * point for point in range(POINTS + 1)]  # 20 steps in each of 4 epochs
    assert line["loss"][0] is None and len(line["loss"]) == len(line["part_loss"]) == POINTS + 1
    by_epoch = np.reshape(line["loss"][1:], (4, 5)).mean(axis=1)
    assert by_epoch.tolist() == pytest.approx(history)
    assert line["samples"] == 600 and line["part_loss"][-1] < line["part_loss"][0]


def test_measures_of_pages_are_of_clicks_in_their_slots():
    data = pages(4000)
    shown = data.shown
    truth = shown.examination / (1 + np.exp(-LOGIT[shown.users, shown.ads]))
    found = page_measures(truth, truth, data)
    assert found["pcoc"] == pytest.approx(1, abs=0.05) and found["gauc"] > 0.6
    assert found["logloss"] < page_measures(truth, np.full(len(truth), truth.mean()), data)["logloss"]
    assert list(page_measures(truth, truth, data, has_scale=False)) == ["gauc"]
    assert isinstance(data, ClickedPages)
