"""Which code this is: the version, the number of its semantics, and where its packages lie."""

from pathlib import Path

__version__ = "0.1.0"

# Changes whenever the same scenario and seed may give other results than before.
SEMANTICS = 7

PACKAGE = Path(__file__).resolve().parent
# Folders that lie beside this package in a checkout and inside it once it is installed.
BESIDE = ("agents", "models", "analysis", "scenarios")


def folder_of(name: str) -> Path:
    """Where one of the folders BESIDE is, in a checkout or in an installed package."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name
