"""Progress bars: what they show, and that they keep quiet where nobody looks."""

import os
import subprocess
import sys

import pytest

from cascade_sim.foundation import progress as progress_module
from cascade_sim.foundation.progress import Lines, Progress, Stage, clock_text, rate_text
from places import HANG, ROOT
from worlds.clock import Clock

# Wording: how far a stage is, as one line that is read while it runs.


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


def test_one_piece_of_work_is_done_when_it_ends_and_not_if_it_fails():
    with Progress(quiet=True) as progress, progress.stage("report", 1, "pages") as stage:
        assert stage.done == 0
    assert stage.done == 1
    with pytest.raises(ValueError), Progress(quiet=True) as progress, progress.stage("report", 1) as failed:
        raise ValueError
    assert failed.done == 0


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
    assert rate_text(1, 100.0, "worlds") == ""  # not 0.0 worlds/s


SHOW = """
import sys
from cascade_sim.foundation.progress import Progress
with Progress(quiet={quiet}) as progress, progress.stage("serve arms", total=2) as stage:
    stage.advance(2)
print("rich" in sys.modules)
"""


@pytest.mark.parametrize("quiet", [False, True])
def test_a_log_gets_plain_lines_even_if_colours_are_forced(quiet):
    done = subprocess.run(
        [sys.executable, "-c", SHOW.format(quiet=quiet)],
        capture_output=True,
        text=True,
        env={**os.environ, "FORCE_COLOR": "1"},
        cwd=ROOT,
    )
    assert done.stdout == "False\n"
    assert [line.split("] ")[1] for line in done.stderr.splitlines()] == ["serve arms: 2 requests"][quiet:]
    assert "\x1b" not in done.stderr


def test_work_goes_on_if_nobody_reads_its_lines_any_more():
    code = "import os, sys\nos.close(2)\n" + SHOW.format(quiet=False)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "False\n")


@pytest.fixture
def lines(clock):
    """Lines that are kept, of a clock that stands still."""
    kept = []
    return kept, Lines(kept.append, clock.perf_counter)


def stage_of(lines, clock, name="serve", total=100, unit="requests"):
    return Stage(name, total, unit, clock.perf_counter, lines=lines)


def test_a_line_tells_that_a_stage_begins_and_another_each_minute_how_far_it_is(lines, clock):
    kept, shown = lines
    clock.sleep(7)
    stage = stage_of(shown, clock)
    assert kept == ["[0:07] serve: 100 requests"]
    for _ in range(40):  # two minutes
        clock.sleep(3)
        stage.advance(1)
    assert len(kept) == 1 + 2
    assert kept[1] == "[1:07] serve: 20 of 100 requests (20 %), 0.3 requests/s, 4:00 left"
    assert kept[2].startswith("[2:07] serve: 40 of 100 requests (40 %)")
    stage.stop()
    clock.sleep(600)
    shown.tick()
    assert len(kept) == 3  # nothing is under way


def test_what_a_stage_tells_is_a_line_at_once(lines, clock):
    kept, shown = lines
    stage = stage_of(shown, clock, "cells", 4, "worlds")
    clock.sleep(30)
    stage.advance(1)
    stage.tell(f"slots=3 finished, {stage.state()}")
    assert kept[1:] == ["[0:30] cells: slots=3 finished, 1 of 4 worlds (25 %), 1:30 left"]


def test_a_stage_that_does_not_advance_is_told_of_as_well(lines, clock):
    kept, shown = lines
    stage_of(shown, clock, "worlds", 3, "worlds")
    inner = stage_of(shown, clock, "intervals", 1, "tables")
    for _ in range(6):
        clock.sleep(15)
        shown.tick()
    assert kept == ["[0:00] worlds: 3 worlds", "[0:00] intervals", "[1:00] intervals: for 1:00"]
    inner.stop()
    clock.sleep(3600)
    shown.tick()
    assert kept[-1] == "[1:01:30] worlds: 0 of 3 worlds (0 %)"


def test_times_are_read_as_on_a_clock():
    assert [clock_text(seconds) for seconds in (0, 59.9, 65, 3600, 7384)] == [
        "0:00",
        "0:59",
        "1:05",
        "1:00:00",
        "2:03:04",
    ]


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


COMPILE = """
from cascade_sim.foundation.compilation import kernel
from cascade_sim.foundation.progress import Progress

@kernel
def add(x):
    return x + 1

with Progress() as progress, progress.stage("serve arms", total=2) as stage:
    add(1)
    add(1.5)
"""


@pytest.mark.drill
def test_kernels_that_are_compiled_are_said_to_be_and_only_then(tmp_path):
    (tmp_path / "compile.py").write_text(COMPILE)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CASCADE_SIM_KERNELS": str(tmp_path / "kernels")}

    def lines():
        done = subprocess.run(
            [sys.executable, "compile.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        return [line.partition("] ")[2] for line in done.stderr.splitlines()]

    assert lines() == ["serve arms: 2 requests", "compiling kernels, once per version"]
    assert lines() == ["serve arms: 2 requests"]


def test_a_stage_that_waits_for_the_compiler_says_how_many_kernels_it_has(clock):
    said = []
    lines = Lines(said.append, clock.perf_counter)
    stage = Stage("serve", 10, "requests", clock.perf_counter, lines=lines)
    for n_done in (0, 0, 1, 2):
        lines.compiling(n_done)
    clock.sleep(61)
    lines.tick()
    assert said[1:] == [
        "[0:00] compiling kernels, once per version",
        f"[1:01] {stage.text()}; 2 kernels compiled",
    ]


@pytest.mark.parametrize("n_kernels", [1, 2])
def test_on_a_terminal_the_bar_of_the_compiler_goes_when_it_is_done(monkeypatch, n_kernels):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress() as progress, progress.stage("serve", 10):
        for name in "ab"[:n_kernels]:  # one inside the other
            progress._compiling(name, False)
        for name in "ab"[:n_kernels]:
            task = progress._bars.tasks[-1]
            assert task.visible and task.description == progress_module.COMPILING
            progress._compiling(name, True)
        assert not task.visible and task.completed == n_kernels
