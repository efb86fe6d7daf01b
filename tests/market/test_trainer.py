"""The trainer of a market: what it learns from, what it deploys, and whom it leaves alone."""

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.market.trainer import NoTrainer, Trainer, make_trainer
from cascade_sim.scenario.schema import resolved_arms
from worlds.learning_market import equal, learning_scenario, learning_sim, live_and_learn, watch, weights
from worlds.timed_market import same

WINDOW = 60.0
DEPLOYED = [540.0, 1020.0, 1500.0]  # the first ends of windows at or after 500, 1000 and 1500 seconds


@pytest.fixture(scope="module")
def finished():
    return live_and_learn(learning_sim(learning_scenario()), "exploring")


def new_trainer(arm="now", **training):
    sim = learning_sim(learning_scenario(**training))
    return Trainer(sim, sim.arm(arm, resolved_arms(sim.scenario)[arm]), sim.scenario.market.training)


def test_models_are_redeployed_at_the_first_end_of_a_window_after_each_is_due(finished):
    log = finished.log
    assert finished.metrics["learning"]["time"] == [0.0, *DEPLOYED, 1728.0]
    assert finished.metrics["learning"]["version"] == [0, 1, 2, 3, 3]  # the last one stays to the end
    assert np.array_equal(log["model_version"], np.searchsorted(DEPLOYED, log["time"], side="right"))
    assert set(log["model_version"]) == {0, 1, 2, 3}


def test_the_logged_prediction_is_that_of_the_deployed_model(monkeypatch):
    seen = watch(monkeypatch)
    found = live_and_learn(learning_sim(learning_scenario()))
    assert len(seen.arms) == 4
    for piece in found.settled[::7]:
        shown = piece.ads >= 0
        scorer = seen.arms[piece.model_version[0]].last.scorer
        again = scorer.predict(piece.block, piece.ads)
        assert piece.prediction[shown] == pytest.approx(again[shown], rel=1e-5)
        if piece.model_version[0] > 0:
            older = seen.arms[0].last.scorer.predict(piece.block, piece.ads)
            assert np.abs(older[shown] - again[shown]).max() > 1e-3


def test_a_deployment_learns_from_the_pages_of_its_history_and_clicks_that_have_arrived(monkeypatch):
    seen = watch(monkeypatch)
    log = live_and_learn(learning_sim(learning_scenario())).log
    fits = seen.of("logloss")
    assert len(fits) == 2 * 3  # ranker and pre-ranker, three times
    for i, now in enumerate(DEPLOYED):
        rows = (log["time"] > now - 800.0) & (log["time"] <= now)
        for _, data, _, _ in fits[2 * i : 2 * i + 2]:
            assert np.array_equal(data.ads, log["ad"][rows])
            assert np.array_equal(data.examination, log["examination"][rows])
            known = log["click"][rows] & (log["click_time"][rows] <= now)
            assert np.array_equal(data.click, known.astype(np.float32))
            assert 0 < known.sum() < log["click"][rows].sum()  # some are under way


def test_a_warm_start_goes_on_from_the_deployed_weights(monkeypatch):
    seen = watch(monkeypatch)
    sim = learning_sim(learning_scenario())
    before = weights(sim.scorers["rank"].module)
    live_and_learn(sim)
    ranker = seen.of("logloss")[0::2]
    assert [plan.warm_start for _, _, plan, _ in ranker] == [True] * 3
    assert equal(ranker[0][3], before)
    for i in (1, 2):
        assert equal(ranker[i][3], weights(seen.arms[i].last.scorer.module))
        assert not equal(ranker[i][3], before)


def test_models_of_a_market_are_trained_on_the_device_of_the_run(monkeypatch):
    seen = watch(monkeypatch)
    sim = learning_sim(learning_scenario())
    sim.device = torch.device("cpu", 0)  # equal to no other device
    live_and_learn(sim)
    assert {str(plan.device) for _, _, plan, _ in seen.of("logloss")} == {"cpu:0"}


def test_a_cold_start_begins_with_fresh_weights_each_time(monkeypatch):
    seen = watch(monkeypatch)
    live_and_learn(learning_sim(learning_scenario(warm_start=False)))
    ranker = seen.of("logloss")[0::2]
    assert [plan.warm_start for _, _, plan, _ in ranker] == [False] * 3
    assert not any(equal(ranker[i][3], weights(seen.arms[i].last.scorer.module)) for i in (0, 1, 2))
    assert not equal(ranker[0][3], ranker[1][3])  # weights belong to the version


def test_a_launch_knows_nothing_of_the_models_of_the_study(monkeypatch):
    seen = watch(monkeypatch)
    sim = learning_sim(learning_scenario(start_from="random"))
    one = live_and_learn(sim)
    ranker = seen.of("logloss")[0::2]
    assert not equal(ranker[0][3], weights(sim.scorers["rank"].module))
    assert [plan.warm_start for _, _, plan, _ in ranker] == [False, True, True]
    with torch.no_grad():
        for name in ("rank", "pre"):
            for parameter in sim.scorers[name].module.parameters():
                parameter.fill_(0.1)
    again = live_and_learn(sim)
    for finished in (
        one,
        again,
    ):  # what is measured on the pages of the study's baseline, which are others now
        for table in finished.metrics["learning"]["panel"]:
            del table["auc_on_page"], table["pooled_page_auc"]
    same(one, again)


def test_the_students_learn_from_the_teacher_that_was_just_trained(monkeypatch):
    from cascade_sim.cascade.serve import Block

    seen = watch(monkeypatch)
    live_and_learn(learning_sim(learning_scenario()), "taught")
    lessons = seen.of("distill")
    assert len(lessons) == 3
    for version, (_, data, _, _) in enumerate(lessons, start=1):
        assert data.ads.shape == (200, 10)
        block = Block(np.arange(len(data.users)), data.users, data.context, np.zeros(len(data.users)))
        told = seen.arms[version].last.scorer.logit(block, data.ads)
        assert data.teacher_logit == pytest.approx(told, abs=1e-4)
        earlier = seen.arms[version - 1].last.scorer.logit(block, data.ads)
        assert np.abs(data.teacher_logit - earlier).mean() > 0.01


def test_a_student_of_the_order_is_refreshed_too(monkeypatch):
    seen = watch(monkeypatch)
    live_and_learn(learning_sim(learning_scenario(lists=50)), "ordered")
    assert [data.chunk.shape for _, data, _, _ in seen.of("ltr")] == [(50, 16)] * 3


def test_arms_own_their_models():
    sim = learning_sim(learning_scenario())
    before = {name: weights(sim.scorers[name].module) for name in ("rank", "pre")}
    one = live_and_learn(sim)
    live_and_learn(sim, "exploring")
    assert all(equal(before[name], weights(sim.scorers[name].module)) for name in before)
    same(one, live_and_learn(sim))


def test_the_number_of_workers_changes_no_bit(finished):
    same(finished, live_and_learn(learning_sim(learning_scenario()), "exploring", workers=3))


def test_an_arm_explores_as_much_as_it_says(finished):
    by_request = dict(zip(finished.log["request"], finished.log["is_explored"], strict=True))
    share = np.mean(list(by_request.values()))
    assert abs(share - 0.3) < 4 * np.sqrt(0.3 * 0.7 / len(by_request))
    assert finished.metrics["learning"]["exploration"] == 0.3


def test_a_model_in_both_seats_is_one_model(monkeypatch):
    seen = watch(monkeypatch)
    found = live_and_learn(learning_sim(learning_scenario()), "twice")
    assert len(seen.calls) == 3 and found.run.server.arm.stages[0].scores_like(found.run.server.arm.last)
    assert found.metrics["learning"]["panel"][-1]["recall"] != found.metrics["learning"]["panel"][0]["recall"]


def test_without_impressions_the_models_stay():
    trainer = new_trainer()
    arm = trainer.arm
    trainer.train(540.0)
    assert (trainer.version, trainer.due, trainer.arm) == (0, 1000.0, arm)


def test_a_training_that_fails_names_the_model_and_the_deployment(monkeypatch):
    def fails(*arguments, **options):
        raise ValueError("the loss of epoch 1 is nan: lower learning_rate")

    monkeypatch.setattr("cascade_sim.training.fit.train", fails)
    with refused("deployment 1", "'rank'", "epoch 1", "learning_rate"):
        live_and_learn(learning_sim(learning_scenario()))


def test_a_trainer_goes_on_from_its_state(finished):
    other = new_trainer("exploring")
    other.restore(finished.run.trainer.state())
    own = finished.run.trainer
    assert (other.version, other.due) == (3, 2000.0)
    assert other.metrics(1728.0)["panel"] == own.metrics(1728.0)["panel"]
    assert equal(weights(other.arm.last.scorer.module), weights(own.arm.last.scorer.module))
    assert other.recent.state()["request"].tolist() == own.recent.state()["request"].tolist()


def test_models_with_ids_learn_of_the_ads_that_were_shown_and_go_on_from_their_state():
    """The pre-ranker, of log loss, has no row of an ad that was not shown to learn from."""
    scenario = learning_scenario()
    ids = {name: (*spec.features, "ad_id", "user_id") for name, spec in scenario.models.items()}
    models = {name: spec.model_copy(update={"features": ids[name]}) for name, spec in scenario.models.items()}
    sim = learning_sim(scenario.model_copy(update={"models": models}))
    before = weights(sim.scorers["pre"].module)["id_tables.rows.ad_id"]
    finished = live_and_learn(sim, "now")
    after = weights(finished.run.trainer.arm.stages[0].scorer.module)["id_tables.rows.ad_id"]
    shown = set(finished.log["ad"][finished.log["time"] <= DEPLOYED[-1]].tolist())
    assert set(np.nonzero((before != after).any(axis=1))[0].tolist()) == shown
    other = Trainer(sim, sim.arm("now", resolved_arms(sim.scenario)["now"]), sim.scenario.market.training)
    other.restore(finished.run.trainer.state())
    assert equal(weights(other.arm.last.scorer.module), weights(finished.run.trainer.arm.last.scorer.module))
    taught = live_and_learn(sim, "taught")
    assert taught.metrics["learning"]["version"][-1] == 3


def test_a_market_without_training_keeps_nothing():
    sim = learning_sim(learning_scenario())
    arm = sim.arm("now", resolved_arms(sim.scenario)["now"])
    trainer = make_trainer(sim, arm, None)
    assert isinstance(trainer, NoTrainer) and trainer.arm is arm
    assert trainer.state() == {} and trainer.metrics(1.0) is None and trainer.due == np.inf
