"""The users of a market: arrivals, what they have seen recently, and what they click.

State: the requests still to come (`requests_until`), and each user's memory of ads seen (`end_window`).
Fatigue looks at exposures up to the end of the last window, so pages of one window do not depend on each
other and may be scored in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.agents import fatigue
from cascade_sim.agents.click_models import ClickModel, PositionBased
from cascade_sim.agents.sessions import OpenSessions, SessionDraws, Sessions, no_sessions, session_requests
from cascade_sim.agents.traffic import Visitors
from cascade_sim.agents.traffic_profiles import Profile, arrivals
from cascade_sim.cascade.serve import Block
from cascade_sim.environments.arrivals import FIRST_REQUEST
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.scenario.market import Users
from cascade_sim.scenario.plugins import CLICK_MODEL_KINDS, errors_of, find_class
from cascade_sim.study.simulation import Simulation

GAPS_AT_ONCE = 4096


@dataclass(frozen=True)
class Response:
    """How users answer to pages. All [R, k]; 0 and False in empty slots."""

    true_ctr: np.ndarray  # float64, of an examined slot, fatigue included
    expected: np.ndarray  # float64, P(click)
    clicks: np.ndarray  # bool


class Audience:
    """All users of a market."""

    def __init__(self, sim: Simulation, spec: Users, profile: Profile, home: Path = Path(".")):
        self._sim, self._spec = sim, spec
        self._click_model = build_click_model(spec, sim.platform.slot_effects, home)
        self._memory = np.zeros(sim.world.n_users)  # ads seen, fading
        self._seen = np.zeros(sim.world.n_users, np.int64)  # ads seen in this window
        self._source = sim.environment.visits() or _SampledArrivals(
            sim.seed, _sessions(sim, spec, profile) if spec.sessions else _Visits(sim, profile)
        )

    def requests_until(self, end: float) -> Block:
        """The requests before `end` that have not been given out yet."""
        return self._source.until(end)

    def respond(self, block: Block, ads: np.ndarray) -> Response:
        """What the users of these requests do with these pages. Pure within a window.  ads [R, k]"""
        seed, shown = self._sim.seed, ads >= 0
        true_ctr = self._sim.environment.ctr(block, ads)
        if self._spec.fatigue.strength > 0:
            shift = fatigue.fatigue_shift(self._memory, block.users, strength=self._spec.fatigue.strength)
            true_ctr = np.where(shown, fatigue.fatigued(true_ctr, shift), 0.0)
        ids = (block.requests[:, None], ads)
        draw = draws.uniform(seed, "click", *ids)
        # What position-based users look at beyond their clicks does not matter here: no draw for it.
        is_position = isinstance(self._click_model, PositionBased)
        look_on = draw if is_position else draws.uniform(seed, "look on", *ids)
        return Response(true_ctr, *ask(self._click_model, self._spec, true_ctr, shown, draw, look_on))

    def saw(self, users: np.ndarray, n_ads: np.ndarray) -> None:
        """Note how many ads these users were shown.  [R], [R] int"""
        if self._spec.fatigue.strength > 0:
            np.add.at(self._seen, users, n_ads)

    def end_window(self, seconds: float) -> None:
        """Add what was seen in the window to the users' memory of ads, which fades with time."""
        if self._spec.fatigue.strength > 0:
            self._memory = fatigue.after(
                self._memory, np.arange(len(self._memory)), self._seen, seconds,
                half_life_hours=self._spec.fatigue.half_life_hours,
            )  # fmt: skip
            self._seen[:] = 0

    @property
    def mean_memory(self) -> float:
        """Ads in memory per user."""
        return float(np.mean(self._memory))

    def state(self) -> dict[str, Any]:
        """What requests and users to come depend on; asked at the end of a window."""
        return {"memory": self._memory.copy(), "source": self._source.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._memory = np.array(state["memory"])
        self._source.restore(state["source"])


class _SampledArrivals:
    """Requests that a market draws: of single visits, or of sessions."""

    def __init__(self, seed: int, source: _Visits | _SessionSource):
        self._seed, self._source = seed, source

    def until(self, end: float) -> Block:
        index, times, users = self._source.until(end)
        requests = FIRST_REQUEST["market"] + index
        context = draws.normal(self._seed, "context", requests).astype(np.float32)
        return Block(requests=requests, users=users, context=context, times=times)

    def state(self) -> dict[str, Any]:
        return self._source.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._source.restore(state)


class _Visits:
    """Requests one by one: each a visit of a user drawn by activity."""

    def __init__(self, sim: Simulation, profile: Profile):
        self._sim, self._profile = sim, profile
        self._visitors = Visitors(sim.world.activity)
        self._times, self._level, self._n_drawn, self._n_given = np.zeros(0), 0.0, 0, 0

    def until(self, end: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        while not len(self._times) or self._times[-1] < end:
            ids = FIRST_REQUEST["market"] + np.arange(self._n_drawn, self._n_drawn + GAPS_AT_ONCE)
            gaps = draws.exponential(self._sim.seed, "arrival", ids)
            times, levels = arrivals(gaps, self._profile, self._level)
            self._times, self._level = np.concatenate([self._times, times]), float(levels[-1])
            self._n_drawn += GAPS_AT_ONCE
        n = int(np.searchsorted(self._times, end))
        times, self._times = self._times[:n], self._times[n:]
        index = self._n_given + np.arange(n)
        self._n_given += n
        draw = draws.uniform(self._sim.seed, "visitor", FIRST_REQUEST["market"] + index)
        return index, times, self._visitors(draw)

    def state(self) -> dict[str, Any]:
        counts = np.array([self._n_drawn, self._n_given])
        return {"times": self._times.copy(), "level": np.float64(self._level), "counts": counts}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._times, self._level = np.array(state["times"]), float(state["level"])
        self._n_drawn, self._n_given = (int(n) for n in state["counts"])


class _SessionSource:
    """Requests of users who come for several pages."""

    def __init__(self, sessions: Sessions):
        self._sessions, self._open = sessions, no_sessions(sessions)

    def until(self, end: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        arrived, self._open = session_requests(self._sessions, self._open, end)
        return arrived.index, arrived.time, arrived.user

    def state(self) -> dict[str, Any]:
        return {name: np.array(value) for name, value in vars(self._open).items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        kinds: dict[str, Any] = {name: type(value) for name, value in vars(self._open).items()}
        values: dict[str, Any] = {
            name: np.array(value) if kinds[name] is np.ndarray else kinds[name](value)
            for name, value in state.items()
        }
        self._open = OpenSessions(**values)


def _sessions(sim: Simulation, spec: Users, profile: Profile) -> _SessionSource:
    seed = sim.seed
    draw = SessionDraws(
        start=lambda session: draws.exponential(seed, "session start", session),
        visitor=lambda session: draws.uniform(seed, "session visitor", session),
        length=lambda session: draws.uniform(seed, "session length", session),
        pause=lambda session, page: draws.exponential(seed, "session pause", session, page),
    )
    assert spec.sessions is not None
    options = {"mean_pages": spec.sessions.mean_pages, "pause_seconds": spec.sessions.pause_seconds}
    return _SessionSource(Sessions(profile, draw, sim.world.activity, **options))


def build_click_model(spec: Users, slot_effects: np.ndarray, home: Path = Path(".")) -> ClickModel:
    """The click model that a market names."""
    with _errors_of(spec):
        model: ClickModel = find_class(CLICK_MODEL_KINDS, spec.click_model, home)(
            slot_effects.copy(), **spec.options
        )
        return model


def ask(
    model: ClickModel,
    spec: Users,
    true_ctr: np.ndarray,
    shown: np.ndarray,
    draw: np.ndarray,
    look_on: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """What a click model expects and what it clicks, checked.  [R, k] each"""
    with _errors_of(spec):
        # Copies: a model that writes into what it is given harms itself alone.
        expected = np.asarray(model.expected(true_ctr.copy(), shown.copy()), np.float64)
        clicks, examined = model.clicks(true_ctr.copy(), shown.copy(), draw, look_on)
        clicks, examined = np.asarray(clicks), np.asarray(examined)
        _check_answer(expected, clicks, examined, shown)
    return expected, clicks


def _errors_of(spec: Users) -> AbstractContextManager[None]:
    return errors_of(f"market.users.click_model {spec.click_model!r}", spec.click_model)


def _check_answer(expected: np.ndarray, clicks: np.ndarray, examined: np.ndarray, shown: np.ndarray) -> None:
    are_truths = all(found.shape == shown.shape and found.dtype == bool for found in (clicks, examined))
    if expected.shape != shown.shape or not are_truths:
        raise UserError(
            f"expected probabilities {list(shown.shape)} and twice booleans {list(shown.shape)}, got "
            f"{list(expected.shape)}, {clicks.dtype} {list(clicks.shape)} and {examined.dtype} "
            f"{list(examined.shape)}"
        )
    if not ((expected >= 0) & (expected <= 1)).all():
        bad = expected[~((expected >= 0) & (expected <= 1))][0]
        raise UserError(f"`expected` gave {bad}, which is no probability")
    if (clicks & ~shown).any() or (expected[~shown] != 0).any():
        raise UserError("it clicks on empty slots")
    if (clicks & ~examined).any():
        raise UserError("it clicks on slots that were not examined, by its own word")
