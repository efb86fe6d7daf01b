"""A market whose cascade has two steps of pre-ranking: pools, timeouts, training, logs and checkpoints."""

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.analysis.metrics.consistency import rcs
from cascade_sim.api.results import RunResult
from cascade_sim.cascade.serve import serve, shadow
from cascade_sim.context import RunContext
from cascade_sim.market.compute import ServerPools, candidates_before_last, stage_candidates
from cascade_sim.market.panel import Panel
from cascade_sim.market.run import MarketRun
from cascade_sim.market.study import market_columns, run_recorded
from cascade_sim.scenario.market import Compute
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.storage.checkpoints import flat
from cascade_sim.storage.tables import TableWriter, read_categories, read_table
from cascade_sim.study.simulation import Simulation
from cascade_sim.training.data import dumped_context
from oracles.queues import in_a_row
from worlds.cascades import with_stage_of
from worlds.learning_market import learning_scenario, learning_sim, weights
from worlds.timed_market import SCARCE, WORLD, live, timed_scenario

FOUR = ("retrieval", "coarse", "pre_ranking", "ranking")
PRE = {"model": "random", "size": 20}
COARSE = {"model": "random", "bid": "none", "size": 30}
CASCADE = {**WORLD["cascade"], "pre_ranking": {**PRE, "earlier": {"coarse": COARSE}}}
# One server a stage at 1 request a second, busy enough for some requests to run out of time at each.
POOL = {"per_batch_ms": 200.0, "per_candidate_us": 6000.0, "batch": 1}
STAGES = {"retrieval": POOL, "coarse": POOL, "pre_ranking": {**POOL, "per_candidate_us": 14_000.0},
          "ranking": {**POOL, "per_candidate_us": 25_000.0}}  # fmt: skip
BUSY = {**SCARCE, "compute": {"deadline": 2200.0, "stages": STAGES, "jitter": 0.8}}
NO_TIME = {"per_batch_ms": 0.0, "per_candidate_us": 0.0, "batch": 1}


@pytest.fixture(scope="module")
def busy():
    return live({**BUSY, "shadow": 1.0}, cascade=CASCADE, auction={"reserve_cpc": 0.4}, is_watched=True)


def places(found):
    return np.concatenate([one.lists.served_by_stage for one in found.settled])


def test_requests_run_out_of_time_at_every_stage_and_the_tally_names_them(busy):
    by = places(busy)
    compute = busy.run.server.compute.metrics(busy.metrics["revenue"])
    assert set(by.tolist()) == {-1, 0, 1, 2, 3}
    assert compute["answered"] == {name: np.mean(by == i) for i, name in enumerate(("none", *FOUR), -1)}
    assert compute["late"] == np.mean(by < 3)
    assert tuple(compute["stages"]) == tuple(compute["hours"]["utilisation"]) == FOUR
    assert all(0 < stage["utilisation"] < 1 for stage in compute["stages"].values())


def test_a_stage_that_scores_auctions_what_it_handed_on_and_retrieval_costs_the_reserve(busy):
    cost, by = busy.log["cpc_micros"], busy.log["served_by_stage"]
    assert (cost[by == 0] == 400_000).all() and all((cost[by == i] > 400_000).any() for i in (1, 2, 3))
    for piece in busy.settled:
        handed = {1: 30, 2: 20, 3: 20}  # entrants of the auction: what the stage before was handed on
        for place, most in handed.items():
            rows = (piece.lists.served_by_stage == place) & ~piece.lists.is_explored
            assert ((piece.lists.entrants[rows] >= 0).sum(axis=1) <= most).all()
    assert (busy.run.ledger.spend() <= busy.run.ledger.budget).all()


def test_only_requests_that_ranking_answered_are_watched_by_the_live_shadow(busy):
    found = busy.run.live_shadow.metrics()
    assert found["requests"] == (places(busy) == 3).sum() < len(places(busy))
    assert 0.05 < found["rcs"]["value"] < 0.6  # two random steps


def test_a_page_that_coarse_answers_is_scored_as_in_a_shorter_cascade(busy):
    """Its prediction, bid and quality are the coarse model's, which has no probability: pCTR 0."""
    rows = busy.log["served_by_stage"] == 1
    assert rows.sum() > 20 and (busy.log["prediction"][rows] == 0).all()
    assert (busy.log["prediction"][busy.log["served_by_stage"] == 3] > 0).all()


def test_a_step_that_hands_on_all_leaves_the_market_as_it_is_bit_for_bit():
    whole = {**CASCADE, "pre_ranking": {**PRE, "earlier": {"coarse": {**COARSE, "size": 60}}}}
    three, four = live({"days": 0.005}), live({"days": 0.005}, cascade=whole)
    assert (three.log.pop("served_by_stage") == 2).all() and (four.log.pop("served_by_stage") == 3).all()
    assert three.metrics == four.metrics
    assert all(three.log[name].tobytes() == four.log[name].tobytes() for name in three.log)


def test_a_step_in_no_time_leaves_the_others_pools_as_they_are():
    """Bit for bit: service times are drawn by a stage's name, not by its place."""
    compute = Compute.model_validate({**BUSY["compute"], "stages": {**STAGES, "coarse": NO_TIME}})
    times, n = np.cumsum(np.random.default_rng(0).exponential(1.0, 2000)), 2000
    three = ServerPools(compute, (FOUR[0], *FOUR[2:]), 1).serve(
        np.arange(n), times, stage_candidates((60, 60), np.full(n, 20))
    )
    four = ServerPools(compute, FOUR, 1).serve(
        np.arange(n), times, stage_candidates((60, 60, 60), np.full(n, 20))
    )
    others = [0, 2, 3]
    assert three.latency.tobytes() == four.latency.tobytes()
    assert np.array_equal(three.service, four.service[:, others])
    assert np.array_equal(
        np.where(four.served_by_stage > 0, four.served_by_stage - 1, four.served_by_stage),
        three.served_by_stage,
    )
    assert set(three.served_by_stage.tolist()) == {-1, 0, 1, 2} and (four.served_by_stage == 1).any()


def test_pools_of_four_stages_agree_with_a_simulation_where_nobody_overtakes():
    n, deadline = 2000, 60.0
    costs = zip(FOUR, (3.0, 2.0, 1.0, 4.0), (10.0, 20.0, 50.0, 100.0), strict=True)
    pools = {name: {**NO_TIME, "per_batch_ms": ms, "per_candidate_us": us} for name, ms, us in costs}
    compute = Compute.model_validate({"deadline": deadline, "jitter": 0.0, "stages": pools})
    times = np.cumsum(np.random.default_rng(0).exponential(0.012, n))
    candidates = stage_candidates((300, 300, 100), np.full(n, 50))
    found = ServerPools(compute, FOUR, 1).serve(np.arange(n), times, candidates)
    stages = [
        (candidates[:, i] * 1e-6 * pool["per_candidate_us"], 1e-3 * pool["per_batch_ms"], np.ones(n), 1, 1)
        for i, pool in enumerate(pools.values())
    ]
    met = in_a_row(times.tolist(), deadline / 1e3, stages)
    done = [sum(one is not None and not one.is_left_out for one in row) for row in zip(*met, strict=True)]
    assert np.array_equal((found.service > 0).sum(axis=1), done) and found.service.shape == (n, 4)
    assert 0.02 < np.mean(found.served_by_stage == 3) < 0.98


def test_candidates_of_a_stage_are_what_it_is_handed(busy):
    assert candidates_before_last(busy.run.server.arm) == (60, 60, 30)
    stages = Compute.model_validate(
        {"stages": {"pre_ranking": {"servers": 7}, "fine": {"servers": 2}}}
    ).stages
    assert stages.pool("fine").servers == 2 and stages.pool("coarse") == stages.pool("pre_ranking")


def test_pools_of_other_stages_are_another_state():
    three, four = (ServerPools(Compute(), names, 1) for names in (FOUR[1:], FOUR))
    with pytest.raises(ValueError, match="these pools need"):
        four.restore(three.state())


def test_the_panel_measures_what_all_steps_let_through():
    sim = Simulation(timed_scenario(cascade=CASCADE), 1)
    arm = sim.arm("now", resolved_arms(sim.scenario)["now"])
    found, block = Panel(sim, arm, 64).measure(arm), sim.arrivals.block("panel", 0, 64)
    ideal, own = (serve(block, one, sim.platform) for one in (shadow(arm), arm))
    assert np.array_equal(found["rcs"], rcs(ideal.win_set, own.competitive_set))
    half_known = with_stage_of(arm, 1, arm.last)
    known = with_stage_of(half_known, 0, arm.last)
    shares = [Panel(sim, arm, 64).measure(one)["recall"].mean() for one in (arm, half_known, known)]
    assert shares[0] < shares[1] < shares[2] == 1.0


# Training: a model in each of the three scoring stages; the coarse one is a student of the ranker.


def learning(folder, stop_after=None):
    """A market that learns, with timeouts, recorded in a folder; stopped after so many pieces."""
    scenario = learning_scenario({"checkpoint": 300.0, "shadow": 0.5, "compute": BUSY["compute"]})
    earlier = {"coarse": {"model": "pupil", "bid": "none", "size": 30}}
    section = {"model": "pre", "size": 20, "earlier": earlier}
    cascade = type(scenario.cascade).model_validate({**scenario.cascade.model_dump(), "pre_ranking": section})
    sim = learning_sim(scenario.model_copy(update={"cascade": cascade}))
    arm = sim.arm("now", resolved_arms(sim.scenario)["now"])
    run = MarketRun(sim, arm, sim.scenario.market, is_watched=True)
    seen = []

    def count(settled):
        seen.append(settled)
        if len(seen) == stop_after:
            raise KeyboardInterrupt
        return {}

    context = RunContext(folder)
    with context.progress:
        figures = run_recorded(run, "now", context, count)
    return run, figures, seen


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("logs/*/*"))}


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned")
    return folder, *learning(folder)


def test_models_of_every_step_are_trained_and_deployed(learned):
    _, run, _, _ = learned
    assert [stage.scorer.name for stage in run.trainer.arm.stages] == ["pupil", "pre", "rank"]
    assert run.trainer.version == 3 and run.server.arm is run.trainer.arm
    for stage in run.trainer.arm.stages:
        before, after = weights(run.sim.scorers[stage.scorer.name].module), weights(stage.scorer.module)
        assert any(not np.array_equal(before[name], after[name]) for name in before), stage.name
    assert len(run.trainer.metrics(run.now)["panel"]) == 5


def test_a_stopped_market_goes_on_to_the_same_bytes(learned, tmp_path):
    folder, run, figures, seen = learned
    with pytest.raises(KeyboardInterrupt):
        learning(tmp_path, stop_after=len(seen) - 3)
    again, same_figures, rest = learning(tmp_path)
    assert 3 < len(rest) < len(seen)  # from the last checkpoint on
    assert same_figures == figures and files(tmp_path) == files(folder)
    own, other = flat(run.state()), flat(again.state())
    assert own.keys() == other.keys()
    assert all(own[name].tobytes() == other[name].tobytes() for name in own)
    assert own["compute/pools/free"].shape[0] == own["compute/tally/wait"].shape[0] == 4


def test_the_log_has_the_names_of_its_stages_and_is_read_by_them(learned):
    folder, run, _, seen = learned
    assert read_categories(folder, "market-now") == {"served_by_stage": FOUR}
    assert read_categories(folder, "charges-now") == {}
    columns = read_table(folder, "market-now")
    parts = [market_columns(run.sim, one)["served_by_stage"] for one in seen]
    assert np.array_equal(columns["served_by_stage"], np.concatenate(parts))
    names = RunResult(folder, {}).log("market-now")["served_by_stage"]
    assert names.tolist() == [FOUR[code] for code in columns["served_by_stage"]]
    assert {"coarse", "pre_ranking", "ranking"} <= set(names)
    dump = dumped_context(columns, FOUR)
    ranked = dump.served_by_stage == "ranking"
    assert 0 < ranked.sum() < len(ranked) and np.isfinite(dump.scores).all()


def test_a_state_of_other_stages_is_refused(learned, tmp_path):
    _, run, _, _ = learned
    state = {**run.state(), "stages": np.array(FOUR[1:])}
    with refused("stages", "coarse, pre_ranking, ranking", kind=ValueError):
        run.restore(state)


def test_categories_that_are_none_and_codes_beyond_them_are_refused(tmp_path):
    for name, names in {"codes": ["a"], "twice": ["a", "a"], "sound": ["a", "b"]}.items():
        with TableWriter(tmp_path, name, categories={"by": names}) as table:
            table.append({"by": np.array([0, 1, -1], np.int8)})
    assert read_table(tmp_path, "sound")["by"].tolist() == [0, 1, -1]
    with refused("'by'", "row 1", "-1 to 0"):
        read_table(tmp_path, "codes")
    with refused("twice", "different names"):
        read_categories(tmp_path, "twice")
