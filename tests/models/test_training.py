import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from answers.told import refused
from cascade_sim.analysis.metrics import auc
from cascade_sim.models.nets.coaction import CoAction
from cascade_sim.models.nets.cold import GatedNet
from cascade_sim.models.nets.inttower import InterTowers
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.models.recipes import RECIPES
from cascade_sim.models.training import (
    Impressions,
    Lists,
    TrainingPlan,
    chunk_of_order,
    chunk_of_rank,
    pick_device,
    set_base_rate,
    train,
)
from worlds.clicked_ads import AD, ADS, LOGIT, USERS, VIEW, logits, net


def impressions(n, seed):
    rng = np.random.default_rng(seed)
    users, ads = rng.integers(0, USERS, n).astype(np.int32), rng.integers(0, ADS, n).astype(np.int32)
    examination = rng.choice([1.0, 0.5], n).astype(np.float32)
    p = examination / (1 + np.exp(-LOGIT[users, ads]))
    click = (rng.random(n) < p).astype(np.float32)
    return Impressions(users, rng.standard_normal(n).astype(np.float32), ads, examination, click)


def lists(n, m=12, seed=5):
    """Candidates whose teacher knows the logit; chunks follow teacher and bid."""
    rng = np.random.default_rng(seed)
    users = rng.integers(0, USERS, n).astype(np.int32)
    ads = np.argsort(rng.random((n, ADS)), axis=1)[:, :m].astype(np.int32)
    teacher = LOGIT[users[:, None], ads].astype(np.float32)
    log_bid = (rng.normal(0, 0.3, (n, m)) - 0.8 * AD["quality"][ads, 0]).astype(np.float32)
    chunk = np.empty((n, m), np.int8)
    np.put_along_axis(chunk, np.argsort(-(teacher + log_bid), axis=1), chunk_of_rank(m, 4)[None, :], 1)
    return Lists(
        users,
        np.zeros(n, np.float32),
        ads,
        teacher,
        log_bid,
        chunk,
        (log_bid - np.logaddexp(0, -teacher)).astype(np.float32),
    )


def fit(module, data, recipe, **changes):
    plan = TrainingPlan(**{"epochs": 4, "batch": 256, "learning_rate": 0.02, **changes})
    return train(module, VIEW, data, recipe, plan)


DATA = impressions(12_000, 1)
LISTS = lists(400)


@pytest.mark.parametrize("kind", [TwoTowers, CoAction, InterTowers, GatedNet])
def test_training_learns_the_click_rates_it_was_not_shown(kind):
    module = net(kind)
    history = fit(module, DATA, "logloss")
    assert len(history) == 4 and history[-1] < history[0]
    everyone = np.arange(USERS)
    learned = logits(module, everyone, np.tile(np.arange(ADS), (USERS, 1)))
    held_out = impressions(8000, 99)
    best = auc(LOGIT[held_out.users, held_out.ads], held_out.click).mean()
    assert auc(learned[held_out.users, held_out.ads], held_out.click).mean() > best - 0.02 > 0.65
    # The logit is that of a fully examined slot, although half the impressions were seen half the time.
    assert (1 / (1 + np.exp(-learned))).mean() == pytest.approx((1 / (1 + np.exp(-LOGIT))).mean(), rel=0.08)


def test_a_student_learns_its_teachers_logits():
    module = net()
    history = fit(module, LISTS, "distill", epochs=12)
    assert history[-1] < 0.15 * LISTS.teacher_logit.var() and history[-1] < history[0] / 3
    fresh = lists(50, seed=77)
    assert (
        np.corrcoef(logits(module, fresh.users, fresh.ads).ravel(), fresh.teacher_logit.ravel())[0, 1] > 0.95
    )


def test_an_ltr_student_learns_to_order_bid_times_score():
    module = net()
    history = fit(module, LISTS, "ltr", epochs=12)
    fresh = lists(80, seed=78)
    served = fresh.log_bid + logits(module, fresh.users, fresh.ads)
    ideal = fresh.log_bid + fresh.teacher_logit
    agree = np.sign(served[:, :, None] - served[:, None]) == np.sign(ideal[:, :, None] - ideal[:, None])
    assert history[-1] < 0.5 * history[0] and agree.mean() > 0.85


TAUGHT = {
    "listwise": {}, "listwise_distill": {}, "infonce": {"k": 3}, "dftopk": {"k": 3, "quota": 4},
    "arf": {"k": 3, "quota": 4, "temperature": 4.0}, "copr": {}, "head_distill": {"base": 2.0},
}  # fmt: skip


@pytest.mark.parametrize("recipe", TAUGHT)
def test_a_student_of_lists_hands_on_the_best_of_what_it_was_not_shown(recipe):
    """Recall of the three best among four of twelve, where an untrained net has about a third."""

    def recall(module):
        fresh = lists(80, seed=78)
        logit = logits(module, fresh.users, fresh.ads)
        if RECIPES[recipe].link == "sigmoid":
            logit = -np.logaddexp(0, -logit)
        kept = np.argsort(-(fresh.log_bid + logit), axis=1)[:, :4]
        # The chunks of these lists are of the teacher's bid * e^s, the score is of its bid * sigma(s).
        ideal = fresh.log_bid + fresh.teacher_logit if recipe == "copr" else fresh.log_score
        best = np.argsort(-ideal, axis=1)[:, :3]
        return (kept[:, :, None] == best[:, None]).any(axis=1).mean()

    module = net()
    before = recall(module)
    plan = TrainingPlan(epochs=12, batch=256, learning_rate=0.02)
    history = train(module, VIEW, LISTS, recipe, plan, TAUGHT[recipe])
    assert history[-1] < history[0] and recall(module) > 0.85 > 0.6 > before


@pytest.mark.parametrize("recipe", ["infonce", "dftopk", "arf"])
def test_lists_that_leave_nothing_to_choose_teach_nothing_and_are_refused(recipe):
    """As from a set that has no more ads than the stage hands on, whatever sample.per_request asks for."""
    name = "quota" if "quota" in RECIPES[recipe].options else "k"
    plan = TrainingPlan(epochs=1, batch=256, learning_rate=0.02)
    with refused(f"recipe_options.{name}", "12 ads", kind=ValueError):
        train(net(), VIEW, LISTS, recipe, plan, {"k": 3, name: 12})


def test_numbers_that_a_recipe_learns_are_trained_beside_the_model():
    """The weight of the whole order: with it held at 1 the same training ends elsewhere."""
    ends = {}
    for name, learned in {"learned": {"log_weight": 0.0}, "fixed": {}}.items():
        held = RECIPES["arf"] if learned else replace(
            RECIPES["arf"], learned={}, loss=partial(RECIPES["arf"].loss, log_weight=torch.zeros(()))
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(RECIPES, "arf", held)
            ends[name] = fit(net(), LISTS, "arf", epochs=3)
    assert ends["learned"][0] != ends["fixed"][0] and ends["learned"][-1] < ends["fixed"][-1]


class Silent(nn.Module):
    """Scores every ad 0."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, request, ads, pair):
        return self.weight * ads.sum(-1)


def test_an_ltr_score_is_judged_together_with_the_bid_it_will_be_served_with(monkeypatch):
    """An ad's served score is bid * exp(s): a model that scores 0 is judged by the logarithm of the bids."""
    seen = []

    def judge(score, chunk):
        seen.append(score.detach().numpy().copy())
        return score.sum() * 0.0

    monkeypatch.setattr("cascade_sim.models.recipes.between_chunks", judge)
    fit(Silent(), LISTS, "ltr", epochs=1)
    rows = np.concatenate(seen)
    assert np.array_equal(np.sort(rows, axis=0), np.sort(LISTS.log_bid, axis=0))


def test_the_ltr_recipe_minimises_the_chunked_ranknet_loss_per_pair():
    from cascade_sim.models.recipes import between_chunks

    score = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 12)))
    chunk = torch.from_numpy(np.random.default_rng(1).integers(1, 4, (7, 12)).astype(np.int8))
    ordered = chunk.unsqueeze(2) > chunk.unsqueeze(1)
    costs = torch.log1p(torch.exp(score.unsqueeze(1) - score.unsqueeze(2)))
    expected = costs[ordered].mean()
    assert float(between_chunks(score, torch.ones_like(chunk))) == 0
    assert float(between_chunks(score, chunk)) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(("kind", "data", "recipe"), [(CoAction, DATA, "logloss"), (TwoTowers, LISTS, "ltr")])
def test_training_repeats_to_the_last_bit(kind, data, recipe):
    first, again = net(kind), net(kind)
    assert fit(first, data, recipe, epochs=2, seed=4) == fit(again, data, recipe, epochs=2, seed=4)
    other = net(kind)
    fit(other, data, recipe, epochs=2, seed=5)
    for (name, a), b, c in zip(
        first.state_dict().items(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(a, b), name
        if a.numel() > 1:
            assert not torch.equal(a, c), name


def test_training_does_not_change_its_samples():
    before = copy.deepcopy(DATA.arrays())
    fit(net(), DATA, "logloss", epochs=1)
    assert all(np.array_equal(before[name], DATA.arrays()[name]) for name in before)


def test_no_samples_leave_the_model_as_it_is():
    nothing = Impressions(*(a[:0] for a in DATA.arrays().values()))
    module = net()
    before = copy.deepcopy(module.state_dict())
    assert fit(module, nothing, "logloss") == []
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_a_last_batch_that_is_smaller_counts_by_its_samples():
    """With a learning rate near 0 the loss of an epoch is the mean over all samples, however cut."""
    losses = {
        batch: fit(net(), DATA, "logloss", epochs=1, batch=batch, learning_rate=1e-12)[0]
        for batch in (5000, 7000, 12_000)
    }
    assert losses[5000] == pytest.approx(losses[12_000], rel=1e-5)
    assert losses[7000] == pytest.approx(losses[12_000], rel=1e-5)


def test_a_loss_that_is_no_number_stops_the_training():
    with refused("epoch 1", "learning_rate", kind=ValueError):
        fit(net(), DATA, "logloss", learning_rate=1e30)


class WrongShape(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, request, ads, pair):
        return request[:, 0] * self.weight


def test_a_model_of_the_wrong_shape_stops_the_training_with_both_shapes():
    with pytest.raises(ValueError, match=r"returned shape \(256,\), not \(256, 1\)"):
        fit(WrongShape(), DATA, "logloss")


def test_an_unknown_recipe_is_refused_with_the_known_ones():
    with refused("'magic'", "logloss, distill, ltr", kind=ValueError):
        fit(net(), DATA, "magic")
    links = {name: recipe.link for name, recipe in RECIPES.items()}
    assert {name for name, link in links.items() if link == "sigmoid"} == {
        "logloss", "distill", "head_distill", "listwise_distill",
    }  # fmt: skip
    assert set(links.values()) == {"sigmoid", "exp"}


def test_the_output_starts_at_the_log_odds_of_the_click_rate():
    module = net()
    set_base_rate(module, DATA)
    rate = DATA.click.sum(dtype=np.float64) / DATA.examination.sum(dtype=np.float64)
    assert module.bias.item() == pytest.approx(np.log(rate / (1 - rate)), rel=1e-5)
    never = Impressions(**{**DATA.arrays(), "click": np.zeros_like(DATA.click)})
    module = net()
    set_base_rate(module, never)
    assert module.bias.item() == 0.0


def test_progress_is_reported_after_every_epoch():
    seen = []
    history = fit(net(), DATA, "logloss", epochs=3, on_epoch=lambda epoch, loss: seen.append((epoch, loss)))
    assert seen == list(enumerate(history))


def test_chunks_halve_from_the_worst_to_the_best():
    assert chunk_of_rank(8, 4).tolist() == [4, 3, 2, 2, 1, 1, 1, 1]
    assert chunk_of_rank(16, 3).tolist() == [3] * 4 + [2] * 4 + [1] * 8
    assert chunk_of_rank(50, 5).tolist() == [5] * 3 + [4] * 3 + [3] * 6 + [2] * 13 + [1] * 25
    assert chunk_of_rank(1, 5).tolist() == [1] and chunk_of_rank(4, 1).tolist() == [1] * 4


@pytest.mark.parametrize("m", [2, 3, 7, 30, 100, 1000])
def test_every_list_has_its_worst_half_in_chunk_1_and_never_rises(m):
    chunk = chunk_of_rank(m, 5)
    assert (chunk == 1).sum() == m - m // 2 and np.all(np.diff(chunk) <= 0) and chunk.max() <= 5


def labels(order, shown, chunks, chunking):
    """Of one list: `order` are columns best first, `shown` the columns that were shown."""
    is_shown = np.isin(np.arange(len(order)), shown)
    return chunk_of_order(np.array([order]), is_shown[None], chunks, chunking)[0].tolist()


def test_quantiles_are_chunks_of_equal_size_with_the_best_on_top():
    assert labels([3, 0, 1, 5, 4, 2], [2], 3, "quantiles") == [3, 2, 1, 3, 1, 2]
    sizes = np.bincount(labels(range(10), [], 4, "quantiles"))[1:]
    assert sizes.tolist() == [2, 3, 2, 3] and sizes.sum() == 10


def test_what_was_shown_is_the_best_chunk_and_the_rest_is_cut_into_quantiles():
    # Best first 3 0 1 5 4 2; of them 0 and 4 were shown: 3 1 are the better half of the rest, 5 2 the worse.
    assert labels([3, 0, 1, 5, 4, 2], [0, 4], 3, "exposed") == [3, 2, 1, 2, 3, 1]
    assert labels([3, 0, 1, 5, 4, 2], [0, 4], 2, "exposed") == [2, 1, 1, 1, 2, 1]  # shown against the rest
    assert labels([1, 0], [0, 1], 2, "exposed") == [2, 2]  # nothing to tell apart


def test_halving_looks_at_ranks_alone():
    assert labels([2, 1, 0, 3], [3], 5, "halving") == chunk_of_rank(4, 5)[[2, 1, 0, 3]].tolist()


def test_a_device_that_is_not_there_is_refused():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    missing = next(d for d in ("cuda", "mps") if d != pick_device("auto").type)
    with refused(f"'{missing}'", "'cpu'", kind=ValueError):
        pick_device(missing)


class Encoder(nn.Module):
    """Encodes its ads apart."""

    def __init__(self):
        super().__init__()
        self.ad, self.request = nn.Linear(VIEW.ad_width, 3), nn.Linear(VIEW.request_width, 3)

    def encode_ads(self, ads):
        return self.ad(ads)

    def forward(self, request, ads, pair):
        return (self.request(request)[:, None] * ads).sum(-1)


def test_a_model_that_encodes_its_ads_is_given_them_encoded():
    torch.manual_seed(0)
    history = fit(Encoder(), DATA, "logloss")
    assert history[-1] < history[0]
