"""Objectives and calibrators through the phases of a study: trained, cached, exported, reopened."""

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.cascade.links import MappedScorer, calibrator_file, export_calibrator
from cascade_sim.cascade.scorers import CoActionScorer
from cascade_sim.diagnostics.reopen import reopen
from cascade_sim.foundation.errors import UserError
from cascade_sim.models.training import TrainingPlan, train
from cascade_sim.training import fit as recipes
from cascade_sim.training.data import impressions, pages, split_pages
from worlds.learned import learn
from worlds.tiny_market import run_phases, tiny_scenario
from worlds.traced_run import as_run_folder

RANKERS = {
    "softmax-platt": ("objective: softmax", "calibrator: platt"),
    "sbcr-request": ("objective: sbcr", "calibrator: piecewise_linear"),
    "sbcr-joint": ("objective: sbcr", "calibrator: piecewise_linear", "fit: joint"),
    "csm": ("objective: calibrated_softmax", "y0: 0.5"),
    "jrc": ("objective: jrc",),
}
NET = "kind: coaction, features: [user, context, quality, tier, G1, G4], hidden: 16, dims: 6, epochs: 1"


def overrides(names=RANKERS):
    models = [f"models.{name}={{{NET}, {', '.join(RANKERS[name])}}}" for name in names]
    arms = [f"arms.{name}={{ranking: {{model: {name}}}}}" for name in names]
    return [*models, *arms]


@pytest.fixture(scope="module")
def rankers(tmp_path_factory):
    folders = (tmp_path_factory.mktemp("rankers"), tmp_path_factory.mktemp("cache"))
    return run_phases(tiny_scenario(*overrides()), *folders)


def test_every_ranker_serves_its_arm_and_is_measured_as_a_probability(rankers):
    found = rankers.metrics
    for name in RANKERS:
        assert found["models"][name]["win_set"]["pcoc"]["value"] > 0
        assert 0 < found["models"][name]["win_set"]["ndcg"]["value"] <= 1
        assert found["arms"][name]["cpc_error"]["value"] > 0
    assert found["objectives"]["arms"]["sbcr-request"] == {
        "model": "sbcr-request", "objective": "sbcr", "calibrator": "piecewise_linear",
    }  # fmt: skip
    assert found["objectives"]["arms"]["sbcr-joint"]["fit"] == "joint"
    assert found["objectives"]["arms"]["logloss"]["objective"] == "pointwise"
    curve = found["objectives"]["reliability"]["csm"]
    quality = found["models"]["csm"]["win_set"]
    assert sum(curve["predicted"]) / sum(curve["truth"]) == pytest.approx(quality["pcoc"]["value"])


def test_scorers_stay_fused_and_links_follow_the_objective(rankers):
    scorers = rankers.sim.scorers
    assert type(scorers["jrc"]) is CoActionScorer and scorers["jrc"].link == "sigmoid"
    assert isinstance(scorers["csm"], MappedScorer) and scorers["csm"].link == "capped_exp"
    assert scorers["softmax-platt"].link == "calibrator"
    assert type(scorers["softmax-platt"]._scorer) is CoActionScorer


def test_a_plain_study_has_no_section_on_objectives(study):
    assert "objectives" not in study.metrics


def test_a_run_is_reopened_with_its_calibrators(rankers, tmp_path):
    path = as_run_folder(rankers, tmp_path / "run")
    for name, calibrator in rankers.preparation.calibrators.items():
        export_calibrator(calibrator, calibrator_file(path / "models" / f"{name}.safetensors"))
    run, block = reopen(path), rankers.sim.arrivals.block("evaluate", 0, 500)
    ids = rankers.sim.serve(block, rankers.evaluation.arms["logloss"]).retrieved
    for name in RANKERS:
        again = run.arm(name).last.scorer.predict(block, ids)
        assert np.array_equal(again, rankers.sim.scorers[name].predict(block, ids)), name
    calibrator_file(path / "models" / "softmax-platt.safetensors").unlink()
    with pytest.raises(UserError, match="softmax-platt.calibrator.safetensors is missing"):
        reopen(path).arm("softmax-platt")


def test_models_and_calibrators_come_from_the_cache(tmp_path, monkeypatch):
    names = ("softmax-platt", "jrc")
    one = learn(tmp_path / "a", tmp_path / "cache", *overrides(names))

    def refuse(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr("cascade_sim.training.parallel.fit", refuse)
    monkeypatch.setattr("cascade_sim.training.fit.fit_calibrator", refuse)
    again = learn(tmp_path / "b", tmp_path / "cache", *overrides(names))
    assert again.calibrators["softmax-platt"] == one.calibrators["softmax-platt"]
    for name in names:
        weights = zip(one.modules[name].parameters(), again.modules[name].parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in weights)
    with pytest.raises(AssertionError, match="trained again"):
        changed = [o.replace("y0: 0.5", "y0: 0.6") for o in overrides(("csm",))]
        learn(tmp_path / "c", tmp_path / "cache", *changed)


def same_weights(one, other):
    weights = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in weights)


def test_a_joint_calibrator_leaves_its_net_alone_and_both_come_from_the_cache(tmp_path, monkeypatch):
    alone = f"models.alone={{{NET}, objective: sbcr}}"
    made = learn(tmp_path / "a", tmp_path / "cache", *overrides(("sbcr-joint",)), alone)
    assert same_weights(made.modules["alone"], made.modules["sbcr-joint"])
    calibrator = made.calibrators["sbcr-joint"]
    assert "alone" not in made.calibrators and calibrator.arrays()["common"].any()

    def refuse(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr("cascade_sim.training.parallel.fit", refuse)
    again = learn(tmp_path / "b", tmp_path / "cache", *overrides(("sbcr-joint",)))
    assert same_weights(again.modules["sbcr-joint"], made.modules["sbcr-joint"])
    for name, values in again.calibrators["sbcr-joint"].arrays().items():
        assert np.array_equal(values, calibrator.arrays()[name])
    for file in (tmp_path / "cache").glob("*.calibrator.safetensors"):
        file.unlink()
    with pytest.raises(AssertionError, match="trained again"):  # a net without its map is none
        learn(tmp_path / "c", tmp_path / "cache", *overrides(("sbcr-joint",)))


def test_a_calibrator_of_the_training_pages_leaves_its_net_all_of_them(tmp_path):
    models = (
        f"models.bare={{{NET}, objective: softmax}}",
        f"models.lined={{{NET}, objective: softmax, calibrator: platt, fit: training}}",
    )
    made = learn(tmp_path / "a", tmp_path / "cache", *models, *overrides(("softmax-platt",)))
    assert same_weights(made.modules["bare"], made.modules["lined"])
    assert not same_weights(made.modules["bare"], made.modules["softmax-platt"])
    assert made.calibrators["lined"].slope != made.calibrators["softmax-platt"].slope


def test_a_study_keeps_the_pages_of_a_pointwise_ranker_whole_if_told_to(tmp_path, monkeypatch):
    seen, real = [], recipes.train_pages

    def watched(module, view, data, objective, plan, **options):
        seen.append((objective.name, options["batching"]))
        return real(module, view, data, objective, plan, **options)

    monkeypatch.setattr(recipes, "train_pages", watched)
    pointwise = f"models.whole={{{NET}, batching: lists}}"
    joint = f"models.joint={{{NET}, calibrator: piecewise_linear, fit: joint}}"
    learn(tmp_path / "a", tmp_path / "cache", pointwise, joint)
    assert seen == [("pointwise", "lists"), ("pointwise", "samples")]


def test_calibrators_of_one_objective_share_its_net(tmp_path):
    other = f"models.isotonic={{{NET}, objective: softmax, calibrator: isotonic}}"
    made = learn(tmp_path / "a", tmp_path / "cache", *overrides(("softmax-platt",)), other)
    weights = zip(
        made.modules["softmax-platt"].parameters(), made.modules["isotonic"].parameters(), strict=True
    )
    assert all(torch.equal(a, b) for a, b in weights)


def test_the_ranker_that_writes_the_log_is_pointwise_whatever_its_objective(tmp_path):
    made = learn(tmp_path / "a", tmp_path / "cache", "models.rank.objective=jrc")
    plain = learn(tmp_path / "b", tmp_path / "cache")
    weights = [m.modules["rank (first)"].parameters() for m in (made, plain)]
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_pages_are_the_impressions_by_request_with_the_deployed_scores(study):
    data, flat = pages(study.folder, ["cold_start", "log"]), impressions(study.folder, ["cold_start", "log"])
    assert np.array_equal(data.shown.ads, flat.ads) and len(data.request) == 4500
    assert (np.diff(data.lists) == 3).all() and len(np.unique(data.request)) == 4500
    is_log = np.arange(len(flat.ads)) >= 3 * 1500
    assert np.isnan(data.dumped[~is_log]).all() and np.isfinite(data.dumped[is_log]).all()
    assert len(pages(study.folder, []).users) == 0


def test_what_a_calibrator_learns_from_is_kept_from_its_model(study):
    data = pages(study.folder, ["log"])
    kept, apart = split_pages(data, 0.25, seed=9)
    assert not set(kept.request) & set(apart.request)
    assert sorted([*kept.request, *apart.request]) == sorted(data.request)
    assert len(apart.request) == pytest.approx(750, abs=4 * np.sqrt(3000 * 0.25 * 0.75))
    half = data.take(np.arange(3000) % 2 == 0)
    assert set(split_pages(half, 0.25, seed=9)[1].request) == set(apart.request) & set(half.request)


def test_a_calibrator_without_a_click_to_learn_from_is_said_so(tmp_path):
    with refused("'softmax-platt'", "no click"):
        changed = [*overrides(("softmax-platt",)), "world.base_logit=-25.0"]
        learn(tmp_path / "a", tmp_path / "cache", *changed)


@pytest.mark.drill
def test_pointwise_training_is_what_it_was_before_there_were_objectives(study, tmp_path):
    """The loop written out: same start, shuffles, batches, steps and schedule, to the last bit."""
    from cascade_sim.models import losses
    from cascade_sim.models.training import Tables, set_base_rate
    from cascade_sim.training.modules import build_module

    spec, data = study.sim.scenario.models["rank"], impressions(study.folder, ["log"])
    view = study.sim.view(spec.features)
    one, two = (build_module("rank", spec, view, 3) for _ in range(2))
    train(one, view, data, "logloss", TrainingPlan(2, 1000, 0.01, seed=11))
    set_base_rate(two, data)
    columns, tables = (
        {k: torch.from_numpy(a) for k, a in data.arrays().items()},
        Tables(view, torch.device("cpu")),
    )
    optimiser = torch.optim.AdamW(two.parameters(), lr=0.01, weight_decay=0.0)
    steps = 2 * -(-len(data.users) // 1000)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1.0 - step / steps)
    shuffle = torch.Generator().manual_seed(11)
    for _ in range(2):
        for rows in torch.randperm(len(data.users), generator=shuffle).split(1000):
            part = {name: column[rows] for name, column in columns.items()}
            logit = two(*tables.inputs(part["users"], part["context"], part["ads"])).squeeze(1)
            optimiser.zero_grad(set_to_none=True)
            losses.examined_logloss(logit, part["click"], part["examination"]).backward()
            optimiser.step()
            schedule.step()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
