"""Differences of metrics between arms on the same resamples."""

import numpy as np
import pytest

from cascade_sim.analysis.statistics.bootstrap import ratio_intervals
from cascade_sim.analysis.statistics.paired_differences import function_differences, ratio_differences

RATIOS = {"ctr": ("clicks", "shown"), "mean": ("clicks", None)}


@pytest.fixture
def tables():
    draw = np.random.default_rng(5)
    shown = draw.integers(1, 4, 400) * 1.0
    base = draw.binomial(3, 0.3, 400) * 1.0
    return {
        "a": {"clicks": base, "shown": shown},
        "b": {"clicks": base + (draw.uniform(size=400) < 0.05), "shown": shown},
        "c": {"clicks": base, "shown": shown},
    }


def test_the_difference_is_that_of_the_values(tables):
    found = ratio_differences(tables, RATIOS, "a", 100, 1)
    values = ratio_intervals(tables, RATIOS, "a", 100, 1)
    assert set(found) == {"b", "c"}
    more = tables["b"]["clicks"].sum() - tables["a"]["clicks"].sum()
    assert found["b"]["mean"]["value"] == pytest.approx(more / 400)
    assert found["b"]["ctr"]["value"] == values["b"]["ctr"]["value"] - values["a"]["ctr"]["value"]


def test_what_arms_have_in_common_cancels(tables):
    found = ratio_differences(tables, RATIOS, "a", 400, 1)
    own = ratio_intervals(tables, RATIOS, "a", 400, 1)["b"]["mean"]
    gap = found["b"]["mean"]
    assert gap["high"] - gap["low"] < 0.3 * (own["high"] - own["low"])
    assert gap["low"] > 0  # 5 % more clicks, surely
    assert found["c"]["ctr"] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_an_undefined_metric_has_no_difference(tables):
    tables["b"] = {"clicks": tables["b"]["clicks"]}
    found = ratio_differences(tables, RATIOS, "a", 50, 1)
    assert found["b"]["ctr"] == {"value": None, "low": None, "high": None}
    assert found["c"]["ctr"]["value"] == 0.0


def test_differences_of_functions_of_vectors():
    draw = np.random.default_rng(6)
    sums = {"a": draw.uniform(1, 2, (64, 2)), "b": draw.uniform(1, 2, (64, 2))}

    def share(s):
        return s[:, 0] / s.sum(axis=1)

    found = function_differences(sums, share, "a", 200, 1)
    a, b = (table.sum(axis=0) for table in sums.values())
    assert found["b"]["value"] == pytest.approx(b[0] / b.sum() - a[0] / a.sum())
    assert found["b"]["low"] < found["b"]["value"] < found["b"]["high"] and set(found) == {"b"}
    assert function_differences({"b": sums["b"]}, share, "a", 20, 1) == {}
    with pytest.raises(ValueError, match="differ in the shape"):
        function_differences({"a": sums["a"], "b": sums["b"][:5]}, share, "a", 20, 1)
