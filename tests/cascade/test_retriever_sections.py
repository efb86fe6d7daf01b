"""Retrievers in a scenario: what is left out when it is written, what arms inherit, and what is raised."""

import pytest

from answers.told import refused, tells
from cascade_sim.cascade.retrievers.custom import find_retriever
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario.data import scenario_data, scenario_hash
from cascade_sim.scenario.file import dump_scenario, load_scenario
from cascade_sim.scenario.memory import peak_bytes, sizes_of, staying
from cascade_sim.scenario.overrides import Refused, apply_overrides, parse_points
from cascade_sim.scenario.plugins import (
    RETRIEVER_KINDS,
    kept_retrievers,
    register_retriever,
    require_options,
    user_code_of,
)
from cascade_sim.scenario.schema import resolved_arms
from checks.own_retrievers import POPULAR
from worlds.tiny_market import tiny_scenario

ROUTES = "{near: {size: 40}, popular: {kind: 'popular.py:Popular', size: 20}}"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "popular.py").write_text(POPULAR)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_routes(*more):
    return tiny_scenario(f"cascade.retrieval={{routes: {ROUTES}}}", *more)


def refusal(*overrides):
    with pytest.raises(ScenarioError) as error:
        tiny_scenario(*overrides)
    return "\n".join(error.value.problems)


def test_what_says_nothing_is_left_out_so_that_scenarios_keep_their_hash():
    plain = tiny_scenario()
    assert scenario_data(plain)["cascade"]["retrieval"] == {"size": 60, "group": "G1", "overlap": 0.5}
    spelled = tiny_scenario("cascade.retrieval.kind=similarity", "cascade.retrieval.routes={}")
    assert scenario_hash(spelled) == scenario_hash(plain)
    assert scenario_hash(with_routes()) != scenario_hash(plain)


@pytest.mark.parametrize(
    "overrides",
    [
        (f"cascade.retrieval={{routes: {ROUTES}}}",),
        ("cascade.retrieval={kind: 'popular.py:Popular', size: 60, options: {taste: 0.1}}",),
        ("arms.ltr.retrieval={kind: 'popular.py:Popular'}",),
        (f"cascade.retrieval={{routes: {ROUTES}}}", "arms.ltr.retrieval={routes: {popular: {size: 0}}}"),
        (f"cascade.retrieval={{routes: {ROUTES}}}", "arms.ltr.retrieval={kind: similarity, size: 60}"),
    ],
)
def test_a_resolved_scenario_loads_back_to_an_equal_one(folder, overrides):
    scenario = tiny_scenario(*overrides)
    (folder / "again.yaml").write_text(dump_scenario(scenario))
    again = load_scenario(folder / "again.yaml")
    assert again == scenario and scenario_hash(again) == scenario_hash(scenario)
    assert resolved_arms(again) == resolved_arms(scenario)


def test_a_file_beside_the_scenario_is_found_from_elsewhere(folder, tmp_path_factory, monkeypatch):
    (folder / "own.yaml").write_text(
        dump_scenario(with_routes("arms.ltr.retrieval={kind: 'popular.py:Popular'}"))
    )
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    scenario = load_scenario(folder / "own.yaml")
    kinds = {scenario.cascade.retrieval.routes["popular"].kind, scenario.arms["ltr"].retrieval.kind}
    assert all(kind.endswith("/popular.py:Popular") and kind != "popular.py:Popular" for kind in kinds)
    assert find_retriever(kinds.pop()).__name__ == "Popular"


def test_an_arm_changes_routes_by_name_adds_some_or_has_a_retriever_in_their_place():
    arms = resolved_arms(
        with_routes(
            "arms.a={retrieval: {routes: {popular: {options: {taste: 1}}, g: {kind: similarity, size: 9}}}}",
            "arms.b={retrieval: {kind: similarity}}",
        )
    )
    assert arms["logloss"].retrieval_size == 60 == arms["b"].retrieval_size
    assert arms["a"].retrieval_size == 69
    changed = arms["a"].retrieval.routes["popular"]
    assert (changed.kind, changed.size, changed.options) == ("popular.py:Popular", 20, {"taste": 1})
    assert arms["b"].retrieval.is_similarity and not arms["a"].retrieval.is_similarity


def test_another_kind_does_not_inherit_options():
    arms = resolved_arms(
        tiny_scenario(
            "cascade.retrieval={kind: 'popular.py:Popular', size: 60, options: {taste: 0.1}}",
            "arms.ltr={retrieval: {kind: similarity}}",
            "arms.distill-pre={retrieval: {options: {taste: 0.2}}}",
        )
    )
    assert arms["ltr"].retrieval.options == {}
    assert arms["distill-pre"].retrieval.options == {"taste": 0.2}


@pytest.mark.parametrize(
    ("overrides", "key", "words"),
    [
        (["cascade.retrieval.kind=similarty"], "kind", "'similarity'?"),
        (["cascade.retrieval.kind=popular.py"], "kind", "popular.py:ClassName"),
        (["cascade.retrieval.kind=popula.py:Popular"], "kind", "'popular.py'?"),
        (["cascade.retrieval.kind=popular.py:Popula"], "kind", "'Popula' 'Popular'?"),
        (["cascade.retrieval={kind: 'popular.py:Popular', options: {tast: 1}}"], "options.tast", "'taste'"),
        (["cascade.retrieval.options={overlap: 1}"], "options.overlap", "similarity options"),
        (["cascade.retrieval={kind: 'popular.py:Popular', overlap: 0.1}"], "overlap", "under options"),
        (["cascade.retrieval={routes: {near: {group: G9}}}"], "routes.near.group", "unknown group 'G9'"),
        (["arms.ltr.retrieval={group: G9}"], "arms.ltr.retrieval.group", "unknown group 'G9'"),
        (["cascade.retrieval={size: 9, routes: {near: {size: 30}}}"], "size", "NAME.size (together 30)"),
        (["cascade.retrieval={routes: {'a.b': {size: 30}}}"], "routes.a.b", "letters"),
        (["cascade.retrieval={routes: {near: {routes: {}}}}"], "routes.near", "unknown key 'routes'"),
        (["cascade.retrieval={routes: {near: {size: 8}, far: {size: 6}}}"], "size", "at most 14"),
        (["cascade.retrieval={routes: {near: {size: 400}, far: {size: 300}}}"], "size", "routes together"),
        (["cascade.retrieval={routes: {near: {size: -1}}}"], "routes.near.size", "from 0 to"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_key_and_what_was_meant(overrides, key, words):
    said = refusal(*overrides)
    assert tells(said, *key.split()) and tells(said, *words.split())


def test_a_route_that_an_arm_misspells_is_not_taken_for_a_further_one():
    said = refusal(
        f"cascade.retrieval={{routes: {ROUTES}}}", "arms.ltr.retrieval={routes: {populr: {size: 5}}}"
    )
    assert tells(said, "arms.ltr.retrieval", "'popular'?")
    said = refusal(f"cascade.retrieval={{routes: {ROUTES}}}", "arms.ltr.retrieval={size: 5}")
    assert "routes.NAME.size" in said


def test_a_quota_is_set_by_the_name_of_its_route(folder):
    (folder / "own.yaml").write_text(dump_scenario(with_routes()))
    scenario = load_scenario(folder / "own.yaml", ["cascade.retrieval.routes.near.size=33"])
    assert scenario.cascade.retrieval.total == 53


@pytest.mark.parametrize(
    ("texts", "size", "kinds"),
    [
        (["retrieval.size=50"], 50, ["similarity"]),
        (["retrieval.kind=popular.py:Popular"], 60, ["popular.py:Popular"]),
        (["retrieval.kind=popular.py:Popular", "retrieval.options.taste=0.9"], 60, ["popular.py:Popular"]),
        (["retrieval.overlap=0.9"], 60, ["similarity"]),
        ([f"retrieval.routes={ROUTES}"], 60, ["similarity", "popular.py:Popular"]),
    ],
)
def test_a_what_if_turns_what_retrieves(folder, texts, size, kinds):
    scenario = tiny_scenario()
    (point,) = parse_points(texts, scenario, "logloss")
    _, spec = apply_overrides(scenario, resolved_arms(scenario)["logloss"], point, folder)
    assert spec.retrieval_size == size
    assert [route.kind for route in spec.retrieval.parts.values()] == kinds


def test_values_of_an_option_leave_the_arm_and_each_other_as_they_are(folder):
    """The options of a section are a dict: changed in place, both sides of a what-if would be the same."""
    own = "{kind: 'popular.py:Popular', size: 60, options: {taste: 0.5}}"
    route = f"{{routes: {{near: {{size: 40}}, popular: {own}}}}}"
    scenario = tiny_scenario(f"arms.own={{retrieval: {own}}}", f"arms.routed={{retrieval: {route}}}")
    for arm, parameter in (("own", "retrieval"), ("routed", "retrieval.routes.popular")):
        spec = resolved_arms(scenario)[arm]
        points = parse_points([f"{parameter}.options.taste=0.1,0.9"], scenario, arm)
        turned = [apply_overrides(scenario, spec, point, folder)[1] for point in points]
        options = [list(each.retrieval.parts.values())[-1].options for each in (spec, *turned)]
        assert options == [{"taste": 0.5}, {"taste": 0.1}, {"taste": 0.9}]


def test_a_what_if_of_an_arm_with_routes_turns_one_of_them_or_all(folder):
    scenario = with_routes()
    spec = resolved_arms(scenario)["logloss"]

    def turned(*texts):
        (point,) = parse_points(texts, scenario, "logloss")
        return apply_overrides(scenario, spec, point, folder)[1].retrieval

    assert turned("retrieval.routes.near.size=50").total == 70
    assert turned("retrieval.routes={near: {size: 41}}").total == 61
    assert turned("retrieval.routes.popular.options.taste=2.0").routes["popular"].options == {"taste": 2.0}
    assert turned("retrieval.kind=similarity").is_similarity
    for text, words in (
        ("retrieval.size=50", "routes.NAME.size"),
        ("retrieval.routes.naer.size=50", "did you mean"),
        ("retrieval.kind=similarty", "did you mean 'similarity'"),
    ):
        with pytest.raises(Refused, match=words):
            turned(text)


def test_the_code_of_a_retriever_belongs_to_a_run_and_its_options_are_asked_for(folder):
    scenario = with_routes("arms.ltr.retrieval={kind: 'popular.py:Popular', options: {taste: 2}}")
    before = user_code_of(scenario, folder)
    assert set(before) == {"popular.py"}
    assert kept_retrievers(scenario) == {"retriever.0": "popular.py:Popular"}
    require_options(scenario, folder)
    (folder / "popular.py").write_text(POPULAR + "\n# changed\n")
    find_retriever("popular.py:Popular", folder)
    assert user_code_of(scenario, folder) != before


def test_a_registered_retriever_is_known_by_its_name():
    register_retriever("mine", find_retriever("popular.py:Popular"))
    try:
        assert tiny_scenario("cascade.retrieval.kind=mine").cascade.retrieval.kind == "mine"
        with refused("retrieve, score"):
            register_retriever("other", int)
    finally:
        RETRIEVER_KINDS.registered.clear()


def test_memory_counts_every_index(folder):
    one = tiny_scenario()
    two = tiny_scenario("arms.ltr.retrieval={group: G4}")
    assert sizes_of(one).index_width == 9 and sizes_of(two).index_width == 18
    assert staying(sizes_of(two))["retrieval"] == 2 * staying(sizes_of(one))["retrieval"]
    assert peak_bytes(sizes_of(tiny_scenario("cascade.retrieval.kind=popular.py:Popular"))) > 0
