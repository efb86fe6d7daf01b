from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES, COLUMNS
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.logged import GivenSets
from cascade_sim.cascade.scorers import KnowableScorer
from cascade_sim.cascade.serve import Stage
from cascade_sim.environments.evaluators import corpus as detail
from cascade_sim.study.evaluate import head_of
from worlds.cascades import with_retrieved, with_stage_of
from worlds.tiny_market import part_of

STAGES = ("retrieval", "pre_ranking", "ranking")


@pytest.fixture(scope="module")
def served(study):
    sim, arm = study.sim, study.evaluation.baseline
    block = part_of(sim.arrivals.block("evaluate", 0, 500), slice(0, 40))
    return sim, arm, block, sim.serve(block, arm), study.sim.environment


def value(sim, arm, block, r, ad):
    one = part_of(block, slice(r, r + 1))
    ids = np.array([[ad]], np.int32)
    bid = sim.platform.bids.bid(arm.last.bid, one, ids, arm.bid_rule, arm.bid_range)
    return float((sim.environment._truth.ctr(one, ids) * bid)[0, 0])


def test_the_best_of_the_corpus_is_what_brute_force_finds(served, monkeypatch):
    sim, arm, block, _, ruler = served
    found = detail.best_of_corpus(ruler, 600, arm, block)
    for r in (0, 17, 39):
        everything = np.array([value(sim, arm, block, r, ad) for ad in range(600)])
        best = np.argsort(-everything, kind="stable")[:3]
        assert found.by_truth.ids[r].tolist() == best.tolist()
        assert found.by_truth.value[r] == pytest.approx(everything[best])
    monkeypatch.setattr(detail, "PAIRS_AT_ONCE", 7 * 600)
    again = detail.best_of_corpus(ruler, 600, arm, block)
    assert np.array_equal(found.by_truth.ids, again.by_truth.ids)
    assert np.array_equal(found.by_truth.value, again.by_truth.value)


@pytest.mark.parametrize("rules", [{}, {"reserve_cpc": 1.2, "score_floor": 0.02}])
def test_the_losses_of_the_stages_add_up_and_none_is_negative(served, rules):
    sim, arm, block, _, ruler = served
    arm = replace(arm, **rules)
    decision = sim.serve(block, arm)
    best = detail.best_of_corpus(ruler, 600, arm, block)
    table = detail.attribution_columns(ruler, arm, block, decision, best)
    lost = sum(table[f"lost {stage}"] for stage in STAGES)
    assert lost == pytest.approx(table["best"] - table["shown"])
    for stage in STAGES:
        assert np.all(table[f"lost {stage}"] >= -1e-9)
    dropped = sum(table[f"dropped {stage}"] for stage in STAGES)
    won = np.array([np.isin(b, w).mean() for b, w in zip(best.by_truth.ids, decision.win_set, strict=True)])
    assert dropped + won == pytest.approx(np.ones(40))


def test_what_features_tell_is_lost_stage_by_stage_and_the_noise_of_pairs_is_the_rest(served):
    sim, arm, block, decision, ruler = served
    best = detail.best_of_corpus(ruler, 600, arm, block)
    table = detail.attribution_columns(ruler, arm, block, decision, best)
    avoidable = sum(table[f"avoidable {stage}"] for stage in STAGES)
    assert avoidable == pytest.approx(table["known best"] - table["shown"])
    assert np.all(table["best"] >= table["known best"] - 1e-9)
    assert (table["best"] - table["known best"]).mean() > 0  # the world has noise that no feature shows


def test_each_stage_alone_made_perfect_serves_the_other_stages_as_they_are(served):
    sim, arm, block, decision, ruler = served
    found = detail.corpus_columns(ruler, 600, block, {"own": (arm, decision)}, "own")["own"]
    knowable = KnowableScorer(ruler)
    perfect = arm.with_stage(-1, scorer=knowable)
    shown = sim.serve(block, perfect).win_set
    for r in (2, 31):
        effects, worth = sim.world.slot_effects, [value(sim, arm, block, r, ad) for ad in shown[r]]
        gain = 1000 * (effects * worth).sum() - found["shown"][r]
        assert found["gain ranking"][r] == pytest.approx(gain)
    for stage in STAGES:
        assert found[f"gain {stage}"].mean() > 0
        assert np.isfinite(found[f"gain in revenue {stage}"]).all()
    # With every stage perfect nothing that features tell is lost.
    every = perfect.with_stage(0, scorer=knowable, bid=arm.last.bid, rates=arm.last.rates, fusion=Fusion())
    candidates = [
        detail._retrieved_by(corpus, ruler.known_value(part, corpus, arm), arm)
        for _, part, corpus in detail.parts(block, 600)
    ]
    whole = every.among(GivenSets(block.requests, np.concatenate(candidates)))
    best = detail.best_of_corpus(ruler, 600, arm, block)
    served_best = sim.serve(block, whole)
    table = detail.attribution_columns(ruler, whole, block, served_best, best)
    assert np.allclose(table["shown"], table["known best"])


def test_the_page_is_worth_its_true_ecpm(served):
    sim, arm, block, decision, ruler = served
    best = detail.best_of_corpus(ruler, 600, arm, block)
    table = detail.attribution_columns(ruler, arm, block, decision, best)
    effects = sim.world.slot_effects
    for r in (3, 30):
        worth = [value(sim, arm, block, r, ad) for ad in decision.win_set[r]]
        assert table["shown"][r] == pytest.approx(1000 * (effects * worth).sum())


def test_an_ad_that_the_truth_would_bar_is_worth_nothing_on_the_page(served):
    """The ranker overrates it, so it passes the score floor that its true CTR does not reach."""
    sim, arm, block, _, ruler = served
    strict = replace(arm, score_floor=0.1)
    decision = sim.serve(block, strict)
    best = detail.best_of_corpus(ruler, 600, strict, block)
    table = detail.attribution_columns(ruler, strict, block, decision, best)
    shown, effects = decision.win_set, sim.world.slot_effects
    for r in range(len(block)):
        worth = np.array([value(sim, arm, block, r, ad) if ad >= 0 else 0.0 for ad in shown[r]])
        counted = np.where(worth >= 0.1, worth, 0.0)
        assert table["shown"][r] == pytest.approx(1000 * (effects * counted).sum())
    true_worth = ruler.true_value(block, shown, strict)
    assert ((true_worth == -np.inf) & (shown >= 0)).any() and (true_worth > 0).any()
    bid = sim.platform.bids.bid("opt", block, best.by_truth.ids, arm.bid_rule, arm.bid_range)
    worth = bid * sim.environment._truth.ctr(block, best.by_truth.ids)
    assert np.all((worth >= 0.1) == (best.by_truth.ids >= 0))


def test_retrieval_is_consistent_with_itself_only_where_it_returns_the_pre_rankers_choice(
    served, monkeypatch
):
    sim, arm, block, decision, _ = served
    found = detail.retrieval_rcs(sim.platform, 600, arm, block, decision)
    monkeypatch.setattr(detail, "PAIRS_AT_ONCE", 7 * 600)
    assert np.array_equal(detail.retrieval_rcs(sim.platform, 600, arm, block, decision), found)
    for r in (0, 21):
        one = part_of(block, slice(r, r + 1))
        corpus = np.arange(600, dtype=np.int32)[None, :]
        score = arm.stages[0].scorer.predict(one, corpus) * sim.world.init_bid
        wanted = np.argsort(-score[0].astype(np.float32), kind="stable")[:15]
        assert found[r] == pytest.approx(np.isin(wanted, decision.retrieved[r]).mean())
    assert 0 < found.mean() < 1
    all_ads = with_retrieved(arm, 600)
    decision = sim.serve(block, all_ads)
    assert np.all(detail.retrieval_rcs(sim.platform, 600, all_ads, block, decision) == 1.0)


def test_retrieval_rcs_is_what_the_glossary_says_the_choice_of_pre_ranking(served):
    """Another stage in the seat that the words name moves it; in the other seat it changes nothing."""
    sim, arm, block, decision, _ = served
    current = detail.retrieval_rcs(sim.platform, 600, arm, block, decision)
    other = Stage(sim.scorers["truth"], "none", Fusion())
    moved = {
        seat: not np.array_equal(
            detail.retrieval_rcs(sim.platform, 600, with_stage_of(arm, at, other), block, decision), current
        )
        for at, seat in enumerate(("pre_ranking", "ranking"))
    }
    assert moved == {"pre_ranking": True, "ranking": False}
    for words in (ARM_MEASURES["retrieval_rcs"].meaning, COLUMNS["retrieval_reached"]):
        assert "pre-ranking" in words and "ranking" not in words.replace("pre-ranking", "")


def test_the_detailed_requests_fit_the_budget_of_pairs(monkeypatch):
    assert detail.n_detail(200, 600) == 200 and detail.n_detail(30, 600) == 30
    monkeypatch.setattr(detail, "CORPUS_PAIRS", 6000)
    assert detail.n_detail(200, 600) == 10
    monkeypatch.setattr(detail, "CORPUS_PAIRS", 10)
    assert detail.n_detail(200, 600) == 1


def test_the_table_has_every_stage_with_its_share_of_the_loss(study):
    section = study.metrics["attribution"]["logloss"]
    assert [row["stage"] for row in section["stages"]] == list(STAGES)
    assert sum(row["share"] for row in section["stages"]) == pytest.approx(1)
    lost = sum(row["ecpm_lost"]["value"] for row in section["stages"])
    assert lost == pytest.approx(section["ecpm_best"] - section["ecpm_shown"])
    assert section["requests"] == 200


def test_the_detailed_requests_are_the_first_of_the_block(served):
    decision = served[3]
    assert np.array_equal(head_of(decision, 5).win_set, decision.win_set[:5])
    assert len(head_of(decision, 0).retrieved) == 0
