"""Logs of randomised decisions: what is served, and what is written down of it.

Two phases with traffic of their own, served by the baseline arm:

off_policy  a reserve and a squashing of every request; tables `off-policy` (impressions) and
            `off-policy-requests`
slates      a page drawn from the head of the ranking order; tables `slates` (impressions),
            `slates-requests`, `slates-candidates` (the list each page was drawn from)
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cascade_sim.cascade.columns import impression_columns, request_columns
from cascade_sim.cascade.exploration import Explored
from cascade_sim.cascade.knobs import RANDOMISED, Randomiser, with_knobs
from cascade_sim.cascade.outcome import Outcome, outcome
from cascade_sim.cascade.serve import Arm, Block, Decision
from cascade_sim.estimation.slates import (
    SlateList,
    draw_places,
    drawn_decision,
    list_of,
    log_odds,
    log_propensities,
)
from cascade_sim.phases.simulation import Simulation
from cascade_sim.progress import Progress
from cascade_sim.scenario.schema import ArmSpec, Scenario, resolve_arm
from cascade_sim.storage.folder import is_done, keep
from cascade_sim.storage.tables import TableWriter

KNOBS, SLATES = "off_policy", "slates"  # phases
KNOB_TABLES = ("off-policy", "off-policy-requests")
SLATE_TABLES = ("slates", "slates-requests", "slates-candidates")

Rows = dict[str, np.ndarray]


@dataclass(frozen=True)
class LoggedPages:
    """A slate block as it was served."""

    decision: Decision
    drawn_from: SlateList
    places: np.ndarray  # [R, k] in the list; -1 = empty slot
    propensity: np.ndarray  # [R, k] of each slot given those above; 1 in an empty slot


def baseline_spec(scenario: Scenario) -> ArmSpec:
    """The arm that writes these logs."""
    return resolve_arm(scenario, scenario.arms[scenario.report.baseline])


def randomiser(scenario: Scenario) -> Randomiser:
    """The law of the logged knobs; the scenario must randomise some."""
    assert scenario.off_policy is not None and scenario.off_policy.randomise is not None
    auction = baseline_spec(scenario).auction
    sigmas = scenario.off_policy.randomise.sigmas
    return Randomiser({knob: getattr(auction, knob) for knob in sigmas}, sigmas)


def serve_knobs(
    sim: Simulation, block: Block, arm: Arm, law: Randomiser, noise: Rows
) -> tuple[Decision, Rows]:
    """The block with knobs of this law and noise, and the knobs themselves."""
    values = law.values(noise)
    squashing = baseline_spec(sim.scenario).auction.squashing
    return sim.serve(with_knobs(block, values, squashing), arm), values


def serve_pages(sim: Simulation, block: Block, arm: Arm, temperature: float, depth: int) -> LoggedPages:
    """The block with pages drawn from the head of the ranking order."""
    drawn_from, served = list_of(block, arm, sim.platform, depth)
    logit = log_odds(drawn_from.score, temperature)
    places = draw_places(block.requests, drawn_from.ads, logit, arm.slots, sim.seed)
    decision = drawn_decision(served, drawn_from, places)
    return LoggedPages(decision, drawn_from, places, np.exp(log_propensities(logit, places)))


def revenue_limit(sim: Simulation, block: Block, arm: Arm, pre_ranking_set: np.ndarray) -> np.ndarray:
    """The most a request can earn, whatever the knobs: its k largest bids, every slot clicked.  [R]

    What was retrieved does not depend on the knobs, so this is known before they are drawn.
    """
    bid = sim.platform.bids.bid(arm.ranking.bid, block, pre_ranking_set, arm.bid_rule, arm.bid_range)
    k = min(arm.slots, bid.shape[1])
    return np.partition(bid, bid.shape[1] - k, axis=1)[:, -k:].sum(axis=1)


def knob_tables(sim: Simulation, block: Block, arm: Arm) -> list[Rows]:
    """What is written down of a block with randomised knobs: rows of KNOB_TABLES. Pure."""
    law, auction = randomiser(sim.scenario), baseline_spec(sim.scenario).auction
    noise = law.noise(sim.seed, block.requests)
    decision, values = serve_knobs(sim, block, arm, law, noise)
    n = len(block)
    propensity = (decision.win_set >= 0).astype(np.float64)
    shown = Explored(decision, np.zeros(n, bool), propensity, np.ones(n, bool))
    requests = request_columns(block, shown, 0.0)
    del requests["page_propensity"]  # the page follows from the knobs, whose density is that of z
    for knob in RANDOMISED:
        requests[knob] = values.get(knob, np.full(n, getattr(auction, knob)))
        requests[f"{knob}_z"] = noise.get(knob, np.zeros(n))
    requests["revenue_limit"] = revenue_limit(sim, block, arm, decision.pre_ranking_set)
    return [impression_columns(sim, block, shown, _realised(sim, block, decision)), requests]


def slate_tables(sim: Simulation, block: Block, arm: Arm) -> list[Rows]:
    """What is written down of a block with randomised pages: rows of SLATE_TABLES. Pure."""
    assert sim.scenario.off_policy is not None and sim.scenario.off_policy.slates is not None
    section = sim.scenario.off_policy.slates
    pages = serve_pages(sim, block, arm, section.temperature, section.depth)
    n, is_shown = len(block), pages.places >= 0
    propensity = np.where(is_shown, pages.propensity, 0.0)
    shown = Explored(pages.decision, np.ones(n, bool), propensity, np.zeros(n, bool))
    impressions = impression_columns(sim, block, shown, _realised(sim, block, pages.decision))
    impressions["place"] = pages.places[is_shown].astype(np.int8)
    requests = request_columns(block, shown, 0.0)
    requests["page_propensity"] = pages.propensity.prod(axis=1)
    requests["n_listed"] = pages.drawn_from.is_there.sum(axis=1).astype(np.int8)
    requests["temperature"] = np.full(n, section.temperature)
    return [impressions, requests, _candidate_columns(block, pages.drawn_from)]


def write_logs(sim: Simulation, arm: Arm, folder: Path, progress: Progress) -> None:
    """Both phases, as far as the scenario asks for them and no stopped run left them."""
    section = sim.scenario.off_policy
    assert section is not None
    if section.randomise is not None:
        _log(sim, folder, progress, KNOBS, section.requests, KNOB_TABLES, partial(knob_tables, sim, arm=arm))
    if section.slates is not None:
        n = section.slates.requests
        _log(sim, folder, progress, SLATES, n, SLATE_TABLES, partial(slate_tables, sim, arm=arm))


def _realised(sim: Simulation, block: Block, decision: Decision) -> Outcome:
    return outcome(block, decision, sim.truth, sim.world.slot_effects, sim.seed)


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


def _log(
    sim: Simulation,
    folder: Path,
    progress: Progress,
    phase: str,
    n_requests: int,
    names: tuple[str, ...],
    handle: Callable[[Block], list[Rows]],
) -> None:
    """Serve a phase and write what `handle` (pure) makes of each block, table by table."""
    if is_done(folder, phase):  # a stopped run left its tables: only time has to pass
        sim.market.run_phase(phase, n_requests, lambda block: None, lambda block, nothing: None)
        return
    with progress.stage(f"{phase}: serve", n_requests) as bar, ExitStack() as stack:
        writers = [stack.enter_context(TableWriter(folder, name)) for name in names]

        def finish(block: Block, made: list[Rows]) -> None:
            for writer, columns in zip(writers, made, strict=True):
                writer.append(columns)
            bar.advance(len(block))

        sim.market.run_phase(phase, n_requests, handle, finish)
    keep(folder, phase, names)
