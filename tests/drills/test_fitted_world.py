"""A world fitted to a log of another family, against that market's truth; what was found is in the docs."""

import pytest

from drills.fitted_world import RIGHT, WRONG, drill


@pytest.mark.drill
def test_a_fitted_world_is_as_like_as_two_periods_and_right_near_what_was_served(tmp_path):
    found = drill(tmp_path)
    for test in found["two_sample"].values():
        assert abs(test["auc"]["value"] - test["within_log"]["value"]) <= 0.02
    held = {words: found["whatifs"][words]["is_held"] for words in (*RIGHT, *WRONG)}
    assert held == {**dict.fromkeys(RIGHT, True), **dict.fromkeys(WRONG, False)}
