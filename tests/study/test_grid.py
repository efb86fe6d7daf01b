"""Grids of scenarios: every combination, and every mistake named before anything runs."""

import pytest

from answers.told import refused, tells
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.study.sweeps import Axis, load_grid, parse_axes
from worlds.tiny_market import QUICK


def grid(*options):
    return load_grid(QUICK, parse_axes(options), ("phases.log=500",))


def test_all_combinations_come_with_the_last_key_fastest():
    cells = grid("auction.reserve_cpc=0,0.1", "cascade.slots=1,2,3")
    assert [cell.name for cell in cells] == [
        f"reserve_cpc={reserve}, slots={slots}" for reserve in ("0", "0.1") for slots in (1, 2, 3)
    ]
    assert [cell.scenario.auction.reserve_cpc for cell in cells] == [0, 0, 0, 0.1, 0.1, 0.1]
    assert [cell.scenario.cascade.slots for cell in cells] == [1, 2, 3, 1, 2, 3]
    assert {cell.scenario.phases.log for cell in cells} == {500}
    assert cells[4].settings == {"auction.reserve_cpc": "0.1", "cascade.slots": "2"}


def test_keys_that_end_alike_keep_as_much_of_their_path_as_tells_them_apart():
    cells = grid("cascade.retrieval.size=50", "cascade.pre_ranking.size=10,20")
    assert [cell.name for cell in cells] == [f"retrieval.size=50, pre_ranking.size={n}" for n in (10, 20)]


def test_commas_inside_brackets_and_quotes_do_not_separate_values():
    (axis,) = parse_axes(["world.slot_effects=[1, 0.5, 0.2],[1.0, 0.8, 0.6]"])
    assert axis == Axis("world.slot_effects", ("[1, 0.5, 0.2]", "[1.0, 0.8, 0.6]"))
    assert parse_axes(["a={b: 1, c: 2},'x, y'"])[0].values == ("{b: 1, c: 2}", "'x, y'")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["cascade.slots"], "path.to.key=value,value"),
        (["=1,2"], "path.to.key=value,value"),
        (["cascade.slots=1,,2"], "cascade.slots=1,,2 empty"),
        (["cascade.slots=1,2,1"], "cascade.slots=1,2,1: 1 twice"),
        (["cascade.slots=1", "cascade.slots=2"], "--over cascade.slots: given twice"),
        (["seed=1,2"], "seed --seeds"),
        ([f"a{i}=" + ",".join(map(str, range(11))) for i in range(3)], "1,331 cells; at most 1,000"),
    ],
)
def test_a_list_with_a_mistake_is_refused(options, said):
    with refused(*said.split()):
        parse_axes(options)


def problems(*options):
    with pytest.raises(ScenarioError) as caught:
        grid(*options)
    return caught.value.problems


def test_an_unknown_key_is_said_once_with_the_one_that_was_meant():
    (line,) = problems("cascade.slotz=1,2", "auction.reserve_cpc=0")
    assert line.startswith("--over cascade.slotz: ") and tells(line, "'slots'?")
    assert "cell" not in line


def test_a_value_that_is_not_valid_is_said_with_its_cells():
    (line,) = problems("cascade.slots=2,-3", "auction.reserve_cpc=0,0.1")
    assert line.startswith("--over cascade.slots: ")
    assert tells(line, "slots=-3, reserve_cpc=0", "1 more")


def test_a_combination_that_is_not_valid_is_named_though_each_value_is():
    assert grid("cascade.retrieval.size=20,100", "cascade.pre_ranking.size=10")
    (line,) = problems("cascade.retrieval.size=20,100", "cascade.pre_ranking.size=10,25")
    assert line.endswith("(in the cell retrieval.size=20, pre_ranking.size=25)")
