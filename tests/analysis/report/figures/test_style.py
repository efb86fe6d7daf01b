"""On a page figures take its colours, light and dark; in files of their own they keep them."""

import re

from cascade_sim.analysis.report.figures.style import DARK, RC, color_rules, themed

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
