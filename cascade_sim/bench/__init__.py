"""How fast: serving, markets, losses, metrics."""

import time
from collections.abc import Callable
from typing import Any


def seconds(function: Callable[[], Any]) -> float:
    """What one call takes."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
