import itertools

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.agents.click_models import CLICK_MODELS, Cascade, PositionBased
from cascade_sim.agents.users import click_probability, happens

EFFECTS = np.array([1.0, 0.85, 0.74, 0.66, 0.6])
RNG = np.random.default_rng(0)
MODELS = {
    "position": PositionBased(EFFECTS),
    "cascade": Cascade(EFFECTS, continuation=0.8, continuation_after_click=0.3),
    "one click": Cascade(continuation=1.0, continuation_after_click=0.0),
    "eager after a click": Cascade(continuation=0.4, continuation_after_click=0.9),
}
EVERY_MODEL = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def page(rows, shown=(True, True, True, True, False)):
    ctr = np.tile([0.5, 0.2, 0.9, 0.4, 0.7], (rows, 1))
    return ctr, np.tile(shown, (rows, 1))


@EVERY_MODEL
@pytest.mark.parametrize(
    "shown", [(True,) * 5, (True, True, True, False, False), (False, True, False, True, True)]
)
def test_simulated_clicks_average_to_the_expected_ones(model, shown):
    n = 100_000
    ctr, is_shown = page(n, shown)
    clicked, examined = model.clicks(ctr, is_shown, *np.random.default_rng(1).random((2, n, 5)))
    expected = model.expected(ctr[:1], is_shown[:1])[0]
    assert clicked.mean(axis=0) == pytest.approx(expected, abs=4.5 * np.sqrt(0.25 / n))
    assert (clicked <= examined).all() and (examined <= is_shown).all()
    # Those who look click with the true CTR: also the examination is as the expectation says.
    assert examined.mean(axis=0) * ctr[0] == pytest.approx(expected, abs=4.5 * np.sqrt(0.25 / n))


def test_the_position_model_clicks_as_the_functions_of_users_do():
    ctr, shown = RNG.random((500, 5)), RNG.random((500, 5)) < 0.8
    u = RNG.random((500, 5))
    model = PositionBased(EFFECTS)
    assert np.array_equal(model.expected(ctr, shown), click_probability(ctr, EFFECTS, shown))
    clicked, _ = model.clicks(ctr, shown, u, RNG.random((500, 5)))
    assert np.array_equal(clicked, happens(click_probability(ctr, EFFECTS, shown), u))


def test_the_click_of_the_position_model_depends_on_its_own_draw_alone():
    ctr, shown = page(200)
    u = RNG.random((200, 5))
    one, two = (PositionBased(EFFECTS).clicks(ctr, shown, u, RNG.random((200, 5))) for _ in range(2))
    assert np.array_equal(one[0], two[0]) and not np.array_equal(one[1], two[1])


def test_a_sure_click_in_a_sure_slot_is_looked_at():
    clicked, examined = PositionBased(np.ones(2)).clicks(
        np.array([[1.0, 0.0]]), np.ones((1, 2), dtype=bool), np.full((1, 2), 0.99), np.full((1, 2), 0.99)
    )
    assert clicked.tolist() == [[True, False]] and examined.tolist() == [[True, True]]


def test_the_expected_clicks_of_a_scan_multiply_down_the_page():
    model = Cascade(continuation=0.8, continuation_after_click=0.3)
    ctr = np.array([[0.5, 0.2, 0.9]])
    on_1 = 0.5 * 0.8 + 0.5 * 0.3
    on_2 = on_1 * (0.8 * 0.8 + 0.2 * 0.3)
    assert model.expected(ctr, np.ones((1, 3), dtype=bool)) == pytest.approx(
        np.array([[0.5, on_1 * 0.2, on_2 * 0.9]])
    )


@EVERY_MODEL
def test_expected_clicks_are_exact_over_all_ways_a_page_can_go(model):
    """Draws on a grid of 10 that meets every probability exactly: the average has no sampling error."""
    ctr, shown = np.array([[0.5, 0.2]]), np.ones((1, 2), dtype=bool)
    effects = np.array([1.0, 0.5])
    model = PositionBased(effects) if isinstance(model, PositionBased) else model
    grid = (np.arange(10) + 0.5) / 10
    draw = np.array(list(itertools.product(grid, repeat=3)))
    rows = len(draw)
    u_click, u_continue = draw[:, :2], np.column_stack([draw[:, 2], np.full(rows, 0.5)])
    clicked, _ = model.clicks(np.repeat(ctr, rows, 0), np.repeat(shown, rows, 0), u_click, u_continue)
    assert clicked.mean(axis=0) == pytest.approx(model.expected(ctr, shown)[0], abs=1e-12)


def test_a_scan_that_never_stops_sees_every_slot():
    ctr, shown = page(50, (True,) * 5)
    model = Cascade(continuation=1.0, continuation_after_click=1.0)
    assert model.expected(ctr, shown) == pytest.approx(ctr)
    assert model.clicks(ctr, shown, RNG.random((50, 5)), RNG.random((50, 5)))[1].all()


def test_the_classic_cascade_ends_with_the_first_click():
    ctr, shown = page(2000, (True,) * 5)
    clicked, examined = MODELS["one click"].clicks(ctr, shown, RNG.random((2000, 5)), RNG.random((2000, 5)))
    assert clicked.sum(axis=1).max() == 1
    seen = examined.sum(axis=1)
    assert np.array_equal(seen[clicked.any(axis=1)], clicked.argmax(axis=1)[clicked.any(axis=1)] + 1)
    assert (seen[~clicked.any(axis=1)] == 5).all()


def test_a_scan_looks_at_a_page_without_gaps():
    ctr, shown = page(2000, (True,) * 5)
    _, examined = MODELS["cascade"].clicks(ctr, shown, RNG.random((2000, 5)), RNG.random((2000, 5)))
    assert examined[:, 0].all() and (examined[:, 1:] <= examined[:, :-1]).all()
    assert not examined[:, 4].all()


def test_a_better_ad_above_takes_clicks_from_those_below_only_in_a_scan():
    shown = np.ones((1, 2), dtype=bool)
    weak, strong = np.array([[0.1, 0.3]]), np.array([[0.9, 0.3]])
    cascade, position = MODELS["cascade"], MODELS["position"]
    assert cascade.expected(strong, shown)[0, 1] < cascade.expected(weak, shown)[0, 1]
    assert position.expected(strong, shown)[0, 1] == position.expected(weak, shown)[0, 1]


@EVERY_MODEL
def test_a_row_does_not_depend_on_its_neighbours(model):
    ctr, shown = RNG.random((64, 5)), np.sort(RNG.random((64, 5)) < 0.7, axis=1)[:, ::-1]
    u, v = RNG.random((2, 64, 5))
    clicked, examined = model.clicks(ctr, shown, u, v)
    for i in (0, 13, 63):
        one = slice(i, i + 1)
        alone = model.clicks(ctr[one], shown[one], u[one], v[one])
        assert np.array_equal(alone[0], clicked[one]) and np.array_equal(alone[1], examined[one])
        assert np.array_equal(model.expected(ctr, shown)[one], model.expected(ctr[one], shown[one]))


@EVERY_MODEL
def test_an_empty_page_and_no_requests_have_no_clicks(model):
    ctr, shown = page(3, (False,) * 5)
    assert not model.expected(ctr, shown).any()
    tiny = np.full((3, 5), 1e-12)
    assert not np.any(model.clicks(ctr, shown, tiny, tiny))
    none = np.zeros((0, 5))
    assert model.clicks(none, none.astype(bool), none, none)[0].shape == model.expected(none, none > 0).shape


@pytest.mark.parametrize("name", CLICK_MODELS)
def test_every_named_model_is_built_from_slot_effects(name):
    model = CLICK_MODELS[name](EFFECTS)
    ctr, shown = page(4)
    assert model.expected(ctr, shown).shape == (4, 5)


def test_nonsense_is_refused():
    ctr, shown = page(2)
    with refused("5 slots", 1, kind=ValueError):
        PositionBased(np.ones(1)).expected(ctr, shown)
    with pytest.raises(ValueError, match="probabilities"):
        PositionBased(np.array([1.2]))
    with refused("continuation", "probability", kind=ValueError):
        Cascade(continuation=1.5)
    with refused("continuation_after_click", "probability", kind=ValueError):
        Cascade(continuation_after_click=float("nan"))
