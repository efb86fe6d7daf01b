"""What a section says, and the tables it holds."""

from cascade_sim.analysis.report.section import Text, walk


def said(section):
    """Its finding and all its paragraphs as one plain text."""
    lines = [*section.finding, *(part.text for part in walk(section) if isinstance(part, Text))]
    return " ".join(" ".join(lines).replace("\u00a0", " ").split())


def tables(section):
    """Title → table."""
    return {part.table.title: part.table for part in walk(section) if part.shape == "table"}
