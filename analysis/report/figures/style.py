"""How figures look and how they become SVG text: colours, axes, and bytes that repeat.

Labels beside points that keep out of each other's way.
"""

from __future__ import annotations

import html
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from cascade_sim.analysis.metrics.catalogue import is_reference
from cascade_sim.analysis.statistics.estimates import MINUS
from cascade_sim.foundation.loading import loading

# Okabe and Ito's palette without its yellow (too pale on white), then two that stay apart from it.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6A4C93", "#8C6D31")
REFERENCE_COLORS = {"ranker": "#222222", "pctr_only": "#6B7280", "bid_only": "#8D96A3", "random": "#ADB5BF"}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
INK, QUIET, GRID = "#1F2933", "#667080", "#E4E7EB"
# Every colour of a figure on paper → on a dark page. A file of its own keeps the first; a page has both.
DARK = {
    "#ffffff": "#1b2027", "#1f2933": "#e6e9ed", "#667080": "#9aa5b1", "#e4e7eb": "#2b323b",
    "#0072b2": "#4fa9e2", "#d55e00": "#f58a4b", "#009e73": "#33c79a", "#cc79a7": "#e39cc4",
    "#e69f00": "#f2b632", "#56b4e9": "#8ad0f5", "#6a4c93": "#a98bd6", "#8c6d31": "#c4a25c",
    "#222222": "#e6e9ed", "#6b7280": "#9ba4b2", "#8d96a3": "#7f8998", "#adb5bf": "#737d8a",
    "#b8c0ca": "#4a5460", "#c3cad3": "#4a5460", "#eef0f3": "#262d36", "#dce8f2": "#24384a",
    "#c9cfd6": "#3a434e", "#9aa5b1": "#6b7683", "#e3e7ec": "#2b333d", "#d5dae1": "#353e49",
    "#fefefe": "#f4f6f8", "#3c6e91": "#3f7399", "#f2d0a4": "#80612f", "#e07a3f": "#b4592a",
    "#a9b4c2": "#5a6573",
}  # fmt: skip
TAG, COLOR = re.compile(r"<[a-zA-Z][^>]*>"), re.compile(r"(?<=[ \":])#[0-9a-f]{6}(?=[;\"])", re.IGNORECASE)
ON_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # lettering that covers lines behind it
CROWD = 14  # names beside points beyond which they give way to each other
ARMS = "arms:"  # how the id of a group begins that belongs to arms
OF_ARMS = re.compile(rf'<g id="{ARMS}([0-9a-f]*)">')
WIDTH = 4.25  # inches: narrow enough that a phone shrinks the lettering only a little
LEAST = 8.0  # points: the smallest lettering; on a phone some 10 pixels

# On matplotlib's defaults. The first lines are what is left of seaborn's "ticks" under the rest: seaborn
# itself takes two seconds to import, most of them for statistics that no figure asks for.
RC: dict[str, Any] = {
    "xtick.direction": "out",
    "ytick.direction": "out",
    "xtick.top": False,
    "xtick.bottom": True,
    "ytick.left": True,
    "ytick.right": False,
    "axes.grid": False,
    "axes.spines.left": True,
    "axes.spines.bottom": True,
    "axes.spines.right": True,
    "axes.spines.top": True,
    "grid.linestyle": "-",
    "lines.solid_capstyle": "round",
    "patch.edgecolor": "w",
    "patch.force_edgecolor": True,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.labelsize": 8.5,
    "axes.titlesize": 9.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#B8C0CA",
    "axes.linewidth": 0.8,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: a smaller file, searchable, and read aloud by screen readers
    "text.parse_math": False,  # a name with dollar signs is a name
    "axes.unicode_minus": True,
}


def load_matplotlib() -> None:
    """Import matplotlib, whatever MPLBACKEND says: nothing here needs a window, and a wrong name fails."""
    wanted = os.environ.pop("MPLBACKEND", None) if "matplotlib" not in sys.modules else None
    try:
        with loading():
            import matplotlib
            import matplotlib.backends.backend_agg
            import matplotlib.backends.backend_svg
            import matplotlib.figure

        if wanted is not None:
            with suppress(ValueError):  # a notebook's own is put back
                matplotlib.rcParams["backend"] = wanted
    finally:
        if wanted is not None:
            os.environ["MPLBACKEND"] = wanted


@contextmanager
def style(name: str) -> Iterator[None]:
    """The look; the figure's name salts the ids that matplotlib makes up."""
    load_matplotlib()
    import matplotlib

    look: dict[Any, Any] = {**RC, "svg.hashsalt": f"cascade:{name}"}
    with matplotlib.rc_context(look):
        yield


def blank(height: float, **grid: Any) -> tuple[Any, Any]:
    """A figure without pyplot's global state, and its axes."""
    load_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)  # a renderer to measure text with
    return figure, figure.subplots(**grid)


def bare(axes: Any, *, grid: str = "both", left: bool = True) -> None:
    """Leave only what is read: no box, quiet grid lines."""
    for side, is_shown in (("top", False), ("right", False), ("left", left), ("bottom", True)):
        axes.spines[side].set_visible(is_shown)
    axes.grid(visible=grid in ("both", "x"), axis="x")
    axes.grid(visible=grid in ("both", "y"), axis="y")
    if not left:
        axes.tick_params(axis="y", length=0)


def svg_text(figure: Any, name: str, title: str) -> str:
    """The figure as an <svg> element: no prolog, no date, ids that no other figure of the page has."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = OF_ARMS.sub(_arms_named, text)
    text = re.sub(r'(\bid="|xlink:href="#|url\(#)', lambda match: f"{match.group(1)}{name}-", text)
    label = html.escape(title, quote=True)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return re.sub(r"[ \t]+\n", "\n", text)


def mark(artists: Iterable[Any], *arms: str) -> None:
    """What is drawn by these artists belongs to the arms: a page that switches one of them off hides it."""
    for artist in artists:
        artist.set_gid(ARMS + json.dumps(arms).encode().hex())  # names may hold whatever ids may not
        line = getattr(artist, "arrow_patch", None)  # from a label to its point
        if line is not None:
            line.set_gid(artist.get_gid())


@contextmanager
def of_arms(axes: Any, *arms: str) -> Iterator[None]:
    """What is added to the axes meanwhile belongs to the arms."""
    before = set(axes.get_children())
    yield
    mark((artist for artist in axes.get_children() if artist not in before), *arms)


def mark_legend(legend: Any, names: Sequence[str], arms: Iterable[str]) -> None:
    """Handles and names of a legend's arms belong to them; `names` are its entries in order."""
    own = set(arms)
    for name, handle, text in zip(names, legend.legend_handles, legend.get_texts(), strict=True):
        if name in own:
            mark((handle, text), name)


def _arms_named(match: re.Match[str]) -> str:
    """A group's id that lists arms → an attribute, of which the same may be on a page more than once."""
    arms = json.loads(bytes.fromhex(match.group(1)))
    name, value = ("data-arm", arms[0]) if len(arms) == 1 else ("data-arms", json.dumps(arms))
    return f'<g {name}="{html.escape(value, quote=True)}">'


def themed(svg: str) -> str:
    """A figure for a page: its colours are the page's, which knows them for light and dark."""

    def named(match: re.Match[str]) -> str:
        color = match.group().lower()
        return f"var(--fig-{color[1:]}, {color})" if color in DARK else match.group()

    # A plain attribute knows no variables, so only what is in a style is named.
    def tag(match: re.Match[str]) -> str:
        return re.sub(r'style="[^"]*"', lambda style: COLOR.sub(named, style.group()), match.group())

    return TAG.sub(tag, svg)


def color_rules() -> str:
    """The page's colours of figures as CSS."""
    light, dark = (
        " ".join(f"--fig-{color[1:]}: {shown};" for color, shown in zip(DARK, shades, strict=True))
        for shades in (DARK, DARK.values())
    )
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


def drawn(
    draw: Callable[[Mapping[str, Any]], Any], metrics: Mapping[str, Any], name: str, title: str
) -> str | None:
    """A figure in the common look as SVG text; None where the metrics lack its data."""
    with style(name):
        figure = draw(metrics)
        return None if figure is None else svg_text(figure, name, title)


def label(name: str) -> str:
    """A name for a legend; matplotlib drops entries that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def short(name: str, limit: int = 20) -> str:
    """A name beside an axis: a very long one is cut so that the plot keeps its room."""
    return name if len(name) <= limit else name[: limit - 1] + "…"


def percent_tick(value: float, _position: int | None = None) -> str:
    """10 to the value as percent: -3 → 0.1 %."""
    return f"{100 * 10.0**value:.10g} %"


def signed_tick(value: float, _position: int | None = None) -> str:
    """A lift in percent on an axis: +5, 0, −5."""
    return "0" if abs(value) < 1e-9 else f"{'+' if value > 0 else MINUS}{abs(value):g}"


def arm_colors(metrics: Mapping[str, Any]) -> dict[str, str]:
    """One colour per arm or model, the same in every figure; a model called like an arm shares its colour.

    The baseline comes first, then the other arms and models in the file's order; reference arms are grey, and
    the ranking stage's model is as dark as the arm that has it in the pre-ranking stage.
    """
    ranker = ranker_model(metrics)
    names = [metrics["baseline"], *metrics["arms"], *(metrics.get("models") or {}), *score_models(metrics)]
    colors = {}
    for name in names:
        if name in colors:
            continue
        if is_reference(name) or name == ranker:
            colors[name] = REFERENCE_COLORS["ranker" if name == ranker else name]
        else:
            taken = sum(color in COLORS for color in colors.values())
            colors[name] = COLORS[taken % len(COLORS)]
    return colors


def arm_markers(metrics: Mapping[str, Any]) -> dict[str, str]:
    """A marker per arm or model beside its colour, so that no reader depends on colour alone."""
    return {name: MARKERS[i % len(MARKERS)] for i, name in enumerate(arm_colors(metrics))}


def score_models(metrics: Mapping[str, Any]) -> list[str]:
    """Models that appear in any curve, in the file's order."""
    curves = metrics.get("curves") or {}
    names = []
    for part in (curves.get("score_distribution") or {}).values():
        names += list((part or {}).get("density") or {})
    names += list(curves.get("proxy_reliability") or {})
    return list(dict.fromkeys(names))


def ranker_model(metrics: Mapping[str, Any]) -> str | None:
    """The ranking stage's model: it has a score distribution but, being the yardstick, no proxy curve."""
    proxies = (metrics.get("curves") or {}).get("proxy_reliability")
    if not proxies:
        return None
    rest = [name for name in score_models(metrics) if name not in proxies]
    in_ablation = [row["model"] for row in metrics.get("ablation") or [] if row["model"] in rest]
    return in_ablation[-1] if in_ablation else rest[-1] if len(rest) == 1 else None


Spot = tuple[float, float, str, str]  # x and y offset in points, horizontal and vertical alignment

# Places of a label, by preference.
SPOTS: list[Spot] = [
    (reach * x, reach * y, horizontal, vertical)
    for reach in (1.0, 1.9, 3.0)
    for x, y, horizontal, vertical in (
        (7, 5, "left", "bottom"),
        (-7, 5, "right", "bottom"),
        (7, -5, "left", "top"),
        (-7, -5, "right", "top"),
        (0, 8, "center", "bottom"),
        (0, -8, "center", "top"),
        (9, 0, "left", "center"),
        (-9, 0, "right", "center"),
    )
]


def _overlap(a: Any, b: Any) -> float:
    """Area that two boxes share, in square pixels."""
    wide = min(a.x1, b.x1) - max(a.x0, b.x0)
    high = min(a.y1, b.y1) - max(a.y0, b.y0)
    return max(wide, 0.0) * max(high, 0.0)


def _outside(box: Any, frame: Any) -> float:
    """Area of the box outside the frame."""
    return box.width * box.height - _overlap(box, frame)


def place_labels(
    axes: Any,
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    colors: Sequence[str],
    bars: Sequence[tuple[float, float, float, float]],
    arms: Sequence[str] = (),
) -> None:
    """Write each name near its point, greedily choosing the spot that covers least of what is already there.

    `bars` are data boxes (x0, x1, y0, y1), one per interval bar, that labels avoid. `arms`: whose each name
    is, where names are of arms. Of more than CROWD names, one that would cover another is left out.
    """
    axes.figure.canvas.draw()  # settles the layout, so that positions in pixels are final
    taken = _drawn_boxes(axes, points, bars)
    written_boxes: list[Any] = []
    for i, (point, name, color) in enumerate(zip(points, names, colors, strict=True)):
        spot, box = _freest_spot(axes, point, name, taken)
        if len(names) > CROWD and any(_overlap(box, other) > 0 for other in written_boxes):
            continue
        written_boxes.append(box)
        is_far = abs(spot[0]) + abs(spot[1]) > 14
        line = {"arrowstyle": "-", "color": color, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
        written = _write_label(axes, point, name, spot, color=color, arrowprops=line if is_far else None)
        if arms:
            mark([written], arms[i])
        taken.append(box)


def _drawn_boxes(
    axes: Any,
    points: Sequence[tuple[float, float]],
    bars: Sequence[tuple[float, float, float, float]],
) -> list[Any]:
    """Boxes in pixels around the interval bars and the points, with a little room."""
    from matplotlib.transforms import Bbox

    to_pixels = axes.transData.transform
    boxes = []
    for x0, x1, y0, y1 in bars:
        (left, low), (right, high) = to_pixels((x0, y0)), to_pixels((x1, y1))
        boxes.append(Bbox.from_extents(left - 4, low - 3, right + 4, high + 3))
    for point in points:
        x, y = to_pixels(point)
        boxes.append(Bbox.from_extents(x - 5, y - 5, x + 5, y + 5))
    return boxes


def _freest_spot(axes: Any, point: tuple[float, float], name: str, taken: Sequence[Any]) -> tuple[Spot, Any]:
    """The spot whose label covers least of `taken` and of what lies outside, and its box in pixels."""
    renderer = axes.figure.canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    best, least = None, float("inf")
    for spot in SPOTS:
        trial = _write_label(axes, point, name, spot)
        box = trial.get_window_extent(renderer)
        trial.remove()
        covered = sum(_overlap(box, other) for other in taken)
        cost = covered + 4 * _outside(box, frame) + 0.5 * (abs(spot[0]) + abs(spot[1]))
        if best is None or cost < least - 1e-6:
            best, least = (spot, box), cost
    assert best is not None  # SPOTS is not empty
    return best


def _write_label(axes: Any, point: tuple[float, float], name: str, spot: Spot, **look: Any) -> Any:
    """Write a name at a spot beside a point; returns the annotation."""
    dx, dy, horizontal, vertical = spot
    return axes.annotate(
        name,
        point,
        (dx, dy),
        textcoords="offset points",
        ha=horizontal,
        va=vertical,
        fontsize=8.0,
        annotation_clip=False,
        **look,
    )
