"""Formats that are known by name: a ready mapping each, and where files need it a reader of their own.

To add one, write a module with an `ADAPTER` and name it here.
"""

from __future__ import annotations

import importlib

from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.logs.importing.formats.adapter import Adapter

FORMATS = {
    "auction-net": "auction_net",
    "open-bandit": "open_bandit",
    "open-rtb": "open_rtb",
    "rec-flow": "rec_flow",
}


def adapter(name: str) -> Adapter:
    """The adapter of a format; UserError with the known names if there is none."""
    if name not in FORMATS:
        raise UserError(unknown_name("format", name, FORMATS))
    found: Adapter = importlib.import_module(f"{__name__}.{FORMATS[name]}").ADAPTER
    return found
