"""Order against scale over a sweep of settings: the points, who beats whom, the frontier, each family's best.

A point is a ranker: GAUC up, LogLoss down, on the pages of the baseline. A family has one objective (and
calibrator), its points differ in alpha (or y0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cascade_sim.analysis.statistics.estimates import Estimate, estimate
from cascade_sim.analysis.statistics.moves import frontier

ORDER, SCALE = "gauc", "logloss"
SYMBOLS = {"alpha": "α", "beta": "β", "y0": "y0"}


@dataclass(frozen=True)
class Point:
    """A ranker of a sweep, with the arm that it serves."""

    arm: str
    family: str
    option: str | None
    setting: float | None
    measures: Mapping[str, Estimate]  # gauc, logloss, ece

    @property
    def values(self) -> dict[str, float]:
        """ORDER and SCALE as plain numbers; `sweep_points` leaves out points without either."""
        return {name: float(self.measures[name].value or 0.0) for name in (ORDER, SCALE)}

    @property
    def setting_text(self) -> str:
        """The option and its value, as in `α 0.9`; empty for an objective without option."""
        if self.option is None or self.setting is None:
            return ""
        return f"{SYMBOLS.get(self.option, self.option)} {self.setting:g}"

    @property
    def name(self) -> str:
        """The family and its setting, as in `rcr (α 0.9)`."""
        return f"{self.family} ({self.setting_text})" if self.setting_text else self.family


def sweep_points(metrics: Mapping[str, Any]) -> list[Point]:
    """All points that have a GAUC and a LogLoss, families in the file's order, settings rising."""
    points = []
    for arm, ranker in (_sweep(metrics).get("points") or {}).items():
        on_win_set = ((metrics.get("models") or {}).get(ranker["model"]) or {}).get("win_set") or {}
        measures = {name: estimate(on_win_set.get(name)) for name in (ORDER, SCALE, "ece")}
        if measures[ORDER].value is not None and measures[SCALE].value is not None:
            points.append(Point(arm, ranker["family"], ranker["option"], ranker["setting"], measures))
    order = list(dict.fromkeys(point.family for point in points))
    return sorted(points, key=lambda point: (order.index(point.family), point.setting or 0.0))


def families(points: Sequence[Point]) -> dict[str, list[Point]]:
    """{family: its points}, both in the order of the points."""
    by_family: dict[str, list[Point]] = {}
    for point in points:
        by_family.setdefault(point.family, []).append(point)
    return by_family


def _sweep(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    return (metrics.get("objectives") or {}).get("sweep") or {}


def gap(metrics: Mapping[str, Any], arm: str, other: str, measure: str) -> Estimate:
    """How much greater a measure is in `arm`, paired by request, or by world where there are several."""
    gaps = _sweep(metrics).get("gaps") or {}
    if other in (gaps.get(arm) or {}):
        return estimate(gaps[arm][other].get(measure))
    reverse = estimate(((gaps.get(other) or {}).get(arm) or {}).get(measure))

    def turned(x: float | None) -> float | None:
        return None if x is None else -x

    return Estimate(turned(reverse.value), turned(reverse.high), turned(reverse.low), reverse.sd)


def significantly_dominates(metrics: Mapping[str, Any], point: Point, other: Point) -> bool:
    """A strict win beyond noise: the paired 95 % intervals of both differences lie on the better side."""
    order, scale = (gap(metrics, point.arm, other.arm, measure) for measure in (ORDER, SCALE))
    return order.is_above_zero and scale.is_below_zero


def on_frontier(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats, the best order first."""
    return [points[i] for i in frontier([point.values for point in points], ORDER, SCALE)]


def surely_beaten(metrics: Mapping[str, Any], points: Sequence[Point]) -> list[Point]:
    """The points that some other beats beyond noise: they are off the frontier for good."""
    return [p for p in points if any(significantly_dominates(metrics, other, p) for other in points)]


def best_of(metrics: Mapping[str, Any], own: Sequence[Point]) -> Point:
    """The least LogLoss among a family's points whose GAUC is not below the family's best beyond noise.

    Chosen by what the ranker predicts, never by what it earns.
    """
    best = max(own, key=lambda point: point.values[ORDER])
    near = [p for p in own if p is best or not gap(metrics, p.arm, best.arm, ORDER).is_below_zero]
    return min(near, key=lambda point: point.values[SCALE])


@dataclass(frozen=True)
class PairwiseWins:
    """Games of one family against others: `won` and `lost` by the values, `sure_…` beyond noise."""

    games: int = 0
    won: int = 0
    lost: int = 0
    pairs: int = 0  # of points, whatever the number of worlds
    sure_won: int = 0
    sure_lost: int = 0

    @property
    def tied(self) -> int:
        """Games that neither wins: one orders better, the other is better in scale."""
        return self.games - self.won - self.lost

    def __add__(self, other: PairwiseWins) -> PairwiseWins:
        return PairwiseWins(
            self.games + other.games, self.won + other.won, self.lost + other.lost,
            self.pairs + other.pairs, self.sure_won + other.sure_won, self.sure_lost + other.sure_lost,
        )  # fmt: skip


def games_of(metrics: Mapping[str, Any]) -> dict[str, dict[str, PairwiseWins]]:
    """{family: {rival: Games}}: every point of the one against every point of the other, in each world."""
    by_family = families(sweep_points(metrics))
    worlds = int((metrics.get("seeds") or {}).get("n") or 1)
    wins = _sweep(metrics).get("wins") or {}
    table: dict[str, dict[str, PairwiseWins]] = {}
    for family, own in by_family.items():
        for rival, theirs in by_family.items():
            if rival == family:
                continue
            pairs = [(a, b) for a in own for b in theirs]
            counted = (wins.get(family) or {}).get(rival) or {}  # one world's, or the mean over worlds
            games, won, lost = (round(worlds * counted.get(key, 0)) for key in ("games", "won", "lost"))
            sure_won = sum(significantly_dominates(metrics, a, b) for a, b in pairs)
            sure_lost = sum(significantly_dominates(metrics, b, a) for a, b in pairs)
            table.setdefault(family, {})[rival] = PairwiseWins(
                games, won, lost, len(pairs), sure_won, sure_lost
            )
    return table
