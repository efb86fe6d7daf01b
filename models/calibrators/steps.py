"""Calibrators read off a table of scores: isotonic regression and histogram binning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cascade_sim.models.calibrators.base import Calibrator, Floats, fit_inputs, frozen, wide


@dataclass(frozen=True, eq=False)
class Isotonic(Calibrator):
    """The non-decreasing map with the least squared error, linear between the scores seen, level outside.

    Equal scores are taken together. Never turns an order round, but ties what falls on one level: a single
    level, the mean label, if there is one class, one score, or scores that mislead throughout. Levels of 0
    and 1 are possible; clip before taking a logarithm.

    >>> scores, clicks = np.array([-2.0, -1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> Isotonic.fit(scores, clicks)(np.array([-1.0, 1.0])).round(2).tolist()
    [0.5, 1.0]
    """

    at: Floats  # [T] rising scores
    level: Floats  # [T] non-decreasing probabilities
    name = "isotonic"

    @classmethod
    def fit(
        cls, scores: ArrayLike, labels: ArrayLike, *, request: ArrayLike | None = None, **options: Any
    ) -> Isotonic:
        from scipy.optimize import isotonic_regression  # type: ignore[import-untyped]

        cls.no_options(options)
        s, y = fit_inputs(scores, labels)
        at, place, count = np.unique(s, return_inverse=True, return_counts=True)
        mean = np.bincount(place, weights=y) / count
        level = np.clip(isotonic_regression(mean, weights=count.astype(np.float64)).x, 0.0, 1.0)
        # only the ends of each level shape the map
        is_end = np.ones(at.size, bool)
        is_end[1:-1] = (level[1:-1] != level[:-2]) | (level[1:-1] != level[2:])
        return cls(frozen(at[is_end]), frozen(level[is_end]))

    def probability(self, scores: torch.Tensor, request: torch.Tensor | None) -> torch.Tensor:
        at, level = (torch.tensor(a, dtype=wide(scores.device), device=scores.device) for a in self.points())
        s = scores.to(at.dtype).clamp(at[0], at[-1])
        right = torch.searchsorted(at, s.detach().contiguous()).clamp(1, len(at) - 1)
        left = right - 1
        share = (s - at[left]) / (at[right] - at[left])
        between = level[left] + share * (level[right] - level[left])
        return torch.minimum(between, level[right]).to(scores.dtype)  # rounding must not overshoot a level

    def points(self) -> tuple[Floats, Floats]:
        """Scores and levels, at least two of them, so that there is always an interval to look in."""
        if self.at.size > 1:
            return self.at, self.level
        return np.array([self.at[0], self.at[0] + 1.0]), np.repeat(self.level, 2)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"at": self.at, "level": self.level}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Isotonic:
        return cls(frozen(arrays["at"]), frozen(arrays["level"]))


@dataclass(frozen=True, eq=False)
class Histogram(Calibrator):
    """The mean label of the score's bin; bins of about equal count, so that it works on any scale of score.

    Edges lie midway between neighbouring scores, equal scores are never torn apart, and there are fewer bins
    than asked for if there are fewer scores. Items of one bin become tied, and nothing keeps neighbouring
    bins in order. `pseudo_count` adds that many samples at the overall mean to every bin (none by default: a
    bin without clicks then predicts 0).

    >>> scores, clicks = np.array([-2.0, -1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> Histogram.fit(scores, clicks)(np.array([-1.0, 1.0])).round(2).tolist()
    [1.0, 1.0]
    """

    edges: Floats  # [B − 1] a score equal to an edge is in the bin above
    level: Floats  # [B]
    name = "histogram"

    @classmethod
    def fit(
        cls,
        scores: ArrayLike,
        labels: ArrayLike,
        *,
        request: ArrayLike | None = None,
        bins: int = 20,
        pseudo_count: float = 0.0,
        **options: Any,
    ) -> Histogram:
        cls.no_options(options)
        if bins < 1 or pseudo_count < 0:
            raise ValueError(
                f"bins must be at least 1 and pseudo_count at least 0, not {bins}, {pseudo_count}"
            )
        s, y = fit_inputs(scores, labels)
        order = np.argsort(s, kind="stable")
        s, y = s[order], y[order]
        first = np.flatnonzero(np.r_[True, s[1:] != s[:-1]])
        length = np.diff(np.r_[first, s.size])
        bin_of_run = (2 * first + length - 1) * bins // (2 * s.size)  # a run goes to the bin of its middle
        is_cut = np.diff(bin_of_run) > 0
        last, after = s[first[:-1][is_cut]], s[first[1:][is_cut]]
        # halves before adding: no overflow; between neighbouring floats the midpoint may be the lower one
        edges = np.where(last / 2 + after / 2 > last, last / 2 + after / 2, after)
        bin_of_sample = np.searchsorted(edges, s, side="right")
        count = np.bincount(bin_of_sample, minlength=edges.size + 1)
        total = np.bincount(bin_of_sample, weights=y, minlength=edges.size + 1)
        return cls(frozen(edges), frozen((total + pseudo_count * y.mean()) / (count + pseudo_count)))

    def probability(self, scores: torch.Tensor, request: torch.Tensor | None) -> torch.Tensor:
        edges, level = (
            torch.tensor(a, dtype=wide(scores.device), device=scores.device) for a in (self.edges, self.level)
        )
        index = torch.searchsorted(edges, scores.detach().to(edges.dtype).contiguous(), right=True)
        return level[index].to(scores.dtype)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"edges": self.edges, "level": self.level}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Histogram:
        return cls(frozen(arrays["edges"]), frozen(arrays["level"]))
