"""Requests are found by what is on their pages; a look at one is what `trace` says of it."""

import json

import pytest

from cascade_sim.diagnostics.trace import trace
from cascade_sim.foundation.errors import UserError
from cascade_sim.live.browse import Filter, find_requests, look_at
from cascade_sim.live.session import Variant


def listed(session, arm, base, blocks, *rest):
    return find_requests(session, session.pages(arm), session.pages(base), blocks, *rest)


@pytest.fixture(scope="module")
def both(session):
    base, arm = session.arm(Variant(session.baseline)), session.arm(Variant(session.baseline, ("slots=2",)))
    for side in (base, arm):
        list(session.measured(side, session.blocks(True)))
    return session, arm, base, session.blocks(True)


def test_all_requests_in_their_order_a_page_at_a_time(both):
    found = listed(*both, Filter())
    assert found["total"] == found["looked_at"] == 500
    assert [row["request"] for row in found["rows"]] == list(range(12))
    assert [row["request"] for row in listed(*both, Filter(), 492)["rows"]] == list(range(492, 500))


def test_filters_by_user_ad_advertiser_revenue_and_change(both):
    session, arm, base, _ = both
    page = look_at(session, arm, base, 7, None)
    first = page["pages"]["current"][0]
    for wanted in (
        Filter(user=page["user"]),
        Filter(ad=first["ad"]),
        Filter(advertiser=first["advertiser"]),
        Filter(ad=first["ad"], user=page["user"], changed=True),
    ):
        found = listed(*both, wanted)
        numbers = [row["request"] for row in listed(*both, wanted)["rows"]]
        assert 0 < found["total"] < 500 and (7 in numbers or found["total"] > 12), wanted
    dear = listed(*both, Filter(least=0.5, sort="revenue"))["rows"]
    assert all(row["variant"] >= 0.5 for row in dear)
    assert [row["variant"] for row in dear] == sorted((row["variant"] for row in dear), reverse=True)
    for wrong in (Filter(user="x"), Filter(ad="99999"), Filter(advertiser="-1"), Filter(sort="name")):
        with pytest.raises(UserError):
            listed(*both, wrong)


def test_a_look_at_a_request_says_of_an_ad_what_trace_says(both):
    session, _, base, _ = both
    for number, ad in ((7, 3), (300, 450), (499, 17)):
        said = trace(session.opened, number, ad)
        found = look_at(session, base, base, number, str(ad))
        told = {**found["ad"], "ad": int(found["ad"]["ad"]), "advertiser": int(found["ad"]["advertiser"])}
        assert json.dumps(told) == json.dumps(said["ad"])
        shown = [place["cpc_micros"] for place in found["pages"]["variant"] if place["slot"] is not None]
        assert shown == [place["cpc_micros"] for place in said["win_set"]]


def test_a_request_that_is_not_there_is_refused(both):
    session, arm, base, _ = both
    for number in (500, 10**12):
        with pytest.raises(UserError, match="no request"):
            look_at(session, arm, base, number, None)
