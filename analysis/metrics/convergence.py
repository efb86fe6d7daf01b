"""Is a net trained? What the last quarter of its steps still gained, of all that training gained.

The loss of the same samples is known by group at several points of a training. The learning rate falls to
zero along a line, so a trained net gains a little to the end: it settles. That is small beside what it has
gained since its first weights. A net still gains where this is beyond chance, by a 95 % interval over the
groups, which are paired, and more than a share `STILL_GAINING` of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cascade_sim.analysis.statistics.estimates import estimate

STILL_GAINING = 0.03
LEAST_GROUPS = 8


def last_quarter_gain(steps: Sequence[int], by_group: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """The gain of the last quarter of the steps as a share of the whole, with its 95 % interval.

    by_group: [points, groups], the loss of each group at each point, the first before any step. None for too
    few groups or points, for losses that are not finite, and for a training that gained nothing.

    >>> falling = [[1.0 - 0.5 * step / 4 + group / 1000 for group in range(8)] for step in range(5)]
    >>> round(last_quarter_gain(range(5), falling)["value"], 3)
    0.25
    """
    losses, nothing = np.asarray(by_group, np.float64), {"value": None, "low": None, "high": None}
    if len(steps) < 3 or losses.shape[1] < LEAST_GROUPS or not np.isfinite(losses).all():
        return nothing
    at = int(np.searchsorted(steps, 0.75 * steps[-1]))  # the first point of the last quarter
    whole = float((losses[0] - losses[-1]).mean())
    if at >= len(steps) - 1 or not whole > 0:
        return nothing
    from scipy.stats import t

    gains = losses[at] - losses[-1]
    margin = float(t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains)))
    gain = float(gains.mean())
    return {"value": gain / whole, "low": (gain - margin) / whole, "high": (gain + margin) / whole}


def still_gains(line: Mapping[str, Any]) -> bool:
    """Whether a model's training was cut short, by its line in metrics.json."""
    gain = estimate(line.get("gain"))
    return gain.value is not None and gain.is_above_zero and gain.value > STILL_GAINING
