import numpy as np
import pytest

from cascade_sim.agents.users import click_probability, happens


def test_a_click_needs_an_examined_slot_and_a_liked_ad():
    p = click_probability(np.array([[0.2, 0.1]]), np.array([1.0, 0.5, 0.25]), np.array([[True, True]]))
    assert p == pytest.approx(np.array([[0.2, 0.05]]))


def test_an_empty_slot_is_never_clicked():
    p = click_probability(np.array([[0.2, 0.9]]), np.array([1.0, 1.0]), np.array([[True, False]]))
    assert p[0, 1] == 0
    assert not happens(p, np.full((1, 2), 1e-300))[0, 1]


def test_probability_0_never_happens_and_1_always():
    u = np.array([1e-16, 0.5, 1 - 1e-16])
    assert not happens(np.zeros(3), u).any()
    assert happens(np.ones(3), u).all()


def test_raising_a_probability_never_undoes_a_click():
    u = np.random.default_rng(0).random(1000)
    before, after = happens(np.full(1000, 0.3), u), happens(np.full(1000, 0.4), u)
    assert np.all(after[before]) and after.sum() > before.sum()
