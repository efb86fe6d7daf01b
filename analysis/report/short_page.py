"""Short pages of tables: of a what-if, of a sweep, of compared runs, of objectives on ranking files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from cascade_sim.analysis.report.figures.sweep import sweep_figure
from cascade_sim.analysis.report.figures.whatif import TITLE, answer_figure, is_curve
from cascade_sim.analysis.report.guardrails import guardrail_tiles, lift_tile
from cascade_sim.analysis.report.readings import point_label, settings_text
from cascade_sim.analysis.report.section import (
    Bullets,
    Columns,
    Figure,
    Heading,
    Part,
    Section,
    Stack,
    TablePart,
    Text,
    Tiles,
)
from cascade_sim.analysis.report.sections import ltr
from cascade_sim.analysis.report.sections.asked import what_if_changes, what_if_headline
from cascade_sim.analysis.report.sections.sweep import (
    best_cell,
    cell_changes,
    cells_guardrails,
    cells_table,
    frontier,
    in_sentence,
    measure_of,
    sweep_headline,
    sweep_words,
)
from cascade_sim.analysis.report.sections.whatif import (
    calibration_table,
    measures_table,
    pairing_words,
    points_table,
    what_if_words,
)
from cascade_sim.analysis.report.statement import statement_parts
from cascade_sim.analysis.report.tables import Table
from cascade_sim.analysis.report.template import Page, page_html
from cascade_sim.analysis.statistics.estimates import finite, lift_of, number_text

CURVE = "Dashed: current. The band and the bars are paired 95 % intervals."
LIFTS = "Lifts on the same requests; bars are paired 95 % intervals."
INTERVALS = "Brackets hold 95 % intervals; a coloured difference has an interval that excludes zero."
FOOT = (
    "They come from resampling the requests, the same for both sides; over several worlds, from the worlds."
)


def what_if_page(answer: Mapping[str, Any], svg: str) -> str:
    """The page of one question. `svg` comes from answer_image; all else is escaped."""
    figure = Figure("whatif", answer_figure, TITLE, CURVE if is_curve(answer) else LIFTS)
    words = (
        [Text(what_if_words(answer))] if answer.get("parameter") else []
    )  # a single change is in the headline
    found = what_if_changes(answer)
    about = "Guardrails: lifts over the current setting; brackets hold 95 % intervals"
    guarded: list[Part] = [Tiles(guardrail_tiles(found, "current"), about)]
    words += [Text(pairing_words(answer))]
    words += [Text(note, "caution") for note in answer.get("notes") or []]
    sections = [
        answer_section(what_if_headline(answer), (*guarded, *words, *statement_parts(answer)), figure)
    ]
    if len(answer["points"]) > 1:
        sections.append(table_section("Side by side", points_table(answer)))
    for point in answer["points"]:
        heading = settings_text(point["settings"])
        sections.append(table_section(heading, measures_table({**answer, "points": [point]})))
    calibration = calibration_table(answer)
    if calibration is not None:
        sections.append(table_section("The click model on the log's own clicks", calibration))
    return short_page("What if", _title(answer), answer_facts(answer), sections, FOOT, {"whatif": svg})


def _title(answer: Mapping[str, Any]) -> str:
    if not answer.get("parameter"):
        return settings_text(answer["points"][0]["settings"])
    values = [point_label(answer, point) for point in answer["points"]]
    return f"{answer['parameter']} = {', '.join(values)}"


def answer_facts(answer: Mapping[str, Any]) -> list[str]:
    """Which run, which arm, how much traffic."""
    seeds, replay = answer.get("seeds"), answer.get("replay")
    worlds = f"{seeds['n']} worlds" if seeds else f"seed {answer.get('seed')}"
    if replay:  # a log has no seed
        worlds = f"log completeness: {replay['level']}"
    requests = number_text(finite(answer.get("requests")), 0)
    return [str(answer.get("run")), f"arm {answer['arm']}", worlds, f"{requests} requests on both sides"]


def short_page(
    eyebrow: str,
    title: str,
    facts: Sequence[str],
    sections: Sequence[Section],
    foot: str = "",
    svgs: Mapping[str, str] | None = None,
    shown: str = INTERVALS,
    arms: Sequence[str] = (),
    switches: str = "Arms",
) -> str:
    """A page of a few sections; `shown` and the foot say how intervals and differences are shown.

    `arms` can be switched off; `switches` says what they are.
    """
    named = [
        replace(section, id=f"part-{i}") if section.title and not section.id else section
        for i, section in enumerate(sections)
    ]
    words = f"{shown} {foot}".strip()
    return page_html(Page(title, eyebrow, title, facts, named, words, arms, switches), svgs or {})


def table_section(heading: str, table: Table, short: str = "") -> Section:
    """A table under a heading of its own; `short` is its name in the contents."""
    return Section("", heading, parts=(TablePart(table),), short=short)


def answer_section(headline: str, parts: Sequence[Part], figure: Figure, about: str = "") -> Section:
    """What a short page begins with: the answer, then words and the like beside the figure they are about.

    `about`: what is answered, on a page with several answers.
    """
    return Section(
        "",
        f"{about}: {headline}" if about else headline,
        parts=(Columns((Stack(parts), figure), "sides"),),
        kind="answer",
        short=f"Answer, {about}" if about else "Answer",
    )


CAPTION = (
    "A point per cell; bars are 95 % intervals of its difference from the reference (ring), paired; long "
    "ones are cut off. The dashed line joins the cells that no other beats in both measures."
)
OVER_WORLDS = (
    "Intervals are Student t intervals between worlds. Lifts are taken world by world against the reference "
    "and then averaged, so what worlds have in common cancels. Nothing is adjusted for the number of cells "
    "looked at: of twenty lifts that are nothing, one is expected to leave its interval."
)
ONE_WORLD = (
    "One world. Intervals of values come from resampling its requests, those of lifts from pairing groups of "
    "requests with the reference's; they cover the noise of this evaluation, not the spread between worlds, "
    "which is larger: give `--seeds`. Nothing is adjusted for the number of cells looked at."
)


def sweep_page(findings: Mapping[str, Any], x: str, y: str, svg: str) -> str:
    """The whole page. `svg` comes from sweep_svg; all else is escaped."""
    keys = [f"{axis['path']}: {', '.join(axis['values'])}" for axis in findings["axes"]]
    in_words = f"{in_sentence(y)} against {in_sentence(x)}"
    names = f"{in_words[0].upper()}{in_words[1:]}"
    figure = Figure("sweep", partial(sweep_figure, x=x, y=y), f"{names}, a point per cell", CAPTION)
    sections = [
        answer_section(
            sweep_headline(findings, x, y),
            (
                *_best_cell_tiles(findings, x, y),
                *(Text(line) for line in sweep_words(findings, x, y)[1:]),
                *(Heading("Swept"), Bullets(keys)),
                *statement_parts(findings),
            ),
            figure,
        ),
        table_section("All cells", cells_table(findings, x, y)),
    ]
    guarded = cells_guardrails(findings)
    if guarded is not None:
        sections.append(table_section("Guardrails of all cells", guarded, "Guardrails"))
    title = f"{findings['name']}: {in_words}"
    return short_page("Sweep", title, facts(findings), sections, about_intervals(findings), {"sweep": svg})


def _best_cell_tiles(findings: Mapping[str, Any], x: str, y: str) -> list[Part]:
    """Of the cell that is best in y: its lift and its guardrails; nothing of the reference."""
    if not frontier(findings, x, y) or not (top := best_cell(findings, x, y, y)):
        return []
    cell = findings["cells"][top]
    tiles = [
        lift_tile(measure_of(y).label, lift_of(cell["measures"].get(y))),
        *guardrail_tiles(cell_changes(findings, top), "reference"),
    ]
    return [Tiles(tiles, "Lifts of the best cell over the reference; brackets hold 95 % intervals")]


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


def ltr_page(findings: Mapping[str, Any], svgs: Mapping[str, str]) -> str:
    """The page of objectives on ranking files. `svgs` are the figures by name; all else is escaped."""
    pareto, drift = ltr.ltr_figures(findings)
    cautions = [Text(hint, "caution") for hint in ltr.hints(findings)]
    notes = [Text(" ".join(ltr.notes(findings)), "small")]
    words = [Text(line) for line in ltr.best_words(findings)]
    sections = [
        Section(
            "",
            ltr.headline(findings),
            parts=(Columns((Stack(words), Stack(cautions)), "sides"),),
            kind="answer",
            short="Answer",
        ),
        Section("", "Rankers", (), (TablePart(ltr.rankers_table(findings)), *notes)),
        Section("", "Order against scale, and the mean score while training", (), (Columns((pareto, drift)),),
                short="Figures"),
    ]  # fmt: skip
    for heading, table, about in (
        ("Gaps", ltr.gaps_table(findings), ltr.about_gaps(findings) if findings.get("folds") else ""),
        (
            "By rule",
            ltr.rules_table(findings),
            " ".join(ltr.about_rules(findings)) if "rival" in findings else "",
        ),
        ("Approaches", ltr.approaches_table(findings), ltr.about_approaches(findings)),
        ("Strict wins", ltr.wins_table(findings), " ".join(ltr.about_wins(findings))),
        ("Pareto frontier", ltr.frontier_table(findings), f"{ltr.about_frontier(findings)}."),
    ):
        if table is not None:
            sections.append(Section("", heading, (), (TablePart(table), Text(about, "small"))))
    title = f"NDCG@10 and {findings['loss']} by objective"
    objectives = list(dict.fromkeys(row["objective"] for row in findings["rows"]))
    return short_page(
        "Learning to rank", title, ltr.facts(findings), sections, "", svgs, shown="", arms=objectives,
        switches="Objectives",
    )  # fmt: skip
