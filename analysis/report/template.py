"""Every page that the project writes: a head, sections and a foot, in one HTML file that opens from disk."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from markupsafe import Markup, escape

from cascade_sim.analysis.metrics.catalogue import TERMS
from cascade_sim.analysis.report.figures.style import color_rules, themed
from cascade_sim.analysis.report.section import Section, body_text, headline_text
from cascade_sim.foundation.terminal import in_page

MAX_SWITCHES = 14  # two lines of a page
# The longest first: a term may be a part of another.
TERM = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(TERMS, key=len, reverse=True)))})(?![\w-])")


@dataclass(frozen=True)
class Page:
    """Head, sections and foot of an HTML file."""

    title: str
    eyebrow: str
    heading: str
    facts: Sequence[str]
    sections: Sequence[Section]
    foot: str = ""
    arms: Sequence[str] = ()  # those that can be switched off
    switches: str = "Arms"  # what they are

    @property
    def has_many_arms(self) -> bool:
        """Whether their switches are folded away: they would be between the reader and the answer."""
        return len(self.arms) > MAX_SWITCHES

    def contents(self, drawn: Iterable[str]) -> list[tuple[str, str]]:
        """(anchor, name) of every section that can be jumped to; empty where there is little to choose."""
        shown = [section for section in self.sections if section.id and section.is_shown(drawn)]
        return [(s.id, s.short or s.title) for s in shown] if len(shown) > 2 else []


SCRIPT = (Path(__file__).parent / "report_script.js").read_text(encoding="utf-8")


def policy() -> str:
    """What a browser may do with a page: show it and run the one script; fetch nothing."""
    digest = b64encode(sha256(SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def with_terms(text: str) -> Markup:
    """A heading or label, its terms marked with what they mean. Escaped."""
    return Markup(
        TERM.sub(
            lambda match: Markup('<abbr title="{}">{}</abbr>').format(TERMS[match.group()], match.group()),
            str(escape(text)),
        )
    )


CODE = re.compile(r"`([^`\n]+)`")


def with_code(text: str) -> Markup:
    """A sentence; text between backticks is code. Escaped."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


def definitions(sections: Sequence[Section], drawn: Iterable[str]) -> list[tuple[list[str], list[str]]]:
    """Per section the terms that appear there first: in its title and answer, and in what follows."""
    seen: set[str] = set()
    found = []
    for section in sections:
        places: list[list[str]] = []
        is_read = section.is_shown(drawn) and section.id != "background"  # which has the glossary
        for text in (headline_text(section), body_text(section, drawn)) if is_read else ("", ""):
            terms = TERM.findall(text)
            meanings = "\n".join(TERMS[term] for term in terms if term not in seen)  # they use terms, too
            new = [term for term in dict.fromkeys([*terms, *TERM.findall(meanings)]) if term not in seen]
            seen |= set(new)
            places.append(new)
        found.append((places[0], places[1]))
    return found


def page_html(page: Page, svgs: Mapping[str, str]) -> str:
    """A page as HTML; the figures (name → SVG) are trusted, all else is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"with_terms": with_terms, "with_code": with_code}
    figures = {name: Markup(themed(svg)) for name, svg in svgs.items()}
    html = (
        environment.get_template("page_template.html")
        .render(
            page=page,
            figures=figures,
            terms=TERMS,
            definitions=definitions(page.sections, figures),
            script=Markup(SCRIPT),
            figure_colors=Markup(color_rules()),
            policy=policy(),
        )
        .rstrip()
        + "\n"
    )
    return in_page(html)  # as a whole: what is written out in one place is the same name in another
