"""Ctrl-C and SIGTERM: a word, an exit code, nothing left behind; and nobody swallows them."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from answers.told import tells
from cascade_sim.cli import main
from cascade_sim.foundation.progress import Progress
from cascade_sim.foundation.signals import Terminated, check_interrupt, is_interrupt, stoppable
from cascade_sim.scenario.plugins import errors_of
from places import HANG, ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals differ")


@pytest.fixture(autouse=True)
def usual_handlers():
    """As a shell leaves them; they may have been ignored on entry."""
    before = [signal.signal(signal.SIGINT, signal.default_int_handler)]
    before.append(signal.signal(signal.SIGTERM, signal.SIG_DFL))
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


STOPPABLE = """
import signal, sys, tempfile, time, types
from places import HANG
signal.signal(signal.SIGINT, signal.default_int_handler)
study = types.ModuleType("cascade_sim.study.run")
def run_study(scenario, context, **options):
    with tempfile.TemporaryDirectory() as folder:
        print(folder, flush=True)
        time.sleep(HANG)
study.run_study = run_study
sys.modules["cascade_sim.study.run"] = study
from cascade_sim.cli import main
sys.exit(main(["run", "scenarios/ads.yaml"]))
"""


@pytest.mark.parametrize(
    ("number", "word", "code"), [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)]
)
def test_a_stopped_command_says_so_and_leaves_no_temporary_folder(number, word, code):
    child = subprocess.Popen(
        [sys.executable, "-c", STOPPABLE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
    )
    folder = child.stdout.readline().strip()
    assert os.path.isdir(folder)
    child.send_signal(number)
    _, shown = child.communicate(timeout=HANG)
    how = f"{word}; resume with: python -m cascade_sim run scenarios/ads.yaml --resume"
    assert (child.returncode, shown.strip()) == (code, how)
    assert not os.path.exists(folder)


def swallow(number):
    try:
        os.kill(os.getpid(), number)
        while True:
            pass
    except BaseException:
        return


class Finalised:
    def __init__(self, act):
        self.act = act

    def __del__(self):
        self.act()


def test_an_interrupt_that_a_finaliser_swallows_is_raised_at_the_next_step_and_not_printed(monkeypatch):
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    usual = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), stoppable():
        Finalised(lambda: os.kill(os.getpid(), signal.SIGINT) or [None for _ in range(1000)])
        assert printed == []
        check_interrupt()
        pytest.fail("the interrupt was lost")
    assert sys.unraisablehook is usual


def test_another_error_of_a_finaliser_is_printed_as_ever(monkeypatch):
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: printed.append(str(found.exc_value)))
    with stoppable():
        Finalised(lambda: int("seven"))
    (said,) = printed
    assert tells(said, "int()", "'seven'")


def test_an_interrupt_that_a_callback_swallows_is_raised_at_the_next_step():
    with stoppable(), Progress(quiet=True) as progress, progress.stage("work", 3) as stage:
        stage.advance()
        swallow(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            stage.advance()


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_class_of_ones_own_cannot_swallow_it(number, kind):
    with stoppable(), pytest.raises(kind) as raised, errors_of("market.bidders.mine", "mine.py:Mine"):
        swallow(number)
    assert raised.type is kind


def test_a_real_interrupt_passes_through_a_class_of_ones_own():
    with stoppable(), pytest.raises(KeyboardInterrupt), errors_of("market.bidders.mine", "mine.py:Mine"):
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass


def test_handlers_are_put_back_and_nothing_is_remembered():
    with pytest.raises(Terminated), stoppable():
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            pass
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    check_interrupt()


def test_a_handler_of_ones_own_and_an_ignored_signal_stay():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as under nohup
    with stoppable():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_where_interrupts_are_ignored_a_class_that_raises_one_forges_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background
    try:
        with stoppable():
            assert not is_interrupt(KeyboardInterrupt())
            assert not is_interrupt(Terminated())
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_may_run_a_command():
    seen = []

    def work():
        with stoppable():
            check_interrupt()
            seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


def test_what_breaks_while_a_second_interrupt_cuts_through_the_cleaning_up_is_no_defect(monkeypatch, capsys):
    def run_study(scenario, context, **options):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("cannot close the file while it is open") from None

    monkeypatch.setitem(sys.modules, "cascade_sim.study.run", SimpleNamespace(run_study=run_study))
    assert main(["run", str(ROOT / "scenarios" / "quick.yaml"), "--quiet"]) == 130
    assert capsys.readouterr().err.startswith("interrupted")


@pytest.mark.parametrize(("kind", "word", "code"), [(KeyboardInterrupt, "interrupted", 130),
                                                    (Terminated, "terminated", 143)])  # fmt: skip
def test_an_interrupt_while_the_end_is_told_is_no_traceback(kind, word, code, monkeypatch, capsys):
    def answered(argv):
        raise kind

    monkeypatch.setattr("cascade_sim.cli._answered", answered)
    assert main([]) == code
    assert capsys.readouterr().err.strip() == word


@pytest.mark.drill
def test_the_whole_group_of_a_check_in_processes_can_be_ended_without_a_traceback():
    words = [
        sys.executable,
        "-m",
        "cascade_sim",
        "check-auctions",
        "--auctions",
        "50000000",
        "--workers",
        "2",
    ]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=ROOT, start_new_session=True
    ) as checked:
        assert "auctions" in checked.stderr.readline()
        while not list_children(checked.pid):
            os.sched_yield()
        os.killpg(checked.pid, signal.SIGTERM)
        said = checked.communicate(timeout=HANG)[1]
    assert checked.returncode == 143 and "Traceback" not in said and said.strip().endswith("terminated")


def list_children(pid):
    """Two processes that work, beside the one that counts resources."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return children if len(children) >= 3 else []
