from cascade_sim.cascade.arm_cost import stage_costs


def test_an_arm_costs_what_its_stages_are_handed(study):
    sim, arm, n_ads = study.sim, study.evaluation.arms["ltr"], study.sim.world.n_ads
    search, pre, rank = stage_costs(arm, n_ads, [60.0, 12.5])
    assert (
        search.flops == sim.retriever.cost(60).request_flops and search.candidates == n_ads and search.is_kept
    )
    one, other = arm.stages[0].scorer.cost, arm.last.scorer.cost
    assert pre.flops == one.request_flops + 60 * one.pair_flops
    assert rank.flops == other.request_flops + 12.5 * other.pair_flops
    assert rank.bytes == other.request_bytes + 12.5 * other.pair_bytes
    assert pre.ads_flops == n_ads * one.ad_flops
    assert (pre.stage, rank.stage, rank.candidates) == ("pre_ranking", "ranking", 12.5)


def test_a_stage_that_hands_on_all_is_not_asked(study):
    sim, arm = study.sim, study.evaluation.arms["ltr"]
    everybody = arm.with_stage(0, size=arm.retrieval.size)
    _, pre, rank = stage_costs(everybody, sim.world.n_ads, [60.0, 60.0])
    assert pre.flops == 0 and rank.flops > 0
    unknown = arm.with_stage(0, scorer=sim.scorers["truth"])
    assert stage_costs(unknown, sim.world.n_ads, [60.0, 12.0])[1].flops is None
