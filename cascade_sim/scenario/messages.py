"""What pydantic found, in plain words: what is expected, what is there, and what may be meant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from cascade_sim.foundation.errors import did_you_mean
from cascade_sim.scenario.renamed import key_now, value_now
from cascade_sim.scenario.schema import Scenario
from cascade_sim.scenario.sections import FEATURE_NAME, MAX_OF_NAME, NAME, RUN_NAME
from cascade_sim.scenario.yaml import KeyPath, Problem

Node = Mapping[str, Any]  # a part of the JSON schema

PATTERNS = {
    NAME: f"letters, digits, '_' and '-' ({MAX_OF_NAME} at most)",
    FEATURE_NAME: f"a letter, then letters, digits and '_' ({MAX_OF_NAME} at most)",
    RUN_NAME: f"lower-case letters, digits, '_' and '-' ({MAX_OF_NAME} at most)",
}


@cache
def json_schema() -> dict[str, Any]:
    """The JSON schema of a scenario."""
    return Scenario.model_json_schema()


def schema_at(path: KeyPath) -> Node | None:
    """The part of the JSON schema that describes the value at `path`; None if there is no such key."""
    node: Node | None = _followed(json_schema())
    for step in path:
        node = _child(node, step) if node is not None else None
    return node


def known_keys(node: Node | None) -> list[str]:
    """The keys a mapping may have; empty where names are free."""
    return list(node.get("properties", {})) if node is not None else []


def has_free_names(node: Node | None) -> bool:
    """Whether this is a mapping whose keys are names of the user's choice (models, arms, groups, …)."""
    return node is not None and node.get("type") == "object" and "properties" not in node


def _followed(node: Node) -> Node:
    """The node itself without `$ref` and without `or null`; keeps a default and description beside them."""
    beside = {key: node[key] for key in ("default", "description") if key in node}
    if "anyOf" in node:
        options = [option for option in node["anyOf"] if option.get("type") != "null"]
        return {**_followed(options[0]), **beside}
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[1]
        return {**_followed(json_schema()["$defs"][name]), **beside}
    return node


def _child(node: Node, step: str | int) -> Node | None:
    if isinstance(step, int):
        return _followed(node["items"]) if "items" in node else None
    if step in node.get("properties", ()):
        return _followed(node["properties"][step])
    for key in ("patternProperties", "additionalProperties"):
        if isinstance(node.get(key), dict):
            return _followed(next(iter(node[key].values())) if key == "patternProperties" else node[key])
    return None


def path_text(path: Sequence[str | int]) -> str:
    """A path as a reader would write it: `world.slot_effects[2]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.lstrip(".")


def unknown_key(path: KeyPath) -> str:
    """`unknown key 'slot' in cascade; did you mean 'slots'?`, or the known keys; or its name now."""
    if now := key_now(path):
        return f"the key is called {path_text(now)} now"
    key, parent = str(path[-1]), path[:-1]
    known = known_keys(schema_at(parent))
    hint = did_you_mean(key, known) or f"; known: {', '.join(known)}"
    return f"unknown key '{key}' in {path_text(parent) or 'the scenario'}{hint}"


def expected(node: Node | None) -> str:
    """`an integer from 1 to 65536`, `one of gsp, vcg, first`, `a list of names`, …"""
    if node is None:
        return "plain YAML: finite numbers, text, true, false, lists and mappings"
    if "enum" in node or "const" in node:
        return "one of " + ", ".join(str(value) for value in node.get("enum", [node.get("const")]))
    if "pattern" in node:
        return f"a name of {PATTERNS.get(node['pattern'], node['pattern'])}"
    kind = node.get("type")
    if kind in ("integer", "number"):
        return ("an integer" if kind == "integer" else "a number") + _range(node)
    if kind == "object" and "properties" in node:
        return "a mapping with keys " + ", ".join(node["properties"])
    if kind == "array":
        return "a list of " + _plural(_followed(node["items"]))
    return {"object": "a mapping (name: value)", "string": "text"}.get(str(kind), expected(None))


def _plural(node: Node) -> str:
    if "enum" in node:
        return ", ".join(node["enum"])
    return {"number": "numbers" + _range(node), "integer": "integers", "string": "names"}.get(
        str(node.get("type")), "values"
    )


def _range(node: Node) -> str:
    low, above = node.get("minimum"), node.get("exclusiveMinimum")
    high, below = node.get("maximum"), node.get("exclusiveMaximum")
    text = f" above {above:g}" if above is not None else f" from {low:g}" if low is not None else ""
    if high is not None:
        text += f" {'up to' if above is not None else 'to'} {_number(high)}"
    elif below is not None:
        text += f" to below {_number(below)}"
    return text


def _number(value: float) -> str:
    if value == 2**31 - 1:
        return "2**31 - 1"
    if value == 2**63 - 1:
        return "2**63 - 1"
    return f"{int(value):,}" if float(value).is_integer() else str(value)


def value_words(value: Any) -> str:
    """How a value looks in the file."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text '{value}'" if len(value) <= 60 else f"the text '{value[:57]}…'"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    return str(value)


def _hint(value: Any, node: Node | None) -> str:
    """What was probably meant."""
    kind = node.get("type") if node is not None else None
    if node is not None and isinstance(value, str) and "enum" in node:
        return did_you_mean(value, node["enum"])
    if kind in ("integer", "number") and isinstance(value, str):
        try:
            number = float(value.replace(",", "").replace("_", ""))
        except ValueError:
            return ""
        return f"; write {number:.15g} without quotes" if math.isfinite(number) else ""
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return f"; write {int(value)}"
    if kind == "array" and isinstance(value, (str, int, float)):
        return f"; write [{value}]"
    if node is not None and node.get("pattern") == RUN_NAME and isinstance(value, str):
        slug = "".join(c if c.isalnum() and c.isascii() else "_" for c in value.lower())
        return f"; for example '{slug}'" if slug else ""
    return ""


def _missing(path: KeyPath) -> str:
    node = schema_at(path)
    return f"missing; expected {expected(node)}"


def explain(errors: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """One problem per error of pydantic's `ValidationError.errors()`."""
    problems = []
    for error in errors:
        loc, kind = tuple(error["loc"]), error["type"]
        if loc[:1] in (("models",), ("joint",)) and len(loc) > 3 and loc[2] == "options":
            loc = tuple(s for s in loc if s not in ("float", "list", "dict"))
        if loc and loc[-1] == "[key]":
            text = f"expected a name of {PATTERNS.get(error['ctx']['pattern'], 'text')}, found '{loc[-2]}'"
            problems.append(Problem(loc[:-1], text))
            continue
        if kind == "too_short" and any(e["loc"][:-1] == loc for e in errors):
            continue  # its items are refused, so pydantic counts none
        problems.append(Problem(loc, _text(kind, loc, error)))
    return problems


def _text(kind: str, path: KeyPath, error: Mapping[str, Any]) -> str:
    node, value = schema_at(path), error["input"]
    if kind == "extra_forbidden":
        return unknown_key(path)
    if kind == "missing":
        return _missing(path)
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "too_short":
        has, least = error["ctx"]["actual_length"], error["ctx"]["min_length"]
        return f"has {has}; give at least {least}" if has else f"is empty; give at least {max(least, 1)}"
    if kind == "too_long":
        return (
            f"has {error['ctx']['actual_length']} entries; at most {error['ctx']['max_length']} are allowed"
        )
    if now := value_now(path, value):
        return f"'{value}' is called '{now}' now"
    if value is None and node is not None and node.get("type") == "object":
        return f"has no value; expected {expected(node)} ({{}} for none)"
    if value is None:
        return f"has no value; expected {expected(node)}"
    return f"expected {expected(node)}, found {value_words(value)}{_hint(value, node)}"
