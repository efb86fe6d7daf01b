"""One list of properties, over all losses."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.models.losses import LOSSES, from_padded, ordered_pairs, self_boosted_pair
from cascade_sim.models.losses.phis import PHIS, Phi


def boosted(scores, labels, lists, *, reduction, engine="auto", each="sum"):
    """Every item a sample of its own list, whose dump is a function of the labels; summed per list."""
    sizes = torch.as_tensor(np.diff(lists))
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    kept = {"dumped_scores": 1.3 * labels - 0.4, "dumped_labels": labels, "request": owner}
    values = self_boosted_pair(scores, labels, lists, reduction="none", engine=engine, each=each, **kept)
    assert reduction == "none"
    return values.new_zeros(len(sizes)).index_add(0, owner, values)


@dataclass(frozen=True)
class Case:
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    sees_shift: bool = True  # whether s -> s + w changes it
    vanishes: bool = False  # whether a list without a positive or of one item is 0 and has no slopes
    is_steep: bool = False  # its value at +-200 is beyond float32

    def __str__(self):
        return "-".join([self.name, *(str(v) for v in self.options.values() if isinstance(v, str))])

    @property
    def function(self) -> Callable[..., torch.Tensor]:
        return boosted if self.name == "self_boosted_pair" else LOSSES[self.name]

    def __call__(self, scores, labels, lists, *, reduction="none", **more):
        return self.function(scores, labels, lists, reduction=reduction, **self.options, **more)

    @property
    def engines(self):
        return ["fused", "torch"] if "engine" in inspect.signature(self.function).parameters else [None]

    @property
    def is_fused_throughout(self):
        """Torch's own functions of single items differ in the last bit with an item's place in the tensor."""
        is_exp = self.name == "list_ce" and self.options["transform"] == "exp"
        return self.engines != [None] and (
            is_exp or self.name not in ("list_ce", "jrc", "rcr", "rcr_regression")
        )


def quartic(x):
    return x**4 / 12 + x**2 / 2


RANKING = {"sees_shift": False, "vanishes": True}
CASES = [
    Case("squared"),
    Case("logistic"),
    Case("ranknet", **RANKING),
    Case("softmax", **RANKING),
    Case("approx_ndcg", **RANKING),
    Case("approx_ndcg", {"beta": 0.7}, **RANKING),
    Case("list_ce", {"transform": "exp"}, **RANKING),
    Case("list_ce", {"transform": "sigmoid"}, vanishes=True),
    Case("list_ce", {"transform": "softplus"}, vanishes=True),
    Case("calibrated_softmax", {"y0": 0.3}),
    Case("calibrated_ranknet", {"y0": 0.3}),
    Case("jrc"),
    Case("rcr"),
    Case("rcr_regression"),
    Case("self_boosted_pair"),
    Case("distill"),
    Case("chunked_ranknet", **RANKING),
    Case("ordered_pairs", {"phi": "logistic"}, **RANKING),
    Case("ordered_pairs", {"phi": "exponential"}, is_steep=True, **RANKING),
    Case("ordered_pairs", {"phi": "squared"}, **RANKING),
    Case("ordered_pairs", {"phi": "squared_hinge"}, **RANKING),
    Case("pointwise_squared"),
    Case("pointwise_logistic", {"eta": 1.5}),
    Case("pointwise_exponential", {"eta": 1.5}, is_steep=True),
    Case("pointwise_square_hinge", {"eta": 1.5, "margin": 2.0}),
    Case("pointwise_differentiable_hinge", {"eta": 1.5, "width": 0.5}),
    Case("pairwise_squared", sees_shift=False),
    Case("pairwise_logistic", **RANKING),
    Case("pairwise_exponential", is_steep=True, **RANKING),
    Case("bregman", {"psi": "squared"}),
    Case("bregman", {"psi": "logistic"}),
    Case("bregman", {"psi": "poisson"}, is_steep=True),
    Case("bregman", {"psi": (quartic, lambda s: s)}),
]
WITH_ENGINE = pytest.mark.parametrize(
    ("case", "engine"), [(c, e) for c in CASES for e in c.engines], ids=lambda v: str(v)
)


def sample(case, seed=0, sizes=(4, 1, 0, 7, 2, 5), scale=2.0, dtype=torch.float64):
    """Scores, labels in {0, 1/2, 1} and offsets; the fourth list has all three labels."""
    rng = np.random.default_rng(seed)
    lists = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    shape = (lists[-1], 2) if case.name == "jrc" else (lists[-1],)
    scores = torch.from_numpy(rng.normal(0, scale, shape)).to(dtype)
    labels = torch.from_numpy(rng.integers(0, 3, lists[-1]) / 2).to(dtype)
    if len(sizes) > 3:
        labels[lists[3] : lists[3] + 3] = torch.tensor([0, 0.5, 1], dtype=dtype)
    return scores, labels, lists


def asked(engine):
    return {} if engine is None else {"engine": engine}


def slopes(case, scores, labels, lists, **more):
    scores = scores.clone().requires_grad_()
    values = case(scores, labels, lists, **more)
    values.sum().backward()
    return values.detach(), scores.grad


def close(found, expected, rel=1e-12):
    return found.numpy() == pytest.approx(expected.numpy(), rel=rel, abs=1e-13)


def test_every_loss_of_the_table_is_on_the_list():
    assert {case.name for case in CASES} == set(LOSSES)


@WITH_ENGINE
@pytest.mark.few(6)
def test_gradients(case, engine):
    scores, labels, lists = sample(case)
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: case(s, labels, lists, **asked(engine)), scores)


@pytest.mark.parametrize("case", [c for c in CASES if c.engines != [None]], ids=str)
def test_both_engines_agree(case):
    for scale in (0.0, 1.0, 12.0, 60.0):
        given = sample(case, seed=3, sizes=(9, 1, 0, 30, 3), scale=scale)
        mine, theirs = slopes(case, *given, engine="fused"), slopes(case, *given, engine="torch")
        assert mine[0].numpy() == pytest.approx(theirs[0].numpy(), rel=1e-9, abs=1e-10)
        assert mine[1].numpy() == pytest.approx(theirs[1].numpy(), rel=1e-9, abs=1e-10)


@WITH_ENGINE
def test_logits_of_200_give_finite_values_and_slopes(case, engine):
    """Of float64, and of float32 where the value itself is one."""
    for dtype in [torch.float64] if case.is_steep else [torch.float32, torch.float64]:
        _, labels, lists = sample(case, dtype=dtype)
        sign = torch.where(torch.arange(len(labels)) % 2 == 0, 1, -1)
        scores = (200 * sign).to(dtype)
        scores = torch.stack([scores, -scores], 1) if case.name == "jrc" else scores
        for y in (labels, (labels > 0.5).to(dtype)):
            value, slope = slopes(case, scores, y, lists, **asked(engine))
            assert value.dtype == slope.dtype == dtype
            assert torch.isfinite(value).all() and torch.isfinite(slope).all()


@WITH_ENGINE
def test_an_empty_list_is_0_and_touches_no_other(case, engine):
    scores, labels, lists = sample(case)
    assert lists[2] == lists[3]
    value, slope = slopes(case, scores, labels, lists, **asked(engine))
    assert value[2] == 0
    without = slopes(case, scores, labels, np.delete(lists, 2), **asked(engine))
    assert close(without[0], value[[0, 1, 3, 4, 5]]) and close(without[1], slope)


@WITH_ENGINE
def test_without_lists_the_loss_is_0_and_can_be_differentiated(case, engine):
    scores, labels, _ = sample(case, sizes=())
    value, slope = slopes(case, scores, labels, [0], **asked(engine))
    assert value.shape == (0,) and slope.shape == scores.shape
    if case.name != "self_boosted_pair":
        for reduction in ("sum", "mean"):
            assert case(scores, labels, [0], reduction=reduction, **asked(engine)).item() == 0


@WITH_ENGINE
def test_a_list_without_positives_and_one_item_alone(case, engine):
    for sizes, labels in (((6,), torch.zeros(6)), ((1,), torch.ones(1)), ((1,), torch.zeros(1))):
        scores, _, lists = sample(case, sizes=sizes)
        value, slope = slopes(case, scores, labels.double(), lists, **asked(engine))
        assert torch.isfinite(value).all() and torch.isfinite(slope).all()
        if case.vanishes:
            is_ndcg = case.name == "approx_ndcg" and labels.sum() > 0
            assert value.item() == (-1 if is_ndcg else 0)
            assert slope.tolist() == [0] * len(labels)


@WITH_ENGINE
def test_tied_scores_of_tied_labels_get_the_same_slope(case, engine):
    scores, _, lists = sample(case, sizes=(6,))
    scores = torch.full_like(scores, 0.4)
    labels = torch.tensor([0, 0, 0.5, 1, 1, 1], dtype=torch.float64)
    value, slope = slopes(case, scores, labels, lists, **asked(engine))
    assert torch.isfinite(value).all()
    for group in (slice(0, 2), slice(3, 6)):
        assert slope[group].numpy() == pytest.approx(slope[group].flip(0).numpy(), abs=1e-13)


@WITH_ENGINE
def test_what_is_masked_does_not_count(case, engine):
    scores, labels, lists = sample(case, sizes=(4, 0, 3))
    mask = torch.tensor([[1, 0, 1, 1, 1], [0, 0, 0, 0, 0], [0, 1, 1, 0, 1]], dtype=torch.bool)
    rows = scores.new_full((*mask.shape, *scores.shape[1:]), torch.nan)
    rows[mask] = scores
    filled = labels.new_full(mask.shape, 7.0)
    filled[mask] = labels
    rows.requires_grad_()
    flat = from_padded(rows, filled, mask)
    assert flat[2].tolist() == [0, 4, 4, 7]
    values = case(flat[0], flat[1], flat[2], **asked(engine))
    values.sum().backward()
    expected = slopes(case, scores, labels, lists, **asked(engine))
    assert close(values.detach(), expected[0]) and close(rows.grad[mask], expected[1])
    assert (rows.grad[~mask] == 0).all()
    nothing = case(*from_padded(rows, filled, torch.zeros_like(mask)), **asked(engine))
    assert nothing.tolist() == [0, 0, 0]


@WITH_ENGINE
def test_the_order_of_items_and_of_lists_does_not_matter(case, engine):
    scores, labels, lists = sample(case)
    value, slope = slopes(case, scores, labels, lists, **asked(engine))
    order = torch.tensor([5, 3, 0, 4, 2, 1])
    items = torch.cat([torch.arange(lists[k], lists[k + 1]).flip(0) for k in order])
    sizes = torch.from_numpy(np.diff(lists))[order]
    moved = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    shuffled = slopes(case, scores[items], labels[items], moved, **asked(engine))
    assert close(shuffled[0], value[order]) and close(shuffled[1], slope[items], rel=1e-11)


@pytest.mark.parametrize("case", [c for c in CASES if c.is_fused_throughout], ids=str)
def test_a_list_has_the_same_bits_alone_and_among_others_and_on_more_threads(case):
    scores, labels, lists = sample(case, sizes=(40, 3, 90, 17))
    value, slope = slopes(case, scores, labels, lists)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    again = slopes(case, scores, labels, lists)
    torch.set_num_threads(threads)
    assert torch.equal(again[0], value) and torch.equal(again[1], slope)
    for k in range(4):
        part = slice(lists[k], lists[k + 1])
        alone = slopes(case, scores[part], labels[part], [0, lists[k + 1] - lists[k]])
        assert torch.equal(alone[0], value[k : k + 1]) and torch.equal(alone[1], slope[part])


@WITH_ENGINE
def test_a_shift_of_all_scores_is_seen_by_what_has_a_scale_and_by_nothing_else(case, engine):
    scores, labels, lists = sample(case)
    shift = torch.tensor([0.0, 0.8], dtype=torch.float64) if case.name == "jrc" else 0.8
    before, after = (case(s, labels, lists, **asked(engine)) for s in (scores, scores + shift))
    if case.sees_shift:
        assert abs(after[3] - before[3]) > 1e-3
    else:
        assert close(after, before)


@WITH_ENGINE
def test_nan_in_a_score_stays_in_its_list(case, engine):
    scores, labels, lists = sample(case)
    spoiled = scores.clone()
    spoiled[lists[3] + 2] = torch.nan
    value, slope = slopes(case, spoiled, labels, lists, **asked(engine))
    expected = slopes(case, scores, labels, lists, **asked(engine))
    assert value.isnan().tolist() == [False, False, False, True, False, False]
    rest = np.r_[0 : lists[3], lists[4] : lists[-1]]
    assert close(slope[rest], expected[1][rest])


@WITH_ENGINE
def test_float32_is_float64_rounded(case, engine):
    scores, labels, lists = sample(case, dtype=torch.float32)
    value, slope = slopes(case, scores, labels, lists, **asked(engine))
    exact = slopes(case, scores.double(), labels.double(), lists, **asked(engine))
    assert value.dtype == slope.dtype == torch.float32
    assert value.numpy() == pytest.approx(exact[0].numpy(), rel=3e-6, abs=1e-6)
    assert slope.numpy() == pytest.approx(exact[1].numpy(), rel=3e-5, abs=3e-6)


PRECISION = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.mark.parametrize("dtype", PRECISION, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_type_of_scores_gives_the_value_and_the_slopes_of_float64_rounded(case, dtype):
    """However the terms of a list are put together; with labels of that type, and with plain ones."""
    scores, labels, lists = sample(case, scale=1.0, dtype=dtype)
    kinds = ("sum", "mean") if "each" in inspect.signature(case.function).parameters else (None,)
    plain = [labels.float()] if case.name != "self_boosted_pair" else []  # its dump is made of the labels
    for each, given in [(each, given) for each in kinds for given in (labels, *plain)]:
        how = {} if each is None else {"each": each}
        value, slope = slopes(case, scores, given, lists, **how)
        exact = slopes(case, scores.double(), given.double(), lists, **how)
        assert value.dtype == slope.dtype == dtype
        near = {"rel": PRECISION[dtype], "abs": PRECISION[dtype]}
        assert value.double().numpy() == pytest.approx(exact[0].numpy(), **near), each
        assert slope.double().numpy() == pytest.approx(exact[1].numpy(), **near), each


def huber(d):
    """(1 - d)^2 where d is within 2 of 1, then a straight line; nothing from d = 1 on."""
    gap = torch.relu(1 - d)
    return torch.where(gap < 2, gap.square(), 4 * gap - 4)


@pytest.fixture
def huber_pairs(monkeypatch):
    monkeypatch.setitem(PHIS, "huber", Phi(huber))
    monkeypatch.setitem(LOSSES, "huber_pairs", partial(ordered_pairs, phi="huber"))
    return Case("huber_pairs", sees_shift=False, vanishes=True)


def test_a_pairwise_loss_is_its_phi_and_has_every_property_of_losses(huber_pairs):
    scores, labels = torch.tensor([0.0, 3.0, 0.5]).double(), torch.tensor([1.0, 0.0, 0.0]).double()
    expected = (4 * 4 - 4) + 1.5**2  # differences of -3 and -0.5
    assert LOSSES["huber_pairs"](scores, labels, [0, 3]).item() == pytest.approx(expected)
    checked = [
        check
        for name, check in list(globals().items())
        if name.startswith("test_") and list(inspect.signature(check).parameters) == ["case", "engine"]
    ]
    assert len(checked) >= 10
    for check in checked:
        check(huber_pairs, "torch")
    with refused("'huber'", "torch", kind=ValueError):
        LOSSES["huber_pairs"](scores, labels, [0, 3], engine="fused")
