"""Links, pipes and the like in a run's folder: nothing is followed, waited for, or replaced unasked."""

import os
import socket

import pytest

from answers.told import refused, tells
from cascade_sim import SEMANTICS
from cascade_sim.cli import main
from cascade_sim.foundation.errors import UserError
from cascade_sim.storage.files import below, mark_of, opened, read_file, refuse_other
from cascade_sim.storage.folder import RunFolder, open_run, read_manifest

FINISHED = {"name": "ads", "semantics": SEMANTICS, "scenario_hash": "abc", "status": "complete"}
KEPT = {"keep.txt": "k", ".keep.txt.1.2.tmp": "a rest", "log.keep": "{}", "manifest.json": '{"semantics": 1}'}


@pytest.fixture
def victim(tmp_path):
    """A folder of somebody's, outside of the run."""
    folder = tmp_path / "victim"
    folder.mkdir()
    for name, text in KEPT.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def run(tmp_path):
    with RunFolder.create(tmp_path / "run") as folder:
        folder.write_json("manifest.json", FINISHED)
        folder.write_json("metrics.json", {"arms": {}})
    return folder.path


def is_whole(victim):
    return {path.name: path.read_text() for path in victim.iterdir()} == KEPT


@pytest.mark.parametrize("command", ["compare", "trace", "report", "baseline", "run", "resume"])
def test_a_link_in_place_of_a_run_that_was_set_aside_is_not_followed(command, tmp_path, victim, capfd):
    empty = tmp_path / "r"
    empty.mkdir()
    (empty / ".previous.moving").symlink_to(victim)
    words = {
        "compare": ["compare", str(empty), str(empty)],
        "trace": ["trace", str(empty), "--request", "1"],
        "baseline": ["baseline", str(empty), "--out", str(tmp_path / "kept.json")],
        "run": ["run", "quick", "--out", str(empty), "--quiet"],
        "resume": ["run", "quick", "--out", str(empty), "--quiet", "--resume"],
    }
    assert main(words.get(command, [command, str(empty)])) == 2
    assert ".previous.moving is a link" in capfd.readouterr().err and is_whole(victim)


@pytest.mark.parametrize(
    "name", [".previous.moving", ".previous.gone", "previous", "whatif", "seed-1", "logs"]
)
def test_a_new_run_leaves_what_links_lead_to(name, run, victim):
    (run / name).symlink_to(victim)
    try:
        with RunFolder.create(run, remove_answers=True) as new:
            new.write_manifest({**FINISHED, "status": "running"})
            new.write_json("metrics.json", {"arms": {}})
            new.finish(FINISHED)
    except UserError as error:
        assert f"{name} is a link" in str(error)
    assert is_whole(victim)


@pytest.mark.parametrize(
    "name", ["checkpoints", "logs", "figures", "models", ".previous.moving", ".previous.gone"]
)
def test_a_run_that_goes_on_leaves_what_links_lead_to(name, run, victim):
    (run / "metrics.json").unlink()  # it was stopped
    (run / name).symlink_to(victim)
    with pytest.raises(UserError, match=f"{name} is a link"):
        RunFolder.resume(run, FINISHED)
    assert is_whole(victim) and not (run / ".lock").exists()


def test_a_folder_in_a_run_that_was_set_aside_is_put_back_and_a_link_in_it_not_followed(run, victim):
    aside = run / ".previous.moving"
    (aside / "logs").mkdir(parents=True)
    (run / "logs").mkdir()
    (aside / "logs" / "table").symlink_to(victim)
    (run / "manifest.json").rename(aside / "manifest.json")
    before = sorted(str(path) for path in run.rglob("*"))
    with pytest.raises(UserError, match="half set aside"):
        read_manifest(run)
    assert sorted(str(path) for path in run.rglob("*")) == before
    RunFolder.resume(run, FINISHED).release()
    assert open_run(run).metrics == {"arms": {}} and is_whole(victim)
    assert (run / "logs" / "table").is_symlink() and not aside.exists()


def test_a_lock_in_a_run_that_was_set_aside_does_not_take_the_place_of_the_lock(run):
    (run / ".previous.moving").mkdir()
    (run / ".previous.moving" / ".lock").write_text("{}")
    with refused(run / ".previous.moving" / ".lock", "lock"):
        RunFolder.resume(run, FINISHED)


@pytest.mark.parametrize("names", [("..", "x"), ("a/../../x",), ("/etc",), ("",), ("a", ".")])
def test_no_name_leads_out_of_a_run(names, tmp_path):
    with refused(tmp_path, repr("/".join(names))):
        below(tmp_path, *names)


def test_a_link_on_the_way_is_refused_and_the_folder_itself_may_be_one(tmp_path, victim):
    (tmp_path / "latest").symlink_to(victim)
    assert below(tmp_path / "latest", "keep.txt").read_text() == "k"
    with refused("latest", "link"):
        below(tmp_path, "latest/keep.txt")


def pipe(path):
    os.mkfifo(path)


def plain_socket(path):
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path))


def folder(path):
    path.mkdir()


def link(path):
    path.symlink_to(path.with_name("keep.txt"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (pipe, "pipe"),
        (plain_socket, "socket"),
        (folder, "folder"),
        (link, "link"),
    ],
)
def test_what_is_no_regular_file_is_refused_in_words_and_not_waited_for(make, words, victim, monkeypatch):
    monkeypatch.chdir(victim)
    make(victim / "manifest.json.new")
    with refused(words, kind=OSError):
        opened(victim / "manifest.json.new")


def test_a_link_to_a_file_that_the_user_named_is_read_and_a_link_to_a_pipe_is_not(victim):
    link(victim / "mine")
    assert read_file(victim / "mine", follows=True) == b"k"
    pipe(victim / "pipe")
    (victim / "other").symlink_to(victim / "pipe")
    with refused("pipe", kind=OSError):
        read_file(victim / "other", follows=True)


@pytest.mark.parametrize("name", ["manifest.json", "metrics.json"])
def test_a_pipe_in_a_run_is_named(name, run):
    (run / name).unlink()
    os.mkfifo(run / name)
    with refused(name, "pipe"):
        open_run(run)


def test_a_pipe_as_a_scenario_is_named(tmp_path, capfd):
    os.mkfifo(tmp_path / "s.yaml")
    assert main(["validate", str(tmp_path / "s.yaml")]) == 2
    assert tells(capfd.readouterr().err, "s.yaml", "pipe")


def test_a_file_of_gigabytes_is_not_read(run):
    os.truncate(run / "metrics.json", 1 << 33)
    with refused("metrics.json", 268_435_456):
        open_run(run)


def test_a_file_is_replaced_only_by_its_like(tmp_path):
    file = tmp_path / "out"
    refuse_other(file, "table", b"a,b")
    file.write_bytes(b"a,b\n1,2\n")
    refuse_other(file, "table", b"a,b")
    with refused(file, "report"):
        refuse_other(file, "report", b"<html>")
    for plant, words in ((folder, "a folder"), (pipe, "a pipe"), (link, "a link")):
        path = tmp_path / words
        plant(path)
        with refused(path, words):
            refuse_other(path, "table", b"a,b")


def test_files_are_known_by_what_all_of_their_kind_have():
    assert mark_of(b"bid,clicks\n1,2\n") == b"bid,clicks"
    assert mark_of(b'[\n {\n  "against": "now"') == b'[\n {\n  "against"'
    assert mark_of(b"# Chosen by `tune`: 3 settings\nmodels:") == b"# Chosen by `tune`"
    assert mark_of(b'<?xml version="1.0"?>\n<svg width="3">') == b"<svg"
    assert mark_of(b"\x89PNG\r\n\x1a\nrest") == b"\x89PNG\r\n\x1a\n"


def test_a_folder_that_is_removed_under_its_run_is_said_so(tmp_path):
    import shutil

    for name in ("manifest.json", "figures/a.svg"):
        with (
            refused(tmp_path / "run", "removed"),
            RunFolder.create(tmp_path / "run") as run,
        ):
            run.write_json("manifest.json", FINISHED)
            shutil.rmtree(run.path)
            run.write_text(name, "{}")
        assert not (tmp_path / "run").exists()
