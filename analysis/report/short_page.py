"""The page of a what-if, and other short pages of tables: one HTML file that opens from disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cascade_sim.analysis.report.cells import Table
from cascade_sim.analysis.report.figures.whatif import is_curve
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
