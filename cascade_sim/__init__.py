"""A discrete-event simulator of a multi-stage ad-ranking cascade and its auction.

From Python: `from cascade_sim import run, whatif, compare` (cascade_sim/api.py).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cascade_sim.api import compare, run, whatif

__all__ = ["SEMANTICS", "__version__", "compare", "run", "whatif"]

__version__ = "0.1.0"

# Changes whenever the same scenario and seed may give other results than before.
SEMANTICS = 2

PUBLIC = ("run", "whatif", "compare")  # imported when they are asked for: `import cascade_sim` stays light


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cascade_sim import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *PUBLIC})
