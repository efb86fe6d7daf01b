"""A finished run opened again: its models in their seats, or clear words why not."""

import shutil

import pytest

from answers.told import refused
from cascade_sim.diagnostics.reopen import reopen
from worlds.traced_run import as_run_folder


@pytest.fixture
def copy(study, tmp_path):
    return as_run_folder(study, tmp_path / "run")


def test_reopened_models_score_as_they_did_in_the_run(study, copy, block):
    arm = reopen(copy).arm("distill-pre")
    ids = study.sim.retriever(block.users, 60)
    for scorer in (arm.stages[0].scorer, arm.last.scorer):
        assert (scorer.predict(block, ids) == study.sim.scorers[scorer.name].predict(block, ids)).all()


def test_only_the_models_of_the_arm_are_loaded(copy):
    run = reopen(copy)
    run.arm("bid_only")
    assert set(run.sim.scorers) == {"random", "constant", "truth", "rank"}


def test_a_missing_or_foreign_model_file_is_named(copy):
    shutil.copy(copy / "models" / "rank.safetensors", copy / "models" / "logloss.safetensors")
    with refused("logloss.safetensors", "TwoTowers"):
        reopen(copy).arm()
    (copy / "models" / "logloss.safetensors").unlink()
    with refused("logloss.safetensors", "missing", "distill-pre.safetensors"):
        reopen(copy).arm()


def test_a_study_over_several_worlds_names_the_folders_to_trace(copy):
    for seed in (9, 10):
        (copy / f"seed-{seed}").mkdir()
    with refused("2 worlds", "seed-9", "seed-10"):
        reopen(copy)
