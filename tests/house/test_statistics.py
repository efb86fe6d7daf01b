"""What must hold between the ground truth, the pages shown, the money and the logs.

Bounds are 4.5 standard deviations: far enough that a fixed seed passes, near enough that the bias named in
each test would fail.
"""

import numpy as np
import pytest

from cascade_sim.auction import floor_micros
from cascade_sim.cascade.exploration import explore
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.outcome import outcome
from cascade_sim.cascade.serve import Stage
from cascade_sim.environments.arrivals import Arrivals
from cascade_sim.storage.tables import read_table
from worlds.cascades import make_arm
from worlds.tiny_market import z_score

Z = 4.5


@pytest.fixture(scope="module")
def many(sim):
    """60 thousand requests served by the oracle, half of them explored."""
    seat = Stage(sim.scorers["truth"], "opt", Fusion())
    arm = make_arm(60, seat, 15, seat, 3, "truth", sim.retriever)
    traffic = sim.scenario.traffic.model_copy(update={"block": 60_000})
    block = Arrivals(sim.world, traffic).block("bench", 0, 60_000)
    decision = sim.serve(block, arm)
    explored = explore(block, decision, arm, 0.5, sim.seed, sim.platform)
    result = outcome(block, explored.decision, sim.environment._truth, sim.world.slot_effects, sim.seed)
    return block, decision, explored, result


def test_realised_clicks_match_the_true_ctr(many):
    _, _, _, result = many
    expected = result.expected_clicks
    assert abs(z_score(result.clicks, expected)) < Z
    # Enough draws to see a bias of 5 %:
    assert 0.05 * expected.sum() / np.sqrt((expected * (1 - expected)).sum()) > 2 * Z
    for slot in range(3):
        assert abs(z_score(result.clicks[:, slot], expected[:, slot])) < Z


def test_realised_clicks_match_at_every_level_of_the_true_ctr(many):
    _, _, _, result = many
    p, clicks = result.expected_clicks.ravel(), result.clicks.ravel()
    for part in np.array_split(np.argsort(p), 10):
        assert abs(z_score(clicks[part], p[part])) < Z


def test_realised_conversions_match_the_true_cvr(sim, many):
    block, _, explored, result = many
    cvr = sim.environment._truth.cvr(block, explored.decision.win_set)[result.clicks]
    assert abs(z_score(result.conversions[result.clicks], cvr)) < Z
    assert 0.05 * cvr.sum() / np.sqrt((cvr * (1 - cvr)).sum()) > 0.7 * Z and len(cvr) > 10_000


def test_clicks_on_a_page_and_between_requests_are_independent_draws(many):
    _, _, _, result = many
    surprise = (result.clicks - result.expected_clicks) / np.sqrt(
        result.expected_clicks * (1 - result.expected_clicks)
    )
    n = len(surprise)
    assert abs(np.corrcoef(surprise[:, 0], surprise[:, 1])[0, 1]) < Z / np.sqrt(n)
    assert abs(np.corrcoef(surprise[1:, 0], surprise[:-1, 0])[0, 1]) < Z / np.sqrt(n)
    # The variance of the sum is that of independent draws.
    blocks = (result.clicks - result.expected_clicks).reshape(300, -1).sum(1)
    variance = (result.expected_clicks * (1 - result.expected_clicks)).reshape(300, -1).sum(1)
    assert (blocks**2 / variance).mean() == pytest.approx(1, abs=Z * np.sqrt(2 / 300))


def test_two_arms_that_show_the_same_ad_in_the_same_slot_meet_the_same_click(sim, many):
    block, decision, explored, result = many
    own = outcome(block, decision, sim.environment._truth, sim.world.slot_effects, sim.seed)
    same = decision.win_set == explored.decision.win_set
    assert same.mean() > 0.5 and not same.all()
    assert np.array_equal(own.clicks[same], result.clicks[same])
    assert np.array_equal(own.conversions[same], result.conversions[same])
    assert own.clicks[same].sum() > 1000


def test_an_importance_weighted_log_tells_what_the_cascade_would_have_earned(sim, many):
    """Clicks of the deployed page, estimated from a log half of whose pages were random."""
    block, decision, explored, result = many
    own = outcome(block, decision, sim.environment._truth, sim.world.slot_effects, sim.seed)
    kept = explored.decision.win_set == decision.win_set
    weighted = np.where(kept, result.clicks / np.where(kept, explored.propensity, 1.0), 0.0).sum(1)
    error = weighted.std() / np.sqrt(len(weighted))
    assert weighted.mean() == pytest.approx(own.expected_clicks.sum(1).mean(), abs=Z * error)
    unweighted = result.clicks.sum(1).mean()
    assert abs(unweighted - own.expected_clicks.sum(1).mean()) > 10 * error  # which the bare log misses


ARMS = ["logloss", "ltr", "distill-pre", "random", "bid_only", "pctr_only", "ranker"]


@pytest.mark.parametrize("arm", ARMS)
def test_charges_in_the_log_sum_to_the_revenue_in_the_metrics_exactly(study, arm):
    log, row = read_table(study.folder, f"evaluate-{arm}"), study.metrics["arms"][arm]
    assert log["charge_micros"].dtype == np.int64
    total = int(log["charge_micros"].sum())
    tally = study.evaluation.tallies[arm].joined("columns")
    in_metrics = sum(round(x * 1_000_000) for x in tally["revenue"].tolist())
    assert total == in_metrics > 0
    assert round(row["revenue_per_request"]["value"] * 500 * 1_000_000) == total
    clicks, shown = int(log["click"].sum()), len(log["click"])
    assert row["ctr"]["value"] == pytest.approx(clicks / shown, rel=1e-12)
    assert row["cpc"]["value"] == pytest.approx(total / 1e6 / clicks, rel=1e-12)
    assert row["rpm"]["value"] == pytest.approx(1000 * total / 1e6 / shown, rel=1e-12)


@pytest.mark.parametrize("table", ["cold_start", "log", *[f"evaluate-{arm}" for arm in ARMS]])
def test_every_charge_has_a_click_and_every_click_its_charge(study, table):
    log = read_table(study.folder, table)
    assert np.array_equal(log["charge_micros"], np.where(log["click"], log["cpc_micros"], 0))
    assert np.all(log["cpc_micros"] <= floor_micros(1.4 * log["init_bid"]) + 1)
    assert not np.any(log["conversion"] & ~log["click"])
    assert np.all(log["slot"] < 3) and log["click"].any()


def test_the_logged_propensity_is_how_often_the_page_was_explored(study):
    """Within the log: an ad the cascade put there has 0.8 + 0.2/60, one that chance put there 0.2/60."""
    log = read_table(study.folder, "log")
    by_chance = np.isclose(log["propensity"], 0.2 / 60)
    by_choice = np.isclose(log["propensity"], 0.8 + 0.2 / 60)
    assert np.all(by_chance | by_choice) and np.all(by_choice[~log["is_explored"]])
    # Chance hits the cascade's own ad in its slot once in 60 explored impressions.
    explored = log["is_explored"]
    assert abs(z_score(by_choice[explored], np.full(explored.sum(), 1 / 60))) < Z


def test_weighted_by_its_propensity_every_candidate_is_shown_alike(study):
    """The cold start is uniform: each impression weighs 60, so each slot stands for 60 ads a request."""
    log = read_table(study.folder, "cold_start")
    assert np.allclose(1 / log["propensity"], 60)
    counts = np.bincount(log["ad"], minlength=600)
    users = log["user"][log["slot"] == 0]
    retrieved = study.sim.retriever(users, 60)
    expected = np.bincount(retrieved.ravel(), minlength=600) * 3 / 60
    assert abs(counts - expected).max() < 5.5 * np.sqrt(expected.max())
    assert ((counts - expected)[expected > 5] ** 2 / expected[expected > 5]).mean() == pytest.approx(
        1, abs=0.3
    )


def test_the_same_pair_in_the_same_slot_has_the_same_click_in_every_arms_log(study):
    def key(log):
        return {
            (r, a, s): bool(c)
            for r, a, s, c in zip(*(log[n].tolist() for n in ("request", "ad", "slot", "click")), strict=True)
        }

    logs = {arm: key(read_table(study.folder, f"evaluate-{arm}")) for arm in ARMS}
    shared = clicked = 0
    for arm in ARMS[1:]:
        for pair in logs["logloss"].keys() & logs[arm].keys():
            assert logs["logloss"][pair] == logs[arm][pair]
            shared, clicked = shared + 1, clicked + logs[arm][pair]
    assert shared > 500 and clicked > 10
