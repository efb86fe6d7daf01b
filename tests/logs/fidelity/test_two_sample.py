"""The two-sample test: a market equals itself and copies; one with a difference is distinguished by it."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.fidelity import summary_statistics, two_sample
from cascade_sim.logs.fidelity.sample import take
from worlds.other_family import OtherFamily


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return OtherFamily(requests=1600, days=3.0).store(tmp_path_factory.mktemp("market"))


def test_the_auc_is_scikit_learns_with_ties_and_weights():
    rng = np.random.default_rng(1)
    score, is_second, weight = rng.integers(0, 9, 300), rng.random(300) < 0.4, rng.integers(1, 4, 300)
    expected = roc_auc_score(is_second, score, sample_weight=weight)
    assert two_sample.auc(score, is_second, weight.astype(float)) == pytest.approx(expected)


def test_copies_of_the_same_requests_cannot_be_told_apart(store):
    table = two_sample.request_table(take(store), True)
    found = two_sample.two_sample_auc(table, table, 1, 20)
    assert found["auc"]["value"] == pytest.approx(0.5)


def test_two_parts_of_one_market_are_hardly_told_apart_and_dearer_bids_by_bids(store):
    first, second = take(store, 0, 800), take(store, 800, 1600)
    same = two_sample.two_sample_auc(*(two_sample.shown_table(s, False) for s in (first, second)), 1, 20)
    assert same["auc"]["value"] < 0.56
    dearer = replace(
        second, candidates={**second.candidates, "bid": 1.6 * second.candidates["bid"]}, _codes={}
    )
    found = two_sample.two_sample_auc(*(two_sample.shown_table(s, False) for s in (first, dearer)), 1, 20)
    assert found["auc"]["low"] > 0.6
    assert found["features"][0]["name"] in ("bid", "price to bid")


@pytest.mark.parametrize("column", ["click", "conversion", "price_micros"])
def test_what_a_log_does_not_know_does_not_tell_it_from_a_world_that_does(store, column, monkeypatch):
    known = take(store)
    shown = known.is_shown
    known.candidates[column] = np.where(shown, 0, -1)
    read = type(store).candidates
    with monkeypatch.context() as patch:
        patch.setattr(
            type(store), "candidates",
            lambda self, *where: {
                name: np.full_like(values, -1) if name == column else values
                for name, values in read(self, *where).items()
            },
        )  # fmt: skip
        unknown = take(store)
    assert column not in unknown.candidates
    found = two_sample.two_sample_auc(
        two_sample.shown_table(unknown, False), two_sample.shown_table(known, False), 1, 20
    )
    assert found["auc"]["value"] == pytest.approx(0.5, abs=0.01)
    rows = summary_statistics.side_by_side(unknown, known, (unknown, unknown), 5, 1)
    assert len(rows) > 5


def test_summaries_of_requests_are_what_they_say():
    values, rows = np.array([1.0, 3.0, 2.0, np.nan, 5.0]), np.array([0, 0, 0, 1, 2])
    found = two_sample._summaries(values, rows, 4)
    assert found["highest"].tolist()[:1] == [3.0] and found["second"][0] == 2.0 and found["mean"][0] == 2.0
    assert np.isnan(found["highest"][[1, 3]]).all() and np.isnan(found["second"][2])


def test_without_scikit_learn_the_error_has_the_command(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    with pytest.raises(UserError, match=r"pip install 'cascade_sim\[fit\]'"):
        two_sample.boosting()
