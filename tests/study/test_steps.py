"""Several steps of pre-ranking: written as a mapping or as a list, named in `--set`, refused in words."""

import pytest

from answers.told import tells
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario.data import dump_scenario
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.overrides import Refused, apply_overrides, find_parameter, parse_points
from cascade_sim.scenario.schema import resolve_arm, resolved_arms

TEXT = """\
name: four
world: {users: 20, ads: 200, advertisers: 10}
cascade:
  retrieval: {size: 60}
  pre_ranking: STEPS
  ranking: {model: truth}
  slots: 3
models: {}
phases: {cold_start: 0, log: 0, shadow: 0, evaluate: 64}
arms: {now: {}, narrow: {pre_ranking: {earlier: {coarse: {size: 20}}}}}
"""
AS_MAPPING = "{model: truth, size: 12, earlier: {coarse: {model: truth, bid: none, size: 30}}}"
AS_LIST = "[{name: coarse, model: truth, bid: none, size: 30}, {model: truth, size: 12}]"


def loaded(tmp_path, steps, *overrides):
    (tmp_path / "four.yaml").write_text(TEXT.replace("STEPS", steps))
    return load_scenario(tmp_path / "four.yaml", overrides)


def test_a_list_of_steps_is_the_mapping(tmp_path):
    one, other = (loaded(tmp_path, steps) for steps in (AS_MAPPING, AS_LIST))
    assert one == other and dump_scenario(one) == dump_scenario(other)
    stages = [
        (name, section.model_dump().get("size")) for name, section in resolved_arms(one)["now"].sections
    ]
    assert stages == [("coarse", 30), ("pre_ranking", 12), ("ranking", None)]


@pytest.mark.parametrize("steps", [AS_MAPPING, AS_LIST])
def test_a_step_is_addressed_by_its_name(tmp_path, steps):
    changed = loaded(tmp_path, steps, "cascade.pre_ranking.earlier.coarse.size=40")
    assert changed.cascade.pre_ranking.earlier["coarse"].size == 40
    assert resolved_arms(changed)["narrow"].pre_ranking.earlier["coarse"].size == 20


@pytest.mark.parametrize(
    "path", ["cascade.pre_ranking.earlier.coarse.size", "pre_ranking.coarse.size", "coarse.size"]
)
def test_a_question_names_the_step_in_short_or_in_full(tmp_path, path):
    scenario = loaded(tmp_path, AS_LIST)
    assert find_parameter(path, scenario, "now") == ("pre_ranking", "earlier", "coarse", "size")
    (point,) = parse_points([f"{path}=25"], scenario, "now")
    _, spec = apply_overrides(scenario, resolve_arm(scenario, scenario.arms["now"]), point, tmp_path)
    assert spec.pre_ranking.earlier["coarse"].size == 25 and spec.pre_ranking.earlier["coarse"].bid == "none"
    with pytest.raises(Refused, match="between"):
        (point,) = parse_points([f"{path}=5"], scenario, "now")
        apply_overrides(scenario, resolve_arm(scenario, scenario.arms["now"]), point, tmp_path)


@pytest.mark.parametrize(
    ("steps", "overrides", "key"),
    [
        (AS_MAPPING, ["cascade.pre_ranking.earlier.coarse.size=70"], "coarse.size"),
        (AS_MAPPING, ["cascade.pre_ranking.earlier.coarse.model=none_such"], "coarse.model"),
        (AS_MAPPING, ["market={compute: {stages: {corse: {}}}}"], "'corse' 'coarse'?"),
        (AS_MAPPING, ["cascade.pre_ranking.earlier={none: {model: truth, size: 30}}"], "earlier.none"),
        (AS_MAPPING, ["arms.narrow.pre_ranking.earlier={fine: {size: 20}}"], "fine"),
        ("[{model: truth, size: 30}, {model: truth, size: 12}]", [], "pre_ranking"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_key(tmp_path, steps, overrides, key):
    with pytest.raises(ScenarioError) as refused:
        loaded(tmp_path, steps, *overrides)
    assert tells(refused.value, *key.split())


def test_one_step_leaves_no_trace_in_what_is_written(tmp_path):
    assert "earlier" not in dump_scenario(loaded(tmp_path, "{model: truth, size: 12}", "arms={now: {}}"))


@pytest.mark.parametrize("steps", [AS_MAPPING, AS_LIST])
@pytest.mark.parametrize("path", ["pre_ranking.coarse.size", "cascade.pre_ranking.coarse.size"])
def test_a_run_takes_the_short_name_of_a_step_too(tmp_path, steps, path):
    assert loaded(tmp_path, steps, f"{path}=40").cascade.pre_ranking.earlier["coarse"].size == 40
    changed = loaded(tmp_path, steps, "arms.now.pre_ranking.coarse.size=25")
    assert resolved_arms(changed)["now"].pre_ranking.earlier["coarse"].size == 25
    with pytest.raises(ScenarioError, match="coarse.size"):
        loaded(tmp_path, steps, f"{path}=5")
    with pytest.raises(ScenarioError, match="coarze"):
        loaded(tmp_path, steps, f"{path.replace('coarse', 'coarze')}=40")


def test_a_step_cannot_be_called_like_a_stage_a_set_or_all_of_them(tmp_path):
    for name in ("all", "win", "auction", "ranking"):
        with pytest.raises(ScenarioError, match=name):
            loaded(tmp_path, AS_LIST.replace("coarse", name), "arms={now: {}}")


def test_the_set_that_a_student_learns_from_is_one_of_the_cascade(tmp_path):
    student = "models={rank: {data: [log]}, s: {recipe: distill, teacher: rank, sample: {set: %s}}}"
    given = ["phases={cold_start: 10, log: 10, shadow: 10, evaluate: 64}"]
    assert loaded(tmp_path, AS_LIST, student % "coarse", *given).models["s"].sample.set == "coarse"
    with pytest.raises(ScenarioError, match="coarse"):
        loaded(tmp_path, AS_LIST, student % "coarze", *given)


def test_the_pcvr_of_an_earlier_step_is_checked(tmp_path):
    with pytest.raises(ScenarioError, match="coarse.pcvr"):
        loaded(tmp_path, AS_MAPPING, "cascade.pre_ranking.coarse.pcvr=known")


def test_sizes_of_an_earlier_step_are_taken_turned_and_refused_as_those_of_the_last(tmp_path):
    ruled = "arms.narrow.pre_ranking.coarse={sizes: {choices: [15, 20, 40], mean: 20}}"
    scenario = loaded(tmp_path, AS_MAPPING, ruled)
    spec = resolved_arms(scenario)["narrow"]
    assert list(spec.size_rules) == ["coarse"] and spec.pre_ranking.earlier["coarse"].size == 40
    (point,) = parse_points(["pre_ranking.coarse.size=25"], scenario, "narrow")
    _, turned = apply_overrides(scenario, spec, point, tmp_path)
    assert not turned.size_rules and turned.pre_ranking.earlier["coarse"].size == 25
    for choices, mean, key in (
        ("[5, 20]", 10, "choices"),
        ("[20, 15]", 16, "choices"),
        ("[15, 20]", 30, "mean"),
    ):
        wrong = f"arms.narrow.pre_ranking.coarse={{sizes: {{choices: {choices}, mean: {mean}}}}}"
        with pytest.raises(ScenarioError, match=key):
            loaded(tmp_path, AS_MAPPING, wrong)
    with pytest.raises(ScenarioError, match="beside sizes"):
        loaded(tmp_path, AS_MAPPING, ruled.replace("sizes:", "size: 20, sizes:"))
