"""What intervals of a log resample is chosen by what the log has."""

import numpy as np
import pytest

from cascade_sim.environments.clusters import resampling_units
from cascade_sim.logs.store.format import About
from cascade_sim.logs.store.store import write_store


def log(folder, users=None, clicks=None, hours=100, n=2000):
    """A page of one ad per request, spread evenly over some hours."""
    requests = {
        "time": np.arange(n) * (hours * 3600.0 / n),
        "slots": np.ones(n),
        "first": np.arange(n + 1),
        **({} if users is None else {"user": np.asarray(users, np.int32)}),
    }
    click = np.zeros(n) if clicks is None else clicks(requests["time"] / 3600)
    candidates = {
        "ad": np.zeros(n, np.int32),
        "bid": np.ones(n),
        "slot": np.zeros(n, np.int16),
        "click": np.asarray(click, np.int8),
    }
    return write_store(folder, About("units", "2026-11-02T00:00:00+00:00"), requests, candidates, {})


def by(store, resample="auto"):
    return resampling_units(store, store.n_requests, resample, 1)


def in_some_hours(hour):
    return (hour.astype(int) % 7 == 0) & (np.arange(len(hour)) % 2 == 0)


def test_strangers_at_any_hour_are_independent(tmp_path):
    units = by(log(tmp_path / "m", users=np.arange(2000), clicks=lambda hour: np.arange(len(hour)) % 5 == 0))
    assert (units.kind, units.n) == ("request", 2000)


def test_users_who_come_again_are_drawn_with_all_their_requests(tmp_path):
    units = by(log(tmp_path / "m", users=np.arange(2000) % 300))
    assert (units.kind, units.n, units.why) == ("user", 300, "users come again")
    assert len(set(units.of_request[np.arange(0, 2000, 300)])) == 1


def test_hours_that_differ_are_drawn_whole(tmp_path):
    units = by(log(tmp_path / "m", clicks=in_some_hours))
    assert (units.kind, units.n) == ("hour", 100)


def test_too_few_hours_are_not_resampled_and_the_answer_says_so(tmp_path):
    units = by(log(tmp_path / "m", clicks=in_some_hours, hours=20))
    assert units.kind == "request"
    assert "only 20 of them" in units.why


@pytest.mark.parametrize("kind", ["request", "user", "hour"])
def test_one_may_choose(tmp_path, kind):
    assert by(log(tmp_path / "m", users=np.arange(2000) % 300), kind).kind == kind


def test_a_request_of_nobody_known_stands_alone(tmp_path):
    units = by(log(tmp_path / "m", users=np.where(np.arange(2000) < 1000, -1, 5)), "user")
    assert units.n == 1001
