"""Samples for the training recipes: logged clicks, a teacher's lists, and what a market's server dumped.

A market's log has a row per shown ad with the prediction of the ranking model that was deployed then
(`prediction`, `model_version`), its click and when the click arrived; and, where a calibrator made the
prediction of the model's own log-odds, or another model's scores are dumped, those (`raw_score`). Read back
as lists, every sample has the scores and labels of its whole page as context, so a pair loss needs no list in
the batch and samples may be shuffled freely:

    dump = dumped_context(columns, stages, now)
    rows = shuffled[:batch]
    self_boosted_pair(scores_of(rows), labels[rows], dump.lists, dumped_scores=dump.scores,
                      dumped_labels=dump.labels, request=dump.list_of[rows])
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cascade_sim.analysis.metrics.consistency import membership
from cascade_sim.cascade.corpus_sample import uniform_ads
from cascade_sim.cascade.scorers import Scorer
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, score
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.kernels import select_top
from cascade_sim.foundation.limits import MAX_LEARNED
from cascade_sim.models.delays import correct_delays
from cascade_sim.models.page_training import ClickedPages, dumped_scores, make_pages, page_offsets
from cascade_sim.models.training import Impressions, Lists, Positives, chunk_of_order
from cascade_sim.scenario.models import ModelSpec
from cascade_sim.scenario.teaching import Learner
from cascade_sim.storage.tables import Columns, iterate_table, read_table, table_rows

SMALLEST = np.float64(np.finfo(np.float32).tiny)  # of a fused score whose logarithm is learned
COLUMNS = ["user", "context", "ad", "examination", "click"]
CLICKED_COLUMNS = ["user", "context", "ad", "click", "conversion"]
PAGE_COLUMNS = ["request", "pctr"]
POSITIVE_COLUMNS = ["request", "user", "context", "ad", "click", "is_explored"]
# Of a market's log, for `dumped_context`; and `raw_score`, where it is there.
DUMPED = ("request", "prediction", "click", "click_time", "model_version", "is_explored", "served_by_stage")


def impressions(logs: Path, phases: Iterable[str], seed: int = 0) -> Impressions:
    """The logged impressions of these phases, in the order of the log; of a long log a sample.

    For phases that had requests: one whose table is not there is a UserError, not a phase without clicks.
    """
    columns = _logged(logs, list(phases), COLUMNS, seed)
    if columns is None:
        nothing = np.zeros(0, np.float32)
        return Impressions(nothing.astype(np.int32), nothing, nothing.astype(np.int32), nothing, nothing)
    user, context, ad, examination, click = (columns[name] for name in COLUMNS)
    return Impressions(user, context, ad, examination, click.astype(np.float32))


def clicked(
    name: str, spec: ModelSpec, logs: Path, phases: Iterable[str], seed: int = 0, now: float | None = None
) -> Impressions:
    """The clicked impressions of these phases, for a model of conversions: `click` is a conversion seen.

    now: the moment up to which conversions have come; None where they come at once. `examination` is the
    chance that a conversion is seen by then, as the model's section wants it corrected. UserError where
    nothing can be learned from them.
    """
    names = [*CLICKED_COLUMNS, *(["time", "conversion_time"] if now is not None else [])]
    columns = _logged(logs, list(phases), names, seed)
    assert columns is not None
    columns = {key: values[columns["click"]] for key, values in columns.items()}
    label = columns["conversion"].astype(np.float32)
    keep, chance = np.ones(len(label), bool), np.ones(len(label), np.float32)
    if now is not None:
        age, delay = now - columns["time"], columns["conversion_time"] - columns["time"]
        try:
            keep, label, chance = correct_delays(delay, age, spec.delay_correction, spec.delay_window)
        except ValueError as error:
            raise UserError(f"model {name!r}: {error}; raise the requests of the phases") from error
    if not label[keep].any():
        raise UserError(
            f"model {name!r} has {keep.sum():,} clicks and no conversion to learn from; "
            "raise the requests of the phases"
        )
    user, context, ad = (columns[key][keep] for key in ("user", "context", "ad"))
    return Impressions(user, context, ad, chance[keep], label[keep])


def positives(
    name: str,
    spec: ModelSpec,
    logs: Path,
    phases: Iterable[str],
    init_bid: np.ndarray,
    seed: int = 0,
) -> Positives:
    """The logged impressions that a model is to tell from others, of these phases.

    UserError where there are none.
    """
    columns = _logged(logs, list(phases), POSITIVE_COLUMNS, seed)
    assert columns is not None
    found = positives_of(columns, spec, init_bid)
    if not len(found.ads):
        which = spec.recipe_values["positives"]
        raise UserError(
            f"model {name!r} has {len(columns['ad']):,} impressions and none to learn from "
            f"as positives: {which}; raise the requests of the phases"
        )
    return found


def positives_of(columns: Mapping[str, np.ndarray], spec: ModelSpec, init_bid: np.ndarray) -> Positives:
    """The clicked impressions of a log or, by `positives: shown`, all that the cascade itself chose to show.

    A click on a page of exploration is a click; that dice showed an ad says nothing of it. init_bid [A].
    """
    is_clicked = spec.recipe_values["positives"] == "clicks"
    keep = columns["click"].astype(bool) if is_clicked else ~columns["is_explored"]
    user, context, ad, request = (columns[key][keep] for key in ("user", "context", "ad", "request"))
    return Positives(user, context, ad, request, np.log(init_bid).astype(np.float32))


def pages(logs: Path, phases: Iterable[str], seed: int = 0) -> ClickedPages:
    """The same impressions by request, with what the deployed ranker had said of them."""
    phases = list(phases)
    shown, columns = impressions(logs, phases, seed), _logged(logs, phases, PAGE_COLUMNS, seed)
    if columns is None:
        return make_pages(shown, np.zeros(0, np.int64), np.zeros(0, np.float32))
    return make_pages(shown, *(columns[name] for name in PAGE_COLUMNS))


def share_learned(n_rows: int) -> float:
    """The share of requests that is learned from when they have so many rows, at most `MAX_LEARNED`."""
    return min(1.0, MAX_LEARNED / max(n_rows, 1))


def is_learned(requests: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Which requests are in the sample, each by its own draw.  [R] bool"""
    return draws.uniform(seed, "learned from", requests) < share


def logged_rows(logs: Path, phases: Iterable[str]) -> int:
    """Impressions in the log of these phases."""
    return sum(table_rows(logs, phase) for phase in phases)


def _logged(logs: Path, phases: list[str], names: list[str], seed: int) -> Columns | None:
    """Columns of the log of these phases; None without phases."""
    if not phases:
        return None
    share = share_learned(logged_rows(logs, phases))
    if share == 1:
        parts = [read_table(logs, phase, names) for phase in phases]
    else:
        parts = []
        for phase in phases:
            for batch in iterate_table(logs, phase, list(dict.fromkeys(["request", *names]))):
                rows = is_learned(batch["request"], share, seed)
                parts.append({name: batch[name][rows] for name in names})
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def split_pages(data: ClickedPages, share: float, seed: int) -> tuple[ClickedPages, ClickedPages]:
    """Pages to train on, and about this share of them, drawn by request, kept apart for a calibrator."""
    is_apart = draws.uniform(seed, "held out", data.request) < share
    return data.take(~is_apart), data.take(is_apart)


def sample_lists(
    spec: Learner,
    teacher: Scorer,
    block: Block,
    decision: Decision,
    arm: Arm,
    platform: Platform,
    seed: int,
) -> Lists:
    """A list per request for a student: a uniform sample of the set it names, scored by the teacher.

    The chunk labels follow the ranking stage's fused score (its pCTR and its opt-bid), which is the
    order the student of `ltr` has to learn. Requests with fewer candidates than the sample are left out.
    Where what was shown is a chunk of its own, all of it is in the sample, and so are the ranking stage's
    best of the whole set where the recipe is about them: a uniform sample would seldom hold any. Of the
    corpus these are the best of a larger draw (`sample.pool`), as no ranking stage looks at all of it.
    """
    pool = _set_of(spec, block, decision, arm, platform, seed)
    size = min(spec.sample.per_request, pool.shape[1])
    draw = draws.uniform(seed, "list sample", block.requests[:, None], pool)
    is_shown = np.zeros(pool.shape, bool)
    if spec.has_exposed_chunk:
        is_shown = membership(pool, decision.win_set)
        draw = draw - is_shown
    if spec.always_listed:
        whole = np.where(pool >= 0, score(block, pool, arm.last, arm, platform).score, -np.inf)
        best, _ = select_top(pool, whole.astype(np.float32), min(spec.always_listed, size))
        draw = draw - 2.0 * membership(pool, best)
    order = np.argsort(np.where(pool >= 0, draw, 2.0), axis=1, kind="stable")[:, :size]
    ads, is_shown = np.take_along_axis(pool, order, 1), np.take_along_axis(is_shown, order, 1)
    keep = (ads >= 0).all(axis=1)
    block, ads, is_shown = block.take(keep), ads[keep], is_shown[keep]
    logit = teacher.log_odds(block, ads)  # type: ignore[attr-defined]  # a teacher is a trained model
    fused = score(block, ads, arm.last, arm, platform).score
    best_first = np.lexsort((ads, -fused), axis=1)
    chunk = chunk_of_order(best_first, is_shown, spec.chunks, spec.chunking)
    log_bid = np.log(platform.bids.init_bid[ads]).astype(np.float32)
    log_score = np.log(np.maximum(fused, SMALLEST)).astype(np.float32)
    return Lists(block.users, block.context, ads, logit, log_bid, chunk, log_score)


def _set_of(
    spec: Learner, block: Block, decision: Decision, arm: Arm, platform: Platform, seed: int
) -> np.ndarray:
    """The ads that a list is drawn from.  [R, n], -1 = empty"""
    sample = spec.sample
    if sample.set == "retrieved":
        return decision.retrieved
    if sample.set != "corpus":
        return dict(zip(arm.set_names, decision.sets, strict=True))[f"{sample.set}_set"]
    n_ads = len(platform.bids.init_bid)
    n = min(sample.drawn if spec.always_listed else sample.per_request, n_ads)
    return uniform_ads(block.requests, n, n_ads, seed, "corpus sample", block.times, platform.lives)


def lists_for(
    students: Mapping[str, Learner],
    teachers: Mapping[str, Scorer],
    block: Block,
    decision: Decision,
    arm: Arm,
    platform: Platform,
    seed: int,
) -> dict[str, Lists]:
    """`sample_lists` for each student, from the teacher that its section names or else the arm's ranker."""

    def teacher_of(spec: Learner) -> Scorer:
        return arm.last.scorer if spec.teacher is None else teachers[spec.teacher]

    return {
        name: sample_lists(spec, teacher_of(spec), block, decision, arm, platform, seed)
        for name, spec in students.items()
    }


def join_lists(parts: list[Lists]) -> Lists:
    """One `Lists` of many, in order."""
    return Lists(**{key: np.concatenate([p.arrays()[key] for p in parts]) for key in parts[0].arrays()})


@dataclass(frozen=True)
class Dump:
    """N samples of L lists, in the order of the log. List l is lists[l]:lists[l + 1]."""

    scores: np.ndarray  # [N] float64: the deployed model's raw score, or the logit of its prediction
    labels: np.ndarray  # [N] float32: clicks that had arrived
    lists: np.ndarray  # [L + 1] int64 offsets
    list_of: np.ndarray  # [N] int64: the list of each sample
    request: np.ndarray  # [L] int64
    model_version: np.ndarray  # [L] int32: which deployment the scores are of
    is_explored: np.ndarray  # [L] bool: shown at random; scored by the ranker all the same
    served_by_stage: (
        np.ndarray
    )  # [L] str: the stage that decided, the last one where it had time (or explored)


def dumped_context(columns: Mapping[str, np.ndarray], stages: Sequence[str], now: float = np.inf) -> Dump:
    """The lists of a market's log (rows in request order) with what was known at time `now`.

    stages: names of the arm's stages, which the codes of `served_by_stage` stand for; of a stored log
    they are in `read_categories`. Pages that ranking had no time for (another stage served) carry the
    prediction of an earlier stage, or 0 where none was made: leave them out where the ranker's own scores are
    meant. A prediction of 0 has the least score a logit can have here, log(2^-60).
    """
    request = np.asarray(columns["request"])
    lists = page_offsets(request)
    starts = lists[:-1]
    return Dump(
        scores=dumped_scores(np.asarray(columns["prediction"]), columns.get("raw_score")),
        labels=arrived_clicks(columns, now),
        lists=lists,
        list_of=np.repeat(np.arange(len(starts)), np.diff(lists)),
        request=request[starts],
        model_version=np.asarray(columns["model_version"])[starts],
        is_explored=np.asarray(columns["is_explored"])[starts],
        served_by_stage=np.array(stages)[np.asarray(columns["served_by_stage"])[starts]],
    )


def arrived_clicks(columns: Mapping[str, np.ndarray], now: float) -> np.ndarray:
    """1 for a click that has reached the platform by `now`, else 0.  [N] float32"""
    return (columns["click"] & (columns["click_time"] <= now)).astype(np.float32)
