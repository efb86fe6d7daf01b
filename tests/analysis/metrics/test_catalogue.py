import numpy as np

from answers.report import make_metrics
from cascade_sim.analysis.metrics.catalogue import (
    ARM_MEASURES,
    COLUMNS,
    MARKET_MEASURES,
    MODEL_MEASURES,
    PAGE_MEASURES,
    REFERENCE_ARMS,
    VECTORS,
    arm_measure,
    columns_of,
    measure_names,
    ratio_parts,
    with_factors,
)
from cascade_sim.scenario.schema import AUTOMATIC_ARMS


def test_the_arms_never_recommended_are_those_the_engine_adds():
    assert set(REFERENCE_ARMS) == set(AUTOMATIC_ARMS)


def test_every_measure_has_a_label_of_its_own_and_a_meaning():
    for measures in (ARM_MEASURES, MODEL_MEASURES):
        assert len({measure.label for measure in measures.values()}) == len(measures)
        assert all(measure.meaning.endswith(".") for measure in measures.values())


def test_percent_stands_in_the_heading_of_a_share_only():
    assert arm_measure("rcs").heading == "RCS %" and arm_measure("cpc").heading == "CPC"


def test_unknown_measures_follow_the_known_ones():
    metrics = make_metrics()
    metrics["arms"]["ltr"]["aardvark"] = {"value": 1.0}
    assert measure_names(metrics)[0] == "rcs" and measure_names(metrics)[-1] == "aardvark"


def test_a_metric_is_a_ratio_of_known_columns_or_a_function_of_known_vectors():
    for name, metric in {**ARM_MEASURES, **PAGE_MEASURES, **MARKET_MEASURES}.items():
        assert metric.name == name and metric.better in ("higher", "lower", "at 0", "at 1", "")
        assert metric.is_ratio != (metric.function is not None and metric.vectors in VECTORS), name
        if metric.is_ratio:
            assert {metric.top, metric.bottom, metric.less or metric.top} <= set(COLUMNS), name


def test_a_ratio_is_its_sums_divided_with_its_factor_and_undefined_over_nothing():
    sums = {"revenue": 3.0, "impressions": 500, "requests": 2, "click_value": 7.0}
    assert ARM_MEASURES["rpm"].of(sums) == 6.0 and ARM_MEASURES["revenue_per_request"].of(sums) == 1.5
    assert ARM_MEASURES["ctr"].of({**sums, "clicks": 20}) == 20 / 500
    assert MARKET_MEASURES["surplus"].of(sums) == 2.0
    assert ARM_MEASURES["rpm"].of({**sums, "impressions": 0}) is None


def test_the_parts_of_a_ratio_are_columns_that_hold_its_factor():
    columns = with_factors({"revenue": np.array([0.1, 0.2]), "impressions": np.array([1.0, 3.0])})
    top, bottom = ratio_parts([ARM_MEASURES["rpm"]])["rpm"]
    assert columns[top].tolist() == [100.0, 200.0] and columns[bottom].tolist() == [1.0, 3.0]
    assert columns_of([ARM_MEASURES["rpm"], ARM_MEASURES["ctr"]]) == ("impressions", "clicks", "revenue")


def test_a_market_pays_for_a_click_when_it_reaches_the_ledger():
    assert MARKET_MEASURES["cpc"].bottom == "charged_clicks" and ARM_MEASURES["cpc"].bottom == "clicks"
