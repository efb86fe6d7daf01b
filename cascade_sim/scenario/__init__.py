"""Scenario files: their keys, checks, errors with line and column, overrides and differences.

`from cascade_sim.scenario import Scenario, load_scenario`; both are imported when they are asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cascade_sim.scenario.file import load_scenario
    from cascade_sim.scenario.schema import Scenario

__all__ = ["Scenario", "load_scenario"]


def __getattr__(name: str) -> Any:
    if name == "Scenario":
        from cascade_sim.scenario.schema import Scenario

        return Scenario
    if name == "load_scenario":
        from cascade_sim.scenario.file import load_scenario

        return load_scenario
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
