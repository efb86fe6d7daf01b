"""Every page that the project writes: a head, sections and a foot, in one HTML file that opens from disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cascade_sim.analysis.report.section import Section


@dataclass(frozen=True)
class Page:
    """Head, sections and foot of an HTML file."""

    title: str
    eyebrow: str
    heading: str
    facts: Sequence[str]
    sections: Sequence[Section]
    foot: str = ""

    def contents(self, drawn: Iterable[str]) -> list[tuple[str, str]]:
        """(anchor, name) of every section that can be jumped to; empty where there is little to choose."""
        shown = [section for section in self.sections if section.id and section.is_shown(drawn)]
        return [(s.id, s.short or s.title) for s in shown] if len(shown) > 2 else []


def page_html(page: Page, svgs: Mapping[str, str]) -> str:
    """A page as HTML; the figures (name → SVG) are trusted, all else is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    figures = {name: Markup(svg) for name, svg in svgs.items()}
    return environment.get_template("page_template.html").render(page=page, figures=figures).rstrip() + "\n"
