from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES, columns_of
from cascade_sim.analysis.metrics.money import payment_error_vs_oracle
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.serve import Stage
from cascade_sim.environments.evaluators import truth as measure
from worlds.cascades import with_stage_of


@pytest.fixture(scope="module")
def served(study):
    sim = study.sim
    block = sim.arrivals.block("evaluate", 0, 500)
    return sim, block, study.evaluation.baseline, study.evaluation.evaluator


def measured(served, arm, baseline=None):
    """Held against the oracle of `baseline`, by default the arm's own rules."""
    sim, block, _, ruler = served
    ruler = replace(ruler, baseline=baseline or arm)
    context = ruler.context(block, np.zeros(len(block), int), 1)
    decision = sim.serve(block, arm)
    result = sim.environment.outcome(block, decision)
    yard, columns = ruler.reference_sets(context, arm), ruler.columns(context, arm, decision, result)
    return columns, decision, result, yard, context.oracle


def wrong_payments(served, decision, result, oracle):
    """Payment error vs oracle, and what advertisers paid in all."""
    sim, block, *_ = served
    group = np.zeros(len(block), int)
    paid = [
        measure.payments(d, o, sim.world.advertiser, sim.world.n_advertisers, group, 1)[0]
        for d, o in ((decision, result), (oracle.decision, oracle.outcome))
    ]
    return payment_error_vs_oracle(*paid), paid[0].sum()


def ratio(table, name):
    return ARM_MEASURES[name].of({column: values.sum() for column, values in table.items()})


def all_knowing(served, **changes):
    sim, _, arm, _ = served
    seat = Stage(sim.scorers["truth"], "opt", changes.pop("fusion", Fusion()))
    return replace(with_stage_of(with_stage_of(arm, 0, seat), -1, seat), **changes)


@pytest.mark.parametrize(
    "changes",
    [{}, {"reserve_cpc": 0.9}, {"score_floor": 0.05}, {"pricing": "vcg"}, {"pricing": "first"}, {"slots": 1},
     {"fusion": Fusion(0.5)}, {"fusion": Fusion(1.0, 0.3)}, {"bid_rule": "target_cpa"}],
)  # fmt: skip
def test_an_oracle_cascade_is_exactly_right_under_every_auction(served, changes):
    arm = all_knowing(served, **changes)
    table, decision, result, _, oracle = measured(served, arm)
    assert np.array_equal(table["ideal_reached"], table["ideal_requests"])
    for name in ("single_objective_rcs", "true_value_recall"):
        assert ratio(table, name) > 0.99 if arm.last.fusion != Fusion() else ratio(table, name) == 1.0
    assert ratio(table, "cpc_error") == 0.0 and ratio(table, "cpc_bias") == 0.0
    assert ratio(table, "welfare_vs_oracle") == 1.0 and ratio(table, "revenue_vs_oracle") == 1.0
    assert ratio(table, "revenue_pcoc") == pytest.approx(1.0, rel=1e-12)
    error, paid = wrong_payments(served, decision, result, oracle)
    assert error == 0.0 and paid > 0


def test_an_ordinary_cascade_is_wrong_in_all_these_respects(served):
    table, *_ = measured(served, served[2])
    assert ratio(table, "rcs") < 1 and ratio(table, "cpc_error") > 0.01
    assert ratio(table, "welfare_vs_oracle") < 1 and abs(ratio(table, "revenue_pcoc") - 1) > 0.01


def test_the_columns_of_an_arm_are_sums_over_its_pages(served):
    sim, block, arm, _ = served
    table, decision, result, *_ = measured(served, arm)
    r = int(np.argmax(table["clicks"]))
    shown = decision.win_set[r] >= 0
    assert table["clicks"][r] == result.clicks[r].sum() >= 1
    assert table["impressions"][r] == shown.sum()
    assert table["revenue"][r] == result.charges_micros[r].sum() / 1e6
    assert table[ARM_MEASURES["rpm"].parts[0]][r] == 1000 * table["revenue"][r]
    assert table["expected_clicks"][r] == pytest.approx((sim.world.slot_effects * result.true_ctr[r]).sum())
    paid = decision.cpc_micros[r] / 1e6
    assert table["expected_revenue"][r] == pytest.approx((paid * result.expected_clicks[r]).sum())
    forecast = (paid * sim.world.slot_effects * decision.ranked_pctr[r, :-1]).sum()
    assert table["forecast_revenue"][r] == pytest.approx(forecast)
    ideal = measured(served, arm)[3].ideal.win_set[r]
    assert table["ideal_reached"][r] == np.isin(ideal, decision.competitive_set[r]).mean()


@pytest.mark.parametrize(
    ("column", "price"), [("cpc_error", None), ("cpc_error_irreducible", "ctr_without_noise")]
)
def test_the_cpc_error_is_against_the_same_list_priced_with_the_true_ctr(served, column, price):
    """Its floor is what one would still err by who knew all of the CTR but the noise of the pair."""
    sim, block, arm, _ = served
    table, decision, result, *_ = measured(served, arm)

    def prices(r, ctr):
        """GSP: the next score over the own CTR, at most the bid, in whole micro-units."""
        bid = decision.ranked_bid[r]
        return [round(min(bid[k + 1] * ctr[k + 1] / ctr[k], bid[k]) * 1e6) / 1e6 for k in range(3)]

    true = sim.environment._truth.ctr(block, decision.ranked_set)
    for r in range(0, len(block), 11):
        cpc = decision.cpc_micros[r] / 1e6
        if price:
            cpc = np.array(prices(r, getattr(sim.environment._truth, price)(block, decision.ranked_set)[r]))
        error = (result.expected_clicks[r] * np.abs(cpc - prices(r, true[r]))).sum()
        assert table[column][r] == pytest.approx(error, abs=1e-5)
        owed = (result.expected_clicks[r] * prices(r, true[r])).sum()
        assert table["cpc_true"][r] == pytest.approx(owed, abs=1e-5)
    assert 0 < ratio(table, "cpc_error_irreducible") < ratio(table, "cpc_error")


def test_a_high_reserve_costs_welfare_because_all_arms_share_the_baselines_oracle(served):
    sim, block, arm, _ = served
    dear = replace(arm, reserve_cpc=float(np.quantile(sim.world.init_bid, 0.8)), name="dear")
    before, after = measured(served, arm, arm), measured(served, dear, arm)
    assert np.array_equal(before[0]["oracle_welfare"], after[0]["oracle_welfare"])
    assert np.array_equal(before[0]["oracle_revenue"], after[0]["oracle_revenue"])
    assert (after[1].win_set < 0).any()
    assert ratio(after[0], "welfare_vs_oracle") < 0.9 * ratio(before[0], "welfare_vs_oracle")
    own_oracle = measured(served, dear, dear)
    assert ratio(own_oracle[0], "welfare_vs_oracle") > ratio(
        after[0], "welfare_vs_oracle"
    )  # it would have been excused


def test_a_reserve_that_turns_almost_all_away_earns_less_and_charges_other_advertisers(served):
    sim, block, arm, _ = served
    best = all_knowing(served)
    dear = all_knowing(served, reserve_cpc=float(np.quantile(sim.world.init_bid, 0.995)))
    for one, is_right in ((best, True), (dear, False)):
        table, decision, result, _, oracle = measured(served, one, best)
        error, _ = wrong_payments(served, decision, result, oracle)
        if is_right:
            assert (error, ratio(table, "revenue_vs_oracle"), ratio(table, "welfare_vs_oracle")) == (
                0.0,
                1.0,
                1.0,
            )
        else:
            assert (
                error > 0.2
                and ratio(table, "revenue_vs_oracle") < 0.8
                and ratio(table, "welfare_vs_oracle") < 0.8
            )


def test_welfare_counts_a_click_at_the_baselines_bid_whatever_the_arm_bids(served):
    sim, block, arm, _ = served
    other = replace(arm.with_stage(-1, bid="init"), slots=2)
    table, decision, result, _, oracle = measured(served, other, arm)
    value = sim.platform.bids.bid("opt", block, decision.win_set, arm.bid_rule, arm.bid_range)
    assert table["welfare"] == pytest.approx((value * result.expected_clicks).sum(axis=1))
    best = oracle.decision.ranked_bid[:, :-1] * oracle.outcome.expected_clicks
    assert best.shape[1] == 3 and table["oracle_welfare"] == pytest.approx(best.sum(axis=1))


def test_what_the_auction_would_not_admit_under_the_truth_has_no_true_value(served):
    sim, block, arm, ruler = served
    ids = sim.serve(block, arm).retrieved.copy()
    ids[:, -1] = -1
    strict = replace(arm, reserve_cpc=1.0, score_floor=0.05)
    bid = sim.platform.bids.bid("opt", block, ids, arm.bid_rule, arm.bid_range)
    true = sim.environment._truth.ctr(block, ids)
    found = ruler.true_value(block, ids, strict)
    expected = (ids >= 0) & (bid >= 1.0) & (bid * true >= 0.05)
    assert np.array_equal(found > -np.inf, expected) and 0.01 < expected.mean() < 0.9
    assert found[expected] == pytest.approx((bid * true)[expected])
    assert np.array_equal(ruler.true_value(block, ids, arm) > -np.inf, ids >= 0)


def test_a_request_that_leaves_a_metric_undefined_counts_in_neither_part(served):
    """Nobody is ever shown an ad of this corpus often enough: no ideal winner is exposed."""
    sim, block, arm, ruler = served
    nobody = (sim, block, arm, replace(ruler, is_exposed=np.zeros_like(ruler.is_exposed)))
    table, *_ = measured(nobody, arm)
    assert all(not np.isnan(column).any() for column in table.values())
    assert table["ideal_requests_exposed"].sum() == table["ideal_reached_exposed"].sum() == 0.0
    assert table["ideal_requests_unexposed"].sum() == table["ideal_requests"].sum() == len(block)
    assert set(columns_of(m for m in ARM_MEASURES.values() if not m.is_of_corpus)) <= set(table)


def test_exposed_and_unexposed_winners_add_up_to_all_of_them(served):
    sim, _, arm, ruler = served
    table, decision, _, yard, _ = measured(served, arm)
    is_exposed = ruler.is_exposed
    exposed = np.where(yard.ideal.win_set >= 0, is_exposed[yard.ideal.win_set], False).sum(axis=1)
    n = (yard.ideal.win_set >= 0).sum(axis=1)
    total = exposed * table["ideal_reached_exposed"] + (n - exposed) * table["ideal_reached_unexposed"]
    assert total / n == pytest.approx(table["ideal_reached"])
    assert 0 < exposed.sum() < n.sum()
    assert np.array_equal(table["ideal_requests_exposed"] == 0, exposed == 0)


def test_a_seat_without_an_opinion_has_no_single_objective_rcs(served):
    arm = with_stage_of(served[2], 0, Stage(served[0].scorers["constant"], "init", Fusion()))
    table, *_ = measured(served, arm)
    assert "single_objective_reached" not in table and "ideal_reached" in table


def test_only_probabilities_are_compared_with_the_rankers(served):
    sim, block, arm, _ = served
    each = np.arange(len(block))
    for model, is_probability in [
        ("logloss", True),
        ("distill-pre", True),
        ("ltr", False),
        ("random", False),
    ]:
        one = with_stage_of(arm, 0, Stage(sim.scorers[model], "init", Fusion()))
        _, decision, _, yard, _ = measured(served, one)
        sums = measure.proxy_sums(block, decision, one, yard, each, len(block))
        assert (sums is not None) == is_probability
    same = with_stage_of(arm, 0, arm.last)
    _, decision, _, yard, _ = measured(served, same)
    counts = measure.proxy_sums(block, decision, same, yard, each, len(block))
    assert counts[:, 1] == pytest.approx(counts[:, 2]) and counts[:, 0].sum() == decision.retrieved.size


def test_payments_are_kept_by_group_of_requests_and_advertiser(served):
    sim, block, arm, _ = served
    _, decision, result, *_ = measured(served, arm)
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


def test_groups_of_requests_are_summed_request_by_request():
    rng = np.random.default_rng(3)
    group = np.sort(rng.integers(2, 40, 500))  # some have none
    values = rng.lognormal(sigma=4, size=(500, 3, 5))
    expected = np.zeros((41, 3, 5))
    np.add.at(expected, group, values)
    assert measure.by_group(values, group, 41).tobytes() == expected.tobytes()
