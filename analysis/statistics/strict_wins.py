"""Rankers held against each other on the same lists: paired tests, strict wins, the Pareto frontier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def paired_p(values: ArrayLike, base: ArrayLike) -> float:
    """Two-sided p of Student's paired t test over lists. NaN where fewer than two lists count for both.

    Lists with NaN on either side are left out. Without any spread p is 1 if the two agree, else 0.
    """
    from scipy.special import stdtr  # type: ignore[import-untyped]

    gap = np.asarray(values, np.float64) - np.asarray(base, np.float64)
    gap = gap[~np.isnan(gap)]
    if gap.size < 2:
        return math.nan
    mean, spread = float(gap.mean()), float(gap.std(ddof=1))
    if spread <= 1e-12 * abs(mean) or spread == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(gap.size - 1, -abs(mean) / (spread / math.sqrt(gap.size))))


def holm(ps: Sequence[float]) -> list[float]:
    """p values adjusted by Holm's step-down rule for as many comparisons as are defined; NaN stays NaN."""
    order = sorted((p, i) for i, p in enumerate(ps) if not math.isnan(p))
    adjusted = [math.nan] * len(ps)
    so_far = 0.0
    for place, (p, i) in enumerate(order):
        so_far = max(so_far, min(1.0, p * (len(order) - place)))
        adjusted[i] = so_far
    return adjusted


def beats(
    one: Mapping[str, float], other: Mapping[str, float], order: str = "ndcg", scale: str = "loss"
) -> bool:
    """A strict win: at least as good in order and in scale, and not equal in both. NaN never wins.

    `order` names what is better if greater, `scale` what is better if less.
    """
    no_worse = one[order] >= other[order] and one[scale] <= other[scale]
    return no_worse and (one[order] > other[order] or one[scale] < other[scale])


def strict_wins(
    cells: Sequence[Mapping[str, Any]], order: str = "ndcg", scale: str = "loss"
) -> dict[str, dict[str, dict[str, int]]]:
    """{objective: {rival: {"games", "won", "lost"}}} over all cells of the two at one learning rate and seed.

    A game is a pair of cells, one of each, whatever their alphas; rate and seed may be absent.
    """
    names = list(dict.fromkeys(cell["objective"] for cell in cells))
    found = {a: {b: {"games": 0, "won": 0, "lost": 0} for b in names if b != a} for a in names}
    for one in cells:
        for other in cells:
            is_game = all(one.get(key) == other.get(key) for key in ("learning_rate", "seed"))
            if not is_game or one["objective"] == other["objective"]:
                continue
            count = found[one["objective"]][other["objective"]]
            count["games"] += 1
            count["won"] += beats(one, other, order, scale)
            count["lost"] += beats(other, one, order, scale)
    return found


def frontier(points: Sequence[Mapping[str, float]], order: str = "ndcg", scale: str = "loss") -> list[int]:
    """Indices of the points that no other beats, the best order first."""
    kept = [
        i for i, point in enumerate(points) if not any(beats(other, point, order, scale) for other in points)
    ]
    return sorted(kept, key=lambda i: (-points[i][order], points[i][scale], i))


def over_seeds(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Cells that differ in their seed only, averaged."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault((cell["objective"], cell["alpha"], cell["learning_rate"]), []).append(cell)
    return [
        {
            "objective": objective,
            "alpha": alpha,
            "learning_rate": rate,
            **{name: float(np.mean([cell[name] for cell in group])) for name in ("ndcg", "loss")},
        }
        for (objective, alpha, rate), group in groups.items()
    ]
