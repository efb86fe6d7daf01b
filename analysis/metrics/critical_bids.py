"""Critical bids in numbers: how much of its bid an ad needs to keep its slot, and what the cascade adds.

Per impression: the init-bid, the critical bid in the auction (local) and through the whole cascade, both on
the scale of the init-bid, and the CPC on the scale of the auction's bids, which is `factor` times that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.analysis.statistics.bootstrap import quantile_intervals, ratio_intervals

BINS = 50  # of the distributions, from 0 to 1 of the bid
LEVELS = {"median": 0.5, "p90": 0.9}
# metric -> (numerator, denominator), summed over requests
RATIOS: dict[str, tuple[str, str | None]] = {
    "with_gap": ("has_gap", "impressions"),
    "local_mean": ("local_share", "impressions"),
    "cascade_mean": ("cascade_share", "impressions"),
    "gap_share": ("gap_share", "impressions"),
    "gap": ("gap", "impressions"),
    "cpc_of_local": ("cpc", "local_price"),
    "cpc_of_cascade": ("cpc", "cascade_price"),
}


def summaries(
    tables: Mapping[str, Mapping[str, NDArray[Any]]], n_requests: int, resamples: int, seed: int
) -> dict[str, dict[str, Any]]:
    """{arm: {metric: {"value", "low", "high"}, "impressions", "distribution"}}.

    tables: {arm: {"request" (0 to n_requests - 1), "bid", "local", "cascade", "factor", "cpc": [I]}}. Shares
    are of the ad's own bid; `gap` is money; `cpc_of_…` are ratios of sums on the scale of the auction's bids.
    """
    columns = {arm: _per_request(table, n_requests) for arm, table in tables.items()}
    if not columns:
        return {}
    ratios = ratio_intervals(columns, RATIOS, next(iter(columns)), resamples, seed)
    rows: dict[str, dict[str, Any]] = {}
    for arm, table in tables.items():
        row: dict[str, Any] = {"impressions": len(table["request"])}
        for metric, entry in ratios[arm].items():
            row[metric] = {key: entry[key] for key in ("value", "low", "high")}
        for name in ("local", "cascade"):
            share = table[name] / table["bid"]
            levels = list(LEVELS.values())
            made = quantile_intervals(share, table["request"], n_requests, levels, resamples, seed)
            row |= {f"{name}_{level}": entry for level, entry in zip(LEVELS, made, strict=True)}
        row["distribution"] = {
            "share_of_bid": [i / BINS for i in range(BINS + 1)],
            **{name: _cumulative(table[name] / table["bid"]) for name in ("local", "cascade")},
        }
        rows[arm] = row
    return rows


def _per_request(table: Mapping[str, NDArray[Any]], n_requests: int) -> dict[str, NDArray[np.float64]]:
    bid, local, cascade = table["bid"], table["local"], table["cascade"]
    gap = cascade - local
    per_impression: dict[str, NDArray[Any]] = {
        "impressions": np.ones(len(bid)),
        "has_gap": gap > 0,
        "local_share": local / bid,
        "cascade_share": cascade / bid,
        "gap_share": gap / bid,
        "gap": gap,
        "cpc": table["cpc"],
        "local_price": local * table["factor"],
        "cascade_price": cascade * table["factor"],
    }
    request = table["request"]
    return {
        name: np.bincount(request, column.astype(np.float64), n_requests).astype(np.float64)
        for name, column in per_impression.items()
    }


def _cumulative(share: NDArray[np.float64]) -> list[float]:
    """Share of impressions at or below each of the edges; a share just above 1 (a micro-unit) counts as 1."""
    ranked = np.sort(np.minimum(share, 1.0))
    edges = np.arange(BINS + 1) / BINS
    below = np.searchsorted(ranked, edges, side="right")
    return [float(x) for x in below / max(len(ranked), 1)]
