import numpy as np
import pytest
import torch
from torch import nn

from answers.told import refused, tells
from cascade_sim.cascade.scorers import (
    CoActionScorer,
    ConstantScorer,
    GatedScorer,
    InterTowersScorer,
    RandomScorer,
    TorchScorer,
    TowersScorer,
)
from cascade_sim.foundation.errors import UserError
from cascade_sim.models.nets.coaction import CoAction
from cascade_sim.models.nets.cold import GatedNet
from cascade_sim.models.nets.inttower import InterTowers
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.scenario.memory import sizes_of
from cascade_sim.scenario.plugins import MODEL_KINDS
from cascade_sim.scenario.schema import Scenario
from worlds.tiny_market import make_block, part_of

FEATURES = ("user", "context", "quality", "tier", "mismatch", "mismatch_pair", "G1", "G2", "G3", "G4")


@pytest.fixture(scope="module")
def view(sim):
    return sim.view(FEATURES)


@pytest.fixture(scope="module")
def ids(sim, block):
    ids = sim.retriever(block.users, 60)
    ids[np.arange(60) >= np.random.default_rng(0).integers(0, 61, len(block))[:, None]] = -1
    ids[0] = np.sort(np.random.default_rng(1).permutation(600)[:60])
    return ids


def build(cls, view, **options):
    torch.manual_seed(3)
    module = cls(view.request_width, view.ad_width, view.pair_width, **options)
    with torch.no_grad():  # away from the initial zeros, so that every term of the formula counts
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module.eval()


def by_torch(module, view, block, ids):
    """The module's own forward in float64."""
    safe = np.maximum(ids, 0)
    request = torch.from_numpy(view.request_features(block.users, block.context)).double()
    ads = torch.from_numpy(view.ad_table[safe]).double()
    pair = torch.from_numpy(view.pair_features(block.users, safe)).double()
    with torch.no_grad():
        logit = module.double()(request, ads, pair).numpy()
    module.float()
    return logit


SCORERS = [
    (TwoTowers, TowersScorer, {"hidden": 16, "dims": 6}),
    (TwoTowers, TowersScorer, {"hidden": 5, "dims": 14}),
    (CoAction, CoActionScorer, {"hidden": 16, "dims": 8}),
    (CoAction, CoActionScorer, {"hidden": 8, "dims": 3}),
    (InterTowers, InterTowersScorer, {"hidden": 16, "dims": 8}),
    (InterTowers, InterTowersScorer, {"hidden": 5, "dims": 3}),
    (GatedNet, GatedScorer, {"hidden": 16, "dims": 8}),
    (GatedNet, GatedScorer, {"hidden": 5, "dims": 11}),
]
FEW = SCORERS[1:6:2] + SCORERS[7:]  # one size of each net


@pytest.mark.parametrize(("net", "scorer", "options"), SCORERS)
def test_the_fused_score_is_the_nets_own_forward(net, scorer, options, view, block, ids):
    module = build(net, view, **options)
    expected = by_torch(module, view, block, ids)
    found = scorer("m", view, "sigmoid", module).logit(block, ids)
    real = ids >= 0
    assert found[real] == pytest.approx(expected[real], abs=1e-5, rel=1e-5)
    assert found[real].std() > 0.1


@pytest.mark.parametrize("features", [("quality",), ("user",), ("G1", "context"), ("mismatch_pair",)])
@pytest.mark.parametrize(("net", "scorer", "options"), FEW)
def test_any_choice_of_features_is_served_as_it_was_trained(net, scorer, options, features, sim, block, ids):
    view = sim.view(features)
    module = build(net, view, **options)
    real = ids >= 0
    expected = by_torch(module, view, block, ids)[real]
    assert scorer("m", view, "sigmoid", module).logit(block, ids)[real] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("net", "scorer", "options"), FEW)
def test_a_prediction_is_the_link_of_the_logit(net, scorer, options, view, block, ids):
    module = build(net, view, **options)
    logit = scorer("m", view, "sigmoid", module).logit(block, ids).astype(np.float64)
    pctr = scorer("m", view, "sigmoid", module).predict(block, ids)
    assert pctr == pytest.approx(1 / (1 + np.exp(-logit)), rel=1e-5)
    assert scorer("m", view, "exp", module).predict(block, ids) == pytest.approx(np.exp(logit), rel=1e-4)


@pytest.mark.parametrize(("net", "scorer", "options"), FEW)
def test_the_kernels_do_not_depend_on_how_requests_are_cut_into_blocks(
    net, scorer, options, view, block, ids, monkeypatch
):
    """With the request's own codes given, a request alone has the bits it has in a block."""
    served = scorer("m", view, "sigmoid", build(net, view, **options))
    whole = served.predict(block, ids)
    codes = served.request_code(block)
    for r in range(0, len(block), 9):
        one = slice(r, r + 1)
        row = tuple(c[one] for c in codes) if isinstance(codes, tuple) else codes[one]
        monkeypatch.setattr(served, "request_code", lambda _, row=row: row)
        assert np.array_equal(served.predict(part_of(block, one), ids[one]), whole[one])


@pytest.mark.parametrize(("net", "options"), [(TwoTowers, {"dims": 6}), (CoAction, {"hidden": 16})])
def test_a_module_of_ones_own_is_scored_like_the_built_in_ones(net, options, view, block, ids):
    class Own(net):
        pass

    module = build(Own, view, **options)
    real = ids >= 0
    found = TorchScorer("own", view, "sigmoid", module).logit(block, ids)
    assert found[real] == pytest.approx(by_torch(module, view, block, ids)[real], abs=1e-4)


class Answer(nn.Module):
    """Answers with whatever `change` makes of zeros [R, n]."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, request, ads, pair):
        return self.change(torch.zeros(ads.shape[:2]))


def spoiled(row, column, value):
    def change(logit):
        logit[row, column] = value
        return logit

    return change


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_prediction_that_is_no_number_names_model_request_and_ad(view, block, ids, value):
    scorer = TorchScorer("mine", view, "sigmoid", Answer(spoiled(5, 0, value)))
    with pytest.raises(UserError) as error:
        scorer.predict(part_of(block, slice(0, 10)), ids[:10])
    text = str(error.value)
    assert "'mine'" in text and f"request {block.requests[5]}" in text and str(value) in text
    assert f"ad {ids[5, 0]}" in text


@pytest.mark.parametrize(
    "change",
    [lambda x: x[..., None], lambda x: x[:, 0], lambda x: x[:, :-1], lambda x: x.T, lambda x: x.sum()],
)
def test_a_wrong_shape_names_model_request_and_both_shapes(view, block, ids, change):
    scorer = TorchScorer("mine", view, "sigmoid", Answer(change))
    with pytest.raises(UserError, match=r"'mine' returned shape .* \(10, 60\)") as error:
        scorer.predict(part_of(block, slice(0, 10)), ids[:10])
    assert f"request {block.requests[0]}" in str(error.value)


def test_what_is_not_a_tensor_is_refused(view, block, ids):
    with pytest.raises(UserError, match="'mine' returned list"):
        TorchScorer("mine", view, "sigmoid", Answer(lambda x: x.tolist())).predict(block, ids)


@pytest.mark.parametrize("error", [RuntimeError, IndexError, ZeroDivisionError])
def test_a_module_that_raises_names_model_request_error_and_message(view, block, ids, error):
    """The request is the first of the batch that was under way."""

    class Fails(nn.Module):
        def forward(self, request, ads, pair):
            if len(request) < TorchScorer.REQUESTS_AT_ONCE:
                raise error("of my own")
            return torch.zeros(ads.shape[:2])

    size = TorchScorer.REQUESTS_AT_ONCE
    part = part_of(block, slice(0, size + 5))
    with pytest.raises(UserError) as caught:
        TorchScorer("mine", view, "sigmoid", Fails()).predict(part, ids[: size + 5])
    shown = str(caught.value)
    assert tells(shown, "'mine'", f"request {block.requests[size]}", "Fails")
    assert shown.endswith(f": {error.__name__}: of my own") and isinstance(caught.value.__cause__, error)


def test_a_module_may_return_a_broadcast_view_or_half_precision(view, block, ids):
    expanded = TorchScorer("mine", view, "sigmoid", Answer(lambda x: torch.ones(1, 1).expand(x.shape)))
    assert expanded.predict(block, ids) == pytest.approx(1 / (1 + np.exp(-1)))
    half = TorchScorer("mine", view, "sigmoid", Answer(lambda x: x.half() + 2))
    assert half.predict(block, ids) == pytest.approx(1 / (1 + np.exp(-2)), rel=1e-6)


def test_no_requests_have_no_predictions(view, block, ids):
    none = part_of(block, slice(0, 0))
    for scorer in (
        TorchScorer("own", view, "sigmoid", Answer(lambda x: x)),
        TowersScorer("m", view, "sigmoid", build(TwoTowers, view)),
        CoActionScorer("m", view, "sigmoid", build(CoAction, view)),
        InterTowersScorer("m", view, "sigmoid", build(InterTowers, view)),
        GatedScorer("m", view, "sigmoid", build(GatedNet, view)),
    ):
        assert scorer.predict(none, ids[:0]).shape == (0, 60)


def test_a_huge_score_of_an_order_stays_finite(view, block, ids):
    served = TorchScorer("ltr", view, "exp", Answer(lambda x: x + 1e6)).predict(block, ids)
    assert np.all(np.isfinite(served)) and np.all(served > 0)


def test_a_width_the_kernel_cannot_take_is_refused_by_name(view):
    with refused("'mine'", "hidden", 8):
        CoActionScorer("mine", view, "sigmoid", build(CoAction, view, hidden=12))


def test_the_random_seat_is_keyed_and_the_constant_seat_has_no_opinion():
    block, ids = make_block([0, 1], first_request=40), np.array([[3, 9], [3, -1]], np.int32)
    noise = RandomScorer(1).predict(block, ids)
    again = RandomScorer(1).predict(part_of(block, slice(1, 2)), ids[1:, :1])
    assert noise[0, 0] != noise[1, 0] and again[0, 0] == noise[1, 0]
    assert RandomScorer(2).predict(block, ids)[0, 0] != noise[0, 0]
    assert np.all(ConstantScorer().predict(block, ids) == 1)


@pytest.mark.parametrize("encode", [lambda ads: ads[:1], lambda ads: ads[..., None], lambda ads: None])
def test_encoded_ads_have_a_row_each(encode, view):
    class Mine(nn.Module):
        def encode_ads(self, ads):
            return encode(ads)

    with pytest.raises(UserError, match=r"'own'.*encode_ads returned"):
        TorchScorer("own", view, "sigmoid", Mine())


@pytest.mark.parametrize(("net", "scorer", "options"), SCORERS[4:])
def test_what_is_kept_of_ads_is_what_the_estimate_of_memory_counts(net, scorer, options, view):
    kind = next(kind for kind in MODEL_KINDS.built_in if MODEL_KINDS.built_in[kind] is net)
    world = {"users": 10, "ads": 40, "advertisers": 4}
    model = {"kind": kind, **options, "features": ["user"]}
    scenario = Scenario.model_validate(
        {"name": "m", "world": world, "models": {"m": model}, "arms": {"m": {}}}
    )
    served = scorer("m", view, "sigmoid", build(net, view, **options))
    assert sizes_of(scenario).kept_of_ad == served._ad_rows.shape[1]
