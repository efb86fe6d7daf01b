import pytest

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
    "models.rank.objective=rcrr": "did you mean 'rcr'?",
    "models.rank.objective=calibrated-softmax": "did you mean 'calibrated_softmax'?",
    "models.rank.calibrator=plat": "did you mean 'platt'?",
    "models.rank.normalisation=mean": "has no meaning for objective pointwise (only for multi_objective,",
    "models.rank.normalisation=average": "expected one of sum, mean",
    "models.rank.alpha=0.5": "has no meaning for objective pointwise (only for multi_objective,",
    "models.ltr.objective=softmax": "has no meaning for recipe ltr (only for logloss)",
    "models.distill-pre.calibrator=platt": "has no meaning for recipe distill (only for logloss)",
    "models.rank.held_out=0.2": "has no meaning without a calibrator",
    "models.rank.refit=true": "has no meaning without a calibrator",
    "models.rank.fit=joint": "has no meaning without a calibrator",
    "models.rank.fit=together": "expected one of held_out, training, joint",
    "models.rank.ranking=ranknet": "has no meaning for objective pointwise (only for multi_objective)",
    "models.rank.ranking=pairs": "expected one of softmax, ranknet",
    "models.rank.logged_scores_from=logloss": "has no meaning for objective pointwise (only for sbcr)",
    "models.ltr.fit=joint": "has no meaning for recipe ltr (only for logloss)",
    "models.rank.batching=pages": "expected one of samples, lists",
    "models.ltr.batching=lists": "has no meaning for recipe ltr (only for logloss)",
}


@pytest.mark.parametrize("override", WRONG)
def test_what_makes_no_sense_is_refused_with_a_hint(override):
    with pytest.raises(UserError) as refused:
        tiny_scenario(override)
    assert f"--set {override}" in str(refused.value) and WRONG[override] in str(refused.value)


def test_the_virtual_item_of_calibrated_ranknet_lies_between_skip_and_click():
    with pytest.raises(UserError, match="between a skip, 0, and a click, 1, for calibrated_ranknet; found 1"):
        tiny_scenario("models.rank.objective=calibrated_ranknet", "models.rank.y0=1.0")
    made = tiny_scenario("models.rank.objective=calibrated_ranknet", "models.rank.y0=0.9")
    assert made.models["rank"].objective_options == {"y0": 0.9}


def test_two_heads_need_a_net_that_has_them(tmp_path):
    (tmp_path / "own.py").write_text("import torch\n\nclass Net(torch.nn.Module):\n    pass\n")
    own = f"models.rank.kind={tmp_path / 'own.py'}:Net"
    with pytest.raises(
        UserError,
        match="jrc trains two heads, which only the kinds towers, coaction, dcn, inttower and cold have",
    ):
        tiny_scenario(own, "models.rank.objective=jrc")
    assert tiny_scenario(own, "models.rank.objective=rcr").models["rank"].objective == "rcr"


def test_pages_stay_whole_for_objectives_that_compare_their_ads():
    with pytest.raises(
        UserError, match="softmax compares the ads of a page, which must stay whole: use lists"
    ):
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
LEARNING = "market={training: {every: 3600}}"


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("models.rank.calibrator=platt", "models.rank.fit=joint"), "platt is not trained in batches; use"),
        ((*JOINT, "models.rank.held_out=0.2"), "nothing is held out with fit joint"),
        (
            ("models.rank.calibrator=platt", "models.rank.fit=training", "models.rank.held_out=0.2"),
            "nothing is held out with fit training",
        ),
        ((*JOINT, LEARNING, "models.rank.refit=true"), "goes on learning with its model; remove it"),
        ((*JOINT, "models.rank.logged_scores_from=logloss"), "in market.training: add it, or remove this"),
        ((*JOINT, LEARNING, "models.rank.logged_scores_from=rank"), "learns beside its own scores anyway"),
        ((*JOINT, LEARNING, "models.rank.logged_scores_from=logos"), "did you mean 'logloss'?"),
        (
            (*JOINT, LEARNING, "models.rank.logged_scores_from=logloss", "models.logloss.objective=softmax"),
            "the scores of 'logloss' are no log-odds to learn beside",
        ),
        ((*JOINT, LEARNING, "models.rank.logged_scores_from=ltr"), "the scores of 'ltr' are no log-odds"),
        (
            (LEARNING, "models.logloss.objective=sbcr", "models.logloss.logged_scores_from=rank"),
            "'logloss' pre-ranks in arm",
        ),
    ],
)
def test_what_a_joint_calibrator_and_a_dump_cannot_be_is_refused(overrides, text):
    with pytest.raises(UserError) as refused:
        tiny_scenario(*overrides)
    assert text in str(refused.value)


def test_joint_calibrators_and_dumps_are_part_of_the_resolved_scenario_and_come_back(tmp_path):
    made = tiny_scenario(*JOINT, LEARNING, "models.rank.logged_scores_from=logloss")
    (tmp_path / "again.yaml").write_text(dump_scenario(made))
    again = load_scenario(tmp_path / "again.yaml").models["rank"]
    assert again == made.models["rank"] and again.is_joint and again.logged_scores_from == "logloss"
    assert not again.is_plain and not again.learns_by_sample
    assert not again.as_first_deployed().is_joint and again.as_first_deployed().is_plain


def test_a_calibrator_is_fitted_anew_only_where_models_are():
    refit = ("models.rank.calibrator=platt", "models.rank.refit=true")
    with pytest.raises(UserError, match="fitted anew where models are: add market.training, or remove it"):
        tiny_scenario(*refit)
    assert tiny_scenario(*refit, "market={training: {every: 3600}}").models["rank"].refit


def test_seed_validation_and_examination_say_nothing_at_their_defaults():
    plain = tiny_scenario()
    same = tiny_scenario(
        "models.rank.training_seed=0", "models.rank.validation=0", "models.rank.examination=known"
    )
    assert scenario_data(same) == scenario_data(plain)
    other = tiny_scenario("models.rank.training_seed=2", "models.rank.validation=0.1")
    section = scenario_data(other)["models"]["rank"]
    assert section["training_seed"] == 2 and section["validation"] == 0.1
    with pytest.raises(UserError, match="has no meaning for recipe ltr"):
        tiny_scenario("models.ltr.examination=estimated")
