import numpy as np
import pytest
import torch
from tiny_market import tiny_scenario

from cascade_sim import experiment as module
from cascade_sim.errors import UserError
from cascade_sim.experiment import Experiment
from cascade_sim.fusion import Fusion
from cascade_sim.model_store import ModelStore
from cascade_sim.progress import Progress
from cascade_sim.records import read_table, tables
from cascade_sim.simulation import Simulation

SHORT = ("phases.bootstrap=300", "phases.log=400", "phases.shadow=80")


@pytest.fixture
def trained(monkeypatch):
    """The names of the models that were really trained, in order, since the list was last cleared."""
    names = []

    def count(net, view, data, recipe, **settings):
        names.append(recipe)
        return real(net, view, data, recipe, **settings)

    real = module.train
    monkeypatch.setattr(module, "train", count)
    return names


def learn(folder, cache, *overrides, seed=None, sim=None):
    scenario = tiny_scenario(*SHORT, *overrides, seed=seed)
    sim = sim or Simulation(scenario, scenario.seed)
    with Progress(quiet=True) as progress:
        experiment = Experiment(sim, folder, ModelStore(cache), progress, torch.device("cpu"))
        experiment.run()
    return experiment


ALL = ["logloss", "logloss", "logloss", "logloss", "ltr", "distill"]  # two first deployments, then the four


def test_an_unchanged_recipe_is_not_trained_again(tmp_path, trained):
    first = learn(tmp_path / "a", tmp_path / "cache")
    assert trained == ALL
    trained.clear()
    again = learn(tmp_path / "b", tmp_path / "cache")
    assert trained == []
    for name, net in first.modules.items():
        for key, value in net.state_dict().items():
            assert torch.equal(value, again.modules[name].state_dict()[key]), (name, key)


def test_a_changed_recipe_or_changed_data_is_trained_again(tmp_path, trained):
    learn(tmp_path / "a", tmp_path / "cache")
    trained.clear()
    learn(tmp_path / "b", tmp_path / "cache", "models.ltr.chunks=3")
    assert trained == ["ltr"]
    trained.clear()
    learn(tmp_path / "c", tmp_path / "cache", "models.distill-pre.learning_rate=0.005")
    assert trained == ["distill"]
    trained.clear()
    learn(tmp_path / "d", tmp_path / "cache", "phases.log=401")
    assert trained == ALL[2:]  # the bootstrap is the same, and so are the first deployments
    trained.clear()
    learn(tmp_path / "e", tmp_path / "cache", seed=2)
    assert trained == ALL


def test_a_pair_feature_with_another_threshold_is_another_feature(tmp_path, trained):
    """Without a weight in the truth the threshold leaves the bootstrap log as it is, but not the ranker."""
    learn(tmp_path / "a", tmp_path / "cache", "world.mismatch.weight=0")
    trained.clear()
    learn(tmp_path / "b", tmp_path / "cache", "world.mismatch.weight=0", "world.mismatch.threshold=0.9")
    assert trained == ["logloss", *ALL[2:]]  # the first pre-ranker does not see the pair feature


def test_the_phases_leave_a_log_each_and_a_scorer_for_every_model(study):
    assert {"bootstrap", "log"} <= set(tables(study.folder))
    names = set(study.sim.scenario.models)
    assert names <= set(study.sim.scorers) and names <= set(study.experiment.modules)
    assert study.sim.scorers["ltr"].link == "exp" and study.sim.scorers["distill-pre"].link == "sigmoid"


def test_the_bootstrap_is_random_and_the_log_explores_as_often_as_asked(study):
    log = {name: read_table(study.folder, name) for name in ("bootstrap", "log")}
    assert log["bootstrap"]["is_explored"].all()
    assert np.allclose(log["bootstrap"]["propensity"], 1 / 60)
    explored = log["log"]["is_explored"].mean()
    assert explored == pytest.approx(0.2, abs=4.5 * np.sqrt(0.2 * 0.8 / 3000))
    assert set(np.bincount(log["log"]["request"] - log["log"]["request"].min())) == {3}


def test_an_explored_ad_is_logged_without_a_prediction(study):
    log = read_table(study.folder, "log")
    assert np.array_equal(np.isnan(log["pctr"]), log["is_explored"])
    assert np.all(log["pctr"][~log["is_explored"]] > 0)


def test_no_logged_price_exceeds_the_bid_or_an_explored_ones_init_bid(tmp_path):
    learn(tmp_path, tmp_path / "cache", "auction.reserve_cpc=1.1", "phases.exploration=0.5")
    log = read_table(tmp_path, "log")
    explored = log["is_explored"]
    limit = np.where(explored, log["init_bid"], 1.4 * log["init_bid"])
    assert np.all(log["cpc_micros"] <= np.ceil(limit * 1e6))
    assert np.all(log["cpc_micros"][~explored] >= 1_100_000)


def test_the_log_is_written_by_the_deployed_cascade_with_its_own_fusion(tmp_path):
    scenario = tiny_scenario(
        "fusions={both: {pctr: 1.0, pcvr: 0.5, bid: 2.0}}",
        "cascade.pre_ranking.fusion=both", "cascade.ranking.fusion=both",
    )  # fmt: skip
    sim = Simulation(scenario, 1)
    with Progress(quiet=True) as progress:
        arm = Experiment(sim, tmp_path, ModelStore(tmp_path), progress, torch.device("cpu"))._deployed(True)
    assert arm.pre_ranking.fusion == arm.ranking.fusion == Fusion(pctr=0.5, pcvr=0.25)
    assert arm.pre_ranking.scorer.name == "random"  # nothing is trained yet
    assert (arm.retrieval_size, arm.pre_ranking_size, arm.slots) == (60, 15, 3)


@pytest.mark.parametrize("phase", ["bootstrap", "log"])
def test_a_phase_may_be_left_out(tmp_path, phase):
    overrides = [f"phases.{phase}=0", "models.logloss.data=[bootstrap, log]"]
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
        ("nan", ["training of model 'logloss (first)'", "loss of epoch 1 is nan"]),
        ("shape", ["training of model 'logloss (first)'", "returned shape"]),
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
