"""Models that are trained by processes of their own are what they would have been, to the last bit."""

import pytest

from cascade_sim.context import RunContext
from cascade_sim.engines.local import Local
from cascade_sim.storage.model_store import ModelStore
from cascade_sim.study import prepare as module
from cascade_sim.study.prepare import prepare
from cascade_sim.training import parallel as ahead
from cascade_sim.training.parallel import shares
from worlds.tiny_market import tiny_scenario

NET = "features: [user, quality, G1], hidden: 8, dims: 4, epochs: 1"
SMALL = (
    *("phases.cold_start=300", "phases.log=400", "phases.shadow=200", "phases.evaluate=64"),
    f"models.both={{kind: coaction, objective: rcr, {NET}}}",
    f"models.scaled={{objective: softmax, calibrator: platt, {NET}}}",
    f"models.joint={{objective: sbcr, calibrator: piecewise_linear, fit: joint, {NET}}}",
)


def learned(folder, workers, store=None):
    folder.mkdir()
    context = RunContext(folder, workers=workers)
    return prepare(tiny_scenario(*SMALL), context, store=store or ModelStore(folder / "cache"))


def weights(prepared):
    return {
        (name, key): value.numpy().tobytes()
        for name, net in prepared.modules.items()
        for key, value in net.state_dict().items()
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return learned(tmp_path_factory.mktemp("alone") / "run", workers=1)


def test_groups_are_of_about_equal_samples_and_each_is_worth_a_process(monkeypatch):
    monkeypatch.setattr(ahead, "WORTH", 10)
    assert shares({"a": 9, "b": 4, "c": 3, "d": 4}, most=2) == [["a"], ["b", "d", "c"]]
    assert shares({"a": 9, "b": 9}, most=2) == []  # 18 are worth one process
    assert shares({"a": 90, "b": 90}, most=1) == []
    assert len(shares(dict.fromkeys("abcdef", 100), most=4)) == 4


@pytest.mark.drill
def test_models_trained_by_other_processes_are_the_same_to_the_last_bit(alone, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "WORTH", 100)
    monkeypatch.setattr(module, "WORTH", 100)
    first = []

    def only_first_deployments(task, *rest):
        first.append(task.alias)
        return ahead.fit_module(task, *rest)

    monkeypatch.setattr(module, "fit_module", only_first_deployments)
    together = learned(tmp_path / "run", workers=2)
    assert weights(together) == weights(alone)
    assert together.lines == alone.lines and all(line["steps"] for line in alone.lines.values())
    assert first and all(alias.endswith(")") for alias in first)  # which the log is waiting for
    for model in ("scaled", "joint"):
        own, expected = (prepared.calibrators[model].arrays() for prepared in (together, alone))
        assert {name: values.tobytes() for name, values in own.items()} == {
            name: values.tobytes() for name, values in expected.items()
        }
    assert not (tmp_path / "run" / "checkpoints" / ahead.FOLDER).exists()


def test_what_a_job_does_not_leave_is_trained_as_usual(alone, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "WORTH", 100)
    asked = []
    monkeypatch.setattr(Local, "jobs", lambda self, jobs, workers, **how: asked.extend(jobs))
    assert weights(learned(tmp_path / "run", workers=2)) == weights(alone)
    assert asked


def test_models_that_a_store_has_start_no_process(alone, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "WORTH", 100)
    monkeypatch.setattr(module, "WORTH", 100)

    def refuse(*given, **how):
        raise AssertionError("a process was started")

    monkeypatch.setattr(Local, "jobs", refuse)
    taken = learned(tmp_path / "run", workers=2, store=alone.store)
    assert weights(taken) == weights(alone) and taken.lines == alone.lines
