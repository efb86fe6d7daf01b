"""What differs between two scenarios, key by key, defaults included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cascade_sim.scenario.data import scenario_data
from cascade_sim.scenario.schema import Scenario
from cascade_sim.scenario.yaml import parse

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


def sections_of_one(old: Scenario, new: Scenario) -> tuple[list[str], list[str]]:
    """Sections that only the old scenario has, and that only the new one has: `market`, `models.mine`.

    A section is a mapping with keys; where the other scenario has none of that name, or null.
    """
    return _alone(scenario_data(old), scenario_data(new)), _alone(scenario_data(new), scenario_data(old))


def _alone(own: dict[str, Any], other: dict[str, Any], path: str = "") -> list[str]:
    sections: list[str] = []
    for key, value in own.items():
        if not isinstance(value, dict) or not value:
            continue
        inside, counterpart = f"{path}.{key}" if path else str(key), other.get(key)
        sections += _alone(value, counterpart, inside) if isinstance(counterpart, dict) else [inside]
    return sections


def arm_changes(scenario_text: str, baseline: str) -> dict[str, list[str]]:
    """Arm → a line per key in which it differs from the baseline arm: `pre_ranking.model: logloss → ltr`.

    Read from the text as it is, so that a run of an older version has its lines, too. What cannot be
    read has none.
    """
    data = parse(scenario_text).data
    arms = data.get("arms") if isinstance(data, dict) else None
    if not isinstance(arms, dict) or not isinstance(data, dict):
        return {}
    common = _leaves({key: value for key, value in data.items() if key != "arms"})
    own = _overrides(arms.get(baseline))
    changes: dict[str, list[str]] = {}
    for arm, overrides in arms.items():
        leaves = _overrides(overrides)
        lines = []
        for path in dict.fromkeys((*leaves, *own)):
            shared = common.get(path, common.get(f"cascade.{path}", ABSENT))
            old, new = own.get(path, shared), leaves.get(path, shared)
            if old == new:
                continue
            known = KeyChange(path, old, new).line()
            lines.append(f"{path}: {value_text(new)}" if old == ABSENT else known)
        if lines:
            changes[str(arm)] = lines
    return changes


def _overrides(arm: Any) -> dict[str, Any]:
    return _leaves(arm) if isinstance(arm, dict) and arm else {}


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
