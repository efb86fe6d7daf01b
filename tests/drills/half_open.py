"""Many connections that never finish their question: is a person still answered?

    python tests/drills/half_open.py RUN [--connections 200] [--seconds 30] [--descriptors 64]

Starts `serve`, opens connections that send half a request, and asks for a file of the page all the while,
each time by a new connection. Prints the slowest and the median answer, how many were answered, memory and
file descriptors of the server before, meanwhile and after, and how much
it wrote to stderr. On loopback alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

HALF = b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
LONGEST = 20.0  # seconds that a person waits


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--descriptors", type=int)
    given = parser.parse_args()
    print(json.dumps(drill(given.run, given.connections, given.seconds, given.descriptors), indent=1))


def drill(run: Path, connections: int, seconds: float, descriptors: int | None = None) -> dict[str, object]:
    """What happens to a server and a person while so many connections hang."""

    def limited() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    words = [sys.executable, "-m", "cascade_sim", "serve", str(run), "--port", "0"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limited
    ) as served:
        try:
            _, port, query = re.search(r"http://([^:]+):(\d+)/(\S*?)'?\s", served.stdout.readline()).groups()
            path = f"/live.css{query}"
            first, answers = ask(int(port), path), []
            before = state(served.pid)
            began = time.monotonic()
            slow = [half(int(port)) for _ in range(connections)]
            meanwhile = state(served.pid)
            while time.monotonic() - began < seconds:
                trickle(slow)
                answers.append(ask(int(port), path))
                time.sleep(min(0.5, seconds / 10))
            still = sum(is_open(each) for each in slow)
            for each in slow:
                each.close()
            time.sleep(0.5)
            after = state(served.pid)
        finally:
            served.terminate()
            said = served.communicate()[1]
    times = [answer for answer in answers if answer is not None]
    return {
        "first_ms": None if first is None else round(1000 * first, 1),  # it may still be starting
        "asked": len(answers),
        "answered": len(times),
        "median_ms": round(1000 * statistics.median(times), 1) if times else None,
        "slowest_ms": round(1000 * max(times), 1) if times else None,
        "half_open_at_the_end": still,
        "before": before,
        "meanwhile": meanwhile,
        "after": after,
        "stderr_bytes": len(said),
    }


def half(port: int) -> socket.socket:
    """A connection with half a question."""
    made = socket.create_connection(("127.0.0.1", port), timeout=LONGEST)
    made.sendall(HALF)
    made.setblocking(False)
    return made


def trickle(slow: list[socket.socket]) -> None:
    """A byte more on each, so that none is silent."""
    for each in slow:
        try:
            each.send(b"a")
        except OSError:
            continue


def is_open(each: socket.socket) -> bool:
    """Whether the server has not closed it."""
    try:
        return each.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def ask(port: int, path: str) -> float | None:
    """Seconds until a person has the whole answer; None if there is none."""
    began = time.monotonic()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=LONGEST) as made:
            made.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            content = b""
            while piece := made.recv(1 << 16):
                content += piece
    except OSError:
        return None
    return time.monotonic() - began if content.startswith(b"HTTP/1.1 200") else None


def state(pid: int) -> dict[str, float]:
    """Memory and file descriptors of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = int(re.search(r"VmRSS:\s+(\d+)", status)[1])
    return {"memory_mb": round(kilobytes / 1024, 1), "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


if __name__ == "__main__":
    main()
