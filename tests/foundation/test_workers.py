"""Jobs in processes: some die, some fail, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from answers.told import refused, tells
from cascade_sim.foundation.errors import ScenarioError, UserError
from cascade_sim.foundation.workers import TRIES, Job, JobError, _Pool, _Worker, run_jobs
from places import HANG, ROOT
from worlds.pool_jobs import die, leave, raise_odd, refuse, square, starve, unsendable, wait_for_ever


def tries(folder, name):
    return len((folder / name).read_text().split())


def is_running(pid):
    """Neither gone nor a zombie that nobody has asked about."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition):
    for _ in range(int(HANG / 0.02)):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("this will never come about")


def test_results_come_by_name_and_a_worker_takes_one_job_after_the_other():
    heard = []
    found = run_jobs([Job(f"n={n}", square, (n,)) for n in range(5)], 2, on_done=heard.append)
    assert {name: value for name, (value, _) in found.items()} == {f"n={n}": n * n for n in range(5)}
    assert list(found) == [f"n={n}" for n in range(5)] and sorted(heard) == sorted(found)
    pids = {pid for _, pid in found.values()}
    assert 1 <= len(pids) <= 2 and os.getpid() not in pids
    assert not any(is_running(pid) for pid in pids)


def test_a_job_whose_worker_is_killed_is_tried_again_and_the_others_are_not_disturbed(tmp_path):
    jobs = [Job("a", die, (tmp_path, "a", 2)), *(Job(n, die, (tmp_path, n, 0)) for n in "bcd")]
    assert run_jobs(jobs, 2) == {name: name for name in "abcd"}
    assert [tries(tmp_path, name) for name in "abcd"] == [3, 1, 1, 1]


def test_a_job_that_kills_its_worker_three_times_is_named_when_the_others_are_done(tmp_path):
    jobs = [Job("world seed-3", die, (tmp_path, "x", 9)), *(Job(n, die, (tmp_path, n, 0)) for n in "ab")]
    with pytest.raises(UserError) as caught:
        run_jobs(jobs, 1, go_on="resume it with --resume")
    assert tells(caught.value, "world seed-3", "SIGKILL", "other 2", "--resume")
    assert [tries(tmp_path, name) for name in "xab"] == [TRIES, 1, 1]


def test_a_job_that_ends_its_process_is_a_death_too(tmp_path):
    with refused("bye", "exit code 3"):
        run_jobs([Job("bye", leave, (tmp_path,))], 1)
    assert tries(tmp_path, "leave") == TRIES


@pytest.mark.parametrize(
    ("job", "kind", "text"),
    [
        (Job("one", refuse, ((),)), UserError, "cannot write here: No space left on device"),
        (Job("one", refuse, (("no a", "no b"),)), ScenarioError, "no a\nno b"),
        (Job("one", raise_odd), JobError, "one: Odd: salt and pepper"),
    ],
)
def test_an_exception_in_a_job_ends_all_at_once_with_its_own_message(tmp_path, job, kind, text):
    # Wording: the error's own words come through as they are.
    with pytest.raises(kind) as caught:
        run_jobs([Job("slow", wait_for_ever, (tmp_path, "slow")), job], 2)
    assert str(caught.value) == text and type(caught.value) is kind
    assert not (tmp_path / "slow-done").exists()  # nobody waited for it
    if kind is ScenarioError:
        assert caught.value.problems == ("no a", "no b")
    if kind is JobError:
        assert "in raise_odd" in caught.value.__notes__[0]
    if (tmp_path / "slow").exists():  # empty if it was told to stop before it had written
        assert not any(is_running(int(pid)) for pid in (tmp_path / "slow").read_text().split())


def test_an_answer_that_cannot_be_sent_is_a_defect_of_the_job_and_no_death_of_its_worker():
    with refused("one:", "lambda", kind=JobError):
        run_jobs([Job("one", unsendable)], 1)


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_a_worker_that_dies_while_it_is_being_told_its_job_is_noticed_when_we_listen(error):
    """Which of the two it is depends on whether half of the message lay unread at the far end."""

    class Broken:
        def send(self, message):
            raise error

    _Pool([])._send(_Worker(None, Broken(), Job("late", square, (2,))))  # does not raise


POOL = """
import signal, sys
sys.path.insert(0, sys.argv[1])
from worlds.pool_jobs import wait_for_ever
from cascade_sim.foundation import workers
from cascade_sim.foundation.workers import Job, run_jobs
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been ignored on entry
    workers.PATIENCE = float(sys.argv[3])
    run_jobs([Job(name, wait_for_ever, (sys.argv[2], name)) for name in "ab"], 2)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_do_not_outlive_the_process_that_started_them(tmp_path, how):
    """Ctrl-C goes to all processes of a terminal; the workers then end in good order, not by themselves."""
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    where = [str(ROOT / "tests"), str(tmp_path), str(HANG)]
    pool = subprocess.Popen(
        [sys.executable, str(script), *where], stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        until(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists())
        until(lambda: all((tmp_path / name).read_text().endswith("\n") for name in "ab"))
        workers = [int((tmp_path / name).read_text()) for name in "ab"]
        assert all(map(is_running, workers))
        if how == signal.SIGINT:
            os.killpg(pool.pid, how)
        else:
            pool.send_signal(how)
        words = pool.communicate(timeout=HANG)[1]
        until(lambda: not any(map(is_running, workers)))
    finally:
        pool.kill()
        pool.wait()
    if how == signal.SIGINT:
        assert words.count("Traceback") == 1 and "KeyboardInterrupt" in words  # the pool's, not the workers'
        assert [tries(tmp_path, f"{name}-left") for name in "ab"] == [1, 1]


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(ValueError, match="same name"):
        run_jobs([Job("a", square), Job("a", square)], 1)
    with pytest.raises(ValueError, match="0 workers"):
        run_jobs([Job("a", square)], 0)
    assert run_jobs([], 3) == {}


SCRIPT = """
from pathlib import Path

from cascade_sim.foundation.workers import Job, run_jobs
from worlds.pool_jobs import square

with Path("visits").open("a") as file:
    file.write("here ")
print(run_jobs([Job("a", square, (3,))], 1)["a"][0])
"""


def test_a_script_without_a_main_guard_is_not_run_again_by_its_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, env=paths, capture_output=True, text=True, timeout=HANG
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "9", "")
    assert (tmp_path / "visits").read_text().split() == ["here"]


@pytest.mark.parametrize(
    ("way", "words"), [("python", "Unable to allocate"), ("library", "Cannot allocate memory")]
)
def test_a_want_of_memory_in_a_job_is_one_in_the_command(way, words):
    with pytest.raises(MemoryError, match=f"world: .*{words}"):
        run_jobs([Job("world", starve, (way,))], 1)
