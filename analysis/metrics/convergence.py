"""Is a net trained? Whether its loss still fell by itself, or only because its steps grew short.

The learning rate falls to zero along a line, so at the end every training looks flat, and even a trained net
gains a little to the end: it settles as its steps grow short, about as much in each quarter of the steps. A
net that is not trained gains by going on, and most where its steps are long. So the gain of the second
quarter less that of the last is what going on still brought with half of the steps to go: its residual
improvement.

It is told as a share of all that training gained, on the same samples at every point, with a 95 % interval
over groups of them. Long steps go to and fro, so the losses between quarters are means over some points. The
bound was set by the nets of one trial world: of 60 and of 180 steps they had 7 to 16 % (pointwise, softmax,
rcr and jrc, on 250,000 impressions), of 1,400 and more, which longer training did not better, 0 to 5 %. The
gain of the last quarter alone does not distinguish them: 1.5 % after 180 steps, 1.4 % after 1,400. What is
missed: a net that lacked 3 % of what it could gain had 5 %; one that lacked 9 % had 9 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cascade_sim.analysis.statistics.estimates import estimate

UNCONVERGED = 0.06
MIN_GROUPS = 8
AROUND = 0.1001  # of the steps, on either side of a quarter's end, are its points


def residual_improvement(
    steps: Sequence[int], by_group: Sequence[Sequence[float]]
) -> dict[str, float | None]:
    """Gain of the second quarter of the steps less that of the last, as a share of the whole gain.

    by_group: [points, groups], the loss of each group at each point, the first before any step. None for too
    few groups or points, for losses that are not finite, and for a training that gained nothing.

    >>> halved = [[0.5**step + group / 1000 for group in range(8)] for step in range(5)]  # in every quarter
    >>> (0.5 - 0.25 - (0.125 - 0.0625)) / (1 - 0.0625)
    0.2
    >>> round(residual_improvement(range(5), halved)["value"], 3)
    0.2
    """
    losses = np.asarray(by_group, np.float64)
    nothing: dict[str, float | None] = {"value": None, "low": None, "high": None}
    if len(steps) < 5 or losses.shape[1] < MIN_GROUPS or not np.isfinite(losses).all():
        return nothing
    whole = float((losses[0] - losses[-1]).mean())
    if not whole > 0:
        return nothing
    from scipy.stats import t

    share = np.asarray(steps) / steps[-1]
    quarter, half, third = (losses[abs(share - end) < AROUND].mean(axis=0) for end in (0.25, 0.5, 0.75))
    by_itself = (quarter - half) - (third - losses[-1])
    value = float(by_itself.mean())
    margin = float(t.ppf(0.975, len(by_itself) - 1) * by_itself.std(ddof=1) / np.sqrt(len(by_itself)))
    return {"value": value / whole, "low": (value - margin) / whole, "high": (value + margin) / whole}


def is_unconverged(line: Mapping[str, Any]) -> bool:
    """Whether a training has not converged, by its learning curve: significantly, and by enough."""
    found = estimate(line.get("residual_improvement"))
    return found.value is not None and found.is_above_zero and found.value > UNCONVERGED
