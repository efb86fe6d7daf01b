"""What is noted goes at the end of a command, in whatever moment it is stopped."""

import os
import signal
import sys
import threading

import pytest

from cascade_sim.foundation import cleanup
from cascade_sim.foundation.signals import stoppable


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch):
    monkeypatch.setattr(cleanup, "_registered", {})


def test_what_is_left_goes_at_the_end_of_a_command_the_last_first():
    gone = []
    with stoppable():
        for name in "abc":
            cleanup.register(name, lambda name=name: gone.append(name))
        cleanup.unregister("b")
        cleanup.unregister("b")
        assert gone == []
    assert gone == ["c", "a"]
    cleanup.clear()
    assert gone == ["c", "a"]


def test_a_command_leaves_alone_what_its_caller_holds():
    gone = []
    cleanup.register("a", lambda: gone.append("a"))
    with stoppable():
        cleanup.register("b", lambda: gone.append("b"))
    assert gone == ["b"]
    cleanup.clear()
    assert gone == ["b", "a"]


def test_what_cannot_be_removed_keeps_nothing_else_from_going(tmp_path):
    (tmp_path / "a").touch()
    cleanup.register("a", (tmp_path / "a").unlink)
    cleanup.register("b", (tmp_path / "b").unlink)  # there is none
    cleanup.clear()
    assert os.listdir(tmp_path) == []


def test_what_another_thread_makes_is_its_own():
    gone = []
    thread = threading.Thread(target=cleanup.register, args=("a", lambda: gone.append("a")))
    thread.start()
    thread.join()
    cleanup.clear()
    assert gone == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_leaves_alone_what_its_parent_holds(tmp_path):
    (tmp_path / "a").touch()
    cleanup.register("a", (tmp_path / "a").unlink)
    pid = os.fork()
    if not pid:
        cleanup.clear()
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_an_interrupt_does_not_cut_off_the_clearing():
    gone = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stoppable():
            cleanup.register("a", lambda: gone.append("a"))
            cleanup.register("b", lambda: os.kill(os.getpid(), signal.SIGINT) or gone.append("b"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert gone == ["b", "a"]
