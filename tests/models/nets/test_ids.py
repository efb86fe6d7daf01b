"""Embedding tables learn what only an id tells, leave unknown ids alone, and go wherever their net goes."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from answers.told import refused
from cascade_sim.models.features import FeatureView, make_view
from cascade_sim.models.nets.coaction import CoAction
from cascade_sim.models.nets.cold import GatedNet
from cascade_sim.models.nets.dcn import CrossNet
from cascade_sim.models.nets.ids import SCALE, IdTables, id_tables, joined, mean_rows, with_tables
from cascade_sim.models.nets.inttower import InterTowers
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.models.objectives import make_objective
from cascade_sim.models.page_training import net_to_train, scores, served_net
from cascade_sim.models.training import Impressions, Tables, TrainingPlan, outputs, train

USERS, ADS, ADVERTISERS, WIDTH = 40, 60, 5, 4
NETS = (TwoTowers, CoAction, CrossNet, InterTowers, GatedNet)
ALL = ("user", "quality", "user_id", "ad_id", "advertiser_id", "history")


def view_of(*names: str, length: int = 6) -> FeatureView:
    """Users and ads with a feature each; every third user has a history that ends early, one has none."""
    chance = np.random.default_rng(0)
    features = [chance.standard_normal((n, 1)).astype(np.float32) for n in (USERS, ADS)]
    history = chance.integers(0, ADS, (USERS, length)).astype(np.int32)
    history[::3, 2:] = -1
    history[1] = -1
    nothing = {"mismatch": np.zeros((USERS, 1), np.float32)}, {"mismatch": np.zeros((ADS, 1), np.float32)}
    return make_view(
        names, {"user": features[0], **nothing[0]}, {"quality": features[1], **nothing[1]}, 1.0,
        (np.arange(ADS) % ADVERTISERS).astype(np.int32), ADVERTISERS, history,
    )  # fmt: skip


def net_of(cls: type, view: FeatureView, seed: int = 3, **options: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    tables = IdTables(view, WIDTH) if view.has_ids else None
    more = (0, 0) if tables is None else (tables.request_width, tables.ad_width)
    net = cls(view.request_width + more[0], view.ad_width + more[1], 0, hidden=8, dims=4, **options)
    return with_tables(net, tables)


def impressions(n: int = 6000, cold: int = 0) -> Impressions:
    """Clicks that only the ad's id decides: two of three even ads, one of ten odd. The last are `cold`."""
    chance = np.random.default_rng(1)
    users, ads = chance.integers(0, USERS, n), chance.integers(0, ADS - cold, n)
    click = chance.random(n) < np.where(ads % 2, 0.1, 2 / 3)
    flat = np.ones(n, np.float32)
    return Impressions(users.astype(np.int32), 0 * flat, ads.astype(np.int32), flat, click.astype(np.float32))


def auc(score: np.ndarray, click: np.ndarray) -> float:
    n = click.sum()
    return (rankdata(score)[click > 0].sum() - n * (n + 1) / 2) / (n * (len(click) - n))


@pytest.mark.parametrize("net", NETS)
def test_what_only_an_id_tells_is_learned_with_ids_and_not_without(net):
    """Ordering even ads above odd: AUC is P(even | click) P(odd | none) + 1/2 of the ties, .81 here."""
    shown = impressions()
    even = 2 / 3 / (2 / 3 + 0.1), 1 / 3 / (1 / 3 + 0.9)  # of clicks, and of the others
    best = even[0] * (1 - even[1]) + (even[0] * even[1] + (1 - even[0]) * (1 - even[1])) / 2
    found = {}
    for names in (("user",), ("user", "ad_id")):
        view = view_of(*names)
        model = net_of(net, view)
        train(model, view, shown, "logloss", TrainingPlan(4, 200, 0.02))
        found[names] = auc(scores(model, view, shown), shown.click)
    assert found["user",] < 0.55 and found["user", "ad_id"] > best - 0.01


def test_an_id_that_training_has_not_met_is_predicted_like_the_mean():
    view = view_of("ad_id")
    cold, model = 20, net_of(TwoTowers, view)
    shown = impressions(cold=cold)
    train(model, view, shown, "logloss", TrainingPlan(4, 200, 0.02))
    everyone = replace(
        shown, users=np.zeros(ADS, np.int32), ads=np.arange(ADS, dtype=np.int32),
        **{name: np.ones(ADS, np.float32) for name in ("context", "examination", "click")},
    )  # fmt: skip
    logit = scores(model, view, everyone)
    known, unknown = logit[:-cold], logit[-cold:]
    assert np.ptp(unknown) < 0.1 < 1.0 < np.ptp(known)
    assert known.min() + 0.5 < unknown.min() and unknown.max() < known.max() - 0.5
    rate = 1 / (1 + np.exp(-unknown.mean()))
    assert rate == pytest.approx(shown.base_rate, abs=0.1)


def test_tables_start_small_with_a_row_for_each_id():
    tables = IdTables(view_of("user_id", "ad_id", "advertiser_id"), 64)
    assert {name: tuple(rows.shape) for name, rows in tables.rows.items()} == {
        "user_id": (USERS, 64), "ad_id": (ADS, 64), "advertiser_id": (ADVERTISERS, 64),
    }  # fmt: skip
    for rows in tables.rows.values():
        assert float(rows.detach().std()) == pytest.approx(SCALE, rel=0.2)
    assert (tables.request_width, tables.ad_width) == (64, 2 * 64)
    assert IdTables(view_of("quality", "history"), 3).request_width == 3


def test_gradients_reach_the_rows_of_a_batch_and_only_them():
    view = view_of(*ALL)
    model = net_of(CoAction, view)
    users, ads = torch.tensor([0, 2]), torch.tensor([7, 9])
    outputs(model, Tables(view, torch.device("cpu")), users, torch.zeros(2), ads).sum().backward()
    past = set(view.history[[0, 2]].ravel().tolist()) - {-1}
    met = {7, 9} | past
    expected = {"user_id": {0, 2}, "ad_id": met, "advertiser_id": {ad % ADVERTISERS for ad in met}}
    for name, rows in id_tables(model).rows.items():
        assert rows.grad.is_sparse
        assert set(rows.grad.to_dense().any(dim=1).nonzero().ravel().tolist()) == expected[name]
    assert bool(id_tables(model).project.weight.grad.any())


def test_the_gradient_of_a_look_up_is_that_of_plain_indexing():
    view = view_of(*ALL)
    model = net_of(TwoTowers, view)
    tables, ids = Tables(view, torch.device("cpu")), id_tables(model)
    users, ads = torch.tensor([0, 2, 4, 2]), torch.tensor([7, 9, 7, 3])
    request, seen, _ = tables.inputs(users, torch.zeros(4), ads, ids)
    chance = torch.Generator().manual_seed(0)
    weights = [torch.randn(tensor.shape, generator=chance) for tensor in (request, seen)]
    ((request * weights[0]).sum() + (seen * weights[1]).sum()).backward()
    plain = {name: rows.detach().clone().requires_grad_() for name, rows in ids.rows.items()}
    owner = torch.from_numpy(view.advertiser).long()

    def x(ad):
        return torch.cat(
            [torch.from_numpy(view.ad_table)[ad], plain["ad_id"][ad], plain["advertiser_id"][owner[ad]]]
        )

    total = 0.0
    for i in range(4):
        past = [x(ad) for ad in view.history[users[i]] if ad >= 0]
        own = torch.from_numpy(view.user_table)[users[i]]
        y = torch.cat([own, plain["user_id"][users[i]], ids.project(torch.stack(past).mean(0))])
        assert torch.allclose(y, request[i], atol=1e-6) and torch.allclose(x(ads[i]), seen[i, 0])
        total = total + (y * weights[0][i]).sum() + (x(ads[i]) * weights[1][i, 0]).sum()
    total.backward()
    for name, rows in ids.rows.items():
        assert torch.allclose(rows.grad.to_dense(), plain[name].grad, atol=1e-5), name


def test_what_is_served_from_is_what_was_trained_on():
    view = view_of(*ALL, length=9)
    model = net_of(TwoTowers, view)
    seen = joined(view, model)
    users, ads = np.arange(USERS, dtype=np.int32), np.arange(USERS, dtype=np.int32)[::-1].copy()
    context = np.zeros(USERS, np.float32)
    tables = Tables(view, torch.device("cpu"))
    with torch.no_grad():
        request, ad_side, _ = tables.inputs(
            *(torch.from_numpy(a) for a in (users, context, ads)), id_tables(model)
        )
    assert seen.request_features(users, context) == pytest.approx(request.numpy(), abs=1e-6)
    assert seen.ad_table[ads] == pytest.approx(ad_side[:, 0].numpy(), abs=1e-6)
    assert not seen.request_features(users[1:2], context[:1])[0, -WIDTH:].any()  # without a history
    assert view.request_features(users, context).shape[1] == 1  # of the features alone, as for a calibrator


def test_requests_are_served_alike_in_any_block():
    view = view_of(*ALL)
    seen = joined(view, net_of(TwoTowers, view))
    users, context = np.arange(USERS), np.zeros(USERS, np.float32)
    whole = seen.request_features(users, context)
    for u in users:
        assert np.array_equal(seen.request_features(users[u : u + 1], context[:1])[0], whole[u])


def test_a_deployment_stays_as_it_was_while_its_net_learns_on():
    view = view_of(*ALL)
    model = net_of(TwoTowers, view)
    seen = joined(view, model)
    users, context = np.arange(USERS), np.zeros(USERS, np.float32)
    before = seen.request_features(users, context).copy(), seen.ad_table.copy()
    train(model, view, impressions(600), "logloss", TrainingPlan(1, 100, 0.05))
    assert np.array_equal(seen.request_features(users, context), before[0])
    assert np.array_equal(seen.ad_table, before[1])


def test_the_mean_of_a_history_counts_only_its_ads():
    table = np.array([[1.0], [2.0], [6.0], [0.0]], np.float32)
    ids = np.array([[0, 1, 2], [1, 1, -1], [-1, -1, -1]])
    assert mean_rows(table, ids).ravel().tolist() == [3.0, 2.0, 0.0]


@pytest.mark.parametrize("net", NETS)
def test_nets_of_several_heads_share_the_tables_of_the_one_that_serves(net):
    view, objective = view_of(*ALL), make_objective("jrc", task="binary")
    model = net_of(net, view)
    wide = net_to_train(model, objective)
    assert wide.heads == 2 and id_tables(wide) is id_tables(model)
    again = served_net(wide, objective)
    shown = impressions(50)
    assert scores(again, view, shown) == pytest.approx(scores(model, view, shown), abs=1e-5)
    assert again.state_dict().keys() == model.state_dict().keys()


def test_a_copy_of_a_net_has_tables_of_its_own():
    view = view_of(*ALL)
    model = net_of(CoAction, view)
    twin = copy.deepcopy(model)
    train(twin, view, impressions(200), "logloss", TrainingPlan(1, 100, 0.05))
    apart = [name for name, a in model.state_dict().items() if not torch.equal(a, twin.state_dict()[name])]
    assert set(id_tables(model).state_dict()) <= {name.removeprefix("id_tables.") for name in apart}


def test_the_name_of_the_tables_is_taken():
    class Own(torch.nn.Module):
        id_tables = "mine"

    with pytest.raises(ValueError, match="has an attribute id_tables"):
        with_tables(Own(), IdTables(view_of("ad_id"), 2))


def test_a_view_without_ids_has_no_tables_and_says_what_it_lacks():
    plain = view_of("user", "quality")
    assert not plain.has_ids and joined(plain, TwoTowers(1, 1, 0)) is plain
    assert not {"view.history", "view.advertiser", "view.ad_id"} & set(plain.arrays())
    assert {"view.history", "view.advertiser", "view.ad_id"} <= set(view_of(*ALL).arrays())
    nothing = {"mismatch": np.zeros((2, 1), np.float32)}
    with refused("'history'", kind=ValueError):
        make_view(("history",), nothing, nothing, 1.0)
