"""Measures that need the whole corpus: value loss by stage and the consistency of retrieval.

Value is lost where a stage hands on less than it was given. Part of it no model could have kept: the noise of
a user and an ad, which no feature shows. So losses are measured twice, against the best lists by the true
value and by the value that features tell; the difference is irreducible. Beside this sequential split is
what each stage of the baseline alone costs: the same cascade with that stage choosing by the known value.

Scoring every ad for a request is dear, so these use the first few hundred requests of the evaluation,
as many as fit a budget of (request, ad) pairs. They ask `serve` and the stages, as all others do.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from cascade_sim.analysis.metrics import consistency, money
from cascade_sim.analysis.metrics.attribution import SlotList, stage_losses, true_ecpm
from cascade_sim.analysis.metrics.ratio import mean_parts
from cascade_sim.analysis.statistics.bootstrap import ratio_intervals
from cascade_sim.auction import MICROS
from cascade_sim.cascade.cache import BlockCache, of_sets
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.logged import GivenSets
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.scorers import KnowableScorer
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, admitted, score, serve
from cascade_sim.cascade.sizes import select_sizes
from cascade_sim.environments.evaluators.truth import ranking_of
from cascade_sim.foundation.kernels import select_top
from cascade_sim.world.availability import AdAvailability


class Valued(Protocol):
    """Where it is known what ads are truly worth."""

    @property
    def platform(self) -> Platform: ...

    def true_value(self, block: Block, ids: np.ndarray, arm: Arm) -> np.ndarray: ...

    def known_value(self, block: Block, ids: np.ndarray, arm: Arm) -> np.ndarray: ...

    def ctr_without_noise(self, block: Block, ads: np.ndarray) -> np.ndarray: ...

    def outcome(self, block: Block, decision: Decision, charging: str) -> Outcome: ...


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
    world: Valued, n_ads: int, block: Block, served: Mapping[str, tuple[Arm, Decision]], baseline: str
) -> dict[str, dict[str, np.ndarray]]:
    """What arms, by name with their decisions, lose against the whole corpus.  {name: {column: [R]}}

    Of the baseline also what each of its stages alone costs.
    """
    best_ids: dict[Arm, list[tuple[np.ndarray, np.ndarray]]] = {}
    shares: dict[str, list[np.ndarray]] = {name: [] for name in served}
    retrieved: list[np.ndarray] = []
    for rows, part, corpus in parts(block, n_ads, world.platform.lives):
        known: dict[Arm, np.ndarray] = {}
        for name, (arm, decision) in served.items():
            key = ranking_of(arm)
            if key not in known:
                known[key] = world.known_value(part, corpus, arm)
                found = _true_best(world, part, corpus, arm), _top(corpus, known[key], arm)
                best_ids.setdefault(key, []).append(found)
            if name == baseline:
                retrieved.append(_retrieved_by(corpus, known[key], arm))
            shares[name].append(_retrieved(world.platform, arm, part, corpus, decision.take(rows)))
    best = {key: BestLists.of(world, block, pieces, key) for key, pieces in best_ids.items()}
    columns = {
        name: {
            **attribution_columns(world, arm, block, decision, best[ranking_of(arm)]),
            **_retrieval_columns(np.concatenate(shares[name])),
        }
        for name, (arm, decision) in served.items()
    }
    if baseline in served:
        arm = served[baseline][0]
        columns[baseline] |= perfect_stage_columns(
            world, arm, block, columns[baseline], np.concatenate(retrieved)
        )
    return columns


@dataclass(frozen=True)
class BestLists:
    """The best pages of the whole corpus, with their true value: by the truth, and by what features tell."""

    by_truth: SlotList
    by_known: SlotList

    @classmethod
    def of(
        cls, world: Valued, block: Block, pieces: list[tuple[np.ndarray, np.ndarray]], arm: Arm
    ) -> "BestLists":
        ids = (np.concatenate(found) for found in zip(*pieces, strict=True))
        return cls(*(_slot_list(world, block, chosen, arm) for chosen in ids))


def perfect_stage_columns(
    world: Valued, arm: Arm, block: Block, own: Mapping[str, np.ndarray], retrieved: np.ndarray
) -> dict[str, np.ndarray]:
    """What the arm would gain with one stage choosing by the known value and the others as they are.

    own: its columns; retrieved: the best candidates of the corpus by known value.  {column: [R]}
    """
    knowable, last = KnowableScorer(world), arm.last
    value = {"scorer": knowable, "bid": last.bid, "rates": last.rates, "fusion": Fusion()}
    perfect = {arm.retrieval.name: arm.among(GivenSets(block.requests, retrieved))}
    perfect |= {stage.name: arm.with_stage(at, **value) for at, stage in enumerate(arm.stages[:-1])}
    perfect[last.name] = arm.with_stage(-1, scorer=knowable)
    columns = {}
    for stage_name, better in perfect.items():
        decision = serve(block, better, world.platform)
        shown = _slot_list(world, block, decision.win_set, arm)
        columns[f"gain {stage_name}"] = true_ecpm(shown, world.platform.slot_effects) - own["shown"]
        columns[f"gain in revenue {stage_name}"] = _revenue(world, block, better, decision) - own["revenue"]
    return columns


def _revenue(world: Valued, block: Block, arm: Arm, decision: Decision) -> np.ndarray:
    """Expected revenue in the unit of eCPM: 1000 times that of a request.  [R]"""
    result = world.outcome(block, decision, arm.charging)
    price = result.price_micros(decision) / MICROS
    return 1000.0 * money.slot_sum(price, result.charged, decision.win_set >= 0)


def best_of_corpus(world: Valued, n_ads: int, arm: Arm, block: Block) -> BestLists:
    """The k ads of the corpus with the highest true CTR * bid of the ranking stage, and by known CTR."""
    pieces = [
        (_true_best(world, part, corpus, arm), _top(corpus, world.known_value(part, corpus, arm), arm))
        for _, part, corpus in parts(block, n_ads, world.platform.lives)
    ]
    return BestLists.of(world, block, pieces, arm)


def _true_best(world: Valued, part: Block, corpus: np.ndarray, arm: Arm) -> np.ndarray:
    return _top(corpus, world.true_value(part, corpus, arm), arm)


def _top(corpus: np.ndarray, value: np.ndarray, arm: Arm) -> np.ndarray:
    return consistency.top_ids(corpus, value, arm.slots)


def _retrieved_by(corpus: np.ndarray, value: np.ndarray, arm: Arm) -> np.ndarray:
    """As many ads as the arm retrieves, by this value.  [R, n] ascending"""
    order = np.maximum(value, -1.0).astype(np.float32)  # those that the auction bars come last
    return select_top(corpus, order, min(arm.retrieval.size, corpus.shape[1]))[0]


def _slot_list(world: Valued, block: Block, ids: np.ndarray, arm: Arm) -> SlotList:
    """Ads with their true value; what the auction would not admit under the truth is worth nothing."""
    return SlotList(ids, np.maximum(world.true_value(block, ids, arm), 0.0))


def attribution_columns(
    world: Valued, arm: Arm, block: Block, decision: Decision, best: BestLists
) -> dict[str, np.ndarray]:
    """Per request: what each stage lost, how much of it features tell, and which true winners it dropped."""
    effects, sets = world.platform.slot_effects, dict(zip(arm.stage_names, decision.sets, strict=True))
    shown = _slot_list(world, block, decision.win_set, arm)

    def losses(best: SlotList, value: Callable[..., np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        chosen = {
            stage: consistency.top_ids(ids, value(block, ids, arm), arm.slots)
            for stage, ids in list(sets.items())[:-1]
        }
        lists = {stage: _slot_list(world, block, ids, arm) for stage, ids in chosen.items()}
        reached = {stage: consistency.membership(best.ids, ids) for stage, ids in sets.items()}
        return stage_losses(lists | {arm.last.name: shown}, best, reached, effects)

    by_truth, by_known = losses(best.by_truth, world.true_value), losses(best.by_known, world.known_value)
    kinds = ("lost", "dropped")
    return {
        **{f"{kind} {stage}": part[kind] for stage, part in by_truth.items() for kind in kinds},
        **{f"avoidable {stage}": part["lost"] for stage, part in by_known.items()},
        "best": true_ecpm(best.by_truth, effects),
        "known best": true_ecpm(best.by_known, effects),
        "shown": true_ecpm(shown, effects),
        "revenue": _revenue(world, block, arm, decision),
    }


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


def attribution_table(
    tables: dict[str, dict[str, np.ndarray]], baseline: str, resamples: int, seed: int
) -> dict:
    """The attribution section of metrics.json from the columns of every arm."""
    first = next(iter(tables))

    def means(kinds: tuple[str, ...], of: dict[str, dict[str, np.ndarray]]) -> dict[str, dict[str, Any]]:
        names = [key for key in next(iter(of.values())) if key.startswith(kinds)]
        return ratio_intervals(of, {name: (name, None) for name in names}, next(iter(of)), resamples, seed)

    stages = [key.removeprefix("lost ") for key in tables[first] if key.startswith("lost ")]
    section = {}
    for arm, row in means(MEANS, tables).items():
        total = (row["best"]["value"] or 0.0) - (row["shown"]["value"] or 0.0)
        rows = []
        for stage in stages:
            lost, dropped = _interval(row[f"lost {stage}"]), _interval(row[f"dropped {stage}"])
            share = lost["value"] / total if total > 0 and lost["value"] is not None else None
            rows.append({"stage": stage, "dropped": dropped, "ecpm_lost": lost, "share": share})
        section[arm] = {
            "requests": len(tables[arm]["best"]),
            "stages": rows,
            "ecpm_best": row["best"]["value"],
            "ecpm_shown": row["shown"]["value"],
            # as far as features tell: the rest no model could have kept
            "ecpm_best_known": _interval(row["known best"]),
            "ecpm_avoidable": {stage: _interval(row[f"avoidable {stage}"]) for stage in stages},
            "revenue": _interval(row["revenue"]),
        }
    if baseline in section:  # with one stage perfect and the others as they are
        row = means(GAINS, {baseline: tables[baseline]})[baseline]
        section[baseline]["perfect_stage"] = {
            stage: {
                "ecpm_gain": _interval(row[f"gain {stage}"]),
                "revenue_gain": _interval(row[f"gain in revenue {stage}"]),
            }
            for stage in stages
        }
    return section


MEANS = ("lost ", "dropped ", "avoidable ", "best", "known best", "shown", "revenue")
GAINS = ("gain ",)


def _interval(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: entry[key] for key in ("value", "low", "high")}
