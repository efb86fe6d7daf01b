"""Large libraries, loaded without the garbage collector.

While torch is imported the collector goes hundreds of times through what was loaded before and finds nothing:
a tenth of the time that a command takes to start. At the end of the process it would do so once more.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
