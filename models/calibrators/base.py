"""What all calibrators have in common: fitted once, then frozen; numpy or torch in, the same out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
_WHOLE = 64  # elements; a multiple of what any processor computes at once
Values = TypeVar("Values", torch.Tensor, NDArray[Any])


class Calibrator(ABC):
    """Maps a model's score to a probability.

    A score is any finite number, by habit a logit. `fit` takes scores and labels in [0, 1] (clicks, or true
    probabilities) and returns the frozen map; calling it takes scores of any shape. Torch tensors give
    tensors of their dtype and device, anything else float64 arrays. `request` holds features of the request,
    one row per score, for those calibrators that look at them (`uses_request`); the others ignore it.
    """

    name: ClassVar[str]
    uses_request: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def fit(
        cls, scores: ArrayLike, labels: ArrayLike, *, request: ArrayLike | None = None, **options: Any
    ) -> Calibrator:
        """Learn the map from scores and outcomes."""

    @abstractmethod
    def probability(self, scores: torch.Tensor, request: torch.Tensor | None) -> torch.Tensor:
        """Calibrated probabilities of scores, in torch; `request` for the calibrators that use it."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that was learnt, as plain arrays."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Calibrator:
        """The calibrator that `arrays` came from."""

    @classmethod
    def no_options(cls, options: Collection[str]) -> None:
        """TypeError for options that are left over: it has none of these names."""
        if options:
            raise TypeError(f"the {cls.name} calibrator has no option {', '.join(options)}")

    def __call__(self, scores: Values, request: Any = None) -> Values:
        if isinstance(scores, torch.Tensor):
            return self._filled(scores, None if request is None else torch.as_tensor(request))
        tensor = torch.as_tensor(np.asarray(scores, np.float64))
        features = None if request is None else torch.as_tensor(np.asarray(request))
        with torch.no_grad():
            return self._filled(tensor, features).numpy()

    def _filled(self, scores: torch.Tensor, request: torch.Tensor | None) -> torch.Tensor:
        """The map on input filled up to whole vectors, so that equal scores give equal probabilities.

        Torch computes what is left over after whole vectors another way, which differs in the last bit:
        enough to break ties. Holds on one thread; several cut the input where they like.
        """
        if not self.uses_request or request is None:
            request, rows = None, scores.reshape(-1)
        else:
            rows = scores
        missing = -len(rows) % _WHOLE
        if missing and len(rows):
            rows = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])
            if request is not None:
                request = torch.cat([request, request.new_zeros(missing, *request.shape[1:])])
        return self.probability(rows, request)[: len(rows) - missing].reshape(scores.shape)


def fit_inputs(scores: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    """Flat float64 scores and labels; refused if empty, of two lengths, not finite, labels outside [0, 1]."""
    s, y = _flat(scores), _flat(labels)
    if s.size != y.size:
        raise ValueError(f"{s.size} scores and {y.size} labels")
    if s.size == 0:
        raise ValueError("no samples to fit a calibrator to")
    if not np.isfinite(s).all():
        raise ValueError("scores to fit a calibrator to must be finite")
    if not (y.min() >= 0 and y.max() <= 1):  # NaN fails too
        raise ValueError("labels to fit a calibrator to must be in [0, 1]")
    return s, y


def _flat(values: ArrayLike) -> Floats:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    return np.asarray(values, np.float64).reshape(-1)


def frozen(values: ArrayLike) -> Floats:
    """A float64 copy that cannot be written to."""
    array = np.array(values, np.float64)
    array.flags.writeable = False
    return array


def wide(device: torch.device) -> torch.dtype:
    """The dtype to look tables up in: double, so that distinct single-precision scores stay distinct.

    Only where a device is known to have it: MPS has none.
    """
    return torch.float64 if device.type in ("cpu", "cuda") else torch.float32
