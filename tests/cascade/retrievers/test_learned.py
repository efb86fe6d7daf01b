"""Retrieval by a model: the best of the corpus by logit and bid, whoever asks along, and at other bids."""

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.cascade.retrievers.learned import LearnedRetrieval
from cascade_sim.cascade.retrievers.routes import (
    MergedRoutes,
    Quota,
    looks_at_bids,
    models_of,
    with_models,
)
from cascade_sim.cascade.retrievers.uniform import UniformRetrieval
from cascade_sim.cascade.scorers import ConstantScorer
from cascade_sim.cascade.serve import Block
from cascade_sim.scenario.models import ModelSpec
from cascade_sim.training.modules import build_module, make_scorer
from cascade_sim.world.world import build_world
from worlds.tiny_market import tiny_scenario

BY_USER = ("user", "quality", "tier", "G1")
BY_REQUEST = (*BY_USER, "context")


@pytest.fixture(scope="module")
def world():
    return build_world(tiny_scenario().world, 1)


@pytest.fixture(scope="module")
def churned():
    return build_world(tiny_scenario("world.churn={mean_lifetime_days: 2, available_share: 0.2}").world, 1)


def scorer_of(world, features, seed=1, kind="towers"):
    spec = ModelSpec(kind=kind, features=features, dims=4)
    view = world.view(features)
    module = build_module("net", spec, view, seed)
    with torch.no_grad():  # so that requests differ in what they want
        for weight in module.parameters():
            weight.mul_(2.0)
    return make_scorer("net", "logloss", view, module)


def block_of(world, n=40, first=0):
    number = np.arange(first, first + n)
    users = (number * 7 % world.n_users).astype(np.int32)
    return Block(number, users, np.sin(number + 1.0).astype(np.float32), number * 40_000.0)


def corpus_scores(world, scorer, block, bid_weight, bids):
    """logit + bid_weight * log(bid) of every ad, in float64.  [R, A]"""
    ids = np.tile(np.arange(world.n_ads, dtype=np.int32), (len(block), 1))
    with np.errstate(divide="ignore"):
        return scorer.logit(block, ids) + (bid_weight * np.log(bids) if bid_weight else 0.0)


@pytest.mark.parametrize("features", [BY_USER, BY_REQUEST])
@pytest.mark.parametrize("bid_weight", [0.0, 1.0, 2.5])
def test_the_best_of_the_corpus_by_logit_and_bid_are_retrieved(world, features, bid_weight):
    scorer, block = scorer_of(world, features), block_of(world)
    retriever = LearnedRetrieval(scorer, world.init_bid, bid_weight)
    found = retriever.retrieve(block, 60, None)
    scores = corpus_scores(world, scorer, block, bid_weight, world.init_bid)
    lowest_in = np.take_along_axis(scores, found, 1).min(axis=1)
    rest = scores.copy()
    np.put_along_axis(rest, found, -np.inf, 1)
    assert found.shape == (40, 60) and np.all(np.diff(found, axis=1) > 0)
    assert np.all(rest.max(axis=1) <= lowest_in + 1e-4)
    assert np.allclose(retriever.score(block, found), np.take_along_axis(scores, found, 1), atol=1e-4)


@pytest.mark.parametrize("features", [BY_USER, BY_REQUEST])
def test_an_answer_does_not_depend_on_who_asks_along(world, features):
    retriever = LearnedRetrieval(scorer_of(world, features), world.init_bid)
    block = block_of(world, 150)
    whole = retriever.retrieve(block, 30, None)
    fresh = LearnedRetrieval(scorer_of(world, features), world.init_bid)
    for rows in (slice(0, 1), slice(70, 75), np.array([149, 3, 64])):
        assert np.array_equal(fresh.retrieve(block.take(rows), 30, None), whole[rows])
        again = fresh.score(block.take(rows), whole[rows])  # a net's last bits depend on the rows beside it
        assert np.allclose(again, retriever.score(block, whole)[rows], rtol=1e-5, atol=1e-5)


def test_what_depends_on_the_request_is_not_kept_by_user(world):
    retriever = LearnedRetrieval(scorer_of(world, BY_REQUEST), world.init_bid)
    one, other = block_of(world, 20), block_of(world, 20)
    other = Block(one.requests, one.users, -3.0 * one.context, one.times)
    assert not np.array_equal(retriever.retrieve(one, 30, None), retriever.retrieve(other, 30, None))


@pytest.mark.parametrize("features", [BY_USER, BY_REQUEST])
@pytest.mark.parametrize("size", [20, 90])
def test_of_ads_that_come_and_go_the_best_that_are_there_are_retrieved(churned, features, size):
    scorer, block = scorer_of(churned, features), block_of(churned)
    found = LearnedRetrieval(scorer, churned.init_bid).retrieve(block, size, churned.lives)
    scores = corpus_scores(churned, scorer, block, 1.0, churned.init_bid)
    corpus = np.arange(churned.n_ads, dtype=np.int32)[None, :]
    scores[~churned.lives.is_available(corpus, block.times[:, None])] = -np.inf
    for row in range(len(block)):
        own = found[row][found[row] >= 0]
        assert len(own) == min(size, np.isfinite(scores[row]).sum())
        worst, rest = scores[row][own].min(), np.delete(scores[row], own)
        assert worst > -np.inf and rest.max() <= worst + 1e-4


@pytest.mark.parametrize("features", [BY_USER, BY_REQUEST])
def test_at_other_bids_it_is_the_retriever_of_those_bids_and_one_for_each(world, features):
    scorer, block = scorer_of(world, features), block_of(world)
    retriever = LearnedRetrieval(scorer, world.init_bid)
    bids = world.init_bid.copy()
    bids[7], bids[8:300] = 1e30, 0.0
    other = retriever.with_bids(bids)
    assert (
        other is retriever.with_bids(bids) is not retriever
        and retriever.with_bids(world.init_bid) is retriever
    )
    made = LearnedRetrieval(scorer, bids).retrieve(block, 50, None)
    found = other.retrieve(block, 50, None)
    assert np.array_equal(found, made)
    assert np.all((found == 7).any(axis=1)) and not np.isin(found, np.arange(8, 300)).any()
    assert np.array_equal(
        retriever.retrieve(block, 50, None),
        LearnedRetrieval(scorer, world.init_bid).retrieve(block, 50, None),
    )


def test_without_a_weight_bids_have_no_part(world):
    retriever = LearnedRetrieval(scorer_of(world, BY_USER), world.init_bid, bid_weight=0.0)
    assert retriever.with_bids(np.ones(world.n_ads)) is retriever and not looks_at_bids(retriever)


def test_merged_routes_pass_bids_and_new_models_on(world):
    first, second = scorer_of(world, BY_USER), scorer_of(world, BY_USER, seed=2)
    learned, block = LearnedRetrieval(first, world.init_bid), block_of(world)
    routes = MergedRoutes((Quota("learned", learned, 30), Quota("any", UniformRetrieval(world.n_ads, 1), 20)))
    assert looks_at_bids(routes) and models_of(routes) == ("net",)
    assert routes.with_bids(world.init_bid) is routes
    bids = world.init_bid.copy()
    bids[5] = 1e30
    assert np.all((routes.with_bids(bids).retrieve(block, 50, None) == 5).any(axis=1))
    again = with_models(routes, {"net": second}).routes[0].retriever
    assert np.array_equal(
        again.retrieve(block, 30, None), LearnedRetrieval(second, world.init_bid).retrieve(block, 30, None)
    )


def test_a_model_without_an_inner_product_cannot_retrieve(world):
    with refused("'net'", "inner product", "encode_users"):
        LearnedRetrieval(scorer_of(world, BY_USER, kind="coaction"), world.init_bid)
    with refused("'constant'", "trained model"):
        LearnedRetrieval(ConstantScorer(), world.init_bid)


def test_approximate_search_says_what_share_of_the_best_it_finds(world):
    pytest.importorskip("faiss")
    scorer, block = scorer_of(world, BY_REQUEST), block_of(world)
    exact = LearnedRetrieval(scorer, world.init_bid)
    few, all_lists = (LearnedRetrieval(scorer, world.init_bid, probes=n, seed=1) for n in (2, 10_000))
    assert exact.share_found(50) is None
    assert 0.0 < few.share_found(50) < all_lists.share_found(50) == 1.0
    assert np.array_equal(all_lists.retrieve(block, 50, None), exact.retrieve(block, 50, None))


def test_before_training_any_ads_are_candidates_and_others_for_every_request(churned):
    retriever, block = UniformRetrieval(churned.n_ads, 1), block_of(churned, 400)
    found = retriever.retrieve(block, 30, churned.lives)
    assert np.all(np.diff(found, axis=1) > 0) and np.all(
        churned.lives.is_available(found, block.times[:, None])
    )
    assert len(np.unique(found[:, 0])) > 10
    count = np.bincount(found.ravel(), minlength=churned.n_ads)
    there = churned.lives.is_available(np.arange(churned.n_ads)[None, :], block.times[:, None])
    expected = (there * (30 / there.sum(axis=1, keepdims=True))).sum(axis=0)
    assert np.abs((count - expected) / np.sqrt(expected + 1)).max() < 5
    assert np.array_equal(found[7:9], retriever.retrieve(block.take(slice(7, 9)), 30, churned.lives))
