"""Options that have another name now: command -> old -> new. An old one is refused with its new name."""

from __future__ import annotations

RENAMED = {
    "check": {"--fresh": "--traffic-sample"},
    "check-power": {"--change": "--effect-size", "--runs": "--replications"},
    "contrast": {"--over": "--metrics", "--on": "--candidates"},
    "fit-world": {"--share": "--fit-share"},
    "off-policy": {"--jitter": "--estimand"},
    "realism": {"--part": "--log-part"},
    "tune": {"--by": "--criterion", "--uneven": "--allow-unequal-grids"},
}


def renamed_option(command: str | None, option: str) -> str | None:
    """Return a sentence with the new name of a command's old option; None for any other option."""
    new = RENAMED.get(command or "", {}).get(option)
    return None if new is None else f"{option} of `{command}` is called {new} now"
