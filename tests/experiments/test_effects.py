"""Effects of a trial from a row per request, and from sums of days."""

import numpy as np
import pytest

from cascade_sim.experiments.effects import bias_of, daily_sums, design_effects, paired_by_day, truth_effects
from cascade_sim.scenario.market import Designs

DAY = 86_400.0


def rows(n=2000, days=3.0, seed=1):
    """Requests of a control day and then a trial; a treated request earns 0.3 for each click, others 0.2."""
    rng = np.random.default_rng(seed)
    time = np.sort(rng.random(n)) * days * DAY
    treated = (rng.random(n) < 0.5) & (time >= DAY)
    clicks = rng.integers(0, 3, n)
    return {
        "request": np.arange(n), "user": rng.integers(0, 50, n), "time": time, "is_treated": treated,
        "impressions": np.full(n, 3), "clicks": clicks, "charged_clicks": clicks,
        "revenue_micros": clicks * np.where(treated, 300_000, 200_000),
    }  # fmt: skip


def test_only_the_days_on_trial_count():
    columns = rows()
    found = design_effects("request", columns, Designs(treatment="t"))
    trial = columns["time"] >= DAY
    treated = trial & columns["is_treated"]
    level = found["revenue_per_request"]["treatment"]["value"]
    assert level == pytest.approx(columns["revenue_micros"][treated].mean() / 1e6)
    assert found["cpc"]["difference"]["value"] == pytest.approx(0.3 - 0.2)
    assert found["cpc"]["lift"]["value"] == pytest.approx(0.5)
    assert found["ctr"]["treatment"]["value"] == pytest.approx(columns["clicks"][treated].mean() / 3)
    assert found["revenue_per_request"]["units"] == trial.sum()


def test_users_are_the_units_of_a_trial_by_user():
    columns = rows()
    found = design_effects("user", columns, Designs(treatment="t"))["revenue_per_request"]
    assert found["units"] == 50


def test_a_washout_leaves_out_the_beginning_of_slots_after_a_change():
    columns = rows(20_000, days=5.0)
    slot = (columns["time"] // 21_600).astype(int)
    columns["is_treated"] = (slot % 3 == 0) & (columns["time"] >= DAY)
    # The first hour after a change of arm costs ten times as much. Slot 4, the trial's first, is no change.
    late = (columns["time"] % 21_600 < 3600) & (slot % 3 != 2) & (slot > 4)
    columns["revenue_micros"] = np.where(late, 2_000_000, 200_000)
    spec = {"treatment": "t", "switchback": 21_600.0}
    with_it = design_effects("switchback", columns, Designs(**spec, washout=3600.0))["revenue_per_request"]
    without = design_effects("switchback", columns, Designs(**spec))["revenue_per_request"]
    assert with_it["treatment"]["value"] == pytest.approx(0.2)
    assert with_it["control"]["value"] == pytest.approx(0.2)
    assert without["treatment"]["value"] > 0.4


def test_sums_of_days_hold_every_request_of_the_trial_once():
    columns = rows()
    found = daily_sums(columns, 1, 3.0)
    trial = columns["time"] >= DAY
    assert sum(map(sum, (found[role]["requests"] for role in found))) == trial.sum()
    for role, arm in (("treatment", columns["is_treated"]), ("control", ~columns["is_treated"])):
        last = arm & (columns["time"] >= 2 * DAY)
        assert found[role]["revenue"][1] == columns["revenue_micros"][last].sum() / 1e6


def days(levels):
    per_day = {"requests": 100.0, "impressions": 300.0, "clicks": 10.0, "charged_clicks": 10.0}
    return {**{name: [value] * len(levels) for name, value in per_day.items()}, "revenue": levels}


def test_days_are_paired_and_fewer_than_five_or_a_part_of_one_give_no_interval():
    one, two = [12.0, 33.0, 22.0, 41.0, 15.0], [11.0, 30.0, 20.0, 38.0, 14.0]
    found = paired_by_day({"treatment": days(one), "control": days(two)}, 5.0)["revenue_per_request"]
    assert found["difference"]["value"] == pytest.approx((sum(one) - sum(two)) / 500)
    assert found["difference"]["low"] > 0 and found["units"] == 5
    for length, kept in ((4.0, 4), (4.5, 5)):
        parts = {"treatment": days(one[:kept]), "control": days(two[:kept])}
        found = paired_by_day(parts, length)["revenue_per_request"]
        assert found["difference"]["low"] is None and found["difference"]["value"] > 0


def test_the_truth_is_read_from_the_hours_after_the_trial_began():
    hours = {name: [1.0] * 72 for name in ("requests", "impressions", "clicks", "charged_clicks")}
    launch, control = {**hours, "revenue": [9.0] * 24 + [3.0] * 48}, {**hours, "revenue": [2.0] * 72}
    found = truth_effects(launch, control, 1, 3.0)["revenue_per_request"]
    assert found["lift"]["value"] == pytest.approx(3 / 2 - 1) and found["difference"]["value"] == 1.0


def test_bias_has_the_interval_of_the_estimate_around_the_truth():
    effect = {key: {"value": 5.0, "low": 3.0, "high": None} for key in ("difference", "lift")}
    truth = {key: {"value": 1.0, "low": 0.0, "high": 2.0} for key in ("difference", "lift")}
    assert bias_of(effect, truth)["bias"] == {"value": 4.0, "low": 2.0, "high": None}
    unknown = {key: {"value": None} for key in truth}
    assert bias_of(effect, unknown)["lift_bias"]["value"] is None
