import pytest
import torch

from cascade_sim.models import losses
from cascade_sim.models.examination import slot_log_odds, slot_log_share, slot_softplus
from cascade_sim.models.objectives import OBJECTIVES, make_objective

SCORE = torch.tensor([-30.0, -4.0, -0.5, 0.0, 1.5, 9.0], dtype=torch.float64)
SEEN = torch.tensor([0.3, 0.6, 1.0, 0.85, 0.5, 0.74], dtype=torch.float64)


def outputs_of(objective, scores=SCORE):
    heads = [scores, 0.4 * scores - 0.2][: objective.n_heads]
    return torch.stack(heads, dim=1)


def test_every_objective_has_a_map_for_each_of_its_heads():
    assert all(len(kind.slot_maps) == kind.n_heads for kind in OBJECTIVES.values() if kind.name != "jrc")


@pytest.mark.parametrize("name", [name for name, kind in OBJECTIVES.items() if kind.has_scale])
def test_outputs_of_a_slot_predict_the_click_there(name):
    """P(click) = examination * P(click | examined). A link that is cut at 1 is looked at below it."""
    objective = make_objective(name)
    outputs = outputs_of(objective, SCORE.clamp(max=-0.5) if objective.link == "capped_softplus" else SCORE)
    if name == "calibrated_softmax":
        outputs = outputs.clamp(max=-0.1)
    seen = objective.predict(objective.slot_outputs(outputs, SEEN))
    assert torch.allclose(seen, SEEN * objective.predict(outputs), rtol=1e-9)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_slot_that_is_always_looked_at_changes_nothing(name):
    objective = make_objective(name)
    outputs = outputs_of(objective)
    seen = objective.slot_outputs(outputs, torch.ones_like(SCORE))
    assert torch.allclose(seen, outputs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["ranknet", "softmax", "approx_ndcg"])
def test_an_order_alone_stays_without_a_scale(name):
    objective, clicks = make_objective(name), torch.tensor([0.0, 1, 0, 0, 1, 0], dtype=torch.float64)
    values = [
        objective.loss(
            objective.slot_outputs(outputs_of(objective, 0.2 * SCORE + shift), SEEN), clicks, [0, 3, 6]
        )
        for shift in (0.0, 5.0)
    ]
    assert values[0] == pytest.approx(values[1].item(), rel=1e-12)


def test_the_log_loss_of_a_slot_is_the_examined_log_loss():
    """But for log x of the clicks, which no score can change."""
    clicks = torch.tensor([0.0, 1, 0, 1, 1, 0], dtype=torch.float64)
    found = losses.logistic(slot_log_odds(SCORE, SEEN), clicks, [0, 6], each="mean")
    known = losses.examined_logloss(SCORE, clicks, SEEN) - (clicks * torch.log(SEEN)).mean()
    assert found == pytest.approx(known.item(), rel=1e-12)


def test_the_softmax_of_a_slot_is_least_where_scores_are_logs_of_the_click_rate():
    """Clicks come at x p; the score that makes the gradient vanish is log p, whatever the slots."""
    p = torch.tensor([0.3, 0.1, 0.05], dtype=torch.float64)
    x = torch.tensor([0.6, 0.8, 1.0], dtype=torch.float64)
    score = torch.log(p).requires_grad_()
    losses.softmax(slot_log_share(score, x), x * p, [0, 3]).backward()
    assert torch.allclose(score.grad, torch.zeros(3, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("slot_map", [slot_log_odds, slot_softplus, slot_log_share])
def test_gradients_are_right_and_finite_in_both_tails(slot_map):
    score = torch.tensor([-200.0, -14.0, -3.0, 0.5, 4.0, 200.0], dtype=torch.float64, requires_grad=True)
    slot_map(score, SEEN).sum().backward()
    assert torch.isfinite(score.grad).all() and (score.grad >= 0).all()
    inner = SCORE[1:-1].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: slot_map(s, SEEN[1:-1]), (inner,))


def test_the_two_logits_of_a_slot_keep_their_joint_mass():
    """What is not seen goes over from clicks to no clicks; e^f_0 + e^f_1 is the density of the ad."""
    objective = make_objective("jrc")
    outputs = outputs_of(objective)
    seen = objective.slot_outputs(outputs, SEEN)
    assert torch.allclose(torch.logsumexp(seen, 1), torch.logsumexp(outputs, 1), rtol=1e-12)
