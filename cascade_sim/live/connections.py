"""Connections of the page's server: how many there may be, and how long one may wait with its question.

A client that connects and does not ask is let go after some seconds. Where there are too many, the one
that has waited longest without being answered goes first, so that a person is answered while others hang.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cascade_sim.foundation.terminal import echo

PATIENCE = 10.0  # seconds from a connection, or the answer before, to the end of the next question's headers
MAX_CONNECTIONS = 100
AT_ONCE = 4  # accepted in a turn of the loop: so many may be open beyond the most, for some turns
QUEUE = 128  # that wait to be accepted


def most_connections() -> int:
    """Far fewer than there are file descriptors: runs have files to open, too."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few = MAX_CONNECTIONS if descriptors == resource.RLIM_INFINITY else descriptors // 4
    return max(1, min(MAX_CONNECTIONS, few))


class PatientProtocol(H11Protocol):
    """HTTP of which a question has to arrive in time. Idle connections are in the order of their waiting."""

    idle: dict[PatientProtocol, asyncio.TimerHandle]  # of the server, set by it
    most = MAX_CONNECTIONS

    def connection_made(self, transport: Any) -> None:  # a Transport to uvicorn, any other to asyncio
        super().connection_made(transport)
        self._wait()
        for other in list(self.idle)[: max(0, len(self.connections) - self.most)]:
            other.let_go()  # itself, where all others are being answered

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait_no_more()  # the headers are complete, and an answer is on its way

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()
        if not self.cycle.response_complete:  # a question that had come before the answer
            self._wait_no_more()

    def let_go(self) -> None:
        """Close it. It counts as gone at once, since many may come before the loop turns."""
        self._wait_no_more()
        self.connections.discard(self)
        self.transport.abort()

    def _wait(self) -> None:
        self._wait_no_more()
        self.idle[self] = self.loop.call_later(PATIENCE, self.let_go)

    def _wait_no_more(self) -> None:
        timer = self.idle.pop(self, None)
        if timer is not None:
            timer.cancel()


class PageServer(uvicorn.Server):
    """uvicorn with a limit of connections, and one sentence where files run out."""

    def __init__(self, app: Any) -> None:
        protocol = type("Protocol", (PatientProtocol,), {"idle": {}, "most": most_connections()})
        config = uvicorn.Config(
            app, http=protocol, ws="none", lifespan="on", log_level="error", access_log=False,
            timeout_graceful_shutdown=1, server_header=False, backlog=AT_ONCE,
            h11_max_incomplete_event_size=64 * 1024,
        )  # fmt: skip
        super().__init__(config)
        self._was_told = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; asyncio takes one number for what may wait and for what is accepted at once."""
        await super().startup(sockets)
        asyncio.get_running_loop().set_exception_handler(self._tell)
        for listener in sockets or ():
            listener.listen(QUEUE)

    def _tell(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "out of system resource" not in context["message"]:
            loop.default_exception_handler(context)
        elif not self._was_told:
            self._was_told = True
            echo("warning: there are too few file descriptors (ulimit -n); some visitors wait", err=True)
