"""Questions to an imported log, asked as of a run."""

import csv
import json

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim import baseline, check, landscape, off_policy, sweep, trace, whatif
from cascade_sim.cli import main
from cascade_sim.counterfactual.critical_bids import critical_bids
from cascade_sim.logs.store.format import About, Rule
from worlds.logged_market import made_market

# A market with names of its own: ad codes are not what a person calls them.
REQUEST, N = "req-0003", 3000


def drawn_pages():
    """Two slots, four ads, pages drawn evenly: propensities 1/4 and 1/3.  (requests, candidates [N, 4])"""
    generator = np.random.Generator(np.random.PCG64(5))
    order = np.array([generator.permutation(4) for _ in range(N)])
    pctr = np.broadcast_to([0.1, 0.2, 0.3, 0.4], (N, 4))
    slot = np.full((N, 4), -1, np.int16)
    for k in range(2):
        slot[np.arange(N), order[:, k]] = k
    seen = np.where(slot == 0, 1.0, 0.5)
    click = np.where(slot >= 0, generator.uniform(size=(N, 4)) < seen * pctr, -1)
    requests = {"time": np.arange(N) * 60.0, "slots": np.full(N, 2)}
    candidates = {
        "ad": np.tile(np.arange(4, dtype=np.int32), (N, 1)),
        "bid": np.tile([1.0, 0.9, 0.8, 0.7], (N, 1)),
        "pctr": pctr,
        "slot": slot,
        "price_micros": np.where(slot >= 0, 500_000, -1),
        "click": click.astype(np.int8),
        "propensity": np.select([slot == 0, slot == 1], [1 / 4, 1 / 3], np.nan),
    }
    return requests, candidates


def flat(columns):
    return {name: values.ravel() for name, values in columns.items()}


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """Drawn pages, with names."""
    requests, columns = drawn_pages()
    requests["first"], candidates = np.arange(N + 1) * 4, flat(columns)
    names = {"ads": ["shoes", "hats", "coats", "socks"], "requests": [f"req-{i:04}" for i in range(N)]}
    about = About("drawn", "2026-11-02T00:00:00+00:00", is_randomised=True, rule=Rule("gsp", 1.0, 0.1))
    folder = tmp_path_factory.mktemp("named") / "market"
    return made_market(folder, requests, candidates, about, names=names)


def test_a_request_and_an_ad_go_by_their_names_in_the_log(named, capsys):
    answer = trace(named, REQUEST, ad="socks").trace
    assert (answer["index"], answer["ad"]["ad"], answer["names"]["request"]) == (3, 3, REQUEST)
    assert (
        answer["ad"]["dropped_by"] is None and answer["win_set"][0]["ad"] == 3
    )  # 0.7 * 0.4 is the best score
    assert (
        main(["trace", str(named), "--request", REQUEST, "--ad", "shoes"]) == 1
    )  # the logged page was drawn
    text = capsys.readouterr().out
    assert tells(text, "ad shoes", "advertiser 0", "by ranking")
    assert "model CTR" in text and "true" not in text


def test_a_name_that_is_none_is_refused_with_one_that_is_near(named):
    with refused("'shoes'?"):
        trace(named, REQUEST, ad="shoe")


def test_the_bid_landscape_of_an_ad_rises_with_its_bid(named):
    answer = landscape(named, "shoes", bids=[0.2, 1.0, 3.0]).landscape
    assert answer.impressions.tolist() == [0, 0, N]  # 0.1 * 3 is more than the 0.24 and 0.28 of two others
    assert answer.init_bid == 1.0 and answer.bid_rule == "none"


def test_every_question_prints_the_ids_of_the_log(named, tmp_path, capsys):
    assert main(["landscape", str(named), "--ad", "coats", "--bids", "0.5,0.8", "--requests", "40"]) == 0
    assert capsys.readouterr().out.startswith("ad coats ")
    assert landscape(named, "coats", bids=[0.8], requests=40).landscape.as_json()["ad_name"] == "coats"
    out = tmp_path / "bids.csv"
    assert main(["critical-bids", str(named), "--impressions", "20", "--out", str(out), "--quiet"]) == 0
    rows = list(csv.DictReader(out.open()))
    assert {row["ad"] for row in rows} <= {"shoes", "hats", "coats", "socks"}
    assert rows[0]["request"] == "req-0000"


def test_a_page_with_the_same_ads_at_other_prices_is_called_that(named, capsys):
    _, columns = drawn_pages()
    best = np.flatnonzero((columns["slot"][:, 3] == 0) & (columns["slot"][:, 2] == 1))[0]  # as GSP has it
    assert main(["trace", str(named), "--request", f"req-{best:04}"]) == 1
    told = capsys.readouterr().err
    assert tells(told, "other prices", "slot 1", "0.500000 logged", "0.600000 here")
    assert "another page" not in told and tells(told, "audit-logs")
    other = np.flatnonzero((columns["slot"][:, 0] == 0) & (columns["slot"][:, 2] == 1))[0]
    assert main(["trace", str(named), "--request", f"req-{other:04}"]) == 1
    assert tells(capsys.readouterr().err, "another page", "slot 1", "ad shoes", "ad socks", "0.500000 logged")


def test_prices_are_the_least_bids_that_keep_a_slot(replayed):
    found = critical_bids(replayed.sim, replayed.arm(), 100)
    assert len(found)
    assert np.all(found.cascade_micros >= found.local_micros)
    paid = found.factor * found.local_micros
    assert np.all(found.cpc_micros <= paid + 1) and np.all(paid <= found.cpc_micros + 2 * found.factor + 1)


def test_what_other_pages_would_have_brought_is_weighed_by_the_logged_propensities(named):
    answers = off_policy(named, ["slates.temperature=0.5"]).answers
    rewards = answers["the asked policy"]["rewards"]
    ctr, odds = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.1, 0.18, 0.24, 0.28]) ** 2
    first = odds / odds.sum()
    second = [odds * (np.arange(4) != a) / (odds.sum() - odds[a]) for a in range(4)]
    truth = sum(first[a] * (ctr[a] + 0.5 * second[a] @ ctr) for a in range(4))
    row = rewards["clicks"]["estimators"]["cascade_dr"]["estimate"]
    assert row["low"] <= truth <= row["high"]
    assert rewards["clicks"]["logged"]["value"] == pytest.approx(0.25 * 1.5, abs=0.03)
    assert "cascade_dr" not in rewards["revenue"]["estimators"]  # what others would pay is not known


def test_ads_that_no_page_was_drawn_from_are_in_no_list(named, tmp_path):
    """One that lost to all that were shown, one below the reserve, one that never reached ranking."""
    requests, columns = drawn_pages()
    further = {"bid": [0.7, 0.5, 1.0], "pctr": [0.05, 0.9, 0.9], "stage": [1, 1, 0], "ad": [4, 5, 6]}
    columns["stage"] = np.where(columns["slot"] >= 0, 2, 1).astype(np.int8)
    unseen = {"slot": -1, "price_micros": -1, "click": -1, "propensity": np.nan}
    for name, values in columns.items():
        more = np.broadcast_to(further.get(name, unseen.get(name)), (N, 3)).astype(values.dtype)
        columns[name] = np.concatenate([values, more], axis=1)
    requests["first"] = np.arange(N + 1) * 7
    about = About("longer", "2026-11-02T00:00:00+00:00", is_randomised=True, rule=Rule("gsp", 1.0, 0.6))
    longer = made_market(tmp_path / "market", requests, flat(columns), about)
    asked = ["slates.temperature=0.5"]
    first, second = (off_policy(folder, asked).answers for folder in (named, longer))
    plain = [
        answers["the asked policy"]["rewards"]["revenue"]["estimators"]["slate_ips"]["estimate"]
        for answers in (first, second)
    ]
    assert plain[0]["value"] == pytest.approx(plain[1]["value"], rel=1e-12)


def test_pages_that_were_hardly_ever_drawn_are_refused(named):
    answers = off_policy(named, ["slates.temperature=0.02"]).answers
    rows = answers["the asked policy"]["rewards"]["clicks"]["estimators"]
    assert rows["slate_ips"]["no_estimate"] and rows["slate_ips"]["estimate"]["value"] is None


def test_a_log_that_was_not_randomised_refuses_off_policy_questions(market):
    with refused("propensities"):
        off_policy(market, ["slates.temperature=0.5"])


def test_a_what_if_from_python_says_what_was_observed(market, tmp_path, capsys):
    answer = whatif(market, {"auction.reserve_cpc": [0.5, 0.9]}).answer
    shares = [point["metrics"]["observed_clicks_share"]["value"] for point in answer["points"]]
    assert answer["current"]["metrics"]["observed_clicks_share"]["value"] == 1.0
    assert 0.0 < shares[1] < shares[0] < 1.0
    assert {"welfare_vs_oracle", "payment_error_vs_oracle", "true_value_recall", "cpc_error"}.isdisjoint(
        answer["current"]["metrics"]
    )
    assert any("Intervals resample users" in note for note in answer["notes"])
    out = tmp_path / "answer"
    words = ["--set", "auction.reserve_cpc=0.5,0.9", "--quiet", "--out", str(out)]
    assert main(["whatif", str(market), *words]) == 0
    assert "observed %" in capsys.readouterr().out
    page = (out / "whatif.html").read_text()
    assert tells(page, "The click model")
    assert json.loads((out / "whatif.json").read_text())["replay"]["level"] == "pre_ranking"


def test_a_further_model_of_the_log_is_an_arm(replayed):
    arm = replayed.arm("score-better")
    assert arm.last.scorer.name == "logged-better"
    assert set(replayed.scenario.arms) == {"logged", "score-better"}


def test_a_check_is_as_unsure_as_a_what_if_of_the_same_change(market, tmp_path):
    kept, measure = tmp_path / "kept.json", "expected_revenue_per_request"
    baseline(market, kept)
    changed = ["auction.squashing=0"]  # most clicks are then modelled
    verdict = check(market / "scenario.yaml", kept, set=changed, metric=measure, arm="logged", workers=1)
    found = verdict.frame().iloc[0]
    asked = whatif(market, {"auction.squashing": 0.0}).frame()
    asked = asked[asked.metric == measure].iloc[0]
    assert found.high - found.low == pytest.approx(asked.lift_high - asked.lift_low, rel=0.3)


@pytest.mark.drill
def test_a_sweep_replays_a_log_once_and_is_as_unsure_as_its_requests(named, tmp_path):
    asked = {"auction.reserve_cpc": [0.1, 0.75]}
    options = {"out": tmp_path / "sweep", "workers": 1}
    with refused("one world"):
        sweep(named / "scenario.yaml", asked, seeds=2, **options)
    findings = sweep(named / "scenario.yaml", asked, **options).findings
    lift = findings["cells"][1]["measures"]["expected_revenue_per_request"]["lift"]
    assert findings["seeds"] == [1] and lift["low"] < lift["value"] < lift["high"]
    assert tells(" ".join(findings["intervals"]), "control variate")
