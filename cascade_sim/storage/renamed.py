"""Earlier names in metrics.json: a run that has them is refused, since pages would take them for missing."""

from collections.abc import Mapping
from typing import Any

# Of a run, an arm, a training and the off-policy part: earlier name -> present name.
KEYS = {
    "culprit": "ablation",
    "evidence": "replay",
    "slots_filled": "fill_rate",
    "welfare": "welfare_vs_oracle",
    "welfare_efficiency": "welfare_vs_oracle",
    "cpc_error_floor": "cpc_error_irreducible",
    "pages_as_logged": "page_match_rate",
    "descent": "residual_improvement",
    "jitter": "estimand",
}


def renamed_key(metrics: Mapping[str, Any]) -> tuple[str, str] | None:
    """A key that has another name now, where it is, and that name; None if there is none.

    >>> renamed_key({"arms": {"mine": {"welfare": {"value": 0.9}}}})
    ('arms.mine.welfare', 'welfare_vs_oracle')
    """
    places = [("", metrics), ("off_policy.", metrics.get("off_policy"))]
    for group in ("arms", "training"):
        parts = metrics.get(group)
        if isinstance(parts, dict):
            places += [(f"{group}.{name}.", part) for name, part in parts.items()]
    found = (
        (at + old, new)
        for at, part in places
        for old, new in KEYS.items()
        if isinstance(part, dict) and old in part
    )
    return next(found, None)
