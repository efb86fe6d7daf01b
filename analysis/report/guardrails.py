"""Guardrails: what users and advertisers get, beside the measure that decides.

Revenue per request decides which arm is best; it can rise while fewer ads are shown, clicks get dearer, or
advertisers keep less. So every card shows these four with their 95 % intervals and names those that get
significantly worse. Intervals are not adjusted for the number of guardrails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cascade_sim.analysis.report.section import Tile
from cascade_sim.analysis.report.tables import LIFT, Cell, Row, Table, column
from cascade_sim.analysis.report.text_helpers import listed
from cascade_sim.analysis.statistics.estimates import (
    MISSING,
    NBSP,
    Estimate,
    arm_lift,
    arm_value,
    decimals_for,
    estimate,
    interval_text,
    lift_of,
    number_text,
    percent_text,
    scaled,
)

SHOWN = 0.0005  # what is smaller is printed as 0.0 %, and is no guardrail that fails
FINE = "Guardrails ("  # so begins the sentence where none gets worse
LARGE = 0.05  # without an interval, a change of at least this share is named


@dataclass(frozen=True)
class Guardrail:
    """A measure that should not get worse. `names`: its names in files, the first known one is shown."""

    label: str  # in a sentence
    names: tuple[str, ...]
    worse: int  # sign of a change for the worse


GUARDRAILS = (
    Guardrail("impressions", ("impressions_per_request", "impressions"), -1),
    Guardrail("clicks", ("expected_clicks_per_request", "clicks_per_request"), -1),
    Guardrail("CPC", ("cpc",), +1),
    Guardrail("advertisers' surplus", ("surplus_per_request", "surplus"), -1),
)


@dataclass(frozen=True)
class Change:
    """How a guardrail changes against what it is compared with, whose level is `base`."""

    guardrail: Guardrail
    lift: Estimate
    base: Estimate

    @property
    def is_worse(self) -> bool:
        """Significantly, and by more than is printed as none; without an interval, by at least `LARGE`."""
        if self.lift.value is None or abs(self.lift.value) < SHOWN:
            return False
        if self.lift.low is None:
            return self.lift.value * self.guardrail.worse >= LARGE
        return self.lift.is_above_zero if self.guardrail.worse > 0 else self.lift.is_below_zero

    @property
    def text(self) -> str:
        """`CPC +6.1 % [+5.0, +7.2]`; its first letter as in a sentence."""
        return f"{self.guardrail.label} {percent_text(self.lift)}"

    @property
    def has_interval(self) -> bool:
        return self.lift.low is not None


def changes(
    lift: Callable[[str], Estimate], base: Callable[[str], Estimate] = lambda _: Estimate()
) -> list[Change]:
    """The guardrails that are known. A lift over a base that is not clearly above zero means nothing."""
    found = []
    for guardrail in GUARDRAILS:
        for name in guardrail.names:
            own, level = lift(name), base(name)
            if own.value is None:
                continue
            is_ratio = level.value is None or (level.value if level.low is None else level.low) > 0
            if is_ratio:
                found.append(Change(guardrail, own, level))
            break
    return found


def arm_changes_of(metrics: Mapping[str, Any], arm: str) -> list[Change]:
    """Those of an arm of a study against the baseline."""
    baseline = metrics["baseline"]
    return changes(lambda name: arm_lift(metrics, arm, name), lambda name: arm_value(metrics, baseline, name))


def point_changes(now: Mapping[str, Any], other: Mapping[str, Any]) -> list[Change]:
    """Those of other settings, measures by name with lifts, against the current ones."""
    return changes(lambda name: lift_of(other.get(name)), lambda name: estimate(now.get(name)))


def worse(found: Iterable[Change]) -> list[Change]:
    return [change for change in found if change.is_worse]


def worse_clause(found: Iterable[Change], whose: str = "") -> str:
    """The end of a headline: `; impressions and CPC get worse`, or nothing."""
    labels = [change.guardrail.label for change in worse(found)]
    verb = "gets" if len(labels) == 1 and labels != ["clicks"] and labels != ["impressions"] else "get"
    return f"; {whose}{listed(labels)} {verb} worse" if labels else ""


def guardrail_words(found: Sequence[Change], whose: str) -> str:
    """A sentence on what gets worse, and how much; or that nothing does; empty where nothing is known."""
    bad = worse(found)
    if not found:
        return ""
    if not bad:
        names = listed([change.guardrail.label for change in found])
        if all(change.has_interval for change in found):
            return f"{FINE}{names}): none is significantly worse with {whose}."
        most = f"{number_text(100 * LARGE, 0)}{NBSP}%"
        return f"{FINE}{names}), without intervals: none is worse by {most} or more with {whose}."
    said = "Significantly worse" if all(change.has_interval for change in bad) else "Worse"
    return f"{said} with {whose}{_without_interval(bad)}: {listed([change.text for change in bad])}."


def guardrail_line(found: Sequence[Change]) -> str:
    """All of them in a line, for a terminal."""
    return f"Guardrails{_without_interval(found)}: {', '.join(c.text for c in found)}." if found else ""


def _without_interval(found: Sequence[Change]) -> str:
    """Which of them rest on a value alone: ` (no intervals)`, ` (no interval of CPC)`, or nothing."""
    bare = [change.guardrail.label for change in found if not change.has_interval]
    if not bare:
        return ""
    return " (no intervals)" if len(bare) == len(found) else f" (no interval of {listed(bare)})"


def lift_tile(label: str, lift: Estimate, base: str = "", tone: str = "") -> Tile:
    """A lift, large."""
    percent = scaled(lift, 100.0)
    text = f"{number_text(percent.value, 1, signed=True)}{NBSP}%" if percent.value is not None else MISSING
    interval = interval_text(percent, 1, signed=True)
    return Tile(label, text, interval or ("" if lift.value is None else "no interval"), base, tone)


def guardrail_tiles(found: Iterable[Change], whose: str = "baseline") -> list[Tile]:
    """A tile per guardrail, those that get worse marked."""
    tiles = []
    for change in found:
        label = change.guardrail.label
        level = level_text(change.base, whose)
        verdict = ("significantly worse" if change.has_interval else "worse") if change.is_worse else ""
        about = " · ".join(part for part in (verdict, level) if part)
        tiles.append(
            lift_tile(label[0].upper() + label[1:], change.lift, about, "down" if change.is_worse else "")
        )
    return tiles


def level_text(base: Estimate, whose: str) -> str:
    """`baseline: 0.336`; empty where it is not known."""
    return "" if base.value is None else f"{whose}: {number_text(base.value, decimals_for([base.value]))}"


def guardrail_table(
    rows: Mapping[str, tuple[Estimate, Sequence[Change]]], baseline: str, decides: str = "Revenue per request"
) -> Table | None:
    """Row label → lift of the decision measure and guardrails; None where no guardrail is known."""
    known = [g for g in GUARDRAILS if any(c.guardrail is g for _, found in rows.values() for c in found)]
    if not known:
        return None
    lifts = [[lift for lift, _ in rows.values()]]
    lifts += [
        [next((c.lift for c in found if c.guardrail is g), Estimate()) for _, found in rows.values()]
        for g in known
    ]
    columns = [column(LIFT, values, signed=True) for values in lifts]
    for cells, g in zip(columns[1:], known, strict=True):
        if g.worse > 0:
            tones = {"up": "down", "down": "up"}
            cells[:] = [Cell(c.text, c.interval, c.margin, tones.get(c.tone, "")) for c in cells]
    made = [Row(label, [cells[i] for cells in columns], arm=label) for i, label in enumerate(rows)]
    headings = [decides, *(g.label[0].upper() + g.label[1:] for g in known)]
    return Table("Guardrails", "Arm", headings, made, [(f"Lift over {baseline}, %", len(headings))])
