"""Users of a market: sessions, fatigue, click models of one's own, and clicks as often as expected."""

import numpy as np
import pytest

from cascade_sim.foundation.errors import UserError
from worlds.timed_market import live, same
from worlds.tiny_market import z_score

SESSIONS = {"sessions": {"mean_pages": 4.0, "pause_seconds": 40.0}}


def clicks_against_expectation(found):
    expected = np.concatenate([s.expected_clicks.ravel() for s in found.settled])
    return z_score(int(found.log["click"].sum()), expected)


@pytest.mark.parametrize(
    "users",
    [
        {},
        {"click_model": "cascade"},
        {"click_model": "cascade", "options": {"continuation": 0.5, "continuation_after_click": 0.0}},
        {"fatigue": {"strength": 0.5}, **SESSIONS},
    ],
)
def test_clicks_match_what_is_expected_of_them(users):
    found = live({"days": 0.08, "users": users})
    assert found.metrics["clicks"] > 400
    assert abs(clicks_against_expectation(found)) < 4
    assert found.metrics["expected_clicks"] == pytest.approx(
        sum(s.expected_clicks.sum() for s in found.settled)
    )


def test_a_cascade_that_stops_at_a_click_has_one_click_at_most():
    options = {"continuation": 1.0, "continuation_after_click": 0.0}
    found = live({"days": 0.05, "users": {"click_model": "cascade", "options": options}})
    per_page = np.concatenate([s.clicks.sum(axis=1) for s in found.settled])
    assert per_page.max() == 1
    assert live({"days": 0.05}).log["click"].sum() > 100
    assert max(s.clicks.sum(axis=1).max() for s in live({"days": 0.05}).settled) > 1


def test_with_sessions_users_come_back_after_a_pause():
    one, several = live({"days": 0.1}), live({"days": 0.1, "users": SESSIONS})
    assert several.metrics["requests"] == pytest.approx(one.metrics["requests"], rel=0.1)

    def mean_gap(found):
        users = np.concatenate([s.block.users for s in found.settled])
        times = np.concatenate([s.block.times for s in found.settled])
        order = np.lexsort((times, users))
        gaps = np.diff(times[order])[np.diff(users[order]) == 0]
        return np.median(gaps)

    assert mean_gap(several) < 0.7 * mean_gap(one)


def test_sessions_do_not_depend_on_how_time_is_cut_into_windows():
    one, other = (live({"users": SESSIONS, "window": w, "update": 600.0}) for w in (60.0, 150.0))
    same(one, other)


def test_fatigue_lowers_clicks_more_and_more_and_by_nothing_at_first():
    fresh = live({"days": 0.1, "users": {**SESSIONS}})
    tired = live({"days": 0.1, "users": {**SESSIONS, "fatigue": {"strength": 0.4, "half_life_hours": 100.0}}})
    assert tired.log["ad"].tolist() == fresh.log["ad"].tolist()  # who is shown does not depend on it
    ratio = [
        sum(t.expected_clicks[:, 0].sum() for t in run.settled if lo <= t.block.times[0] < hi)
        for lo, hi in ((0, 60), (60, 1000), (6000, 8640))
        for run in (tired, fresh)
    ]
    assert ratio[0] == ratio[1]  # nobody has seen anything in the first window
    assert ratio[4] / ratio[5] < ratio[2] / ratio[3] < 1


def own_model(folder, body):
    (folder / "own.py").write_text(f"import numpy as np\n\n\nclass Own:\n{body}")
    return "own.py:Own"


FIRST_SLOT_ONLY = """
    def __init__(self, slot_effects, share=1.0):
        self.effects, self.share = slot_effects, share

    def expected(self, true_ctr, shown):
        found = np.where(shown, self.share * true_ctr, 0.0)
        found[:, 1:] = 0
        return found

    def clicks(self, true_ctr, shown, u_click, u_continue):
        clicked = u_click < self.expected(true_ctr, shown)
        return clicked, clicked
"""


def test_a_click_model_of_ones_own_decides_who_clicks(tmp_path):
    users = {"click_model": own_model(tmp_path, FIRST_SLOT_ONLY), "options": {"share": 0.5}}
    found = live({"days": 0.05, "users": users}, home=tmp_path)
    assert (found.log["slot"][found.log["click"]] == 0).all() and found.log["click"].sum() > 30
    assert abs(clicks_against_expectation(found)) < 4
    assert (found.run.ledger.spend() == found.per_advertiser(slice(None), "charge_micros")).all()


def test_a_click_model_that_writes_into_what_it_is_given_changes_nothing_else(tmp_path):
    writes = "found[:, 1:] = 0\n        true_ctr[:], shown[:] = 0.9, True"
    both = []
    for i, body in enumerate((FIRST_SLOT_ONLY, FIRST_SLOT_ONLY.replace("found[:, 1:] = 0", writes))):
        folder = tmp_path / str(i)
        folder.mkdir()
        both.append(live({"users": {"click_model": own_model(folder, body)}}, home=folder))
    same(*both)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("self.share * true_ctr", "2.0 + true_ctr"), "2.* is no probability"),
        (("return found", "return found[:, :1]"), r"expected probabilities \[\d+, 3\]"),
        (("return clicked, clicked", "return ~shown | True, ~shown | True"), "empty slots"),
        (("return clicked, clicked", "return shown, ~shown"), "not examined"),
        (("return clicked, clicked", "return clicked, None"), "truth values"),
        (("return clicked, clicked", "return clicked * 1.0, clicked"), "truth values"),
        (("return clicked, clicked", "return 1 / 0"), r"own\.py:\d+: ZeroDivisionError"),
        (("share=1.0", "other=1.0"), r"own\.py:\d+: NameError|unexpected keyword argument 'share'"),
    ],
)
def test_nonsense_from_a_click_model_is_answered_with_its_name(tmp_path, change, message):
    users = {
        "click_model": own_model(tmp_path, FIRST_SLOT_ONLY.replace(*change)), "options": {"share": 0.5}
    }  # fmt: skip
    few = {"retrieval": {"size": 8}, "pre_ranking": {"model": "truth", "size": 4},
           "ranking": {"model": "truth", "bid": "init"}, "slots": 3}  # fmt: skip
    with pytest.raises(UserError, match=f"market.users.click_model.*{message}"):
        # Budgets that end leave slots empty.
        live({"users": users, "budgets": {"share": 1.0, "median": 0.5}}, home=tmp_path, cascade=few)
