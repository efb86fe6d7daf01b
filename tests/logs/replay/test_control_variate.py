"""The click model as a control variate of lifts: its weight, what intervals hold of it, and what it saves."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from cascade_sim import whatif
from cascade_sim.counterfactual.whatif import CURRENT, WhatIfEvaluation
from cascade_sim.diagnostics.reopen import reopen
from cascade_sim.environments.uncertainty import control_variate
from cascade_sim.environments.uncertainty.control_variate import Side, control
from cascade_sim.foundation.errors import Notice
from cascade_sim.foundation.progress import Progress
from cascade_sim.logs.replay.misfit import ADS, MOST, Misfit, _bound
from cascade_sim.scenario.overrides import resolved_arms
from oracles.ruled_logs import RuledLog

N = 400
DEVELOPMENT = range(301, 305)  # logs other than those that figures are given of


def sides(rng, *, bias=0.0):
    """An arm whose column has the clicks' noise, which a model that is off by `bias` a unit explains."""
    noise = rng.normal(size=N)
    noise -= noise.mean()
    column, base = 10 + noise + rng.normal(0, 0.1, N), np.full(N, 10.0)
    nothing = np.zeros(N)
    arm = Side(column, -noise + bias, np.ones(1), nothing, nothing)
    return arm, Side(base, nothing, np.zeros(1), nothing, nothing)


def misfit(deviation):
    return SimpleNamespace(deviation=lambda groups: deviation * abs(float(groups.sum())))


def test_a_model_that_is_borne_out_takes_the_noise_away():
    arm, base = sides(np.random.default_rng(1))
    made = control(arm, base, misfit(0.0))
    assert made.weight == pytest.approx(1.0, abs=0.02)
    kept = arm.column + made.added
    assert kept.std() < 0.15 < 0.9 < arm.column.std()
    assert made.widened.sum() == pytest.approx(made.added.sum())


def test_what_the_model_may_be_off_by_lowers_its_weight_and_stays_in_the_spread():
    arm, base = sides(np.random.default_rng(1))
    scale = np.sqrt(N)  # of the noise of the sum
    made = control(arm, base, misfit(scale))
    assert made.weight == pytest.approx(0.5, abs=0.05)
    spread = np.sum((arm.column + made.widened - (arm.column + made.widened).mean()) ** 2)
    alone = np.sum((arm.column + made.added - (arm.column + made.added).mean()) ** 2)
    assert spread == pytest.approx(alone + (made.weight * scale) ** 2, rel=0.15)
    assert spread < np.sum((arm.column - arm.column.mean()) ** 2)


def test_a_model_that_the_clicks_contradict_is_hardly_used():
    arm, base = sides(np.random.default_rng(1), bias=0.5)  # ten standard deviations of the sum
    made = control(arm, base, misfit(0.0))
    assert made.weight < 0.05
    assert made.deviation > 5 * np.sqrt(N)


def test_an_arm_that_changes_nothing_has_no_control():
    _, base = sides(np.random.default_rng(1))
    assert control(base, base, misfit(1.0)) is None


def test_the_bound_on_the_misfit_holds_what_was_planted():
    """Poisson clicks of 200 groups, whose true rates are the model's times 1 + e."""
    rng = np.random.default_rng(3)
    held, bounds = 0, []
    for planted in (0.0, 0.3):
        said = np.full(200, 25.0)
        for _ in range(40):
            off = rng.poisson(said * (1 + planted * rng.choice([-1, 1], 200))) - said
            bounds.append(_bound(off, said, said, 168.3))  # 5 % quantile of chi square, 200 degrees
            held += bounds[-1] >= planted**2
    assert held >= 76  # of 80, where 95 % are due
    assert np.mean(bounds[:40]) < 0.01 and np.mean(bounds[40:]) < 0.13
    assert _bound(np.zeros(0), np.zeros(0), np.zeros(0), 0.0) == MOST


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A log under its rule, served as it is and with another squashing."""
    log = RuledLog(301, 800)
    folder = log.market(tmp_path_factory.mktemp("asked") / "market")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        opened = reopen(folder)
        spec = resolved_arms(opened.scenario)["logged"]
        auction = spec.auction.model_copy(update={"squashing": spec.auction.squashing + 0.2})
        arms = {
            CURRENT: opened.arm("logged"),
            "point 1": opened.sim.arm("logged", spec.model_copy(update={"auction": auction})),
        }
        evaluation = WhatIfEvaluation(opened.sim, folder, arms, opened.arm("logged"))
        evaluation.serve(Progress(True))
    return log, evaluation


def test_the_control_is_of_logged_clicks_that_stay_and_nothing_else(asked):
    """By hand, on the pages as they were: every click is kept, at its own price."""
    log, evaluation = asked
    table = evaluation.tallies[CURRENT].joined("columns")
    clicks = evaluation.sim.environment._truth
    model = clicks.model
    said, _ = model.predicted_impressions()
    part = model.impressions
    beyond = said - part["click"]
    assert table["control_clicks"].sum() == pytest.approx(beyond.sum())
    revenue = np.bincount(part["row"], beyond * part["price_micros"] / 1e6, log.requests)
    np.testing.assert_allclose(table["control_revenue"].sum(), revenue.sum())


def test_sums_are_those_of_the_control_and_the_baseline_stays(asked):
    _, evaluation = asked
    plain = {name: tally.joined("columns") for name, tally in evaluation.tallies.items()}
    controlled, widened = evaluation.controlled(), evaluation.resampled()
    for column in ("expected_revenue", "expected_clicks", "1000 expected_revenue"):
        np.testing.assert_array_equal(controlled[CURRENT][column], plain[CURRENT][column])
        assert widened["point 1"][column].sum() == pytest.approx(controlled["point 1"][column].sum())
        assert controlled["point 1"][column].sum() != plain["point 1"][column].sum()
    np.testing.assert_allclose(
        controlled["point 1"]["1000 expected_revenue"], 1000 * controlled["point 1"]["expected_revenue"]
    )
    np.testing.assert_array_equal(controlled["point 1"]["revenue"], plain["point 1"]["revenue"])


def test_lifts_have_less_noise_and_shorter_intervals_that_hold_the_truth(tmp_path, monkeypatch):
    """Squashing, on four logs: without the control their root mean square error is .7 points."""
    errors = {"with": [], "without": []}
    held = 0
    for seed in DEVELOPMENT:
        log = RuledLog(seed, 3_000)
        market, value = log.market(tmp_path / str(seed)), round(log.rule.squashing + 0.2, 2)
        truth = log.lift(squashing=value)
        for kind in errors:
            with monkeypatch.context() as patch, warnings.catch_warnings():
                warnings.simplefilter("ignore", Notice)
                if kind == "without":
                    patch.setattr(control_variate, "CONTROLS", {})
                    patch.setattr(
                        "cascade_sim.environments.uncertainty.click_model.CONTROLS", control_variate.CONTROLS
                    )
                (point,) = whatif(market, {"auction.squashing": value}).answer["points"]
            lift = point["metrics"]["expected_revenue_per_request"]["lift"]
            errors[kind].append((lift["value"] - truth, lift["high"] - lift["low"]))
            held += kind == "with" and lift["low"] <= truth <= lift["high"]
    assert held == len(DEVELOPMENT)
    off = {kind: np.sqrt(np.mean([error**2 for error, _ in found])) for kind, found in errors.items()}
    assert off["with"] < 0.7 * off["without"]
    for (_, width), (_, before) in zip(errors["with"], errors["without"], strict=True):
        assert width < before


def test_groups_are_apart_by_way():
    """An impression is in one group of each way, and ways do not share groups."""
    rng = np.random.default_rng(5)
    part = {"pctr": rng.random(300), "bid": rng.random(300), "price_micros": rng.integers(1, 99, 300)}
    found = Misfit(SimpleNamespace(impressions=part), 300)
    slot, row = rng.integers(0, 12, 300), np.arange(300)
    groups = found.groups(rng.integers(0, 2_000, 300), slot, row, part)
    sums = found.sums(groups, np.ones((300, 2)))
    assert sums.sum(axis=0).tolist() == [5 * 300.0] * 2
    assert sums[:ADS].sum() == 600.0 and len(sums) == found.n_groups
