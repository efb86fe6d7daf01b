import numpy as np
import pytest

from answers.told import refused
from cascade_sim.analysis.metrics.attribution import SlotList, stage_losses, true_ecpm
from cascade_sim.analysis.metrics.consistency import membership

EFFECTS = [1.0, 0.5, 0.25]
STAGES = ("retrieval", "pre_ranking", "ranking")


def losses_of(best, *lists, masks):
    """Of three stages: what they hand on, and which winners the first two let through."""
    reached = (*masks, membership(best.ids, lists[-1].ids))
    by_stage = (dict(zip(STAGES, each, strict=True)) for each in (lists, reached))
    handed, passed = by_stage
    return stage_losses(handed, best, passed, EFFECTS)


def slots(ids, value):
    return SlotList(np.array(ids), np.array(value))


def test_true_ecpm_weighs_values_by_slot_and_skips_empty_slots():
    worth = true_ecpm(slots([[4, 9], [2, -1]], [[0.03, 0.02], [0.01, 7.0]]), EFFECTS)
    np.testing.assert_allclose(worth, [1000 * (1.0 * 0.03 + 0.5 * 0.02), 1000 * 0.01])


def test_missing_slot_effects_are_refused():
    with refused("1 slot effects", "2 slots", kind=ValueError):
        true_ecpm(slots([[1, 2]], [[0.1, 0.1]]), [1.0])


def test_each_stage_answers_for_the_value_and_the_winners_it_lost():
    losses = losses_of(
        slots([[1, 2, 3]], [[0.9, 0.8, 0.7]]),
        slots([[2, 3, 4]], [[0.8, 0.7, 0.6]]),
        slots([[3, 4, 5]], [[0.7, 0.6, 0.5]]),
        slots([[5, 4, 3]], [[0.5, 0.6, 0.7]]),
        masks=(np.array([[False, True, True]]), np.array([[False, False, True]])),
    )
    worth = [
        1000 * np.dot(EFFECTS, v)
        for v in ([0.9, 0.8, 0.7], [0.8, 0.7, 0.6], [0.7, 0.6, 0.5], [0.5, 0.6, 0.7])
    ]
    for i, stage in enumerate(STAGES):
        assert losses[stage]["lost"][0] == pytest.approx(worth[i] - worth[i + 1])
    assert [losses[stage]["dropped"][0] for stage in STAGES] == [1 / 3, 1 / 3, 0]


def test_a_winner_missing_early_is_not_blamed_on_a_later_stage():
    losses = losses_of(
        *[slots([[1, -1]], [[0.5, np.nan]])] * 3,
        slots([[-1, -1]], [[np.nan, np.nan]]),
        masks=(np.array([[False, False]]), np.array([[True, False]])),
    )
    assert [losses[stage]["dropped"][0] for stage in STAGES] == [1, 0, 0]
    assert losses["ranking"]["lost"][0] == 1000 * 0.5


def test_a_request_without_would_be_winners_loses_nothing_and_has_no_share():
    empty = slots([[-1, -1]], [[0.0, 0.0]])
    mask = np.zeros((1, 2), bool)
    losses = losses_of(empty, empty, empty, empty, masks=(mask, mask))
    assert all(losses[s]["lost"][0] == 0 and np.isnan(losses[s]["dropped"][0]) for s in STAGES)


def test_losses_telescope_and_shares_with_the_shown_sum_to_one():
    rng = np.random.default_rng(0)
    n_requests, n_ads, k = 200, 30, 3
    value = rng.random((n_requests, n_ads))
    inside = rng.random((n_requests, n_ads)) < 0.6
    deeper = inside & (rng.random((n_requests, n_ads)) < 0.6)

    def best(allowed, score):
        ids = np.argsort(np.where(allowed, -score, np.inf), axis=1)[:, :k]
        ids = np.where(np.take_along_axis(allowed, ids, 1), ids, -1)
        return SlotList(ids, np.take_along_axis(value, ids, 1))

    corpus = best(np.ones_like(inside), value)
    shown = best(deeper, value + rng.normal(0, 0.3, value.shape))
    losses = losses_of(
        corpus,
        best(inside, value),
        best(deeper, value),
        shown,
        masks=tuple(np.take_along_axis(allowed, corpus.ids, 1) for allowed in (inside, deeper)),
    )
    total = sum(losses[stage]["lost"] for stage in STAGES)
    np.testing.assert_allclose(total, true_ecpm(corpus, EFFECTS) - true_ecpm(shown, EFFECTS), atol=1e-9)
    share_shown = membership(corpus.ids, shown.ids).mean(1)
    np.testing.assert_allclose(sum(losses[stage]["dropped"] for stage in STAGES) + share_shown, 1)
    assert all((losses[stage]["lost"] >= -1e-9).all() and losses[stage]["lost"].max() > 0 for stage in STAGES)
