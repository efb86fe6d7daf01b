"""numpy, torch and the losses, imported when they are first used.

A scenario is read by asking objectives and recipes what they are called and which keys they know. That should
not wait for torch, so the files that define them import these names from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch

    from cascade_sim.models import losses
    from cascade_sim.models.losses import stages
else:

    class _Module:
        def __init__(self, name: str):
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    np, torch, losses = _Module("numpy"), _Module("torch"), _Module("cascade_sim.models.losses")
    stages = _Module("cascade_sim.models.losses.stages")

__all__ = ["losses", "np", "stages", "torch"]
