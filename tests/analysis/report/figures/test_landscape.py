import math
from xml.etree import ElementTree

import pytest

from answers.told import tells
from cascade_sim.analysis.report.figures.landscape import PANELS, landscape_figure, landscape_image
from cascade_sim.analysis.report.figures.style import style

COLUMNS = {
    "bid": [0.25, 0.5, 1.0, 2.0, 4.0],
    "auction_bid": [math.nan, 0.5, 1.0, 2.0, 4.0],
    "impressions": [0, 3, 10, 20, 22],
    "expected_clicks": [0.0, 0.5, 1.5, 3.0, 3.2],
    "clicks": [0, 0, 2, 4, 4],
    "expected_cost": [0.0, 0.2, 1.0, 3.0, 4.0],
    "cost": [0.0, 0.0, 1.4, 4.0, 5.0],
    "expected_cpc": [math.nan, 0.4, 0.67, 1.0, 1.25],
    "mean_cpc": [math.nan, math.nan, 0.7, 1.0, 1.25],
}


def test_every_panel_shows_its_columns_and_the_own_bid():
    with style("landscape"):
        panels = landscape_figure(COLUMNS, 1.0).axes
    for axes, (title, line, points) in zip(panels, PANELS, strict=True):
        lines = [list(line.get_ydata()) for line in axes.get_lines()]
        assert axes.get_title(loc="left") == title and axes.get_xscale() == "log"
        assert list(axes.get_lines()[0].get_xdata()) == [1.0, 1.0]
        assert lines[1] == pytest.approx(COLUMNS[line], nan_ok=True)
        if points:
            assert lines[2] == pytest.approx(COLUMNS[points], nan_ok=True)


def bounds_of(columns):
    """Of the cost per click: its axes, what is drawn beside the figures, and the legend's words."""
    with style("landscape"):
        figure = landscape_figure(columns, 1.0)
    axes = figure.axes[-1]
    return axes, [list(line.get_ydata()) for line in axes.get_lines()[3:]], legend_words(figure)


def legend_words(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_a_cost_above_the_init_bid_is_marked_beside_the_bid_that_bounds_it():
    optimised = [math.nan, 0.7, 1.3, 2.6, 5.2]
    axes, drawn, words = bounds_of(
        COLUMNS | {"auction_bid": optimised, "expected_cpc": [math.nan, 0.6, 1.2, 1.5, 1.7]}
    )
    assert drawn[0] == COLUMNS["bid"] and drawn[1] == pytest.approx(optimised, nan_ok=True)
    (region,) = axes.collections
    x = region.get_paths()[0].vertices[:, 0]
    assert min(x) == 0.5 and 1.0 < max(x) < 2.0  # up to where the lines cross
    assert axes.get_xlabel() == "init-bid" and tells(words[-1], "CPC", "init-bid")


def test_where_the_bid_itself_enters_the_auction_nothing_is_marked():
    axes, drawn, words = bounds_of(COLUMNS)
    assert drawn == [COLUMNS["bid"]] and not axes.collections
    assert axes.get_xlabel() == "bid" and len(words) == 3


@pytest.mark.drill
def test_both_kinds_of_files_repeat_byte_by_byte():
    svg, png = (landscape_image(COLUMNS, 1.0, kind) for kind in ("svg", "png"))
    assert ElementTree.fromstring(svg).tag.endswith("svg") and png.startswith(b"\x89PNG")
    assert landscape_image(COLUMNS, 1.0, "svg") == svg and landscape_image(COLUMNS, 1.0, "png") == png


def test_one_bid_and_no_impressions_can_be_drawn():
    single_bid = {name: [0.0] for name in COLUMNS} | {
        "bid": [2.0],
        "auction_bid": [math.nan],
        "expected_cpc": [math.nan],
        "mean_cpc": [math.nan],
    }
    assert landscape_image(single_bid, 2.0, "svg").startswith(b"<svg ")
