"""The page of a what-if, and other short pages of tables: one HTML file that opens from disk.

The page of a sweep: one HTML file that opens from disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cascade_sim.analysis.report.cells import Table
from cascade_sim.analysis.report.figures.whatif import is_curve
from cascade_sim.analysis.report.sections.sweep import cells_table, measure_of, sweep_words
from cascade_sim.analysis.report.sections.whatif import (
    measures_table,
    pairing_words,
    point_label,
    points_table,
    settings_text,
    what_if_words,
)
from cascade_sim.analysis.statistics.estimates import finite, number_text

CURVE = "Dashed: today. The band and the bars are paired 95 % intervals."
LIFTS = "Lifts on the same requests; bars are paired 95 % intervals."
FOOT = (
    "They come from resampling the requests, the same for both sides; over several worlds, from the worlds."
)


def what_if_page(answer: Mapping[str, Any], svg: str) -> str:
    """The page of one question. `svg` comes from answer_image; all else is escaped."""
    from markupsafe import Markup

    several = len(answer["points"]) > 1
    tables = [("Side by side", points_table(answer))] if several else []
    for point in answer["points"]:
        heading = settings_text(point["settings"])
        tables.append((heading, measures_table({**answer, "points": [point]})))
    return page(
        eyebrow="What if",
        title=_title(answer),
        facts=answer_facts(answer),
        words=[what_if_words(answer), pairing_words(answer)],
        cautions=answer.get("notes") or [],
        figure=Markup(svg),
        caption=CURVE if is_curve(answer) else LIFTS,
        side_title="Held fixed",
        side=answer["held_fixed"],
        tables=tables,
        foot=FOOT,
    )


def _title(answer: Mapping[str, Any]) -> str:
    if not answer.get("knob"):
        return settings_text(answer["points"][0]["settings"])
    values = [point_label(answer, point) for point in answer["points"]]
    return f"{answer['knob']} = {', '.join(values)}"


def answer_facts(answer: Mapping[str, Any]) -> list[str]:
    """Which run, which arm, how much traffic."""
    seeds = answer.get("seeds")
    worlds = f"{seeds['n']} worlds" if seeds else f"seed {answer.get('seed')}"
    requests = number_text(finite(answer.get("requests")), 0)
    return [str(answer.get("run")), f"arm {answer['arm']}", worlds, f"{requests} requests on both sides"]


def page(
    *,
    eyebrow: str,
    title: str,
    facts: Sequence[str],
    words: Sequence[str],
    cautions: Sequence[str],
    figure: Any,
    caption: str,
    side_title: str,
    side: Sequence[str],
    tables: Sequence[tuple[str, Table]],
    foot: str,
) -> str:
    """A page of words, one figure (trusted SVG, or empty) and tables."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made = environment.get_template("whatif_template.html").render(
        eyebrow=eyebrow, title=title, facts=facts, words=words, cautions=cautions, figure=figure,
        caption=caption, side_title=side_title, side=side, tables=tables, foot=foot,
    )  # fmt: skip
    return made.rstrip() + "\n"


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
