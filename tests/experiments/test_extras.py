"""CUPED and the running interval of a trial, from a row per request."""

import numpy as np
import pytest

from cascade_sim.experiments.assignment import Assignment
from cascade_sim.experiments.effects import FIRST_LOOK, cuped_section, sequence_section
from cascade_sim.foundation import random as draws
from cascade_sim.scenario.market import Market

DAY = 86_400.0


def rows(unit, n=30_000, n_users=400, lift=0.0, seed=3):
    """A day before and two on trial; users spend by their taste."""
    rng = np.random.default_rng(seed)
    time, user = np.sort(rng.random(n)) * 3 * DAY, rng.integers(0, n_users, n)
    ids = user if unit == "user" else np.arange(n)
    treated = (draws.uniform(9, "assignment", ids) < 0.5) & (time >= DAY)
    clicks = (rng.random(n) < 0.3).astype(int)
    price = rng.gamma(1.0, 1.0, n_users)[user] * np.where(treated, 1 + lift, 1.0)
    return {
        "request": np.arange(n), "user": user, "time": time, "is_treated": treated,
        "impressions": np.full(n, 3), "clicks": clicks, "charged_clicks": clicks,
        "revenue_micros": np.rint(1e6 * clicks * price).astype(np.int64),
    }  # fmt: skip


def test_what_users_spent_before_the_trial_shortens_the_interval():
    columns = rows("user", lift=0.2)
    found = cuped_section(columns, Assignment("user", 9, 0.5, DAY), 400)
    one = found["revenue_per_user"]
    trial = columns["time"] >= DAY
    per_user = np.bincount(columns["user"][trial], columns["revenue_micros"][trial] / 1e6, 400)
    treated = draws.uniform(9, "assignment", np.arange(400)) < 0.5
    assert one["plain"]["value"] == pytest.approx(per_user[treated].mean() - per_user[~treated].mean())
    assert one["variance_ratio"]["value"] < 0.5 and one["users"] == 400
    assert one["adjusted"]["high"] - one["adjusted"]["low"] < one["plain"]["high"] - one["plain"]["low"]
    # Twice as many days on trial as before it: theta would be 2, less for the noise of a single day's spend.
    assert 1.2 < one["theta"] < 2.0


def test_without_days_before_the_trial_there_is_no_cuped():
    assert cuped_section(rows("user"), Assignment("user", 9, 0.5, 0.0), 400) is None


def test_a_trial_is_looked_at_every_hour_once_it_has_clicks():
    columns = rows("request", lift=0.3)
    found = sequence_section(columns, DAY, Market(days=3.0, requests_per_second=30_000 / (3 * DAY)))
    assert found["time"] == [float(hour) for hour in range(1, 49)]
    trial = columns["time"] >= DAY
    first = next(i for i, value in enumerate(found["estimate"]) if value is not None)
    hour = (columns["time"] - DAY) // 3600
    arms = [trial & (columns["is_treated"] == arm) for arm in (True, False)]
    enough = [min(columns["clicks"][a & (hour <= h)].sum() for a in arms) >= FIRST_LOOK for h in range(48)]
    assert enough.index(True) == first
    means = [columns["revenue_micros"][a].mean() / 1e6 for a in arms]
    assert found["estimate"][-1] == pytest.approx(means[0] - means[1])
    for i in range(first, 48):
        assert found["low"][i] < found["fixed_low"][i] < found["fixed_high"][i] < found["high"][i]


def test_a_trial_without_clicks_shows_nothing():
    columns = rows("request")
    columns["clicks"] = columns["revenue_micros"] = np.zeros(30_000, np.int64)
    assert sequence_section(columns, DAY, Market(days=3.0)) == {"time": []}
