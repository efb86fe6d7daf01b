"""Every objective by one list of properties, then what is particular to each."""

import math

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.models import losses
from cascade_sim.models.calibrators import CALIBRATORS
from cascade_sim.models.objectives import (
    OBJECTIVES,
    Calibrated,
    LoggedScores,
    family_name,
    make_objective,
    objective_class,
    objectives_for,
    split_family,
)
from worlds.ragged_lists import ragged

BOTH = [(name, task) for task in ("binary", "graded") for name in objectives_for(task)]
SHIFT_BLIND = ("ranknet", "softmax", "approx_ndcg")


def example(name, task, seed=3):
    """(objective, outputs [N, heads], labels, lists, dumped)."""
    objective = make_objective(name, task)
    _, grades, lists = ragged(seed, n_lists=12, longest=6)
    labels = torch.tensor((grades > 0) if task == "binary" else grades, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn((len(labels), objective.n_heads), generator=generator, dtype=torch.float64)
    owner = torch.from_numpy(np.repeat(np.arange(len(lists) - 1), np.diff(lists)))
    return objective, outputs, labels, lists, LoggedScores(outputs[:, 0] + 0.3, labels, lists, owner)


def value(objective, outputs, labels, lists, dumped):
    return objective.loss(outputs, labels, lists, dumped=dumped)


@pytest.mark.parametrize(("name", "task"), BOTH)
def test_a_step_down_the_slope_lowers_the_loss_and_every_head_learns(name, task):
    objective, outputs, labels, lists, dumped = example(name, task)
    outputs.requires_grad_()
    before = value(objective, outputs, labels, lists, dumped)
    before.backward()
    assert before.shape == () and (outputs.grad.abs().sum(0) > 0).all()
    after = value(objective, outputs.detach() - 1e-3 * outputs.grad, labels, lists, dumped)
    assert after < before


@pytest.mark.parametrize(("name", "task"), BOTH)
def test_predictions_are_finite_and_rise_with_the_score(name, task):
    objective, outputs, *_ = example(name, task)
    score, prediction = objective.score(outputs), objective.predict(outputs)
    assert score.shape == prediction.shape == (len(outputs),)
    ranked = prediction[score.argsort()]
    assert torch.isfinite(prediction).all() and (ranked.diff() >= 0).all() and ranked[0] < ranked[-1]
    if task == "binary":
        assert ranked[0] >= 0 and ranked[-1] <= 1


@pytest.mark.parametrize(("name", "task"), BOTH)
def test_only_ranking_losses_are_blind_to_the_level_of_the_scores(name, task):
    objective, outputs, labels, lists, dumped = example(name, task)
    shift = torch.zeros_like(outputs)
    shift[:, -1 if name == "jrc" else 0] = 0.7
    gap = value(objective, outputs + shift, labels, lists, dumped) - value(
        objective, outputs, labels, lists, dumped
    )
    assert (abs(gap) < 1e-12) == (name in SHIFT_BLIND)
    if name in SHIFT_BLIND:
        assert not objective.has_scale


@pytest.mark.parametrize(
    ("name", "task"), [(n, t) for n, t in BOTH if OBJECTIVES[n].has_scale and n != "calibrated_ranknet"]
)
@pytest.mark.few(4)
def test_with_scale_the_best_constant_predicts_the_mean_label(name, task):
    """Items that look alike: the least loss is where the prediction is their expected label."""
    objective = make_objective(name, task)
    labels = torch.tensor([1.0, 0, 0, 0] if task == "binary" else [3.0, 0, 1, 0], dtype=torch.float64)
    lists, owner = [0, 4], torch.zeros(4, dtype=torch.int64)
    bias = torch.zeros((1, objective.n_heads), dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([bias], max_iter=200, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure():
        solver.zero_grad()
        outputs = bias.expand(4, -1)
        dumped = LoggedScores(objective.score(outputs).detach(), labels, lists, owner)
        loss = value(objective, outputs, labels, lists, dumped)
        loss.backward()
        return loss

    for _ in range(60 if name == "sbcr" else 1):  # its dump follows the net: a fixed point, not one problem
        solver.step(closure)
        solver = torch.optim.LBFGS([bias], max_iter=20, line_search_fn="strong_wolfe")
    tolerance = 0.01 if name == "sbcr" else 1e-4
    assert float(objective.predict(bias.detach())) == pytest.approx(float(labels.mean()), abs=tolerance)


@pytest.mark.parametrize("name", [name for name, kind in OBJECTIVES.items() if "alpha" in kind.options])
def test_alpha_at_its_ends_leaves_one_part_of_the_loss(name):
    _, outputs, labels, lists, dumped = example(name, "binary")
    at_0, at_1 = (
        value(make_objective(name, alpha=alpha), outputs, labels, lists, dumped) for alpha in (0, 1)
    )
    weighs = OBJECTIVES[name].options["alpha"].weighs
    regression = {"ranking": at_0, "regression": at_1}[weighs]
    if name == "sbcr":
        expected = losses.logistic(outputs[:, 0], labels, lists, reduction="sum") / len(labels)
    elif name == "jrc":
        expected = losses.logistic(outputs[:, 1] - outputs[:, 0], labels, lists)
    elif name == "rcr_regression":
        gap = torch.nn.functional.softplus(outputs[:, 0]) - labels
        expected = gap.square().sum() / (len(lists) - 1)
    else:
        expected = losses.logistic(outputs[:, 0], labels, lists)
    assert float(regression) == pytest.approx(float(expected))
    assert float(at_0) != pytest.approx(float(at_1))


# Normalisation: lists of 0, 1, 2 and 3 clicks.
LABELS = torch.tensor([0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0], dtype=torch.float64)
LISTS = [0, 2, 5, 8, 12]
OWNER = torch.repeat_interleave(torch.arange(4), torch.tensor(LISTS).diff())
SUMS = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)
NORMALISED = [name for name, kind in OBJECTIVES.items() if "normalisation" in kind.options]


def slopes(name, scores, **options):
    """Slopes of the sum over lists with respect to one score per item."""
    scores = scores.clone().requires_grad_()
    mean = make_objective(name, **options).loss(scores[:, None], LABELS, LISTS)
    (mean * (len(LISTS) - 1)).backward()
    return scores.grad


def per_list(values):
    """The sum over an item's list, for every item."""
    return torch.zeros(4, dtype=values.dtype).index_add(0, OWNER, values)[OWNER]


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("normalisation", ["sum", "mean"])
def test_slopes_of_both_objectives_are_those_of_the_equations(alpha, normalisation):
    """(1 − α)(σ_i − y_i), and α times softmax_i − y_i/C or (1 − σ_i)(σ_i/Σσ − y_i/C); times C for sum."""
    scores = torch.from_numpy(np.random.default_rng(3).normal(-1, 1.5, len(LABELS)))
    sigma, clicks = torch.sigmoid(scores), SUMS[OWNER]
    share = torch.where(clicks > 0, LABELS / clicks.clamp(min=1), 0.0)
    times = torch.where(clicks > 0, clicks if normalisation == "sum" else torch.ones_like(clicks), 0.0)
    softmax = torch.exp(scores) / per_list(torch.exp(scores))
    regression = (1 - alpha) * (sigma - LABELS)
    expected = {
        "multi_objective": regression + alpha * times * (softmax - share),
        "rcr": regression + alpha * times * (1 - sigma) * (sigma / per_list(sigma) - share),
    }
    for name, slope in expected.items():
        found = slopes(name, scores, alpha=alpha, normalisation=normalisation)
        assert found.numpy() == pytest.approx(slope.numpy(), abs=1e-12), name


@pytest.mark.parametrize("normalisation", ["sum", "mean"])
def test_with_one_normalisation_equal_alphas_weigh_alike_where_the_sigmoid_is_an_exponential(normalisation):
    """For rare clicks σ(s) is e^s, and ListCE(σ) the softmax loss: then the two objectives are one."""
    scores = torch.from_numpy(np.random.default_rng(4).normal(-12, 0.5, len(LABELS)))
    ranking = {
        name: slopes(name, scores, alpha=1.0, normalisation=normalisation)
        for name in ("multi_objective", "rcr")
    }
    assert ranking["rcr"].numpy() == pytest.approx(ranking["multi_objective"].numpy(), abs=1e-4)
    for alpha in (0.1, 0.9):
        found = [slopes(name, scores, alpha=alpha, normalisation=normalisation).numpy() for name in ranking]
        assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_as_their_papers_have_them_they_are_apart_by_the_clicks_of_each_list():
    scores = torch.from_numpy(np.random.default_rng(4).normal(-12, 0.5, len(LABELS)))
    whole, per_click = (slopes(name, scores, alpha=1.0) for name in ("multi_objective", "rcr"))
    assert whole.numpy() == pytest.approx((SUMS[OWNER] * per_click).numpy(), abs=1e-4)
    assert (whole - per_click).abs().max() > 0.5


@pytest.mark.parametrize("name", NORMALISED)
def test_a_normalisation_divides_the_ranking_part_of_each_list_alone(name):
    outputs = torch.from_numpy(np.random.default_rng(5).normal(0, 1, (3, OBJECTIVES[name].n_heads)))
    lists, own = [0, 3], OBJECTIVES[name].options["normalisation"].default
    assert (own == "mean") == name.startswith("rcr")
    for labels, clicks in ((doubles(1, 1, 0), 2.0), (doubles(0, 1, 0), 1.0)):
        whole, divided = (
            make_objective(name, alpha=1.0, normalisation=how).loss(outputs, labels, lists)
            for how in ("sum", "mean")
        )
        assert whole.item() == pytest.approx(clicks * divided.item())
        at_0 = [make_objective(name, alpha=0.0, normalisation=how) for how in ("sum", "mean")]
        assert len({objective.loss(outputs, labels, lists).item() for objective in at_0}) == 1
        default = make_objective(name, alpha=1.0).loss(outputs, labels, lists)
        assert default.item() == (whole if own == "sum" else divided).item()


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_the_ranking_part_may_be_pairs_in_place_of_the_softmax(alpha):
    """Two lists: pairs of scores 2 above 0 and −1, and 1 below 3; per pair with the mean."""
    scores, labels, lists = doubles(2, 0, -1, 1, 3), doubles(1, 0, 0, 1, 0), [0, 3, 5]
    pairs = [math.log1p(math.exp(-2)), math.log1p(math.exp(-3)), math.log1p(math.exp(2))]
    point = losses.logistic(scores, labels, lists).item()
    for normalisation, ranking in (
        ("sum", sum(pairs) / 2),
        ("mean", ((pairs[0] + pairs[1]) / 2 + pairs[2]) / 2),
    ):
        objective = make_objective(
            "multi_objective", alpha=alpha, ranking="ranknet", normalisation=normalisation
        )
        found = objective.loss(scores[:, None], labels, lists).item()
        assert found == pytest.approx(alpha * ranking + (1 - alpha) * point)


def test_a_family_says_all_that_is_chosen_otherwise_than_usual():
    assert make_objective("multi_objective", ranking="softmax").family == "multi_objective"
    family = make_objective("multi_objective", ranking="ranknet", normalisation="mean").family
    assert family == "multi_objective-ranknet-mean"
    assert split_family(family) == ("multi_objective", {"ranking": "ranknet", "normalisation": "mean"})
    assert family_name("multi_objective-ranknet-sum") == family_name("multi_objective-ranknet")
    assert split_family("rcr-ranknet") == ("rcr-ranknet", {})  # rcr has no such choice
    assert split_family("multi_objective-mean-sum") == ("multi_objective-mean-sum", {})
    assert {name for name, kind in OBJECTIVES.items() if not kind.gives_logits()} == {
        "ranknet", "softmax", "approx_ndcg", "listce", "calibrated_softmax", "rcr_regression",
    }  # fmt: skip


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_multi_task_serves_the_regression_head():
    objective = make_objective("multi_task")
    outputs = torch.tensor([[0.0, 9.0], [1.0, -9.0]])
    assert objective.score(outputs).tolist() == [0, 1]
    assert objective.predict(outputs).tolist() == pytest.approx([0.5, 1 / (1 + math.exp(-1))])


def test_links_are_those_of_the_losses():
    s = torch.tensor([[math.log(0.25)], [math.log(4.0)]])
    assert make_objective("calibrated_softmax", y0=2.0).predict(s).tolist() == pytest.approx([2 * 0.25, 1])
    assert make_objective("calibrated_softmax", "graded", y0=2.0).predict(s).tolist() == pytest.approx(
        [0.5, 8]
    )
    assert make_objective("rcr_regression", "graded").predict(s).tolist() == pytest.approx(
        [math.log(1.25), math.log(5)]
    )
    assert make_objective("pointwise", "graded").predict(s).tolist() == pytest.approx(s[:, 0].tolist())
    two = torch.tensor([[0.5, 1.5]])
    assert make_objective("jrc").predict(two).tolist() == pytest.approx([1 / (1 + math.exp(-1))])


def test_calibrated_ranknet_without_its_anchor_in_between_loses_half_of_the_log_loss():
    _, outputs, labels, lists, _ = example("calibrated_ranknet", "binary")
    whole = make_objective("calibrated_ranknet", y0=0.5).loss(outputs, labels, lists)
    assert float(whole) == pytest.approx(
        float(losses.ranknet(outputs[:, 0], labels, lists) + losses.logistic(outputs[:, 0], labels, lists))
    )
    assert make_objective("calibrated_ranknet", y0=0.0).loss(outputs, labels, lists) < whole


def test_the_self_boosted_loss_does_not_depend_on_which_samples_share_a_batch():
    objective, outputs, labels, lists, dumped = example("sbcr", "binary")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    mixed = LoggedScores(dumped.scores, dumped.labels, lists, dumped.request[order])
    whole = value(objective, outputs, labels, lists, dumped)
    assert float(value(objective, outputs[order], labels[order], [0, 1], mixed)) == pytest.approx(
        float(whole)
    )
    with refused("dumped scores", kind=ValueError):
        objective.loss(outputs, labels, lists)


def test_unknown_names_and_values_out_of_range_are_refused_with_what_is_known():
    with refused("'ranknett'", "pointwise, ranknet, softmax", kind=ValueError):
        objective_class("ranknett")
    with refused("softmax", "alpha", "none", kind=ValueError):
        make_objective("softmax", alpha=0.5)
    with refused("alpha", "[0, 1]", 1.5, kind=ValueError):
        make_objective("rcr", alpha=1.5)
    with refused("y0", "(0, 1e+06]", 0, kind=ValueError):
        make_objective("calibrated_softmax", y0=0.0)
    with pytest.raises(ValueError, match="alpha must be"):
        make_objective("rcr", alpha=math.nan)
    with refused("normalisation", "sum", "mean", "'average'", kind=ValueError):
        make_objective("rcr", normalisation="average")
    with refused("jrc", "normalisation", "alpha", kind=ValueError):
        make_objective("jrc", normalisation="sum")
    with refused("rcr", "'graded'", kind=ValueError):
        make_objective("rcr", "graded")


def test_names_and_defaults_of_the_table_are_those_of_the_classes():
    for name, kind in OBJECTIVES.items():
        assert kind.name == name and kind(kind.tasks[0]).task == kind.tasks[0]
        for option, allowed in kind.options.items():
            assert getattr(kind(kind.tasks[0]), option) == allowed.default


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_a_calibrator_after_any_objective_keeps_its_order_and_mends_its_level(calibrator):
    rng = np.random.default_rng(5)
    score = torch.from_numpy(rng.normal(0, 1, 3000))
    labels = torch.from_numpy((rng.random(3000) < 1 / (1 + np.exp(2.0 - score.numpy()))).astype(float))
    outputs = (score + 6.0)[:, None]  # ranks well, far off in scale
    objective = make_objective("softmax")
    served = Calibrated.fit(objective, calibrator, outputs, labels)
    assert served.name == f"softmax+{calibrator}" and served.has_scale
    assert torch.equal(served.score(outputs), objective.score(outputs))
    off = abs(float(objective.predict(outputs).mean() / labels.mean()) - 1)
    mended = abs(float(served.predict(outputs).mean() / labels.mean()) - 1)
    limit = 0.05 if calibrator != "temperature" else off  # which cannot move the level at a score of 0
    assert off > 1 and mended < limit
    assert float(served.predict(outputs[:1])[0]) == pytest.approx(float(served.calibrator(outputs[:1, 0])[0]))


def test_a_calibrator_is_refused_for_grades_and_for_unknown_names():
    outputs, labels = torch.zeros(4, 1), torch.tensor([0.0, 1, 0, 1])
    with pytest.raises(ValueError, match="needs binary labels"):
        Calibrated.fit(make_objective("softmax", "graded"), "platt", outputs, labels)
    with pytest.raises(ValueError, match="unknown calibrator 'plat'"):
        Calibrated.fit(make_objective("softmax"), "plat", outputs, labels)
