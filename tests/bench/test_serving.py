"""The bench measures what it says: complete serving, scoring alone, every stage, every recipe."""

import json

import pytest

from cascade_sim.bench import end_to_end
from cascade_sim.bench import serving as bench
from cascade_sim.cli import main


@pytest.fixture(scope="module")
def found():
    return bench.run(n_requests=1024, n_samples=5000, n_auctions=8192, repeats=2)


def test_what_is_scored_alone_are_the_very_candidates_that_serving_scores(monkeypatch):
    sim, arm = bench.build()
    scored = []
    for stage in (arm.stages[0], arm.last):
        monkeypatch.setattr(stage.scorer, "predict", counted(stage.scorer, scored))
    size = sim.scenario.traffic.block
    end_to_end.serving(sim, arm, size)
    served = scored[:2]  # then the few pages that explored, once more
    sample = bench.served_blocks(sim, arm, 1)
    scored.clear()
    monkeypatch.setattr(
        bench, "per_request", lambda timed: [call(s) for call, part in timed.values() for s in part]
    )
    bench.scoring_alone(arm, sample)
    assert scored == served == [("logloss", (size, 500)), ("rank", (size, 100))]


def counted(scorer, scored):
    predict = scorer.predict
    return lambda block, ids: scored.append((scorer.name, ids.shape)) or predict(block, ids)


def test_every_stage_and_every_recipe_is_timed(found):
    stages = [
        "retrieval (kept)",
        "pre-ranking",
        "selection",
        "ranking",
        "auction",
        "exploration",
        "clicks",
        "log",
    ]
    assert list(found["stages_us"]) == stages
    assert len(found["training"]) == 4
    assert all(spread["least"] > 0 for spread in found["stages_us"].values())
    assert all(value > 0 for value in found["training"].values())


def test_times_come_with_their_spread(found):
    timed = [found[name] for name in ("serving_us", "own_model_us", "market_us")]
    for spread in [*timed, *found["scoring_us"].values(), *found["auction"].values()]:
        assert 0 < spread["least"] <= spread["lower"] <= spread["median"] <= spread["upper"]
        assert spread["repeats"] >= 2


def test_bare_auctions_and_scenarios_of_such_auctions_stand_side_by_side(found):
    assert list(found["auction"]) == ["48 bidders, 3 slots", "2 bidders, 1 slot"]
    assert list(found["scenario"]) == ["2 of 6 bidders, 1 slot", "48 bidders, 3 slots"]


def test_the_share_of_the_floor_is_of_what_serving_takes(found):
    floor = found["floor"]
    assert floor["us"] == pytest.approx(sum(work["us"] for work in floor["stages"].values()))
    assert floor["share"] == pytest.approx(floor["us"] / found["serving_us"]["median"])


def test_the_command_prints_every_figure_as_text_or_json(found, monkeypatch, capsys):
    monkeypatch.setattr(bench, "run", lambda requests: found)
    assert main(["bench", "--quiet"]) == 0
    text = capsys.readouterr().out
    named = [*found["stages_us"], *found["scoring_us"], *found["auction"], *found["scenario"]]
    assert all(name in text for name in [*named, *found["training"], "arithmetic floor", "quartiles"])
    assert main(["bench", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["floor"] == found["floor"]


def test_the_own_model_serves_the_same_cascade_through_torch():
    sim, arm = bench.build()
    own = bench.own_model_arm(sim, arm)
    block = sim.arrivals.block("bench", 0, 64)
    decision = sim.serve(block, own)
    assert decision.win_set.shape == (64, arm.slots)
