"""What may be asked of a randomised log."""

import pytest

from cascade_sim.foundation.errors import UserError
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
        (["auction.reserve_cpx=1"], "did you mean 'auction.reserve_cpc'"),
        (["world.ads=5"], "unknown key of a target 'world.ads'"),
        (["auction.pricing=vcg"], "^auction.pricing=vcg: .*`whatif RUN --set auction.pricing=vcg`"),
        (["pre_ranking.size=20"], "answers for auction.reserve_cpc, .*--set cascade.pre_ranking.size=20`"),
        (["slots=2"], "--set cascade.slots=2`"),
        (["auction.reserve_cpc"], "write key=value"),
        (["auction.reserve_cpc=much"], "^auction.reserve_cpc=much: expected a number, not 'much'$"),
        (["auction.reserve_cpc=0"], "above 0"),
        (["auction.squashing=nan"], "above 0 and at most 2"),
        (["slates.temperature=-1"], "above 0 and at most 100"),
        (["auction.squashing=1", "slates.temperature=1"], "logs of their own"),
    ],
)
def test_what_no_log_can_answer_is_refused(changes, text):
    with pytest.raises(UserError, match=text):
        parse_target("x", changes)
