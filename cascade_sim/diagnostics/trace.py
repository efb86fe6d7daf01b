"""Why did this ad not win? One request of a finished run, decided again and explained.

The page comes from `cascade.serve` on the whole block the request arrived in, so it is the logged one to
the bit. So do the answers to "what if": a stage is asked about an ad that never reached it by serving
again with that ad in place of the last one that did, and a bid by serving again with that bid.
Everything but the ad's own bid stays as it was, also what models see.

`min_bids` is the minimum init-bid that would have changed each decision. More bid never hurts: the score of
an ad is its bid times what does not depend on it, and reserves only admit more. So whether an ad passes is a
step in its bid, and the step can be searched to the micro-unit.

`trace` gives plain data, `trace_text` the same for people: aligned columns, and a sentence for what decided.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cascade_sim.auction import MICROS
from cascade_sim.cascade.randomisation import reserve_of
from cascade_sim.cascade.retrievers.learned import LearnedRetrieval
from cascade_sim.cascade.retrievers.routes import looks_at_bids
from cascade_sim.cascade.retrievers.similarity import Retrieval
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, retrieve, retriever_of, score, serve
from cascade_sim.diagnostics.reopen import ReopenedRun
from cascade_sim.environments.arrivals import FIRST_REQUEST
from cascade_sim.environments.names import Names
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import in_line
from cascade_sim.storage.tables import iterate_table, tables
from cascade_sim.study.simulation import Simulation

PHASE = "evaluate"


MOST = 10**10 * MICROS  # beyond any bid a scenario can hold; money still fits its integers


@dataclass(frozen=True)
class Request:
    """A request in the block it arrived in."""

    block: Block
    row: int
    index: int  # within its phase

    @property
    def id(self) -> int:
        return int(self.block.requests[self.row])

    @property
    def alone(self) -> Block:
        """For measures of the truth, which do not depend on who is served together."""
        return self.block.take(slice(self.row, self.row + 1))


def trace(
    run: ReopenedRun, request_id: int | str, ad: int | str | None = None, arm_name: str | None = None
) -> dict[str, Any]:
    """Everything about one request, as plain data; with `ad`, also that ad's way and the bid it needed.

    Of an imported log, request and ad may be given by the names that they have in the log.
    """
    sim, arm = run.sim, run.arm(arm_name)
    if ad is not None:
        ad = ad_number(sim, ad)
    request = find_request(sim, request_number(sim, request_id))
    there = sim.environment.corpus(request.alone)
    if ad is not None and ad not in there:
        raise UserError(f"--ad: {sim.environment.absent(ad, request_id, len(there))}")
    decision = serve(request.block, arm, sim.platform)
    row = request.row
    sizes = [int((ids[row] >= 0).sum()) for ids in decision.sets]
    page = [
        {**place, **_brought_by(sim, request, arm, place["ad"])}
        for place in page_rows(sim, request, decision)
    ]
    answer: dict[str, Any] = {
        "run": str(run.path),
        "arm": arm.name,
        "request": request.id,
        "index": request.index,
        "user": int(request.block.users[row]),
        "context": float(request.block.context[row]),
        "time": float(request.block.times[row]),
        "funnel": dict(zip(("corpus", *arm.set_names), (len(there), *sizes), strict=True)),
        "win_set": [place for place in page if place["slot"] is not None],
        "true_best": true_best(sim, request, arm, decision),
        "runner_up": next((place for place in page if place["slot"] is None), None),
    }
    logged = logged_page(run, arm, request)
    answer |= {"same_as_log": None} if logged is None else _compared(logged, decision, request.row)
    if ad is not None:
        answer["ad"] = explain_ad(sim, request, arm, decision, ad)
    if sim.environment.names.are_given:
        answer["names"] = _names(sim.environment.names, request, answer)
    return answer


def ad_number(sim: Simulation, ad: int | str) -> int:
    """The number of an ad, given by it or, of an imported log, by its name; UserError if unknown."""
    return sim.environment.names.code("ads", ad, "--ad", sim.world.n_ads)


def ad_name(sim: Simulation, ad: int) -> str:
    """What an ad is called: its number or, of an imported log, its name in the log."""
    return sim.environment.names.name("ads", ad)


def request_number(sim: Simulation, request: int | str) -> int:
    """The id or number of a request that is given by it or, of an imported log, by its name."""
    return sim.environment.names.request(request, "--request")


def _names(names: Names, request: Request, answer: dict[str, Any]) -> dict[str, Any]:
    """What the request, its user and the ads that are spoken of are called in the log."""
    page = [*answer["win_set"], answer["runner_up"], answer.get("ad")]
    spoken = [place for place in page if place is not None]
    ads = {place["ad"] for place in (*spoken, *answer.get("logged_page", ()))}
    return {
        "request": names.request_name(request.id),
        "user": names.name("users", answer["user"]),
        "ads": {str(ad): names.name("ads", ad) for ad in sorted(ads)},
        "advertisers": {
            str(place["advertiser"]): names.name("advertisers", place["advertiser"]) for place in spoken
        },
    }


def find_request(sim: Simulation, request_id: int) -> Request:
    """The request by its id in the logs or its number within the phase; UserError if there is none.

    All arrivals since the beginning pass by once more, unserved, so that its time is the logged one.
    """
    n, first = sim.scenario.phases.evaluate, FIRST_REQUEST[PHASE]
    index = request_id - first if request_id >= first else request_id
    if not 0 <= index < n:
        raise UserError(
            f"--request: no request {request_id} in the {PHASE} phase; "
            f"expected {first} to {first + n - 1}, or its number from 0 to {n - 1}"
        )
    block = sim.environment.block_of(index)
    return Request(block, int(first + index - block.requests[0]), index)


def page_rows(sim: Simulation, request: Request, decision: Decision) -> list[dict[str, Any]]:
    """The win set in slot order and then the runner-up, who has slot None; empty places are left out."""
    block, row = request.block, request.row
    result = sim.environment.outcome(block, decision, sim.environment.charging or "click")
    true_ctr = sim.environment.ctr(block, decision.ranked_set)[row]
    places = []
    for place, ad in enumerate(decision.ranked_set[row].tolist()):
        if ad < 0:
            continue
        is_shown = place < decision.win_set.shape[1]
        bid, quality = float(decision.ranked_bid[row, place]), float(decision.ranked_quality[row, place])
        places.append(
            {
                "slot": place + 1 if is_shown else None,
                "ad": ad,
                "advertiser": int(sim.world.advertiser[ad]),
                "init_bid": float(sim.world.init_bid[ad]),
                "bid": bid,
                "pctr": float(decision.ranked_pctr[row, place]),
                "true_ctr": float(true_ctr[place]),
                "score": bid * quality,
                "cpc_micros": int(decision.cpc_micros[row, place]) if is_shown else None,
                "clicked": bool(result.clicks[row, place]) if is_shown else None,
            }
        )
    return places


def true_best(sim: Simulation, request: Request, arm: Arm, decision: Decision) -> list[dict[str, Any]]:
    """The ads an oracle cascade would show, best first, and the stage that dropped each; None: shown.

    A log does not have them.
    """
    if not sim.environment.has("truth"):
        return []
    values = _true_values(sim, arm, request.alone)
    best = np.lexsort((np.arange(len(values)), -values))[: arm.slots]
    stages = dict(zip(arm.stage_names, (ids[request.row] for ids in decision.sets), strict=True))
    return [
        {
            "ad": ad,
            "true_value": float(values[ad]),
            "dropped_by": next((name for name, passed in stages.items() if ad not in passed), None),
        }
        for ad in best.tolist()
        if values[ad] > 0
    ]


def logged_page(run: ReopenedRun, arm: Arm, request: Request) -> dict[int, tuple[int, int]] | None:
    """{slot: (ad, price in micro-units, -1 unknown)} as it was logged for the arm; None without a log.

    An imported log has pages of the deployed arm alone.
    """
    kept = run.sim.environment.logged_page(request.alone)
    if kept is not None:
        return kept if arm.name == run.scenario.report.baseline else None
    name = f"{PHASE}-{arm.name}"
    if name not in tables(run.path):
        return None
    logged: dict[int, tuple[int, int]] = {}
    for rows in iterate_table(run.path, name, ["request", "slot", "ad", "cpc_micros"]):
        ours = rows["request"] == request.id
        found = zip(*(rows[c][ours].tolist() for c in ("slot", "ad", "cpc_micros")), strict=True)
        logged |= {slot: (ad, cpc) for slot, ad, cpc in found}
        if len(rows["request"]) and rows["request"][-1] > request.id:
            break
    return logged


def _compared(logged: dict[int, tuple[int, int]], decision: Decision, row: int) -> dict[str, Any]:
    """Whether the page and, if not, whether at least its ads are as logged; then also the logged page."""
    ads, cpc = decision.win_set[row].tolist(), decision.cpc_micros[row].tolist()
    shown = {slot: (ad, cpc[slot]) for slot, ad in enumerate(ads) if ad >= 0}
    is_same_ads = {s: ad for s, (ad, _) in shown.items()} == {s: ad for s, (ad, _) in logged.items()}
    if is_same_ads and all(price in (-1, shown[slot][1]) for slot, (_, price) in logged.items()):
        return {"same_as_log": True}
    page = [
        {"slot": slot + 1, "ad": ad, "cpc_micros": None if price < 0 else price}
        for slot, (ad, price) in sorted(logged.items())
    ]
    return {"same_as_log": False, "same_ads_as_log": is_same_ads, "logged_page": page}


def difference_words(answer: dict[str, Any]) -> str:
    """How the page differs from the logged one, slot by slot; empty where it does not."""
    if answer["same_as_log"] is not False:
        return ""
    names = answer.get("names", {}).get("ads", {})
    here = {place["slot"]: place for place in answer["win_set"]}
    logged = {place["slot"]: place for place in answer["logged_page"]}

    def words(place: dict[str, Any] | None) -> str:
        if place is None:
            return "empty"
        price = "" if place["cpc_micros"] is None else f" at {place['cpc_micros'] / MICROS:.6f}"
        ad = in_line(names.get(str(place["ad"]), place["ad"]))
        return price.removeprefix(" at ") if answer["same_ads_as_log"] else f"ad {ad}{price}"

    parts = []
    for slot in sorted({*here, *logged}):
        pair = (here.get(slot), logged.get(slot))
        known = [place and (place["ad"], place["cpc_micros"]) for place in pair]
        is_open = pair[1] is not None and pair[1]["cpc_micros"] is None
        if known[0] != known[1] and not (is_open and answer["same_ads_as_log"]):
            parts.append(f"slot {slot}: {words(pair[1])} logged, {words(pair[0])} here")
    what = "same ads, other prices" if answer["same_ads_as_log"] else "another page"
    return f"{what} than logged ({'; '.join(parts)})"


def _true_values(sim: Simulation, arm: Arm, alone: Block) -> np.ndarray:
    """What every ad of the corpus is truly worth to this request; 0 if it cannot be shown.  [A]"""
    corpus = np.arange(sim.world.n_ads, dtype=np.int32)[None, :]
    values = np.maximum(sim.environment.true_value(alone, corpus, arm)[0], 0.0)
    lives = sim.world.lives
    return values if lives is None else np.where(lives.is_available(corpus[0], alone.times), values, 0.0)


def _retrieval_row(
    sim: Simulation, request: Request, arm: Arm, found: np.ndarray, ad: int
) -> tuple[dict[str, Any], np.ndarray]:
    """Rank of the ad in retrieval, and the ads `found` best first; of a log, all that were logged."""
    there = sim.environment.corpus(request.alone)
    if not sim.environment.has("corpus"):  # no score is known; it is a candidate: retrieval brought it
        return logged_row(there, ad), there
    score = retriever_of(arm, sim.platform).score(request.alone, there[None, :])[0]
    found = found[found >= 0]
    row = stage_row(arm.retrieval.name, score, there, ad, len(found))
    # Whom a retriever brings is its own affair: not always the best by its score, nor of several the best.
    is_in = np.isin(there, found)
    row["passed"], row["first_out"] = ad in found, None if is_in.all() else float(score[~is_in].max())
    row["last_in"] = float(score[is_in].min()) if is_in.any() else None
    return {**row, **_brought_by(sim, request, arm, ad)}, there[is_in][
        np.argsort(-score[is_in], kind="stable")
    ]


def _brought_by(sim: Simulation, request: Request, arm: Arm, ad: int) -> dict[str, list[str]]:
    """Which routes brought an ad, where an arm has several."""
    found = sim.brought_by(request.alone, arm, np.array([[ad]]))
    return {"brought_by": [name for name, is_in in found.items() if is_in[0, 0]]} if found else {}


def explain_ad(sim: Simulation, request: Request, arm: Arm, decision: Decision, ad: int) -> dict[str, Any]:
    """An ad's rank, score and cut-off at each stage, where it was dropped, and the bids that change it."""
    row, platform, block = request.row, sim.platform, request.block
    retrieved, nearest = _retrieval_row(sim, request, arm, decision.retrieved[row], ad)
    stages, given = [retrieved], [_with_ad(decision.retrieved, row, nearest, ad)]
    for at, stage in enumerate(arm.stages[:-1]):
        asked = serve(block, from_stage(arm, at, given[-1]), platform)
        ids, scores = asked.retrieved[row], asked.passes[0].order[row].astype(np.float64)
        size = stage.size if stage.size_rule is None else int(asked.passes[1].counts[row])
        assert size is not None
        stages.append(stage_row(stage.name, scores, ids, ad, size))
        best = ids[np.lexsort((ids, -scores))][:size]
        given.append(_with_ad(asked.passes[1].ids, row, best, ad))
    stages.append(_ranking_row(request, arm, platform, given[-1], ad))
    dropped_at = next((at for at, stage in enumerate(stages) if not stage["passed"]), len(stages))
    for at, one in enumerate(stages):
        one["reached"] = at <= dropped_at
    return {
        "ad": ad,
        "advertiser": int(sim.world.advertiser[ad]),
        "init_bid": float(sim.world.init_bid[ad]),
        "dropped_by": stages[dropped_at]["stage"] if dropped_at < len(stages) else None,
        "stages": stages,
        **_true_worth(sim, request, arm, ad),
        "bids": min_bids(block, row, arm, platform, given, ad, stages),
    }


def _true_worth(sim: Simulation, request: Request, arm: Arm, ad: int) -> dict[str, Any]:
    """What an ad is truly worth to the request, and its rank by that; of a log, what the click model says."""
    own = np.array([[ad]], np.int32)
    true_ctr = float(sim.environment.ctr(request.alone, own)[0, 0])
    if not sim.environment.has("truth"):
        return {"true_ctr": true_ctr, "true_value": None, "true_rank": None}
    value = _true_values(sim, arm, request.alone)
    rank = 1 + int(np.sum(value > value[ad]) + np.sum(value[:ad] == value[ad]))
    return {"true_ctr": true_ctr, "true_value": float(value[ad]), "true_rank": rank}


def logged_row(there: np.ndarray, ad: int) -> dict[str, Any]:
    """The row of retrieval for a logged candidate: no score is known, and it passed."""
    unknown = dict.fromkeys(("rank", "score", "last_in", "first_out", "why"))
    return {"stage": "retrieval", "of": len(there), "passes": len(there), "passed": True, **unknown}


def stage_row(stage: str, scores: np.ndarray, ids: np.ndarray, ad: int, passes: int) -> dict[str, Any]:
    """Rank of an ad in a stage that passes on its best `passes`; ties go to the smaller id.

    last_in: the lowest score that passes; first_out: the highest that does not, None if all pass.
    """
    present = ids >= 0
    ids, scores = ids[present], scores[present]
    order = np.lexsort((ids, -scores))
    ranked, passes = scores[order], min(passes, len(ids))
    rank = int(np.flatnonzero(ids[order] == ad)[0])
    return {
        "stage": stage,
        "rank": rank + 1,
        "of": len(ids),
        "passes": passes,
        "score": float(ranked[rank]),
        "last_in": float(ranked[passes - 1]),
        "first_out": float(ranked[passes]) if passes < len(ids) else None,
        "passed": rank < passes,
        "why": None,
    }


def _with_ad(table: np.ndarray, row: int, best_first: np.ndarray, ad: int) -> np.ndarray:
    """The table of candidates with this ad in the row: in the place of the last one, if it is not there.

    best_first: the ads of the row in the stage's order. Rows ascend by ad id, padding at the end.
    """
    if ad in table[row]:
        return table
    kept = [*best_first[: table.shape[1] - 1].tolist(), ad]
    changed = table.copy()
    changed[row] = -1
    changed[row, : len(kept)] = sorted(kept)
    return changed


def _ranking_row(request: Request, arm: Arm, platform: Platform, ids: np.ndarray, ad: int) -> dict[str, Any]:
    """Rank of an ad in the auction among these candidates.

    A page with as many slots as candidates shows the whole order; ads that may not take part are not in it.
    """
    row, c = request.row, ids.shape[1]
    everyone = replace(platform, slot_effects=np.ones(c))
    alone = from_stage(arm, len(arm.stages) - 1, ids)
    long_page = replace(alone, slots=c, pricing="first", parameters={})
    block = request.block
    if block.parameters is not None:  # a page as long as that has all its slots
        block = replace(block, parameters=replace(block.parameters, slots=None))
    decision = serve(block, long_page, everyone)
    order = decision.ranked_set[row]
    scores = (decision.ranked_bid * decision.ranked_quality)[row]
    own = score(request.block, ids, arm.last, arm, platform)
    column = int(np.flatnonzero(ids[row] == ad)[0])
    bid, pctr, worth = (float(a[row, column]) for a in (own.bid, own.prediction, own.score))
    n_candidates, n = int((ids[row] >= 0).sum()), int((order >= 0).sum())
    if ad in order:
        place = stage_row("ranking", scores, order, ad, arm.slots)
        return {**place, "of": n_candidates, "bid": bid, "pctr": pctr}
    return {
        "stage": "ranking",
        "rank": None,
        "of": n_candidates,
        "passes": min(arm.slots, n),
        "score": worth,
        "last_in": float(scores[min(arm.slots, n) - 1]) if n else None,
        "first_out": float(scores[arm.slots]) if n > arm.slots else None,
        "passed": False,
        "why": _why_barred(request, arm, bid, worth),
        "bid": bid,
        "pctr": pctr,
    }


def _why_barred(request: Request, arm: Arm, bid: float, worth: float) -> str:
    reserve = float(np.broadcast_to(reserve_of(request.block, arm), len(request.block))[request.row])
    if worth == 0.0:
        return "its score is 0"
    if bid < reserve:
        return f"its bid {bid:.6f} is below reserve_cpc {reserve:g}"
    return f"its score {worth:.6g} is below score_floor {arm.score_floor:g}"


def from_stage(arm: Arm, at: int, ids: np.ndarray) -> Arm:
    """The scoring stages of an arm from one on, with these candidates, whatever is asked for.  ids [R, n]"""
    return replace(arm, stages=arm.stages[at:]).among(FixedSets(ids))


@dataclass(frozen=True, eq=False)
class FixedSets:
    """Retrieval of one block whose candidates are given, as they are."""

    ids: np.ndarray
    name: str = "given"

    def retrieve(self, block: Block, size: int, lives: Any) -> np.ndarray:
        return self.ids

    def score(self, block: Block, ids: np.ndarray) -> np.ndarray:
        raise UserError("the candidates are given, and no retrieval has scored them")


def min_bids(
    block: Block,
    row: int,
    arm: Arm,
    platform: Platform,
    given: list[np.ndarray],
    ad: int,
    stages: list[dict[str, Any]],
) -> dict[str, Any]:
    """What the ad would have had to bid, all else equal: for each scoring stage alone, and for all.

    given [stage][R, n] hold the ad in this row of the block, if need be put there.
    """

    def decide(bid_micros: int, used: Arm) -> Decision:
        changed = replace(platform, bids=platform.bids.with_bid(ad, bid_micros / MICROS))
        return serve(block, used, changed)

    def min_to_pass(at: int) -> int | None:
        alone = from_stage(arm, at, given[at])
        return min_passing_bid(lambda bid: ad in decide(bid, alone).sets[1][row], _guess(now, stages[at + 1]))

    def wins_cascade(bid: int) -> bool:
        return ad in decide(bid, arm).win_set[row]

    def is_retrieved(bid_micros: int) -> bool:
        changed = replace(platform, bids=platform.bids.with_bid(ad, bid_micros / MICROS))
        return ad in retrieve(block.take(slice(row, row + 1)), arm, changed)[0]

    now = float(platform.bids.init_bid[ad])
    to_pass = [min_to_pass(at) for at in range(len(arm.stages))]
    names = (*(stage.name for stage in arm.stages[:-1]), "auction", "cascade")
    if looks_at_bids(arm.retrieval.retriever):
        names = (arm.retrieval.name, *names)
        to_pass.insert(0, min_passing_bid(is_retrieved, round(now * MICROS)))
    both = min_passing_bid(wins_cascade, max(bid or 1 for bid in to_pass))
    needed: dict[str, Any] = {
        name: None if bid is None else bid / MICROS for name, bid in zip(names, (*to_pass, both), strict=True)
    }
    needed["why_none"] = None if both is not None else _why_none(arm, stages, to_pass)
    if both is not None:
        page = decide(both, arm)
        slot = int(np.flatnonzero(page.win_set[row] == ad)[0])
        needed["slot"], needed["cpc_micros"] = slot + 1, int(page.cpc_micros[row, slot])
        needed["bid"] = float(page.ranked_bid[row, slot])
    return needed


def min_passing_bid(passes: Callable[[int], bool], guess: int) -> int | None:
    """The least bid in micro-units, 1 to MOST, that passes; None if not even MOST does.

    `passes` must be a step: false below some bid, true from there on. A good guess saves most of the calls.
    """
    if not passes(MOST):
        return None
    low, high = 0, MOST  # low does not pass (a bid of 0 is no bid), high does
    probe, step = min(max(guess, 1), MOST - 1), 1
    while high - low > 1:
        if passes(probe):
            high, probe = probe, probe - step
        else:
            low, probe = probe, probe + step
        # Wider and wider steps away from the guess; halving once they leave what is still open.
        step *= 4
        if not low < probe < high:
            probe = (low + high) // 2
    return high


def _guess(now: float, stage: dict[str, Any]) -> int:
    """Scores are in proportion to the bid, so this is the step but for rounding, ties and reserves."""
    line = stage["first_out"] if stage["passed"] else stage["last_in"]
    if not stage["score"] or line is None:
        return 1
    return int(min(np.ceil(now * line / stage["score"] * MICROS), MOST))


def _why_none(arm: Arm, stages: list[dict[str, Any]], to_pass: list[int | None]) -> str:
    if not stages[0]["passed"]:
        if looks_at_bids(arm.retrieval.retriever):
            if to_pass[0] is None:
                return "retrieval does not return it at any bid"
        elif isinstance(arm.retrieval.retriever, Retrieval | LearnedRetrieval):
            return "retrieval did not return it, and retrieval does not look at bids"
        else:
            return "retrieval did not return it, and no retriever is built again for another bid"
    for stage, row, bid in zip(arm.stages, stages[1:], to_pass[-len(arm.stages) :], strict=True):
        name = stage.name.replace("_", "-")
        if bid is None and stage.bid == "none" and stage is not arm.last:
            return f"{name} dropped it, and {name} does not look at bids in this arm"
        if bid is None:
            return f"its {name} score is {row['score']:g} and does not grow with the bid"
    return "no bid passes both stages" if len(arm.stages) == 2 else "no bid passes all stages"


def said(stage: str) -> str:
    """A stage as people write it."""
    return stage.replace("_", "-")


def _funnel(sizes: dict[str, int]) -> Iterator[str]:
    """How many ads were left after each stage: `600 ads`, `60 retrieved`, ..., `15 ranked`, `3 shown`."""
    words = {"corpus": "ads", "competitive_set": "ranked", "win_set": "shown"}
    for at, (name, size) in enumerate(sizes.items()):
        word = "retrieved" if at == 1 else words.get(name, f"in {said(name.removesuffix('_set'))}")
        yield f"{size:,} {word}"


def trace_text(answer: dict[str, Any]) -> str:
    """The whole trace; ends with a newline."""
    funnel = answer["funnel"]
    names = answer.get("names")
    if names is not None:
        answer = _named(answer, names)
        funnel = answer["funnel"]
    of = "evaluation" if names is None else "log"
    lines = [
        f"request {answer['request']} (number {answer['index']} of the {of}), arm {answer['arm']}",
        f"user {answer['user']}   context {answer['context']:+.3f}   time {answer['time']:,.3f} s",
        f"funnel  {' -> '.join(_funnel(funnel))}",
        "",
        *_page(answer),
    ]
    if answer["same_as_log"] is None:
        lines.append("The run keeps no log of this arm to compare with.")
    if "ad" in answer:
        lines += ["", *_ad(answer["ad"], answer)]
    return "\n".join(lines) + "\n"


def ad_verdict(answer: dict[str, Any]) -> str:
    """What became of the ad that was asked about, in a sentence; empty if none was."""
    if "ad" not in answer:
        return ""
    named = answer if answer.get("names") is None else _named(answer, answer["names"])
    said = _verdict(named["ad"], named)
    return f"{said[:1].upper()}{said[1:]}."


def _named(answer: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """The answer with the names of the log in place of numbers."""

    def place(one: dict[str, Any] | None) -> dict[str, Any] | None:
        if one is None:
            return None
        ad, advertiser = names["ads"][str(one["ad"])], names["advertisers"][str(one["advertiser"])]
        return {**one, "ad": in_line(ad), "advertiser": in_line(advertiser)}

    named = {
        **answer,
        "request": in_line(names["request"]),
        "user": in_line(names["user"] or "unknown"),
        "win_set": [place(one) for one in answer["win_set"]],
        "runner_up": place(answer["runner_up"]),
    }
    return {**named, "ad": place(answer["ad"])} if "ad" in answer else named


def _page(answer: dict[str, Any]) -> list[str]:
    if not answer["win_set"]:
        return ["the page is empty: no candidate may take part in the auction"]
    is_log = "names" in answer
    ctr = "model CTR" if is_log else "true CTR"
    head = ("slot", "ad", "advertiser", "init-bid", "bid", "pCTR", ctr, "score", "CPC", "clicked")
    rows = []
    for place in [*answer["win_set"], answer["runner_up"]]:
        if place is None:
            continue
        is_shown = place["slot"] is not None
        rows.append(
            (
                str(place["slot"]) if is_shown else "next",
                str(place["ad"]),
                str(place["advertiser"]),
                f"{place['init_bid']:.4f}",
                f"{place['bid']:.4f}",
                f"{place['pctr']:.5f}",
                f"{place['true_ctr']:.5f}",
                f"{place['score']:.6f}",
                f"{place['cpc_micros'] / MICROS:.6f}" if is_shown else "-",
                ("yes" if place["clicked"] else "no") if is_shown else "-",
            )
        )
    best = []
    for ad in answer["true_best"]:
        fate = f"dropped by {said(ad['dropped_by'])}" if ad["dropped_by"] else "shown"
        best.append(f"{ad['ad']} ({fate})")
    return [
        *table(head, rows),
        *_routes(answer),
        "score = bid x quality (the pCTR, unless a fusion or squashing says otherwise); next: the runner-up",
        *([] if is_log else [f"best by true value: {', '.join(best)}"]),
    ]


def _routes(answer: dict[str, Any]) -> list[str]:
    places = [place for place in answer["win_set"] if "brought_by" in place]
    brought = ", ".join(f"{place['ad']} ({' and '.join(place['brought_by'])})" for place in places)
    return [f"brought by: {brought}"] if brought else []


def _ad(ad: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    head = ("stage", "rank", "of", "pass", "score", "last in", "first out", "result")
    rows = []
    for stage in ad["stages"]:
        passed = stage["passed"]
        result = ("passed" if passed else "dropped") if stage["reached"] else "not reached; it would "
        result += "" if stage["reached"] else "have passed" if passed else "have been dropped"
        rows.append(
            (
                said(stage["stage"]),
                "-" if stage["rank"] is None else str(stage["rank"]),
                f"{stage['of']:,}",
                f"{stage['passes']:,}",
                _score(stage["score"]),
                _score(stage["last_in"]),
                _score(stage["first_out"]),
                result,
            )
        )
    bar = [f"It may not take part in the auction: {s['why']}." for s in ad["stages"] if s["why"]]
    routes = ad["stages"][0].get("brought_by")
    if routes is not None:
        bar.insert(0, f"Brought by {' and '.join(routes) or 'no route'}.")
    if ad["true_value"] is None:
        value = f"Click model: CTR {ad['true_ctr']:.5f} in the first slot."
    else:
        value = (
            f"Truth: CTR {ad['true_ctr']:.5f}, worth {1000 * ad['true_value']:.3f} eCPM: "
            f"rank {ad['true_rank']:,} of {answer['funnel']['corpus']:,} by true value."
        )
    return [_verdict(ad, answer), "", *table(head, rows), *bar, value, "", *_bids(ad)]


def _verdict(ad: dict[str, Any], answer: dict[str, Any]) -> str:
    who = f"ad {ad['ad']} of advertiser {ad['advertiser']}"
    place = next((p for p in answer["win_set"] if p["ad"] == ad["ad"]), None)
    if place is not None:
        return f"{who} won slot {place['slot']} at a CPC of {place['cpc_micros'] / MICROS:.6f}"
    return f"{who} was dropped by {said(ad['dropped_by'])}"


def _bids(ad: dict[str, Any]) -> list[str]:
    bids, now = ad["bids"], ad["init_bid"]
    rows = [("bid now", f"{now:.6f}", "")]
    steps = [stage["stage"] for stage in ad["stages"][:-1] if stage["stage"] in bids]
    labels = {
        **{step: f"to pass {said(step)}" for step in steps},
        "auction": "to win the auction",
        "cascade": "to win both" if len(steps) == 1 else "to win all",
    }
    for key, label in labels.items():
        bid = bids[key]
        if bid is None:
            rows.append((label, "no bid", ""))
        elif bid * MICROS < 1.5:
            rows.append((label, "any bid", ""))
        else:
            rows.append((label, f"{bid:.6f}", f"x {bid / now:.3f}" if now > 0 else ""))
    lines = table(("least init-bid", "", "of now"), rows)
    if bids["why_none"]:
        return [*lines, f"No bid wins a slot: {bids['why_none']}."]
    lines.append(
        f"At {bids['cascade']:.6f} it enters the auction with a bid of {bids['bid']:.6f} and wins slot "
        f"{bids['slot']} at a CPC of {bids['cpc_micros'] / MICROS:.6f}."
    )
    dearest = max(steps, key=lambda step: float(bids[step]))
    gap = bids[dearest] - bids["auction"]
    if gap > 0 and bids[dearest] > now:
        lines.append(
            f"{said(dearest).capitalize()} asks {gap:.6f} more than the auction: the ad is kept out by the "
            "stage that selects, not by the rivals it would have to outbid."
        )
    return lines


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their longest entry: the first and the last to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [
            cell.ljust(width) if i in (0, len(head) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
