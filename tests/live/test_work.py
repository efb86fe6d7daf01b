"""One thread, pieces of work: the urgent first, and of one asker the newest question alone."""

import threading

import pytest

from cascade_sim.live.work import IDLE, LATER, MAX_WAITING, NOW, Busy, CancellableProgress, Superseded, Worker
from places import HANG

LONG = HANG  # nothing here waits so long


@pytest.fixture
def worker():
    made = Worker()
    yield made
    made.close()


def held(worker):
    """Keep the worker at a job until the event is set, so that what follows waits together."""
    begun, go = threading.Event(), threading.Event()

    def job():
        begun.set()
        go.wait(LONG)
        yield

    worker.submit(job(), NOW)
    begun.wait(LONG)
    return go


def noted(said, name, steps=1):
    for _ in range(steps):
        said.append(name)
        yield
    return name


def test_what_a_job_returns_is_the_answer_and_what_it_yields_is_told(worker):
    def job():
        yield "one"
        yield None
        yield "two"
        return 3

    told = []
    assert worker.submit(job(), NOW, tell=told.append).result(LONG) == 3
    assert told == ["one", "two"]


def test_the_urgent_goes_first_and_between_the_pieces_of_others(worker):
    go, said = held(worker), []
    idle = worker.submit(noted(said, "idle", 3), IDLE)
    later = worker.submit(noted(said, "later", 2), LATER)
    now = worker.submit(noted(said, "now"), NOW)
    go.set()
    assert [future.result(LONG) for future in (idle, later, now)] == ["idle", "later", "now"]
    assert said == ["now", "later", "later", "idle", "idle", "idle"]


def test_a_newer_question_of_the_same_asker_makes_the_older_one_stale(worker):
    go, said = held(worker), []
    old = worker.submit(noted(said, "old", 5), NOW, ("tab", "answer"))
    other = worker.submit(noted(said, "other"), NOW, ("another tab", "answer"))
    new = worker.submit(noted(said, "new"), NOW, ("tab", "answer"))
    go.set()
    assert new.result(LONG) == "new" and other.result(LONG) == "other"
    with pytest.raises(Superseded):
        old.result(LONG)
    assert "old" not in said


def test_work_that_has_begun_is_abandoned_between_two_pieces(worker):
    first, go, said = threading.Event(), threading.Event(), []

    def job():
        try:
            first.set()
            go.wait(LONG)
            yield
            said.append("went on")
            yield
        finally:
            said.append("cleaned up")

    old = worker.submit(job(), NOW, "key")
    first.wait(LONG)
    new = worker.submit(noted([], "new"), NOW, "key")
    go.set()
    assert new.result(LONG) == "new"
    with pytest.raises(Superseded):
        old.result(LONG)
    assert said == ["cleaned up"]


def test_an_error_is_the_asker_s_and_the_next_job_is_done(worker):
    def job():
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        worker.submit(job(), NOW).result(LONG)
    assert worker.submit(noted([], "fine"), NOW).result(LONG) == "fine"


def test_too_many_questions_are_refused(worker):
    go = held(worker)
    waiting = [worker.submit(noted([], str(i)), NOW) for i in range(MAX_WAITING - 1)]
    with pytest.raises(Busy):
        worker.submit(noted([], "one more"), NOW)
    go.set()
    assert [future.result(LONG) for future in waiting] == [str(i) for i in range(MAX_WAITING - 1)]


def test_as_many_may_wait_as_one_says():
    short = Worker(2)
    go = held(short)
    waiting = short.submit(noted([], "first"), NOW)
    with pytest.raises(Busy):
        short.submit(noted([], "second"), NOW)
    go.set()
    assert waiting.result(LONG) == "first"
    short.close()


def test_a_long_step_is_given_up_when_nobody_waits_for_it(worker):
    begun, go, steps = threading.Event(), threading.Event(), []

    def job():
        yield
        with CancellableProgress(worker.is_wanted).stage("long", 3) as stage:
            for i in range(3):
                begun.set()
                go.wait(LONG)
                stage.advance()
                steps.append(i)

    old = worker.submit(job(), NOW, "key")
    begun.wait(LONG)
    new = worker.submit(noted([], "new"), NOW, "key")
    go.set()
    assert new.result(LONG) == "new" and steps == []
    with pytest.raises(Superseded):
        old.result(LONG)
    assert worker.submit(job(), NOW).result(LONG) is None and steps == [0, 1, 2]
