import numpy as np
import pytest
import torch
from scipy.special import expit

from answers.told import refused
from cascade_sim.models.calibrators.logistic import Platt
from cascade_sim.models.calibrators.request import PiecewiseLinear, RequestMap


def random_map(width=3, intervals=10, seed=0, **options):
    torch.manual_seed(seed)
    found = RequestMap(width, (8,), intervals, **options)
    for parameter in found.parameters():
        torch.nn.init.normal_(parameter, std=1.5)
    return found


def test_the_map_is_the_line_through_its_knots():
    found = random_map()
    request = torch.randn(4, 3)
    knots = torch.cat([torch.zeros(4, 1, dtype=torch.float64), found.heights(request).cumsum(-1)], dim=-1)
    q = np.random.default_rng(0).random((4, 50))
    scores = torch.tensor(np.log(q) - np.log1p(-q))
    for row in range(4):
        expected = np.interp(q[row], np.arange(11) / 10, knots[row].detach())
        np.testing.assert_allclose(found(scores, request)[row].detach(), expected, atol=1e-12)


def test_heights_are_positive_and_sum_to_one():
    a = random_map(floor=0.01).heights(50 * torch.randn(20, 3))
    assert (a >= 0.01 / 10).all() and torch.allclose(a.sum(-1), torch.ones(20, dtype=a.dtype))


def test_a_fresh_map_leaves_the_prediction_alone():
    scores = torch.linspace(-30, 30, 301, dtype=torch.float64)
    fresh = RequestMap(2)
    assert torch.allclose(fresh.log_odds(scores, torch.randn(301, 2)), scores, atol=1e-9)
    assert torch.allclose(fresh(scores, torch.randn(301, 2)), torch.sigmoid(scores), atol=1e-12)


def test_candidates_of_a_request_keep_their_order_strictly():
    found = random_map(intervals=100)
    request = 3 * torch.randn(30, 3)
    scores = torch.cat([torch.randn(30, 60) * 4, torch.empty(30, 60).uniform_(-250, 250)], dim=1)
    assert scores.dtype == torch.float32
    odds = found.log_odds(scores, request)
    order = scores.argsort(dim=1)
    assert (torch.diff(scores.gather(1, order)) > 0).all()
    assert (torch.diff(odds.gather(1, order)) > 0).all()
    assert (torch.diff(found(scores, request).gather(1, order)) >= 0).all()


def test_neighbouring_scores_across_a_knot_are_not_turned_round():
    found = random_map(intervals=10)
    knots = np.log(np.arange(1, 10) / 10) - np.log1p(-np.arange(1, 10) / 10)
    scores = torch.tensor(np.sort((knots[:, None] + np.linspace(-1e-9, 1e-9, 21)).ravel()))[None]
    assert (torch.diff(found.log_odds(scores, torch.randn(1, 3))) > 0).all()


def test_different_requests_may_change_places():
    found = random_map(intervals=10)
    request = torch.randn(50, 3)
    p = found(torch.linspace(-1, 1, 50), request)
    assert (torch.diff(p) < 0).any()


def test_no_gradient_reaches_the_ranker_and_every_parameter_gets_one():
    found = random_map()
    scores = torch.randn(40, requires_grad=True)
    request = torch.randn(40, 3, requires_grad=True)
    found.loss(scores, torch.randint(0, 2, (40,)), request).backward()
    assert scores.grad is None and request.grad is None
    assert all(parameter.grad.abs().sum() > 0 for parameter in found.parameters())


def test_the_gradient_is_right():
    found = random_map(width=0, intervals=6).double()
    scores = torch.randn(20, dtype=torch.float64) * 3
    labels = torch.randint(0, 2, (20,))

    def loss(common):
        return torch.func.functional_call(found, {"common": common}, (scores,)).sub(labels).square().sum()

    assert torch.autograd.gradcheck(loss, found.common.detach().requires_grad_(True))


def test_extreme_scores_have_a_finite_loss_and_gradient():
    found = random_map()
    scores = torch.tensor([-800.0, -200.0, 200.0, 800.0])
    loss = found.loss(scores, torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.randn(4, 3))
    loss.backward()
    assert torch.isfinite(loss) and loss > 300
    assert all(torch.isfinite(parameter.grad).all() for parameter in found.parameters())


def test_the_log_loss_is_that_of_the_probability():
    found = random_map()
    scores, request, labels = torch.randn(30).double(), torch.randn(30, 3), torch.randint(0, 2, (30,))
    p = found(scores, request)
    expected = -(labels * p.log() + (1 - labels) * (1 - p).log()).mean()
    assert found.loss(scores, labels, request).item() == pytest.approx(expected.item(), abs=1e-9)


def test_one_row_per_request_serves_all_its_candidates():
    found = random_map()
    request, scores = torch.randn(5, 3), torch.randn(5, 7)
    wide = found(scores, request)
    flat = found(scores.reshape(-1), request.repeat_interleave(7, dim=0))
    assert torch.allclose(wide.reshape(-1), flat, rtol=1e-5, atol=1e-7)  # products of other shapes


def requests_of_two_kinds(n, seed):
    """The same score is too high for one kind of request and too low for the other."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, n)
    scores = rng.normal(-0.5, 1, n)
    truth = expit(scores + np.where(kind == 1, 1.2, -1.2))
    request = np.stack([kind, rng.normal(size=n), np.full(n, 7.0)], axis=1)
    return scores, (rng.random(n) < truth).astype(float), request, truth


def test_it_learns_what_the_request_tells_and_platt_cannot():
    scores, labels, request, _ = requests_of_two_kinds(6000, 0)
    found = PiecewiseLinear.fit(
        scores, labels, request=request, hidden=(16,), epochs=6, batch=256, learning_rate=0.01
    )
    fresh, _, kinds, truth = requests_of_two_kinds(4000, 1)

    def excess(p):  # expected log loss above the truth's own
        return -(truth * np.log(p / truth) + (1 - truth) * np.log((1 - p) / (1 - truth))).mean()

    assert excess(found(fresh, kinds)) < 0.02 < 0.1 < excess(Platt.fit(scores, labels)(fresh))


def test_without_request_features_one_map_serves_all():
    scores, labels, _, _ = requests_of_two_kinds(3000, 2)
    found = PiecewiseLinear.fit(scores, labels, epochs=5)
    assert found.map.request_width == 0
    assert found(scores).mean() == pytest.approx(labels.mean(), abs=0.02)


def test_scores_far_off_the_scale_of_logits_are_brought_onto_it():
    rng = np.random.default_rng(6)
    truth = rng.normal(-2, 1, 3000)
    labels = (rng.random(3000) < expit(truth)).astype(float)
    scores = 0.5 * truth + 40  # every one of them rounds to a probability of 1
    found = PiecewiseLinear.fit(scores, labels)
    line = Platt.fit(scores, labels)
    assert found.map.start.tolist() == [line.slope, line.intercept]
    assert found(scores).mean() == pytest.approx(labels.mean(), abs=0.01)
    assert np.abs(found(scores) - expit(truth)).mean() < 0.03
    assert (np.diff(found(np.sort(scores))) > 0).all()


def test_scores_that_mislead_are_taken_as_they_are():
    scores, labels = np.linspace(-2, 2, 200), np.repeat([1.0, 0.0], 100)
    found = PiecewiseLinear.fit(scores, labels, epochs=1)
    assert found.map.start.tolist() == [1, 0]
    assert (np.diff(found(scores)) > 0).all()


def test_training_repeats_and_leaves_the_global_generator_alone():
    scores, labels, request, _ = requests_of_two_kinds(300, 3)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = PiecewiseLinear.fit(scores, labels, request=request, hidden=(4,), epochs=1)
    assert torch.equal(torch.rand(1), expected)
    again = PiecewiseLinear.fit(scores, labels, request=request, hidden=(4,), epochs=1)
    np.testing.assert_array_equal(first(scores, request), again(scores, request))


def test_a_frozen_map_with_request_features_survives_as_arrays():
    scores, labels, request, _ = requests_of_two_kinds(300, 4)
    found = PiecewiseLinear.fit(scores, labels, request=request, hidden=(4, 3), intervals=7, epochs=1)
    again = PiecewiseLinear.from_arrays(found.arrays())
    np.testing.assert_array_equal(again(scores, request), found(scores, request))
    assert not any(parameter.requires_grad for parameter in again.map.parameters())


def test_equal_scores_of_a_request_stay_equal():
    scores, labels, request, _ = requests_of_two_kinds(300, 5)
    found = PiecewiseLinear.fit(scores, labels, request=request, hidden=(4,), epochs=1)
    p = found(np.full((5, 61), 0.3), request[:5])
    assert p.shape == (5, 61) and (p == p[:, :1]).all() and len(np.unique(p)) > 1


def test_wrong_request_features_are_refused():
    found = random_map()
    with pytest.raises(ValueError, match="needs 3 request features"):
        found(torch.zeros(2))
    with refused("3 request features", "(2, 4)", kind=ValueError):
        found(torch.zeros(2), torch.zeros(2, 4))
    with refused("request", "finite", kind=ValueError):
        PiecewiseLinear.fit([1.0, 2.0], [0.0, 1.0], request=[[1.0]])
    with pytest.raises(ValueError, match="intervals"):
        RequestMap(1, intervals=0)
