"""What makes a process of ours quicker: libraries loaded without the garbage collector, memory that is kept.

While torch is imported the collector goes hundreds of times through what was loaded before and finds nothing:
a tenth of the time that a command takes to start. At the end of the process it would do so once more.

The tables of a block of requests are megabytes each, made and dropped again and again. The C library gives
such memory back to the system every time, and the system has to find and clear it page by page when it is
asked for again: a tenth of the CPU time of a run.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# What glibc's mallopt calls them. Up to the first size memory is taken from the heap, and the heap keeps up
# to the second for the next one who asks.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_FROM_HEAP, _KEPT = 32 << 20, 256 << 20


def keep_memory() -> bool:
    """Memory that is dropped stays with this process, a bounded part of it; False where that cannot be said.

    For processes of our own: it is not for a library to say how its user's process treats memory.
    """
    try:
        say = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not glibc
        return False
    return bool(say(_MMAP_THRESHOLD, _FROM_HEAP)) and bool(say(_TRIM_THRESHOLD, _KEPT))


@contextmanager
def loading() -> Iterator[None]:
    """Imports inside are not interrupted by the collector, which is then as it was."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def leave_quickly() -> None:
    """When the process ends, what is left is not searched for cycles: its memory goes back as a whole."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
