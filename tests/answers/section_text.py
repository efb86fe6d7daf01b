"""What a section says, and the tables it holds."""

import html
import re

from answers.table_text import plain
from cascade_sim.analysis.report.section import Text, walk


def said(section):
    """Its finding and all its paragraphs as one plain text."""
    return plain(
        " ".join([*section.finding, *(part.text for part in walk(section) if isinstance(part, Text))])
    )


def tables(section):
    """Title → table."""
    return {part.table.title: part.table for part in walk(section) if part.shape == "table"}


def text_of(page):
    """What a reader sees of a page."""
    return plain(html.unescape(re.sub(r"<[^>]+>", " ", page)))


def section_text(page, name):
    """What a reader sees of one section of a page."""
    (part,) = re.findall(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    return text_of(part)


def clauses(text):
    """A text cut at full stops and semicolons."""
    return [clause for clause in re.split(r"[.;](?:\s|$)", plain(text)) if clause]


def says(text, *parts):
    """Whether a single clause holds these names, numbers and key words in this order, whatever lies between.

    They are held as a whole: neither is "logloss" in "logloss-med", nor "4.0 %" in "14.0 %" or "+4.0 %".
    """
    pattern = ".*?".join(rf"(?<![\w.+−-]){re.escape(part)}(?![\w-]|[.,]\d)" for part in parts)
    return any(re.search(pattern, clause) for clause in clauses(text))
