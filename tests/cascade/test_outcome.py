from types import SimpleNamespace

import numpy as np
import pytest

from cascade_sim.cascade.outcome import outcome
from cascade_sim.world.truth import GroundTruth
from worlds.tiny_market import make_block, part_of

K = 3
EFFECTS = np.array([1.0, 0.8, 0.5])


class FixedTruth(GroundTruth):
    """The same CTR and CVR for every ad that is shown."""

    def __init__(self, ctr, cvr):
        self._ctr, self._cvr = ctr, cvr

    def ctr(self, block, ids):
        return np.where(ids >= 0, self._ctr, 0.0)

    def cvr(self, block, ids):
        return np.where(ids >= 0, self._cvr, 0.0)


def page(win_set, cpc=1_500_000):
    win_set = np.asarray(win_set, np.int32)
    return SimpleNamespace(win_set=win_set, cpc_micros=np.full(win_set.shape, cpc, np.int64))


def happened(win_set, ctr=0.3, cvr=0.5, first_request=0, seed=1):
    block = make_block(np.zeros(len(win_set)), first_request)
    return outcome(block, page(win_set), FixedTruth(ctr, cvr), EFFECTS, seed)


def test_expected_clicks_are_examination_times_true_ctr():
    found = happened([[5, 6, -1]])
    assert found.expected_clicks == pytest.approx(np.array([[0.3, 0.3 * 0.8, 0.0]]))
    assert found.true_ctr == pytest.approx(np.array([[0.3, 0.3, 0.0]]))


def test_every_charge_has_a_click_and_every_click_is_charged_its_cpc():
    found = happened(np.tile([1, 2, -1], (2000, 1)))
    assert np.array_equal(found.charges_micros, np.where(found.clicks, 1_500_000, 0))
    assert found.clicks[:, :2].any() and not found.clicks[:, 2].any()


def test_every_conversion_follows_a_click():
    found = happened(np.tile([1, 2, 3], (2000, 1)))
    assert found.conversions.any() and not np.any(found.conversions & ~found.clicks)
    assert not happened(np.tile([1, 2, 3], (200, 1)), cvr=0.0).conversions.any()
    sure = happened(np.tile([1, 2, 3], (200, 1)), cvr=1.0)
    assert np.array_equal(sure.conversions, sure.clicks)


def test_the_same_ad_on_the_same_request_has_the_same_draw_whatever_else_is_shown():
    a, b = happened(np.tile([1, 2, 3], (3000, 1))), happened(np.tile([1, 7, -1], (3000, 1)))
    assert np.array_equal(a.clicks[:, 0], b.clicks[:, 0])
    assert np.array_equal(a.conversions[:, 0], b.conversions[:, 0])


def test_a_better_slot_never_loses_a_click():
    first, third = happened(np.tile([1, 2, 3], (3000, 1))), happened(np.tile([3, 2, 1], (3000, 1)))
    assert np.all(first.clicks[:, 0][third.clicks[:, 2]])
    assert first.clicks[:, 0].sum() > third.clicks[:, 2].sum()


def test_a_draw_depends_on_request_ad_and_seed_but_not_on_the_block():
    whole = happened(np.tile([1, 2, 3], (400, 1)))
    tail = happened(np.tile([1, 2, 3], (100, 1)), first_request=300)
    assert np.array_equal(tail.clicks, whole.clicks[300:])
    assert not np.array_equal(happened(np.tile([1, 2, 3], (400, 1)), seed=2).clicks, whole.clicks)
    assert not np.array_equal(whole.clicks[:, 0], happened(np.tile([4, 2, 3], (400, 1))).clicks[:, 0])


def test_a_page_without_ads_has_no_outcome(sim, block):
    empty = page(np.full((len(block), K), -1))
    found = outcome(block, empty, sim.environment._truth, EFFECTS, 1)
    for value in (found.clicks, found.conversions, found.charges_micros, found.expected_clicks):
        assert not value.any()
    none = outcome(part_of(block, slice(0, 0)), page(np.zeros((0, K))), sim.environment._truth, EFFECTS, 1)
    assert none.clicks.shape == (0, K)
