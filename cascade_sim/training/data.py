"""Samples for the training recipes, taken from the log and from the shadow."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from cascade_sim import draws
from cascade_sim.cascade.seats import Scorer
from cascade_sim.cascade.serve import Arm, Block, Decision, score
from cascade_sim.models.list_training import Pages, make_pages
from cascade_sim.models.training import Impressions, Lists, chunk_of_rank
from cascade_sim.phases.simulation import Simulation
from cascade_sim.storage.tables import read_table, tables

COLUMNS = ["user", "context", "ad", "examination", "click"]
PAGE_COLUMNS = ["request", "pctr"]


def impressions(logs: Path, phases: Iterable[str]) -> Impressions:
    """All logged impressions of these phases, in the order of the log. A phase without requests has none."""
    logged = tables(logs)
    parts = [read_table(logs, phase, COLUMNS) for phase in phases if phase in logged]
    if not parts:
        nothing = np.zeros(0, np.float32)
        return Impressions(nothing.astype(np.int32), nothing, nothing.astype(np.int32), nothing, nothing)
    user, context, ad, examination, click = (np.concatenate([part[c] for part in parts]) for c in COLUMNS)
    return Impressions(user, context, ad, examination, click.astype(np.float32))


def pages(logs: Path, phases: Iterable[str]) -> Pages:
    """The logged impressions of these phases by request, with what the deployed ranker had said of them."""
    shown, logged = impressions(logs, phases), tables(logs)
    parts = [read_table(logs, phase, PAGE_COLUMNS) for phase in phases if phase in logged]
    if not parts:
        return make_pages(shown, np.zeros(0, np.int64), np.zeros(0, np.float32))
    return make_pages(shown, *(np.concatenate([part[c] for part in parts]) for c in PAGE_COLUMNS))


def split_pages(data: Pages, share: float, seed: int) -> tuple[Pages, Pages]:
    """Pages to train on, and about this share of them, drawn by request, kept apart for a calibrator."""
    is_apart = draws.uniform(seed, "held out", data.request) < share
    return data.take(~is_apart), data.take(is_apart)


def sample_lists(
    sim: Simulation, arm: Arm, block: Block, decision: Decision, spec, teacher: Scorer | None = None
) -> Lists:
    """A list per request: a uniform sample of the named set, scored by the teacher.

    The chunk labels follow the ranking stage's fused score (its pCTR and its opt-bid), which is the
    order the student of `ltr` has to learn. Requests with fewer candidates than the sample are left out.
    `teacher`: in place of the simulation's model of that name.
    """
    pool = decision.competitive_set if spec.sample.set == "competitive" else decision.pre_ranking_set
    size = min(spec.sample.per_request, pool.shape[1])
    luck = draws.uniform(sim.seed, "list sample", block.requests[:, None], pool)
    order = np.argsort(np.where(pool >= 0, luck, 2.0), axis=1, kind="stable")[:, :size]
    ads = np.take_along_axis(pool, order, 1)
    keep = (ads >= 0).all(axis=1)
    block, ads = block.take(keep), ads[keep]
    teacher = teacher or sim.scorers[spec.teacher]
    logit = teacher.log_odds(block, ads)  # type: ignore[attr-defined]  # a teacher is a trained model
    fused = score(block, ads, arm.ranking, arm, sim.platform).score
    best_first = np.lexsort((ads, -fused), axis=1)
    chunk = np.empty(ads.shape, np.int8)
    np.put_along_axis(chunk, best_first, chunk_of_rank(size, spec.chunks)[None, :], 1)
    log_bid = np.log(sim.platform.bids.init_bid[ads]).astype(np.float32)
    return Lists(block.users, block.context, ads, logit, log_bid, chunk)


def join_lists(parts: list[Lists]) -> Lists:
    """One `Lists` of many, in order."""
    return Lists(**{key: np.concatenate([p.arrays()[key] for p in parts]) for key in parts[0].arrays()})
