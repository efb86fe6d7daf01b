import shutil
import sys

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.auction import floor_micros
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.serve import Block
from cascade_sim.foundation.errors import UserError
from cascade_sim.storage import code_version
from cascade_sim.storage.tables import read_table, tables
from cascade_sim.study import prepare as prepare_module
from cascade_sim.study.prepare import Preparation, deployed_arm, first, shadowed_arm
from cascade_sim.study.simulation import Simulation
from cascade_sim.training import data
from cascade_sim.training import fit as recipes
from worlds.learned import SHORT, learn
from worlds.learning_market import name_of
from worlds.tiny_market import tiny_scenario


@pytest.fixture
def trained(monkeypatch):
    """The names of the models that were really trained, in order, since the list was last cleared."""
    names = []

    def count(net, view, data, recipe, plan, *options):
        names.append(name_of(recipe))
        return real(net, view, data, recipe, plan, *options)

    real = recipes.train
    monkeypatch.setattr(recipes, "train", count)
    return names


NARROW = "[user, context, quality, tier, G1]"
PAIR = (
    "world.mismatch.weight=0",
    "models.rank.features=[user, context, quality, tier, G1, mismatch_pair]",
    *(f"models.{name}.features={NARROW}" for name in ("logloss", "ltr", "distill-pre")),
)
ALL = ["logloss", "logloss", "logloss", "logloss", "ltr", "distill"]  # two first deployments, then the four


def test_an_unchanged_recipe_is_not_trained_again(tmp_path, trained):
    one = learn(tmp_path / "a", tmp_path / "cache")
    assert trained == ALL
    trained.clear()
    again = learn(tmp_path / "b", tmp_path / "cache")
    assert trained == []
    assert again.lines == one.lines and set(one.lines) == set(one.modules)
    for name, net in one.modules.items():
        for key, value in net.state_dict().items():
            assert torch.equal(value, again.modules[name].state_dict()[key]), (name, key)


def test_slots_that_are_estimated_are_told_beside_the_truth_and_kept_with_the_model(tmp_path):
    section = "{features: [user, quality, G1], calibrator: platt, examination: estimated}"
    made = [
        learn(tmp_path / run, tmp_path / "cache", f"models.guessing={section}", "models.rank.validation=0.2")
        for run in "ab"
    ]
    assert made[0].training_section() == made[1].training_section()
    told = made[0].training_section()
    assert told["guessing"]["true_slot_effects"] == [1.0, 0.8, 0.6]
    estimated = told["guessing"]["slot_effects"]
    assert estimated[0] == 1 and all(0 < effect < 1 for effect in estimated[1:]) and len(estimated) == 3
    assert "slot_effects" not in told["rank"] and told["rank"]["validation"] == 0.2
    assert told["rank (first)"]["samples"] < told["rank"]["samples"]


def test_a_changed_recipe_or_changed_data_is_trained_again(tmp_path, trained):
    learn(tmp_path / "a", tmp_path / "cache")
    trained.clear()
    learn(tmp_path / "b", tmp_path / "cache", "models.ltr.chunks=3")
    assert trained == ["ltr"]
    trained.clear()
    learn(tmp_path / "c", tmp_path / "cache", "models.distill-pre.learning_rate=0.005")
    assert trained == ["distill"]
    trained.clear()
    learn(tmp_path / "d", tmp_path / "cache", "phases.log=201")
    assert trained == ALL[2:]  # the cold start is the same, and so are the first deployments
    trained.clear()
    learn(tmp_path / "e", tmp_path / "cache", seed=2)
    assert trained == ALL


def test_weights_of_another_kind_of_processor_are_not_taken(tmp_path, trained, monkeypatch):
    learn(tmp_path / "a", tmp_path / "cache")
    trained.clear()
    monkeypatch.setattr("cascade_sim.study.prepare.processor", lambda: {"torch": "of long ago"})
    learn(tmp_path / "b", tmp_path / "cache")
    assert trained != []


def test_a_pair_feature_with_another_threshold_is_another_feature(tmp_path, trained):
    """Without a weight in the truth the threshold leaves the cold-start log as it is, but not the ranker."""
    learn(tmp_path / "a", tmp_path / "cache", "world.mismatch.weight=0")
    trained.clear()
    learn(tmp_path / "b", tmp_path / "cache", "world.mismatch.weight=0", "world.mismatch.threshold=0.9")
    assert trained == ["logloss", *ALL[2:]]  # the first pre-ranker does not see the pair feature


def test_a_pair_feature_of_other_vectors_is_another_feature(tmp_path, trained):
    """Without a weight in the truth they leave the cold-start log as it is, and no model but the ranker."""
    learn(tmp_path / "a", tmp_path / "cache", *PAIR)
    trained.clear()
    learn(tmp_path / "b", tmp_path / "cache", *PAIR, "world.mismatch.dims=3")
    cold_starts = [read_table(tmp_path / run, "cold_start") for run in "ab"]
    assert all(np.array_equal(cold_starts[0][c], cold_starts[1][c]) for c in ("request", "ad", "click"))
    assert trained[0] == "logloss" and trained == ["logloss", *ALL[2:]]  # the first pre-ranker is not trained


def test_a_change_in_the_code_of_the_nets_or_the_training_is_trained_again(tmp_path, trained, monkeypatch):
    learn(tmp_path / "a", tmp_path / "cache")
    source = tmp_path / "source"
    shutil.copytree(code_version._FOLDERS["models"], source / "models")

    def digest(packages):
        assert packages == ("models",)
        files = sorted(source.rglob("*.py"))
        return code_version._digest({file.relative_to(source).as_posix(): file for file in files})

    monkeypatch.setattr(code_version, "source_digest", digest)
    trained.clear()
    learn(tmp_path / "b", tmp_path / "cache")
    assert trained == []  # the same files elsewhere
    with (source / "models" / "training.py").open("a") as file:
        file.write("# a change\n")
    learn(tmp_path / "c", tmp_path / "cache")
    assert trained == ALL


def test_the_phases_leave_a_log_each_and_a_scorer_for_every_model(study):
    assert {"cold_start", "log"} <= set(tables(study.folder))
    names = set(study.sim.scenario.models)
    assert names <= set(study.sim.scorers) and names <= set(study.preparation.modules)
    assert study.sim.scorers["ltr"].link == "exp" and study.sim.scorers["distill-pre"].link == "sigmoid"


def test_the_cold_start_is_random_and_the_log_explores_as_often_as_asked(study):
    log = {name: read_table(study.folder, name) for name in ("cold_start", "log")}
    assert log["cold_start"]["is_explored"].all()
    assert np.allclose(log["cold_start"]["propensity"], 1 / 60)
    explored = log["log"]["is_explored"].mean()
    assert explored == pytest.approx(0.2, abs=4.5 * np.sqrt(0.2 * 0.8 / 3000))
    assert set(np.bincount(log["log"]["request"] - log["log"]["request"].min())) == {3}


def test_an_explored_ad_is_logged_with_the_pctr_and_the_bid_of_the_deployed_ranker(study):
    """In the cold start the ranking seat is random and predicts nothing."""
    assert np.all(np.isnan(read_table(study.folder, "cold_start")["pctr"]))
    log = read_table(study.folder, "log")
    assert np.all(log["pctr"] > 0) and np.all(log["pctr"] < 1)
    explored = np.nonzero(log["is_explored"])[0]
    users, context = log["user"][explored], log["context"][explored]
    block = Block(log["request"][explored], users, context, log["time"][explored])
    ads = log["ad"][explored][:, None]
    ranker = study.sim.scorers["rank (first)"]
    assert log["pctr"][explored] == pytest.approx(ranker.predict(block, ads)[:, 0], rel=1e-4)
    bid = study.sim.platform.bids.bid("opt", block, ads, "ocpc", 0.4)[:, 0]
    assert log["bid"][explored] == pytest.approx(bid, rel=1e-12)
    assert len(explored) > 1000 and not np.allclose(bid, log["init_bid"][explored])


def test_an_explored_click_costs_the_reserve_or_the_rankers_bid_whichever_is_less(tmp_path):
    learn(tmp_path, tmp_path / "cache", "auction.reserve_cpc=1.1", "phases.exploration=0.5")
    log = read_table(tmp_path, "log")
    explored = log["is_explored"]
    price = np.minimum(1_100_000, floor_micros(log["bid"]))
    assert np.array_equal(log["cpc_micros"][explored], price[explored])
    assert (price[explored] == 1_100_000).any() and (price[explored] < 1_100_000).any()
    own = log["cpc_micros"][~explored]
    assert np.all(own >= 1_100_000) and np.all(own <= floor_micros(log["bid"][~explored]))


@pytest.mark.parametrize("model", ["distill-pre", "ltr"])
def test_a_student_may_sit_in_the_pre_ranking_of_the_deployed_cascade(tmp_path, model):
    """It writes the log as it was first deployed, trained by log loss, before it learns from the shadow."""
    found = learn(
        tmp_path, tmp_path / "cache", f"cascade.pre_ranking.model={model}", f"report.baseline={model}"
    )
    assert {model, first(model)} <= set(found.modules)
    deployed, shadowed = deployed_arm(found.sim), shadowed_arm(found.sim)
    assert deployed.stages[0].scorer is found.sim.scorers[first(model)]
    assert deployed.stages[0].scorer.link == "sigmoid"
    assert shadowed.stages[0].scorer is found.sim.scorers[model]  # now that it exists


@pytest.mark.parametrize("model", ["distill-pre", "ltr"])
def test_a_student_of_the_baseline_arm_alone_learns_from_the_deployed_cascades_candidates(tmp_path, model):
    scenario = tiny_scenario(*SHORT, f"report.baseline={model}", f"models.{model}.sample.set=competitive")
    sim = Simulation(scenario, scenario.seed)
    seen = []
    serve = sim.serve
    sim.serve = lambda block, arm: (seen.append(arm), serve(block, arm))[1]
    learn(tmp_path, tmp_path / "cache", sim=sim)
    (shadowed,) = {arm.stages[0].scorer.name for arm in seen if arm.name == "shadowed"}
    assert shadowed == "logloss" and model in sim.scorers
    arm = next(arm for arm in seen if arm.name == "shadowed")
    assert arm.stages[0].scorer is sim.scorers[first("logloss")]
    assert arm.last.scorer is sim.scorers["rank"]


def test_of_very_many_shadowed_requests_students_learn_from_a_sample(tmp_path, monkeypatch):
    scenario = tiny_scenario(*SHORT, "phases.shadow=300")
    sim, few = Simulation(scenario, scenario.seed), 30 * scenario.models["ltr"].sample.per_request
    n_served, serve = [], sim.serve
    monkeypatch.setattr(data, "MAX_LEARNED", few)
    sim.serve = lambda block, arm: (n_served.append((arm.name, len(block))), serve(block, arm))[1]
    taught, fit = {}, Preparation.train_model

    def noted(self, name, samples, **options):
        taught[name] = samples
        fit(self, name, samples, **options)

    monkeypatch.setattr(Preparation, "train_model", noted)
    learn(tmp_path, tmp_path / "cache", sim=sim)
    shadowed = sum(n for arm, n in n_served if arm == "shadowed")
    assert 10 < shadowed < 60 < scenario.phases.shadow  # about 30
    assert len(taught["ltr"].users) == len(taught["distill-pre"].users) == shadowed


def test_a_student_may_sit_in_the_ranking_stage_of_the_baseline(tmp_path):
    found = learn(tmp_path, tmp_path / "cache", "cascade.ranking.model=distill-pre")
    assert shadowed_arm(found.sim).last.scorer is found.sim.scorers["distill-pre"]
    assert deployed_arm(found.sim).last.scorer is found.sim.scorers[first("distill-pre")]


def test_the_log_is_written_by_the_deployed_cascade_with_its_own_fusion(tmp_path):
    scenario = tiny_scenario(
        "fusions={both: {pctr: 1.0, pcvr: 0.5, bid: 2.0}}",
        "cascade.pre_ranking.fusion=both", "cascade.ranking.fusion=both",
    )  # fmt: skip
    sim = Simulation(scenario, 1)
    arm = deployed_arm(sim)
    assert arm.stages[0].fusion == arm.last.fusion == Fusion(pctr=0.5, pcvr=0.25)
    assert arm.stages[0].scorer.name == "random"  # nothing is trained yet
    assert (arm.retrieval.size, arm.most_auctioned, arm.slots) == (60, 15, 3)


@pytest.mark.parametrize("phase", ["cold_start", "log"])
def test_a_phase_may_be_left_out(tmp_path, phase):
    overrides = [f"phases.{phase}=0", "models.logloss.data=[cold_start, log]"]
    found = learn(tmp_path, tmp_path / "cache", *overrides)
    assert phase not in tables(tmp_path)
    assert {"rank", "logloss", "ltr", "distill-pre"} <= set(found.modules)


OWN = """
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self, request_width, ad_width, pair_width, fault=""):
        super().__init__()
        self.layer, self.fault = nn.Linear(ad_width, 1), fault

    def forward(self, request, ads, pair):
        logit = self.layer(ads).squeeze(-1)
        if self.fault == "raise when served" and not self.training:
            raise RuntimeError("this page is not for me")
        if self.fault == "nan" or (self.fault == "nan when served" and not self.training):
            return logit * float("nan")
        return logit.sum(-1) if self.fault == "shape" else logit
"""


def own_model(tmp_path, fault):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return f"models.logloss={{kind: '{path}:Own', features: [quality, tier], options: {{fault: {fault}}}}}"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan", ["training", "'logloss (first)'", "epoch 1", "nan"]),
        ("shape", ["training", "'logloss (first)'", "returned shape"]),
        (
            "raise when served",
            [
                "model 'logloss'",
                "pre-ranking stage",
                "request 2000000000",
                "RuntimeError: this page",
            ],
        ),
        ("nan when served", ["model 'logloss'", "pre-ranking stage", "request 2000000000", "nan"]),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_model_of_ones_own_that_fails_stops_the_run_by_name(tmp_path, fault, words, workers):
    scenario = tiny_scenario(*SHORT, own_model(tmp_path, fault))
    with pytest.raises(UserError) as error:
        learn(tmp_path / "run", tmp_path / "cache", sim=Simulation(scenario, 1, workers))
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_model_of_ones_own_takes_part_and_is_kept(tmp_path, trained):
    own = own_model(tmp_path, "''")
    learn(tmp_path / "a", tmp_path / "cache", own)
    trained.clear()
    learn(tmp_path / "b", tmp_path / "cache", own)
    assert trained == []
    path = tmp_path / "own.py"
    path.write_text(OWN.replace("self.layer(ads)", "0.5 * self.layer(ads)"))
    learn(tmp_path / "c", tmp_path / "cache", own)
    assert "logloss" in trained  # its code has changed


def test_a_module_beside_ones_own_model_is_part_of_its_code(tmp_path, trained, monkeypatch):
    package = tmp_path / "nets_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "own.py").write_text(
        OWN.replace("import torch\n", "import torch\nfrom nets_of_mine import helper\n", 1)
    )
    (package / "helper.py").write_text("SCALE = 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = "models.logloss={kind: 'nets_of_mine.own:Own', features: [quality, tier], options: {fault: ''}}"
    learn(tmp_path / "a", tmp_path / "cache", own)
    trained.clear()
    learn(tmp_path / "b", tmp_path / "cache", own)
    assert trained == []
    (package / "helper.py").write_text("SCALE = 2.0\n")
    learn(tmp_path / "c", tmp_path / "cache", own)
    assert "logloss" in trained
    for name in [name for name in sys.modules if name.startswith("nets_of_mine")]:
        del sys.modules[name]


SEEN = "features: [user, context, quality, tier, mismatch, G1, G2, G3], dims: 6, hidden: 16"
LOGLOSS = f"{SEEN}, data: [log], epochs: 2"
DISTILL = f"{SEEN}, recipe: distill, teacher: rank, sample: {{set: pre_ranking, per_request: 30}}"
HELD = (
    f"models.logloss-held={{{LOGLOSS}, proxy_calibrator: isotonic, held_out: 0.5}}",
    f"models.distill-held={{{DISTILL}, proxy_calibrator: isotonic, held_out: 0.4}}",
)


def weights(preparation, name):
    return torch.cat([value.flatten() for value in preparation.modules[name].state_dict().values()])


def test_a_model_held_to_its_ranker_is_the_same_net_with_a_rising_map_to_the_rankers_level(tmp_path):
    made = learn(tmp_path / "a", tmp_path / "cache", *HELD, "phases.shadow=200", "phases.log=1000")
    sim = made.sim
    block = sim.arrivals.block("evaluate", 0, 128)
    ids = sim.serve(block, shadowed_arm(sim)).retrieved
    ranker = sim.scorers["rank"].predict(block, ids)
    for plain, held in (("logloss", "logloss-held"), ("distill-pre", "distill-held")):
        assert torch.equal(weights(made, plain), weights(made, held))
        before, after = (sim.scorers[name].predict(block, ids).astype(float) for name in (plain, held))
        order = np.argsort(before, axis=None)
        assert np.diff(after.ravel()[order]).min() >= -1e-6
        assert abs(after.mean() / ranker.mean() - 1) < 0.1  # on requests that nobody learned from
        assert after.mean() != pytest.approx(before.mean(), rel=0.01)
    bid = sim.platform.bids.init_bid[ids]
    fused = [np.argsort(-sim.scorers[name].predict(block, ids) * bid) for name in ("logloss", "logloss-held")]
    assert not np.array_equal(*fused)  # a map that keeps the order of pCTR changes that of bid * pCTR


def test_what_holds_a_model_to_its_ranker_is_kept_from_every_student(tmp_path, monkeypatch):
    given = {}
    real = prepare_module.shadow_lists

    def look(sim, arms, wave, block):
        learned, apart = real(sim, arms, wave, block)
        for side, by_model in (("learned", learned), ("apart", apart)):
            for name, lists in by_model.items():
                given.setdefault((side, name), []).append(len(lists.users))
        return learned, apart

    monkeypatch.setattr(prepare_module, "shadow_lists", look)
    learn(tmp_path / "a", tmp_path / "cache", *HELD, "phases.shadow=200")
    counts = {key: sum(parts) for key, parts in given.items()}
    students = {counts["learned", name] for name in ("ltr", "distill-pre", "distill-held")}
    assert len(students) == 1  # all learn from the same requests
    assert students.pop() + counts["apart", "logloss-held"] == 200
    spread = 4 * np.sqrt(200 * 0.25)
    assert abs(counts["apart", "logloss-held"] - 0.5 * 200) < spread
    assert abs(counts["apart", "distill-held"] - 0.4 * 200) < spread


def test_a_scenario_in_which_nothing_is_held_to_a_ranker_learns_as_before(tmp_path):
    plain = learn(tmp_path / "a", tmp_path / "cache")
    again = learn(tmp_path / "b", tmp_path / "other", "models.ltr.chunking=halving")
    assert all(torch.equal(weights(plain, name), weights(again, name)) for name in plain.modules)
    text = plain.sim.scenario.model_dump_json()
    assert "chunking" not in text and "proxy_calibrator" not in text


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["models.ltr.proxy_calibrator=isotonic"], "learns an order"),
        (["models.rank.proxy_calibrator=isotonic"], "the model ranks"),
        (["models.logloss.proxy_calibrator=platt", "models.logloss.calibrator=platt"], "already"),
        (["models.distill-pre.held_out=0.2"], "has no meaning"),
        (["models.distill-pre.chunking=exposed"], "models.distill-pre.chunking=exposed: distill ltr"),
        (["models.ltr.chunking=exposed", "models.ltr.sample.per_request=6"], "7"),
        (
            ["models.ltr.chunking=quantiles", "models.ltr.chunks=200", "models.ltr.sample.per_request=300"],
            "127",
        ),
        (["models.logloss.proxy_calibrator=platt", "cascade.ranking.model=truth"], "no logloss model"),
    ],
)
def test_chunks_and_maps_that_mean_nothing_are_refused(overrides, words):
    with refused(*words.split()):
        tiny_scenario(*overrides)
