"""The click model of a log: what it finds, how sure it is, and what it says where it was not asked."""

import numpy as np
import pytest

from cascade_sim.foundation import random as draws
from cascade_sim.logs.replay.imputation import fit_click_model
from cascade_sim.logs.store.format import About
from cascade_sim.logs.store.store import write_store

EFFECTS = np.array([1.0, 0.7, 0.4])
SLOTS = len(EFFECTS)


def drawn_log(folder, n=4000, seed=1, forget=(), off=0.0, segments=1):
    """Pages of three ads whose CTR is the logged pCTR, off in the last segment. `forget`: whose clicks."""
    request = np.arange(n)[:, None]
    slot = np.broadcast_to(np.arange(SLOTS), (n, SLOTS))
    logit = -2.0 + 0.8 * draws.normal(seed, "pair", request, slot)
    segment = (np.arange(n) * segments // n).astype(np.int32)
    true = logit + off * (segment == segments - 1)[:, None]
    ctr = 1 / (1 + np.exp(-true))
    click = (draws.uniform(seed, "click", request, slot) < EFFECTS * ctr).astype(np.int8)
    click[list(forget)] = -1
    requests = {
        "time": np.arange(n) * 60.0,
        "slots": np.full(n, SLOTS),
        "first": np.arange(n + 1) * SLOTS,
        "segment": segment,
    }
    candidates = {
        "ad": np.broadcast_to(np.arange(SLOTS, dtype=np.int32), (n, SLOTS)).ravel(),
        "bid": np.ones(n * SLOTS),
        "pctr": (1 / (1 + np.exp(-logit))).ravel(),
        "slot": slot.ravel().astype(np.int16),
        "click": click.ravel(),
    }
    return write_store(folder, About("drawn", "2026-11-02T00:00:00+00:00"), requests, candidates, {})


def test_it_finds_the_slots_and_the_calibration_of_the_ranker(tmp_path):
    model = fit_click_model(drawn_log(tmp_path / "m", 20_000), 1)
    assert model.slot_effects() == pytest.approx(EFFECTS, abs=0.05)
    terms = dict(zip(model.terms.names, model.whole, strict=True))
    assert terms["logit pCTR"] + terms["request's"] == pytest.approx(1.0, abs=0.1)
    assert model.calibration(drawn_log(tmp_path / "again", 20_000))["off"] == []


def test_a_segment_in_which_it_is_off_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("cascade_sim.logs.replay.imputation.CLICKS_OF_GROUP", 10**9)  # no effect of its own
    store = drawn_log(tmp_path / "m", 12_000, off=1.0, segments=3)
    assert "segment 2" in fit_click_model(store, 1).calibration(store)["off"]


def test_segments_with_clicks_enough_have_an_effect_of_their_own(tmp_path):
    store = drawn_log(tmp_path / "m", 12_000, off=1.0, segments=3)
    model = fit_click_model(store, 1)
    assert [name for name in model.terms.names if name.startswith("segment")] == ["segment 0", "segment 1"]
    assert not any(group.startswith("segment") for group in model.calibration(store)["off"])


def test_a_log_without_clicks_has_no_model(tmp_path):
    assert fit_click_model(drawn_log(tmp_path / "m", 50, forget=range(50)), 1) is None


def moved(model, store, rows):
    """What the model is asked for these requests if their first and last ad changed places."""
    part = store.candidates(0, store.n_requests, ("pctr", "bid"))
    at = (rows[:, None] * SLOTS + np.arange(SLOTS)).ravel()
    columns = {"pctr": part["pctr"][at], "bid": part["bid"][at]}
    columns["shared"] = np.repeat(model.shared[rows], SLOTS)
    slot = np.tile((SLOTS - 1 - np.arange(SLOTS)).astype(np.int16), len(rows))
    return model.asked(columns, np.repeat(rows, SLOTS)), np.arange(len(at)), slot


def test_its_influence_is_what_leaving_a_request_out_would_do(tmp_path):
    store = drawn_log(tmp_path / "m", 600)
    model, rows = fit_click_model(store, 1), np.arange(600)
    pages = moved(model, store, rows)
    clicks = model.predicted(*pages).sum()
    gradient = model.gradient(*pages, np.ones((600 * SLOTS, 1)))
    influence = model.influence(gradient, rows, 600)[:, 0]
    assert influence.sum() == pytest.approx(0.0, abs=1e-9)
    tried = np.argsort(-np.abs(influence))[:12]
    left_out = []
    for i in tried:
        other = fit_click_model(drawn_log(tmp_path / f"without-{i}", 600, forget=[i]), 1)
        left_out.append(clicks - other.predicted(*moved(other, store, rows)).sum())
    assert np.corrcoef(left_out, influence[tried])[0, 1] > 0.98
    assert left_out == pytest.approx(influence[tried], rel=0.35)
