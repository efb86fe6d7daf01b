"""A discrete-event simulator of a multi-stage ad-ranking cascade and its auction.

    from cascade_sim import run, whatif

    study = run("quick")
    whatif(study, {"auction.reserve_cpc": 0.2}).frame()

The public names are those of __all__, and the contracts in `cascade_sim.protocols`. Each is imported on
demand: `import cascade_sim` is light.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascade_sim.version import SEMANTICS, __version__

if TYPE_CHECKING:
    from cascade_sim.api import (
        audit_logs,
        baseline,
        check,
        compare,
        export_logs,
        fit_world,
        import_logs,
        landscape,
        load_scenario,
        off_policy,
        open_run,
        realism,
        run,
        sweep,
        trace,
        whatif,
    )
    from cascade_sim.auction import run_auction
    from cascade_sim.checks.bidder import check_bidder
    from cascade_sim.checks.model import check_model
    from cascade_sim.checks.retriever import check_retriever
    from cascade_sim.scenario.schema import Scenario

__all__ = [
    "SEMANTICS",
    "Scenario",
    "__version__",
    "audit_logs",
    "baseline",
    "check",
    "check_bidder",
    "check_model",
    "check_retriever",
    "compare",
    "export_logs",
    "fit_world",
    "import_logs",
    "landscape",
    "load_scenario",
    "off_policy",
    "open_run",
    "realism",
    "run",
    "run_auction",
    "sweep",
    "trace",
    "whatif",
]

_ELSEWHERE = {
    "Scenario": "cascade_sim.scenario.schema",
    "check_bidder": "cascade_sim.checks.bidder",
    "check_model": "cascade_sim.checks.model",
    "check_retriever": "cascade_sim.checks.retriever",
    "run_auction": "cascade_sim.auction",
}

# In a checkout `agents`, `models` and `analysis` lie beside this folder; their import names are
# cascade_sim.agents and so on there too.
_ROOT = Path(__file__).resolve().parent.parent
if all((_ROOT / name).exists() for name in ("pyproject.toml", "agents", "models", "analysis")):
    __path__.append(str(_ROOT))


if not TYPE_CHECKING:  # a type checker should refuse a name that is none

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_ELSEWHERE.get(name, "cascade_sim.api")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
