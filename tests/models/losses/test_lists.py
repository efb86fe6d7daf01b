"""What all losses share: offsets, rows, masks, weights, reductions, engines, and faults that are named."""

import inspect
import math

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.models.losses import (
    LOSSES,
    calibrated_ranknet,
    calibrated_softmax,
    from_padded,
    jrc,
    logistic,
    ordered_pairs,
    ranknet,
    rcr,
    self_boosted_pair,
    softmax,
    squared,
)
from cascade_sim.models.losses.engine import pairs
from cascade_sim.models.losses.lists import make_batch, reduce, to_padded, with_anchor

S = torch.tensor([0.3, -1.2, 0.8, 2.0, -0.4, 0.1], dtype=torch.float64)
Y = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
LISTS = [0, 3, 3, 4, 6]
FLAT = sorted(set(LOSSES) - {"jrc", "self_boosted_pair"})


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.few(4)
def test_reductions_are_the_sum_and_the_mean_of_the_lists_values(name):
    loss = LOSSES[name]
    values = loss(S, Y, LISTS, reduction="none")
    assert values.shape == (4,)
    assert loss(S, Y, LISTS, reduction="sum").item() == pytest.approx(values.sum().item())
    assert loss(S, Y, LISTS).item() == pytest.approx(values.sum().item() / 4)


@pytest.mark.parametrize("name", FLAT)
def test_a_list_of_weight_3_counts_as_three_and_of_weight_0_as_none(name):
    loss, weight = LOSSES[name], torch.tensor([3, 1, 0, 1])
    values = loss(S, Y, LISTS, reduction="none")
    repeated = torch.cat([S[:3], S[:3], S[:3], S[4:]]), torch.cat([Y[:3], Y[:3], Y[:3], Y[4:]])
    for reduction in ("sum", "mean"):
        found = loss(S, Y, LISTS, weight=weight, reduction=reduction).item()
        assert found == pytest.approx(loss(*repeated, [0, 3, 6, 9, 9, 11], reduction=reduction).item())
    weighted = loss(S, Y, LISTS, weight=weight, reduction="none")
    assert weighted.tolist() == [3 * values[0], values[1], 0 * values[2], values[3]]
    assert loss(S, Y, LISTS, weight=torch.zeros(4)).item() == 0


@pytest.mark.parametrize("name", FLAT)
def test_rows_are_lists_of_one_length(name):
    s, y = S.reshape(2, 3), Y.reshape(2, 3)
    by_rows = LOSSES[name](s, y, reduction="none")
    assert torch.equal(by_rows, LOSSES[name](S, Y, [0, 3, 6], reduction="none"))


def test_the_mean_of_terms_is_per_item_per_pair_and_per_unit_of_label():
    def ratio(loss, **options):
        values = [loss(S, Y, LISTS, reduction="none", each=each, **options) for each in ("sum", "mean")]
        return [a / b if b else 0 for a, b in zip(*(v.tolist() for v in values), strict=True)]

    assert ratio(squared) == pytest.approx([3, 0, 1, 2])
    assert ratio(ranknet) == pytest.approx([2, 0, 0, 1])
    assert ratio(softmax) == pytest.approx([1, 0, 0, 1])
    assert ratio(calibrated_softmax, y0=0.5) == pytest.approx([1.5, 0, 1.5, 1.5])
    assert ratio(calibrated_ranknet, y0=0.5) == pytest.approx([2 + 3, 0, 1, 1 + 2])
    assert ratio(LOSSES["pairwise_logistic"]) == pytest.approx([3, 0, 0, 1])


def test_offsets_may_be_a_list_an_array_or_a_tensor_of_any_integer_type():
    expected = ranknet(S, Y, LISTS)
    for kind in (np.array(LISTS, np.int32), np.array(LISTS, np.uint64), torch.tensor(LISTS), tuple(LISTS)):
        assert torch.equal(ranknet(S, Y, kind), expected)


@pytest.mark.parametrize("labels", [Y.bool(), Y.to(torch.int8), Y.float(), (4 * Y).long()])
def test_labels_may_have_any_type(labels):
    assert torch.equal(ranknet(S, labels, LISTS), ranknet(S, Y, LISTS))


BAD = [
    ([1, 3, 6], "lists must start at 0, not at 1"),
    ([0, 4, 3, 6], "lists must not fall: 4 is followed by 3 at 2"),
    ([0, 3, 5], "lists end at 5, but there are 6 items"),
    ([0, 3, 7], "lists end at 7, but there are 6 items"),
    ([], "lists must be offsets"),
    ([[0, 6]], "lists must be offsets"),
    ([0.0, 6.0], "lists must be integers, not float64"),
    (None, "need list offsets"),
]


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize(("lists", "fault"), BAD, ids=[fault for _, fault in BAD])
def test_wrong_offsets_are_named(name, lists, fault):
    with pytest.raises(ValueError, match=fault):
        LOSSES[name](S, Y, lists)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: ranknet(S, Y[:5], LISTS), "labels [5] 6"),
        (lambda: ranknet(S.reshape(2, 3), Y, None), "labels [6] [2, 3]"),
        (lambda: ranknet(S.reshape(6, 1), Y, LISTS), "scores [N] [6, 1]"),
        (lambda: ranknet(S.long(), Y, LISTS), "scores torch.int64"),
        (lambda: ranknet(S, Y.masked_fill(Y > 0, torch.nan), LISTS), "label 1 nan"),
        (lambda: squared(S, Y.masked_fill(Y > 0, torch.inf), LISTS), "label 1 inf"),
        (lambda: softmax(S, -Y, LISTS), "label 1 -1 [0, inf]"),
        (lambda: logistic(S, 2 * Y, LISTS), "label 1 2 [0, 1]"),
        (lambda: LOSSES["pointwise_logistic"](S, 2 * Y, LISTS, eta=1.5), "labels [0, 1.5]"),
        (
            lambda: ranknet(S, Y, LISTS, weight=torch.ones(3)),
            "weight [3] [4]",
        ),
        (lambda: ranknet(S, Y, LISTS, weight=-torch.ones(4)), "weight negative"),
        (lambda: ranknet(S, Y, LISTS, weight=torch.full((4,), torch.nan)), "weight finite"),
        (lambda: ranknet(S, Y, LISTS, reduction="avg"), "reduction 'avg'; none, sum, mean"),
        (lambda: ranknet(S, Y, LISTS, each="all"), "each 'all'; sum, mean"),
        (lambda: squared(S, Y, LISTS, each="all"), "each 'all'; sum, mean"),
        (lambda: ranknet(S, Y, LISTS, engine="c"), "engine 'c'; auto, fused, torch"),
        (lambda: ranknet(S.half(), Y, LISTS, engine="fused"), "float32 float64 CPU"),
        (lambda: ordered_pairs(S, Y, LISTS, phi="cubic"), "phi 'cubic'; logistic,"),
        (lambda: LOSSES["list_ce"](S, Y, LISTS, transform="relu"), "exp, sigmoid, softplus"),
        (lambda: LOSSES["bregman"](S, Y, LISTS, psi="cubic"), "squared, logistic, poisson"),
        (lambda: LOSSES["approx_ndcg"](S, Y, LISTS, beta=0), "beta 0"),
        (lambda: calibrated_softmax(S, Y, LISTS, y0=0), "y0 0"),
        (lambda: calibrated_ranknet(S, Y, LISTS, y0=math.nan), "y0 finite"),
        (lambda: rcr(S, Y, LISTS, alpha=1.5), "alpha [0, 1], 1.5"),
        (lambda: jrc(S, Y, LISTS), "scores [N, 2], [6]"),
        (lambda: from_padded(S, Y, Y), "[L, m]"),
        (lambda: LOSSES["pointwise_square_hinge"](S, Y, LISTS, margin=0), "margin 0"),
    ],
)
def test_wrong_input_is_named(call, fault):
    with refused(*fault.split(), kind=ValueError):
        call()


@pytest.mark.parametrize(
    ("request_of", "fault"),
    [
        (None, "6 4 `request`"),
        (torch.zeros(5, dtype=torch.int64), "request 6"),
        (torch.zeros(6), "request 6"),
        (torch.full((6,), 4), "request 0..3"),
        (torch.full((6,), -1), "request 0..3"),
    ],
)
def test_samples_whose_dump_is_not_there_are_named(request_of, fault):
    with refused(*fault.split(), kind=ValueError):
        self_boosted_pair(S, Y, LISTS, dumped_scores=S, dumped_labels=Y, request=request_of)


def test_samples_are_weighed_and_averaged_one_by_one():
    given = {"dumped_scores": S, "dumped_labels": Y}
    values = self_boosted_pair(S[:4], Y[:4], LISTS, reduction="none", **given)
    assert values[1] == 0  # its request dumped nothing
    weight = torch.tensor([2.0, 1.0, 0.0, 1.0])
    mean = self_boosted_pair(S[:4], Y[:4], LISTS, weight=weight, **given)
    assert mean.item() == pytest.approx(((weight * values).sum() / 4).item())


@pytest.mark.parametrize("name", [n for n in FLAT if "engine" in inspect.signature(LOSSES[n]).parameters])
@pytest.mark.few(4)
def test_the_torch_engine_is_differentiable_twice_and_the_fused_one_says_that_it_is_not(name):
    s = S.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: LOSSES[name](x, Y, LISTS, engine="torch"), s)
    with pytest.raises(RuntimeError, match="differentiated once; pass engine='torch'"):
        torch.autograd.grad(LOSSES[name](s, Y, LISTS, engine="fused"), s, create_graph=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_takes_the_torch_engine_and_is_worked_in_float32(dtype):
    s = S.to(dtype).requires_grad_()
    loss = ranknet(s, Y, LISTS)
    loss.backward()
    assert loss.dtype == s.grad.dtype == dtype
    assert loss.item() == pytest.approx(ranknet(s.detach().double(), Y, LISTS).item(), rel=1e-2)


def test_scores_that_are_not_contiguous_are_read_as_they_stand():
    both = torch.stack([S, -S], 1)
    assert torch.equal(ranknet(both[:, 0], Y, LISTS), ranknet(S, Y, LISTS))


def test_padding_fills_up_to_the_longest_and_an_anchor_ends_each_list():
    batch = make_batch(S, Y, LISTS)
    assert to_padded(S, batch).tolist() == [
        [0.3, -1.2, 0.8],
        [0, 0, 0],
        [2.0, 0, 0],
        [-0.4, 0.1, 0],
    ]
    anchored = with_anchor(batch, 0.5)
    assert anchored.lists.tolist() == [0, 4, 5, 7, 10]
    assert anchored.scores.tolist() == [0.3, -1.2, 0.8, 0, 0, 2.0, 0, -0.4, 0.1, 0]
    assert anchored.labels.tolist() == [0, 1, 0, 0.5, 0.5, 1, 0.5, 0, 1, 0.5]


def test_a_mean_over_no_weight_is_0_with_slope_0():
    values = torch.ones(2, requires_grad=True)
    found = reduce(values, torch.float32, torch.zeros(2), "mean")
    found.backward()
    assert found.item() == 0 and values.grad.tolist() == [0, 0]


def test_an_unknown_phi_is_named_by_torch_too():
    for phi in ("cubic", "squared_hinge"):  # the hinge is for ordered pairs alone
        with refused(f"'{phi}'", "logistic, exponential, squared", kind=ValueError):
            pairs(make_batch(S, Y, LISTS), phi, is_ordered=False, engine="torch")
