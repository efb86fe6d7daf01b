"""What the losses are known to do: where they are least, which are the same, which have a scale."""

import numpy as np
import pytest
import torch

from cascade_sim.models.losses import (
    LOSSES,
    calibrated_ranknet,
    calibrated_softmax,
    distill,
    list_ce,
    logistic,
    ranknet,
    rcr,
    rcr_regression,
    self_boosted_pair,
    softmax,
    squared,
)


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def slope(loss, scores, labels, **options):
    scores = scores.clone().requires_grad_()
    loss(scores, labels, [0, len(labels)], **options).backward()
    return scores.grad


def minimise(loss, labels, start=None, **options):
    """Scores that minimise the loss of one list, from `start` or 0."""
    scores = (torch.zeros_like(labels) if start is None else start).clone().requires_grad_()
    solver = torch.optim.LBFGS(
        [scores], max_iter=500, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        solver.zero_grad()
        value = loss(scores, labels, [0, len(labels)], **options)
        value.backward()
        return value

    solver.step(closure)
    return scores.detach()


MEANS = doubles(0.05, 0.4, 0.4, 0.9)  # expected labels: every loss here is linear in its labels


@pytest.mark.parametrize("y0", [0.1, 1.0, 3.0])
def test_calibrated_softmax_is_least_where_y0_e_s_is_the_expected_label(y0):
    best = torch.log(MEANS / y0)
    assert slope(calibrated_softmax, best, MEANS, y0=y0).numpy() == pytest.approx(np.zeros(4), abs=1e-12)
    found = y0 * torch.exp(minimise(calibrated_softmax, MEANS, y0=y0))
    assert found.numpy() == pytest.approx(MEANS.numpy(), rel=1e-6)
    assert abs(slope(calibrated_softmax, best + 0.1, MEANS, y0=y0)).sum() > 1e-3


def test_listce_of_exp_is_the_softmax_loss_per_unit_of_label():
    rng = np.random.default_rng(0)
    s, y = torch.from_numpy(rng.normal(0, 2, 9)), torch.from_numpy(rng.random(9))
    lists = [0, 4, 4, 9]
    exp = list_ce(s, y, lists, transform="exp", reduction="none")
    assert torch.equal(exp, softmax(s, y, lists, each="mean", reduction="none"))
    mass = torch.stack([y[:4].sum(), doubles(1.0)[0], y[4:].sum()])
    assert (exp * mass).numpy() == pytest.approx(softmax(s, y, lists, reduction="none").numpy())


def test_listce_of_the_sigmoid_is_least_where_the_log_loss_is():
    best = torch.logit(MEANS)
    assert slope(logistic, best, MEANS).numpy() == pytest.approx(np.zeros(4), abs=1e-12)
    assert slope(list_ce, best, MEANS, transform="sigmoid").numpy() == pytest.approx(np.zeros(4), abs=1e-12)
    for alpha in (0.0, 0.3, 0.99):
        assert minimise(rcr, MEANS, alpha=alpha).numpy() == pytest.approx(best.numpy(), abs=1e-5)
    # Not so for the softmax: it pulls the same scores elsewhere.
    assert abs(slope(softmax, best, MEANS)).max() > 0.1


def test_rcr_of_regression_is_least_where_the_softplus_is_the_expected_label():
    means = doubles(0.2, 1.0, 3.5)
    best = torch.log(torch.expm1(means))
    for alpha in (0.0, 0.5, 1.0):
        found = slope(rcr_regression, best, means, alpha=alpha)
        assert found.numpy() == pytest.approx(np.zeros(3), abs=1e-12)


RANKERS = [(0.4, 0.4, 0.4), (0.2, 0.2, 0.3), (0.1, 0.1, 0.2), (0.4, 0.4, 0.6)]
TABLE = [(2.060, 1.099, 1.099), (2.336, 1.105, 1.097), (2.885, 1.135, 1.120), (2.060, 1.135, 1.097)]


def test_four_rankers_under_three_losses():
    labels, lists = doubles(0.4, 0.4, 0.5), [0, 3]
    for predictions, expected in zip(RANKERS, TABLE, strict=True):
        s = torch.logit(doubles(*predictions))
        found = [
            logistic(s, labels, lists),
            list_ce(s, labels, lists, transform="exp"),
            list_ce(s, labels, lists, transform="sigmoid"),
        ]
        assert [v.item() for v in found] == pytest.approx(expected, abs=0.0005)


@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_rcr_prefers_the_ranker_that_is_calibrated_and_in_order_where_a_plain_sum_takes_a_flat_one(alpha):
    labels, lists = doubles(0.4, 0.4, 0.5), [0, 3]
    logits = [torch.logit(doubles(*p)) for p in RANKERS]
    compatible = [rcr(s, labels, lists, alpha=alpha).item() for s in logits]
    plain = [
        ((1 - alpha) * logistic(s, labels, lists) + alpha * softmax(s, labels, lists, each="mean")).item()
        for s in logits
    ]
    assert int(np.argmin(compatible)) == 3 and int(np.argmin(plain)) == 0


def test_calibrated_ranknet_is_ranknet_with_one_more_item_and_ranknet_plus_log_loss():
    rng = np.random.default_rng(1)
    s, y = torch.from_numpy(rng.normal(0, 2, 8)), torch.from_numpy(rng.integers(0, 4, 8).astype(float))
    anchored = ranknet(torch.cat([s, doubles(0.0)]), torch.cat([y, doubles(1.5)]), [0, 9])
    assert calibrated_ranknet(s, y, [0, 8], y0=1.5).item() == pytest.approx(anchored.item(), rel=1e-14)
    click = (y > 1.5).double()
    sum_of_both = ranknet(s, click, [0, 8]) + logistic(s, click, [0, 8])
    for y0 in (1e-9, 0.5):
        found = calibrated_ranknet(s, click, [0, 8], y0=y0).item()
        assert found == pytest.approx(sum_of_both.item(), rel=1e-14)


@pytest.mark.parametrize("loss", [ranknet, softmax])
def test_scores_of_a_pure_ranking_loss_drift_freely_and_those_of_a_calibrated_one_do_not(loss):
    start = doubles(5.0, 5.3, 4.9, 5.1)
    s, y = start, (MEANS > 0.1).double()
    assert slope(loss, s, y).sum().item() == pytest.approx(0, abs=1e-12)
    calibrated = {ranknet: calibrated_ranknet, softmax: calibrated_softmax}[loss]
    assert slope(calibrated, s, y).sum().item() > 0.1


def test_ranknet_orders_by_pairwise_wins_and_the_template_loss_by_expected_utility():
    """Utilities (0, 1) with probability 3/5, else (2, 0): item 0 has the greater mean, item 1 more wins."""
    draws = [(0.6, doubles(0, 1)), (0.4, doubles(2, 0))]

    def expected(loss):
        return lambda s, _, lists: sum(p * loss(s, v, lists) for p, v in draws)

    assert 0.4 * 2 > 0.6 * 1
    flat = doubles(0, 0)
    by_wins, by_utility = (
        minimise(expected(LOSSES[name]), flat) for name in ("ranknet", "pairwise_logistic")
    )
    assert by_wins[1] > by_wins[0] and by_utility[0] > by_utility[1]
    assert (by_utility[0] - by_utility[1]).item() == pytest.approx(np.log(0.8 / 0.6), abs=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "pointwise_squared",
        "pointwise_logistic",
        "pointwise_exponential",
        "pointwise_square_hinge",
        "pointwise_differentiable_hinge",
        "pairwise_squared",
        "pairwise_logistic",
        "pairwise_exponential",
        "bregman",
    ],
)
def test_a_template_loss_is_least_at_scores_in_the_order_of_expected_utility(name):
    """Its expectation over (v_0, v_1, v_2), not one draw of which is in that order."""
    draws = [(0.5, doubles(0.0, 0.6, 0.4)), (0.5, doubles(1.0, 0.0, 0.1))]
    mean = sum(p * v for p, v in draws)
    assert mean.tolist() == [0.5, 0.3, 0.25]
    found = minimise(
        lambda s, _, lists: sum(p * LOSSES[name](s, v, lists) for p, v in draws), doubles(0.1, 0.2, 0.3)
    )
    assert found[0] > found[1] + 1e-3 and found[1] > found[2] + 1e-3


def test_bregman_by_name_is_bregman_by_its_functions():
    s, v = doubles(-2.0, 0.3, 1.0), doubles(0.2, 0.9, 0.5)
    forms = {
        "squared": (lambda x: x**2 / 2, lambda x: x),
        "logistic": (lambda x: x * x.log() + (1 - x) * (1 - x).log(), torch.sigmoid),
        "poisson": (lambda x: x * x.log() - x, torch.exp),
    }
    for name, functions in forms.items():
        bregman = LOSSES["bregman"]
        named, own = (bregman(s, v, [0, 3], psi=psi).item() for psi in (name, functions))
        assert named == pytest.approx(own, rel=1e-12)
        assert slope(bregman, s, v, psi=name).numpy() == pytest.approx(
            slope(bregman, s, v, psi=functions).numpy(), rel=1e-10
        )
        assert bregman(functions[1](s).logit() if name == "logistic" else s, functions[1](s), [0, 3],
                       psi=name).item() == pytest.approx(0, abs=1e-12)  # fmt: skip


def test_squared_is_half_of_what_distill_and_the_template_are():
    s, y = doubles(1, 2), doubles(0, 4)
    assert squared(s, y, [0, 2]).item() == (1 + 4) / 2
    assert distill(s, y, [0, 2]).item() == LOSSES["pointwise_squared"](s, y, [0, 2]).item() == 1 + 4


def test_self_boosting_on_the_current_scores_is_ranknet_seen_from_both_sides():
    """Every pair is met once from each of its two samples; no gradient goes to the dump."""
    rng = np.random.default_rng(2)
    s = torch.from_numpy(rng.normal(size=7)).requires_grad_()
    y = torch.from_numpy(rng.integers(0, 2, 7).astype(float))
    dump = s.detach().clone().requires_grad_()
    request = torch.zeros(7, dtype=torch.int64)
    loss = self_boosted_pair(
        s, y, [0, 7], dumped_scores=dump, dumped_labels=y, request=request, reduction="sum"
    )
    loss.backward()
    assert loss.item() == pytest.approx(2 * ranknet(s, y, [0, 7]).item(), rel=1e-12)
    assert s.grad.numpy() == pytest.approx(slope(ranknet, s.detach(), y).numpy(), rel=1e-10, abs=1e-12)
    assert dump.grad is None
