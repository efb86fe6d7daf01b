"""The net for learning-to-rank tables: layers with batch norm and dropout over symmetric-log inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

LAYERS = (1024, 512, 256)


def symmetric_log(features: np.ndarray) -> np.ndarray:
    """sign(x) · log(1 + |x|): tames counts and keeps signs; exact near 0."""
    return np.copysign(np.log1p(np.abs(features)), features)


class RankingNet(nn.Module):
    """Features of an item to the outputs of an objective's heads.  [N, features] -> [N, heads]

    Batch norm on the inputs, then per layer linear, batch norm, ReLU, dropout; heads are linear on the last
    layer. Training batches need at least two items. `momentum` is the weight of a batch in what the norms
    remember for serving.
    """

    def __init__(
        self,
        n_features: int,
        n_heads: int = 1,
        layers: Sequence[int] = LAYERS,
        dropout: float = 0.0,
        momentum: float = 0.1,
    ) -> None:
        super().__init__()
        if n_features < 1 or n_heads < 1 or any(width < 1 for width in layers) or not 0 <= dropout < 1:
            raise ValueError(
                f"cannot make a net of {n_features} features, layers {tuple(layers)}, {n_heads} heads and "
                f"dropout {dropout}"
            )
        parts: list[nn.Module] = [nn.BatchNorm1d(n_features, momentum=momentum)]
        width = n_features
        for size in layers:
            # the norm has its own bias
            parts += [nn.Linear(width, size, bias=False), nn.BatchNorm1d(size, momentum=momentum), nn.ReLU()]
            parts += [nn.Dropout(dropout)] if dropout > 0 else []
            width = size
        self.body = nn.Sequential(*parts)
        self.heads = nn.Linear(width, n_heads)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.heads(self.body(features))
        return outputs
