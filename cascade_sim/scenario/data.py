"""A scenario as plain data: written back with every default spelled out, and hashed."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

from cascade_sim.models.recipes import RECIPES
from cascade_sim.scenario.schema import Scenario


def dump_scenario(scenario: Scenario) -> str:
    """Resolved YAML, every default spelled out, that loads back to an equal scenario."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 120
    stream = io.StringIO()
    yaml.dump(scenario_data(scenario), stream)
    return stream.getvalue()


def scenario_hash(scenario: Scenario) -> str:
    """16 hex digits of the SHA-256 of the resolved scenario as canonical JSON (keys sorted, no spaces)."""
    data = scenario_data(scenario)
    scenario.world.without_places(data["world"])
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def scenario_data(scenario: Scenario) -> dict[str, Any]:
    """Plain data as a scenario file holds it: without keys that an arm inherits or a recipe does not use."""
    data = scenario.model_dump(mode="json")
    data["arms"] = scenario.model_dump(mode="json", include={"arms"}, exclude_none=True)["arms"]
    if not data["what_if"]:  # a scenario without one keeps the hash it had
        del data["what_if"]
    if data["off_policy"] is None:
        del data["off_policy"]
    if not data["joint"]:
        del data["joint"]
    for name, spec in data["models"].items():
        used = scenario.models[name].trained_by.read
        for key in {key for recipe in RECIPES.values() for key in recipe.read if key not in used}:
            spec.pop(key, None)
    return data
