"""Models that learn from what other learned models hand on, and models that learn together, in a study."""

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.cascade.retrievers.routes import models_of
from cascade_sim.models.losses import stages
from cascade_sim.scenario.file import scenario_data
from cascade_sim.study import prepare as prepare_module
from cascade_sim.study.prepare import is_logged_alike, logging_scenario, shadowed_arm
from cascade_sim.study.simulation import Simulation
from cascade_sim.training import fit
from worlds.learned import SHORT, learn
from worlds.learning_market import learning_scenario, learning_sim, live_and_learn
from worlds.tiny_market import run_phases, tiny_scenario

SEEN = "features: [user, quality, tier, G1], epochs: 2"
BROUGHT = "set: retrieved, per_request: 20, arm: new"
RET = f"models.ret={{recipe: listwise, {SEEN}, teacher: rank, sample: {{set: corpus, per_request: 30}}}}"
PRE = f"models.pre={{recipe: infonce, {SEEN}, teacher: rank, sample: {{{BROUGHT}}}}}"
NEW = "arms.new={retrieval: {model: ret}, pre_ranking: {model: pre}}"
BEHIND = (RET, PRE, NEW)
JOINT = (
    "models.ret={recipe: joint, features: [user, quality, tier, G1]}",
    "models.pre={recipe: joint, features: [user, quality, G1], kind: coaction, hidden: 16}",
    "joint.both={models: [ret, pre], epochs: 2, batch: 240, validation: 0.2,"
    " options: {k: 3, quota: 6, temperature: 10},"
    " sample: {per_request: 24, pool: 60}}",
    NEW,
)


@pytest.fixture
def seen(monkeypatch):
    """What each pass over the shadow phase was asked, and the lists that came of it."""
    passes, real = [], prepare_module.shadow_lists

    def look(sim, arms, wave, block):
        lists = real(sim, arms, wave, block)
        passes.append((wave.number, arms, block, lists[0]))
        return lists

    monkeypatch.setattr(prepare_module, "shadow_lists", look)
    return passes


def weights(made, *names):
    return {name: made.modules[name].state_dict() for name in names}


def same(one, other):
    return all(torch.equal(one[name][key], other[name][key]) for name in one for key in one[name])


def test_a_student_is_taught_on_what_a_learned_retriever_brings(tmp_path, seen):
    made = learn(tmp_path / "a", tmp_path / "cache", *BEHIND)
    (first, later) = ([one for one in seen if one[0] == number] for number in (0, 1))
    assert [set(one[3]) for one in first] == [{"ltr", "distill-pre", "ret"}] * len(first)
    assert [set(one[3]) for one in later] == [{"pre"}] * len(later)
    for (_, _, block, _), (_, arms, again, lists) in zip(first, later, strict=True):
        assert np.array_equal(block.requests, again.requests) and np.array_equal(block.times, again.times)
        arm = arms["new"]
        assert models_of(arm.retrieval.retriever) == ("ret",)
        retrieved = made.sim.serve(again, arm).retrieved
        assert (lists["pre"].ads[:, :, None] == retrieved[:, None]).any(axis=2).all()
    deployed = made.sim.serve(block, shadowed_arm(made.sim)).retrieved
    assert not np.array_equal(deployed, retrieved)


def test_time_passes_once_whatever_the_number_of_waves(tmp_path):
    plain, waves = (
        learn(tmp_path / name, tmp_path / "cache", *told) for name, told in (("a", ()), ("b", BEHIND))
    )
    assert plain.sim.arrivals.env.now == waves.sim.arrivals.env.now
    assert same(weights(plain, "ltr", "distill-pre"), weights(waves, "ltr", "distill-pre"))


@pytest.mark.parametrize("told", [BEHIND, JOINT], ids=["waves", "joint"])
def test_two_workers_train_the_same_bytes_and_nothing_is_trained_again(tmp_path, told, monkeypatch):
    one = learn(tmp_path / "a", tmp_path / "cache", *told)
    scenario = tiny_scenario(*SHORT, *told)
    two = learn(tmp_path / "b", tmp_path / "other", *told, sim=Simulation(scenario, scenario.seed, workers=2))
    assert same(weights(one, "ret", "pre"), weights(two, "ret", "pre")) and one.lines == two.lines
    monkeypatch.setattr(fit, "train_together", None)
    monkeypatch.setattr(fit, "train", None)
    again = learn(tmp_path / "c", tmp_path / "cache", *told)
    assert same(weights(one, "ret", "pre"), weights(again, "ret", "pre")) and again.lines == one.lines


def test_a_model_that_is_held_to_the_ranker_stays_so_through_all_waves(tmp_path, seen):
    held = "models.logloss.proxy_calibrator=platt"
    made = learn(tmp_path / "a", tmp_path / "cache", *BEHIND, held, "models.logloss.held_out=0.3")
    assert getattr(made.sim.scorers["logloss"], "calibrator", None) is not None
    rows = [sum(len(lists[name].users) for *_, lists in seen if name in lists) for name in ("ret", "pre")]
    assert rows[0] == rows[1] < 48  # the same requests are kept from both


def test_a_cascade_that_learned_in_waves_is_measured_as_any_other(tmp_path):
    made = run_phases(tiny_scenario(*BEHIND), tmp_path / "run", tmp_path / "cache")
    arm = made.metrics["arms"]["new"]
    assert 0 < arm["rcs"]["value"] <= 1 and arm["revenue_per_request"]["value"] > 0


def test_rankflow_takes_a_student_for_its_teacher(tmp_path, seen):
    early = (
        f"models.early={{recipe: rankflow, {SEEN}, teacher: pre, sample: {{set: corpus, per_request: 20}}}}"
    )
    made = learn(tmp_path / "a", tmp_path / "cache", *BEHIND, early)
    assert [number for number, *_ in seen][-1] == 2 and "early" in made.sim.scorers
    _, _, block, lists = seen[-1]
    given = lists["early"]
    assert np.array_equal(given.teacher_logit, made.sim.scorers["pre"].log_odds(block, given.ads))


def test_models_of_a_section_learn_from_the_same_lists_and_end_as_models_of_their_own(tmp_path, seen):
    made = learn(tmp_path / "a", tmp_path / "cache", *JOINT)
    (lists,) = [lists["joint.both"] for *_, lists in seen if "joint.both" in lists]
    assert lists.ads.shape == (48, 24)
    for name in ("ret", "pre"):
        assert made.sim.scorers[name].link == "exp" and made.sim.scorers[name].name == name
        line = made.lines[name]
        assert line["joint"] == "both" and line["epochs"] == 2 and line["loss"][-1] is not None
    section = made.training_section()["ret"]
    assert section["epochs"] == 2 and section["steps"][-1] > 0
    made.export(tmp_path / "models")
    assert {"ret.safetensors", "pre.safetensors"} <= {file.name for file in (tmp_path / "models").iterdir()}


def test_what_any_of_them_is_decides_what_all_of_them_are(tmp_path):
    plain = learn(tmp_path / "a", tmp_path / "cache", *JOINT)
    for number, told in enumerate(("models.pre.dims=5", "joint.both.options.k=2", "joint.both.epochs=3")):
        other = learn(tmp_path / f"o{number}", tmp_path / "cache", *JOINT, told)
        assert not same(weights(plain, "ret"), weights(other, "ret")), told


@pytest.mark.parametrize("objective", ["lcron", "rankflow"])
def test_together_they_hand_on_more_of_the_best_than_before(tmp_path, objective, seen):
    told = (f"joint.both.objective={objective}", "joint.both.epochs=12", "phases.shadow=200")
    if objective == "rankflow":
        told += ("joint.both.options={k: 3, quota: 6, positives: 3, negatives: 3}",)
    made = learn(tmp_path / "a", tmp_path / "cache", *JOINT, *told)
    parts = [lists["joint.both"] for *_, lists in seen if "joint.both" in lists]

    def recall(scorers):
        kept, n = 0, 0
        for (_, _, block, _), lists in zip(seen, parts, strict=True):
            served = [lists.log_bid + scorer.log_odds(block, lists.ads) for scorer in scorers]
            best = np.argsort(-lists.log_score, axis=1)[:, :3]
            ranks = [np.argsort(np.argsort(-score, axis=1), axis=1) for score in served]
            through = np.logical_and.reduce([np.take_along_axis(rank, best, 1) < 6 for rank in ranks])
            kept, n = kept + through.sum(), n + through.size
        return kept / n

    line = made.lines["ret"]["part_loss"]
    trained = recall([made.sim.scorers[name] for name in ("ret", "pre")])
    assert line[-1] < line[0] and trained > 0.45 > (6 / 24) ** 2 * 3


def test_the_same_models_by_themselves_learn_from_the_same_lists_in_the_same_steps(tmp_path, seen):
    alone = "recipe: arf, recipe_options: {order: false, k: 3, quota: 6, temperature: 10}, teacher: rank, "
    alone += "epochs: 2, batch: 240, validation: 0.2, features: [user, quality, tier, G1], "
    alone += "sample: {set: corpus, per_request: 24, pool: 60}"
    made = learn(tmp_path / "a", tmp_path / "cache", *JOINT, f"models.alone={{{alone}}}")
    (lists,) = [lists for *_, lists in seen]
    for name, column in lists["alone"].arrays().items():
        if name != "chunk":  # which neither looks at
            assert np.array_equal(column, lists["joint.both"].arrays()[name]), name
    assert made.lines["alone"]["steps"] == made.lines["ret"]["steps"]


def test_a_loss_of_a_section_that_is_no_number_stops_the_run_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "lcron", lambda scores, *rest, **options: scores[0].sum() * float("nan"))
    with refused("joint.both", "nan", "learning_rate"):
        learn(tmp_path / "a", tmp_path / "cache", *JOINT)


def test_a_held_cascade_keeps_the_arms_that_make_lists(tmp_path):
    scenario = tiny_scenario(*BEHIND)
    before = scenario_data(scenario)
    assert is_logged_alike(before, before) and logging_scenario(scenario, before) is None
    wider = tiny_scenario(*BEHIND, "arms.new.pre_ranking.size=20")
    assert not is_logged_alike(scenario_data(wider), before)
    held = logging_scenario(wider, before)
    assert held is not None and held.arms["new"].pre_ranking.size is None


def test_a_market_teaches_on_ads_of_the_corpus_and_on_what_its_own_retrieval_brings():
    for sample in ({"set": "corpus", "per_request": 10, "pool": 20}, {"set": "retrieved", "per_request": 10}):
        scenario = learning_scenario()
        pupil = scenario.models["pupil"]
        told = {"recipe": "infonce", "sample": pupil.sample.model_copy(update=sample)}
        models = {**scenario.models, "pupil": pupil.model_copy(update=told)}
        run = live_and_learn(learning_sim(scenario.model_copy(update={"models": models})), "taught")
        assert run.run.trainer.version == 3


def test_a_market_brings_the_teacher_of_a_teacher_and_refuses_models_of_joint_sections():
    scenario = learning_scenario()
    told = {"recipe": "rankflow", "teacher": "order", "recipe_options": {"quota": 8}}
    models = {**scenario.models, "pupil": scenario.models["pupil"].model_copy(update=told)}
    run = live_and_learn(learning_sim(scenario.model_copy(update={"models": models})), "taught")
    assert set(run.run.trainer._modules) == {"rank", "pupil", "order"}
    with refused("market.training", "'ret'", "'new'"):
        tiny_scenario(*JOINT, "market={training: {interval: 600}}")
