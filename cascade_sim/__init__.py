"""A discrete-event simulator of a multi-stage ad-ranking cascade and its auction.

From Python: `from cascade_sim import run, whatif, compare` (cascade_sim/api.py).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascade_sim.version import SEMANTICS, __version__

if TYPE_CHECKING:
    from cascade_sim.api import compare, run, whatif

__all__ = ["SEMANTICS", "__version__", "compare", "run", "whatif"]

PUBLIC = ("run", "whatif", "compare")  # imported when they are asked for: `import cascade_sim` stays light

# In a checkout `agents`, `models` and `analysis` lie beside this folder; their import names are
# cascade_sim.agents and so on there too.
_ROOT = Path(__file__).resolve().parent.parent
if all((_ROOT / name).exists() for name in ("pyproject.toml", "agents", "models", "analysis")):
    __path__.append(str(_ROOT))


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cascade_sim import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *PUBLIC})
