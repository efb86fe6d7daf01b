"""The page of a sweep: one HTML file that opens from disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.report.sections.sweep import cells_table, measure_of, sweep_words
from cascade_sim.analysis.report.short_page import page
from cascade_sim.analysis.statistics.estimates import number_text

CAPTION = (
    "A point per cell; bars are 95 % intervals of its difference from the first cell (ring), paired; long "
    "ones are cut off. The dashed line joins the cells that no other beats in both measures."
)
OVER_WORLDS = (
    "Intervals are Student t intervals between worlds. Lifts are taken world by world against the first cell "
    "and then averaged, so what worlds have in common cancels. Nothing is adjusted for the number of cells "
    "looked at: of twenty lifts that are nothing, one is expected to leave its interval."
)
ONE_WORLD = (
    "One world. Intervals of values come from resampling its requests, those of lifts from pairing groups of "
    "requests with the first cell's; they cover the noise of this evaluation, not the spread between worlds, "
    "which is larger: give --seeds. Nothing is adjusted for the number of cells looked at."
)


def sweep_page(findings: Mapping[str, Any], x: str, y: str, svg: str) -> str:
    """The whole page. `svg` comes from plots_sweep; all else is escaped."""
    from markupsafe import Markup

    keys = [f"{axis['path']}: {', '.join(axis['values'])}" for axis in findings["axes"]]
    return page(
        eyebrow="Sweep",
        title=f"{findings['name']}: {measure_of(y).label} against {measure_of(x).label}",
        facts=facts(findings),
        words=sweep_words(findings, x, y),
        cautions=[],
        figure=Markup(svg),
        caption=CAPTION,
        side_title="Swept",
        side=keys,
        tables=[("All cells", cells_table(findings, x, y))],
        foot=about_intervals(findings),
    )


def about_intervals(findings: Mapping[str, Any]) -> str:
    """Where the intervals come from."""
    return OVER_WORLDS if len(findings["seeds"]) > 1 else ONE_WORLD


def facts(findings: Mapping[str, Any]) -> list[str]:
    """How many cells, which arm, which worlds, how much traffic."""
    seeds, n = findings["seeds"], len(findings["cells"])
    worlds = (
        f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} worlds (seeds {seeds[0]} to {seeds[-1]})"
    )
    requests = f"{number_text(findings['requests'], 0)} requests per cell and world"
    return [f"{n} cells" if n > 1 else "1 cell", f"arm {findings['arm']}", worlds, requests]
