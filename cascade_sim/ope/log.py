"""Logs of randomised decisions: how they are served, what is written down, and the log read back as arrays.

Two phases with traffic of their own, served by the baseline arm:

off_policy  a reserve and a squashing of every request; tables `off-policy` (impressions) and
            `off-policy-requests`
slates      a page drawn from the head of the ranking order; tables `slates` (impressions),
            `slates-requests`, `slates-candidates` (the list each page was drawn from)

`ParameterLog` and `SlateLog` are what an estimator sees of them; nothing in these knows the truth. Rewards of
a request are its revenue (charges, in units) and its clicks. Forecasts are the platform's own: sum over slots
of slot effect * pCTR, times the CPC for revenue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.auction import MICROS
from cascade_sim.cascade.columns import impression_columns, request_columns
from cascade_sim.cascade.exploration import Explored, as_decided
from cascade_sim.cascade.randomisation import RANDOMISED, ParameterRandomiser, with_parameters
from cascade_sim.cascade.serve import Arm, Block, Decision, bids
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.kernels import n_filled
from cascade_sim.foundation.limits import MAX_ESTIMATED
from cascade_sim.foundation.progress import Progress
from cascade_sim.foundation.workers import Job
from cascade_sim.ope.slates import SlateList, draw_places, drawn_decision, list_of, log_odds, log_propensities
from cascade_sim.scenario.schema import ArmSpec, Scenario, resolve_arm, resolved_arms
from cascade_sim.storage.columns import Sizes
from cascade_sim.storage.folder import is_done, keep
from cascade_sim.storage.tables import TableWriter, iterate_table, read_table, table_rows, tables
from cascade_sim.study.rebuild import Plan, rebuilt, remote_handler
from cascade_sim.study.simulation import Simulation

PARAMETERS, SLATES = "off_policy", "slates"  # phases

PARAMETER_TABLES = ("off-policy", "off-policy-requests")

SLATE_TABLES = ("slates", "slates-requests", "slates-candidates")

_VISIT = ("request", "user", "context", "time")
# What is read of each table; a column that is not there is refused.
READ: dict[str, tuple[str, ...]] = {
    "off-policy": ("request", "examination", "pctr", "cpc_micros", "charge_micros", "click"),
    "off-policy-requests": (*_VISIT, "revenue_limit", *(f"{parameter}_z" for parameter in RANDOMISED)),
    "slates": ("request", "slot", "place", "propensity", "charge_micros", "click"),
    "slates-requests": _VISIT,
    "slates-candidates": ("request", "place", "ad", "bid", "pctr", "score", "cpc_micros"),
}

REWARDS = ("revenue", "clicks")

Rows = dict[str, np.ndarray]

Floats = NDArray[np.float64]


def write_logs(sim: Simulation, arm: Arm, folder: Path, progress: Progress) -> None:
    """Both phases, as far as the scenario asks for them and no stopped run left them."""
    section = sim.scenario.off_policy
    assert section is not None
    if section.randomise is not None:
        _log(sim, arm, folder, progress, PARAMETERS, section.requests, PARAMETER_TABLES, parameter_tables)
    if section.slates is not None:
        n = section.slates.requests
        _log(sim, arm, folder, progress, SLATES, n, SLATE_TABLES, slate_tables)


def _log(
    sim: Simulation,
    arm: Arm,
    folder: Path,
    progress: Progress,
    phase: str,
    n_requests: int,
    names: tuple[str, ...],
    rows_of: Callable[..., list[Rows]],
) -> None:
    """Serve a phase and write what `rows_of` (pure) makes of each block, table by table."""
    if is_done(folder, phase):  # a stopped run left its tables: only time has to pass
        sim.arrivals.run_phase(phase, n_requests, lambda block: None, lambda block, nothing: None)
        return
    with progress.stage(f"{phase}: serve", n_requests) as bar, ExitStack() as stack:
        writers = [stack.enter_context(TableWriter(folder, name)) for name in names]

        def finish(block: Block, made: list[Rows]) -> None:
            for writer, columns in zip(writers, made, strict=True):
                writer.append(columns)
            bar.advance(len(block))

        elsewhere = Job(f"phase {phase}", page_server, (Plan.of(sim, folder), arm.name, rows_of))
        handle = partial(rows_of, sim, arm=arm)
        sim.arrivals.run_phase(phase, n_requests, handle, finish, elsewhere)
    keep(folder, phase, names)


def page_server(plan: Plan, arm: str, rows_of: Callable[..., list[Rows]]) -> Callable[..., Any]:
    """Serves one of the phases in another process."""
    sim = rebuilt(plan)
    return remote_handler(sim, partial(rows_of, sim, arm=sim.arm(arm, resolved_arms(sim.scenario)[arm])))


def parameter_tables(sim: Simulation, block: Block, arm: Arm) -> list[Rows]:
    """What is written down of a block with randomised parameters: rows of PARAMETER_TABLES. Pure."""
    law, auction = randomiser(sim.scenario), baseline_spec(sim.scenario).auction
    noise = law.noise(sim.seed, block.requests)
    decision, values = serve_parameters(sim, block, arm, law, noise)
    n = len(block)
    shown = as_decided(decision)
    requests = request_columns(block, shown, 0.0)
    del requests["page_propensity"]  # the page follows from the parameters, whose density is that of z
    for parameter in RANDOMISED:
        requests[parameter] = values.get(parameter, np.full(n, getattr(auction, parameter)))
        requests[f"{parameter}_z"] = noise.get(parameter, np.zeros(n))
    requests["revenue_limit"] = revenue_limit(sim, block, arm, decision.retrieved)
    return [_impressions(sim, block, arm, shown), requests]


def slate_tables(sim: Simulation, block: Block, arm: Arm) -> list[Rows]:
    """What is written down of a block with randomised pages: rows of SLATE_TABLES. Pure."""
    assert sim.scenario.off_policy is not None and sim.scenario.off_policy.slates is not None
    section = sim.scenario.off_policy.slates
    pages = serve_pages(sim, block, arm, section.temperature, section.depth)
    n, is_shown = len(block), pages.places >= 0
    propensity = np.where(is_shown, pages.propensity, 0.0)
    n_pool = n_filled(pages.decision.retrieved)
    shown = Explored(pages.decision, np.ones(n, bool), propensity, np.zeros(n, bool), n_pool)
    impressions = _impressions(sim, block, arm, shown)
    impressions["place"] = pages.places[is_shown].astype(np.int8)
    requests = request_columns(block, shown, 0.0)
    requests["page_propensity"] = pages.propensity.prod(axis=1)
    requests["n_listed"] = pages.drawn_from.is_there.sum(axis=1).astype(np.int8)
    requests["temperature"] = np.full(n, section.temperature)
    return [impressions, requests, _candidate_columns(block, pages.drawn_from)]


def _impressions(sim: Simulation, block: Block, arm: Arm, shown: Explored) -> Rows:
    outcome = sim.environment.outcome(block, shown.decision)
    routes = sim.brought_by(block, arm, shown.decision.win_set)
    return impression_columns(sim.world, block, shown, outcome, routes=routes)


def _candidate_columns(block: Block, drawn: SlateList) -> Rows:
    row, place = np.nonzero(drawn.is_there)
    return {
        "request": block.requests[row],
        "place": place.astype(np.int8),
        "ad": drawn.ads[row, place],
        "bid": drawn.bid[row, place],
        "pctr": drawn.pctr[row, place],
        "score": drawn.score[row, place],
        "cpc_micros": drawn.cpc_micros[row, place],
    }


def baseline_spec(scenario: Scenario) -> ArmSpec:
    """The arm that writes these logs."""
    return resolve_arm(scenario, scenario.arms[scenario.report.baseline])


def randomiser(scenario: Scenario) -> ParameterRandomiser:
    """The law of the logged parameters; the scenario must randomise some."""
    assert scenario.off_policy is not None and scenario.off_policy.randomise is not None
    auction = baseline_spec(scenario).auction
    sigmas = scenario.off_policy.randomise.sigmas
    return ParameterRandomiser({parameter: getattr(auction, parameter) for parameter in sigmas}, sigmas)


def serve_parameters(
    sim: Simulation, block: Block, arm: Arm, law: ParameterRandomiser, noise: Rows
) -> tuple[Decision, Rows]:
    """The block with parameters of this law and noise, and the parameters themselves."""
    values = law.values(noise)
    squashing = baseline_spec(sim.scenario).auction.squashing
    return sim.serve(with_parameters(block, values, squashing), arm), values


@dataclass(frozen=True)
class LoggedPages:
    """A slate block as it was served."""

    decision: Decision
    drawn_from: SlateList
    places: np.ndarray  # [R, k] in the list; -1 = empty slot
    propensity: np.ndarray  # [R, k] of each slot given those above; 1 in an empty slot


def serve_pages(sim: Simulation, block: Block, arm: Arm, temperature: float, depth: int) -> LoggedPages:
    """The block with pages drawn from the head of the ranking order."""
    drawn_from, served = list_of(block, arm, sim.platform, depth)
    logit = log_odds(drawn_from.score, temperature)
    places = draw_places(block.requests, drawn_from.ads, logit, arm.slots, sim.seed)
    decision = drawn_decision(served, drawn_from, places)
    return LoggedPages(decision, drawn_from, places, np.exp(log_propensities(logit, places)))


def revenue_limit(sim: Simulation, block: Block, arm: Arm, pre_ranking_set: np.ndarray) -> np.ndarray:
    """The most a request can earn, whatever the parameters: its k largest bids, every slot clicked.  [R]

    What was retrieved does not depend on the parameters, so this is known before they are drawn.
    """
    bid = bids(block, pre_ranking_set, arm.last, arm, sim.platform)
    k = min(arm.slots, bid.shape[1])
    return np.partition(bid, bid.shape[1] - k, axis=1)[:, -k:].sum(axis=1)


@dataclass(frozen=True)
class LoggedRequests:
    """Requests of a log: ids, arrival times and users. Arrays [R]."""

    requests: NDArray[np.int64]
    users: NDArray[np.int32]
    context: NDArray[np.float32]
    times: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def is_sample(self) -> bool:
        """Whether requests are left out: their ids follow one another in a whole log."""
        return len(self) > 0 and int(self.requests[-1] - self.requests[0]) >= len(self)

    def blocks(self, sim: Simulation) -> Iterator[tuple[slice, Block]]:
        """The requests once more in the portions in which they were served: predictions are then the same."""
        size = sim.scenario.traffic.block
        for start in range(0, len(self), size):
            cut = slice(start, start + size)
            yield cut, self.block(sim, cut)

    def block(self, sim: Simulation, cut: slice) -> Block:
        """Some of the requests once more."""
        return sim.arrivals.again(self.requests[cut], self.users[cut], self.context[cut], self.times[cut])


@dataclass(frozen=True)
class ParameterLog:
    """Requests that were served with parameters of their own. Arrays [R]."""

    visits: LoggedRequests
    noise: dict[str, Floats]  # z, by parameter
    reward: dict[str, Floats]
    forecast: dict[str, Floats]  # of the reward of what was shown
    limit: dict[str, Floats]  # the most the reward can be, whatever the parameters

    def __len__(self) -> int:
        return len(self.visits)


@dataclass(frozen=True)
class SlateLog:
    """Requests whose page was drawn from a list."""

    visits: LoggedRequests
    listed: SlateList  # [R, d]
    places: NDArray[np.int64]  # [R, K] of the shown ads in the list; -1 = empty slot
    propensity: Floats  # [R, K] given the slots above, as logged; 1 in an empty slot
    reward: dict[str, Floats]  # [R, K]
    slot_effects: Floats  # [K]

    def __len__(self) -> int:
        return len(self.visits)


def read_parameter_log(folder: Path, scenario: Scenario, slots: int | None = None) -> ParameterLog:
    """From the run's tables; UserError if its parameters were not randomised.

    `slots`: no page is longer; None: as the scenario's world has it.
    """
    if scenario.off_policy is None or scenario.off_policy.randomise is None:
        raise UserError(
            f"{folder}: no parameter of this run was randomised, so its logs cannot say what another would "
            "do; "
            "set off_policy.randomise (such as {reserve_cpc: 0.3}) in the scenario and run it again"
        )
    _need(folder, PARAMETER_TABLES)
    most = len(scenario.world.slot_effects) if slots is None else slots
    return parameter_log(_sampled(folder, PARAMETER_TABLES, scenario.seed, {"slots": most}), most)


def read_slate_log(folder: Path, scenario: Scenario, slot_effects: Floats | None = None) -> SlateLog:
    """From the run's tables; UserError if its pages were not randomised.

    `slot_effects` [K]; None: those of the scenario's world.
    """
    if scenario.off_policy is None or scenario.off_policy.slates is None:
        raise UserError(
            f"{folder}: no page of this run was randomised, so its logs cannot say what another order would "
            "do; set off_policy.slates (such as {depth: 8}) in the scenario and run it again"
        )
    _need(folder, SLATE_TABLES)
    sizes = {"slots": baseline_spec(scenario).slots, "places": scenario.off_policy.slates.depth}
    return slate_log(_sampled(folder, SLATE_TABLES, scenario.seed, sizes), scenario, slot_effects)


def _sampled(folder: Path, names: Sequence[str], seed: int, sizes: Sizes) -> Iterator[tuple[Rows, ...]]:
    """The tables of a phase, some requests at a time; a sample by request where there are too many.

    Each request is in it by its own draw, which says nothing about it: estimates stay what they are, with the
    intervals of a log of MAX_ESTIMATED requests.
    """
    share = MAX_ESTIMATED / max(table_rows(folder, names[1]), 1)
    for portion in _portions(folder, names, sizes):
        _require_pages(folder, names, portion)
        if share >= 1:
            yield portion
            continue
        drawn = [draws.uniform(seed, "estimated from", table["request"]) < share for table in portion]
        yield tuple(
            {name: values[rows] for name, values in table.items()}
            for table, rows in zip(portion, drawn, strict=True)
        )


def _portions(folder: Path, names: Sequence[str], sizes: Sizes) -> Iterator[tuple[Rows, ...]]:
    """The tables of a phase side by side, some requests at a time with all their rows; at least one portion.

    The second table has a row per request, all are in the order of the requests: the columns of a whole
    table, most of which are not asked for, are never in memory together.
    """
    batches = [iterate_table(folder, name, READ[name], sizes=sizes) for name in names]
    first = [next(rows, None) for rows in batches]
    if first[1] is None:
        yield tuple(read_table(folder, name, READ[name], sizes=sizes) for name in names)
        return
    held = [
        read_table(folder, name, READ[name], sizes=sizes) if rows is None else rows
        for name, rows in zip(names, first, strict=True)
    ]
    while True:
        last = held[1]["request"][-1]
        portion = list(held)
        for i, rows in enumerate(batches):
            if i == 1:
                continue
            while len(held[i]["request"]) == 0 or held[i]["request"][-1] <= last:
                more = next(rows, None)
                if more is None:
                    break
                held[i] = {name: np.concatenate([held[i][name], more[name]]) for name in more}
            n = int(np.searchsorted(held[i]["request"], last, side="right"))
            portion[i] = {name: values[:n] for name, values in held[i].items()}
            held[i] = {name: values[n:] for name, values in held[i].items()}
        yield tuple(portion)
        following = next(batches[1], None)
        if following is None:
            return
        held[1] = following


def _require_pages(folder: Path, names: Sequence[str], portion: Sequence[Rows]) -> None:
    """UserError where rows are of a request that the table of requests does not have."""
    known = portion[1]["request"]
    for name, table in zip(names, portion, strict=True):
        place = np.minimum(np.searchsorted(known, table["request"]), max(len(known) - 1, 0))
        lost = table["request"] != known[place] if len(known) else np.ones(len(place), bool)
        if lost.any():
            raise UserError(
                f"{folder}, table {name!r}: request {table['request'][lost][0]} is not in {names[1]!r}; run "
                "the scenario again"
            )


def _need(folder: Path, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in tables(folder)]
    if missing:
        raise UserError(
            f"{folder} has no table {missing[0]!r}: its logs were removed; run the scenario again"
        )


def parameter_log(parts: Iterable[Sequence[Rows]], slots: int) -> ParameterLog:
    """The log from rows of PARAMETER_TABLES, part after part. `slots`: no page is longer."""
    logs = [_parameter_part(shown, requests, slots) for shown, requests in parts]
    return ParameterLog(
        visits=_joined_visits([log.visits for log in logs]),
        noise=_joined([log.noise for log in logs]),
        reward=_joined([log.reward for log in logs]),
        forecast=_joined([log.forecast for log in logs]),
        limit=_joined([log.limit for log in logs]),
    )


def _parameter_part(shown: Rows, requests: Rows, slots: int) -> ParameterLog:
    row = np.searchsorted(requests["request"], shown["request"])
    n = len(requests["request"])

    def total(values: NDArray[Any]) -> Floats:
        return np.bincount(row, values.astype(np.float64), n).astype(np.float64)

    expected = shown["examination"].astype(np.float64) * shown["pctr"]
    return ParameterLog(
        visits=_visits(requests),
        noise={parameter: requests[f"{parameter}_z"] for parameter in RANDOMISED},
        reward={"revenue": total(shown["charge_micros"]) / MICROS, "clicks": total(shown["click"])},
        forecast={"revenue": total(expected * (shown["cpc_micros"] / MICROS)), "clicks": total(expected)},
        limit={"revenue": requests["revenue_limit"], "clicks": np.full(n, float(slots))},
    )


def slate_log(
    parts: Iterable[Sequence[Rows]], scenario: Scenario, slot_effects: Floats | None = None
) -> SlateLog:
    """The log from rows of SLATE_TABLES, part after part. `slot_effects`: as in `read_slate_log`."""
    assert scenario.off_policy is not None and scenario.off_policy.slates is not None
    effects = scenario.world.slot_effects if slot_effects is None else slot_effects
    slots, depth = baseline_spec(scenario).slots, scenario.off_policy.slates.depth
    logs = [_slate_part(*part, slots=slots, depth=depth) for part in parts]
    listed = SlateList(
        *(
            np.concatenate([getattr(log["listed"], name) for log in logs])
            for name in ("ads", "bid", "pctr", "score", "cpc_micros")
        )
    )
    return SlateLog(
        visits=_joined_visits([log["visits"] for log in logs]),
        listed=listed,
        places=np.concatenate([log["places"] for log in logs]),
        propensity=np.concatenate([log["propensity"] for log in logs]),
        reward=_joined([log["reward"] for log in logs]),
        slot_effects=np.asarray(effects[:slots], np.float64),
    )


def _slate_part(shown: Rows, requests: Rows, candidates: Rows, *, slots: int, depth: int) -> dict[str, Any]:
    n = len(requests["request"])
    at = (np.searchsorted(requests["request"], shown["request"]), shown["slot"].astype(np.int64))
    of = (np.searchsorted(requests["request"], candidates["request"]), candidates["place"].astype(np.int64))

    def table(where: tuple[Any, Any], values: NDArray[Any], width: int, empty: float) -> NDArray[Any]:
        filled = np.full((n, width), empty, values.dtype)
        filled[where] = values
        return filled

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


def _visits(requests: Rows) -> LoggedRequests:
    return LoggedRequests(*(requests[name] for name in ("request", "user", "context", "time")))


def _joined_visits(parts: Sequence[LoggedRequests]) -> LoggedRequests:
    names = ("requests", "users", "context", "times")
    return LoggedRequests(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _joined(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


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
