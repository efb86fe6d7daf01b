"""Hints for unknown names."""

from cascade_sim.foundation.errors import did_you_mean, nearest, unknown_name

# Wording: these functions are the one place that words a suggestion.


def test_a_slip_of_the_finger_finds_its_name():
    assert nearest("slot", ["size", "slots"]) == "slots"
    assert did_you_mean("lgoloss", ["rank", "logloss"]) == "; did you mean 'logloss'?"


def test_case_and_the_kind_of_dash_do_not_matter():
    assert nearest("Distill_Pre", ["distill-pre", "rank"]) == "distill-pre"


def test_nothing_is_suggested_when_nothing_is_near():
    assert nearest("xyz", ["rank", "logloss"]) is None
    assert did_you_mean("xyz", []) == ""


def test_an_unknown_name_comes_with_the_known_ones():
    assert unknown_name("arm", "xyz", ["a", "b"]) == "unknown arm 'xyz'; known: a, b"
    assert unknown_name("arm", "logos", ["logloss"]).endswith("did you mean 'logloss'? Known: logloss")
    assert unknown_name("arm", "a", []) == "unknown arm 'a'; known: none"
