"""What a command has made for a while and must not leave behind: locks, temporary files.

The maker of such a thing takes it away again in a `finally`. But Ctrl-C falls anywhere, also between the
making and the `finally`, and into the taking away itself. So a thing is registered before it is made and
unregistered when it is gone, and what is left at the end of the command (`signals.stoppable`), or else of the
process, is taken away then.
"""

import atexit
import os
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress

_registered: dict[Hashable, tuple[int, Callable[[], object]]] = {}  # thing -> process, and how it goes


def register(thing: Hashable, remove: Callable[[], object]) -> None:
    """From here on `remove` is called at the end, unless `unregister` comes first.

    In the main thread alone: Python interrupts no other, and what another makes may be in use at the end.
    """
    if threading.current_thread() is threading.main_thread():
        _registered[thing] = os.getpid(), remove


def unregister(thing: Hashable) -> None:
    """It is gone, or has its place; twice is harmless."""
    _registered.pop(thing, None)


def registered() -> frozenset[Hashable]:
    """Things that are registered now."""
    return frozenset(_registered)


def clear(but: frozenset[Hashable] = frozenset()) -> None:
    """Take away what is left, the last first, `but` what the caller's caller had before.

    What a process had before it was forked is not the fork's.
    """
    for thing in [thing for thing in reversed(_registered) if thing not in but]:
        process, remove = _registered.pop(thing, (0, registered))
        if process == os.getpid():
            with suppress(Exception):  # a full or a read-only disk: it stays, as after a kill
                remove()


atexit.register(clear)
