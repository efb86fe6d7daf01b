"""Which keys of two scenarios differ."""

from cascade_sim.scenario.diff import ABSENT, KeyChange, arm_changes, scenario_diff, value_text
from worlds.tiny_market import tiny_scenario


def test_equal_scenarios_have_no_difference():
    assert scenario_diff(tiny_scenario(), tiny_scenario()) == []


def test_changed_added_and_removed_keys_are_named_with_both_values():
    old = tiny_scenario("world.slot_effects=[1.0, 0.8, 0.6]")
    new = tiny_scenario(
        "auction.reserve_cpc=0.5", "world.slot_effects=[1.0, 0.9, 0.6]", "arms.wide={slots: 2}", seed=4
    )
    found = {change.path: (change.old, change.new) for change in scenario_diff(old, new)}
    assert found == {
        "seed": (1, 4),
        "world.slot_effects": ([1.0, 0.8, 0.6], [1.0, 0.9, 0.6]),
        "auction.reserve_cpc": (0.0, 0.5),
        "arms.wide.slots": (ABSENT, 2),
    }
    back = {change.path: change.new for change in scenario_diff(new, old)}
    assert back["arms.wide.slots"] == ABSENT


def test_a_change_is_a_line():
    assert KeyChange("auction.reserve_cpc", 0.0, 0.5).line() == "auction.reserve_cpc: 0.0 → 0.5"
    assert [value_text(v) for v in (None, True, [1, "a"], {})] == ["null", "true", "[1, a]", "{}"]


ARMS = """
cascade: {pre_ranking: {model: logloss}}
auction: {reserve_cpc: 0.7}
arms:
  production: {pre_ranking: {bid: opt}}
  cheaper: {auction: {reserve_cpc: 0.52}, pre_ranking: {bid: opt}}
  other: {pre_ranking: {model: ltr}, bidding: {rule: none}}
"""


def test_an_arm_differs_from_the_baseline_in_these_lines():
    assert arm_changes(ARMS, "production") == {
        "cheaper": ["auction.reserve_cpc: 0.7 → 0.52"],
        "other": ["pre_ranking.model: logloss → ltr", "bidding.rule: none", "pre_ranking.bid: opt → absent"],
    }


def test_a_text_that_is_no_scenario_has_no_lines():
    assert [arm_changes(text, "a") for text in ("", "a: [", "- 1", "arms: 3", "arms: {a: {}, b: null}")] == [
        {}
    ] * 5
