"""A study's log, replayed, shows what the study would have shown: the same ads at the same micro-units."""

import numpy as np
import pytest

from cascade_sim.cascade.outcome import outcome
from cascade_sim.counterfactual.whatif import _with_scenario
from cascade_sim.diagnostics.reopen import evaluation_blocks, reopen
from cascade_sim.scenario.overrides import apply_overrides, parse_points
from cascade_sim.scenario.schema import resolved_arms

# What is asked of the run, and of the log where it has another name for the same.
PARAMETERS = [
    ("auction.reserve_cpc=0.6",),
    ("auction.reserve_cpc=1.1",),
    ("auction.squashing=0.5",),
    ("auction.squashing=0",),
    ("auction.score_floor=0.05",),
    ("auction.pricing=first",),
    ("auction.pricing=vcg",),
    ("auction.pricing=soft_floor", "auction.soft_floor=0.9"),
    ("cascade.slots=2",),
    ("cascade.slots=1", "auction.reserve_cpc=0.5"),
]
STAGES = [
    ("cascade.pre_ranking.size=8",),
    ("cascade.pre_ranking.size=40",),
    ("cascade.pre_ranking.bid=opt",),
    ("cascade.pre_ranking.bid=none",),
    ("cascade.pre_ranking.bid=opt", "auction.reserve_cpc=0.8"),
    ("cascade.ranking.bid=init",),
    ("cascade.pre_ranking.model=constant",),
    ("cascade.pre_ranking.model=random", "cascade.pre_ranking.bid=none"),
    ("cascade.pre_ranking.model=rank", "cascade.pre_ranking.size=20"),
    ("cascade.pre_ranking.model=rank", "cascade.pre_ranking.bid=opt"),
]
NAMES = {"cascade.pre_ranking.model=rank": "cascade.pre_ranking.model=logged"}


def pages(sim, scenario, folder, words, n):
    """The win sets and prices of an arm with parameters changed."""
    baseline = scenario.report.baseline
    (point,) = parse_points(words, scenario, baseline)
    changed, spec = apply_overrides(scenario, resolved_arms(scenario)[baseline], point, folder)
    arm = _with_scenario(sim, changed).arm(baseline, spec)
    ads, prices = [], []
    for block, count in evaluation_blocks(sim, n):
        decision = sim.serve(block, arm)
        ads.append(decision.win_set[:count])
        prices.append(decision.cpc_micros[:count])
    return np.concatenate(ads), np.concatenate(prices)


def the_same(study, market, words):
    own = [NAMES.get(word, word) for word in words]
    n = study.sim.scenario.phases.evaluate
    before = pages(study.sim, study.sim.scenario, study.folder, words, n)
    opened = reopen(market)
    after = pages(opened.sim, opened.scenario, market, own, n)
    assert (before[0] >= 0).any() and len(before[0]) == n
    return all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))


@pytest.mark.parametrize("words", [*PARAMETERS, *STAGES], ids=" ".join)
def test_a_log_with_pre_ranking_answers_as_the_run_does(study, market, words):
    assert the_same(study, market, words)


@pytest.mark.parametrize("words", [w for w in PARAMETERS if "squashing" not in w[0]], ids=" ".join)
def test_a_log_of_bids_answers_for_the_auction_as_the_run_does(study, bids_market, words):
    """But for squashing, which in the run pre-ranking feels too: of a log of bids the sets stay as logged."""
    assert the_same(study, bids_market, words)


def outcomes(sim, arm, n):
    """Clicks and charges of the first n requests."""
    clicks, charges, expected = [], [], []
    for block, count in evaluation_blocks(sim, n):
        result = outcome(
            block, sim.serve(block, arm), sim.environment._truth, sim.world.slot_effects, sim.seed
        )
        clicks.append(result.clicks[:count])
        charges.append(result.charges_micros[:count])
        expected.append(result.expected_clicks[:count])
    return tuple(np.concatenate(parts) for parts in (clicks, charges, expected))


def test_what_was_clicked_and_charged_is_the_log_s(study, replayed):
    before = outcomes(study.sim, study.evaluation.baseline, 500)
    after = outcomes(replayed.sim, replayed.arm("logged"), 500)
    assert np.array_equal(before[0], after[0]) and np.array_equal(before[1], after[1])
    assert np.array_equal(after[2], before[0])
