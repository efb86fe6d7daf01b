import json

import pytest
from tiny_market import tiny_scenario

from cascade_sim.errors import UserError
from cascade_sim.records import tables
from cascade_sim.run_folder import read_manifest
from cascade_sim.scenario_file import load_scenario
from cascade_sim.study import run_study

SHORT = (
    *("phases.bootstrap=150", "phases.log=150", "phases.shadow=60", "phases.evaluate=120"),
    *("report.resamples=10", "report.detail_requests=50"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole run with its report."""
    out = tmp_path_factory.mktemp("run") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CASCADE_SIM_CACHE", str(out.parent / "cache"))
        metrics = run_study(tiny_scenario(*SHORT), out=out, device="cpu", quiet=True)
    return out, metrics


def test_a_run_folder_has_everything_a_reader_needs(run):
    out, metrics = run
    assert json.loads((out / "metrics.json").read_text()) == metrics
    for name in ("scenario.yaml", "manifest.json", "metrics.csv", "report.html"):
        assert (out / name).stat().st_size > 100, name
    models = {path.name for path in (out / "models").iterdir()}
    assert models == {f"{name}.safetensors" for name in ("rank", "logloss", "ltr", "distill-pre")}
    expected = {"bootstrap", "log", "shadow", "service-logloss", "evaluate-logloss", "evaluate-random"}
    assert expected <= set(tables(out))


def test_the_manifest_says_that_the_run_is_complete_and_how_to_repeat_it(run):
    out, metrics = run
    manifest = read_manifest(out)
    assert manifest["status"] == "complete" and manifest["seed"] == 1
    assert manifest["scenario_hash"] == metrics["scenario_hash"]
    assert {"python", "torch", "numpy"} <= set(manifest["packages"])
    assert {"bootstrap: serve", "train rank", "evaluate", "total"} <= set(manifest["seconds"])


def test_the_resolved_scenario_of_a_run_can_be_run_again(run):
    out, metrics = run
    again = load_scenario(out / "scenario.yaml")
    assert again == tiny_scenario(*SHORT)


def test_several_worlds_are_run_each_in_its_folder_and_combined(tmp_path, monkeypatch):
    """The worlds run in this process here: what a pool of processes adds is not under test."""
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setattr("cascade_sim.study.ProcessPoolExecutor", lambda n, mp_context: ThreadPoolExecutor(1))
    monkeypatch.setattr("cascade_sim.study.write_report", lambda *_: None)
    scenario = tiny_scenario(*SHORT)
    metrics = run_study(scenario, out=tmp_path / "out", seeds=2, device="cpu", quiet=True)
    assert metrics["seeds"] == {"n": 2, "seeds": [1, 2]}
    own = [json.loads((tmp_path / "out" / f"seed-{s}" / "metrics.json").read_text()) for s in (1, 2)]
    assert [one["seed"] for one in own] == [1, 2]
    values = [one["arms"]["ltr"]["rcs"]["value"] for one in own]
    assert values[0] != values[1]
    assert metrics["arms"]["ltr"]["rcs"]["value"] == pytest.approx(sum(values) / 2)
    assert read_manifest(tmp_path / "out" / "seed-2")["status"] == "complete"


def test_a_run_that_fails_is_not_left_as_complete(tmp_path):
    with pytest.raises(UserError, match="--device: .*'mps'|--device: .*'cuda'"):
        import torch

        missing = "mps" if torch.cuda.is_available() or not torch.backends.mps.is_available() else "cuda"
        run_study(tiny_scenario(*SHORT), out=tmp_path / "out", device=missing, quiet=True)
    assert read_manifest(tmp_path / "out")["status"] == "running"
    assert not (tmp_path / "out" / "metrics.json").exists()
