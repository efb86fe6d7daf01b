"""YAML with positions."""

import warnings

from answers.told import tells
from cascade_sim.scenario.yaml import parse

TEXT = """\
name: a
world:
  groups: {G1: {dims: 4}, G2: {}}
  slot_effects:
    - 1.0
    - 0.5
"""


def test_every_key_and_value_has_its_line_and_column():
    document = parse(TEXT)
    assert document.keys[("name",)] == (1, 1)
    assert document.values[("name",)] == (1, 7)
    assert document.keys[("world", "groups", "G1", "dims")] == (3, 17)
    assert document.values[("world", "groups", "G2")] == (3, 31)
    assert document.values[("world", "slot_effects", 1)] == (6, 7)


def test_what_is_absent_is_looked_for_at_the_nearest_part_above():
    document = parse(TEXT)
    assert document.mark(("world", "groups", "G1", "weight")) == (3, 12)
    assert document.mark(("world", "slot_effects", 9)) == (4, 3)
    assert document.mark(("cascade", "slots")) == (1, 1)


def test_values_are_those_of_yaml_1_2():
    data = parse("a: 1e-3\nb: yes\nc: 0x10\nd: ~\ne: 'none'\nf: none\ng: 1_000\nh: .inf").data
    assert data == {
        "a": 0.001,
        "b": "yes",
        "c": 16,
        "d": None,
        "e": "none",
        "f": "none",
        "g": 1000,
        "h": float("inf"),
    }


def test_keys_are_text_whatever_they_look_like():
    assert parse("1: a\ntrue: b").data == {"1": "a", "true": "b"}


def test_every_duplicate_key_is_reported_and_the_first_value_kept():
    document = parse("a: 1\nb: {c: 1, c: 2}\na: 3")
    assert document.data == {"a": 1, "b": {"c": 1}}
    assert [(p.path, p.mark) for p in document.problems] == [(("b", "c"), (2, 11)), (("a",), (3, 1))]


def test_an_alias_repeats_its_anchor_and_points_to_it():
    document = parse("a: &x {n: 1}\nb: *x")
    assert document.data == {"a": {"n": 1}, "b": {"n": 1}}
    assert document.mark(("b", "n")) == (1, 8)


def test_an_anchor_may_be_used_again():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse("a: &x 1\nb: &x 2\nc: *x").data == {"a": 1, "b": 2, "c": 2}


def test_a_merge_fills_in_what_is_not_given():
    document = parse("a: &x {n: 1, m: 1}\nc: &y {m: 3, o: 3}\nb:\n  n: 2\n  <<: [*x, *y]")
    assert document.problems == []
    assert document.data["b"] == {"n": 2, "m": 1, "o": 3}
    assert document.mark(("b", "n")) == (4, 3)
    assert document.mark(("b", "m")) == (1, 14)
    assert document.mark(("b", "o")) == (2, 14)


def test_a_merge_of_anything_but_mappings_is_a_problem():
    assert "merges mappings only" in parse("a: &x 3\nb: {<<: *x}").problems[0].text
    assert "merges mappings only" in parse("a: &x {<<: *x}").problems[0].text


def test_tags_build_no_objects():
    document = parse("a: !!python/object/apply:os.getcwd x\nb: !!int word")
    assert document.data == {"a": None, "b": None}
    assert [problem.path for problem in document.problems] == [("a",), ("b",)]


def test_a_tagged_list_or_mapping_is_a_problem():
    document = parse("a: !!python/object/apply:os.system [x]\nb: !own {c: 1}")
    assert [problem.path for problem in document.problems] == [("a",), ("b",)]


def test_keys_must_be_words():
    assert tells(parse("? [a, b]\n: 1").problems[0].text, "key", "word")


def test_aliases_of_aliases_cannot_grow_without_end():
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    text += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
    (problem,) = parse(text).problems
    assert "more than 100,000 values" in problem.text
