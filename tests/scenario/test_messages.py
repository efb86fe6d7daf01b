"""What a key expects, in words."""

import pytest

from cascade_sim.auction import PRICINGS
from cascade_sim.scenario.messages import expected, known_keys, path_text, schema_at, unknown_key, value_words

# Wording: this module is the one place that says what a value may be.


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("seed",), "an integer from 0 to 2**63 - 1"),
        (("traffic", "block"), "an integer from 1 to 65,536"),
        (("world", "bids", "median"), "a number above 0 up to 10,000"),
        (("world", "bids", "tier_share"), "a number from 0 to 1"),
        (("bidding", "range"), "a number from 0 to below 1"),
        (("arms", "any", "bidding", "range"), "a number from 0 to below 1"),
        (("auction", "pricing"), f"one of {', '.join(PRICINGS)}"),
        (("world", "groups", "any", "dims"), "an integer from 1 to 1,024"),
        (("world", "slot_effects"), "a list of numbers above 0 up to 1"),
        (("world", "slot_effects", 3), "a number above 0 up to 1"),
        (("models", "any", "data"), "a list of cold_start, log"),
        (("models", "any", "features"), "a list of names"),
        (("models",), "a mapping (name: value)"),
        (("bidding",), "a mapping with keys rule, range, pcvr"),
        (("name",), "a name of lower-case letters, digits, '_' and '-' (100 at most)"),
        (("description",), "text"),
    ],
)
def test_what_is_expected_is_said_with_its_range(path, words):
    assert expected(schema_at(path)) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "nothing"),
        (True, "true"),
        (3, "3"),
        (-0.5, "-0.5"),
        ("3", "the text '3'"),
        ([], "an empty list"),
        ([1], "a list"),
        ({}, "an empty mapping"),
        ({"a": 1}, "a mapping"),
        ("x" * 100, "the text '" + "x" * 57 + "…'"),
    ],
)
def test_what_was_found_is_said_as_the_file_has_it(value, words):
    assert value_words(value) == words


def test_paths_read_like_code():
    assert path_text(("world", "slot_effects", 2)) == "world.slot_effects[2]"
    assert path_text(()) == ""


def test_a_key_that_does_not_exist_has_no_schema():
    assert schema_at(("cascade", "slot")) is None
    assert schema_at(("seed", "x")) is None


def test_an_unknown_key_comes_with_the_nearest_or_with_all():
    assert unknown_key(("cascade", "slot")) == "unknown key 'slot' in cascade; did you mean 'slots'?"
    assert unknown_key(("cascade", "xyz")).endswith("; known: retrieval, pre_ranking, ranking, slots")
    assert known_keys(schema_at(("arms",))) == []
