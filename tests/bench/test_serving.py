"""The bench measures what it says: complete serving, scoring alone, every stage, every recipe."""

import pytest

from cascade_sim.bench import serving as bench


@pytest.fixture(scope="module")
def found():
    return bench.run(n_requests=1024, n_samples=5000)


def test_the_floor_is_the_scoring_of_the_very_candidates_that_serving_scores(monkeypatch):
    sim, arm = bench.build()
    scored = []
    for stage in (arm.pre_ranking, arm.ranking):
        monkeypatch.setattr(stage.scorer, "predict", counted(stage.scorer, scored))
    size = sim.scenario.traffic.block
    bench.serving(sim, arm, size)
    served = scored[:2]  # then the few pages that explored, once more
    sample = bench.served_blocks(sim, arm, 1)
    scored.clear()
    monkeypatch.setattr(bench, "per_request", lambda function, sample: len([function(s) for s in sample]))
    bench.floors(arm, sample)
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
    assert list(found["stages"]) == stages
    assert len(found["training"]) == 4
    assert all(value > 0 for value in [*found["stages"].values(), *found["training"].values()])


def test_auctions_and_the_market_are_timed(found):
    assert list(found["auction"]) == ["48 bidders, 3 slots", "2 bidders, 1 slots"]
    assert all(rate > 0 for rate in found["auction"].values())
    assert found["market"] > 0 and found["serving"] > 0 and found["floors"]["fused"] > 0


def test_the_own_model_serves_the_same_cascade_through_torch(found):
    sim, arm = bench.build()
    own = bench.own_model_arm(sim, arm)
    block = sim.arrivals.block("bench", 0, 64)
    decision = sim.serve(block, own)
    assert decision.win_set.shape == (64, arm.slots)
    assert found["own_model"] > 0
