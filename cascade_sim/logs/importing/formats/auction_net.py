"""AuctionNet's traffic log: 18 columns, a row for each advertiser and impression opportunity.

github.com/alimama-tech/AuctionNet, pre_generated_dataset/readme_dataset.md. Each opportunity
(deliveryPeriodIndex, timeStepIndex, pvIndex: its own environment counts each step's from 0) has bids of 48
advertisers and three slots, ordered by bid alone; the winner of a slot pays the next bid if its ad is
exposed. Advertisers are the ads.

- The one response of the log is a conversion on exposure: it is read as the click, and pValue as the pCTR.
- The winner of a slot that was not exposed keeps its slot, and pays nothing: it is charged per exposed
  impression. Its price is unknown where the cost is 0.
- A period is a day, its 48 steps are half-hours: the log has no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cascade_sim.logs.importing.formats.adapter import Adapter, columns_of

COLUMNS = (
    *("deliveryPeriodIndex", "advertiserNumber", "advertiserCategoryIndex", "budget", "CPAConstraint"),
    *("timeStepIndex", "remainingBudget", "pvIndex", "pValue", "pValueSigma", "bid", "xi", "adSlot", "cost"),
    *("isExposed", "conversionAction", "leastWinningCost", "isEnd"),
)
SLOTS, STEPS, STEP = 3, 48, 1800.0
STARTS = "2024-01-01T00:00:00+00:00"  # any day: periods are numbered, not dated


def mapping(files: Sequence[Path]) -> dict[str, Any]:
    """For parts of the log."""
    ids = {"request": ["deliveryPeriodIndex", "timeStepIndex", "pvIndex"], "ad": "advertiserNumber"}
    return {
        "name": "auction-net",
        "format": "auction-net",
        "charging": "impression",
        "rule": {"pricing": "gsp", "squashing": 0.0},
        "requests": {
            "columns": {
                "request": ids["request"],
                "time": {"column": "time", "unit": "seconds", "since": STARTS},
                "slots": {"constant": SLOTS},
            },
        },
        "candidates": {
            "files": [str(file.resolve()) for file in files],
            "columns": {**ids, "advertiser": "advertiserNumber", "bid": "bid", "pctr": "pValue"},
            "features": {
                "p_value_sigma": "pValueSigma",
                "category": "advertiserCategoryIndex",
                "cpa_constraint": "CPAConstraint",
            },
        },
        "outcomes": {
            "columns": {
                **ids,
                "slot": {"column": "adSlot", "base": 1},
                "shown": "xi",
                "exposed": "isExposed",
                "price": "price",
                "click": "conversionAction",
            }
        },
        "budgets": {
            "columns": {
                "advertiser": "advertiserNumber",
                "day": {"column": "deliveryPeriodIndex", "since": STARTS},
                "budget": "budget",
            }
        },
    }


def read(path: Path, wanted: Sequence[str]) -> Iterator[tuple[Mapping[str, pa.Array], NDArray[np.int64]]]:
    """The log's columns, and those that are worked out from them."""
    for columns, rows in columns_of(path, COLUMNS):
        period, step, cost = (
            _number(columns[name]) for name in ("deliveryPeriodIndex", "timeStepIndex", "cost")
        )
        is_exposed = pc.equal(_number(columns["isExposed"]), 1)
        is_known = pc.or_kleene(is_exposed, pc.greater(cost, 0))
        made = {
            "time": pc.multiply(pc.add(pc.multiply(period, float(STEPS)), step), STEP),
            "price": pc.if_else(is_known, cost, pa.scalar(None, pa.float64())),
        }
        found = {**columns, **made}
        yield {name: found[name] for name in wanted}, rows


def _number(cells: pa.Array) -> pa.Array:
    try:
        return cells.cast(pa.float64())
    except pa.ArrowException:  # the cell is found again, and named, where its column is checked
        return pa.array([_or_none(text) for text in cells.to_pylist()], pa.float64())


def _or_none(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


ADAPTER = Adapter("auction-net", mapping, dict.fromkeys(("requests", "candidates", "budgets"), read))
