"""On a page figures take its colours, light and dark; in files of their own they keep them."""

import re
import subprocess
import sys

from cascade_sim.analysis.report.figures.style import DARK, RC, bare, blank, color_rules, style, themed

HEX = re.compile(r'style="[^"]*"')


def luminance(color):
    """Of a colour as the contrast of the web's guidelines counts it."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_colour_of_every_figure_has_a_dark_one(figures):
    used = {
        color.lower()
        for svg in figures.values()
        for style in HEX.findall(svg)
        for color in re.findall(r"#[0-9a-fA-F]{6}", style)
    }
    assert used - set(DARK) == set()


def test_a_page_names_the_colours_and_a_file_keeps_them(figures):
    for svg in figures.values():
        assert "var(" not in svg
        shown = themed(svg)
        assert "var(--fig-1f2933, #1f2933)" in shown
        assert re.sub(r"var\(--fig-\w+, (#\w+)\)", r"\1", shown) == svg


def test_names_in_a_figure_are_left_as_they_are():
    assert themed('<text style="fill: #0072b2">style="fill: #0072b2;"</text>').endswith(
        '>style="fill: #0072b2;"</text>'
    )


def test_lines_and_lettering_stand_out_on_both_papers():
    rules = color_rules()
    assert "prefers-color-scheme: dark" in rules and "--fig-ffffff: #1b2027" in rules
    series = ("#1f2933", "#667080", "#0072b2", "#d55e00", "#009e73", "#6a4c93", "#8c6d31", "#222222")
    assert min(contrast(color, "#ffffff") for color in series) > 3
    assert min(contrast(DARK[color], DARK["#ffffff"]) for color in series) > 4.5
    assert RC["text.color"].lower() in DARK


def test_the_look_begins_as_seaborns_ticks():
    import seaborn

    ours = {"axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "text.color", "grid.color"}
    unused = {
        "font.family",
        "font.sans-serif",
        "image.cmap",
    }  # one family; no images without a map
    ticks = {key: value for key, value in seaborn.axes_style("ticks").items() if key not in ours | unused}
    assert ticks == {key: RC[key] for key in ticks}


def test_axes_are_bared_as_by_seaborn():
    import seaborn

    for left in (True, False):
        with style("either"):
            own, theirs = blank(2.0)[1], blank(2.0)[1]
            bare(own, left=left)
            seaborn.despine(ax=theirs, left=not left)
        shown = [{side: spine.get_visible() for side, spine in axes.spines.items()} for axes in (own, theirs)]
        assert shown[0] == shown[1]


def test_a_figure_needs_no_library_but_matplotlib():
    code = (
        "import sys; from cascade_sim.analysis.report.figures import style\n"
        "def draw(metrics):\n"
        "    figure, axes = style.blank(2.0)\n"
        "    style.bare(axes)\n"
        "    return figure\n"
        "assert style.drawn(draw, {}, 'name', 'title').startswith('<svg')\n"
        "print([m for m in ('seaborn', 'pandas', 'scipy.stats', 'matplotlib.pyplot') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
