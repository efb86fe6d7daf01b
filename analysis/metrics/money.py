"""Charges against what they should have been. Parts per request, to be summed and divided at the very end.

Arrays are [R, k] in slot order; whatever is in a slot that is not `shown` is ignored. Prices may be in
any unit (integer micro-units as well): every metric here is a ratio of like units. Expected clicks are slot
effect × true CTR, predicted clicks are slot effect × pCTR.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.metrics.ratio import divide

FEW_SLOTS = 8  # from here on numpy adds in another order

Parts = tuple[NDArray[np.float64], NDArray[np.float64]]


def slot_sum(per_click: ArrayLike, clicks: ArrayLike, shown: ArrayLike) -> NDArray[np.float64]:
    """Σ over the shown slots of per_click × clicks.  [R, k] -> [R]"""
    is_shown = np.asarray(shown, bool)
    amount = np.where(is_shown, np.asarray(per_click, np.float64), 0.0)
    return over_slots(amount * np.where(is_shown, np.asarray(clicks, np.float64), 0.0))


def over_slots(values: NDArray[Any]) -> NDArray[Any]:
    """values.sum(-1), to the last bit; of few slots, over which numpy is slow, slot after slot."""
    if values.ndim != 2 or not 0 < values.shape[1] < FEW_SLOTS:
        return values.sum(-1)
    total = values[:, 0].copy()
    for slot in range(1, values.shape[1]):
        total += values[:, slot]
    return total


def cpc_error(cpc: ArrayLike, cpc_true: ArrayLike, expected_clicks: ArrayLike, shown: ArrayLike) -> Parts:
    """Σ v |c − c*| and Σ v c*: how wrongly clicks are charged, v the expected clicks.  -> ([R], [R])

    c* is what the same ranked list would have been charged with the true CTRs.
    """
    difference = _difference(cpc, cpc_true, shown)
    return slot_sum(np.abs(difference), expected_clicks, shown), slot_sum(cpc_true, expected_clicks, shown)


def cpc_bias(cpc: ArrayLike, cpc_true: ArrayLike, expected_clicks: ArrayLike, shown: ArrayLike) -> Parts:
    """Σ v (c − c*) and Σ v c*: whether clicks are charged too much (> 0) or too little.  -> ([R], [R])"""
    difference = _difference(cpc, cpc_true, shown)
    return slot_sum(difference, expected_clicks, shown), slot_sum(cpc_true, expected_clicks, shown)


def _difference(cpc: ArrayLike, cpc_true: ArrayLike, shown: ArrayLike) -> NDArray[np.float64]:
    is_shown = np.asarray(shown, bool)
    cpc, cpc_true = np.asarray(cpc, np.float64), np.asarray(cpc_true, np.float64)
    return np.where(is_shown, cpc, 0.0) - np.where(is_shown, cpc_true, 0.0)


def revenue_pcoc(
    cpc: ArrayLike, predicted_clicks: ArrayLike, expected_clicks: ArrayLike, shown: ArrayLike
) -> Parts:
    """Revenue forecast by the model, and expected under the truth, at the prices charged.  -> ([R], [R])"""
    return slot_sum(cpc, predicted_clicks, shown), slot_sum(cpc, expected_clicks, shown)


def welfare(
    value: ArrayLike,
    expected_clicks: ArrayLike,
    shown: ArrayLike,
    oracle_value: ArrayLike,
    oracle_expected_clicks: ArrayLike,
    oracle_shown: ArrayLike,
) -> Parts:
    """Expected value of the clicks delivered, and of those the oracle allocation delivers.  -> ([R], [R])

    The value of a click is its bid. With CPC in the place of the value these are the parts of
    `revenue_vs_oracle`.
    """
    delivered = slot_sum(value, expected_clicks, shown)
    return delivered, slot_sum(oracle_value, oracle_expected_clicks, oracle_shown)


def payment_error_vs_oracle(paid: ArrayLike, paid_oracle: ArrayLike) -> NDArray[np.float64]:
    """Σ over advertisers |paid − paid_oracle| / Σ paid_oracle.  [..., advertisers] -> [...]

    Takes sums over requests, since an advertiser over-charged here may be under-charged there; NaN if the
    oracle charges nothing.
    """
    paid, paid_oracle = np.asarray(paid, np.float64), np.asarray(paid_oracle, np.float64)
    return divide(np.abs(paid - paid_oracle).sum(-1), paid_oracle.sum(-1))


def top_advertisers_share(paid: ArrayLike, per_advertisers: int = 100) -> NDArray[np.float64]:
    """Share of all payments that come from the highest-paying of n advertisers.  [..., n] -> [...]

    One in `per_advertisers` of them, rounded down but at least one; those who pay nothing count among the n.
    NaN if no advertiser pays.
    """
    paid = np.asarray(paid, np.float64)
    n_top = max(1, paid.shape[-1] // per_advertisers)
    highest = np.sort(np.partition(paid, -n_top, axis=-1)[..., -n_top:], axis=-1)  # one order on any machine
    return divide(highest.sum(-1), paid.sum(-1))
