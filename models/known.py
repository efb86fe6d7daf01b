"""The one refusal of a name that is in no table."""

from collections.abc import Collection


def check_known(what: str, name: str, known: Collection[str]) -> None:
    """ValueError that lists the known names, unless it is one of them."""
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}")
