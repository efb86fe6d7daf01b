"""Measures that need the whole corpus: loss attribution and the consistency of retrieval.

Scoring every ad for a request is dear, so these use the first few hundred requests of the evaluation,
as many as fit a budget of (request, ad) pairs. They ask `serve` and the seats, like everyone else.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from cascade_sim.analysis.metrics import consistency
from cascade_sim.analysis.metrics.attribution import SlotList, stage_losses, true_ecpm
from cascade_sim.analysis.metrics.ratio import mean_parts
from cascade_sim.analysis.statistics.bootstrap import ratio_intervals
from cascade_sim.cascade.cache import BlockCache, of_sets
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, admitted, score
from cascade_sim.cascade.sizes import select_sizes
from cascade_sim.environments.evaluators.truth import ranking_of
from cascade_sim.foundation.kernels import select_top
from cascade_sim.world.availability import AdAvailability


class Valued(Protocol):
    """Where it is known what ads are truly worth."""

    @property
    def platform(self) -> Platform: ...

    def true_value(self, block: Block, ids: np.ndarray, arm: Arm) -> np.ndarray: ...


CORPUS_PAIRS = 10_000_000  # (request, ad) pairs scored per arm
PAIRS_AT_ONCE = 1_000_000  # keeps the temporary arrays small


def n_detail(wanted: int, n_ads: int) -> int:
    """How many of so many requests are measured against the whole corpus."""
    return max(min(wanted, CORPUS_PAIRS // n_ads), min(wanted, 1))


def parts(
    block: Block, n_ads: int, lives: AdAvailability | None = None
) -> Iterator[tuple[slice, Block, np.ndarray]]:
    """The block in pieces small enough to score against the whole corpus, with the corpus for each.

    Where ads come and go, the corpus of a request is those that are there. A piece remembers what was
    computed for it: arms have models, bids and the truth in common.
    """
    step = max(1, PAIRS_AT_ONCE // n_ads)
    for start in range(0, len(block), step):
        rows = slice(start, start + step)
        part = replace(block.take(rows), memo=BlockCache())
        yield rows, part, _corpus(part, n_ads, lives)


@of_sets
def _corpus(block: Block, n_ads: int, lives: AdAvailability | None) -> np.ndarray:
    """All ads that are there, for each request.  [R, A] int32, ascending, -1 at the end"""
    if lives is not None:
        return lives.corpus(block.times)
    return np.tile(np.arange(n_ads, dtype=np.int32), (len(block), 1))


def corpus_columns(
    world: Valued, n_ads: int, block: Block, served: Mapping[str, tuple[Arm, Decision]]
) -> dict[str, dict[str, np.ndarray]]:
    """What arms, by name with their decisions, lose against the whole corpus.  {name: {column: [R]}}"""
    best_ids: dict[Arm, list[np.ndarray]] = {}
    shares: dict[str, list[np.ndarray]] = {name: [] for name in served}
    for rows, part, corpus in parts(block, n_ads, world.platform.lives):
        best_here: dict[Arm, np.ndarray] = {}
        for name, (arm, decision) in served.items():
            key = ranking_of(arm)
            if key not in best_here:
                best_here[key] = _true_best(world, part, corpus, arm)
            shares[name].append(_retrieved(world.platform, arm, part, corpus, decision.take(rows)))
        for key, ids in best_here.items():
            best_ids.setdefault(key, []).append(ids)
    best = {key: _slot_list(world, block, np.concatenate(ids), key) for key, ids in best_ids.items()}
    return {
        name: {
            **attribution_columns(world, arm, block, decision, best[ranking_of(arm)]),
            **_retrieval_columns(np.concatenate(shares[name])),
        }
        for name, (arm, decision) in served.items()
    }


def true_best_of_corpus(world: Valued, n_ads: int, arm: Arm, block: Block) -> SlotList:
    """The k ads of the corpus with the highest true CTR * bid of the ranking stage.  [R, k]"""
    pieces = parts(block, n_ads, world.platform.lives)
    ids = [_true_best(world, part, corpus, arm) for _, part, corpus in pieces]
    return _slot_list(world, block, np.concatenate(ids), arm)


def _true_best(world: Valued, part: Block, corpus: np.ndarray, arm: Arm) -> np.ndarray:
    return consistency.top_ids(corpus, world.true_value(part, corpus, arm), arm.slots)


def _slot_list(world: Valued, block: Block, ids: np.ndarray, arm: Arm) -> SlotList:
    """Ads with their true value; what the auction would not admit under the truth is worth nothing."""
    return SlotList(ids, np.maximum(world.true_value(block, ids, arm), 0.0))


def attribution_columns(
    world: Valued, arm: Arm, block: Block, decision: Decision, best: SlotList
) -> dict[str, np.ndarray]:
    """Per request: what each stage lost, and which share of the true winners it dropped."""

    def best_of(ids: np.ndarray) -> SlotList:
        chosen = consistency.top_ids(ids, world.true_value(block, ids, arm), arm.slots)
        return _slot_list(world, block, chosen, arm)

    shown = _slot_list(world, block, decision.win_set, arm)
    effects, sets = world.platform.slot_effects, dict(zip(arm.stage_names, decision.sets, strict=True))
    lists = {stage: best_of(ids) for stage, ids in list(sets.items())[:-1]} | {arm.last.name: shown}
    reached = {stage: consistency.membership(best.ids, ids) for stage, ids in sets.items()}
    losses = stage_losses(lists, best, reached, effects)
    table = {f"{kind} {stage}": part[kind] for stage, part in losses.items() for kind in ("lost", "dropped")}
    return {**table, "best": true_ecpm(best, effects), "shown": true_ecpm(shown, effects)}


def _retrieval_columns(shares: np.ndarray) -> dict[str, np.ndarray]:
    """What the metric retrieval_rcs is summed from.  {name: [R]}"""
    reached, requests = mean_parts(shares)
    return {"retrieval_reached": reached, "retrieval_requests": requests}


def retrieval_rcs(platform: Platform, n_ads: int, arm: Arm, block: Block, decision: Decision) -> np.ndarray:
    """Share of the first scoring stage's own choice from the whole corpus that retrieval passed on.  [R]"""
    return np.concatenate(
        [
            _retrieved(platform, arm, part, corpus, decision.take(rows))
            for rows, part, corpus in parts(block, n_ads, platform.lives)
        ]
    )


def _retrieved(
    platform: Platform, arm: Arm, part: Block, corpus: np.ndarray, decision: Decision
) -> np.ndarray:
    stage = arm.stages[0]
    wanted = admitted(score(part, corpus, stage, arm, platform), stage, arm).astype(np.float32)
    size = arm.slots if stage.size is None else stage.size
    if stage.size_rule is None:
        chosen, _ = select_top(corpus, wanted, min(size, corpus.shape[1]))
    else:
        chosen, _ = select_sizes(corpus, wanted, decision.passes[1].counts, size)
    return consistency.rcs(chosen, decision.retrieved)


def attribution_table(tables: dict[str, dict[str, np.ndarray]], resamples: int, seed: int) -> dict:
    """The attribution section of metrics.json from the columns of every arm."""
    first = next(iter(tables))
    names = [key for key in tables[first] if key.startswith(("lost ", "dropped "))] + ["best", "shown"]
    values = ratio_intervals(tables, {name: (name, None) for name in names}, first, resamples, seed)
    section = {}
    for arm, row in values.items():
        total = (row["best"]["value"] or 0.0) - (row["shown"]["value"] or 0.0)
        stages = []
        for stage in [key.removeprefix("lost ") for key in tables[arm] if key.startswith("lost ")]:
            lost = {key: row[f"lost {stage}"][key] for key in ("value", "low", "high")}
            dropped = {key: row[f"dropped {stage}"][key] for key in ("value", "low", "high")}
            share = lost["value"] / total if total > 0 and lost["value"] is not None else None
            stages.append({"stage": stage, "dropped": dropped, "ecpm_lost": lost, "share": share})
        section[arm] = {
            "requests": len(tables[arm]["best"]),
            "stages": stages,
            "ecpm_best": row["best"]["value"],
            "ecpm_shown": row["shown"]["value"],
        }
    return section
