"""What may be asked of a randomised log."""

import pytest

from answers.told import refused
from cascade_sim.scenario.targets import Target, parse_target


def test_parameters_and_pages_are_told_apart():
    parameters = parse_target("a", ["auction.reserve_cpc=0.22", "auction.squashing = 0.9"])
    assert parameters == Target("a", {"reserve_cpc": 0.22, "squashing": 0.9})
    assert not parameters.is_slate
    pages = parse_target("b", ["slates.temperature=0.3", "ranking.model=wide"])
    assert (pages.temperature, pages.model, pages.is_slate) == (0.3, "wide", True)


def test_a_target_says_what_it_changes_as_it_was_written():
    words = ["auction.reserve_cpc=0.22", "auction.squashing=0.9"]
    assert parse_target("a", words).words == ", ".join(words)
    assert parse_target("b", ["ranking.model=wide"]).words == "ranking.model=wide"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (["auction.reserve_cpx=1"], "'auction.reserve_cpc'?"),
        (["world.ads=5"], "'world.ads'"),
        (["auction.pricing=vcg"], "auction.pricing=vcg: --set auction.pricing=vcg`"),
        (["pre_ranking.size=20"], "auction.reserve_cpc, --set cascade.pre_ranking.size=20`"),
        (["slots=2"], "--set cascade.slots=2`"),
        (["auction.reserve_cpc"], "key=value"),
        (["auction.reserve_cpc=much"], "auction.reserve_cpc=much: 'much'"),
        (["auction.reserve_cpc=0"], "auction.reserve_cpc 0"),
        (["auction.squashing=nan"], "auction.squashing 0 2"),
        (["slates.temperature=-1"], "slates.temperature 0 100"),
        (["auction.squashing=1", "slates.temperature=1"], "logs"),
    ],
)
def test_what_no_log_can_answer_is_refused(changes, text):
    with refused(*text.split()):
        parse_target("x", changes)
