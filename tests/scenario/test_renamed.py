"""Scenario keys by their earlier names: refused with the name that they have now."""

import pytest

from answers.told import tells
from cascade_sim.foundation.errors import UserError
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.messages import path_text, schema_at
from cascade_sim.scenario.renamed import KEYS, VALUES, key_now
from worlds.tiny_market import QUICK


def concrete(pattern):
    """A path that a pattern describes."""
    return tuple("any" if step == "*" else step for step in pattern.split("."))


@pytest.mark.parametrize("old", KEYS)
def test_every_earlier_name_is_gone_and_the_present_one_is_a_key(old):
    now = key_now(concrete(old))
    assert schema_at(concrete(old)) is None and schema_at(now) is not None, now


@pytest.mark.parametrize("at", VALUES)
def test_every_earlier_text_is_gone_and_the_present_one_is_allowed(at):
    node = schema_at(concrete(at.removesuffix(".*")))
    node = node["items"] if at.endswith(".*") else node
    assert not set(VALUES[at]) & set(node["enum"]) and set(VALUES[at].values()) <= set(node["enum"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("phases.bootstrap=3", "phases.bootstrap=3 phases.cold_start"),
        ("world.logged={}", "world.logged={} world.replay"),
        ("models.rank.luck=3", f"models.rank.luck=3 {path_text(('models', 'rank', 'training_seed'))}"),
        ("models.rank.data=[bootstrap]", "'bootstrap' 'cold_start'"),
    ],
)
def test_a_scenario_with_an_earlier_name_is_refused_with_the_present_one(given, told):
    with pytest.raises(UserError) as refused:
        load_scenario(QUICK, [given])
    assert tells(refused.value, *told.split())


def test_a_key_that_never_was_has_no_other_name():
    assert key_now(("phases", "bootsrap")) is None and key_now(("models", "luck")) is None
