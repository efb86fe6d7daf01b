from dataclasses import replace

import numpy as np
import pytest
import torch

from cascade_sim.auction import floor_micros
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.scorers import ConstantScorer, RandomScorer, TorchScorer
from cascade_sim.cascade.serve import Stage, serve, shadow
from cascade_sim.foundation.errors import UserError
from worlds.cascades import (
    BID,
    PCTR,
    Bids,
    Table,
    arm,
    decided,
    one,
    platform,
    with_retrieved,
    with_stage_of,
)
from worlds.tiny_market import make_block, part_of


def test_a_request_goes_through_the_whole_cascade():
    found = one([0, 1, 2, 3, 4, 5], Bids(BID), pre=Table(PCTR), rank=Table(PCTR))
    assert found.passes[0].order[0] == pytest.approx([0.30, 0.20, 0.20, 0.20, 0.06, 0.09])
    assert found.competitive_set.tolist() == [[0, 1, 2, 3]]
    assert found.ranked_set.tolist() == [[0, 1, 2]]
    assert found.win_set.tolist() == [[0, 1]]
    # GSP: the next score over the own pCTR.
    assert found.cpc_micros.tolist() == [[2_000_000, 1_000_000]]
    assert found.ranked_pctr[0] == pytest.approx([0.1, 0.2, 0.05])
    assert found.ranked_bid[0] == pytest.approx([3.0, 1.0, 4.0])


def test_zero_candidates_leave_every_slot_empty():
    found = one([-1] * 6, Bids(BID), pre=Table(PCTR), rank=Table(PCTR))
    assert found.competitive_set.tolist() == [[-1] * 4] and found.ranked_set.tolist() == [[-1] * 3]
    assert not found.cpc_micros.any() and not found.ranked_pctr.any() and not found.ranked_bid.any()


@pytest.mark.parametrize("seat", [Table(PCTR), RandomScorer(1), ConstantScorer()])
@pytest.mark.parametrize("pre_bid", ["init", "opt", "none"])
def test_padding_never_gets_anywhere_whoever_sits_in_the_seat(seat, pre_bid):
    found = one([2, 5, -1, -1, -1, -1], Bids(BID), pre=seat, rank=seat, pre_bid=pre_bid)
    assert sorted(found.competitive_set[0].tolist()) == [-1, -1, 2, 5]
    assert found.competitive_set[0, :2].tolist() == [2, 5]
    assert sorted(found.win_set[0].tolist()) == [2, 5]


def test_fewer_candidates_than_slots_fill_the_first_slots_and_the_last_pays_the_reserve():
    found = one([1, -1, -1, -1, -1, -1], Bids(BID), pre=Table(PCTR), rank=Table(PCTR), reserve_cpc=0.25)
    assert found.win_set.tolist() == [[1, -1]] and found.cpc_micros.tolist() == [[250_000, 0]]


def test_a_competitive_set_larger_than_the_pre_ranking_set_takes_everyone():
    found = one([0, 3, 5], Bids(BID), pre=Table(PCTR), rank=Table(PCTR), size=5)
    assert found.competitive_set.tolist() == [[0, 3, 5]]
    assert found.win_set.tolist() == [[0, 3]]


def test_equal_scores_go_to_the_smaller_ad_id_in_both_stages():
    even = Table(np.full(6, 0.1))
    found = one([0, 1, 2, 3, 4, 5], Bids(np.ones(6)), pre=even, rank=even)
    assert found.competitive_set.tolist() == [[0, 1, 2, 3]] and found.ranked_set.tolist() == [[0, 1, 2]]
    assert found.cpc_micros.tolist() == [[1_000_000, 1_000_000]]


def test_an_ad_with_zero_pctr_may_reach_ranking_but_is_never_shown():
    nobody = Table([0.0, 0.0, 0.0, 0.0, 0.0, 0.3])
    found = one([0, 1, 2, 3, 4, 5], Bids(BID), pre=nobody, rank=nobody)
    assert found.competitive_set.tolist() == [[0, 1, 2, 5]]
    assert found.win_set.tolist() == [[5, -1]] and found.cpc_micros.tolist() == [[0, 0]]


def test_an_ad_that_bids_nothing_is_never_shown():
    found = one([0, 1], Bids([0.0, 1.0, 0, 0, 0, 0]), pre=Table(PCTR), rank=Table(PCTR))
    assert found.win_set.tolist() == [[1, -1]]


def test_a_block_may_be_cut_by_a_slice_a_mask_or_indices(block):
    for rows in (slice(3, 9), np.arange(len(block)) % 2 == 0, np.array([5, 5, 0])):
        part = block.take(rows)
        for name in ("requests", "users", "context", "times"):
            assert np.array_equal(getattr(part, name), getattr(block, name)[rows])


def test_pre_ranking_uses_the_init_bid_and_ranking_the_opt_bid():
    bids = Bids([1.0, 1.1, 1.2, 1.3], opt=[9.0, 1.0, 5.0, 2.0])
    even = Table(np.full(4, 0.1))
    found = one(range(4), bids, pre=even, rank=even, size=3)
    assert found.competitive_set.tolist() == [[1, 2, 3]]
    assert found.ranked_set.tolist() == [[2, 3, 1]]
    assert found.cpc_micros.tolist() == [[2_000_000, 1_000_000]]


def test_fused_exponents_apply_to_probabilities_and_not_to_a_score_that_is_only_an_order():
    halved = Fusion(pctr=0.5, pcvr=1.0)
    for link, expected in (("sigmoid", np.sqrt(PCTR) * 0.5), ("exp", np.array(PCTR))):
        own = arm(Table(PCTR, link=link), Table(PCTR))
        own = own.with_stage(0, fusion=halved)
        found = serve(make_block([0]), own, platform(Bids(BID)))
        assert found.passes[0].order[0] == pytest.approx(expected * BID)


def test_without_bids_the_models_order_alone_decides_who_reaches_ranking():
    found = one(range(6), Bids(BID), pre=Table(PCTR), rank=Table(PCTR), pre_bid="none", size=3)
    assert found.competitive_set.tolist() == [[1, 3, 4]]


def test_serving_changes_neither_the_block_nor_the_platform(sim, block):
    the_arm = arm(sim.scorers["truth"], sim.scorers["truth"], size=15, slots=3)
    users, bids = block.users.copy(), sim.world.init_bid.copy()
    first, again = sim.serve(block, the_arm), sim.serve(block, the_arm)
    assert np.array_equal(users, block.users) and np.array_equal(bids, sim.world.init_bid)
    for name, values in decided(first).items():
        assert np.array_equal(values, decided(again)[name]), name


def test_a_request_is_served_alike_alone_and_in_a_block(sim, block):
    for seat in ("truth", "random", "constant"):
        the_arm = arm(sim.scorers[seat], sim.scorers["truth"], size=15, slots=3)
        the_arm = with_retrieved(the_arm.among(sim.retriever), 60)
        whole = sim.serve(block, the_arm)
        for r in range(0, len(block), 13):
            alone = sim.serve(part_of(block, slice(r, r + 1)), the_arm)
            for name, values in decided(whole).items():
                assert np.array_equal(decided(alone)[name][0], values[r]), (seat, name)


def test_the_sets_are_nested_and_the_price_is_between_reserve_and_bid(study):
    sim = study.sim
    block = sim.arrivals.block("evaluate", 1, 500)
    for the_arm in study.evaluation.all_arms().values():
        the_arm = replace(the_arm, reserve_cpc=0.8)
        found = sim.serve(block, the_arm)
        for r in range(len(block)):
            won = set(found.win_set[r]) - {-1}
            ranked = set(found.competitive_set[r]) - {-1}
            assert won <= ranked <= set(found.retrieved[r])
            assert len(won) == (found.win_set[r] >= 0).sum()
        shown = found.win_set >= 0
        bid = floor_micros(found.ranked_bid[:, :-1])
        assert np.all(found.cpc_micros[shown] >= 800_000) and np.all(found.cpc_micros <= bid)
        assert shown.any() and not found.cpc_micros[~shown].any()


def test_the_shadow_lets_the_ranking_stage_choose_from_the_whole_pre_ranking_set():
    pre, rank = Table(PCTR[::-1]), Table(PCTR)
    own = arm(pre, rank, size=3)
    ideal = serve(make_block([0]), shadow(own), platform(Bids(BID)))
    assert ideal.competitive_set.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert ideal.win_set.tolist() == [[0, 1]] and ideal.passes[0].scores.prediction[0] == pytest.approx(PCTR)


@pytest.mark.parametrize("model", ["logloss", "ltr", "distill-pre", "rank", "constant", "truth"])
@pytest.mark.parametrize("pre_bid", ["init", "opt"])
def test_a_higher_bid_never_hurts_an_ads_place_in_pre_ranking(study, model, pre_bid):
    sim = study.sim
    block = sim.arrivals.block("evaluate", 0, 500)
    seat = Stage(sim.scorers[model], pre_bid, Fusion())
    own = with_stage_of(study.evaluation.baseline, 0, seat)
    before = sim.serve(block, own)

    def places(decision, ad):
        """How many ads of each request are ahead of this one; -1 where it was not retrieved."""
        at = decision.retrieved == ad
        score = np.where(at, decision.passes[0].order, 0).sum(axis=1, keepdims=True)
        ahead = (decision.passes[0].order > score).sum(axis=1)
        ahead += ((decision.passes[0].order == score) & (decision.retrieved < ad)).sum(axis=1)
        return np.where(at.any(axis=1), ahead, -1), (decision.competitive_set == ad).any(axis=1)

    improved = 0
    for ad in np.unique(before.retrieved)[::40]:
        raised = sim.platform.bids.with_bid(int(ad), 1.3 * sim.world.init_bid[ad])
        after = serve(block, own, replace(sim.platform, bids=raised))
        (place, reached), (new_place, new_reached) = places(before, ad), places(after, ad)
        assert np.all(new_place <= place) and np.all(new_reached[reached])
        improved += int((new_place < place).sum())
    assert improved > 0


class Broken(torch.nn.Module):
    def forward(self, request, ads, pair):
        logit = ads.sum(-1)
        logit[2, 1] = float("nan")
        return logit


class Raising(torch.nn.Module):
    def forward(self, request, ads, pair):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


@pytest.mark.parametrize("stage", ["pre-ranking", "ranking"])
def test_a_model_that_raises_stops_the_run_with_model_stage_request_and_message(sim, block, stage):
    mine = TorchScorer("mine", sim.view(("quality", "G1")), "sigmoid", Raising())
    truth = sim.scorers["truth"]
    the_arm = arm(mine, truth, slots=3) if stage == "pre-ranking" else arm(truth, mine, slots=3)
    with pytest.raises(UserError) as error:
        sim.serve(block, the_arm)
    words = [
        "arm 'a'",
        "'mine'",
        f" {stage} stage",
        f"request {block.requests[0]}",
        "RuntimeError: mat1 and mat2",
    ]
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize("stage", ["pre-ranking", "ranking"])
def test_a_model_that_predicts_nan_stops_the_run_with_model_stage_and_request(sim, block, stage):
    mine = TorchScorer("mine", sim.view(("quality", "G1")), "sigmoid", Broken())
    truth = sim.scorers["truth"]
    the_arm = arm(mine, truth, slots=3) if stage == "pre-ranking" else arm(truth, mine, slots=3)
    with pytest.raises(UserError) as error:
        sim.serve(block, the_arm)
    text = str(error.value)
    assert "'mine'" in text and f" {stage} stage" in text and f"request {block.requests[2]}" in text
    assert "nan" in text


def test_what_pre_ranking_says_is_found_when_asked_for_and_travels_without_its_world():
    asked = []

    class Asked(Table):
        def predict(self, block, ids):
            asked.append(ids.shape)
            return super().predict(block, ids)

    # All candidates go on: nothing to choose, nothing to predict.
    found = one([0, 1, 2, 3], Bids(BID), pre=Asked(PCTR), rank=Table(PCTR))
    assert found.competitive_set.tolist() == [[0, 1, 2, 3]] and asked == []
    assert found.passes[0].scores.prediction[0] == pytest.approx(np.asarray(PCTR)[:4])
    assert found.passes[0].order.shape == (1, 4) and asked == [(1, 4)]
    scores, order = found.passes[0].view.__getstate__().values()
    assert scores is found.passes[0].scores and order is found.passes[0].order and asked == [(1, 4)]
