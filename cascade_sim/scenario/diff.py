"""What differs between two scenarios, key by key, defaults included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cascade_sim.scenario.data import scenario_data
from cascade_sim.scenario.schema import Scenario

ABSENT = "absent"


@dataclass(frozen=True)
class KeyChange:
    """A key whose value is another one: `auction.reserve_cpc: 0.0 → 0.2`."""

    path: str
    old: Any
    new: Any

    def line(self) -> str:
        return f"{self.path}: {value_text(self.old)} → {value_text(self.new)}"


def scenario_diff(old: Scenario, new: Scenario) -> list[KeyChange]:
    """Keys in the old scenario's order, then those that only the new one has. Lists are compared whole."""
    before, after = _leaves(scenario_data(old)), _leaves(scenario_data(new))
    paths = [*before, *(path for path in after if path not in before)]
    return [
        KeyChange(path, before.get(path, ABSENT), after.get(path, ABSENT))
        for path in paths
        if before.get(path, ABSENT) != after.get(path, ABSENT)
    ]


def value_text(value: Any) -> str:
    """A value as a scenario file writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{', '.join(value_text(item) for item in value)}]"
    return "{}" if value == {} else str(value)


def _leaves(data: Any, path: str = "") -> dict[str, Any]:
    """{dotted path: value} of all that is not a mapping; an empty mapping counts as a value."""
    if not isinstance(data, dict) or not data:
        return {path: data}
    leaves: dict[str, Any] = {}
    for key, value in data.items():
        leaves |= _leaves(value, f"{path}.{key}" if path else str(key))
    return leaves
