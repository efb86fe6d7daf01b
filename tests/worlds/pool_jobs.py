"""Jobs for worker processes: some answer, some die. Light: every worker imports this."""

import os
import signal
import threading
import time
from pathlib import Path

from cascade_sim.foundation.errors import ScenarioError, UserError
from places import HANG


def square(x):
    return x * x, os.getpid()


def visit(folder, name):
    """Leave a mark for every try. Returns how many there are."""
    marks = Path(folder) / name
    with marks.open("a") as file:
        file.write(f"{os.getpid()}\n")
    return len(marks.read_text().split())


def die(folder, name, deaths):
    """Killed like by the system when memory runs out, so many times."""
    if visit(folder, name) <= deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def leave(folder):
    visit(folder, "leave")
    os._exit(3)


def refuse(problems):
    raise ScenarioError(problems) if problems else UserError("cannot write here: No space left on device")


class Odd(Exception):
    """Cannot be rebuilt from what it prints."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def raise_odd():
    raise Odd("salt", "pepper")


def unsendable(even_by_ray=False):
    """Functions cannot be sent; Ray sends them, but no locks."""
    return threading.Lock() if even_by_ray else lambda: None


def chunk_server(folder, deaths):
    """Serves chunk i as an array full of it; who is at chunk 5 dies, so many times."""
    import numpy as np

    Path(folder).mkdir(exist_ok=True)

    def serve(phase, index):
        if index == 5:
            die(folder, f"{phase}-{index}", deaths)
        return np.full(50_000, index)

    return serve


def wait_for_ever(folder, name):
    """At work until told to stop; if nobody does, it says so."""
    try:
        visit(folder, name)  # inside: whoever reads the mark may send the signal before the next line
        for _ in range(int(HANG / 0.02)):  # a signal is looked at between two steps
            time.sleep(0.02)
        visit(folder, f"{name}-done")
    finally:
        visit(folder, f"{name}-left")


def in_this_process(jobs, workers, *, on_done=lambda name: None, go_on=""):
    """In place of run_jobs where what the jobs do is tested: a process takes seconds to import everything."""
    results = {}
    for job in jobs:
        results[job.name] = job.function(*job.arguments, **job.options)
        on_done(job.name)
    return results


def starve(way):
    """Run out of memory as Python says it, or as a library does."""
    raise (
        MemoryError("Unable to allocate 9.3 GiB")
        if way == "python"
        else OSError(12, "Cannot allocate memory")
    )
