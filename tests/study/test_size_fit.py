from dataclasses import replace

import numpy as np

from cascade_sim.cascade.serve import serve, shadow
from cascade_sim.scenario.market import Sizes
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.study.size_fit import learn_size_rule

CHOICES = (6, 10, 15, 25, 40)


def value(block, arm, platform):
    """What ranking believes the pages to be worth."""
    found = serve(block, arm, platform)
    won = found.ranked_bid[:, :-1] * found.ranked_pctr[:, :-1]
    return float((platform.slot_effects[: arm.slots] * won).sum())


def test_a_learned_rule_is_worth_what_it_says_and_no_less_than_the_fixed_size(study):
    sim = study.sim
    arm = sim.arm("logloss", resolved_arms(sim.scenario)["logloss"])
    blocks = [sim.arrivals.block("shadow", i, 2048) for i in range(16)]
    rule = learn_size_rule(blocks, arm, sim.platform, CHOICES, 15.0, 1)
    ruled = arm.with_stage(0, size=max(CHOICES), size_rule=rule)
    fixed, found = (
        sum(value(block, one, sim.platform) for block in blocks) / 2048
        for one in (arm.with_stage(0, size=15), ruled)
    )
    assert abs(rule.mean_size - 15.0) < 1e-9
    assert rule.mean_value >= fixed * (1 - 1e-6)
    assert abs(found / rule.mean_value - 1) < 0.01  # the one bucket that is drawn by lot apart
    sizes = np.concatenate([serve(b, ruled, sim.platform).competitive_set >= 0 for b in blocks]).sum(axis=1)
    assert abs(sizes.mean() / 15.0 - 1) < 0.01


def test_a_rule_in_the_arm_does_not_change_what_is_learned(study):
    sim = study.sim
    arm = sim.arm("logloss", resolved_arms(sim.scenario)["logloss"])
    blocks = [sim.arrivals.block("shadow", i, 512) for i in range(4)]
    rule = learn_size_rule(blocks, arm, sim.platform, CHOICES, 20.0, 1)
    again = learn_size_rule(blocks, arm.with_stage(0, size_rule=rule), sim.platform, CHOICES, 20.0, 1)
    assert np.array_equal(rule.gain, again.gain) and np.array_equal(rule.low, again.low)


def test_ads_that_the_auction_does_not_admit_are_worth_nothing(study):
    sim = study.sim
    arm = sim.arm("logloss", resolved_arms(sim.scenario)["logloss"])
    blocks = [sim.arrivals.block("shadow", 0, 128)]
    rule = learn_size_rule(blocks, replace(arm, reserve_cpc=1e6), sim.platform, CHOICES, 20.0, 1)
    assert not rule.gain.any() and rule.mean_size == min(CHOICES)


def test_an_arm_with_sizes_is_made_with_its_rule(study):
    sim = study.sim
    spec = resolved_arms(sim.scenario)["logloss"]
    sizes = Sizes(choices=CHOICES, mean=15.0)
    arm = sim.arm("by value", spec.model_copy(update={"sizes": sizes}))
    rule = arm.stages[0].size_rule
    assert arm.most_auctioned == 40 and rule is not None and rule.mean_size <= 15.0 + 1e-9
    again = sim.arm("by value", spec.model_copy(update={"sizes": sizes}))
    block = sim.arrivals.block("evaluate", 0, 500)
    one, other = (serve(block, made, sim.platform) for made in (arm, again))
    assert np.array_equal(one.competitive_set, other.competitive_set)
    assert not shadow(arm).has_size_rule
