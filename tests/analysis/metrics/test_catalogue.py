from answers.report import make_metrics
from cascade_sim.analysis.metrics.catalogue import (
    ARM_MEASURES,
    MODEL_MEASURES,
    REFERENCE_ARMS,
    arm_measure,
    measure_names,
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
