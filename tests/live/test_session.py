"""A run that is kept open: which requests answer first, what is refused, and what is forgotten."""

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.foundation.errors import UserError
from cascade_sim.live import session as module
from cascade_sim.live.session import Session, Variant, spread
from worlds.logged_market import market_of


def test_a_first_answer_lies_evenly_over_the_evaluation():
    assert spread(10, 2) == [2, 7] and spread(40, 8) == [2, 7, 12, 17, 22, 27, 32, 37]
    assert spread(3, 8) == [0, 1, 2] and spread(1, 1) == [0]


def test_models_are_asked_once_whatever_parameters_are_turned(folder, monkeypatch):
    opened = Session(folder)
    list(opened.warm())
    asked = []
    for scorer in opened.sim.scorers.values():
        monkeypatch.setattr(scorer, "predict", lambda block, ids, name=scorer.name: asked.append(name))
    monkeypatch.setattr(opened.sim.environment._truth, "cvr", lambda block, ids: np.zeros(ids.shape))
    for words in (
        ["auction.reserve_cpc=0.3"],
        ["slots=2"],
        ["pre_ranking.size=9"],
        ["auction.squashing=0.7"],
    ):
        list(opened.measured(opened.arm(Variant(opened.baseline, tuple(words))), opened.blocks(True)))
    assert asked == []


def test_what_cannot_be_turned_is_refused_in_the_words_of_whatif(session):
    for words, text in (
        (("cascade.pre_ranking.size=2",), "leaves no runner-up"),
        (("world.ads=5",), "cannot be changed after the fact"),
        (("auction.reserve=1",), "unknown key"),
        (("auction.reserve_cpc=0.1,0.2",), "one value"),
        (("auction.pricing=soft_floor",), "needs soft_floor"),
        (("auction.reserve_cpc=x",), "number"),
    ):
        for _ in range(2):  # the second time from what is known
            with pytest.raises(UserError, match=text):
                session.arm(Variant(session.baseline, words))
    with pytest.raises(UserError, match="unknown arm"):
        session.arm(Variant("nobody"))


def test_a_log_of_winners_cannot_be_opened_and_says_what_can_be_asked(study, tmp_path):
    folder = market_of(study.sim, study.evaluation.baseline, tmp_path / "winners", 200, "winners")
    with refused("'winners'", "`whatif`"):
        Session(folder)


def test_the_way_that_everything_is_held_against_is_never_forgotten(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAYS", 3)
    opened = Session(folder)
    base = opened.arm(Variant(opened.baseline))
    list(opened.measured(base, opened.sample))
    for i in range(6):
        list(
            opened.measured(
                opened.arm(Variant(opened.baseline, (f"auction.reserve_cpc=0.{i + 1}",))), opened.sample
            )
        )
    assert len(opened._ways) == 3 and next(iter(opened._ways)) == base and len(opened.pages(base)) > 0


def test_without_room_for_scores_the_answer_is_the_same(folder, session, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 0)
    poor, way = Session(folder), Variant(session.baseline, ("auction.reserve_cpc=0.4",))
    for opened in (poor, session):
        list(opened.measured(opened.arm(way), [0]))
    kept, made = session.pages(session.arm(way))[0], poor.pages(poor.arm(way))[0]
    assert not poor._contexts and kept.ads.tobytes() == made.ads.tobytes()
    assert {n: c.tobytes() for n, c in kept.columns.items()} == {
        n: c.tobytes() for n, c in made.columns.items()
    }


def test_who_is_being_answered_keeps_his_pages_while_others_push_them_out(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAYS", 2)
    opened = Session(folder)
    list(opened.measured(opened.arm(Variant(opened.baseline)), opened.sample))
    mine = opened.measured(opened.arm(Variant(opened.baseline, ("cascade.slots=2",))), opened.sample)
    next(mine)
    for i in range(4):
        list(opened.measured(opened.arm(Variant(opened.baseline, (f"auction.reserve_cpc=0.{i + 1}",))), [0]))
    with pytest.raises(StopIteration) as end:
        while True:
            next(mine)
    assert sorted(end.value.value) == sorted(opened.sample)
