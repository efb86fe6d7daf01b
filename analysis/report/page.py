"""The report: one HTML page that opens from disk and answers which arm to ship, how sure that is, and why.

A section is on the page if its function is in SECTIONS; its figures are drawn because it holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cascade_sim.analysis.report.comparisons import ordered_arms
from cascade_sim.analysis.report.figures.style import drawn
from cascade_sim.analysis.report.readings import no_evidence
from cascade_sim.analysis.report.section import Figure, Section
from cascade_sim.analysis.report.sections.ablation import ablation_section
from cascade_sim.analysis.report.sections.answer import answer_section
from cascade_sim.analysis.report.sections.arms import arms_section
from cascade_sim.analysis.report.sections.asked import asked_kinds, asked_section, market_question
from cascade_sim.analysis.report.sections.background import background_section
from cascade_sim.analysis.report.sections.cost import cost_section
from cascade_sim.analysis.report.sections.critical_bids import critical_bids_section
from cascade_sim.analysis.report.sections.funnel import funnel_section
from cascade_sim.analysis.report.sections.markets.compute import compute_section
from cascade_sim.analysis.report.sections.markets.designs import design_section
from cascade_sim.analysis.report.sections.markets.drift import drift_section
from cascade_sim.analysis.report.sections.markets.learning import learning_section
from cascade_sim.analysis.report.sections.markets.market import market_section
from cascade_sim.analysis.report.sections.models import models_section
from cascade_sim.analysis.report.sections.money import money_section
from cascade_sim.analysis.report.sections.objectives import objectives_section
from cascade_sim.analysis.report.sections.off_policy import off_policy_section
from cascade_sim.analysis.report.sections.orders import orders_section
from cascade_sim.analysis.report.sections.pareto import pareto_section
from cascade_sim.analysis.report.sections.replayed import replayed_section
from cascade_sim.analysis.report.sections.training import training_section
from cascade_sim.analysis.report.sections.whatif import what_if_section
from cascade_sim.analysis.report.template import Page, page_html
from cascade_sim.analysis.statistics.estimates import finite, number_text

Builder = Callable[[Mapping[str, Any]], Section | None]
# In the order of the page; each gives None for a study that lacks its data.
SECTIONS: list[Builder] = [
    asked_section,
    answer_section,
    arms_section,
    replayed_section,
    ablation_section,
    orders_section,
    funnel_section,
    cost_section,
    models_section,
    training_section,
    objectives_section,
    pareto_section,
    money_section,
    critical_bids_section,
    what_if_section,
    off_policy_section,
    market_section,
    design_section,
    compute_section,
    drift_section,
    learning_section,
]

# What a scenario asks → the sections that answer it in full. They come before those on the arms.
ASKED: dict[str, list[Builder]] = {
    "what_if": [what_if_section],
    "off_policy": [off_policy_section],
    "market": [market_section, design_section, compute_section, drift_section, learning_section],
}


def sections_of(metrics: Mapping[str, Any]) -> list[Section]:
    """The sections that a study has data for: what was asked, then the arms, then the rest, folded."""
    asked = [build for kind in asked_kinds(metrics) for build in _asked(metrics, kind) if build in SECTIONS]
    order = [asked_section, *asked, *(build for build in SECTIONS if build not in (asked_section, *asked))]
    unfolded = {asked_section, answer_section, asked[0] if asked else arms_section}
    sections = [
        section if build in unfolded else replace(section, is_folded=True)
        for build in order
        if build in SECTIONS and (section := build(metrics)) is not None
    ]
    headline = no_evidence(metrics)
    if headline and sections:
        sections[0] = replace(sections[0], title=headline)
    return sections


def _asked(metrics: Mapping[str, Any], kind: str) -> list[Builder]:
    """The sections on what a study asks; of a market, that on what it is there for comes first."""
    own = {
        "designs": design_section,
        "compute": compute_section,
        "drift": drift_section,
        "learning": learning_section,
    }
    first = own.get(market_question(metrics)) if kind == "market" else None
    return sorted(ASKED[kind], key=lambda build: build is not first)


def figures_of(metrics: Mapping[str, Any]) -> dict[str, Figure]:
    """Every figure that the sections of a study hold, by name."""
    return {figure.name: figure for section in sections_of(metrics) for figure in section.figures}


def draw_all(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Figure name → SVG; a figure whose data the study lacks is left out."""
    figures = figures_of(metrics).values()
    svgs = {figure.name: drawn(figure.draw, metrics, figure.name, figure.title) for figure in figures}
    return {name: svg for name, svg in svgs.items() if svg is not None}


def render(
    metrics: Mapping[str, Any],
    manifest: Mapping[str, Any],
    scenario_yaml_text: str,
    svgs: Mapping[str, str],
) -> str:
    """The page for a study. `svgs` come from `draw_all`; all else is escaped.

    `metrics` may have `arm_changes`: what each arm does otherwise than the baseline, a line per key.
    """
    sections = [*sections_of(metrics), background_section(metrics, manifest, scenario_yaml_text)]
    name = str(metrics.get("name", "study"))
    headline = next(section.title for section in sections)
    return page_html(
        Page(
            f"{name}: {headline}",
            "Cascade study",
            name,
            facts(metrics, manifest),
            sections,
            arms=ordered_arms(metrics),
        ),
        svgs,
    )


def facts(metrics: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """The line under the title: which worlds, how much traffic, when."""
    told = []
    seeds = metrics.get("seeds")
    if seeds:
        names = ", ".join(str(seed) for seed in seeds.get("seeds") or [])
        told.append(f"mean over {seeds.get('n')} worlds (seeds {names})")
    elif metrics.get("replay"):
        told.append(f"a log replayed, log completeness: {metrics['replay']['level']}")
    elif metrics.get("seed") is not None:
        told.append(f"one world, seed {metrics['seed']}")
    if finite(metrics.get("requests")) is not None:
        told.append(f"{number_text(metrics['requests'], 0)} requests per arm{' and world' if seeds else ''}")
    n_arms = len(ordered_arms(metrics))
    told.append(f"{n_arms} arms" if n_arms != 1 else "1 arm")
    if manifest.get("started"):
        told.append(f"started {manifest['started']}")
    if manifest.get("status") not in (None, "complete"):
        told.append(f"status: {manifest['status']}")
    return told
