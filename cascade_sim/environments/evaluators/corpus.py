"""Measures that need the whole corpus: value loss by stage, recall by stage and route, and welfare.

Value is lost where a stage hands on less than it was given. Part of it no model could have kept: the noise of
a user and an ad, which no feature shows. So losses are measured twice, against the best lists by the true
value and by the value that features tell; the difference is irreducible. Beside this sequential split is
what each stage of the baseline alone costs: the same cascade with that stage choosing by the known value.

Two pages of the whole corpus are followed through the stages. The ideal page is what an arm's own last stage
would have auctioned first, had it scored every ad that is there: it tells how consistent the stages before it
are, and of arms with different rankers each has its own. The best page is that by true CTR * bid of the
ranking stage, whatever the ranker. Of both it is known which ads each stage and each route of retrieval has.

Scoring every ad for a request is dear, so these use the first few hundred requests of the evaluation,
as many as fit a budget of (request, ad) pairs. They ask `serve` and the stages, as all others do.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import Any, Protocol

import numpy as np

from cascade_sim.analysis.metrics import consistency, money
from cascade_sim.analysis.metrics.attribution import SlotList, stage_losses, true_ecpm
from cascade_sim.analysis.metrics.catalogue import after_step
from cascade_sim.analysis.metrics.ratio import divide, mean_parts
from cascade_sim.analysis.statistics.bootstrap import ratio_intervals
from cascade_sim.auction import MICROS
from cascade_sim.cascade.cache import BlockCache, of_sets
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.logged import GivenSets
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.randomisation import reserve_of
from cascade_sim.cascade.retrievers.routes import brought_by
from cascade_sim.cascade.scorers import KnowableScorer
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, Retrieve, admitted, score, serve
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
# Of arms that are asked about the whole corpus: who brought candidates plays no part.
NO_RETRIEVAL = Retrieve(GivenSets(np.zeros(0, np.int64), np.zeros((0, 0), np.int32)), 0)


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

    Of the baseline also what each of its stages alone costs. Value of all arms is compared by its bids.
    """
    pages: dict[Arm, list[CorpusPages]] = {}
    shares: dict[str, list[np.ndarray]] = {name: [] for name in served}
    retrieved: list[np.ndarray] = []
    worth: list[np.ndarray] = []
    ruler = _without_reserve(baseline, served) if baseline in served else None
    for rows, part, corpus in parts(block, n_ads, world.platform.lives):
        known: dict[Arm, np.ndarray] = {}
        for name, (arm, decision) in served.items():
            key = auction_of(arm)
            if key not in known:
                known[key] = world.known_value(part, corpus, arm)
                pages.setdefault(key, []).append(CorpusPages.of(world, part, corpus, arm, known[key]))
            if name == baseline:
                retrieved.append(_retrieved_by(corpus, known[key], arm))
            shares[name].append(_retrieved(world.platform, arm, part, corpus, decision.take(rows)))
        if ruler is not None:
            worth.append(_true_best(world, part, corpus, ruler))
    found = {key: CorpusPages.joined(pieces) for key, pieces in pages.items()}
    columns = {}
    for name, (arm, decision) in served.items():
        own = found[auction_of(arm)]
        columns[name] = {
            **attribution_columns(world, arm, block, decision, own.valued(world, block, arm)),
            **_retrieval_columns(np.concatenate(shares[name])),
            **page_columns(world.platform, arm, block, decision, own),
        }
        if ruler is not None:
            columns[name] |= welfare_columns(world, ruler, block, decision, np.concatenate(worth))
    if baseline in served:
        arm = served[baseline][0]
        columns[baseline] |= perfect_stage_columns(
            world, arm, block, columns[baseline], np.concatenate(retrieved)
        )
    return columns


def auction_of(arm: Arm) -> Arm:
    """What an arm would do with the whole corpus: equal for arms that differ before the last stage only."""
    return replace(ranking_of(arm), retrieval=NO_RETRIEVAL)


def _without_reserve(baseline: str, served: Mapping[str, tuple[Arm, Decision]]) -> Arm:
    """The baseline with all ads admitted, and as many slots as any arm has: its best page bounds them all."""
    slots = max(arm.slots for arm, _ in served.values())
    return replace(auction_of(served[baseline][0]), reserve_cpc=0.0, score_floor=0.0, slots=slots)


@dataclass(frozen=True)
class CorpusPages:
    """Pages of the whole corpus, [R, k] ids: by an arm's last stage, by the truth, by what features tell."""

    ideal: np.ndarray
    best: np.ndarray
    known: np.ndarray

    @classmethod
    def of(cls, world: Valued, part: Block, corpus: np.ndarray, arm: Arm, known: np.ndarray) -> "CorpusPages":
        """`known`: the value of the corpus that features tell."""
        return cls(
            ideal=_ideal(world.platform, part, corpus, arm),
            best=_true_best(world, part, corpus, arm),
            known=_top(corpus, known, arm),
        )

    @classmethod
    def joined(cls, pieces: "list[CorpusPages]") -> "CorpusPages":
        """Of consecutive requests."""
        return cls(
            *(np.concatenate(ids) for ids in zip(*(vars(one).values() for one in pieces), strict=True))
        )

    def valued(self, world: Valued, block: Block, arm: Arm) -> "BestLists":
        """The best ones with their true value."""
        return BestLists(*(_slot_list(world, block, ids, arm) for ids in (self.best, self.known)))


@dataclass(frozen=True)
class BestLists:
    """The best pages of the whole corpus, with their true value: by the truth, and by what features tell."""

    by_truth: SlotList
    by_known: SlotList


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


def pages_of_corpus(world: Valued, n_ads: int, arm: Arm, block: Block) -> CorpusPages:
    """The pages that the whole corpus has for an arm."""
    return CorpusPages.joined(
        [
            CorpusPages.of(world, part, corpus, arm, world.known_value(part, corpus, arm))
            for _, part, corpus in parts(block, n_ads, world.platform.lives)
        ]
    )


def best_of_corpus(world: Valued, n_ads: int, arm: Arm, block: Block) -> BestLists:
    """The k ads of the corpus with the highest true CTR * bid of the ranking stage, and by known CTR."""
    return pages_of_corpus(world, n_ads, arm, block).valued(world, block, arm)


def _ideal(platform: Platform, part: Block, corpus: np.ndarray, arm: Arm) -> np.ndarray:
    """What the arm's last stage would have auctioned first, had it scored every ad that is there.  [R, k]"""
    scores = score(part, corpus, arm.last, arm, platform)
    value = admitted(scores, arm.last, arm, reserve_of(part, arm))
    return _top(corpus, np.where(value > 0, value, -np.inf), arm)


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


def page_columns(
    platform: Platform, arm: Arm, block: Block, decision: Decision, pages: CorpusPages
) -> dict[str, np.ndarray]:
    """Shares of the ideal page and of the best page that each stage and each route has.  {column: [R]}

    What a stage does by itself is a share of what it was handed of them.
    """
    both = np.concatenate([pages.ideal, pages.best], axis=1)
    routes = brought_by(arm.retrieval.retriever, block, both, platform.lives)
    columns: dict[str, np.ndarray] = {}
    for name, ids, at in (
        ("ideal_page", pages.ideal, slice(arm.slots)),
        ("best_page", pages.best, slice(arm.slots, None)),
    ):
        columns |= _by_stage(name, arm, ids, decision)
        columns |= _by_route(name, ids, {route: found[:, at] for route, found in routes.items()})
    return columns


def _by_stage(name: str, arm: Arm, ids: np.ndarray, decision: Decision) -> dict[str, np.ndarray]:
    """Shares of these ads that are left after each stage, and of what was left before it."""
    kept = {
        stage: _share(ids, consistency.membership(ids, of_stage))
        for stage, of_stage in zip(arm.stage_names, decision.sets, strict=True)
    }
    requests = _has_any(ids)
    columns = {f"{name}_reached": kept[arm.last.name], f"{name}_requests": requests}
    for before, stage in pairwise(kept):
        columns[after_step(f"{name}_reached", before)] = kept[before]
        columns[after_step(f"{name}_requests", before)] = requests
        columns[f"{name}_reached_of_{stage}"] = kept[stage]
        columns[f"{name}_requests_of_{stage}"] = kept[before]
    return columns


def _by_route(name: str, ids: np.ndarray, routes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Shares of these ads that each route brings, and that no other does."""
    times, requests = np.sum(list(routes.values()), axis=0), _has_any(ids)
    columns: dict[str, np.ndarray] = {}
    for route, is_brought in routes.items():
        for infix, hit in (("by", is_brought), ("only_by", is_brought & (times == 1))):
            columns[f"{name}_reached_{infix}_{route}"] = _share(ids, hit)
            columns[f"{name}_requests_{infix}_{route}"] = requests
    return columns


def _has_any(ids: np.ndarray) -> np.ndarray:
    """1 for a request with such ads.  [R] float64"""
    return np.asarray((ids >= 0).any(axis=1), np.float64)


def _share(ids: np.ndarray, hit: np.ndarray) -> np.ndarray:
    """Hits by ads; 0 of a request without any.  [R]"""
    return mean_parts(divide(hit.sum(axis=1), (ids >= 0).sum(axis=1)))[0]


def welfare_columns(
    world: Valued, ruler: Arm, block: Block, decision: Decision, best: np.ndarray
) -> dict[str, np.ndarray]:
    """What the metric corpus_welfare_efficiency is summed from, in the currency of one arm.  {name: [R]}"""
    effects = world.platform.slot_effects
    pages = {"page_value": decision.win_set, "best_page_value": best}
    return {name: true_ecpm(_slot_list(world, block, ids, ruler), effects) for name, ids in pages.items()}


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
        section[baseline] |= {
            f"{name}_gaps": stage_gaps(tables[baseline], kind, stages, resamples, seed)
            for name, kind in (("avoidable", "avoidable"), ("perfect", "gain"))
        }
    return section


def stage_gaps(
    table: Mapping[str, np.ndarray], kind: str, stages: list[str], resamples: int, seed: int
) -> dict[str, dict[str, Any]]:
    """{stage: {other: the stage's column of this kind less the other's, with its paired interval}}"""
    pairs = list(permutations(stages, 2))
    gaps = {f"{one} - {other}": table[f"{kind} {one}"] - table[f"{kind} {other}"] for one, other in pairs}
    if not gaps:
        return {}
    row = ratio_intervals({"": gaps}, {name: (name, None) for name in gaps}, "", resamples, seed)[""]
    found: dict[str, dict[str, Any]] = {stage: {} for stage in stages}
    for one, other in pairs:
        found[one][other] = _interval(row[f"{one} - {other}"])
    return found


MEANS = ("lost ", "dropped ", "avoidable ", "best", "known best", "shown", "revenue")
GAINS = ("gain ",)


def _interval(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: entry[key] for key in ("value", "low", "high")}
