import pytest

from answers.told import refused, tells
from cascade_sim.foundation.errors import UserError
from cascade_sim.scenario.file import dump_scenario, load_scenario, scenario_data, scenario_hash
from cascade_sim.scenario.models import OBJECTIVE_KEYS, OPTIONS
from cascade_sim.scenario.schema import ModelSpec
from worlds.tiny_market import QUICK, tiny_scenario


def known(key):
    options = ModelSpec.model_json_schema()["properties"][key]
    return (options["anyOf"][0] if "anyOf" in options else options)["enum"]


def test_the_scenario_knows_every_objective_calibrator_and_option():
    from cascade_sim.models.calibrators import CALIBRATORS
    from cascade_sim.models.objectives import OBJECTIVES
    from cascade_sim.models.recipes import RECIPES

    assert known("objective") == list(OBJECTIVES) and known("calibrator") == list(CALIBRATORS)
    assert known("recipe") == list(RECIPES)
    assert {option for kind in OBJECTIVES.values() for option in kind.options} == set(OPTIONS)


def test_a_scenario_without_objectives_reads_and_hashes_as_ever():
    """The hash is that of the resolved scenario before models had objectives."""
    scenario = load_scenario(QUICK)
    assert all(not set(spec) & set(OBJECTIVE_KEYS) for spec in scenario_data(scenario)["models"].values())
    named = load_scenario(QUICK, ["models.rank.objective=pointwise", "models.rank.calibrator=null"])
    assert scenario_hash(named) == scenario_hash(scenario) and named == scenario


def test_the_width_of_embeddings_is_written_down_only_where_it_says_something():
    ids = "models.rank.features=[user, ad_id]"
    scenario = tiny_scenario(ids, "models.rank.embedding=8")
    assert "embedding" not in scenario_data(scenario)["models"]["rank"]
    assert scenario_hash(scenario) == scenario_hash(tiny_scenario(ids))
    wider = tiny_scenario(ids, "models.rank.embedding=16")
    assert scenario_data(wider)["models"]["rank"]["embedding"] == 16


def test_an_objective_is_part_of_the_resolved_scenario_and_comes_back(tmp_path):
    made = tiny_scenario(
        "models.rank.objective=rcr", "models.rank.alpha=0.25", "models.rank.calibrator=platt"
    )
    (tmp_path / "again.yaml").write_text(dump_scenario(made))
    again = load_scenario(tmp_path / "again.yaml")
    assert again.models["rank"] == made.models["rank"] and scenario_hash(again) == scenario_hash(made)
    assert again.models["rank"].objective_options == {"alpha": 0.25}
    assert scenario_hash(made) != scenario_hash(tiny_scenario("models.rank.objective=rcr"))


WRONG = {
    "models.rank.objective=rcrr": "'rcr'?",
    "models.rank.objective=calibrated-softmax": "'calibrated_softmax'?",
    "models.rank.calibrator=plat": "'platt'?",
    "models.rank.normalisation=mean": "pointwise multi_objective",
    "models.rank.normalisation=average": "sum, mean",
    "models.rank.alpha=0.5": "pointwise multi_objective",
    "models.ltr.objective=softmax": "recipe ltr logloss",
    "models.distill-pre.calibrator=platt": "recipe distill logloss",
    "models.rank.held_out=0.2": "calibrator",
    "models.rank.refit=true": "calibrator",
    "models.rank.fit=joint": "calibrator",
    "models.rank.fit=together": "held_out, training, joint",
    "models.rank.ranking=ranknet": "pointwise multi_objective",
    "models.rank.ranking=pairs": "softmax, ranknet",
    "models.rank.logged_scores_from=logloss": "pointwise sbcr",
    "models.ltr.fit=joint": "recipe ltr logloss",
    "models.rank.batching=pages": "samples, lists",
    "models.ltr.batching=lists": "recipe ltr logloss",
}


@pytest.mark.parametrize("override", WRONG)
def test_what_makes_no_sense_is_refused_with_a_hint(override):
    with pytest.raises(UserError) as refused:
        tiny_scenario(override)
    assert f"--set {override}" in str(refused.value) and tells(refused.value, *WRONG[override].split())


def test_the_virtual_item_of_calibrated_ranknet_lies_between_skip_and_click():
    with refused("models.rank.y0", "calibrated_ranknet", 0, 1):
        tiny_scenario("models.rank.objective=calibrated_ranknet", "models.rank.y0=1.0")
    made = tiny_scenario("models.rank.objective=calibrated_ranknet", "models.rank.y0=0.9")
    assert made.models["rank"].objective_options == {"y0": 0.9}


def test_two_heads_need_a_net_that_has_them(tmp_path):
    (tmp_path / "own.py").write_text("import torch\n\nclass Net(torch.nn.Module):\n    pass\n")
    own = f"models.rank.kind={tmp_path / 'own.py'}:Net"
    with refused("jrc", "towers", "coaction", "dcn", "inttower", "cold"):
        tiny_scenario(own, "models.rank.objective=jrc")
    assert tiny_scenario(own, "models.rank.objective=rcr").models["rank"].objective == "rcr"


def test_pages_stay_whole_for_objectives_that_compare_their_ads():
    with refused("softmax", "lists"):
        tiny_scenario("models.rank.objective=softmax", "models.rank.batching=samples")
    for objective, batching in (
        ("sbcr", "samples"),
        ("sbcr", "lists"),
        ("pointwise", "lists"),
        ("rcr", "lists"),
    ):
        changes = (f"models.rank.objective={objective}", f"models.rank.batching={batching}")
        assert tiny_scenario(*changes).models["rank"].batching == batching
    assert not tiny_scenario("models.rank.batching=lists").models["rank"].is_plain
    assert tiny_scenario("models.rank.batching=samples").models["rank"].is_plain


JOINT = ("models.rank.objective=sbcr", "models.rank.calibrator=piecewise_linear", "models.rank.fit=joint")
LEARNING = "market={training: {interval: 3600}}"


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("models.rank.calibrator=platt", "models.rank.fit=joint"), "platt models.rank.fit=joint"),
        ((*JOINT, "models.rank.held_out=0.2"), "fit joint"),
        (
            ("models.rank.calibrator=platt", "models.rank.fit=training", "models.rank.held_out=0.2"),
            "fit training",
        ),
        ((*JOINT, LEARNING, "models.rank.refit=true"), "models.rank.refit"),
        ((*JOINT, "models.rank.logged_scores_from=logloss"), "market.training"),
        ((*JOINT, LEARNING, "models.rank.logged_scores_from=rank"), "own"),
        ((*JOINT, LEARNING, "models.rank.logged_scores_from=logos"), "'logos' 'logloss'?"),
        (
            (*JOINT, LEARNING, "models.rank.logged_scores_from=logloss", "models.logloss.objective=softmax"),
            "'logloss' log-odds",
        ),
        ((*JOINT, LEARNING, "models.rank.logged_scores_from=ltr"), "'ltr' log-odds"),
        (
            (LEARNING, "models.logloss.objective=sbcr", "models.logloss.logged_scores_from=rank"),
            "'logloss' arm",
        ),
    ],
)
def test_what_a_joint_calibrator_and_a_dump_cannot_be_is_refused(overrides, text):
    with pytest.raises(UserError) as refused:
        tiny_scenario(*overrides)
    assert tells(refused.value, *text.split())


def test_joint_calibrators_and_dumps_are_part_of_the_resolved_scenario_and_come_back(tmp_path):
    made = tiny_scenario(*JOINT, LEARNING, "models.rank.logged_scores_from=logloss")
    (tmp_path / "again.yaml").write_text(dump_scenario(made))
    again = load_scenario(tmp_path / "again.yaml").models["rank"]
    assert again == made.models["rank"] and again.is_joint and again.logged_scores_from == "logloss"
    assert not again.is_plain and not again.learns_by_sample
    assert not again.as_first_deployed().is_joint and again.as_first_deployed().is_plain


def test_a_calibrator_is_fitted_anew_only_where_models_are():
    refit = ("models.rank.calibrator=platt", "models.rank.refit=true")
    with refused("models.rank.refit", "market.training"):
        tiny_scenario(*refit)
    assert tiny_scenario(*refit, "market={training: {interval: 3600}}").models["rank"].refit


def test_seed_validation_and_examination_say_nothing_at_their_defaults():
    plain = tiny_scenario()
    same = tiny_scenario(
        "models.rank.training_seed=0", "models.rank.validation=0", "models.rank.examination=known"
    )
    assert scenario_data(same) == scenario_data(plain)
    other = tiny_scenario("models.rank.training_seed=2", "models.rank.validation=0.1")
    section = scenario_data(other)["models"]["rank"]
    assert section["training_seed"] == 2 and section["validation"] == 0.1
    with refused("models.ltr.examination", "ltr"):
        tiny_scenario("models.ltr.examination=estimated")
