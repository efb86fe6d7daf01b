from dataclasses import replace

import numpy as np
import pytest

from analysis.money import payment_error
from cascade_sim import measure
from cascade_sim.cascade import Stage
from cascade_sim.fusion import Fusion
from cascade_sim.outcome import outcome


@pytest.fixture(scope="module")
def served(study):
    sim = study.sim
    block = sim.market.block("evaluate", 0, 500)
    return sim, block, study.evaluation.baseline, study.evaluation.is_exposed


def measured(served, arm):
    sim, block, _, is_exposed = served
    yard = measure.yardstick(block, arm, sim.platform, sim.truth, sim.seed)
    decision = sim.serve(block, arm)
    result = outcome(block, decision, sim.truth, sim.world.slot_effects, sim.seed)
    table = measure.columns(decision, result, arm, yard, sim.truth, block, sim.platform, is_exposed)
    return table, decision, result, yard


def ratio(table, name):
    top, bottom = measure.RATIOS[name]
    return np.nansum(table[top]) / (len(table[top]) if bottom is None else np.nansum(table[bottom]))


def oracle(served, **changes):
    sim, _, arm, _ = served
    seat = Stage(sim.scorers["truth"], "opt", changes.pop("fusion", Fusion()))
    return replace(arm, pre_ranking=seat, ranking=seat, **changes)


@pytest.mark.parametrize(
    "changes",
    [{}, {"reserve_cpc": 0.9}, {"score_floor": 0.05}, {"pricing": "vcg"}, {"pricing": "first"}, {"slots": 1},
     {"fusion": Fusion(0.5)}, {"fusion": Fusion(1.0, 0.3)}, {"bid_rule": "target_cpa"}],
)  # fmt: skip
def test_an_oracle_cascade_is_exactly_right_under_every_auction(served, changes):
    arm = oracle(served, **changes)
    table, decision, result, yard = measured(served, arm)
    assert np.all(table["rcs"][~np.isnan(table["rcs"])] == 1.0)
    for name in ("single_objective_rcs", "true_value_recall"):
        assert ratio(table, name) > 0.99 if arm.ranking.fusion != Fusion() else ratio(table, name) == 1.0
    assert ratio(table, "cpc_error") == 0.0 and ratio(table, "cpc_bias") == 0.0
    assert ratio(table, "welfare") == 1.0 and ratio(table, "revenue_vs_oracle") == 1.0
    assert ratio(table, "revenue_pcoc") == pytest.approx(1.0, rel=1e-12)
    sim, block, _, _ = served
    group = np.zeros(len(block), int)
    paid = [
        measure.payments(d, o, sim.world.advertiser, sim.world.n_advertisers, group, 1)[0]
        for d, o in ((decision, result), (yard.oracle, yard.oracle_outcome))
    ]
    assert payment_error(*paid) == 0.0 and paid[0].sum() > 0


def test_an_ordinary_cascade_is_wrong_in_all_these_respects(served):
    table, *_ = measured(served, served[2])
    assert ratio(table, "rcs") < 1 and ratio(table, "cpc_error") > 0.01
    assert ratio(table, "welfare") < 1 and abs(ratio(table, "revenue_pcoc") - 1) > 0.01


def test_the_columns_of_an_arm_are_sums_over_its_pages(served):
    sim, block, arm, _ = served
    table, decision, result, _ = measured(served, arm)
    r = int(np.argmax(table["clicks"]))
    shown = decision.win_set[r] >= 0
    assert table["clicks"][r] == result.clicks[r].sum() >= 1
    assert table["impressions"][r] == shown.sum()
    assert table["revenue"][r] == result.charges_micros[r].sum() / 1e6
    assert table["revenue_per_mille"][r] == 1000 * table["revenue"][r]
    assert table["expected_clicks"][r] == pytest.approx((sim.world.slot_effects * result.true_ctr[r]).sum())
    paid = decision.cpc_micros[r] / 1e6
    assert table["expected_revenue"][r] == pytest.approx((paid * result.expected_clicks[r]).sum())
    forecast = (paid * sim.world.slot_effects * decision.ranked_pctr[r, :-1]).sum()
    assert table["forecast_revenue"][r] == pytest.approx(forecast)
    ideal = measured(served, arm)[3].ideal.win_set[r]
    assert table["rcs"][r] == np.isin(ideal, decision.competitive_set[r]).mean()


def test_the_true_cpc_reprices_the_same_list_with_the_true_ctr(served):
    sim, block, arm, _ = served
    _, decision, _, _ = measured(served, arm)
    found = measure.true_cpc(decision, arm, sim.truth, block, sim.platform)
    true = sim.truth.ctr(block, decision.ranked_set)
    for r in range(0, len(block), 11):
        for k in range(3):
            next_score = decision.ranked_bid[r, k + 1] * true[r, k + 1]
            expected = min(next_score / true[r, k], decision.ranked_bid[r, k])
            assert found[r, k] == pytest.approx(expected, abs=1e-6)


def test_exposed_and_unexposed_winners_add_up_to_all_of_them(served):
    sim, _, arm, is_exposed = served
    table, decision, _, yard = measured(served, arm)
    exposed = np.where(yard.ideal.win_set >= 0, is_exposed[yard.ideal.win_set], False).sum(axis=1)
    n = (yard.ideal.win_set >= 0).sum(axis=1)
    total = exposed * np.nan_to_num(table["rcs_exposed"]) + (n - exposed) * np.nan_to_num(
        table["rcs_unexposed"]
    )
    assert total / n == pytest.approx(table["rcs"])
    assert 0 < exposed.sum() < n.sum()
    assert np.array_equal(np.isnan(table["rcs_exposed"]), exposed == 0)


def test_a_seat_without_an_opinion_has_no_single_objective_rcs(served):
    arm = served[2].with_pre_ranking(Stage(served[0].scorers["constant"], "init", Fusion()))
    table, *_ = measured(served, arm)
    assert "single_objective_rcs" not in table and "rcs" in table


def test_only_probabilities_are_compared_with_the_rankers(served):
    sim, _, arm, _ = served
    for model, is_probability in [
        ("logloss", True),
        ("distill-pre", True),
        ("ltr", False),
        ("random", False),
    ]:
        one = arm.with_pre_ranking(Stage(sim.scorers[model], "init", Fusion()))
        _, decision, _, yard = measured(served, one)
        sums = measure.proxy_sums(decision, one, yard)
        assert (sums is not None) == is_probability
    same = arm.with_pre_ranking(arm.ranking)
    _, decision, _, yard = measured(served, same)
    counts = measure.proxy_sums(decision, same, yard)
    assert counts[:, 1] == pytest.approx(counts[:, 2]) and counts[:, 0].sum() == decision.pre_ranking_set.size


def test_payments_are_kept_by_group_of_requests_and_advertiser(served):
    sim, block, arm, _ = served
    _, decision, result, _ = measured(served, arm)
    group = np.arange(len(block)) % 4
    n = sim.world.n_advertisers
    found = measure.payments(decision, result, sim.world.advertiser, n, group, 4)
    expected = np.zeros((4, n))
    for r in range(len(block)):
        for k in range(3):
            ad = decision.win_set[r, k]
            if ad >= 0:
                paid = decision.cpc_micros[r, k] / 1e6 * result.expected_clicks[r, k]
                expected[group[r], sim.world.advertiser[ad]] += paid
    assert found == pytest.approx(expected) and found.sum() > 0
