"""Run folders: whole files, one run at a time, nothing of anybody else's lost, clear words on reading."""

import errno
import json
import os
import shutil
import stat

import numpy as np
import pytest

from answers.told import refused
from cascade_sim import SEMANTICS
from cascade_sim.foundation.errors import UserError
from cascade_sim.storage import files as atomic_files
from cascade_sim.storage import folder as folder_module
from cascade_sim.storage.folder import (
    IDENTITY,
    Lock,
    RunFolder,
    is_same_run,
    keep,
    open_run,
    read_manifest,
)

FINISHED = {"name": "ads", "semantics": SEMANTICS, "scenario_hash": "abc", "status": "complete"}


def finished_run(path, **manifest):
    with RunFolder.create(path) as run:
        run.write_json("manifest.json", {**FINISHED, **manifest})
        run.write_json("metrics.json", {"arms": {}})
    return path


def finish(run):
    run.write_json("metrics.json", {"arms": {}})
    run.finish({**FINISHED, "scenario_hash": "new"})


def names(folder):
    return sorted(os.listdir(folder))


def test_files_are_written_into_a_new_folder_and_its_sub_folders(tmp_path):
    with RunFolder.create(tmp_path / "runs" / "one") as run:
        path = run.write_text("figures/rcs.svg", "<svg/>")
        run.write_bytes("raw.bin", b"\0\1")
    assert path == tmp_path / "runs" / "one" / "figures" / "rcs.svg"
    assert path.read_text() == "<svg/>"
    assert names(run.path) == ["figures", "raw.bin"]


def test_json_has_sorted_keys_and_a_newline_and_knows_numpy(tmp_path):
    with RunFolder.create(tmp_path) as run:
        path = run.write_json(
            "metrics.json", {"b": np.float64(0.5), "a": [np.int64(1), np.arange(2)], "é": None}
        )
    assert path.read_text() == '{\n "a": [\n  1,\n  [\n   0,\n   1\n  ]\n ],\n "b": 0.5,\n "é": null\n}\n'


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), np.float64("nan"), np.array([np.nan])])
def test_nan_is_refused_and_the_old_file_stays(tmp_path, bad):
    with RunFolder.create(tmp_path) as run:
        run.write_json("metrics.json", {"value": 1})
        with pytest.raises(ValueError, match="JSON"):
            run.write_json("metrics.json", {"value": bad})
        assert json.loads((tmp_path / "metrics.json").read_text()) == {"value": 1}


@pytest.mark.parametrize("name", ["../out.txt", "/out.txt", "", "a/../../b", ".lock"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, name):
    with RunFolder.create(tmp_path / "run") as run, refused(repr(name), "name", kind=ValueError):
        run.write_text(name, "x")


# Replacing


def test_a_previous_run_is_replaced_and_foreign_notes_in_it_stay(tmp_path):
    finished_run(tmp_path)
    for name in (
        "models/rank.safetensors",
        "logs/log/part-00000.parquet",
        "notes.txt",
        ".report.html.99.tmp",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    with RunFolder.create(tmp_path) as run:
        assert names(tmp_path) == [".lock", "notes.txt", "previous"]
        finish(run)
    assert names(tmp_path) == ["manifest.json", "metrics.json", "notes.txt"]


def test_the_worlds_of_a_previous_study_are_replaced_with_it(tmp_path):
    finished_run(tmp_path)
    finished_run(tmp_path / "seed-1")
    (tmp_path / "seed-corn").mkdir()
    with RunFolder.create(tmp_path) as run:
        assert names(tmp_path) == [".lock", "previous", "seed-corn"]
        finish(run)
    assert names(tmp_path) == ["manifest.json", "metrics.json", "seed-corn"]


def test_a_previous_run_is_refused_without_overwrite_and_kept(tmp_path):
    finished_run(tmp_path)
    before = names(tmp_path)
    with refused(tmp_path, "a run"):
        RunFolder.create(tmp_path, overwrite=False)
    assert names(tmp_path) == before


@pytest.mark.parametrize("content", ["{}", "not json", '{"name": "a npm package"}', "[]"])
def test_a_folder_that_is_not_a_run_is_refused_untouched(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    (tmp_path / "models").mkdir()
    with refused(tmp_path, "not empty"):
        RunFolder.create(tmp_path)
    assert names(tmp_path) == ["manifest.json", "models"]


def test_a_hidden_file_counts_as_content(tmp_path):
    (tmp_path / ".git").mkdir()
    with pytest.raises(UserError, match="not empty"):
        RunFolder.create(tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(UserError, match="is a file"):
        RunFolder.create(tmp_path / "run")


# A finished run stays until another has taken its place


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def old_study(path):
    """A run over two worlds, which somebody has asked something of, and whose notes lie beside it."""
    finished_run(path)
    answered(finished_run(path / "seed-1"))
    finished_run(path / "seed-2")
    answered(path)
    (path / "logs" / "log").mkdir(parents=True)
    (path / "logs" / "log" / "part-00000.parquet").write_text("rows")
    return path


def test_a_run_that_failed_leaves_the_one_it_was_to_replace(tmp_path):
    before = content(old_study(tmp_path))
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(ZeroDivisionError), RunFolder.create(tmp_path, remove_answers=True) as run:
        run.write_json("manifest.json", {**FINISHED, "status": "running"})
        run.write_text("blocks.json", "half")
        raise ZeroDivisionError
    assert content(tmp_path / "previous") == before and open_run(tmp_path / "previous").metrics == {
        "arms": {}
    }
    with refused("--resume", tmp_path / "previous"):
        open_run(tmp_path)
    for _ in range(2):  # nor does a second and a third that fails
        with pytest.raises(ZeroDivisionError), RunFolder.create(tmp_path, remove_answers=True) as run:
            run.write_json("manifest.json", {**FINISHED, "status": "running"})
            raise ZeroDivisionError
        assert content(tmp_path / "previous") == before
    with RunFolder.resume(tmp_path, FINISHED) as run:
        finish(run)
    assert names(tmp_path) == ["manifest.json", "metrics.json", "notes.txt"]


def test_a_run_that_never_began_leaves_everything_as_it_was(tmp_path):
    before = content(old_study(tmp_path))
    for same in (None, FINISHED):
        with pytest.raises(ZeroDivisionError), RunFolder.create(tmp_path, manifest=same, remove_answers=True):
            raise ZeroDivisionError
        assert content(tmp_path) == before


class Killed(BaseException):
    """As a kill: nothing is tidied up after it."""


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("step", range(1, 35))
def test_a_kill_at_any_step_of_setting_aside_and_of_removing_loses_nothing(tmp_path, monkeypatch, step, same):
    """A new run in a folder with an old one, killed at its n-th rename or removal: one of them is whole."""
    before = content(old_study(tmp_path))
    count = {"steps": 0}

    def killing(patch, place, name):
        real = getattr(place, name)

        def counted(*arguments, **options):
            count["steps"] += 1
            if count["steps"] == step:
                raise Killed
            return real(*arguments, **options)

        patch.setattr(place, name, counted)

    manifest = FINISHED if same else {**FINISHED, "scenario_hash": "new"}
    with monkeypatch.context() as patch:
        for name in ("rename", "replace", "unlink", "rmdir", "mkdir"):
            killing(patch, os, name)
        killing(patch, shutil, "rmtree")
        patch.setattr(Lock, "release", Lock.leave)  # who is killed removes no lock
        try:
            with RunFolder.create(tmp_path, manifest=manifest, remove_answers=True) as run:
                run.write_manifest({**manifest, "status": "running"})
                run.write_json("metrics.json", {"arms": {"new": {}}})
                run.finish(manifest)
        except Killed:
            pass
    if ".previous.moving" in names(tmp_path):  # a reader changes nothing; the command that it names does
        there = content(tmp_path)
        with refused("half", "--resume"):
            open_run(tmp_path)
        assert content(tmp_path) == there
        RunFolder.resume(tmp_path, FINISHED).release()
    if not same:
        read = [folder for folder in (tmp_path, tmp_path / "previous") if is_whole(folder)]
        assert read, names(tmp_path)
        if open_run(read[0]).metrics == {"arms": {}}:
            kept = content(read[0])
            kept.pop(".lock", None)
            assert {name: kept.get(name) for name in before} == before
    with RunFolder.create(tmp_path, manifest=manifest, remove_answers=True) as run:
        finish(run)
    left = names(tmp_path)
    assert [name for name in left if "previous" in name] == [] and open_run(tmp_path).metrics == {"arms": {}}


def is_whole(folder):
    try:
        open_run(folder)
    except UserError:
        return False
    return True


# Going on


def test_a_run_stopped_at_its_very_last_step_loses_its_checkpoints_when_it_is_taken_up(tmp_path):
    finished_run(tmp_path)
    keep(tmp_path, "log", ["log"])
    with RunFolder.resume(tmp_path, FINISHED) as run:
        assert run.is_complete()
    assert names(tmp_path) == ["manifest.json", "metrics.json"]


@pytest.mark.parametrize("key", IDENTITY)
def test_a_run_is_the_same_only_in_every_respect(tmp_path, key):
    assert not is_same_run(tmp_path, FINISHED)
    finished_run(tmp_path)
    assert is_same_run(tmp_path, FINISHED)
    assert not is_same_run(tmp_path, {**FINISHED, key: "another"})


# Storage that fails


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_failing_disk_is_reported_and_the_old_file_stays_whole(tmp_path, monkeypatch, code):
    def failing_flush(path):
        raise OSError(code, os.strerror(code))

    with RunFolder.create(tmp_path) as run:
        run.write_text("report.html", "old")
        monkeypatch.setattr(atomic_files, "flush", failing_flush)
        with pytest.raises(UserError, match=rf"cannot write .*report\.html: {os.strerror(code)}"):
            run.write_text("report.html", "new")
        assert (tmp_path / "report.html").read_text() == "old"
        assert names(tmp_path) == [".lock", "report.html"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(UserError, match="Permission denied"):
            RunFolder.create(tmp_path)
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with refused(tmp_path / "file" / "run", "Not a directory"):
        RunFolder.create(tmp_path / "file" / "run")


# Reading


def test_a_finished_run_is_read_back(tmp_path):
    run = open_run(finished_run(tmp_path, seed=3))
    assert run.path == tmp_path
    assert run.manifest == {**FINISHED, "seed": 3}
    assert run.metrics == {"arms": {}}


def test_what_is_not_a_run_is_named_with_the_reason(tmp_path):
    with pytest.raises(UserError, match="nowhere does not exist$"):
        open_run(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with refused(tmp_path / "file", "folder"):
        open_run(tmp_path / "file")
    with refused("manifest.json"):
        open_run(tmp_path)


def test_a_run_that_did_not_finish_is_named_with_its_status(tmp_path):
    finished_run(tmp_path, status="running")
    (tmp_path / "metrics.json").unlink()
    with pytest.raises(UserError, match=r"no metrics\.json \(status: running\)"):
        open_run(tmp_path)
    assert read_manifest(tmp_path)["status"] == "running"


def test_damaged_json_is_reported_with_line_and_column(tmp_path):
    finished_run(tmp_path)
    (tmp_path / "metrics.json").write_text('{\n "arms": {,}\n}')
    with pytest.raises(UserError, match=r"metrics\.json:2:11 is not JSON"):
        open_run(tmp_path)
    (tmp_path / "metrics.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(UserError, match=r"metrics\.json is not JSON"):
        open_run(tmp_path)
    (tmp_path / "metrics.json").write_text("[1]")
    with refused("metrics.json", "list"):
        open_run(tmp_path)


def test_a_run_of_other_semantics_is_refused_with_both_numbers(tmp_path):
    finished_run(tmp_path, semantics=SEMANTICS + 1)
    with refused(SEMANTICS + 1, SEMANTICS):
        open_run(tmp_path)


@pytest.mark.parametrize(
    ("metrics", "key", "now"),
    [
        ({"arms": {"a": {"fill_rate": {}, "welfare": {}}}}, "arms.a.welfare", "welfare_vs_oracle"),
        ({"arms": {"a": {"welfare_efficiency": {}}}}, "arms.a.welfare_efficiency", "welfare_vs_oracle"),
        ({"arms": {"a": {}}, "culprit": []}, "culprit", "ablation"),
        ({"training": {"m": {"descent": {}}}}, "training.m.descent", "residual_improvement"),
        ({"off_policy": {"jitter": "drop"}}, "off_policy.jitter", "estimand"),
    ],
)
def test_a_run_with_earlier_names_of_measures_is_refused_with_the_present_one(tmp_path, metrics, key, now):
    finished_run(tmp_path)
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    with refused("metrics.json", key, now, "again"):
        open_run(tmp_path)


# Answers


def answered(folder, name="slots-2"):
    (folder / "whatif" / name).mkdir(parents=True)
    (folder / "whatif" / name / "whatif.json").write_text("{}")
    return folder


def test_a_run_that_answers_were_asked_of_is_not_replaced_by_another(tmp_path):
    answered(finished_run(tmp_path))
    with pytest.raises(UserError, match=r"whatif/slots-2.*--overwrite"):
        RunFolder.create(tmp_path, manifest={**FINISHED, "scenario_hash": "another"})
    with pytest.raises(UserError, match="whatif/slots-2"):
        RunFolder.create(tmp_path)
    assert names(tmp_path) == ["manifest.json", "metrics.json", "whatif"]
    with RunFolder.create(tmp_path, remove_answers=True) as run:
        assert names(tmp_path) == [".lock", "previous"]
        finish(run)
    assert names(tmp_path) == ["manifest.json", "metrics.json"]


def test_the_same_run_again_keeps_its_answers(tmp_path):
    answered(finished_run(tmp_path))
    for remove in (False, True):
        with RunFolder.create(tmp_path, manifest=FINISHED, remove_answers=remove):
            # The manifest says whose answers they are, should this run be killed here.
            assert names(tmp_path) == [".lock", "manifest.json", "previous", "whatif"]
    assert names(tmp_path / "whatif" / "slots-2") == ["whatif.json"]


def test_the_same_run_again_that_was_killed_early_goes_on_from_nothing(tmp_path):
    answered(finished_run(tmp_path))
    (tmp_path / "logs" / "log").mkdir(parents=True)
    (tmp_path / "metrics.json").unlink()
    with RunFolder.resume(tmp_path, FINISHED) as run:
        assert not run.is_complete() and names(tmp_path / "logs") == []


@pytest.mark.parametrize("left", ["whatif/slots-2", "notes"])
def test_what_was_asked_of_a_world_of_a_study_is_not_lost_either(tmp_path, left):
    finished_run(tmp_path)
    world = finished_run(tmp_path / "seed-1")
    (world / left).mkdir(parents=True)
    with pytest.raises(UserError, match=f"seed-1/{left}"):
        RunFolder.create(tmp_path, manifest={**FINISHED, "seeds": 3})
    with RunFolder.create(tmp_path, manifest=FINISHED) as run:
        assert names(world) == sorted(["manifest.json", left.split("/")[0]])
        with RunFolder.resume(world, FINISHED) as again:
            assert not again.is_complete()
        finish(run)
    with RunFolder.create(tmp_path, remove_answers=True):
        assert names(tmp_path) == [".lock", "previous"]


def test_a_refusal_names_a_few_answers_and_counts_the_others(tmp_path):
    finished_run(tmp_path)
    for i in range(5):
        answered(tmp_path, f"q{i}")
    with pytest.raises(UserError, match="whatif/q0, whatif/q1, whatif/q2 and 2 more"):
        RunFolder.create(tmp_path)


@pytest.mark.parametrize("asked", ["runs/quik", "quick", "rums/quick"])
def test_a_run_of_nearly_that_path_is_suggested(tmp_path, monkeypatch, asked):
    monkeypatch.chdir(tmp_path)
    for name in ("quick", "different"):
        finished_run(tmp_path / "runs" / name)
    with refused(asked, "'runs/quick'?"):
        open_run(asked)


def test_what_a_desktop_leaves_among_the_tables_of_a_stopped_run_is_no_table(tmp_path):
    manifest = {"semantics": SEMANTICS, "status": "running"}
    with RunFolder.create(tmp_path) as run:
        run.write_json("manifest.json", manifest)
        run.write_text("logs/half/part-00000.parquet", "")
        run.write_text("logs/.DS_Store", "desktop")
        run.write_text("logs/stray.txt", "no table")
    with RunFolder.resume(tmp_path, manifest):
        assert os.listdir(tmp_path / "logs") == [".DS_Store"]


@pytest.mark.parametrize("step", ["folder._clear", "folder._settle", "lock._write_owner"])
def test_an_interrupt_while_a_new_folder_is_taken_leaves_no_lock(step, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"cascade_sim.storage.{step}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            RunFolder.create(tmp_path)
    assert names(tmp_path) == []


def test_an_interrupt_while_a_run_is_cleared_leaves_what_shows_that_it_is_one(tmp_path, monkeypatch):
    with RunFolder.create(tmp_path) as run:  # stopped
        run.write_json("manifest.json", {**FINISHED, "status": "running"})
        run.write_text("report.html", "half")

    def interrupt(folder, name):
        (folder / name).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "_remove_entry", interrupt)
        with pytest.raises(KeyboardInterrupt):
            RunFolder.create(tmp_path)
    assert names(tmp_path) == [".lock", "report.html"]
    with RunFolder.create(tmp_path):
        assert names(tmp_path) == [".lock"]


def test_checkpoints_are_cleared_before_the_logs_that_they_tell_of():
    order = folder_module.RUN_ENTRIES
    assert order.index("checkpoints") < order.index("logs")
