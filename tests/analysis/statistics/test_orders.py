"""In how many worlds orders hold."""

import itertools
import math

import numpy as np
import pytest

from answers.report import minimal_metrics
from cascade_sim.analysis.report.sections.orders import orders_section, orders_table
from cascade_sim.analysis.report.terminal import terminal_summary
from cascade_sim.analysis.statistics.estimates import t_quantile
from cascade_sim.analysis.statistics.orders import order_between_worlds
from cascade_sim.study.results import combine_seeds

THREE = {"low": [1.0, 2.0, 3.0, 2.5], "high": [5.0, 6.0, 7.0, 2.0], "middle": [3.0, 2.0, 4.0, 4.0]}


def pair(found, first, second):
    return next(p for p in found["pairs"] if (p["first"], p["second"]) == (first, second))


def test_names_stand_by_their_means_and_a_tie_keeps_no_order():
    found = order_between_worlds(THREE, is_relative=False)
    assert found["order"] == ["high", "middle", "low"] and found["worlds"] == 4
    assert [p["kept"] for p in found["pairs"]] == [3, 3, 3]
    assert pair(found, "middle", "low")["kept"] == 3  # equal in the second world
    assert found["whole"] == 2  # the first and the third


def test_names_that_are_alike_in_every_world_stand_as_one():
    found = order_between_worlds({**THREE, "twin": THREE["high"]}, is_relative=False)
    assert found["order"] == ["high = twin", "middle", "low"]
    assert found["whole"] == 2 and pair(found, "high = twin", "low")["kept"] == 3
    assert order_between_worlds({"a": [1.0, 2.0], "b": [1.0, 2.0]}, is_relative=False) is None


def test_the_difference_is_paired_within_worlds():
    found = pair(order_between_worlds(THREE, is_relative=False), "high", "low")["difference"]
    gaps = [4.0, 4.0, 4.0, -0.5]
    half = t_quantile(0.975, 3) * np.std(gaps, ddof=1) / math.sqrt(4)
    assert found["value"] == pytest.approx(np.mean(gaps))
    assert (found["low"], found["high"]) == pytest.approx((np.mean(gaps) - half, np.mean(gaps) + half))
    relative = pair(order_between_worlds(THREE, is_relative=True), "high", "low")["difference"]
    assert relative["value"] == pytest.approx(np.mean([5 / 1, 6 / 2, 7 / 3, 2 / 2.5]) - 1)


def test_there_is_no_order_of_one_name_of_one_world_or_of_what_is_undefined():
    assert order_between_worlds({"a": [1.0, 2.0]}, is_relative=False) is None
    assert order_between_worlds({"a": [1.0], "b": [2.0]}, is_relative=False) is None
    found = order_between_worlds({**THREE, "odd": [1.0, None, 2.0, 3.0]}, is_relative=True)
    assert "odd" not in found["order"]
    zero = order_between_worlds({"a": [1.0, 2.0, 4.0], "b": [0.0, 1.0, 2.0]}, is_relative=True)
    assert zero["pairs"][0]["difference"]["value"] == 1.0  # of the two worlds in which there is a ratio


def world(seed, **rcs):
    def entry(value):
        return {"value": value, "low": None, "high": None}

    arms = {name: {"rcs": entry(value), "expected_rpm": entry(10 * value)} for name, value in rcs.items()}
    rows = [("init", "a"), ("opt", "a")]
    ablation = [
        {"bid": b, "model": m, "role": "", "rcs": entry(0.5 + i / 10)} for i, (b, m) in enumerate(rows)
    ]
    return {"seed": seed, "baseline": "a", "arms": arms, "ablation": ablation}


def test_worlds_that_are_combined_say_which_orders_they_keep_and_references_stand_apart():
    metrics = combine_seeds([world(1, a=0.5, b=0.6, ranker=1.0), world(2, a=0.7, b=0.6, ranker=1.0)])
    assert set(metrics["orders"]["rcs"]["order"]) == {"a", "b"}
    assert metrics["orders"].keys() == {"rcs", "expected_rpm", "ablation"}
    assert metrics["orders"]["rcs"]["whole"] == 1 and metrics["orders"]["ablation"]["whole"] == 2
    table = orders_table(metrics, "rcs")
    assert [(row.label, row.cells[0].text) for row in table.rows] == [("a > b", "1 of 2")]
    assert table.columns[1] == "Ahead by, points" and table.rows[0].cells[1].text == "0.00"
    assert orders_table(metrics, "ablation").rows[0].label.split(" > ") == ["opt × a", "init × a"]
    assert orders_section(metrics).id == "orders"
    assert orders_section({}) is None and orders_table(metrics, "ctr") is None


def alike_pairs(names, worlds):
    """The entry of a file that an older version wrote: arms that are alike everywhere, pair by pair."""
    nothing = {"value": 0.0, "low": 0.0, "high": 0.0, "sd": 0.0}
    pairs = [
        {"first": first, "second": second, "kept": 0, "difference": nothing}
        for first, second in itertools.combinations(names, 2)
    ]
    return {"worlds": worlds, "order": list(names), "whole": 0, "is_relative": False, "pairs": pairs}


def test_a_row_of_arms_that_are_alike_in_every_world_is_left_out():
    metrics = {**minimal_metrics(), "orders": {"rcs": alike_pairs("abc", 10)}}
    assert orders_table(metrics, "rcs") is None and orders_section(metrics) is None
    assert "0 of 10" not in terminal_summary(metrics)
    ahead = {"value": 0.02, "low": 0.01, "high": 0.03, "sd": 0.01}
    metrics["orders"]["rcs"]["pairs"][2] = {"first": "b", "second": "c", "kept": 9, "difference": ahead}
    metrics["orders"]["expected_rpm"] = alike_pairs("abc", 10)
    table = orders_table(metrics, "rcs")
    assert [row.label for row in table.rows] == ["b > c"] and "0 of 10" not in table.title
    assert len(orders_table(metrics, "rcs", every_pair=True).rows) == 1
    headings = [part.text for part in orders_section(metrics).parts if part.shape == "heading"]
    assert headings == [table.title]
