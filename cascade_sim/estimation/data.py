"""Randomised logs as arrays: what an estimator sees. Nothing here knows the truth.

Rewards of a request are its revenue (charges, in units) and its clicks. Forecasts are the platform's own:
sum over slots of slot effect * pCTR, times the CPC for revenue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.auction import MICROS
from cascade_sim.cascade.knobs import RANDOMISED
from cascade_sim.cascade.serve import Block, Decision
from cascade_sim.errors import UserError
from cascade_sim.estimation.log import KNOB_TABLES, SLATE_TABLES, Rows
from cascade_sim.estimation.slates import SlateList
from cascade_sim.scenario.schema import Scenario
from cascade_sim.storage.tables import read_table, tables

REWARDS = ("revenue", "clicks")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Visits:
    """Who came, as logged. Arrays [R]."""

    requests: NDArray[np.int64]
    users: NDArray[np.int32]
    context: NDArray[np.float32]
    times: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.requests)

    def blocks(self, size: int) -> Iterator[tuple[slice, Block]]:
        """The requests once more in the portions in which they were served: predictions are then the same."""
        for start in range(0, len(self), size):
            cut = slice(start, start + size)
            yield cut, Block(self.requests[cut], self.users[cut], self.context[cut], self.times[cut])


@dataclass(frozen=True)
class KnobLog:
    """Requests that were served with knobs of their own. Arrays [R]."""

    visits: Visits
    noise: dict[str, Floats]  # z, by knob
    reward: dict[str, Floats]
    forecast: dict[str, Floats]  # of the reward of what was shown
    limit: dict[str, Floats]  # the most the reward can be, whatever the knobs

    def __len__(self) -> int:
        return len(self.visits)


@dataclass(frozen=True)
class SlateLog:
    """Requests whose page was drawn from a list."""

    visits: Visits
    listed: SlateList  # [R, d]
    places: NDArray[np.int64]  # [R, K] of the shown ads in the list; -1 = empty slot
    propensity: Floats  # [R, K] given the slots above, as logged; 1 in an empty slot
    reward: dict[str, Floats]  # [R, K]
    slot_effects: Floats  # [K]

    def __len__(self) -> int:
        return len(self.visits)


def read_knob_log(folder: Path, scenario: Scenario) -> KnobLog:
    """From the run's tables; UserError if its knobs were not randomised."""
    if scenario.off_policy is None or scenario.off_policy.randomise is None:
        raise UserError(
            f"{folder}: no knob of this run was randomised, so its logs cannot say what another would do; "
            "set off_policy.randomise (such as {reserve_cpc: 0.3}) in the scenario and run it again"
        )
    _need(folder, KNOB_TABLES)
    slots = len(scenario.world.slot_effects)
    return knob_log([(read_table(folder, KNOB_TABLES[0]), read_table(folder, KNOB_TABLES[1]))], slots)


def read_slate_log(folder: Path, scenario: Scenario) -> SlateLog:
    """From the run's tables; UserError if its pages were not randomised."""
    if scenario.off_policy is None or scenario.off_policy.slates is None:
        raise UserError(
            f"{folder}: no page of this run was randomised, so its logs cannot say what another order would "
            "do; set off_policy.slates (such as {depth: 8}) in the scenario and run it again"
        )
    _need(folder, SLATE_TABLES)
    return slate_log([tuple(read_table(folder, name) for name in SLATE_TABLES)], scenario)


def knob_log(parts: Sequence[Sequence[Rows]], slots: int) -> KnobLog:
    """Of rows of KNOB_TABLES, part after part. `slots`: no page is longer."""
    made = [_knob_part(shown, requests, slots) for shown, requests in parts]
    return KnobLog(
        visits=_joined_visits([one.visits for one in made]),
        noise=_joined([one.noise for one in made]),
        reward=_joined([one.reward for one in made]),
        forecast=_joined([one.forecast for one in made]),
        limit=_joined([one.limit for one in made]),
    )


def _knob_part(shown: Rows, requests: Rows, slots: int) -> KnobLog:
    row = np.searchsorted(requests["request"], shown["request"])
    n = len(requests["request"])

    def total(values: NDArray[Any]) -> Floats:
        return np.bincount(row, values.astype(np.float64), n).astype(np.float64)

    expected = shown["examination"].astype(np.float64) * shown["pctr"]
    return KnobLog(
        visits=_visits(requests),
        noise={knob: requests[f"{knob}_z"] for knob in RANDOMISED},
        reward={"revenue": total(shown["charge_micros"]) / MICROS, "clicks": total(shown["click"])},
        forecast={"revenue": total(expected * (shown["cpc_micros"] / MICROS)), "clicks": total(expected)},
        limit={"revenue": requests["revenue_limit"], "clicks": np.full(n, float(slots))},
    )


def slate_log(parts: Sequence[Sequence[Rows]], scenario: Scenario) -> SlateLog:
    """Of rows of SLATE_TABLES, part after part."""
    assert scenario.off_policy is not None and scenario.off_policy.slates is not None
    from cascade_sim.estimation.log import baseline_spec

    slots, depth = baseline_spec(scenario).slots, scenario.off_policy.slates.depth
    made = [_slate_part(*part, slots=slots, depth=depth) for part in parts]
    listed = SlateList(
        *(
            np.concatenate([getattr(one["listed"], name) for one in made])
            for name in ("ads", "bid", "pctr", "score", "cpc_micros")
        )
    )
    return SlateLog(
        visits=_joined_visits([one["visits"] for one in made]),
        listed=listed,
        places=np.concatenate([one["places"] for one in made]),
        propensity=np.concatenate([one["propensity"] for one in made]),
        reward=_joined([one["reward"] for one in made]),
        slot_effects=np.asarray(scenario.world.slot_effects[:slots], np.float64),
    )


def _slate_part(shown: Rows, requests: Rows, candidates: Rows, *, slots: int, depth: int) -> dict[str, Any]:
    n = len(requests["request"])
    at = (np.searchsorted(requests["request"], shown["request"]), shown["slot"].astype(np.int64))
    of = (np.searchsorted(requests["request"], candidates["request"]), candidates["place"].astype(np.int64))

    def table(where: tuple[Any, Any], values: NDArray[Any], width: int, empty: float) -> NDArray[Any]:
        made = np.full((n, width), empty, values.dtype)
        made[where] = values
        return made

    return {
        "visits": _visits(requests),
        "listed": SlateList(
            ads=table(of, candidates["ad"], depth, -1),
            bid=table(of, candidates["bid"], depth, 0),
            pctr=table(of, candidates["pctr"], depth, 0),
            score=table(of, candidates["score"], depth, 0),
            cpc_micros=table(of, candidates["cpc_micros"], depth, 0),
        ),
        "places": table(at, shown["place"].astype(np.int64), slots, -1),
        "propensity": table(at, shown["propensity"], slots, 1.0),
        "reward": {
            "revenue": table(at, shown["charge_micros"] / MICROS, slots, 0.0),
            "clicks": table(at, shown["click"].astype(np.float64), slots, 0.0),
        },
    }


def decision_forecast(decision: Decision, slot_effects: Floats) -> dict[str, Floats]:
    """The platform's forecast of each reward of a page.  {reward: [R]}"""
    slots = decision.win_set.shape[1]
    examination = slot_effects[:slots].astype(np.float32).astype(np.float64)  # as the log has them
    expected = examination * decision.ranked_pctr[:, :-1].astype(np.float32)
    clicks = np.where(decision.win_set >= 0, expected, 0.0)
    return {
        "revenue": (clicks * (decision.cpc_micros / MICROS)).sum(axis=1),
        "clicks": clicks.sum(axis=1),
    }


def _visits(requests: Rows) -> Visits:
    return Visits(*(requests[name] for name in ("request", "user", "context", "time")))


def _joined_visits(parts: Sequence[Visits]) -> Visits:
    names = ("requests", "users", "context", "times")
    return Visits(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _joined(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _need(folder: Path, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in tables(folder)]
    if missing:
        raise UserError(
            f"{folder} has no table {missing[0]!r}: its logs were removed; run the scenario again"
        )
