from dataclasses import replace

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.cascade.corpus_sample import uniform_ads
from cascade_sim.foundation.errors import UserError
from cascade_sim.storage.tables import TableWriter, read_table
from cascade_sim.training import data
from cascade_sim.training.data import impressions, join_lists, pages, sample_lists


@pytest.fixture(scope="module")
def served(study):
    sim = study.sim
    block = sim.arrivals.block("shadow", 0, 300)
    arm = study.evaluation.baseline
    return sim, block, arm, sim.serve(block, arm)


def lists(served, kind="pre_ranking", per_request=30, model="ltr", best=None, **keys):
    sim, block, arm, decision = served
    spec = sim.scenario.models[model]
    sample = spec.sample.model_copy(update={"set": kind, "per_request": per_request, "best": best})
    spec = spec.model_copy(update={"sample": sample, **keys})
    return sample_lists(spec, sim.scorers[spec.teacher], block, decision, arm, sim.platform, sim.seed)


def test_impressions_are_the_log_of_the_named_phases_in_order(study):
    found = impressions(study.folder, ["cold_start", "log"])
    tables = [read_table(study.folder, name) for name in ("cold_start", "log")]
    for column, name in [
        ("ads", "ad"),
        ("users", "user"),
        ("click", "click"),
        ("examination", "examination"),
    ]:
        expected = np.concatenate([t[name] for t in tables])
        assert np.array_equal(getattr(found, column), expected), name
    assert found.click.dtype == np.float32 and 0 < found.click.mean() < 0.5
    assert len(impressions(study.folder, ["log"]).ads) == len(tables[1]["ad"])


def test_a_phase_whose_table_is_lost_is_not_taken_for_one_without_impressions(study, tmp_path):
    assert len(impressions(tmp_path, []).users) == 0
    with refused("'log'"):
        impressions(tmp_path, ["log"])
    with TableWriter(tmp_path, "log") as table:
        table.append(read_table(study.folder, "log"))
    assert len(impressions(tmp_path, ["log"]).users) == len(read_table(study.folder, "log")["ad"])
    with pytest.raises(UserError, match="has no table 'cold_start'"):
        pages(tmp_path, ["cold_start", "log"])


def test_of_a_long_log_a_sample_of_the_requests_is_learned_from(study, monkeypatch):
    phases = ["cold_start", "log"]
    whole = {
        name: np.concatenate([read_table(study.folder, p)[name] for p in phases])
        for name in ("request", "ad")
    }
    monkeypatch.setattr(data, "MAX_LEARNED", len(whole["ad"]) // 5)
    found, by_page = impressions(study.folder, phases, 7), pages(study.folder, phases, 7)
    assert np.array_equal(by_page.shown.ads, found.ads)
    kept = np.isin(whole["request"], by_page.request)
    assert np.array_equal(whole["ad"][kept], found.ads)  # pages are whole, and in order
    assert len(found.ads) == pytest.approx(data.MAX_LEARNED, rel=0.1)
    assert np.array_equal(impressions(study.folder, phases, 7).ads, found.ads)
    assert not np.array_equal(impressions(study.folder, phases, 8).ads, found.ads)


@pytest.mark.parametrize(("kind", "size"), [("pre_ranking", 30), ("competitive", 10), ("competitive", 99)])
def test_a_list_is_a_sample_without_repetition_of_the_named_set(served, kind, size):
    _, block, _, decision = served
    found = lists(served, kind, size)
    pool = decision.competitive_set if kind == "competitive" else decision.retrieved
    assert found.ads.shape == (len(block), min(size, pool.shape[1]))
    for row, candidates in zip(found.ads, pool, strict=True):
        assert len(set(row)) == len(row) and set(row) <= set(candidates)


def test_every_candidate_is_sampled_alike(served):
    found = lists(served, per_request=30)
    position = [np.searchsorted(pool, row) for pool, row in zip(served[3].retrieved, found.ads, strict=True)]
    counts = np.bincount(np.concatenate(position), minlength=60)
    expected = len(found.ads) / 2  # 30 of 60
    assert abs(counts - expected).max() < 5 * np.sqrt(expected / 2)


def test_the_teachers_logit_and_the_order_of_the_ranking_stage(served):
    sim, block, arm, _ = served
    found = lists(served)
    pctr = sim.scorers["rank"].predict(block, found.ads)
    assert 1 / (1 + np.exp(-found.teacher_logit)) == pytest.approx(pctr, rel=1e-5)
    bid = sim.platform.bids.bid("opt", block, found.ads, arm.bid_rule, arm.bid_range)
    fused = pctr * bid
    for score, chunk in zip(fused, found.chunk, strict=True):
        best_first = chunk[np.argsort(-score, kind="stable")]
        assert np.all(np.diff(best_first) <= 0) and best_first[0] == 5 and best_first[-1] == 1
    assert found.log_bid == pytest.approx(np.log(sim.world.init_bid[found.ads]), abs=1e-6)


@pytest.mark.parametrize("kind", ["pre_ranking", "competitive"])
def test_where_what_was_shown_is_a_chunk_all_of_it_is_in_the_list(served, kind):
    decision = served[3]
    found = lists(served, kind, 10, chunking="exposed", chunks=3)
    for ads, chunk, shown in zip(found.ads, found.chunk, decision.win_set, strict=True):
        assert set(ads[chunk == 3]) == set(shown) and len(set(ads)) == 10
        assert (chunk == 2).sum() == 4 and (chunk == 1).sum() == 3  # of the seven that are left
    plain = lists(served, kind, 10)
    assert not np.array_equal(found.ads, plain.ads)
    pool = decision.competitive_set if kind == "competitive" else decision.retrieved
    rest = (pool[:, :, None] != decision.win_set[:, None, :]).all(axis=2)
    picked = (pool[:, :, None] == found.ads[:, None, :]).any(axis=2)
    share, n = 7 / (pool.shape[1] - 3), rest.sum(axis=0)  # the others are drawn uniformly
    drawn = (picked & rest).sum(axis=0)
    assert (abs(drawn - share * n) < 5 * np.sqrt(share * (1 - share) * n)).all() and n.min() > 50


def test_where_a_recipe_is_about_the_best_of_the_set_they_are_in_every_list(served):
    sim, block, arm, decision = served
    found = lists(served, per_request=10, recipe="infonce", recipe_options={"k": 4}, chunking="halving")
    bid = sim.platform.bids.bid("opt", block, decision.retrieved, arm.bid_rule, arm.bid_range)
    fused = sim.scorers["rank"].predict(block, decision.retrieved) * bid
    best = np.take_along_axis(decision.retrieved, np.argsort(-fused, axis=1)[:, :4], 1)
    assert (found.ads[:, :, None] == best[:, None]).any(axis=1).all()
    ranked = np.take_along_axis(found.ads, np.argsort(-found.log_score, axis=1)[:, :4], 1)
    assert np.array_equal(ranked, best)
    plain = lists(served, per_request=10)
    assert 0.05 < (plain.ads[:, :, None] == best[:, None]).any(axis=1).mean() < 0.35  # 10 of 60 by a draw
    assert np.array_equal(lists(served, per_request=10, best=0, recipe="infonce").ads, plain.ads)
    assert np.array_equal(lists(served, per_request=10, best=4).ads, found.ads)


def test_the_score_of_a_list_is_the_logarithm_of_what_ranking_orders_by(served):
    sim, block, arm, _ = served
    found = lists(served)
    bid = sim.platform.bids.bid("opt", block, found.ads, arm.bid_rule, arm.bid_range)
    pctr = sim.scorers["rank"].predict(block, found.ads)
    assert found.log_score == pytest.approx(np.log(pctr * bid), abs=1e-4)


def test_a_student_that_knows_no_chunks_is_not_given_what_was_shown(served):
    plain = lists(served, per_request=10, model="distill-pre")
    odd = lists(served, per_request=10, model="distill-pre", chunking="exposed")
    assert np.array_equal(plain.ads, odd.ads)


def with_first_set(decision, ids):
    first, *later = decision.passes
    return replace(decision, passes=(replace(first, ids=ids), *later))


def test_requests_with_fewer_candidates_than_the_sample_are_left_out(served):
    sim, block, arm, decision = served
    short = decision.retrieved.copy()
    short[::2, 20:] = -1
    found = lists((sim, block, arm, with_first_set(decision, short)))
    assert np.array_equal(found.users, block.users[1::2]) and found.ads.min() >= 0
    short[:] = -1
    none = lists((sim, block, arm, with_first_set(decision, short)))
    assert none.ads.shape == (0, 30)


def test_lists_are_joined_in_order(served):
    part = lists(served)
    both = join_lists([part, part])
    assert np.array_equal(both.ads, np.concatenate([part.ads, part.ads]))
    assert both.arrays().keys() == part.arrays().keys() and len(both.users) == 2 * len(part.users)


def corpus(served, **sample):
    sim, block, arm, decision = served
    options = {"recipe": "infonce", "recipe_options": {"k": 4}}
    spec = sim.scenario.models["ltr"].model_copy(update=options)
    told = {"set": "corpus", "per_request": 20, **sample}
    spec = spec.model_copy(update={"sample": spec.sample.model_copy(update=told)})
    return sample_lists(spec, sim.scorers["rank"], block, decision, arm, sim.platform, sim.seed)


def test_lists_of_the_corpus_hold_any_ads_and_the_best_of_a_larger_draw(served):
    sim, block, arm, _ = served
    found = corpus(served, pool=100)
    assert found.ads.shape == (len(block), 20)
    ranked = np.sort(found.ads, axis=1)
    assert (ranked[:, 1:] != ranked[:, :-1]).all()
    pool = uniform_ads(block.requests, 100, sim.world.n_ads, sim.seed, "corpus sample")
    fused = sim.scorers["rank"].predict(block, pool) * sim.platform.bids.bid(
        "opt", block, pool, arm.bid_rule, arm.bid_range
    )
    best = np.take_along_axis(pool, np.argsort(-fused, axis=1)[:, :4], 1)
    top = np.take_along_axis(found.ads, np.argsort(-found.log_score, axis=1)[:, :4], 1)
    assert np.array_equal(top, best)
    # The rest is a plain sample: no ad of the corpus is left out, whatever retrieval brings.
    rest = found.ads[(found.ads[:, :, None] != best[:, None]).all(axis=2)]
    counts = np.bincount(rest, minlength=sim.world.n_ads)
    assert abs((counts == 0).mean() - np.exp(-counts.mean())) < 0.05
    outside = (found.ads[:, :, None] != served[3].retrieved[:, None]).all(axis=2)
    assert outside.mean() > 0.5


def test_the_best_of_a_larger_pool_are_better_and_a_recipe_about_none_draws_no_pool(served):
    small, large = (corpus(served, pool=n).log_score.max(axis=1).mean() for n in (20, 400))
    assert large > small + 0.2
    plain = corpus(served, best=0)
    drawn = uniform_ads(served[1].requests, 20, 600, served[0].seed, "corpus sample")
    assert np.array_equal(np.sort(plain.ads, axis=1), np.sort(drawn, axis=1))


def test_ads_that_are_gone_are_in_no_list_of_the_corpus(served):
    sim, block, arm, decision = served

    class Even:
        share = 0.5

        def is_available(self, ads, times):
            return (ads >= 0) & (ads % 2 == 0) & (times >= 0)

    platform = replace(sim.platform, lives=Even())
    spec = sim.scenario.models["ltr"]
    told = spec.sample.model_copy(update={"set": "corpus", "per_request": 10})
    spec = spec.model_copy(update={"sample": told})
    found = sample_lists(spec, sim.scorers["rank"], block, decision, arm, platform, sim.seed)
    assert len(found.ads) == len(block) and (found.ads % 2 == 0).all()


def test_what_is_retrieved_is_what_the_first_scoring_stage_is_handed(served):
    assert np.array_equal(lists(served, "retrieved").ads, lists(served, "pre_ranking").ads)
