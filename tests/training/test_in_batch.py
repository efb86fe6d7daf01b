"""In-batch softmax in a study: from logged impressions to a scorer, its cache, its refusals, and markets."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.engines import open_engine
from cascade_sim.foundation.progress import Progress
from cascade_sim.market.dry_run import dry_run
from cascade_sim.models.training import Positives
from cascade_sim.storage.model_store import ModelStore
from cascade_sim.storage.tables import read_table
from cascade_sim.training import data, parallel
from worlds.learned import learn
from worlds.learning_market import learning_scenario, learning_sim, live_and_learn
from worlds.tiny_market import tiny_scenario

SEEN = "features: [user, quality, tier, G1], epochs: 2, batch: 256"


def model(text="", name="found"):
    return f"models.{name}={{recipe: in_batch, {SEEN}{text and ', '}{text}}}"


def state(made, name="found"):
    return made.modules[name].state_dict()


def same(one, other):
    return all(torch.equal(one[key], other[key]) for key in one)


def test_a_study_trains_it_on_clicks_once_and_seats_it_as_an_order(tmp_path, monkeypatch):
    told = (model("recipe_options: {uniform: 64}, validation: 0.2"), "phases.log=600")
    made = learn(tmp_path / "a", tmp_path / "cache", *told)
    scorer, line = made.sim.scorers["found"], made.lines["found"]
    assert scorer.link == "exp" and line["part_loss"][-1] < line["part_loss"][0]
    seen = []
    monkeypatch.setattr("cascade_sim.training.fit.train", lambda *given: seen.append(given))
    again = learn(tmp_path / "b", tmp_path / "cache", *told)
    assert same(state(made), state(again)) and seen == [] and again.lines == made.lines


def test_its_options_its_seed_and_its_bids_are_part_of_what_it_is(tmp_path):
    plain = learn(tmp_path / "a", tmp_path / "cache", model())
    for number, text in enumerate(("recipe_options: {log_q: false}", "recipe_options: {bid: false}")):
        other = learn(tmp_path / f"o{number}", tmp_path / "cache", model(text))
        assert not same(state(plain), state(other))


def test_positives_are_clicks_or_what_the_cascade_chose_to_show(study):
    log = {name: read_table(study.folder, name) for name in ("cold_start", "log")}
    columns = {key: np.concatenate([t[key] for t in log.values()]) for key in log["log"]}
    scenario = tiny_scenario(model())
    clicks = scenario.models["found"]
    shown = clicks.model_copy(update={"recipe_options": {"positives": "shown"}})
    bids = study.sim.platform.bids.init_bid
    for spec, keep in ((clicks, columns["click"]), (shown, ~columns["is_explored"])):
        found = data.positives("found", spec, study.folder, ["cold_start", "log"], bids)
        assert np.array_equal(found.ads, columns["ad"][keep])
        assert np.array_equal(found.request, columns["request"][keep])
        assert found.log_bid == pytest.approx(np.log(bids), rel=1e-6)
    with refused("'found'", "positives", "shown"):
        data.positives("found", shown, study.folder, ["cold_start"], bids)


def test_a_job_is_given_the_positives_as_they_are():
    rows = np.arange(3)
    given = Positives(rows, rows * 0.5, rows, rows, np.ones(4))
    back = parallel._samples(given.arrays())
    assert isinstance(back, Positives)
    assert all(np.array_equal(getattr(back, f.name), getattr(given, f.name)) for f in fields(Positives))


def test_a_process_of_its_own_trains_it_to_the_same_bytes(tmp_path, monkeypatch):
    here = learn(tmp_path / "a", tmp_path / "cache", model("recipe_options: {uniform: 16}"))
    task = here._task("found", data.positives(
        "found", here.sim.scenario.models["found"], here.logs, ["cold_start", "log"],
        here.sim.platform.bids.init_bid, here.sim.seed,
    ))  # fmt: skip
    monkeypatch.setattr(parallel, "shares", lambda samples, most: [[name] for name in samples])
    with Progress(quiet=True) as progress:
        left = parallel.train_ahead(
            [task], tmp_path / "a", ModelStore(tmp_path / "other"), open_engine(), 1, here.device, progress
        )
    assert left is not None and parallel.load_trained(left, task.key, task.module, task.spec) is not None
    assert same(state(here), task.module.state_dict())


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("kind: coaction", "models.found.kind in_batch towers encode_users encode_ads coaction"),
        ("kind: own.py:Half", "models.found.kind Half encode_ads"),
        ("objective: rcr", "models.found.objective in_batch logloss"),
        ("calibrator: platt", "models.found.calibrator in_batch logloss"),
        ("proxy_calibrator: platt", "models.found.proxy_calibrator in_batch"),
        ("target: conversion", "models.found.target in_batch"),
        ("teacher: rank", "models.found.teacher in_batch"),
        ("link: sigmoid", "models.found.link in_batch exp"),
        ("recipe_options: {log_q: 1}", "models.found.recipe_options.log_q true false 1"),
        ("recipe_options: {positives: seen}", "models.found.recipe_options.positives clicks shown 'seen'"),
        ("recipe_options: {uniform: 0.5}", "models.found.recipe_options.uniform integer 0.5"),
        ("data: [cold_start], recipe_options: {positives: shown}", "models.found.data log clicks"),
    ],
)
def test_what_it_cannot_be_is_refused_before_any_work(tmp_path, monkeypatch, text, facts):
    (tmp_path / "own.py").write_text(
        "from torch import nn\nclass Half(nn.Module):\n"
        "    def forward(self): ...\n    def encode_users(self): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    with refused(*facts.split()):
        tiny_scenario(model(text))


WHOLE = """
import torch
class Codes(torch.nn.Module):
    def __init__(self, request_width, ad_width, pair_width, dims=4):
        super().__init__()
        self.user, self.ad = torch.nn.Linear(request_width, dims), torch.nn.Linear(ad_width, dims)
    def encode_users(self, requests):
        return self.user(requests)
    def encode_ads(self, ads):
        return self.ad(ads)
    def forward(self, request, ads, pair):
        return torch.einsum("rd,rnd->rn", self.user(request), ads)
"""


def test_a_class_of_ones_own_with_two_codes_learns_by_it_and_one_that_hides_that_it_has_none_is_found(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(WHOLE)
    made = learn(tmp_path / "run", tmp_path / "cache", model("kind: own.py:Codes"))
    assert made.sim.scorers["found"].link == "exp" and len(made.lines["found"]["steps"]) > 2
    (tmp_path / "late.py").write_text(
        WHOLE.replace("encode_users", "encoded") + "\ndef same(cls):\n    return cls\nCodes = same(Codes)\n"
    )
    scenario = tiny_scenario(model("kind: late.py:Codes"))  # its text does not tell
    with refused("models.found", "in_batch", "encode_users"):
        dry_run(scenario)


def test_a_market_retrains_it_on_what_its_arm_has_shown():
    scenario = learning_scenario()
    told = {"recipe": "in_batch", "recipe_options": {"positives": "shown"}, "teacher": None}
    pupil = scenario.models["pupil"].model_copy(update=told)
    scenario = scenario.model_copy(update={"models": {**scenario.models, "pupil": pupil}})
    run = live_and_learn(learning_sim(scenario), "taught")
    assert run.run.trainer.version == 3 and run.run.trainer.arm.stages[0].scorer.link == "exp"
