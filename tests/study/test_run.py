import json

import pytest

from cascade_sim.cli import main
from cascade_sim.context import RunContext
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.workers import run_jobs
from cascade_sim.scenario.file import load_scenario
from cascade_sim.storage.code_version import source_digest
from cascade_sim.storage.environment import processor
from cascade_sim.storage.folder import RunFolder, read_manifest
from cascade_sim.storage.tables import tables
from cascade_sim.study import run as study_module
from cascade_sim.study.run import run_study, run_world
from worlds.pool_jobs import in_this_process
from worlds.tiny_market import QUICK, TINY, tiny_scenario

SHORT = (
    *("phases.cold_start=150", "phases.log=150", "phases.shadow=60", "phases.evaluate=120"),
    *("report.resamples=10", "report.detail_requests=50"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole run with its report, but for the figures."""
    out = tmp_path_factory.mktemp("run") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cascade_sim.analysis.report.page.draw_all", lambda metrics: {})
        patch.setenv("CASCADE_SIM_CACHE", str(out.parent / "cache"))
        metrics = run_study(tiny_scenario(*SHORT), RunContext(out, device="cpu"))
    return out, metrics


def test_a_run_folder_has_everything_a_reader_needs(run):
    out, metrics = run
    assert json.loads((out / "metrics.json").read_text()) == metrics
    for name in ("scenario.yaml", "manifest.json", "metrics.csv", "report.html"):
        assert (out / name).stat().st_size > 100, name
    models = {path.name for path in (out / "models").iterdir()}
    deployed = ("rank (first)", "logloss (first)")  # those that wrote the log
    assert models == {f"{name}.safetensors" for name in ("rank", "logloss", "ltr", "distill-pre", *deployed)}
    expected = {"cold_start", "log", "shadow", "service-logloss", "evaluate-logloss", "evaluate-random"}
    expected |= {"cold_start-requests", "log-requests"}
    assert expected <= set(tables(out))


def test_a_run_says_what_each_arm_s_ads_had_to_bid(run):
    out, metrics = run
    found = metrics["critical_bids"]
    assert found["requests"] == 120 and set(found["arms"]) == set(metrics["arms"])  # all there are
    assert found["arms"]["ranker"]["with_gap"]["value"] == 0.0 < found["arms"]["logloss"]["with_gap"]["value"]
    assert '<section id="critical-bids">' in (out / "report.html").read_text()


def test_the_manifest_says_that_the_run_is_complete_and_how_to_repeat_it(run):
    out, metrics = run
    manifest = read_manifest(out)
    assert manifest["status"] == "complete" and manifest["seed"] == 1
    assert manifest["scenario_hash"] == metrics["scenario_hash"]
    assert {"python", "torch", "numpy"} <= set(manifest["packages"])
    assert manifest["processor"] == processor() and {"model", "torch", "numba"} <= set(manifest["processor"])
    assert (manifest["device"], manifest["workers"]) == ("cpu", 1)
    assert len(manifest["code"]) == 16 and manifest["code"] == source_digest()
    assert {"cold_start: serve", "train rank", "evaluate", "total"} <= set(manifest["seconds"])


def test_the_resolved_scenario_of_a_run_can_be_run_again(run):
    out, metrics = run
    again = load_scenario(out / "scenario.yaml")
    assert again == tiny_scenario(*SHORT)


@pytest.mark.drill
def test_several_worlds_are_run_each_in_a_process_and_a_folder_of_its_own_and_combined(tmp_path, monkeypatch):
    """However many processes there are."""
    monkeypatch.setattr("cascade_sim.study.run.write_report", lambda *_: None)
    scenario = tiny_scenario(*PLAIN)
    for out, workers, jobs in (("out", 1, in_this_process), ("two", 2, run_jobs)):
        monkeypatch.setenv("CASCADE_SIM_CACHE", str(tmp_path / f"cache-{out}"))
        monkeypatch.setattr("cascade_sim.engines.local.run_jobs", jobs)
        metrics = run_study(scenario, RunContext(tmp_path / out, workers=workers, device="cpu"), seeds=2)
    for name in ("metrics.json", "seed-1/metrics.json", "seed-2/metrics.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    assert read_manifest(tmp_path / "two")["workers"] == 2
    assert metrics["seeds"] == {"n": 2, "seeds": [1, 2]}
    own = [json.loads((tmp_path / "out" / f"seed-{s}" / "metrics.json").read_text()) for s in (1, 2)]
    assert [world["seed"] for world in own] == [1, 2]
    values = [world["arms"]["now"]["rcs"]["value"] for world in own]
    assert values[0] != values[1]
    assert metrics["arms"]["now"]["rcs"]["value"] == pytest.approx(sum(values) / 2)
    assert read_manifest(tmp_path / "out" / "seed-2")["status"] == "complete"


def test_a_run_that_fails_is_not_left_as_complete(tmp_path):
    with pytest.raises(UserError, match="--device: .*'mps'|--device: .*'cuda'"):
        import torch

        missing = "mps" if torch.cuda.is_available() or not torch.backends.mps.is_available() else "cuda"
        run_study(tiny_scenario(*SHORT), RunContext(tmp_path / "out", device=missing))
    assert read_manifest(tmp_path / "out")["status"] == "running"
    assert not (tmp_path / "out" / "metrics.json").exists()


RAISES = """
import torch


class Own(torch.nn.Module):
    def __init__(self, request_width, ad_width, pair_width):
        super().__init__()
        self.layer = torch.nn.Linear(ad_width, 1)

    def forward(self, request, ads, pair):
        if not self.training and len(request) > 3:  # on the toy of the dry run all goes well
            raise RuntimeError("this page is not for me")
        return self.layer(ads).squeeze(-1)
"""


@pytest.mark.parametrize("stage", ["pre-ranking", "ranking"])
def test_a_users_model_that_raises_ends_the_command_with_a_message_and_no_traceback(tmp_path, capfd, stage):
    # Wording: the error's own words come through as they are.
    file = tmp_path / "own.py"
    file.write_text(RAISES)
    changes = [*TINY, *SHORT, f"models.mine={{kind: '{file}:Own', features: [quality, tier]}}"]
    changes.append(f"cascade.{stage.replace('-', '_')}.model=mine")
    options = [part for change in changes for part in ("--set", change)]
    where = ["--out", str(tmp_path / "out"), "--device", "cpu", "--quiet"]
    assert main(["run", str(QUICK), *options, *where]) == 2
    text = capfd.readouterr().err
    words = ["error: arm 'deployed'", f"{stage} stage", "model 'mine'", "request 2000000000"]
    assert all(word in text for word in [*words, "RuntimeError: this page is not for me"]), text
    assert "Traceback" not in text and text.count("\n") == 1
    assert read_manifest(tmp_path / "out")["status"] == "running"


# Worlds of several: no model is trained, so they are quick.
PLAIN = (
    *("phases.cold_start=128", "phases.log=128", "phases.shadow=0", "phases.evaluate=128"),
    *("report.resamples=5", "report.detail_requests=4", "report.baseline=now", "models={}"),
    *("cascade.pre_ranking.model=random", "cascade.ranking.model=truth", "arms={now: {}}"),
)


def test_a_world_that_is_complete_is_taken_as_it_is_unless_it_is_another_run(tmp_path, monkeypatch):
    scenario, out = tiny_scenario(*PLAIN), tmp_path / "seed-1"
    metrics = run_world(scenario, out, "cpu", keep_logs=False)
    assert not (out / "logs").exists() and not (out / "checkpoints").exists()
    stamp = (out / "metrics.json").stat().st_mtime_ns
    assert run_world(scenario, out, "cpu", keep_logs=False) == metrics
    assert (out / "metrics.json").stat().st_mtime_ns == stamp
    monkeypatch.setattr("cascade_sim.study.run.source_digest", lambda: "another version")
    assert run_world(scenario, out, "cpu", keep_logs=False) == metrics
    assert (out / "metrics.json").stat().st_mtime_ns > stamp
    assert read_manifest(out)["code"] == "another version"


@pytest.fixture(scope="module")
def plain_world(tmp_path_factory):
    """The metrics of a world that nothing stopped, and its folder."""
    folder = tmp_path_factory.mktemp("plain") / "whole"
    return run_world(tiny_scenario(*PLAIN), folder, "cpu", keep_logs=False), folder


@pytest.mark.drill
@pytest.mark.parametrize("last_done", ["_write_tables", "remove_logs", "remove_checkpoints"])
def test_a_world_stopped_at_the_end_of_its_way_goes_on(plain_world, tmp_path, monkeypatch, last_done):
    """Its logs may be gone already, or its marks still be there."""
    scenario, out = tiny_scenario(*PLAIN), tmp_path / "seed-1"
    whole, its_folder = plain_world
    place = study_module if last_done == "_write_tables" else RunFolder
    real = getattr(place, last_done)

    def stop(*arguments):
        if last_done != "remove_checkpoints":
            real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, last_done, stop)
        with pytest.raises(KeyboardInterrupt):
            run_world(scenario, out, "cpu", keep_logs=False)
    assert run_world(scenario, out, "cpu", keep_logs=False) == whole
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in its_folder.iterdir())
    assert read_manifest(out)["status"] == "complete"
