"""Bid landscapes: the run's own figures at the ad's own bid, and those of serving again at any other."""

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers.told import tells
from cascade_sim.auction import MICROS
from cascade_sim.cascade.outcome import outcome
from cascade_sim.cascade.serve import serve
from cascade_sim.cli import main
from cascade_sim.commands.analysis.landscape import parse_bids
from cascade_sim.counterfactual.bid_response import KeptSizes
from cascade_sim.counterfactual.landscape import bid_grid, landscape
from cascade_sim.foundation.errors import UserError
from cascade_sim.storage.tables import read_table
from effort import examples
from worlds.traced_run import as_run_folder

TOTALS = ("impressions", "expected_clicks", "clicks", "expected_cost", "cost_micros")
ALL = 500


@pytest.fixture(scope="module")
def sim(study):
    return study.sim


@pytest.fixture(scope="module")
def arms(study):
    return study.evaluation.arms


def logged(study, arm):
    return read_table(study.folder, f"evaluate-{arm}", ["request", "ad", "click", "charge_micros"])


def often_shown(study, arm="logloss", n=1):
    """The ads shown most often."""
    return np.argsort(-np.bincount(logged(study, arm)["ad"]), kind="stable")[:n].tolist()


def served_again(sim, arm, ad, bid, n_requests, blocks=None):
    """The same totals by serving the whole evaluation, or these blocks, with that bid."""
    platform = replace(sim.platform, bids=sim.platform.bids.with_bid(ad, float(bid)))
    totals = np.zeros(len(TOTALS))
    for index in range(-(-n_requests // sim.scenario.traffic.block)) if blocks is None else blocks:
        block = sim.arrivals.block("evaluate", index, ALL)
        decision = serve(block, arm, platform)
        result = outcome(block, decision, sim.environment._truth, sim.world.slot_effects, sim.seed)
        own = decision.win_set == ad
        own[n_requests - index * sim.scenario.traffic.block :] = False
        expected = np.where(own, result.expected_clicks, 0.0)
        totals += [
            own.sum(), expected.sum(), result.clicks[own].sum(),
            (expected * decision.cpc_micros / MICROS).sum(), result.charges_micros[own].sum(),
        ]  # fmt: skip
    return totals


@pytest.mark.parametrize("name", ["logloss", "distill-pre", "ranker", "pctr_only", "random"])
def test_at_its_own_bid_an_ad_gets_what_the_run_logged(study, sim, arms, name):
    log = logged(study, name)
    for ad in often_shown(study, name, 3):
        own_bid = float(sim.world.init_bid[ad])
        for n, bids in ((ALL, bid_grid(own_bid, 21)), (200, np.array([own_bid]))):
            found = landscape(sim, arms[name], ad, bids, n)
            at = int(np.flatnonzero(found.bid == own_bid)[0])
            rows = (log["ad"] == ad) & (log["request"] < sim.arrivals.first_request("evaluate") + n)
            assert found.impressions[at] == rows.sum() > 0
            assert found.clicks[at] == log["click"][rows].sum()
            assert found.cost_micros[at] == log["charge_micros"][rows].sum()


VARIANTS = {
    "gsp": {},
    "vcg, reserve": {"pricing": "vcg", "reserve_cpc": 0.7},
    "first, floor": {"pricing": "first", "score_floor": 0.03},
    "soft floor": {"pricing": "soft_floor", "parameters": {"soft_floor": 0.9}},
    "soft floor beyond all bids": {"pricing": "soft_floor", "parameters": {"soft_floor": 1e6}},
    "soft floor, reserve": {
        "pricing": "soft_floor",
        "parameters": {"soft_floor": 1.0},
        "reserve_cpc": 0.7,
    },
    "target_cpa": {"bid_rule": "target_cpa"},
    "no rule": {"bid_rule": "none", "size": 5},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_at_any_bid_an_ad_gets_what_serving_again_gives(study, sim, arms, name):
    changes = dict(VARIANTS[name])
    size = changes.pop("size", arms["logloss"].most_auctioned)
    arm = replace(arms["logloss"].with_stage(0, size=size), **changes)
    (ad,) = often_shown(study)
    bids = float(sim.world.init_bid[ad]) * np.array([0.05, 0.5, 0.9, 1.0, 1.3, 20.0])
    found = landscape(sim, arm, ad, bids, 300)
    for i, bid in enumerate(bids):
        again = served_again(sim, arm, ad, bid, 300)
        assert [getattr(found, total)[i] for total in TOTALS] == pytest.approx(again, rel=1e-12)
    assert found.impressions[0] < found.impressions[-1]


@pytest.mark.parametrize(("floor", "twin"), [(1e6, "first"), (0.0, "gsp")])
def test_a_soft_floor_above_all_bids_is_first_price_and_one_of_0_second_price(study, sim, arms, floor, twin):
    soft = replace(arms["logloss"], pricing="soft_floor", parameters={"soft_floor": floor})
    (ad,) = often_shown(study)
    bids = bid_grid(float(sim.world.init_bid[ad]), 9)
    found = landscape(sim, soft, ad, bids, 300)
    plain = landscape(sim, replace(arms["logloss"], pricing=twin), ad, bids, 300)
    for total in TOTALS:
        assert getattr(found, total).tolist() == getattr(plain, total).tolist()
    assert found.cost_micros[-1] > 0


class ByTheScores:
    """A size rule that a bid can change: requests with a high best score get the smaller size."""

    def __init__(self, high):
        self.high = high

    def sizes(self, requests, pre_score):
        return np.where(pre_score.max(axis=1) > self.high, 5, 15)


def sizes_of(sim, arm, index):
    served = serve(sim.arrivals.block("evaluate", index, ALL), arm, sim.platform)
    return (served.competitive_set >= 0).sum(axis=1)


def test_a_size_that_a_rule_chose_stays_as_it_was(study, sim, arms):
    first = serve(sim.arrivals.block("evaluate", 0, ALL), arms["logloss"], sim.platform)
    arm = arms["logloss"].with_stage(0, size_rule=ByTheScores(np.median(first.passes[0].order.max(axis=1))))
    (ad,) = often_shown(study)
    bids = float(sim.world.init_bid[ad]) * np.array([0.6, 1.0, 2.0])
    found = landscape(sim, arm, ad, bids, 300)
    assert found.impressions[1] == served_again(sim, arm, ad, bids[1], 300)[0]  # at its own bid: as it was
    by_request = [sizes_of(sim, arm, index) for index in range(3)]
    assert {5, 15} == set(np.concatenate(by_request).tolist())
    for i, bid in enumerate(bids):
        again = sum(
            served_again(sim, arm.with_stage(0, size_rule=KeptSizes(sizes)), ad, bid, 300, [index])[0]
            for index, sizes in enumerate(by_request)
        )
        assert found.impressions[i] == again


@examples(60)
@given(
    st.integers(0, 599), st.sampled_from(["logloss", "ltr", "bid_only", "pctr_only"]),
    st.sampled_from([{}, {"reserve_cpc": 0.9}, {"score_floor": 0.05, "pricing": "vcg"}]),
    st.lists(st.floats(1e-4, 1e4), min_size=2, max_size=30),
)  # fmt: skip
def test_impressions_never_fall_as_the_bid_rises(study, sim, arms, ad, name, rules, bids):
    try:
        found = landscape(sim, replace(arms[name], **rules), ad, np.sort(bids), 250)
    except UserError:  # never retrieved
        return
    assert np.all(np.diff(found.impressions) >= 0)
    assert np.all(np.diff(found.clicks) >= 0) and np.all(np.diff(found.expected_clicks) >= -1e-12)
    assert np.all(found.expected_cost <= found.expected_clicks * found.bid * 1.4 * (1 + 1e-9))  # opt-bid


def test_the_grid_is_geometric_and_holds_the_bid_itself():
    for points in (1, 2, 20, 21):
        grid = bid_grid(0.7123, points)
        assert 0.7123 in grid and len(grid) == points + (points % 2 == 0)
    assert bid_grid(0.8, 21)[[0, -1]] == pytest.approx([0.2, 3.2])
    ratios = bid_grid(0.8, 21)[1:] / bid_grid(0.8, 21)[:-1]
    assert ratios == pytest.approx(16 ** (1 / 20))


def test_derived_figures(study, sim, arms):
    seen = logged(study, "logloss")
    ad = int(np.bincount(seen["ad"], seen["click"]).argmax())
    own = float(sim.world.init_bid[ad])
    found = landscape(sim, arms["logloss"], ad, np.array([1e-6, own]), ALL)
    assert found.impressions[0] == 0 and np.isnan(found.mean_cpc[0]) and np.isnan(found.expected_cpc[0])
    assert found.mean_cpc[1] == pytest.approx(found.cost_micros[1] / MICROS / found.clicks[1])
    assert found.value[1] == pytest.approx(found.expected_clicks[1] * own)
    retrieved = sum(
        (sim.retriever(sim.arrivals.block("evaluate", i, ALL).users, 60) == ad).any(axis=1).sum()
        for i in range(4)
    )
    assert (found.requests, found.retrieved) == (ALL, retrieved)


def test_a_cpc_may_be_above_the_init_bid_but_not_above_the_bid_in_the_auction(study, sim, arms):
    n_above = 0
    for ad in often_shown(study, n=12):
        found = landscape(sim, arms["logloss"], ad, bid_grid(float(sim.world.init_bid[ad]), 21), ALL)
        shown = found.impressions > 0
        assert np.all(found.expected_cpc[shown] <= found.auction_bid[shown] * (1 + 1e-6))
        assert np.isnan(found.auction_bid[~shown]).all()
        low, high = found.factors
        assert 0.6 - 1e-9 <= low <= high <= 1.4 + 1e-9 and found.bid_rule == "ocpc"
        share = found.auction_bid[shown] / found.bid[shown]
        assert np.all((share >= low * (1 - 1e-9)) & (share <= high * (1 + 1e-9)))
        assert found.is_cpc_above_bid.tolist() == [
            bool(cpc > bid) for cpc, bid in zip(found.expected_cpc, found.bid, strict=True)
        ]
        n_above += int(found.is_cpc_above_bid.sum())
    assert n_above > 5


@pytest.mark.parametrize("name", ["rule", "seat"])
def test_without_a_bid_rule_the_init_bid_is_the_bid_in_the_auction(study, sim, arms, name):
    base = arms["logloss"]
    arm = replace(base, bid_rule="none") if name == "rule" else base.with_stage(-1, bid="init")
    (ad,) = often_shown(study)
    found = landscape(sim, arm, ad, bid_grid(float(sim.world.init_bid[ad]), 9), ALL)
    shown = found.impressions > 0
    assert shown.any() and found.auction_bid[shown] == pytest.approx(found.bid[shown], rel=1e-12)
    assert found.factors == (1.0, 1.0) and found.note == "" and not found.is_cpc_above_bid.any()


# The command


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    return as_run_folder(study, tmp_path_factory.mktemp("runs") / "tiny")


def test_the_command_prints_writes_and_draws(study, folder, tmp_path, capsys):
    (ad,) = often_shown(study)
    files = {kind: tmp_path / "new" / f"bids.{kind}" for kind in ("csv", "png", "svg")}
    base = ["landscape", str(folder), "--ad", str(ad), "--points", "7", "--quiet"]
    assert main([*base, "--out", str(files["csv"]), "--plot", str(files["png"])]) == 0
    shown = capsys.readouterr().out
    assert tells(shown, f"ad {ad}", "arm logloss") and "  own  " in shown
    assert main([*base, "--plot", str(files["svg"])]) == 0
    assert files["png"].read_bytes().startswith(b"\x89PNG") and files["svg"].read_text().startswith("<svg ")
    rows = list(csv.DictReader(files["csv"].open()))
    assert len(rows) == 7 and [float(row["bid"]) for row in rows] == sorted(float(row["bid"]) for row in rows)
    own = next(row for row in rows if float(row["bid"]) == study.sim.world.init_bid[ad])
    assert int(own["impressions"]) == (logged(study, "logloss")["ad"] == ad).sum()
    before = files["svg"].read_bytes()
    assert main([*base, "--plot", str(files["svg"])]) == 0
    assert files["svg"].read_bytes() == before


def test_table_csv_and_json_say_which_bid_bounds_the_price(study, sim, arms, folder, tmp_path, capsys):
    bids_of = {ad: bid_grid(float(sim.world.init_bid[ad]), 21) for ad in often_shown(study, n=12)}
    found = next(
        answer
        for ad, bids in bids_of.items()
        if (answer := landscape(sim, arms["logloss"], ad, bids, ALL)).is_cpc_above_bid.any()
    )
    base = ["landscape", str(folder), "--ad", str(found.ad), "--quiet", "--out", str(tmp_path / "bids.csv")]
    assert main(base) == 0
    _, _, heads, *lines = capsys.readouterr().out.splitlines()
    assert "init-bid" in heads and "in auction" in heads and "*" not in heads
    rows, notes = lines[:21], "\n".join(lines[21:])
    assert all("*" in row for row, above in zip(rows, found.is_cpc_above_bid, strict=True) if above)
    assert "init-bid" in notes and "ocpc" in notes
    table = list(csv.DictReader((tmp_path / "bids.csv").open()))
    assert [float(row["auction_bid"]) for row in table if row["auction_bid"]] == pytest.approx(
        found.auction_bid[found.impressions > 0]
    )
    assert main([*base, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["bid_rule"] == "ocpc" and said["auction_bid_per_init_bid"] == pytest.approx(found.factors)
    assert said["columns"]["is_cpc_above_bid"] == found.is_cpc_above_bid.tolist() and said["note"]
    assert [cpc is None for cpc in said["columns"]["mean_cpc"]] == np.isnan(found.mean_cpc).tolist()


def test_a_run_that_logged_something_else_is_noticed(study, folder, capsys, monkeypatch):
    from cascade_sim.diagnostics import reopen as replay

    real = replay.logged
    monkeypatch.setattr(replay, "logged", lambda *words: {k: v[:-600] for k, v in real(*words).items()})
    (ad,) = often_shown(study)
    assert main(["landscape", str(folder), "--ad", str(ad), "--points", "1", "--quiet"]) == 1
    assert tells(capsys.readouterr().err, "changed")


def test_an_ad_that_is_unknown_or_never_retrieved_is_explained(sim, folder, capsys):
    assert main(["landscape", str(folder), "--ad", "600"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: --ad: ") and tells(told, 600, "0 to 599")
    seen = sim.retriever(sim.arrivals.block("evaluate", 0, ALL).users[:2], 60)
    ad = next(ad for ad in range(600) if ad not in seen)
    assert main(["landscape", str(folder), "--ad", str(ad), "--requests", "2"]) == 2
    assert tells(capsys.readouterr().err, "of the 2", f"ad {ad}")


def test_a_run_without_its_models_is_explained(folder, tmp_path, capsys):
    bare = shutil.copytree(folder, tmp_path / "bare")
    shutil.rmtree(bare / "models")
    assert main(["landscape", str(bare), "--ad", "1"]) == 2
    assert tells(capsys.readouterr().err, ".safetensors", "missing")


@pytest.mark.parametrize("text", ["", "1,,2", "a", "0", "-1,2", "1e99", "nan"])
def test_bids_that_are_none_are_refused(text):
    with pytest.raises(UserError, match="--bids: "):
        parse_bids(text)
    assert parse_bids("2,0.5,2") == [0.5, 2.0]


def test_options_that_do_not_fit_are_refused(folder, capsys):
    assert main(["landscape", str(folder), "--ad", "1", "--bids", "1", "--points", "3"]) == 2
    assert main(["landscape", str(folder), "--ad", "1", "--plot", "x.pdf"]) == 2
    assert tells(capsys.readouterr().err, ".png", ".svg")
