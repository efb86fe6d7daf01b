"""The pages that an arm showed in a finished evaluation, back from the log, request by request."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cascade_sim.auction import MICROS
from cascade_sim.cascade.serve import Block
from cascade_sim.errors import UserError
from cascade_sim.phases.traffic import Market
from cascade_sim.questions.replay import PHASE, logged
from cascade_sim.world.truth import Truth
from cascade_sim.world.world import World

COLUMNS = ("request", "user", "context", "slot", "ad", "click", "conversion", "cpc_micros", "charge_micros")
MAX_ROWS = 32_768  # rows kept for resampling; in a longer evaluation a row is a few requests

# metric -> (numerator column, denominator column)
RATIOS: dict[str, tuple[str, str | None]] = {
    "expected_revenue_per_request": ("expected_revenue", "requests"),
    "revenue_per_request": ("revenue", "requests"),
    "expected_rpm": ("expected_revenue_per_mille", "impressions"),
    "rpm": ("revenue_per_mille", "impressions"),
    "expected_ctr": ("expected_clicks", "impressions"),
    "ctr": ("clicks", "impressions"),
    "cpc": ("revenue", "clicks"),
    "impressions_per_request": ("impressions", "requests"),
    "conversions_per_request": ("conversions", "requests"),
}


def page_columns(
    folder: Path, arm: str, n_requests: int, world: World, truth: Truth
) -> dict[str, np.ndarray]:
    """What each request brought, summed over its page; UserError if the log is gone.  {column: [rows]}

    Expected figures replace a click by its true probability: slot effect * true CTR.
    """
    log = logged(folder, arm, n_requests, COLUMNS)
    if log is None:
        raise UserError(f"{folder} has no log of what arm {arm!r} showed")
    ads = log["ad"][:, None]
    shown = Block(log["request"], log["user"], log["context"], np.zeros(len(ads)))
    expected = world.slot_effects[log["slot"]] * truth.ctr(shown, ads)[:, 0]
    n_rows = min(n_requests, MAX_ROWS)
    row = (log["request"] - Market.first_request(PHASE)) * n_rows // n_requests
    charge, cpc = log["charge_micros"] / MICROS, log["cpc_micros"] / MICROS
    sums = {
        "impressions": np.ones(len(ads)),
        "clicks": log["click"],
        "conversions": log["conversion"],
        "expected_clicks": expected,
        "revenue": charge,
        "expected_revenue": expected * cpc,
        "revenue_per_mille": 1000.0 * charge,
        "expected_revenue_per_mille": 1000.0 * expected * cpc,
    }
    found: dict[str, np.ndarray] = {name: np.bincount(row, values, n_rows) for name, values in sums.items()}
    found["requests"] = np.bincount(np.arange(n_requests) * n_rows // n_requests, minlength=n_rows) * 1.0
    return found
