"""The answer that a page begins with: what to ship, how sure that is, and where money is lost today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.decision import decide, key_figures, money_lost
from cascade_sim.analysis.report.section import Columns, Heading, Part, Section, Stack, Text, Tile, Tiles
from cascade_sim.analysis.statistics.estimates import (
    Estimate,
    decimals_for,
    interval_text,
    number_text,
    scaled,
)

MOST_TILES = 4


def answer_section(metrics: Mapping[str, Any]) -> Section:
    """The recommendation as the page's headline, with its reasons and what to be careful of."""
    answer = decide(metrics)
    reasons: list[Part] = [Text(reason) for reason in answer.reasons]
    reasons += [Text(finding, "finding") for finding in answer.findings]
    lost, seeds = money_lost(metrics), metrics.get("seeds")
    care: list[Part] = [Heading(lost[0]), Text(lost[1])] if lost else []
    if seeds:
        care.append(
            Text(
                f"Values are means over {seeds['n']} simulated worlds; intervals are 95 % t intervals "
                "between worlds, so they hold for a new world of this kind and not only for this one.",
                "note",
            )
        )
    care += [Text(warning, "caution") for warning in answer.warnings]
    care += [Text(note, "small") for note in answer.notes]
    return Section(
        "",
        answer.headline,
        parts=(
            Tiles(tiles(metrics, answer.arm) if answer.arm else tied_tiles(metrics, answer.arms)),
            Columns((Stack(reasons), Stack(care)), "sides"),
        ),
        kind="answer",
        label="Answer",
    )


def tiles(metrics: Mapping[str, Any], arm: str) -> list[Tile]:
    """The recommended arm's numbers, large: lifts of revenue per request, RPM and CTR, and RCS."""
    made = []
    for name, own, base in key_figures(metrics, arm):
        percent = scaled(own, 100.0)
        is_level = name == "RCS"
        made.append(
            Tile(
                name if is_level else f"{name}, lift",
                f"{number_text(percent.value, 1, signed=not is_level)} %",
                interval_text(percent, 1, signed=not is_level),
                _base_text(name, base, metrics["baseline"]),
            )
        )
    return made


def tied_tiles(metrics: Mapping[str, Any], arms: Sequence[str]) -> list[Tile]:
    """For arms that are not told apart, the lift of revenue per request of each of the first few."""
    made = []
    for arm in arms[:MOST_TILES]:
        name, own, base = key_figures(metrics, arm)[0]
        percent = scaled(own, 100.0)
        made.append(
            Tile(
                f"{arm}: {name}, lift",
                f"{number_text(percent.value, 1, signed=True)} %",
                interval_text(percent, 1, signed=True),
                _base_text(name, base, metrics["baseline"]),
            )
        )
    return made


def _base_text(name: str, base: Estimate, baseline: str) -> str:
    """What the baseline has, in the unit of the measure."""
    if base.value is None:
        return ""
    if name in ("Revenue per request", "RPM"):
        return f"{baseline}: {number_text(base.value, decimals_for([base.value]))}"
    return f"{baseline}: {number_text(100 * base.value, 2 if name == 'CTR' else 1)} %"
