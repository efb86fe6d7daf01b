from dataclasses import fields

import numpy as np
import pytest
from scipy import stats

from answers.told import refused
from cascade_sim.agents.sessions import SessionDraws, Sessions, n_pages, no_sessions, session_requests
from cascade_sim.agents.traffic import activity_cdf
from cascade_sim.agents.traffic_profiles import HOUR, Profile, constant, daily, hourly
from cascade_sim.foundation import random as draws
from places import SCENARIOS

AVITO = SCENARIOS / "data" / "avito_week.csv"
COLUMNS = ("index", "time", "session", "user", "page")


def keyed(seed=1):
    return SessionDraws(
        start=lambda s: draws.exponential(seed, "session start", s),
        visitor=lambda s: draws.uniform(seed, "session visitor", s),
        length=lambda s: draws.uniform(seed, "session length", s),
        pause=lambda s, page: draws.exponential(seed, "session pause", s, page),
    )


def sessions(profile, seed=1, **options):
    return Sessions(profile, keyed(seed), activity_cdf(500, 0.56), **options)


def in_windows(who, edges):
    """The requests of consecutive windows put together, and the last state."""
    state, parts = no_sessions(who, edges[0]), []
    for until in edges[1:]:
        requests, state = session_requests(who, state, until)
        parts.append(requests)
    return {name: np.concatenate([getattr(p, name) for p in parts]) for name in COLUMNS}, state


PROFILES = {
    "constant": constant(2.0),
    "daily": daily(2.0),
    "week": hourly(AVITO, 2.0),
    "with pauses": Profile(np.array([5.0, 0.0, 1.0]), 500.0),
}
CUTS = {
    "minutes": np.arange(0, 3601, 60.0),
    "short": np.arange(0, 3601, 8.0),
    "uneven": np.concatenate([[0.0], np.sort(np.random.default_rng(0).uniform(0, 3600, 37)), [3600.0]]),
    "with empty windows": np.repeat([0.0, 1234.5, 3600.0], 3),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
@pytest.mark.few(4)
def test_cutting_time_into_windows_does_not_change_a_bit(profile, cut):
    who = sessions(profile)
    whole, end = in_windows(who, [0.0, 3600.0])
    parts, end_of_parts = in_windows(who, cut)
    assert len(whole["time"]) > 500
    for name in COLUMNS:
        assert np.array_equal(whole[name], parts[name]), name
        assert whole[name].dtype == parts[name].dtype
    assert len(end.session) > 0
    for field in fields(end):
        assert np.array_equal(getattr(end, field.name), getattr(end_of_parts, field.name)), field.name


def test_a_cut_at_the_very_time_of_a_request_gives_it_to_the_later_window():
    who = sessions(constant(2.0))
    whole, _ = in_windows(who, [0.0, 600.0])
    cut = float(whole["time"][100])
    before, state = session_requests(who, no_sessions(who), cut)
    after, _ = session_requests(who, state, 600.0)
    assert len(before.time) == 100 and after.time[0] == cut and after.index[0] == 100
    assert np.array_equal(np.concatenate([before.time, after.time]), whole["time"])


def test_requests_at_the_same_time_come_by_session_and_page_however_time_is_cut():
    """Sessions start in pairs, every 6 seconds, and view three pages, one a second or all at once."""
    draws = SessionDraws(
        start=lambda s: np.where(s % 2 == 0, 1.0, 0.0) * 2,
        visitor=lambda s: np.full(len(s), 0.5),
        length=lambda s: np.full(len(s), (2 / 3) ** 2.5),
        pause=lambda s, page: np.where(s < 4, 1.0, 0.0),
    )
    who = Sessions(constant(1.0), draws, activity_cdf(5, 0.0), mean_pages=3.0, pause_seconds=1.0)
    whole, end = in_windows(who, [0.0, 20.0])
    pairs = list(zip(whole["session"].tolist(), whole["page"].tolist(), strict=True))
    assert whole["time"] == pytest.approx([6, 6, 7, 7, 8, 8, 12, 12, 13, 13, 14, 14, *[18] * 6])
    assert pairs[:6] == [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)]
    assert pairs[-6:] == [(4, 1), (4, 2), (4, 3), (5, 1), (5, 2), (5, 3)]
    starts = [float(t) for t in np.unique(whole["time"])]
    parts, _ = in_windows(who, [0.0, *starts, 20.0])
    for name in COLUMNS:
        assert np.array_equal(whole[name], parts[name]), name
    assert end.started == 6
    _, at_a_start = session_requests(who, no_sessions(who), starts[0])
    assert at_a_start.started == 0 and len(at_a_start.session) == 0


def test_requests_are_in_order_of_time_and_numbered_through():
    got, end = in_windows(sessions(daily(2.0)), CUTS["uneven"])
    assert np.all(np.diff(got["time"]) >= 0)
    assert got["time"][0] >= 0 and got["time"][-1] < 3600
    assert got["index"].tolist() == list(range(end.requests))


def test_every_session_is_one_user_who_views_his_pages_in_order():
    got, end = in_windows(sessions(constant(2.0)), CUTS["minutes"])
    order = np.lexsort((got["time"], got["session"]))
    session, page, user, time = (got[name][order] for name in ("session", "page", "user", "time"))
    same = session[1:] == session[:-1]
    assert (page[1:][same] == page[:-1][same] + 1).all() and (page[1:][~same] == 1).all() and page[0] == 1
    assert (user[1:][same] == user[:-1][same]).all()
    assert (time[1:][same] > time[:-1][same]).all()
    assert np.array_equal(np.unique(session), np.arange(end.started))
    # A session that is not open any more has had all its pages.
    closed = ~np.isin(np.arange(end.started), end.session)
    length = n_pages(keyed().length(np.arange(end.started)), 3.0)
    assert np.array_equal(np.bincount(session)[closed], length[closed]) and closed.sum() > 500


def test_sessions_interleave():
    got, _ = in_windows(sessions(constant(2.0)), [0.0, 3600.0])
    assert np.any(np.diff(got["session"]) < 0)


def test_the_mean_rate_of_requests_is_that_of_the_profile():
    """Counts of a cluster process: variance per session E[pages^2] = 2 m^2 - m instead of m."""
    rate, mean_pages, seconds = 3.0, 4.0, 30_000.0
    who = sessions(constant(rate), mean_pages=mean_pages, pause_seconds=20.0)
    got, end = in_windows(who, [0.0, 2000.0, 2000.0 + seconds])
    n = np.sum(got["time"] >= 2000.0)
    deviation = np.sqrt(rate / mean_pages * seconds * (2 * mean_pages**2 - mean_pages))
    assert n == pytest.approx(rate * seconds, abs=4 * deviation)
    assert deviation < 0.02 * rate * seconds
    starts = rate / mean_pages * (2000 + seconds)
    assert end.started == pytest.approx(starts, abs=4 * np.sqrt(starts))


def test_requests_follow_the_day():
    who = sessions(daily(2.0, peak_hour=14), pause_seconds=10.0)
    got, _ = in_windows(who, [0.0, 86_400.0])
    counts = np.bincount((got["time"] // HOUR).astype(int), minlength=24)
    expected = np.diff(daily(2.0, peak_hour=14).cumulative(np.arange(25) * HOUR))
    assert np.corrcoef(counts, expected)[0, 1] > 0.99


def test_pauses_between_pages_are_exponential():
    got, _ = in_windows(sessions(constant(2.0), pause_seconds=30.0), [0.0, 20_000.0])
    early = got["session"] < 8000  # those that had the time to end
    order = np.lexsort((got["time"][early], got["session"][early]))
    session, time = got["session"][early][order], got["time"][early][order]
    pauses = np.diff(time)[np.diff(session) == 0]
    assert len(pauses) > 10_000
    assert stats.kstest(pauses, stats.expon(scale=30.0).cdf).pvalue > 0.01


def test_session_starts_are_a_poisson_process():
    got, end = in_windows(sessions(constant(3.0)), [0.0, 10_000.0])
    starts = got["time"][got["page"] == 1]
    assert len(starts) == end.started
    assert stats.kstest(np.diff(starts), "expon").pvalue > 0.01


def test_the_number_of_pages_is_geometric():
    u = draws.uniform(3, "pages", np.arange(100_000))
    pages = n_pages(u, 2.5)
    assert pages.mean() == pytest.approx(2.5, abs=4 * np.sqrt(2.5 * 1.5 / len(u)))
    for n in (1, 2, 5):
        assert (pages > n).mean() == pytest.approx(0.6**n, abs=4 * np.sqrt(0.25 / len(u)))
    assert n_pages(np.array([0.61, 0.59, 0.37, 0.35]), 2.5).tolist() == [1, 2, 2, 3]


def test_extreme_draws_gives_a_finite_session():
    assert n_pages(np.array([2.0**-53, 1 - 2.0**-53]), 2.0).tolist() == [54, 1]
    assert n_pages(np.array([2.0**-53]), 1e12).tolist() == [2**30 + 1]


def test_sessions_of_one_page_are_plain_poisson_traffic():
    who = sessions(constant(2.0), mean_pages=1.0)
    got, end = in_windows(who, [0.0, 1000.0])
    gaps = draws.exponential(1, "session start", np.arange(end.started))
    assert np.array_equal(got["time"], np.cumsum(gaps) / 2.0)
    assert (got["page"] == 1).all() and len(end.session) == 0


def test_without_pauses_all_pages_come_at_once_in_order():
    got, end = in_windows(sessions(constant(2.0), pause_seconds=0.0), CUTS["minutes"])
    assert len(end.session) == 0
    assert np.all(np.diff(got["session"]) >= 0)
    assert (np.diff(got["page"])[np.diff(got["session"]) == 0] == 1).all()


def test_active_users_have_more_sessions():
    got, _ = in_windows(sessions(constant(2.0)), [0.0, 20_000.0])
    user = got["user"][got["page"] == 1]
    share = np.mean(user < 50)
    assert share == pytest.approx(activity_cdf(500, 0.56)[49], abs=4 * np.sqrt(0.25 / len(user)))


def test_traffic_may_begin_at_any_time():
    who = sessions(daily(2.0))
    got, end = in_windows(who, [40_000.0, 41_000.0])
    assert 40_000 <= got["time"][0] < 40_060 and got["time"][-1] < 41_000
    assert end.started > 100


def test_another_seed_gives_other_traffic():
    one, two = (in_windows(sessions(constant(2.0), seed), [0.0, 600.0])[0]["time"] for seed in (1, 2))
    assert not np.array_equal(one[:100], two[:100])


def test_nonsense_is_refused():
    who = sessions(constant(2.0))
    with refused(5.0, 10.0, kind=ValueError):
        session_requests(who, no_sessions(who, 10.0), 5.0)
    with pytest.raises(ValueError, match="at least 1 page"):
        sessions(constant(2.0), mean_pages=0.5)
    with pytest.raises(ValueError, match="mean pause"):
        sessions(constant(2.0), pause_seconds=-1.0)
