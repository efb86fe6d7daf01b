"""Which parameters a what-if turns, what it refuses, and that it checks them like a scenario."""

from pathlib import Path

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim.foundation.errors import UserError
from cascade_sim.scenario.overrides import (
    MAX_VALUES,
    Refused,
    apply_overrides,
    arm_parameters,
    given_points,
    overrides_of,
    parse_points,
    refuse,
    scenario_path,
)
from cascade_sim.scenario.schema import resolve_arm, resolved_arms
from worlds.tiny_market import tiny_scenario

HERE = Path()


@pytest.fixture(scope="module")
def scenario():
    return tiny_scenario("fusions={soft: {pctr: 0.5}}")


def asked(scenario, *texts, arm="logloss"):
    """The arms that some words lead to."""
    spec = resolved_arms(scenario)[arm]
    return [apply_overrides(scenario, spec, point, HERE)[1] for point in parse_points(texts, scenario, arm)]


def test_every_parameter_of_an_arm_can_be_turned(scenario):
    known = {scenario_path(parameter) for parameter in arm_parameters()}
    assert {"cascade.pre_ranking.size", "cascade.slots", "auction.reserve_cpc", "bidding.rule"} <= known
    assert {"cascade.ranking.model", "cascade.retrieval.size", "auction.score_floor"} <= known
    assert not any("exploration" in path for path in known)  # of the market


@pytest.mark.parametrize(
    ("text", "read", "value"),
    [
        ("auction.reserve_cpc=0.2", lambda arm: arm.auction.reserve_cpc, 0.2),
        ("reserve_cpc=0.2", lambda arm: arm.auction.reserve_cpc, 0.2),
        ("cascade.pre_ranking.size=20", lambda arm: arm.pre_ranking.size, 20),
        ("pre_ranking.size=20", lambda arm: arm.pre_ranking.size, 20),
        ("arms.logloss.pre_ranking.size=20", lambda arm: arm.pre_ranking.size, 20),
        ("cascade.slots=2", lambda arm: arm.slots, 2),
        ("slots=2", lambda arm: arm.slots, 2),
        ("cascade.retrieval.size=80", lambda arm: arm.retrieval_size, 80),
        ("cascade.pre_ranking.model=distill-pre", lambda arm: arm.pre_ranking.model, "distill-pre"),
        ("cascade.ranking.model=truth", lambda arm: arm.ranking.model, "truth"),
        ("pre_ranking.bid=none", lambda arm: arm.pre_ranking.bid, "none"),
        ("ranking.fusion=soft", lambda arm: arm.ranking.fusion, "soft"),
        ("bidding.rule=target_cpa", lambda arm: arm.bidding.rule, "target_cpa"),
        ("squashing=0.5", lambda arm: arm.auction.squashing, 0.5),
        ("pre_ranking.sizes={choices: [5, 20], mean: 9}", lambda arm: arm.sizes.choices, (5, 20)),
    ],
)
def test_a_parameter_by_the_scenario_s_path_the_arm_s_or_its_end(scenario, text, read, value):
    (changed,) = asked(scenario, text)
    current = resolve_arm(scenario, scenario.arms["logloss"])
    assert read(changed) == value
    assert changed != current and read(changed) != (
        read(current) if current.sizes or "sizes" not in text else None
    )


def test_what_is_not_turned_stays_as_the_arm_has_it(scenario):
    for arm, spec in resolved_arms(scenario).items():  # the automatic ones too
        (changed,) = asked(scenario, "auction.reserve_cpc=0.3", arm=arm)
        auction = spec.auction.model_copy(update={"reserve_cpc": 0.3})
        assert changed == spec.model_copy(update={"auction": auction})


def test_several_values_of_one_parameter_are_several_arms_and_the_others_are_set_in_each(scenario):
    arms = asked(scenario, "slots=2", "reserve_cpc=0.1,0.2,0.3")
    assert [(arm.slots, arm.auction.reserve_cpc) for arm in arms] == [(2, 0.1), (2, 0.2), (2, 0.3)]
    points = parse_points(["reserve_cpc=0.1,0.2"], scenario, "logloss")
    assert [[(c.path, c.value) for c in point] for point in points] == [
        [("auction.reserve_cpc", 0.1)],
        [("auction.reserve_cpc", 0.2)],
    ]


def test_python_values_mean_the_same_as_words(scenario):
    given = given_points({"reserve_cpc": [0.1, np.float64(0.2)], "cascade.slots": 2}, scenario, "logloss")
    assert given == parse_points(["reserve_cpc=0.1,0.2", "cascade.slots=2"], scenario, "logloss")


def test_a_fusion_may_be_changed_or_added_and_used_at_once(scenario):
    point = parse_points(["fusions.soft.pctr=0.25"], scenario, "logloss")[0]
    changed, spec = apply_overrides(scenario, resolved_arms(scenario)["logloss"], point, HERE)
    assert changed.fusions["soft"].pctr == 0.25 and scenario.fusions["soft"].pctr == 0.5
    (arm,) = asked(scenario, "fusions.mine={pctr: 2.0}", "ranking.fusion=mine")
    assert arm.ranking.fusion == "mine"


def test_a_size_takes_the_place_of_sizes_and_the_other_way_round():
    scenario = tiny_scenario("arms.by-request={pre_ranking: {sizes: {choices: [5, 20], mean: 9}}}")
    (fixed,) = asked(scenario, "pre_ranking.size=7", arm="by-request")
    assert fixed.sizes is None and fixed.pre_ranking.size == 7
    spec = resolved_arms(scenario)["by-request"]
    assert "size" not in overrides_of(spec)["pre_ranking"]
    with refused("sizes", kind=Refused):
        asked(scenario, "pre_ranking.size=7", "pre_ranking.sizes={choices: [5, 9], mean: 6}")


NEW_RUN = r"cannot be changed after the fact: .*new run: `run SCENARIO --set {path}=…`, or `sweep`"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("auction.reserve=1", "auction 'reserve' 'reserve_cpc'?"),
        ("reserve_cp=1", "'reserve_cp' 'auction.reserve_cpc'?"),
        ("frobnicate=1", "'frobnicate' cascade.retrieval.kind"),
        ("world.adz=1", "world 'adz' 'ads'?"),
        ("size=20", "'size' cascade.retrieval.size cascade.pre_ranking.size"),
        ("auction=1", "'auction' auction.pricing auction.squashing"),
        ("cascade=1", "'cascade' section"),
        ("arms.ltr.slots=2", "'logloss' 'ltr'"),
        ("fusions.sft.pctr=1", "fusions 'sft' 'soft'?"),
        ("reserve_cpc", "write path.to.parameter=value"),
        ("=1", "write path.to.parameter=value"),
        ("reserve_cpc=", "has no value"),
        ("reserve_cpc=0.1,,0.2", "has no value"),
        ("reserve_cpc=[1", "read value"),
        ("reserve_cpc=-1", "-1 0 1,000,000,000"),
        ("reserve_cpc=much", "'much' 0 1,000,000,000"),
        ("reserve_cpc=0.1,much", "'much'"),
        ("auction.pricing=vgc", "'vgc' 'vcg'?"),
        ("pre_ranking.size=3", "3 slots 4"),
        ("pre_ranking.size=61", "61 60 retrieved"),
        ("slots=15", "15 14"),
        ("slots=4", "4 3 effects"),
        ("retrieval.size=601", "601 600"),
        ("pre_ranking.model=distil", "'distil' 'distill-pre'?"),
        ("ranking.model=ltr", "'ltr' probability"),
        ("ranking.fusion=sfot", "'sfot' 'soft'?"),
        ("pre_ranking.sizes={choices: [5, 9], mean: 7, x: 9}", "'x' pre_ranking.sizes"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_what_was_meant(scenario, text, words):
    with pytest.raises(Refused) as reason:
        asked(scenario, text)
    assert tells(reason.value, *words.split())


@pytest.mark.parametrize(
    "path",
    [
        *("world.ads", "world.bids.median", "seed", "traffic.block", "phases.evaluate", "models.rank.epochs"),
        *("report.resamples", "market.days", "name"),
        "arms.logloss.exploration",
    ],
)
def test_what_was_settled_before_serving_needs_a_new_run(scenario, path):
    with pytest.raises(Refused, match=NEW_RUN.format(path=path.replace(".", r"\."))):
        asked(scenario, f"{path}=1")


def test_vcg_without_squashing_is_refused_where_it_was_set(scenario):
    with refused("vcg", 1, 0.5, kind=Refused) as reason:
        asked(scenario, "slots=2", "pricing=vcg", "squashing=0.5")
    assert reason.value.at == 2


def test_parameters_are_turned_once_and_only_one_has_several_values(scenario):
    with pytest.raises(Refused, match="auction.reserve_cpc is set twice") as reason:
        asked(scenario, "auction.reserve_cpc=1", "reserve_cpc=2")
    assert reason.value.at == 1
    with refused("one parameter", kind=Refused):
        asked(scenario, "slots=1,2", "reserve_cpc=0.1,0.2")
    with pytest.raises(Refused, match=f"101 values; at most {MAX_VALUES}"):
        asked(scenario, "reserve_cpc=" + ",".join(["1"] * 101))
    with pytest.raises(Refused, match="^2.0 is given twice$") as reason:
        asked(scenario, "slots=2", "reserve_cpc=2,3,2.0")
    assert reason.value.at == 1
    with pytest.raises(Refused, match="nothing to change"):
        parse_points([], scenario, "logloss")


def test_the_error_names_the_words_and_the_reason_once():
    error = refuse(Refused("is not so", 1), ["slots=2", "x=1"], "--set ")
    assert isinstance(error, UserError)
    assert str(error) == "--set x=1: is not so"
