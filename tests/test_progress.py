"""Progress bars: what they show, and that they keep quiet where nobody looks."""

import os
import subprocess
import sys

import pytest

from cascade_sim import progress as progress_module
from cascade_sim.progress import Progress, rate_text
from places import HANG, ROOT
from worlds.clock import Clock


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress_module, "time", clock)
    return clock


def test_a_stage_records_how_long_it_took(clock):
    progress = Progress(quiet=True)
    with progress, progress.stage("serve", total=10) as stage:
        clock.sleep(2.5)
        stage.advance(4)
        stage.advance(6)
    assert stage.done == 4 + 6
    assert progress.seconds == {"serve": 2.5}


def test_the_seconds_of_a_repeated_stage_add_up(clock):
    with Progress(quiet=True) as progress:
        for _ in range(2):
            with progress.stage("epoch", total=1, unit="samples"):
                clock.sleep(1.5)
    assert progress.seconds == {"epoch": 2 * 1.5}


def test_a_stage_that_fails_is_timed_and_the_failure_goes_on():
    progress = Progress(quiet=True)
    with pytest.raises(ValueError, match="lost"), progress, progress.stage("train", total=1):
        raise ValueError("lost")
    assert "train" in progress.seconds


def test_the_rate_is_work_over_time():
    assert rate_text(30_000, 2.0, "requests") == "15,000 requests/s"
    assert rate_text(3, 2.0, "epochs") == "1.5 epochs/s"
    assert rate_text(0, 2.0, "requests") == ""
    assert rate_text(5, None, "requests") == ""


SHOW = """
import sys
from cascade_sim.progress import Progress
with Progress(quiet={quiet}) as progress, progress.stage("serve arms", total=2) as stage:
    stage.advance(2)
print("rich" in sys.modules)
"""


def test_nothing_is_drawn_into_a_log_even_if_colours_are_forced():
    done = subprocess.run(
        [sys.executable, "-c", SHOW.format(quiet=False)],
        capture_output=True,
        text=True,
        env={**os.environ, "FORCE_COLOR": "1"},
        cwd=ROOT,
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_shows_the_stage_unless_it_is_to_be_quiet(quiet):
    import pty

    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", SHOW.format(quiet=quiet)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux reports the closed end as an error
            break
        if not part:
            break
        shown += part
    child.communicate(timeout=HANG)
    os.close(ours)
    assert child.returncode == 0
    assert (b"serve arms" in shown and b"100%" in shown) is not quiet
    assert (shown == b"") is quiet
