"""User sessions: a user comes, views a page or several with pauses between, and leaves; sessions interleave.

Requests are asked for window by window. What a window needs from the past is an `OpenSessions`; all chance is
a pure function of session and page, so how time is cut into windows cannot change a bit of the outcome.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cascade_sim.agents.traffic import visitors
from cascade_sim.agents.traffic_profiles import Profile, arrivals

Draw = Callable[..., np.ndarray]


@dataclass(frozen=True)
class SessionDraws:
    """Draws by key: pure functions of int64 arrays of one length S, returning [S] draws.

    Session ids count from 0 in order of start; a caller with several streams of sessions adds its own offset.
    """

    start: Draw  # (session) -> exponential, mean 1: the gap before its start, in expected sessions
    visitor: Draw  # (session) -> uniform in (0, 1): who comes
    length: Draw  # (session) -> uniform in (0, 1): how many pages
    pause: Draw  # (session, page) -> exponential, mean 1: the pause before page 2, 3, ...


@dataclass(frozen=True, eq=False)
class Sessions:
    """How users come. The profile is that of the *requests*: sessions start at 1 / mean_pages of its rate.

    A request follows its session's start by at most a few pauses, so the requests trail the profile by
    (mean_pages - 1) * pause_seconds on average, and a simulation that begins empty lacks about
    rate * that many requests in its first minutes.
    """

    profile: Profile
    draws: SessionDraws
    activity: np.ndarray  # [U] cumulative share of visits per user (traffic.activity_cdf)
    mean_pages: float = 3.0  # >= 1: pages = 1 + Geometric
    pause_seconds: float = 45.0  # >= 0: mean of the exponential pauses

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean_pages) and self.mean_pages >= 1):
            raise ValueError(f"a session has at least 1 page on average, not {self.mean_pages}")
        if not (np.isfinite(self.pause_seconds) and self.pause_seconds >= 0):
            raise ValueError(f"the mean pause must be a number of seconds >= 0, not {self.pause_seconds}")


@dataclass(frozen=True, eq=False)
class OpenSessions:
    """All that the future needs of the past. Arrays [S] are in order of session id."""

    time: float  # requests before this time have been given out
    started: int  # sessions that have started: the id of the next one
    cumulative: float  # Lambda of session starts at the last start
    requests: int  # requests given out: the index of the next one
    session: np.ndarray  # [S] int64
    user: np.ndarray  # [S] int32
    page: np.ndarray  # [S] int32, the next page, from 1
    pages: np.ndarray  # [S] int32, how many the session has in all; page <= pages
    due: np.ndarray  # [S] float64, when the next page is asked for; >= time


@dataclass(frozen=True, eq=False)
class Requests:
    """The requests of a window, [R], by time; at equal times by session and page."""

    index: np.ndarray  # int64, consecutive over all windows from 0
    time: np.ndarray  # float64 seconds
    session: np.ndarray  # int64
    user: np.ndarray  # int32
    page: np.ndarray  # int32, 1 for the first page of a session


def no_sessions(sessions: Sessions, time: float = 0.0) -> OpenSessions:
    """The state in which no user is there yet and the first sessions start after `time`."""
    empty = np.zeros(0)
    return OpenSessions(
        time=float(time),
        started=0,
        cumulative=float(_starts(sessions).cumulative(time)),
        requests=0,
        session=empty.astype(np.int64),
        user=empty.astype(np.int32),
        page=empty.astype(np.int32),
        pages=empty.astype(np.int32),
        due=empty,
    )


def n_pages(u: np.ndarray, mean_pages: float) -> np.ndarray:
    """Pages of a session by inverse CDF: 1 + floor(log u / log q), q = 1 - 1 / mean_pages.  [S] int32

    P(more than n pages) = q^n, mean = mean_pages. mean_pages = 1 gives 1 page always.
    """
    u = np.asarray(u, dtype=np.float64)
    if mean_pages == 1:
        return np.ones(u.shape, dtype=np.int32)
    extra = np.floor(np.log(u) / np.log1p(-1 / mean_pages))
    return (1 + np.minimum(extra, 2.0**30)).astype(np.int32)


def session_requests(sessions: Sessions, state: OpenSessions, until: float) -> tuple[Requests, OpenSessions]:
    """All requests in the window [state.time, until), and the state at its end.

    The first page of session s is asked for at its start Lambda^-1(sum of start gaps), page j + 1 a pause of
    pause_seconds * draw(s, j + 1) after page j, whether or not that falls into the same window. `until`
    before state.time is a ValueError; an empty window gives no requests.
    """
    if not until >= state.time:
        raise ValueError(f"a window cannot end at {until}, before it begins at {state.time}")
    state = _with_new_sessions(sessions, state, until)
    session, user, page = state.session, state.user, state.page
    pages, due = state.pages, state.due
    waiting: list[tuple[np.ndarray, ...]] = []
    given: list[tuple[np.ndarray, ...]] = []
    # Each round asks for one page of every session that has one due in the window.
    while True:
        now = due < until
        waiting.append((session[~now], user[~now], page[~now], pages[~now], due[~now]))
        given.append((session[now], user[now], page[now], due[now]))
        more = now & (page < pages)
        if not more.any():
            break
        session, user, pages = session[more], user[more], pages[more]
        page = page[more] + np.int32(1)
        due = due[more] + sessions.pause_seconds * sessions.draws.pause(session, page.astype(np.int64))
    requests = _by_time(given, state.requests)
    session, user, page, pages, due = (np.concatenate(column) for column in zip(*waiting, strict=True))
    order = np.argsort(session, kind="stable")  # a session waits for one page at a time
    return requests, OpenSessions(
        time=float(until),
        started=state.started,
        cumulative=state.cumulative,
        requests=state.requests + len(requests.time),
        session=session[order],
        user=user[order],
        page=page[order],
        pages=pages[order],
        due=due[order],
    )


def _starts(sessions: Sessions) -> Profile:
    return sessions.profile.scaled(1 / sessions.mean_pages)


def _with_new_sessions(sessions: Sessions, state: OpenSessions, until: float) -> OpenSessions:
    """The state with the sessions that start before `until` added, each with its first page due."""
    starts = _starts(sessions)
    level, first, times = state.cumulative, state.started, [np.zeros(0)]
    while True:
        expected = max(0.0, float(starts.cumulative(until)) - level)
        ids = np.arange(first, first + int(expected + 4 * np.sqrt(expected)) + 8, dtype=np.int64)
        due, levels = arrivals(sessions.draws.start(ids), starts, level)
        n = int(np.searchsorted(due, until, side="left"))
        times.append(due[:n])
        first += n
        level = float(levels[n - 1]) if n else level
        if n < len(ids):
            break
    new = np.arange(state.started, first, dtype=np.int64)
    draws = sessions.draws
    user = visitors(draws.visitor(new), sessions.activity)
    pages = n_pages(draws.length(new), sessions.mean_pages)
    return OpenSessions(
        time=state.time,
        started=first,
        cumulative=level,
        requests=state.requests,
        session=np.concatenate([state.session, new]),
        user=np.concatenate([state.user, user]),
        page=np.concatenate([state.page, np.ones(len(new), dtype=np.int32)]),
        pages=np.concatenate([state.pages, pages]),
        due=np.concatenate([state.due, *times]),
    )


def _by_time(given: list[tuple[np.ndarray, ...]], first_index: int) -> Requests:
    session, user, page, time = (np.concatenate(column) for column in zip(*given, strict=True))
    order = np.lexsort((page, session, time))
    return Requests(
        index=first_index + np.arange(len(time), dtype=np.int64),
        time=time[order],
        session=session[order],
        user=user[order],
        page=page[order],
    )
