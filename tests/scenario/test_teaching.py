"""Who is trained before whom, and what is refused: circles, lists that cannot be, and joint sections."""

import pytest

from answers.told import refused
from cascade_sim.scenario.file import dump_scenario, load_scenario, scenario_hash
from cascade_sim.scenario.teaching import circle_of, learners, needs, quotas_of, waves
from worlds.tiny_market import tiny_scenario

SEEN = "features: [user, quality, G1]"
TWO_STEPS = "cascade.pre_ranking=[{name: light, model: first, size: 30}, {model: logloss, size: 15}]"


def student(name, set_, arm=None, recipe="infonce", teacher="rank", more=""):
    arm = "" if arm is None else f", arm: {arm}"
    text = f"recipe: {recipe}, {SEEN}, teacher: {teacher}, sample: {{set: {set_}{arm}}}{more and ', '}{more}"
    return f"models.{name}={{{text}}}"


def cascade_of(retrieval, pre_ranking, name="new"):
    return f"arms.{name}={{retrieval: {{model: {retrieval}}}, pre_ranking: {{model: {pre_ranking}}}}}"


def joint(*models, name="both", more=""):
    sections = [f"models.{model}={{recipe: joint, {SEEN}}}" for model in models]
    return [*sections, f"joint.{name}={{models: [{', '.join(models)}]{more and ', '}{more}}}"]


def test_students_of_the_baseline_are_taught_at_once_as_ever():
    scenario = tiny_scenario("report.baseline=ltr", "models.ltr.sample.set=competitive")
    assert waves(scenario) == (("ltr", "distill-pre"),) and set(learners(scenario)) == {"ltr", "distill-pre"}


def test_who_learns_from_what_another_hands_on_comes_after_it():
    told = (student("ret", "corpus"), cascade_of("ret", "pre"))
    behind = tiny_scenario(*told, student("pre", "retrieved", "new"))
    assert waves(behind) == (("ltr", "distill-pre", "ret"), ("pre",)) and needs(behind)["pre"] == ("ret",)
    beside = tiny_scenario(*told, student("pre", "corpus", "new"))  # asks ranking alone
    assert waves(beside) == (("ltr", "distill-pre", "ret", "pre"),)
    last = tiny_scenario(*told, student("pre", "retrieved", "new"), student("late", "competitive", "new"))
    assert waves(last)[1:] == (("pre",), ("late",))


def test_a_step_waits_for_the_steps_before_its_set_alone():
    steps = (TWO_STEPS, student("first", "corpus"), "report.baseline=other", "arms.other={}")
    own = tiny_scenario(*steps, student("second", "pre_ranking", "other"))
    assert needs(own)["second"] == ("first",)
    before = tiny_scenario(*steps, student("second", "light", "other"))
    assert needs(before)["second"] == ()


def test_the_baseline_seats_the_deployed_model_for_one_that_would_wait_for_itself():
    told = (student("pre", "competitive", "new"), "arms.new={pre_ranking: {model: pre}}")
    assert needs(tiny_scenario(*told, "report.baseline=new"))["pre"] == ()
    with refused("models.pre.sample.arm", "'pre'"):
        tiny_scenario(*told)


def test_a_teacher_that_is_a_student_comes_first_where_the_recipe_takes_one():
    told = (student("late", "corpus"), student("early", "corpus", recipe="rankflow", teacher="late"))
    assert waves(tiny_scenario(*told))[1] == ("early",)
    with refused("models.early.teacher", "'late'", "infonce"):
        tiny_scenario(told[0], student("early", "corpus", teacher="late"))


def test_models_that_wait_for_each_other_are_refused_by_their_names():
    told = (
        cascade_of("ret", "pre"),
        student("ret", "competitive", "new"),
        student("pre", "retrieved", "new", recipe="rankflow", teacher="ret"),
    )
    with refused("models.ret.sample.arm", "'ret'"):
        tiny_scenario(*told)
    told = (
        "arms.one={retrieval: {model: ret}}", "arms.two={pre_ranking: {model: pre}}",
        student("ret", "competitive", "two"), student("pre", "retrieved", "one"),
    )  # fmt: skip
    with refused("models.ret.sample.arm", "'ret'", "'pre'"):
        tiny_scenario(*told)
    assert circle_of({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}) == ["a", "b", "c"]


def test_a_joint_section_is_one_learner_and_whoever_needs_a_model_of_it_comes_after():
    made = tiny_scenario(
        *joint("ret", "pre"), cascade_of("ret", "pre"), student("late", "competitive", "new")
    )
    assert waves(made) == (("ltr", "distill-pre", "joint.both"), ("late",))
    with refused("joint.both.sample.arm", "'joint.both'"):
        tiny_scenario(
            *joint("ret", "pre", more="sample: {set: retrieved, arm: new}"), cascade_of("ret", "pre")
        )


def test_a_scenario_that_says_nothing_of_it_is_written_as_before_and_one_that_does_is_read_back(tmp_path):
    plain = tiny_scenario()
    text = dump_scenario(plain)
    assert not any(word in text for word in ("joint", "pool:", "arm:"))
    told = [*joint("ret", "pre", more="sample: {per_request: 40, pool: 60}, options: {k: 3}, epochs: 2")]
    scenario = tiny_scenario(*told, student("more", "retrieved", "ltr"))
    (tmp_path / "again.yaml").write_text(dump_scenario(scenario))
    again = load_scenario(tmp_path / "again.yaml")
    assert again == scenario and scenario_hash(again) == scenario_hash(scenario) != scenario_hash(plain)
    assert scenario.joint["both"].sample.set == "corpus" and again.models["ret"].link == "exp"


def test_quotas_are_fixed_or_those_of_the_stages_scaled_to_the_list():
    fixed = tiny_scenario(*joint("ret", "pre", more="options: {quota: 7}"))
    assert quotas_of(fixed, fixed.joint["both"]) == (7, 7)
    more = "options: {quotas: sizes, k: 3}, sample: {per_request: 100, arm: new}"
    scaled = tiny_scenario(*joint("ret", "pre", more=more), cascade_of("ret", "pre"))
    # 60 of 600 ads are retrieved and 15 handed on: 10 and 2.5 of 100, but at least k.
    assert quotas_of(scaled, scaled.joint["both"]) == (10, 3)


@pytest.mark.parametrize(
    ("told", "facts"),
    [
        (student("a", "corpsu"), "models.a.sample.set 'corpsu' 'corpus'"),
        (student("a", "corpus", "nwe"), "models.a.sample.arm 'nwe'"),
        ("models.ltr.sample.pool=9", "models.ltr.sample.pool corpus"),
        ("models.ltr.sample={set: corpus, pool: 20}", "models.ltr.sample.pool 20 50"),
        ("models.ltr.sample={set: corpus, per_request: 601}", "models.ltr.sample.per_request 601 600"),
        ("models.ltr.sample={set: corpus, pool: 700}", "models.ltr.sample.pool 700 600"),
        (
            ["models.ltr.sample={set: corpus, per_request: 400}", "world.churn={available_share: 0.5}"],
            "models.ltr.sample.per_request 400 300",
        ),
        (
            ["models.ltr.sample={set: corpus}", "models.ltr.chunking=exposed"],
            "models.ltr.chunking halving quantiles",
        ),
        (
            [
                student("a", "retrieved", "wide"),
                "arms.wide={pre_ranking: {sizes: {choices: [10, 15], mean: 12}}}",
            ],
            "models.a.sample.arm 'wide'",
        ),
        ([*joint("a", "b"), "joint.both.models=[a, a, c, b]"], "joint.both.models[1] 'a' twice"),
        ([*joint("a", "b"), "joint.both.models=[a, b, c]"], "joint.both.models[2] 'c'"),
        ([*joint("a", "b"), "joint.both.models=[a, b, ltr]"], "joint.both.models[2] 'ltr' recipe: joint"),
        ([*joint("a", "b"), *joint("b", "c", name="two")], "joint.two.models[0] 'b' joint.both"),
        ([*joint("a", "b"), "joint.both.models=[a]"], "joint.both.models 2"),
        ([*joint("a", "b"), f"models.c={{recipe: joint, {SEEN}}}"], "models.c.recipe 'c'"),
        ([*joint("a", "b"), "models.a.epochs=3"], "joint.NAME.epochs"),
        ([*joint("a", "b"), "models.a.teacher=rank"], "models.a.teacher recipe joint"),
        (joint("a", "b", more="objective: lcrn"), "joint.both.objective 'lcrn' 'lcron'"),
        (joint("a", "b", more="options: {kk: 3}"), "joint.both.options.kk 'kk' 'k'"),
        (joint("a", "b", more="options: {temperature: 0}"), "joint.both.options.temperature 0"),
        (joint("a", "b", more="options: {quotas: all}"), "joint.both.options.quotas fixed sizes"),
        (joint("a", "b", more="options: {quotas: sizes, quota: 5}"), "joint.both.options.quota sizes"),
        (joint("a", "b", more="options: {quotas: sizes}"), "joint.both.options.quotas 'a' 'logloss'"),
        (joint("a", "b", more="options: {k: 50}"), "joint.both.options.k 50 sample.per_request"),
        (joint("a", "b", more="epochs: 0"), "joint.both.epochs 1"),
        ([*joint("a", "b"), "cascade.ranking.model=truth"], "joint.both.sample.arm 'truth' logloss"),
        ([*joint("a", "b"), "phases.shadow=0"], "phases.shadow joint.both"),
    ],
)
def test_lists_and_joint_sections_that_cannot_be_are_refused(told, facts):
    with refused(*facts.split()):
        tiny_scenario(*([told] if isinstance(told, str) else told))
