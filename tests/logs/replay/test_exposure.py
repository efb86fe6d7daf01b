"""Won is not seen: what is paid per click, per exposed impression and per won slot."""

import numpy as np
import pytest

from cascade_sim import export_logs, import_logs, landscape, load_scenario, run, whatif
from cascade_sim.auction import MICROS
from cascade_sim.environments.build import environment_of
from cascade_sim.logs.replay.budgets import LoggedSpending
from cascade_sim.logs.replay.exposure import Exposure
from cascade_sim.logs.store.format import About, Rule, charged
from cascade_sim.logs.store.store import open_store
from worlds.logged_market import made_market

N, ADS = 600, 5
SEEN = np.array([1.0, 0.6])


def log_of(folder, charging, *, exposed=True, budgets=None):
    """Two slots by bid; a reserve of .4 leaves some empty, and some readers stop after the first."""
    rng = np.random.default_rng(7)
    bid = np.round(rng.uniform(0.1, 1.0, (N, ADS)), 4)
    order = np.argsort(-bid, axis=1, kind="stable")
    ranked = np.take_along_axis(bid, order, 1)
    slot, price, click, seen = np.full((4, N, ADS), -1)
    reader = rng.random(N)
    for k, chance in enumerate(SEEN):
        won = np.flatnonzero(ranked[:, k] >= 0.4)
        at = won, order[won, k]
        slot[at], price[at] = k, np.round(np.maximum(ranked[won, k + 1], 0.4) * MICROS)
        seen[at] = reader[won] < chance
        click[at] = (rng.random(len(won)) < 0.3) & (seen[at] == 1)
    columns = {
        "ad": np.tile(np.arange(ADS), (N, 1)), "bid": bid, "pctr": np.full(bid.shape, 0.3), "slot": slot,
        "price_micros": price, "click": click, **({"exposed": seen} if exposed else {}),
    }  # fmt: skip
    requests = {"time": np.arange(N) * 60.0, "slots": np.full(N, 2), "first": np.arange(N + 1) * ADS}
    squashing = 1.0 if charging == "click" else 0.0
    about = About(
        "seen", "2026-11-02T00:00:00+00:00", level="bids", charging=charging,
        rule=Rule("gsp", squashing, 0.4, 0.0),
    )  # fmt: skip
    flat = {name: values.ravel() for name, values in columns.items()}
    made_market(folder, requests, flat, about, budgets=budgets)
    return {name: values.reshape(N, ADS) for name, values in flat.items()}


def paid(columns, charging):
    """In units, by plain sums."""
    events = {"click": columns["click"] == 1, "impression": columns.get("exposed", columns["slot"]) > 0}
    is_paid = events.get(charging, columns["slot"] >= 0)
    if charging == "impression" and "exposed" in columns:
        is_paid = columns["exposed"] == 1
    return np.where(is_paid, columns["price_micros"], 0).sum() / MICROS


@pytest.mark.parametrize("charging", ["click", "impression", "slot"])
def test_a_replay_earns_what_the_log_earned(charging, tmp_path):
    columns = log_of(tmp_path / "market", charging)
    done = run(tmp_path / "market" / "scenario.yaml", out=tmp_path / "run", workers=1, quiet=True)
    assert done.metrics["replay"]["replayed"] == {"page_match_rate": 1.0, "price_match_rate": 1.0}
    (arm,) = done.metrics["arms"]
    assert done.log(f"evaluate-{arm}")["charge_micros"].sum() == round(paid(columns, charging) * MICROS)
    found = done.metrics["arms"][arm]["expected_revenue_per_request"]["value"]
    assert found == pytest.approx(paid(columns, charging) / N)
    assert (paid(columns, "click"), paid(columns, "impression")) < (paid(columns, "slot"),) * 2


def test_a_higher_reserve_is_paid_where_the_slot_was_seen(tmp_path):
    """By hand: a higher reserve takes the slots of some ads; the others stand where they stood."""
    columns = log_of(tmp_path / "market", "impression")
    reserve, expected = 0.7, 0.0
    bid, slot, exposed = (columns[name] for name in ("bid", "slot", "exposed"))
    for r in range(N):
        left = np.sort(bid[r][bid[r] >= reserve])[::-1]
        for k in range(min(2, len(left))):  # who stands there now stood there in the log, as bids order all
            assert (exposed[r][slot[r] == k] >= 0).all()
            price = max(left[k + 1] if k + 1 < len(left) else 0.0, reserve)
            expected += price * (exposed[r][slot[r] == k] == 1).sum()
    (point,) = whatif(tmp_path / "market", {"auction.reserve_cpc": reserve}).answer["points"]
    found = point["metrics"]["expected_revenue_per_request"]["value"]
    assert found == pytest.approx(expected / N)


def test_a_slot_that_nobody_stood_in_is_seen_as_often_as_on_other_pages(tmp_path):
    columns = log_of(tmp_path / "market", "impression")
    store = open_store(tmp_path / "market")
    chances = Exposure(store).chances(np.arange(N), 3)
    second = columns["exposed"][columns["slot"] == 1]
    is_empty = ~(columns["slot"] == 1).any(axis=1)
    assert is_empty.sum() > 20
    np.testing.assert_allclose(chances[is_empty, 1], (second == 1).mean())
    np.testing.assert_allclose(chances[:, 2], (second == 1).mean())  # no deeper one is known
    assert set(chances[~is_empty, 1].tolist()) == {0.0, 1.0}
    (point,) = whatif(tmp_path / "market", {"auction.reserve_cpc": 0.2}).answer["points"]
    bid = np.sort(columns["bid"], axis=1)[:, ::-1]
    price = np.where(bid[:, :2] >= 0.2, np.maximum(bid[:, 1:3], 0.2), 0.0)
    found = point["metrics"]["expected_revenue_per_request"]["value"]
    assert found == pytest.approx((price * chances[:, :2]).sum() / N)


def test_budgets_are_spent_by_what_is_seen(tmp_path):
    everyone = {"advertiser": np.arange(ADS), "day": np.full(ADS, -1), "budget_micros": np.full(ADS, 10**9)}
    columns = log_of(tmp_path / "market", "impression", budgets=everyone)
    spent = np.array([
        np.where((columns["ad"] == ad) & (columns["exposed"] == 1), columns["price_micros"], 0).sum()
        for ad in range(ADS)
    ])  # fmt: skip
    ahead = everyone | {
        "budget_micros": spent + 1
    }  # nobody runs out; a slot more that was charged, and all do
    log_of(tmp_path / "just", "impression", budgets=ahead)
    assert LoggedSpending(open_store(tmp_path / "just")).n_ran_out == 0
    done = run(tmp_path / "just" / "scenario.yaml", out=tmp_path / "run", workers=1, quiet=True)
    assert done.metrics["replay"]["replayed"]["page_match_rate"] == 1.0
    (arm,) = done.metrics["arms"]
    assert done.metrics["replay"]["budgets"]["exhausted"][arm] == {"advertisers": 0, "days": 0}


def test_bids_of_an_ad_pay_for_what_is_seen(tmp_path):
    columns = log_of(tmp_path / "market", "impression")
    found = landscape(tmp_path / "market", "2", bids=[0.999]).landscape
    log_of(tmp_path / "slots", "slot")
    every = landscape(tmp_path / "slots", "2", bids=[0.999]).landscape
    assert every.impressions[0] == found.impressions[0] > 0
    assert 0.5 * every.cost_micros[0] < found.cost_micros[0] < every.cost_micros[0]
    assert columns["exposed"].max() == 1


def test_a_replay_that_is_exported_and_imported_earns_the_same(tmp_path):
    columns = log_of(tmp_path / "market", "impression")
    run(tmp_path / "market" / "scenario.yaml", out=tmp_path / "run", workers=1, quiet=True)
    export_logs(tmp_path / "run", tmp_path / "tables")
    import_logs([tmp_path / "tables" / "mapping.yaml"], tmp_path / "again")
    store = open_store(tmp_path / "again")
    assert store.about.charging == "impression" and store.about.charged_per == "exposed impression"
    found = store.candidates(0, N, ("price_micros", *store.about.charged_by))
    is_paid = charged("impression", found)
    assert found["price_micros"][is_paid].sum() == round(paid(columns, "impression") * MICROS)


def test_without_the_column_all_that_is_shown_is_paid(tmp_path):
    log_of(tmp_path / "market", "impression", exposed=False)
    environment = environment_of(load_scenario(tmp_path / "market" / "scenario.yaml"), seed=1)
    assert environment._truth.exposed(None, 2) is None
