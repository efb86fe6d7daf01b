"""Questions to a finished run and to a study: the same code, the same answers."""

import shutil

import pytest

from answers.section_text import says
from answers.told import refused
from cascade_sim.analysis.report.sections.whatif import worth_of
from cascade_sim.counterfactual import whatif
from cascade_sim.counterfactual.whatif import (
    HELD_FIXED,
    Question,
    WhatIfStudy,
    what_if_section,
    what_if_study,
    worlds_of,
)
from cascade_sim.diagnostics import reopen as reopening
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.progress import Progress
from cascade_sim.scenario.overrides import Refused, parse_points
from worlds.tiny_market import tiny_scenario
from worlds.whatif_runs import measured_run

CURVE = "auction.reserve_cpc=0,0.6,0.9"


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    return measured_run(study, tmp_path_factory.mktemp("runs") / "tiny")


def ask(folder, *texts, arm=None, n_requests=0):
    return what_if_study(folder, texts, arm, n_requests)


def test_an_answer_holds_both_sides_the_settings_and_what_was_held_fixed(study, folder):
    answer = ask(folder, CURVE, "slots=2")
    assert (answer["run"], answer["seed"], answer["arm"]) == ("quick", 1, "logloss")
    assert answer["requests"] == 500 and answer["parameter"] == "auction.reserve_cpc"
    assert answer["current"]["settings"] == {"auction.reserve_cpc": 0.0, "cascade.slots": 3}
    assert [point["settings"]["auction.reserve_cpc"] for point in answer["points"]] == [0, 0.6, 0.9]
    assert all(point["settings"]["cascade.slots"] == 2 for point in answer["points"])
    own = study.metrics["arms"]["logloss"]["expected_revenue_per_request"]
    assert answer["current"]["metrics"]["expected_revenue_per_request"] == own
    assert answer["held_fixed"] == list(HELD_FIXED) and answer["notes"] == []
    assert any(says(line, "advertisers", "react") for line in HELD_FIXED)


def test_any_trained_model_of_the_run_can_take_the_seat(study, folder):
    answer = ask(folder, "pre_ranking.model=ltr")
    found = answer["points"][0]["metrics"]["expected_ctr"]
    assert found["value"] == study.metrics["arms"]["ltr"]["expected_ctr"]["value"]
    assert found["lift"] == study.metrics["arms"]["ltr"]["expected_ctr"]["lift"]


def test_an_automatic_arm_can_be_asked_too(study, folder):
    answer = ask(folder, "slots=2", arm="bid_only")
    own = study.metrics["arms"]["bid_only"]["revenue_per_request"]
    current = answer["current"]["metrics"]["revenue_per_request"]
    assert current == {key: own[key] for key in ("value", "low", "high")}


def test_a_changed_fusion_serves(folder):
    answer = ask(folder, "fusions.soft={pctr: 0.4}", "ranking.fusion=soft", "pre_ranking.fusion=soft")
    gap = answer["points"][0]["metrics"]["expected_ctr"]["difference"]
    assert gap["value"] != 0 and answer["current"]["settings"]["fusions.soft"] is None


def test_sizes_by_request_can_be_asked_about(folder):
    answer = ask(folder, "pre_ranking.sizes={choices: [5, 20], mean: 9}", n_requests=128)
    assert answer["points"][0]["metrics"]["rcs"]["value"] != answer["current"]["metrics"]["rcs"]["value"]


def test_a_study_asks_its_own_questions_as_the_finished_run_is_asked(study, folder):
    scenario = tiny_scenario(f"what_if={{curve: ['{CURVE}'], same: ['reserve_cpc=0.6'], few: [slots=2]}}")
    sim = study.sim
    before, sim.scenario = sim.scenario, scenario
    try:
        section = what_if_section(sim, study.folder, Progress(quiet=True))
    finally:
        sim.scenario = before
    assert list(section) == ["curve", "same", "few"]
    answer = ask(folder, CURVE)
    assert section["curve"] == {key: answer[key] for key in section["curve"]}
    assert section["same"]["points"][0]["metrics"] == section["curve"]["points"][1]["metrics"]
    assert section["same"]["parameter"] is None


def test_several_worlds_are_asked_one_by_one_and_combined(study, folder, tmp_path):
    """Two copies of one world: the mean is its value, and the interval has no width."""
    many = measured_run(study, tmp_path / "many")
    for seed in (2, 10):
        measured_run(study, many / f"seed-{seed}")
    assert [path.name for path in worlds_of(many)] == ["seed-2", "seed-10"]
    assert worlds_of(folder) == [folder]
    answer, one = ask(many, "reserve_cpc=0.9", n_requests=128), ask(folder, "reserve_cpc=0.9", n_requests=128)
    assert answer["seeds"] == {"n": 2, "seeds": [1, 1]} and answer["seed"] is None
    own, found = (a["points"][0]["metrics"]["expected_rpm"]["difference"] for a in (one, answer))
    assert found["value"] == pytest.approx(own["value"]) and found["sd"] == pytest.approx(0, abs=1e-9)
    assert found["low"] == pytest.approx(found["high"])
    own, found = (worth_of(a["points"][0], "expected") for a in (one, answer))
    assert 1 < found.value == pytest.approx(own.value)


def test_a_run_is_opened_once_its_points_are_parsed_once_and_its_world_is_built_once(folder, monkeypatch):
    done = []

    def count(where, name):
        real = getattr(where, name)

        def counted(*words, **more):
            done.append(name)
            return real(*words, **more)

        monkeypatch.setattr(where, name, counted)

    for name in ("open_run", "load_scenario", "Simulation"):
        count(reopening, name)
    count(whatif, "given_points")
    answer = what_if_study(folder, {"reserve_cpc": [0.6, 0.9]}, n_requests=128)
    assert done == ["given_points", "open_run", "load_scenario", "Simulation"]  # the question comes first
    assert len(answer["points"]) == 2


def test_of_several_worlds_one_is_held_at_a_time(study, tmp_path, monkeypatch):
    many, held = measured_run(study, tmp_path / "many"), []
    for seed in (2, 10):
        measured_run(study, many / f"seed-{seed}")
    asked = WhatIfStudy.of(many)

    def answer(where, *_):
        held.append((where.logs.name, where.world.sim, "sim" in vars(asked.first)))
        return {"seed": where.scenario.seed, "points": []}

    monkeypatch.setattr(whatif, "ask_run", answer)
    asked.answer(asked.question(["slots=2"]))
    (first, one, is_first_there), (second, other, is_first_there_still) = held
    assert (first, second) == ("seed-2", "seed-10") and one is not other
    assert is_first_there and not is_first_there_still
    assert asked.first.sim is not one  # built again for who asks again


def test_the_parameter_that_varies_is_named():
    scenario = tiny_scenario()
    assert Question(tuple(parse_points(["slots=2"], scenario, "logloss"))).parameter is None
    points = parse_points(["slots=2", "reserve_cpc=1,2"], scenario, "logloss")
    assert Question(tuple(points)).parameter == "auction.reserve_cpc"


def test_a_wrong_question_is_refused_before_a_world_is_built(folder, monkeypatch):
    def built(*_, **__):
        raise AssertionError("work has begun")

    monkeypatch.setattr("cascade_sim.diagnostics.reopen.Simulation", built)
    with pytest.raises(Refused, match="leaves no runner-up"):
        ask(folder, "pre_ranking.size=2")
    with refused("scenario.yaml:", "--arm:", "'lrt'", "'ltr'?"):
        ask(folder, "slots=2", arm="lrt")
    with pytest.raises(UserError, match="does not exist"):
        ask(folder / "nowhere", "slots=2")


def test_all_of_several_mistakes_are_named_each_with_its_place(folder):
    with pytest.raises(Refused) as caught:
        ask(folder, "auction.reserv=1", "slots=2", "auction.squashing=much", "pre_ranking.modle=ltr")
    assert [at for _, at in caught.value.reasons] == [0, 2, 3]
    reserve, squashing, model = (text for text, _ in caught.value.reasons)
    assert "did you mean 'reserve_cpc'" in reserve and "did you mean" in model
    assert "number" in squashing


def test_a_question_is_checked_before_its_run_is_opened(folder, tmp_path):
    unfinished = tmp_path / "unfinished"
    shutil.copytree(folder, unfinished)
    (unfinished / "metrics.json").unlink()
    with pytest.raises(Refused, match="did you mean 'reserve_cpc'"):
        ask(unfinished, "auction.reserv=1")
    with pytest.raises(Refused, match="write path.to.parameter=value"):
        ask(tmp_path / "nowhere", "slots")
    with refused(unfinished, "--resume"):
        ask(unfinished, "slots=2")
