"""Training on lists and on samples: repeatable, whole lists together, the best epoch kept."""

import math

import numpy as np
import pytest
import torch

from cascade_sim.analysis.metrics import stability
from cascade_sim.ltr import training as ltr_training
from cascade_sim.ltr.files import RankingFile
from cascade_sim.ltr.training import (
    Settings,
    default_batch,
    default_epochs,
    default_layers,
    list_columns,
    outputs_of,
    still_learning,
    thinned,
    train,
)
from cascade_sim.models.objectives import make_objective
from worlds.ltr_files import table

SMALL = Settings(layers=(8,), dropout=0.1, epochs=3, batch=16)


def last(net):
    """A judge that prefers every later epoch."""
    last.count = getattr(last, "count", 0) + 1
    return {"loss": last.count}


def test_columns_of_the_list_itself_are_found():
    features = np.array([[1, 5, 0], [1, 6, 0], [2, 7, 0]], np.float32)
    data = RankingFile(features, np.zeros(3, np.float32), np.array([0, 2, 2, 3]), np.arange(3))
    assert list_columns(data).tolist() == [0]  # the second differs within a list, the third never does


def test_labels_are_cut_where_asked_and_request_features_are_one_per_list():
    data = table(positive_from=None, max_grade=4)
    cut = table(positive_from=2, max_grade=4)
    assert torch.equal(cut.labels, (data.labels >= 2).float()) and 0 < cut.labels.mean() < 1
    assert cut.request.shape == (len(cut.labels), 1)
    assert torch.equal(cut.request[:, 0], cut.features[:, 0])


@pytest.mark.parametrize("name", ["softmax", "sbcr", "jrc"])
def test_the_same_seed_gives_the_same_net_and_another_seed_another(name):
    data, objective = table(), make_objective(name)
    one, again, other = (train(objective, data, SMALL, 0.01, seed, last) for seed in (1, 1, 2))
    outputs = [outputs_of(found.best["loss"].net, data.features) for found in (one, again, other)]
    assert torch.equal(outputs[0], outputs[1]) and not torch.allclose(outputs[0], outputs[2])
    assert np.array_equal(one.curve, again.curve)


def test_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    train(make_objective("pointwise"), table(), SMALL, 0.01, 1, last)
    assert torch.equal(torch.rand(1), wanted)


def test_batches_are_whole_lists_of_even_number_and_every_list_is_seen_once(monkeypatch):
    data, seen = table(n_lists=33), []
    objective = make_objective("softmax")

    def loss(self, outputs, labels, lists, dumped=None):
        seen.append((labels.clone(), np.diff(lists)))
        return outputs.sum() * 0

    monkeypatch.setattr(type(objective), "loss", loss)
    train(objective, data, Settings((4,), 0.0, 1, 16), 0.01, 1, last)
    assert [len(sizes) for _, sizes in seen] == [11, 11, 11]
    sizes = np.concatenate([sizes for _, sizes in seen])
    assert sorted(sizes) == sorted(np.diff(data.lists))
    labels = torch.cat([labels for labels, _ in seen])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    lists = sorted(tuple(labels[a:b].tolist()) for a, b in zip(starts, starts[1:], strict=False))
    whole = [data.labels[a:b].tolist() for a, b in zip(data.lists, data.lists[1:], strict=False)]
    assert lists == sorted(map(tuple, whole))


def test_samples_come_mixed_with_the_dump_of_their_own_list(monkeypatch):
    data, seen = table(n_lists=40), []
    objective = make_objective("sbcr")
    dumps = []
    original = ltr_training.outputs_of
    monkeypatch.setattr(ltr_training, "outputs_of", lambda *a: dumps.append(original(*a)) or dumps[-1])

    def loss(self, outputs, labels, lists, dumped=None):
        seen.append((labels, dumped, len(dumps) - 1))
        return outputs.square().sum()

    monkeypatch.setattr(type(objective), "loss", loss)
    train(objective, data, Settings((4,), 0.0, 1, 4), 0.05, 1, last)
    assert len(seen) == 10 and len(dumps) == 4  # ten batches, a new dump every third
    assert sum(len(labels) for labels, *_ in seen) == len(data.labels)
    by_list = {tuple(data.labels[a:b].tolist()) for a, b in zip(data.lists, data.lists[1:], strict=False)}
    for labels, dumped, number in seen:
        starts = dumped.lists
        own = [dumped.labels[a:b] for a, b in zip(starts, starts[1:], strict=False)]
        assert all(tuple(part.tolist()) in by_list for part in own)
        assert all(label in own[k] for label, k in zip(labels, dumped.request, strict=True))
        assert set(dumped.scores.tolist()) <= set(dumps[number][:, 0].tolist())


def test_the_best_epoch_by_each_measure_of_the_judge_is_kept():
    data, states = table(), []
    worths = iter([{"loss": -1.0, "ndcg": 0.1}, {"loss": 3.0, "ndcg": math.nan}, {"loss": 2.0, "ndcg": 0.2}])

    def judge(net):
        states.append(outputs_of(net, data.features))
        return next(worths)

    best = train(make_objective("pointwise"), data, SMALL, 0.01, 1, judge).best
    for measure, epoch in (("loss", 2), ("ndcg", 3)):
        assert best[measure].epoch == epoch
        assert torch.equal(outputs_of(best[measure].net, data.features), states[epoch - 1])
    assert not torch.equal(states[1], states[2])


def test_what_never_had_a_finite_worth_is_kept_at_no_epoch():
    best = train(make_objective("pointwise"), table(), SMALL, 0.01, 1, lambda net: {"loss": math.nan}).best
    assert best["loss"].epoch == 0 and best["loss"].is_learning is None


def test_some_lists_of_a_table_are_those_lists():
    data = table()
    taken = data.take_lists(np.array([7, 3]))
    rows = np.concatenate([np.arange(data.lists[i], data.lists[i + 1]) for i in (7, 3)])
    assert torch.equal(taken.features, data.features[rows]) and torch.equal(taken.labels, data.labels[rows])
    assert torch.equal(taken.request, data.request[rows])
    assert np.diff(taken.lists).tolist() == np.diff(data.lists)[[7, 3]].tolist()


def test_the_momentum_of_batch_norm_is_what_the_norms_remember_by():
    data = table()
    means = []
    for momentum in (0.1, 1.0):
        settings = Settings((8,), 0.0, 1, data.n_lists, momentum=momentum)  # one step of all lists
        net = train(make_objective("pointwise"), data, settings, 0.01, 1, last).best["loss"].net
        means.append(net.body[0].running_mean)
    assert torch.allclose(means[1], data.features.mean(0), atol=1e-6)
    assert torch.allclose(means[0], 0.1 * data.features.mean(0), atol=1e-6)


def test_a_loss_that_is_not_finite_ends_the_training_and_marks_the_curve(monkeypatch):
    objective = make_objective("pointwise")
    values = iter([1.0] * 6 + [math.inf] * 100)
    monkeypatch.setattr(type(objective), "loss", lambda self, o, *a, **k: o.sum() * 0 + next(values))
    found = train(objective, table(), SMALL, 0.01, 1, last)
    assert not found.is_finite and found.best["loss"].epoch == 1
    assert np.isnan(found.curve[-1]) and len(found.curve) == 7
    assert not stability(found.curve).is_stable


def test_a_long_curve_is_thinned_to_means_of_equal_parts():
    assert thinned([1.0, 2.0]).tolist() == [1, 2]
    assert thinned(np.arange(400.0)).tolist() == (np.arange(200) * 2 + 0.5).tolist()


def test_pointwise_finds_its_level_and_pairs_alone_never_do():
    """After training: the log loss has the mean label, RankNet stays at whatever level it began with."""
    data = table(n_lists=400)
    settings = Settings(layers=(8,), dropout=0.0, epochs=6, batch=16)
    mean = {}
    for name in ("pointwise", "ranknet"):
        objective = make_objective(name)
        net = train(objective, data, settings, 0.01, 1, last).best["loss"].net
        mean[name] = float(objective.predict(outputs_of(net, data.features)).mean() / data.labels.mean())
    assert mean["pointwise"] == pytest.approx(1, abs=0.15)
    assert abs(mean["ranknet"] - 1) > 0.5


@pytest.mark.parametrize("n_lists", [1, 3, 20, 64, 161, 500, 1_000, 20_000, 200_000])
def test_a_file_of_any_size_gets_steps_enough(n_lists):
    batch = default_batch(n_lists)
    epochs = default_epochs(n_lists, batch)
    steps = -(-n_lists // batch)
    assert 1 <= batch <= min(n_lists, 32) and 5 <= epochs <= 40
    assert steps >= min(n_lists / 4, 32)  # by lists in fours, where they are too few for more
    assert steps * epochs >= min(1280, 10 * n_lists)


def test_a_small_file_gets_a_small_net():
    weights = [np.prod(default_layers(n)) for n in (500, 50_000, 500_000)]
    assert weights == sorted(set(weights))


@pytest.mark.parametrize(
    ("worths", "expected"),
    [
        ([-0.9, -0.8, -0.7, -0.6, -0.5, -0.4, -0.3, -0.2], True),
        ([-0.9, -0.4, -0.3, -0.3, -0.31, -0.29, -0.3, -0.289], False),  # within the noise of its end
        ([-0.9, -0.3, -0.2, -0.25, -0.3, -0.4, -0.5, -0.6], False),  # past its best
        ([0.5, 0.4, 0.3, 0.2], False),
        ([-0.9, float("nan"), -0.8, -0.2], True),
        ([-0.9, -0.5], True),
        ([-0.9], None),
        ([float("nan")] * 3, None),
        ([], None),
    ],
)
def test_a_net_is_still_learning_if_its_last_quarter_brought_a_share_of_its_gain(worths, expected):
    assert still_learning(worths) is expected
