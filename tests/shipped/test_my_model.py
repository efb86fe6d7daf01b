"""The template of a user's own model: it is checked, run, measured and traced like a built-in one."""

import json

import pytest
import torch

from cascade_sim.cli import main
from cascade_sim.training.modules import find_class
from places import ROOT
from worlds.tiny_market import TINY

KIND = "scenarios/my_model.py:CrossedTowers"
SCENARIO = "scenarios/my_model.yaml"


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_template_passes_every_check(capsys):
    assert main(["check-model", KIND, "--features", "user,context,tier,mismatch_pair,G1", "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {check["check"]: check["status"] for check in checks if check["status"] != "ok"} == {}


def test_the_template_is_a_dot_product_when_its_net_is_silent():
    model = find_class(KIND)(2, 2, 0, dims=1, hidden=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.request_side.weight[0, 0] = 3.0  # u = 3 * first request feature
        model.ad_side.weight[0, 0] = 2.0  # a = 2 * first ad feature
        model.bias.fill_(0.5)
        request, ads = torch.tensor([[1.0, 0.0]]), torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
        logit = model(request, model.encode_ads(ads), torch.zeros(1, 2, 0))
    assert logit.tolist() == [[3 * 2 + 0.5, 3 * -2 + 0.5]]


@pytest.mark.drill
def test_the_template_goes_through_a_whole_study_and_its_pages_can_be_traced(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("cascade_sim.study.run.write_report", lambda *_: None)
    out = str(tmp_path / "run")
    words = [word for change in TINY for word in ("--set", change)]
    assert main(["run", SCENARIO, "--out", out, "--workers", "1", "--quiet", *words]) == 0
    arms = json.loads((tmp_path / "run" / "metrics.json").read_text())["arms"]
    # Worse than the ranker in its seat, better than chance: it has learned from clicks, and from the ranker.
    for name in ("mine", "mine-distilled"):
        assert arms["random"]["rcs"]["value"] < arms[name]["rcs"]["value"] < arms["ranker"]["rcs"]["value"]
    capsys.readouterr()
    assert main(["trace", out, "--request", "130", "--ad", "1", "--arm", "mine", "--json", "--trust"]) == 0
    assert json.loads(capsys.readouterr().out)["same_as_log"] is True


# The template as it is laid down, but for what does not touch the pre-rankers.
AS_LAID_DOWN = ("market=null", "phases.evaluate=512", "report.resamples=20", "report.detail_requests=8")


@pytest.mark.drill
def test_the_distilled_model_of_the_template_is_far_from_chance(tmp_path, monkeypatch):
    monkeypatch.setattr("cascade_sim.study.run.write_report", lambda *_: None)
    words = [word for change in AS_LAID_DOWN for word in ("--set", change)]
    assert main(["run", SCENARIO, "--out", str(tmp_path / "run"), "--workers", "1", "--quiet", *words]) == 0
    arms = json.loads((tmp_path / "run" / "metrics.json").read_text())["arms"]
    rcs = {name: arms[name]["rcs"]["value"] for name in ("random", "mine", "mine-distilled")}
    assert rcs["mine-distilled"] > rcs["mine"] > 1.5 * rcs["random"]
    assert rcs["mine-distilled"] > 2.5 * rcs["random"]
