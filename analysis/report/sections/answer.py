"""The answer that a page begins with: what to ship, how sure that is, and where money is lost today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.published import out_of_published_range
from cascade_sim.analysis.report.comparisons import candidates
from cascade_sim.analysis.report.decision import BRACKETS, decide, key_figures, money_lost
from cascade_sim.analysis.report.section import Columns, Heading, Part, Section, Stack, Text, Tile, Tiles
from cascade_sim.analysis.report.sections.asked import asked_kinds
from cascade_sim.analysis.statistics.estimates import (
    Estimate,
    decimals_for,
    interval_text,
    number_text,
    scaled,
)

MAX_TILES = 4


def answer_section(metrics: Mapping[str, Any]) -> Section | None:
    """The recommendation with its reasons and what to be careful of: the page's headline unless the scenario
    asks something else. Then, without another arm, only what the first answer does not say is left.
    """
    answer = decide(metrics)
    is_first = not asked_kinds(metrics)
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
    care += [Text(warning, "caution") for warning in (*answer.warnings, *out_of_published_range(metrics))]
    care += [Text(note, "small") for note in answer.notes]
    if not is_first and not candidates(metrics):
        title, rest = (lost[0], care[1:]) if lost else ("Before you rely on it", care)
        findings = [Text(finding, "finding") for finding in answer.findings]
        return Section("ship", title, parts=[*findings, *rest], short="Lost today") if rest else None
    return Section(
        "ship",
        answer.headline,
        parts=(
            tiles(metrics, answer.arm) if answer.arm else tied_tiles(metrics, answer.arms),
            Columns((Stack(reasons), Stack(care)), "sides"),
        ),
        kind="answer" if is_first else "answer second",
        label="Answer" if is_first else "Which arm to ship",
        short="Answer" if is_first else "Which arm to ship",
    )


def tiles(metrics: Mapping[str, Any], arm: str) -> Tiles:
    """The recommended arm's numbers, large: lifts of revenue per request, RPM and CTR, and RCS.

    Where as many ads are shown, RPM moves as revenue per request does and is left out.
    """
    made: list[Tile] = []
    for name, own, base in key_figures(metrics, arm):
        percent = scaled(own, 100.0)
        is_level = name == "RCS"
        text = f"{number_text(percent.value, 1, signed=not is_level)} %"
        interval = interval_text(percent, 1, signed=not is_level)
        if any((text, interval) == (tile.value, tile.interval) for tile in made):
            continue
        made.append(Tile(name if is_level else f"{name}, lift", text, interval, _base_text(name, base)))
    return Tiles(made, f"{arm} against the baseline, {metrics['baseline']}; {BRACKETS}")


def tied_tiles(metrics: Mapping[str, Any], arms: Sequence[str]) -> Tiles:
    """For arms that are not significantly different, the lift of revenue per request of each of the first
    few.
    """
    made, about = [], ""
    for arm in arms[:MAX_TILES]:
        name, own, base = key_figures(metrics, arm)[0]
        percent = scaled(own, 100.0)
        level = _base_text(name, base).removeprefix("baseline: ")
        about = f"{name}, lift over {metrics['baseline']}" + (f" ({level})" if level else "")
        text = f"{number_text(percent.value, 1, signed=True)} %"
        made.append(Tile(arm, text, interval_text(percent, 1, signed=True), ""))
    return Tiles(made, f"{about}; {BRACKETS}" if about else "")


def _base_text(name: str, base: Estimate) -> str:
    """What the baseline has, in the unit of the measure."""
    if base.value is None:
        return ""
    if name in ("Revenue per request", "RPM"):
        return f"baseline: {number_text(base.value, decimals_for([base.value]))}"
    return f"baseline: {number_text(100 * base.value, 2 if name == 'CTR' else 1)} %"
