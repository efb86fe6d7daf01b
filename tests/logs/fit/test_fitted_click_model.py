"""The response fitted to a log: near the truth, and calibrated on requests that were not learned from."""

from dataclasses import replace

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.logs.fit import fitted_click_model
from cascade_sim.logs.fit.fitted import pairs_of
from worlds.other_family import EXAMINED, OtherFamily


@pytest.fixture(scope="module")
def market():
    return OtherFamily(requests=3500, days=3.0)


@pytest.fixture(scope="module")
def store(market, tmp_path_factory):
    return market.store(tmp_path_factory.mktemp("market"))


@pytest.fixture(scope="module")
def fitted(store):
    pairs, segment = pairs_of(store, store.n_requests)
    return fitted_click_model.fit_response(pairs, 1, segment)


def test_slots_are_told_from_the_ads_that_stood_in_them(fitted):
    assert fitted.slot_effects == pytest.approx(EXAMINED, abs=0.1)
    assert fitted.slot_effects[0] == 1 and np.all(np.diff(fitted.slot_effects) <= 0)


def test_the_ctr_is_near_the_truth_over_all_candidates(fitted, market):
    auctions = market.auctions
    truth = auctions["ctr"][auctions["ad"] >= 0]
    assert fitted.ctr.sum() / truth.sum() == pytest.approx(1.0, abs=0.12)
    assert np.corrcoef(np.log(fitted.ctr), np.log(truth))[0, 1] > 0.7


def test_it_is_calibrated_by_slot_and_segment_and_better_than_one_ctr_for_all(fitted):
    cells = fitted.checks["cells"]
    assert {cell["of"] for cell in cells} == {"all", "slot", "segment", "tenth"}
    assert sum(cell["is_off"] for cell in cells) <= 1
    assert fitted.checks["logloss"] < 0.95 * fitted.checks["logloss_of_mean"]


def test_a_response_that_is_wrong_for_a_segment_is_found_out():
    rng = np.random.default_rng(1)
    n = 40_000
    segment, slot = rng.integers(0, 2, n), rng.integers(0, 2, n)
    expected = np.full(n, 0.1)
    y = (rng.random(n) < np.where(segment == 1, 0.14, 0.06)).astype(float)
    cells = fitted_click_model.checks_of(y, expected, slot, segment, np.arange(n))["cells"]
    off = {(cell["of"], cell["which"]) for cell in cells if cell["is_off"]}
    assert {("segment", 0), ("segment", 1)} <= off and ("slot", 0) not in off


def test_the_checks_find_slots_out_whose_effects_are_wrong(store, monkeypatch):
    pairs, _ = pairs_of(store, 2000)
    real = fitted_click_model.fit_examined
    wrong = lambda *given, **more: replace(found := real(*given, **more), effects=found.effects**0.5)  # noqa: E731
    monkeypatch.setattr(fitted_click_model, "fit_examined", wrong)
    cells = fitted_click_model.fit_response(pairs, 1).checks["cells"]
    assert any(cell["is_off"] for cell in cells if cell["of"] == "slot")


@pytest.mark.drill
def test_the_same_seed_gives_the_same_response(store):
    pairs, _ = pairs_of(store, 900)
    once, again = (fitted_click_model.fit_response(pairs, 3).ctr for _ in range(2))
    assert np.array_equal(once, again)


def test_too_few_clicks_are_refused(store):
    pairs, _ = pairs_of(store, 100)
    with refused(100):
        fitted_click_model.fit_response(pairs)


@pytest.mark.drill
def test_replicates_draw_units_whole_and_are_fits_of_their_own(store):
    pairs, _ = pairs_of(store, 1500)
    user = store.requests["user"][:1500]
    found = fitted_click_model.fit_response(pairs, 2, unit=user, replicates=3)
    for replicate in found.replicates:
        assert replicate.count.mean() == pytest.approx(1.0, abs=0.2) and replicate.share == 1.0
        for own in np.unique(user)[:200]:
            assert len(np.unique(replicate.count[user == own])) == 1
        apart = np.abs(np.log(replicate.ctr / found.ctr))
        assert 0.01 < np.median(apart) < 0.6  # neither the same nor another market
    assert not np.array_equal(found.replicates[0].count, found.replicates[1].count)
    assert np.array_equal(
        found.ctr, fitted_click_model.fit_response(pairs, 2).ctr
    )  # replicates change nothing


@pytest.mark.drill
def test_of_a_large_log_a_replicate_draws_a_part(store, monkeypatch):
    pairs, _ = pairs_of(store, 1500)
    monkeypatch.setattr(fitted_click_model, "MAX_DRAWN", int(pairs.is_learned.sum()) // 2)
    monkeypatch.setattr(fitted_click_model, "MIN_DRAWN_CLICKS", 100)
    (replicate,) = fitted_click_model.fit_response(pairs, 2, replicates=1).replicates
    assert replicate.share == pytest.approx(0.5, abs=0.01)
    assert replicate.count.mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.drill
def test_a_replicate_draws_no_less_than_it_can_learn_from(store, monkeypatch):
    pairs, _ = pairs_of(store, 1500)
    monkeypatch.setattr(fitted_click_model, "MAX_DRAWN", 10)
    hour = (store.requests["time"][:1500] // 3600).astype(int)  # fewer hours than are needed
    (replicate,) = fitted_click_model.fit_response(pairs, 2, unit=hour, replicates=1).replicates
    assert replicate.share == 1.0


def test_predictions_are_averaged_over_all_candidates_of_an_ad(store):
    pairs, _ = pairs_of(store, 900)
    ad = pairs.ids["ad"]
    own = ad == ad[7]
    assert pairs.numbers["pctr of the ad"][7] == pytest.approx(pairs.numbers["pctr"][own].mean())
    assert "hour" not in pairs.steady and {"pctr", "pctr of the request"} <= {*pairs.steady}


def test_slots_are_checked_against_clicks_that_did_not_fit_them(fitted):
    """Effects that are fitted to the same clicks come out right to four digits, whatever the learners say."""
    ratios = [cell["ratio"] for cell in fitted.checks["cells"] if cell["of"] == "slot"]
    assert max(abs(ratio - 1) for ratio in ratios) > 0.002
