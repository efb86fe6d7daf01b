"""The ledger that no one can overdraw: budgets, charges and holds, and how a block's charges are taken."""

from collections.abc import Mapping

import numpy as np

from cascade_sim.foundation.compilation import kernel

NO_BUDGET = np.int64(2**62)
MAX_BUDGET = 2.0**61  # micro-units


class Ledger:
    """Budgets, charges and holds, in integer micro-units per advertiser.

    available = budget - charged today - held. Who has nothing available shows no ads. Charges at once come
    out of `available` (settlement.take); late ones may find it empty, and stop at `limit` =
    budget * (1 + overspend): whatever happens, no day's charges exceed that.
    """

    def __init__(self, budget_micros: np.ndarray, overspend: float = 0.0):
        self.budget = budget_micros
        self.limit = budget_micros + np.minimum(budget_micros * overspend, MAX_BUDGET).astype(np.int64)
        self.available = budget_micros.copy()
        self.held = np.zeros_like(budget_micros)
        self.spent_before = np.zeros_like(budget_micros)  # on days that are over

    def spend_today(self) -> np.ndarray:
        return self.budget - self.available - self.held

    def spend(self) -> np.ndarray:
        """Micro-units spent since the simulation began.  [advertisers]"""
        return self.spent_before + self.spend_today()

    def hold(self, advertiser: np.ndarray, micros: np.ndarray) -> None:
        """Book as held what was taken from `available`.  [n], [n]"""
        np.add.at(self.held, advertiser, micros)

    def release(self, advertiser: np.ndarray, micros: np.ndarray) -> None:
        """Give back what was held.  [n], [n]"""
        np.subtract.at(self.held, advertiser, micros)
        np.add.at(self.available, advertiser, micros)

    def charge_late(self, advertiser: np.ndarray, cpc_micros: np.ndarray) -> np.ndarray:
        """Charge these clicks in order, each at most up to the limit of the day; the charges.  [n] int64"""
        spent = self.spend_today()
        charges = np.zeros(len(advertiser), np.int64)
        _charge_late(advertiser, cpc_micros, spent, self.limit, charges)
        np.subtract.at(self.available, advertiser, charges)
        return charges

    def new_day(self, budget_micros: np.ndarray | None = None) -> None:
        """Midnight: yesterday's spend is over. `budget_micros`: of the new day, where days differ."""
        self.spent_before = self.spent_before + self.spend_today()
        if budget_micros is not None:
            self.budget = budget_micros
        self.available = self.budget - self.held

    def state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name).copy() for name in ("available", "held", "spent_before")}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        for name in ("available", "held", "spent_before"):
            setattr(self, name, np.array(state[name], np.int64))


def take(
    due_micros: np.ndarray,
    payer: np.ndarray,
    available_micros: np.ndarray,
    entrants: np.ndarray,
    took_part: np.ndarray,
    start: int,
    stop: int,
) -> tuple[np.ndarray, int]:
    """Take what is due slot by slot, in order, at most what is left; lowers `available_micros` in place.

    due_micros [R, k] int64 and payer [R, k] int, the advertiser of a filled slot. `took_part` [advertisers]
    int64 grows by the requests that an advertiser entered with money left. Returns what was taken [R, k]
    int64, and where it ended: `stop`, or behind the first request that left an advertiser with nothing.
    """
    taken = np.zeros_like(due_micros)
    return taken, int(_take(due_micros, payer, available_micros, entrants, took_part, start, stop, taken))


def affordable(
    price_micros: np.ndarray, payer: np.ndarray, available_micros: np.ndarray, taken_micros: np.ndarray
) -> np.ndarray:
    """What each slot would be charged if it came to it: its price, or what its advertiser has left.  [R, k]

    `available_micros` [advertisers] is what they had before the first request, `taken_micros` [R, k] what was
    then taken from them.
    """
    most = np.zeros_like(price_micros)
    _affordable(price_micros, payer, available_micros.copy(), taken_micros, most)
    return most


@kernel
def _charge_late(advertiser, cpc, spent, limit, charges):
    for i in range(len(advertiser)):
        who = advertiser[i]
        charges[i] = max(0, min(cpc[i], limit[who] - spent[who]))
        spent[who] += charges[i]


@kernel
def _take(due, payer, available, entrants, took_part, start, stop, taken):
    counted = np.full(len(available), -1)  # the last request that was counted for an advertiser
    for r in range(start, stop):
        for j in range(entrants.shape[1]):
            entrant = entrants[r, j]
            if entrant >= 0 and available[entrant] > 0 and counted[entrant] != r:
                counted[entrant] = r
                took_part[entrant] += 1
        is_empty = False
        for k in range(due.shape[1]):
            if due[r, k] > 0:
                advertiser = payer[r, k]
                taken[r, k] = min(due[r, k], available[advertiser])
                available[advertiser] -= taken[r, k]
                is_empty |= available[advertiser] <= 0
        if is_empty:
            return r + 1
    return stop


@kernel
def _affordable(price, payer, available, taken, most):
    for r in range(price.shape[0]):
        for k in range(price.shape[1]):
            most[r, k] = min(price[r, k], max(available[payer[r, k]], 0))
        for k in range(price.shape[1]):
            available[payer[r, k]] -= taken[r, k]
