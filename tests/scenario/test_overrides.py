"""`--set path.to.key=value`."""

import pytest

from answers.told import tells
from cascade_sim.scenario.file import apply_overrides
from cascade_sim.scenario.yaml import parse


def changed(text, *overrides):
    document = parse(text)
    applied, refused = apply_overrides(document, overrides)
    assert refused == []
    assert len(applied) == len(overrides)
    return document.data


def reason(override, text="name: a\nseed: 1\narms: {wide: {slots: 8}}\nworld: {slot_effects: [1.0, 0.5]}"):
    applied, refused = apply_overrides(parse(text), [override])
    assert applied == []
    (line,) = refused
    assert line.startswith(f"--set {override}: ")
    return line.removeprefix(f"--set {override}: ")


def test_a_value_is_read_as_yaml():
    data = changed("name: a", "seed=3", "world.base_logit=-1e-3", "description=a: b=c".replace(": ", ":"))
    assert data == {"name": "a", "seed": 3, "world": {"base_logit": -1e-3}, "description": "a:b=c"}
    data = changed(
        "name: a",
        "models.m={kind: towers, features: [user, G1]}",
        "world.conversion.anti_correlated_group=null",
    )
    assert data["models"] == {"m": {"kind": "towers", "features": ["user", "G1"]}}
    assert data["world"] == {"conversion": {"anti_correlated_group": None}}


def test_the_last_of_two_overrides_wins():
    assert changed("name: a", "seed=3", "seed=4")["seed"] == 4


def test_changing_one_group_or_slot_effect_keeps_the_others():
    world = changed("name: a", "world.groups.G4.weight=0.5", "world.slot_effects.1=0.8")["world"]
    assert list(world["groups"]) == ["G1", "G2", "G3", "G4"]
    assert world["groups"]["G4"] == {"dims": 4, "weight": 0.5}
    assert world["slot_effects"] == [1.0, 0.8, 0.74, 0.66, 0.6]


def test_a_position_in_a_list_becomes_a_number_in_the_path():
    document = parse("world: {slot_effects: [1.0, 0.5]}")
    (applied,), _ = apply_overrides(document, ["world.slot_effects.1=0.4"])
    assert applied.path == ("world", "slot_effects", 1)
    assert document.data["world"]["slot_effects"] == [1.0, 0.4]


def test_a_new_arm_may_be_set_as_a_whole_but_not_key_by_key():
    assert changed("arms: {now: {}}", "arms.wide={slots: 8}")["arms"] == {"now": {}, "wide": {"slots": 8}}
    assert tells(reason("arms.wde.slots=3"), "arms", "'wde'", "'wide'?")


def test_options_of_ones_own_class_may_have_any_key():
    data = changed("models: {m: {}}", "models.m.options.depth=3", "models.m.options.deep.er=4")
    assert data["models"]["m"]["options"] == {"depth": 3, "deep": {"er": 4}}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("cascade.slot=3", "cascade 'slot' 'slots'?"),
        ("sed=3", "'sed' 'seed'?"),
        ("arms.wide.world.ads=3", "arms.wide 'world' retrieval"),
        ("seed", "'=' path.to.key=value"),
        ("=3", "key empty"),
        ("world..ads=3", "key empty"),
        ("seed.x=3", "seed single 'x'"),
        ("world.slot_effects.2=1", "world.slot_effects list 0 1"),
        ("world.slot_effects.-1=1", "list 0 1"),
        ("seed=[1", "read value"),
        ("seed={a: 1, a: 2}", "duplicate 'a'"),
    ],
)
def test_an_override_that_cannot_be_applied_says_why(override, words):
    assert tells(reason(override), *words.split())
