"""Every loss against its formula as loops over items and pairs, on random ragged lists."""

import math

import numpy as np
import pytest
import torch

from cascade_sim.models.losses import LOSSES, self_boosted_pair


def sigma(x):
    return 1 / (1 + math.exp(-x))


def log_loss(s, y):
    return sum(-b * math.log(sigma(a)) - (1 - b) * math.log(sigma(-a)) for a, b in zip(s, y, strict=True))


def ordered(s, y, phi):
    pairs = [(i, j) for i in range(len(s)) for j in range(len(s)) if y[i] > y[j]]
    return sum(phi(s[i] - s[j]) for i, j in pairs)


def all_pairs(s, y, term):
    pairs = [(i, j) for i in range(len(s)) for j in range(i + 1, len(s))]
    return sum(term(y[i], y[j], s[i] - s[j]) for i, j in pairs)


def listce(s, y, transform):
    mass = [transform(a) for a in s]
    terms = [b * math.log(m / sum(mass)) for b, m in zip(y, mass, strict=True)]
    return -sum(terms) / sum(y) if sum(y) else 0.0


def ndcg(s, y, beta):
    rank = [1 + sum(sigma(beta * (s[j] - s[i])) for j in range(len(s)) if j != i) for i in range(len(s))]
    ideal = sum((2**b - 1) / math.log2(2 + k) for k, b in enumerate(sorted(y, reverse=True)))
    found = sum((2**b - 1) / math.log2(1 + r) for b, r in zip(y, rank, strict=True))
    return -found / ideal if ideal else 0.0


def hinge(x, width):
    return 0.0 if x <= 0 else x * x / (2 * width) if x <= width else x - width / 2


def each_item(term):
    return lambda s, y: sum(term(a, b) for a, b in zip(s, y, strict=True))


def logistic_phi(d):
    return math.log(1 + math.exp(-d))


def softplus(x):
    return math.log(1 + math.exp(x))


def calibrated_softmax(s, y, y0):
    return -sum(b * a for a, b in zip(s, y, strict=True)) + (y0 + sum(y)) * math.log(
        1 + sum(math.exp(a) for a in s)
    )


def calibrated_ranknet(s, y, y0):
    anchor = each_item(lambda a, b: (b > y0) * softplus(-a) + (b < y0) * softplus(a))
    return ordered(s, y, logistic_phi) + anchor(s, y)


def kl(v, p):
    return sum(a * math.log(a / b) for a, b in ((v, p), (1 - v, 1 - p)) if a > 0)


ORACLES = [
    ("squared", {}, each_item(lambda s, y: (y - s) ** 2 / 2)),
    ("logistic", {}, log_loss),
    ("ranknet", {}, lambda s, y: ordered(s, y, logistic_phi)),
    ("softmax", {}, lambda s, y: sum(y) * listce(s, y, math.exp)),
    ("approx_ndcg", {"beta": 1.7}, lambda s, y: ndcg(s, y, 1.7)),
    ("approx_ndcg", {"beta": 10.0}, lambda s, y: ndcg(s, y, 10.0)),
    ("list_ce", {"transform": "exp"}, lambda s, y: listce(s, y, math.exp)),
    ("list_ce", {"transform": "sigmoid"}, lambda s, y: listce(s, y, sigma)),
    ("list_ce", {"transform": "softplus"}, lambda s, y: listce(s, y, softplus)),
    ("calibrated_softmax", {"y0": 0.2}, lambda s, y: calibrated_softmax(s, y, 0.2)),
    ("calibrated_ranknet", {"y0": 0.5}, lambda s, y: calibrated_ranknet(s, y, 0.5)),
    ("rcr", {"alpha": 0.3}, lambda s, y: 0.7 * log_loss(s, y) + 0.3 * listce(s, y, sigma)),
    (
        "rcr",
        {"alpha": 0.3, "normalisation": "sum"},
        lambda s, y: 0.7 * log_loss(s, y) + 0.3 * sum(y) * listce(s, y, sigma),
    ),
    (
        "rcr_regression",
        {"alpha": 0.3},
        lambda s, y: (
            0.7 * each_item(lambda a, b: (softplus(a) - b) ** 2)(s, y) + 0.3 * listce(s, y, softplus)
        ),
    ),
    ("distill", {}, each_item(lambda s, t: (s - t) ** 2)),
    ("chunked_ranknet", {}, lambda s, y: ordered(s, y, logistic_phi)),
    ("ordered_pairs", {"phi": "exponential"}, lambda s, y: ordered(s, y, lambda d: math.exp(-d))),
    ("ordered_pairs", {"phi": "squared"}, lambda s, y: ordered(s, y, lambda d: (1 - d) ** 2)),
    ("ordered_pairs", {"phi": "squared_hinge"}, lambda s, y: ordered(s, y, lambda d: max(0, 1 - d) ** 2)),
    ("pointwise_squared", {}, each_item(lambda s, v: (v - s) ** 2)),
    (
        "pointwise_logistic",
        {"eta": 2.0},
        each_item(lambda s, v: v * softplus(-s) + (2 - v) * softplus(s)),
    ),
    (
        "pointwise_exponential",
        {"eta": 2.0},
        each_item(lambda s, v: v * math.exp(-s) + (2 - v) * math.exp(s)),
    ),
    (
        "pointwise_square_hinge",
        {"eta": 2.0, "margin": 0.6},
        each_item(lambda s, v: v * max(0, 0.6 - s) ** 2 + (2 - v) * max(0, s) ** 2),
    ),
    (
        "pointwise_differentiable_hinge",
        {"eta": 2.0, "width": 0.4},
        each_item(lambda s, v: v * hinge(1 - s, 0.4) + (2 - v) * hinge(s, 0.4)),
    ),
    ("pairwise_squared", {}, lambda s, y: all_pairs(s, y, lambda a, b, d: (a - b - d) ** 2)),
    (
        "pairwise_logistic",
        {},
        lambda s, y: all_pairs(s, y, lambda a, b, d: a * softplus(-d) + b * softplus(d)),
    ),
    (
        "pairwise_exponential",
        {},
        lambda s, y: all_pairs(s, y, lambda a, b, d: a * math.exp(-d) + b * math.exp(d)),
    ),
    ("bregman", {"psi": "squared"}, each_item(lambda s, v: (v - s) ** 2 / 2)),
    ("bregman", {"psi": "logistic"}, each_item(lambda s, v: kl(v, sigma(s)))),
    (
        "bregman",
        {"psi": "poisson"},
        each_item(lambda s, v: (v * math.log(v / math.exp(s)) if v else 0.0) - v + math.exp(s)),
    ),
]
SIZES = (5, 1, 0, 12, 2, 30)
LISTS = np.concatenate([[0], np.cumsum(SIZES)])


def draw(levels, seed=0, scale=2.0):
    """levels 2: labels 0 and 1; 0: all different, in (0, 1)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, levels, LISTS[-1]) / (levels - 1) if levels else rng.random(LISTS[-1])
    return rng.normal(0, scale, LISTS[-1]), labels


def per_list(function, *columns):
    return [function(*(c[a:b].tolist() for c in columns)) for a, b in zip(LISTS[:-1], LISTS[1:], strict=True)]


def test_every_loss_has_a_formula_here():
    assert {name for name, _, _ in ORACLES} | {"jrc", "self_boosted_pair"} == set(LOSSES)


@pytest.mark.parametrize("levels", [2, 5, 0])
@pytest.mark.parametrize(
    ("name", "options", "formula"), ORACLES, ids=lambda v: "" if callable(v) else str(v)[:40]
)
def test_a_loss_is_its_formula(name, options, formula, levels):
    scores, labels = draw(levels)
    found = LOSSES[name](
        torch.from_numpy(scores), torch.from_numpy(labels), LISTS, reduction="none", **options
    )
    assert found.numpy() == pytest.approx(per_list(formula, scores, labels), rel=1e-11, abs=1e-12)


def test_more_labels_than_a_short_table_holds_are_sorted_alike():
    """1,000 items of 17 and of 1,000 different labels: the ordered pairs are counted to the last one."""
    rng = np.random.default_rng(1)
    for levels in (17, 1000):
        labels = rng.permutation(np.arange(1000) % levels).astype(float)
        scores = rng.normal(size=1000)
        pairs = labels[:, None] > labels
        expected = np.log1p(np.exp(-(scores[:, None] - scores)))[pairs].sum()
        given = torch.from_numpy(scores), torch.from_numpy(labels), [0, 1000]
        assert LOSSES["ranknet"](*given).item() == pytest.approx(expected, rel=1e-12)
        mean = LOSSES["ranknet"](*given, each="mean").item()
        assert mean == pytest.approx(expected / pairs.sum(), rel=1e-12)


def test_jrc_is_its_formula():
    rng = np.random.default_rng(2)
    f, (_, y) = rng.normal(0, 2, (LISTS[-1], 2)), draw(2, seed=2)

    def formula(f_0, f_1, y):
        z = [sum(map(math.exp, f_0)), sum(map(math.exp, f_1))]
        point = log_loss([b - a for a, b in zip(f_0, f_1, strict=True)], y)
        lists = -sum(
            math.log(math.exp((a, b)[int(c)]) / z[int(c)]) for a, b, c in zip(f_0, f_1, y, strict=True)
        )
        return 0.3 * point + 0.7 * lists

    found = LOSSES["jrc"](torch.from_numpy(f), torch.from_numpy(y), LISTS, alpha=0.3, reduction="none")
    assert found.numpy() == pytest.approx(per_list(formula, f[:, 0], f[:, 1], y), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_the_self_boosted_pair_loss_is_its_formula(scale):
    """Samples of any request in any order, against dumps of three requests, one of them empty."""
    rng = np.random.default_rng(3)
    lists = np.array([0, 6, 6, 15])
    dumped, kept = rng.normal(0, scale, 15), rng.integers(0, 3, 15)
    request = np.array([2, 0, 0, 1, 2, 2, 0])
    s, y = rng.normal(0, scale, 7), rng.integers(0, 3, 7)
    dumps = [range(lists[r], lists[r + 1]) for r in request]

    def cost(d):
        return max(-d, 0) + math.log1p(math.exp(-abs(d)))

    expected, pairs = [], []
    for k, dump in enumerate(dumps):
        won = [cost(s[k] - dumped[j]) for j in dump if y[k] > kept[j]]
        lost = [cost(dumped[j] - s[k]) for j in dump if kept[j] > y[k]]
        expected.append(sum(won) + sum(lost))
        pairs.append(len(won) + len(lost))
    given = {
        "dumped_scores": torch.from_numpy(dumped),
        "dumped_labels": torch.from_numpy(kept),
        "request": torch.from_numpy(request),
    }
    for engine in ("fused", "torch"):
        for each, divisor in (("sum", 1), ("mean", np.maximum(pairs, 1))):
            options = {"reduction": "none", "engine": engine, "each": each, **given}
            found = self_boosted_pair(torch.from_numpy(s), torch.from_numpy(y), lists, **options)
            assert found.numpy() == pytest.approx(np.array(expected) / divisor, rel=1e-11, abs=1e-12)
