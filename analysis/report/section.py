"""What a page is made of: sections, and the parts they hold in order; the template draws a part by its shape.

A section is a function of the metrics that gives a `Section`, or None for a study that lacks its data:

>>> from cascade_sim.analysis.report.tables import Cell, Row, Table
>>> table = Table("Sizes", "Arm", ["ads"], [Row("small", [Cell("50")])])
>>> section = Section("sizes", "How many ads are ranked?", ("small ranks 50.",), (TablePart(table), Text("")))
>>> [part.shape for part in section.parts]
['table']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar

from cascade_sim.analysis.report.tables import Table


@dataclass(frozen=True)
class Text:
    """A paragraph. `kind`: plain (empty), "small", "note", "caution" or "finding". Its markup is escaped."""

    shape: ClassVar[str] = "text"
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Heading:
    """A heading below the section's own."""

    shape: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class TablePart:
    """A table; `margins` shows intervals as ± half width. Without a table there is no part."""

    shape: ClassVar[str] = "table"
    table: Table | None
    margins: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure by its file name. `draw` gives None where the metrics lack its data; `title` is read aloud."""

    shape: ClassVar[str] = "figure"
    name: str
    draw: Callable[[Mapping[str, Any]], Any]
    title: str
    caption: str


@dataclass(frozen=True)
class Bullets:
    """A bulleted list, a line of text per bullet."""

    shape: ClassVar[str] = "bullets"
    lines: Sequence[str]


@dataclass(frozen=True)
class Terms:
    """(term, its name in files or nothing, what it is); `kind` is "glossary" or "pairs"."""

    shape: ClassVar[str] = "terms"
    rows: Sequence[tuple[str, str, str]]
    kind: str


@dataclass(frozen=True)
class Code:
    """Text of a file, as it is."""

    shape: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True)
class Tile:
    """A number shown large, with its interval and the baseline's; `tone`: "down" where it gets worse."""

    label: str
    value: str
    interval: str
    base: str
    tone: str = ""


@dataclass(frozen=True)
class Tiles:
    """The main numbers of a run, side by side; `about` says once what they have in common."""

    shape: ClassVar[str] = "tiles"
    tiles: Sequence[Tile]
    about: str = ""


@dataclass(frozen=True)
class _Group:
    """Parts in order; those that hold nothing are left out."""

    parts: Sequence[Part | None]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(part for part in self.parts if not _is_empty(part)))


@dataclass(frozen=True)
class Stack(_Group):
    """One column of several parts."""

    shape: ClassVar[str] = "stack"


@dataclass(frozen=True)
class Columns(_Group):
    """Parts side by side. `kind`: "figures", "figures wide" (the second is wider), "figures even", …"""

    shape: ClassVar[str] = "columns"
    kind: str = "figures"


@dataclass(frozen=True)
class Details(_Group):
    """Parts that are folded away under a line; `arm` is whose they are, for a page that can switch it off."""

    shape: ClassVar[str] = "details"
    summary: str
    arm: str = ""


Part = Text | Heading | TablePart | Figure | Bullets | Terms | Code | Tiles | Stack | Columns | Details


@dataclass(frozen=True)
class Section:
    """A question of the page with its answer in words (`finding`, a line each) and then what it rests on.

    `rests_on_data`: left out where neither a table nor a drawn figure remains. `kind` and `label` are for a
    section that looks unlike the others. `short`: its name in the contents, where the title is too long.
    `is_folded`: what the answer rests on is folded away.
    """

    id: str
    title: str
    finding: Sequence[str] = ()
    parts: Sequence[Part | None] = ()
    rests_on_data: bool = False
    kind: str = ""
    label: str = ""
    short: str = ""
    is_folded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "finding", tuple(line for line in self.finding if line))
        object.__setattr__(self, "parts", tuple(part for part in self.parts if not _is_empty(part)))

    def is_shown(self, drawn: Iterable[str]) -> bool:
        """Whether anything is left of it with these figures drawn."""
        names = set(drawn)
        return not self.rests_on_data or any(
            part.shape == "table" or (isinstance(part, Figure) and part.name in names) for part in walk(self)
        )

    def holds(self, drawn: Iterable[str]) -> str:
        """How much is folded away: "2 tables, 1 figure"; empty without any."""
        names, parts = set(drawn), list(walk(self))
        counts = {
            "table": sum(part.shape == "table" for part in parts),
            "figure": sum(isinstance(part, Figure) and part.name in names for part in parts),
        }
        return ", ".join(f"{n} {what}{'s' if n > 1 else ''}" for what, n in counts.items() if n)

    @property
    def leading(self) -> list[Text]:
        """The paragraphs it begins with: they are read even where the rest is folded away."""
        return list(takewhile(lambda part: isinstance(part, Text), self.parts))  # type: ignore[arg-type]

    @property
    def figures(self) -> list[Figure]:
        """Its figures in the order of the page."""
        return [part for part in walk(self) if isinstance(part, Figure)]


def _is_empty(part: Part | None) -> bool:
    if isinstance(part, Text):
        return not part.text
    if isinstance(part, TablePart):
        return part.table is None
    return part is None or (isinstance(part, Tiles) and not part.tiles)


def walk(group: Section | Stack | Columns | Details) -> Iterator[Part]:
    """Every part, those inside of others too."""
    for part in group.parts:
        if part is not None:
            yield part
        if isinstance(part, Stack | Columns | Details):
            yield from walk(part)


def headline_text(section: Section) -> str:
    """Title and answer as one text."""
    return "\n".join([section.title, *section.finding])


def body_text(section: Section, drawn: Iterable[str]) -> str:
    """All that is read of its parts but code, as one text; of figures, those that are `drawn`."""
    names, lines = set(drawn), list[str]()
    for part in walk(section):
        if isinstance(part, Text | Heading):
            lines.append(part.text)
        elif isinstance(part, Figure):
            lines += [part.title, part.caption] if part.name in names else []
        elif isinstance(part, Bullets):
            lines += part.lines
        elif isinstance(part, Details):
            lines.append(part.summary)
        elif isinstance(part, Tiles):
            lines += [part.about, *(tile.label for tile in part.tiles)]
        elif isinstance(part, TablePart) and part.table is not None:
            table = part.table
            lines += [table.corner, *table.columns, *(heading for heading, _ in table.groups)]
            lines += [row.label for row in table.rows]
    return "\n".join(lines)


def titled(heading: str, table: Table | None, *after: Part, margins: bool = False) -> list[Part]:
    """A table under a heading, and what belongs to it; nothing without the table."""
    return [] if table is None else [Heading(heading), TablePart(table, margins), *after]
