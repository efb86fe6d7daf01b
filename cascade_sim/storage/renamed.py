"""Earlier names in metrics.json: a run that has them is refused, since pages would take them for missing."""

from collections.abc import Mapping
from typing import Any

# Of a run and of an arm: earlier name -> present name. Each older run has at least one of them.
KEYS = {
    "culprit": "ablation",
    "evidence": "replay",
    "slots_filled": "fill_rate",
    "welfare": "welfare_vs_oracle",
    "welfare_efficiency": "welfare_vs_oracle",
    "cpc_error_floor": "cpc_error_irreducible",
}


def renamed_key(metrics: Mapping[str, Any]) -> tuple[str, str] | None:
    """A key that has another name now, where it is, and that name; None if there is none.

    >>> renamed_key({"arms": {"mine": {"welfare": {"value": 0.9}}}})
    ('arms.mine.welfare', 'welfare_vs_oracle')
    """
    arms = metrics.get("arms")
    places = (
        [("", metrics), *((f"arms.{name}.", arm) for name, arm in arms.items())]
        if isinstance(arms, dict)
        else []
    )
    found = (
        (at + old, new)
        for at, part in places
        for old, new in KEYS.items()
        if isinstance(part, dict) and old in part
    )
    return next(found, None)
