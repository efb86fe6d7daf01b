import math

import pytest

from answers.market import PER_DAY, make_market
from answers.report import make_metrics, minimal_metrics
from cascade_sim.analysis.report.figures.market import (
    PER_LINE,
    SINGLE_WIDTH,
    kind_colors,
    market_hours,
    market_multipliers,
    market_spend,
    market_wins,
)
from cascade_sim.analysis.report.figures.style import COLORS, style

DRAWN = (market_spend, market_multipliers, market_hours, market_wins)


def drawn(draw, metrics):
    with style("test"):
        return draw(metrics)


def with_market(arms, days):
    return {**make_metrics(), "market": make_market(arms, days)}


def lines(axes):
    """(x, y) of the solid, thick lines: not references, not midnights."""
    return [line.get_xydata().T for line in axes.get_lines() if line.get_linewidth() > 1.5]


def midnights(axes):
    """Places of upright lines."""
    return [x[0] for x in (line.get_xdata() for line in axes.get_lines()) if len(x) == 2 and x[0] == x[1]]


def test_each_kind_with_a_budget_has_a_panel_of_spend_and_traffic():
    figure = drawn(market_spend, make_metrics())
    assert [axes.get_title("left") for axes in figure.axes] == ["paced", "greedy"]  # `open` has no budget
    hours, spend = lines(figure.axes[1])[0]
    assert (hours[0], spend[0]) == (0.0, 0.0)  # a day starts with nothing spent
    assert spend[hours == 3.0] == pytest.approx(4 * 100 * 3 / 24)
    dashed = [line for line in figure.axes[1].get_lines() if line.get_linewidth() == 1.0]
    reference = dashed[0].get_xydata().T
    assert reference[1][reference[0] == 6.0] == pytest.approx(100 * 6 / 24)


def test_the_spread_over_advertisers_and_single_ones_lie_behind_the_kind():
    metrics = make_metrics()
    axes = drawn(market_spend, metrics).axes[0]  # paced: 4 points behind traffic
    band = axes.collections[0].get_paths()[0].vertices
    noon = sorted({round(y, 6) for x, y in band if x == 12.0})
    assert noon == [pytest.approx(50 * 0.46), pytest.approx(100 * (0.46 + 0.1))]
    thin = [line for line in axes.get_lines() if line.get_linewidth() == SINGLE_WIDTH]
    assert [line.get_ydata()[-1] for line in thin] == [pytest.approx(96.0), pytest.approx(25.0)]
    # Over several worlds no advertiser is the mean of others.
    axes = drawn(market_spend, {**metrics, "seeds": {"n": 2, "seeds": [1, 2]}}).axes[0]
    assert axes.collections and not [x for x in axes.get_lines() if x.get_linewidth() == SINGLE_WIDTH]


def test_days_follow_each_other_with_midnights_marked_and_lines_broken():
    figure = drawn(market_spend, with_market(["logloss"], 3))
    for axes in figure.axes:
        assert midnights(axes) == [24.0, 48.0] and axes.get_xlim() == (0.0, 72.0)
    hours, spend = lines(figure.axes[1])[0]
    assert sum(math.isnan(y) for y in spend) == 2
    assert len(hours) == 3 * (PER_DAY + 1) + 2  # each day from zero, a gap between days
    assert [y for x, y in zip(hours, spend, strict=True) if x == 24.0][0] == 100.0  # the day that ends


def test_one_day_has_no_midnight_in_it():
    assert [midnights(axes) for axes in drawn(market_spend, make_metrics()).axes] == [[], []]


def test_multipliers_are_shown_for_every_kind_that_has_advertisers():
    metrics = make_metrics()
    figure = drawn(market_multipliers, metrics)
    assert [axes.get_title("left") for axes in figure.axes] == ["paced", "greedy", "open"]
    assert lines(figure.axes[0])[0][1][-1] == pytest.approx(0.4)
    metrics["market"]["arms"]["logloss"]["bidders"]["open"]["advertisers"] = 0
    assert len(drawn(market_multipliers, metrics).axes) == 2


def test_every_arms_multipliers_are_drawn_and_what_throttling_leaves_out():
    metrics = with_market(["ltr", "logloss"], 1)
    curve = metrics["market"]["arms"]["ltr"]["bidders"]["open"]["curve"]
    curve["multiplier"] = [3.0] * PER_DAY
    paced, _, other = drawn(market_multipliers, metrics).axes
    assert len(lines(other)) == 1 and other.get_ylim() == (0.0, pytest.approx(3.0 * 1.08))
    thin = [line.get_ydata()[-1] for line in other.get_lines() if line.get_linewidth() == 1.1]
    assert thin == [3.0] and lines(other)[0][1][-1] == pytest.approx(1.2)  # the baseline's is thick
    dotted = [line.get_ydata()[0] for line in paced.get_lines() if line.get_linewidth() == 1.4]
    assert dotted == [0.5] and not [x for x in other.get_lines() if x.get_linewidth() == 1.4]


def test_the_price_of_a_click_is_revenue_over_clicks_and_left_out_where_clicks_are_few():
    metrics = with_market(["logloss"], 1)
    hours = metrics["market"]["arms"]["logloss"]["hours"]
    hours["charged_clicks"][1] = 3
    _, prices, _ = drawn(market_hours, metrics).axes
    values, _, _ = prices.patches[0].get_data()
    assert values[0] == pytest.approx(50 / 20) and math.isnan(values[1])
    for arm in metrics["market"]["arms"].values():
        del arm["hours"]["charged_clicks"]  # a run of an older version
    assert len(drawn(market_hours, metrics).axes) == 2


def test_win_rates_are_drawn_for_hours_with_enough_requests():
    metrics = make_metrics()
    hours = metrics["market"]["arms"]["logloss"]["bidders"]["greedy"]["hours"]
    hours["requests"][3], hours["impressions"][3] = 5, 5
    axes = drawn(market_wins, metrics).axes[0]
    paced, greedy, _ = lines(axes)
    assert axes.get_xlim() == (0.0, 24.0)
    assert paced[1] == pytest.approx([25.0] * 24) and len(greedy[0]) == 23


def test_requests_are_one_line_where_all_arms_had_the_same():
    metrics = make_metrics()
    revenue, _, requests = drawn(market_hours, metrics).axes
    assert len(revenue.patches) == 5 and len(requests.patches) == 2  # an outline and its area
    assert "same" in requests.get_title("left")
    metrics["market"]["arms"]["ltr"]["hours"]["requests"][0] = 7
    _, _, requests = drawn(market_hours, metrics).axes
    assert len(requests.patches) == 5 and "same" not in requests.get_title("left")


def test_a_long_market_is_drawn_day_by_day_and_with_few_points():
    metrics = with_market(["logloss"], 30)
    revenue, _, _ = drawn(market_hours, metrics).axes
    assert revenue.get_title("left") == "Revenue per day"
    values, edges, _ = revenue.patches[0].get_data()
    assert values == pytest.approx([1.0 * (6 * 50 + 18 * 50 / 3)] * 30) and edges[-1] == 30 * 24
    for draw in (market_spend, market_multipliers):
        for axes in drawn(draw, metrics).axes:
            assert len(lines(axes)[0][0]) <= PER_LINE + 3 * 30


def test_part_of_a_day_ends_where_it_ends():
    metrics = make_metrics()
    for arm in metrics["market"]["arms"].values():
        for kind in arm["bidders"].values():
            curve = {**kind["curve"], "advertisers": None}
            kind["curve"] = {name: values and values[:5] for name, values in curve.items()}
    axes = drawn(market_spend, metrics).axes[0]
    assert axes.get_xlim() == (0.0, 2.5)
    assert max(axes.get_xticks()) <= 2.5 and len(axes.get_xticks()) >= 3


def test_kinds_differ_in_colour_and_keep_it():
    colors = kind_colors(make_metrics())
    assert len(set(colors.values())) == 3 and set(colors.values()) <= set(COLORS)


@pytest.mark.parametrize("draw", DRAWN)
def test_nothing_is_drawn_without_data(draw):
    assert drawn(draw, minimal_metrics()) is None
    bare = with_market(["logloss"], 1)
    bare["market"]["arms"]["logloss"] = {"requests": 0, "hours": None, "bidders": {"paced": None}}
    assert drawn(draw, bare) is None


def test_updates_that_are_not_numbers_are_left_out():
    metrics = with_market(["logloss"], 1)
    curve = metrics["market"]["arms"]["logloss"]["bidders"]["paced"]["curve"]
    curve["spend_share"][3] = None
    assert len(lines(drawn(market_spend, metrics).axes[0])[0][0]) == 1 + PER_DAY - 1
