"""Picture of the package layers, from the table of tests/house/test_packages.py.

`PYTHONPATH=tests python -m house.layers_picture` writes docs/architecture.svg.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from places import ROOT

FILE = ROOT / "docs" / "architecture.svg"
TITLE = "Packages of cascade_sim in layers: a package imports only from lower layers"
CAPTION = "lowest layer: imports nothing of the package"
# Colours of a picture on a light and on a dark page.
PAGE, BAND, INK, QUIET = (
    ("#f8fafc", "#14181d"),
    ("#ffffff", "#1b2027"),
    ("#0f172a", "#e6e9ed"),
    ("#475569", "#9aa5b1"),
)
EDGE, BORDER = ("#cbd5e1", "#323a44"), ("#64748b", "#7b8794")
# Of the boxes, by height: the layers share them evenly, lowest first.
BOXES = (
    ("#f1f5f9", "#262d35"),
    ("#e2e8f0", "#2f3944"),
    ("#dbeafe", "#233c5c"),
    ("#dcfce7", "#1d4630"),
    ("#fef3c7", "#4a3d16"),
    ("#fee2e2", "#522a2c"),
    ("#f3e8ff", "#3b2a52"),
)
WIDTH, BOX, GAP, MARGIN = 400, 30, 8, 6
LETTER, PADDING = 8.8, 18.0  # width of a letter and of what is around a name


def box_width(name: str) -> float:
    return round(len(name) * LETTER + PADDING)


def rows_of(names: Sequence[str]) -> Iterator[list[str]]:
    """The names of a layer in rows that fit into the picture."""
    row: list[str] = []
    for name in sorted(names):
        if row and sum(map(box_width, [*row, name])) + GAP * len(row) > WIDTH - 4 * MARGIN:
            yield row
            row = []
        row.append(name)
    yield row


def drawing(layers: Sequence[set[str]]) -> str:
    """The picture of these layers, which are given from the lowest up."""
    shapes: list[str] = []
    y = MARGIN
    for height, layer in reversed(list(enumerate(layers))):
        rows = list(rows_of(sorted(layer)))
        band = len(rows) * (BOX + GAP) - GAP + 2 * MARGIN
        shapes.append(
            f'<rect x="{MARGIN}" y="{y}" width="{WIDTH - 2 * MARGIN}" height="{band}" rx="7" '
            f'fill="{BAND[0]}" stroke="{EDGE[0]}"/>'
        )
        fill = BOXES[height * len(BOXES) // len(layers)][0]
        for at, row in enumerate(rows):
            shapes += boxes(row, y + MARGIN + at * (BOX + GAP), fill)
        y += band + MARGIN
    total = y + 34
    shapes.append(f'<text x="{WIDTH // 2}" y="{y + 18}" fill="{QUIET[0]}" font-size="13">{CAPTION}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" width="{WIDTH}" '
        f'height="{total}" role="img" aria-labelledby="title">\n'
        f'<title id="title">{TITLE}</title>\n{style()}\n'
        f'<rect width="{WIDTH}" height="{total}" fill="{PAGE[0]}"/>\n'
        f'<g font-family="system-ui, sans-serif" font-size="14" text-anchor="middle" fill="{INK[0]}">'
    )
    return "\n".join([head, *shapes, "</g>", "</svg>", ""])


def boxes(row: Sequence[str], y: int, fill: str) -> Iterator[str]:
    """The boxes of a row, in the middle of the picture."""
    x = (WIDTH - sum(map(box_width, row)) - GAP * (len(row) - 1)) / 2
    for name in row:
        width = box_width(name)
        place = f'x="{x:g}" y="{y}" width="{width:g}" height="{BOX}"'
        yield f'<rect {place} rx="5" fill="{fill}" stroke="{BORDER[0]}"/>'
        yield f'<text x="{x + width / 2:g}" y="{y + 20}">{name}</text>'
        x += width + GAP


def style() -> str:
    """Each colour of a light page as it is on a dark one."""
    fills = [("fill", *pair) for pair in (PAGE, BAND, INK, QUIET, *BOXES)]
    lines = [
        f'  [{kind}="{light}"] {{ {kind}: {dark}; }}'
        for kind, light, dark in (*fills, ("stroke", *EDGE), ("stroke", *BORDER))
    ]
    return "\n".join(["<style>", "@media (prefers-color-scheme: dark) {", *lines, "}", "</style>"])


if __name__ == "__main__":
    from house.test_packages import LAYERS

    FILE.write_text(drawing(LAYERS), encoding="utf-8")
