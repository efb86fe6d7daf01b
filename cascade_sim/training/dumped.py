"""What the server dumps with a request: the deployed model's scores and the labels of the whole page.

A market's log has a row per shown ad with the prediction of the ranking model that was deployed then
(`prediction`, `model_version`), its click and when the click arrived. Read back as lists, every sample has
the scores and labels of its whole page as context, so a pair loss needs no list in the batch and samples
may be shuffled freely:

    dump = dumped_context(columns, now)
    rows = shuffled[:batch]
    self_boosted_pair(scores_of(rows), labels[rows], dump.lists, dumped_scores=dump.scores,
                      dumped_labels=dump.labels, request=dump.list_of[rows])
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

DUMPED = ("request", "prediction", "click", "click_time", "model_version", "is_explored", "answered_by")
LEAST, MOST = 2.0**-60, 1.0 - 2.0**-24  # a probability of 0 or 1 has no logit


@dataclass(frozen=True)
class Dump:
    """N samples of L lists, in the order of the log. List l is lists[l]:lists[l + 1]."""

    scores: np.ndarray  # [N] float64: logit of the deployed model's prediction
    labels: np.ndarray  # [N] float32: clicks that had arrived
    lists: np.ndarray  # [L + 1] int64 offsets
    list_of: np.ndarray  # [N] int64: the list of each sample
    request: np.ndarray  # [L] int64
    model_version: np.ndarray  # [L] int32: which deployment the scores are of
    is_explored: np.ndarray  # [L] bool: shown at random; scored by the ranker all the same
    answered_by: np.ndarray  # [L] int8: 2 where the ranker decided (or explored), less where it had no time


def dumped_context(columns: Mapping[str, np.ndarray], now: float = np.inf) -> Dump:
    """The lists of a market's log (rows in request order) with what was known at time `now`.

    Pages that ranking had no time for (answered_by below 2) carry the prediction of pre-ranking, or 0 where
    nobody predicted one: leave them out where the ranker's own scores are meant. A prediction of 0 has the
    least score a logit can have here, log(2^-60).
    """
    request = np.asarray(columns["request"])
    starts = np.nonzero(np.r_[True, request[1:] != request[:-1]])[0] if len(request) else np.zeros(0, int)
    lists = np.append(starts, len(request)).astype(np.int64)
    p = np.clip(np.asarray(columns["prediction"], np.float64), LEAST, MOST)
    return Dump(
        scores=np.log(p) - np.log1p(-p),
        labels=arrived_clicks(columns, now),
        lists=lists,
        list_of=np.repeat(np.arange(len(starts)), np.diff(lists)),
        request=request[starts],
        model_version=np.asarray(columns["model_version"])[starts],
        is_explored=np.asarray(columns["is_explored"])[starts],
        answered_by=np.asarray(columns["answered_by"])[starts],
    )


def arrived_clicks(columns: Mapping[str, np.ndarray], now: float) -> np.ndarray:
    """1 for a click that has reached the platform by `now`, else 0.  [N] float32"""
    return (columns["click"] & (columns["click_time"] <= now)).astype(np.float32)
