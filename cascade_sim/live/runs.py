"""The runs that a page offers, by number: what is known of each before it is opened, and how they differ.

A run that cannot be opened keeps its place with the reason; the others stay. Nothing outside their folders is
ever read, since runs are named by their number alone.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cascade_sim.analysis.report.readings import WHAT_IF_MEASURES
from cascade_sim.analysis.statistics.estimates import finite
from cascade_sim.counterfactual.whatif import worlds_of
from cascade_sim.diagnostics.reopen import Trust
from cascade_sim.foundation.errors import UserError, shortened
from cascade_sim.live.session import MAX_BYTES, Session, Variant
from cascade_sim.scenario.diff import scenario_diff
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.schema import Scenario
from cascade_sim.storage.files import below
from cascade_sim.storage.folder import Run, open_run

MAX_DIFFERENCES = 60


class OfferedRun:
    """A run's folder; opened on demand."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.error: str | None = None
        self.run: Run | None = None
        self.scenario: Scenario | None = None
        self.session: Session | None = None
        try:
            self.run = open_run(path)
            self.scenario = load_scenario(below(path, "scenario.yaml"))
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Keep the reason why it cannot be opened, whatever it is: the other runs are none the worse."""
        words = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        self.error = shortened(words if str(self.path) in words else f"{self.path}: {words}")
        self.session = None

    @property
    def metrics(self) -> Mapping[str, Any]:
        return self.run.metrics if self.run is not None else {}

    def about(self) -> dict[str, Any]:
        """What the list of runs says of it."""
        state = "damaged" if self.error else "open" if self.session is not None else "closed"
        return {"name": self.name, "path": str(self.path), "state": state, "error": self.error}


class Runs:
    """All of them. Sessions are opened by the one thread that asks them."""

    def __init__(self, paths: Sequence[Path], trust: Trust = False) -> None:
        self._trust = trust
        self._in_use: list[Session] = []  # whose scores are kept, the one that was asked last at the end
        folders = [(path, folder) for path in paths for folder in _worlds(path)]
        self.offered = [
            OfferedRun(folder, folder.name if folder == path else f"{path.name} / {folder.name}")
            for path, folder in folders
        ]

    def about(self) -> list[dict[str, Any]]:
        return [{"run": number, **offered.about()} for number, offered in enumerate(self.offered)]

    def offered_run(self, number: int) -> OfferedRun:
        """UserError if there is none of this number."""
        if not 0 <= number < len(self.offered):
            raise UserError(f"no run {number}; there are {len(self.offered)}")
        return self.offered[number]

    def session(self, number: int) -> Session:
        """The opened run; UserError with the reason if it cannot be opened."""
        offered = self.offered_run(number)
        if offered.error is None and offered.session is None:
            try:
                offered.session = Session(offered.path, self._trust)
            except Exception as error:
                offered.fail(error)
        if offered.session is None:
            raise UserError(offered.error or "the run cannot be opened")
        self._make_room(offered.session)
        return offered.session

    def keeps(self, session: Session) -> bool:
        """Whether it may keep scores: it was asked about not long ago."""
        return session in self._in_use

    def _make_room(self, session: Session) -> None:
        """All runs together keep no more than one may: those asked about longest ago forget."""
        self._in_use = [*(other for other in self._in_use if other is not session), session]
        while len(self._in_use) > 1 and sum(each.most_bytes for each in self._in_use) > MAX_BYTES:
            self._in_use.pop(0).forget()

    def side_by_side(self) -> dict[str, Any]:
        """Measures of every run's baseline as the run has them, and how scenarios differ from the first's."""
        whole = [offered for offered in self.offered if offered.scenario is not None]
        first = whole[0].scenario if whole else None
        rows = []
        for offered in self.offered:
            row: dict[str, Any] = {}
            if offered.scenario is not None and first is not None and offered.error is None:
                try:
                    row = _row(offered, offered.scenario, first) | {"is_first": offered is whole[0]}
                    json.dumps(row, allow_nan=False)  # its figures are what the folder says they are
                except Exception as error:
                    row = {}
                    offered.fail(error)
            rows.append(offered.about() | row)
        return {"runs": rows}


def _worlds(path: Path) -> Sequence[Path]:
    """The folders of a study's worlds, else the path itself: what is wrong with it is found on opening."""
    try:
        return worlds_of(path)
    except Exception:
        return [path]


def _row(offered: OfferedRun, scenario: Scenario, first: Scenario) -> dict[str, Any]:
    """What a run measured of its baseline, and how its scenario differs from the first one's."""
    baseline = scenario.report.baseline
    own = (offered.metrics.get("arms") or {}).get(baseline) or {}
    lines = [change.line() for change in scenario_diff(first, scenario)]
    return {
        "baseline": baseline,
        "seed": scenario.seed,
        "requests": offered.metrics.get("requests") or scenario.phases.evaluate,
        "measures": {
            name: {key: own[name].get(key) for key in ("value", "low", "high")}
            for name in WHAT_IF_MEASURES
            if isinstance(own.get(name), Mapping)
        },
        "differs": lines[:MAX_DIFFERENCES],
        "more": max(len(lines) - MAX_DIFFERENCES, 0),
    }


def market_hours(metrics: Mapping[str, Any]) -> dict[str, Any] | None:
    """The hours of a run's market by arm, as the run measured them; None where it had no market."""
    arms = (metrics.get("market") or {}).get("arms") or {}
    wanted = ("time", "requests", "impressions", "clicks", "revenue")
    found = {
        arm: {name: own["hours"][name] for name in wanted if name in own["hours"]}
        for arm, own in arms.items()
        if isinstance(own, Mapping) and own.get("hours")
    }
    return found or None


IN_DAYS = ("revenue_per_request", "ctr", "cpc")


def market_days(metrics: Mapping[str, Any], scenario: Scenario) -> dict[str, Any] | None:
    """What each arm brought in the days of a run's market, and in its evaluation; None without a market."""
    market = metrics.get("market") or {}
    if scenario.market is None or not isinstance(market.get("arms"), Mapping):
        return None
    evaluated = metrics.get("arms") or {}
    arms = {
        arm: {
            name: {
                "days": finite(own.get(name)),
                "evaluation": finite((evaluated.get(arm, {}).get(name) or {}).get("value")),
            }
            for name in IN_DAYS
        }
        for arm, own in market["arms"].items()
        if isinstance(own, Mapping)
    }
    has_budgets = scenario.market.budgets is not None and scenario.market.budgets.share > 0
    return {"days": scenario.market.days, "has_budgets": has_budgets, "arms": arms} if arms else None


def command_line(path: Path, way: Variant, baseline: str) -> str:
    """The command that gives the exact answer."""
    words = ["python", "-m", "cascade_sim", "whatif", str(path)]
    for word in way.words:
        words += ["--set", word]
    if way.arm != baseline:
        words += ["--arm", way.arm]
    return shlex.join(words)
