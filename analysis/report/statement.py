"""What both sides of an answer share, and which models learned again, for pages and terminals."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from cascade_sim.analysis.report.section import Bullets, Heading, Part

HEADINGS = {"held_fixed": "Held fixed", "learned_again": "Learned again", "intervals": "Intervals"}


def _said(answer: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    for key, heading in HEADINGS.items():
        if answer.get(key):
            yield heading, list(answer[key])


def statement_parts(answer: Mapping[str, Any]) -> list[Part]:
    """The statement of an answer as parts of a page; nothing where it has none."""
    parts: list[Part] = []
    for heading, lines in _said(answer):
        parts += [Heading(heading), Bullets(lines)]
    return parts


def statement_lines(answer: Mapping[str, Any], width: int) -> list[str]:
    """The same for a terminal."""
    lines = []
    for heading, said in _said(answer):
        lines.append(f"{heading}:")
        lines += [
            textwrap.fill(line, max(width, 40), initial_indent="  ", subsequent_indent="    ")
            for line in said
        ]
    return [*lines, ""] if lines else []
