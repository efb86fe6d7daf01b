"""What pages brought that a run has logged, by row: for runs that are compared request by request."""

from __future__ import annotations

import numpy as np

from cascade_sim.analysis.metrics.catalogue import with_factors
from cascade_sim.auction import MICROS
from cascade_sim.cascade.serve import Block
from cascade_sim.environments.arrivals import FIRST_REQUEST
from cascade_sim.foundation.limits import MAX_ROWS

Log = dict[str, np.ndarray]  # impressions: COLUMNS of each  [n]
PHASE = "evaluate"
COLUMNS = (
    "request",
    "time",
    "user",
    "context",
    "slot",
    "ad",
    "click",
    "conversion",
    "cpc_micros",
    "charge_micros",
)


def local(log: Log) -> np.ndarray:
    """The numbers of the requests within the evaluation.  [n]"""
    return log["request"] - FIRST_REQUEST[PHASE]


def block_of(log: Log) -> Block:
    """A request for each impression."""
    return Block(log["request"], log["user"], log["context"], log["time"])


def by_request(log: Log, expected: np.ndarray, n_requests: int, charged: np.ndarray) -> dict[str, np.ndarray]:
    """Impressions added up by request, or by a few requests in a row.  {column: [rows]}"""
    n_rows = min(n_requests, MAX_ROWS)
    brought = summed(log, expected, local(log) * n_rows // n_requests, n_rows, charged)
    brought["requests"] = np.bincount(np.arange(n_requests) * n_rows // n_requests, minlength=n_rows) * 1.0
    return brought


def impressions(log: Log, expected: np.ndarray, charged: np.ndarray) -> dict[str, np.ndarray]:
    """What each impression brought: of expected clicks, and of chances to be charged.  {column: [n]}"""
    charge, cpc = log["charge_micros"] / MICROS, log["cpc_micros"] / MICROS
    return with_factors(
        {
            "impressions": np.ones(len(expected)),
            "clicks": log["click"],
            "conversions": log["conversion"],
            "expected_clicks": expected,
            "revenue": charge,
            "expected_revenue": charged * cpc,
        }
    )


def summed(
    log: Log, expected: np.ndarray, row: np.ndarray, n_rows: int, charged: np.ndarray
) -> dict[str, np.ndarray]:
    """Impressions added up by row.  {column: [n_rows]}"""
    found = impressions(log, expected, charged)
    return {name: np.bincount(row, values, n_rows) for name, values in found.items()}
