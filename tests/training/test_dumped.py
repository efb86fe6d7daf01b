"""The context that the server dumps with every request: the deployed scores and the labels of its page."""

import numpy as np
import pytest
import torch

from cascade_sim.models.losses import self_boosted_pair
from cascade_sim.training.data import dumped_context
from worlds.learning_market import learning_scenario, learning_sim, live_and_learn

STAGES = ("retrieval", "pre_ranking", "ranking")
LOG = {
    "request": np.array([7, 7, 7, 9, 12, 12]),
    "prediction": np.array([0.5, 0.2, 0.8, 0.1, 0.0, 1.0]),
    "click": np.array([True, False, False, True, True, False]),
    "click_time": np.array([3.0, np.inf, np.inf, 8.0, 5.0, np.inf]),
    "model_version": np.array([0, 0, 0, 1, 1, 1], np.int32),
    "is_explored": np.array([False, False, False, True, False, False]),
    "served_by_stage": np.array([2, 2, 2, 2, 1, 1], np.int8),
}


def test_every_page_is_a_list_with_its_scores_labels_and_version():
    dump = dumped_context(LOG, STAGES)
    assert dump.lists.tolist() == [0, 3, 4, 6] and dump.list_of.tolist() == [0, 0, 0, 1, 2, 2]
    assert dump.request.tolist() == [7, 9, 12] and dump.model_version.tolist() == [0, 1, 1]
    assert dump.scores[:4] == pytest.approx([0.0, np.log(0.2 / 0.8), np.log(0.8 / 0.2), np.log(0.1 / 0.9)])
    assert np.isfinite(dump.scores).all() and dump.scores[4] < -40 < 16 < dump.scores[5]
    assert dump.labels.tolist() == [1, 0, 0, 1, 1, 0]
    assert dump.is_explored.tolist() == [False, True, False]


def test_who_answered_is_told_by_name_whatever_the_number_of_stages():
    by_three = dumped_context(LOG, STAGES).served_by_stage
    assert by_three.tolist() == ["ranking", "ranking", "pre_ranking"]
    of_four = {**LOG, "served_by_stage": np.array([3, 3, 3, 2, 1, 1], np.int8)}
    by_four = dumped_context(of_four, ("retrieval", "coarse", "pre_ranking", "ranking")).served_by_stage
    assert by_four.tolist() == ["ranking", "pre_ranking", "coarse"]


def test_a_raw_score_is_dumped_in_place_of_the_prediction_where_there_is_one():
    raw = np.array([-1.5, 0.25, np.nan, 2.0, np.nan, -3.0], np.float32)
    scores = dumped_context({**LOG, "raw_score": raw}, STAGES).scores
    assert scores[[0, 1, 3, 5]].tolist() == [-1.5, 0.25, 2.0, -3.0]
    assert scores[[2, 4]] == pytest.approx(dumped_context(LOG, STAGES).scores[[2, 4]])


def test_only_clicks_that_have_arrived_are_known():
    assert dumped_context(LOG, STAGES, now=5.0).labels.tolist() == [1, 0, 0, 0, 1, 0]
    assert dumped_context(LOG, STAGES, now=2.9).labels.sum() == 0


def test_an_empty_log_has_no_lists():
    dump = dumped_context({name: column[:0] for name, column in LOG.items()}, STAGES)
    assert dump.lists.tolist() == [0] and len(dump.list_of) == len(dump.scores) == len(dump.request) == 0


def test_the_context_of_a_sample_is_the_page_that_was_served():
    found = live_and_learn(learning_sim(learning_scenario()))
    dump = dumped_context(found.log, STAGES)
    pages = {}
    for piece in found.settled:
        for i, request in enumerate(piece.block.requests):
            shown = piece.ads[i] >= 0
            pages[request] = (piece.prediction[i][shown], piece.clicks[i][shown], piece.model_version[i])
    assert len(dump.request) == sum(len(p) > 0 for p, _, _ in pages.values()) > 1000
    for sample in range(0, len(dump.scores), 97):
        own = dump.list_of[sample]
        page = slice(dump.lists[own], dump.lists[own + 1])
        prediction, clicks, version = pages[found.log["request"][sample]]
        assert page.start <= sample < page.stop
        assert 1 / (1 + np.exp(-dump.scores[page])) == pytest.approx(prediction, rel=1e-9)
        assert np.array_equal(dump.labels[page], clicks) and dump.model_version[own] == version


def test_shuffled_samples_find_their_context():
    """-log sigma(s - s_j) over the page's other labels, sample by sample, in any order."""
    found = live_and_learn(learning_sim(learning_scenario()))
    dump = dumped_context(found.log, STAGES, now=1000.0)
    rows = np.random.default_rng(1).permutation(len(dump.scores))[:200]
    scores = torch.from_numpy(np.random.default_rng(2).normal(size=len(rows)))
    values = self_boosted_pair(
        scores, torch.from_numpy(dump.labels[rows]), dump.lists, dumped_scores=torch.from_numpy(dump.scores),
        dumped_labels=torch.from_numpy(dump.labels), request=torch.from_numpy(dump.list_of[rows]),
        reduction="none",
    )  # fmt: skip
    for s, row, value in zip(scores.numpy(), rows, values.numpy(), strict=True):
        page = slice(dump.lists[dump.list_of[row]], dump.lists[dump.list_of[row] + 1])
        sign = np.sign(dump.labels[row] - dump.labels[page])
        expected = np.sum(np.abs(sign) * np.log1p(np.exp(-sign * (s - dump.scores[page]))))
        assert value == pytest.approx(expected, abs=1e-9)
    assert (values > 0).any()
