"""A run writes its auctions as log tables, and their import holds what the run served, to the last bit."""

from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from answers.told import refused
from cascade_sim.auction import run_auction
from cascade_sim.cascade.serve import score, serve
from cascade_sim.diagnostics.reopen import logged, reopen
from cascade_sim.logs.export import export_logs
from cascade_sim.logs.importing.market import import_market
from cascade_sim.storage.tables import read_table
from worlds import randomised_logs
from worlds.traced_run import as_run_folder
from worlds.whatif_runs import measured_run, other_run


@pytest.fixture(scope="module")
def run(study, tmp_path_factory):
    return measured_run(study, tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    return export_logs(run, tmp_path_factory.mktemp("export") / "logs")


@pytest.fixture(scope="module")
def store(exported, tmp_path_factory):
    return import_market(exported.folder / "mapping.yaml", tmp_path_factory.mktemp("market") / "m").store


def test_all_requests_with_their_whole_pre_ranking_sets_are_there(run, exported, store):
    assert exported.is_checked
    assert (exported.requests, exported.candidates) == (500, 500 * 60)
    assert (store.n_requests, store.n_candidates) == (500, 500 * 60)
    assert store.about.level == "pre_ranking"


def test_what_was_shown_is_what_the_run_logged(run, exported, store):
    log = logged(run, exported.arm, 500, ("request", "slot", "ad", "cpc_micros", "click", "conversion"))
    found = store.candidates(0, 500, ("ad", "slot", "price_micros", "click", "conversion"))
    request = np.repeat(np.arange(500), np.diff(store.first))
    shown = np.flatnonzero(found["slot"] >= 0)
    shown = shown[np.lexsort((found["slot"][shown], request[shown]))]
    names = [int(name) for name in store.names("requests")]
    ads = [int(name) for name in store.names("ads")]
    np.testing.assert_array_equal(np.take(names, request[shown]), log["request"])
    np.testing.assert_array_equal(np.take(ads, found["ad"][shown]), log["ad"])
    for ours, theirs in (("slot", "slot"), ("price_micros", "cpc_micros"), ("click", "click")):
        np.testing.assert_array_equal(found[ours][shown], log[theirs])
    np.testing.assert_array_equal(found["conversion"][shown], log["conversion"])


def test_scores_are_the_stages_own_to_the_last_bit(run, store):
    opened = reopen(run)
    arm, sim = opened.arm(), opened.sim
    block = sim.arrivals.block("evaluate", 0, 500)
    decision = serve(block, arm, sim.platform)
    rank = score(block, decision.competitive_set, arm.last, arm, sim.platform)
    found = store.padded(np.arange(len(block)), ("ad", "bid", "pctr", "pre_score", "init_bid", "stage"))
    assert found["pctr"].dtype == rank.prediction.dtype
    np.testing.assert_array_equal(found["pre_score"], decision.passes[0].scores.prediction)
    np.testing.assert_array_equal(found["init_bid"], decision.passes[0].scores.bid)
    for r in range(len(block)):
        in_set = found["stage"][r] >= 1
        is_there = decision.competitive_set[r] >= 0
        np.testing.assert_array_equal(found["pctr"][r][in_set], rank.prediction[r][is_there])
        np.testing.assert_array_equal(found["bid"][r][in_set], rank.bid[r][is_there])


def test_the_declared_rule_prices_every_logged_auction_again(store):
    rule = store.about.rule
    assert rule is not None
    for r in range(0, 500, 25):
        found = store.candidates(r, r + 1, ("bid", "pctr", "slot", "stage", "price_micros"))
        ranked = found["stage"] >= 1
        slots = int(store.requests["slots"][r])
        quality = found["pctr"][ranked].astype(np.float64) ** rule.squashing
        answer = run_auction(
            found["bid"][ranked], quality, slots=slots, pricing=rule.pricing, reserve_cpc=rule.reserve_cpc
        )
        place = {int(column): k for k, column in enumerate(answer.winners) if column >= 0}
        slot = found["slot"][ranked]
        assert {int(i): int(slot[i]) for i in np.flatnonzero(slot >= 0)} == place


def test_times_and_users_are_the_runs_own(run, store):
    block = reopen(run).sim.arrivals.block("evaluate", 0, 500)
    n = len(block)
    np.testing.assert_array_equal(store.requests["time"][:n], block.times)
    assert np.all(np.diff(store.requests["time"]) >= 0)
    assert [int(store.name("users", code)) for code in store.requests["user"][:n]] == block.users.tolist()
    np.testing.assert_array_equal(store.requests["feature.context"][:n], block.context)


def test_another_arm_can_be_written(run, tmp_path):
    done = export_logs(run, tmp_path / "logs", arm="distill-pre")
    assert done.arm == "distill-pre"
    with refused("'distill-pre'?"):
        export_logs(run, tmp_path / "more", arm="distil-pre")
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_a_run_that_serves_otherwise_than_it_logged_is_not_exported(run, tmp_path):
    changed = other_run(run, tmp_path / "changed", "auction.reserve_cpc=0.7")
    with refused("the run logged"):
        export_logs(changed, tmp_path / "logs")
    assert [path.name for path in tmp_path.iterdir()] == ["changed"]


def test_tables_are_plain_parquet(exported):
    table = pq.read_table(exported.folder / "candidates.parquet")
    assert {"request", "ad", "advertiser", "bid", "init_bid", "pctr", "pre_score", "stage"} <= set(
        table.column_names
    )
    assert sorted(file.name for file in exported.folder.iterdir()) == [
        "candidates.parquet", "mapping.yaml", "outcomes.parquet", "requests.parquet",
    ]  # fmt: skip


def test_pages_that_were_not_drawn_cannot_be_written_as_drawn(run, tmp_path):
    with refused("no page"):
        export_logs(run, tmp_path / "logs", phase="slates")


def test_drawn_pages_are_written_with_their_propensities(tmp_path):
    made = randomised_logs.logged()
    modules = SimpleNamespace(modules=made.modules)
    study = SimpleNamespace(folder=made.folder, sim=made.sim, preparation=modules)
    run = as_run_folder(study, tmp_path / "run")
    done = export_logs(run, tmp_path / "logs", phase="slates")
    store = import_market(done.folder / "mapping.yaml", tmp_path / "market").store
    assert store.about.is_randomised and store.about.rule is None
    found = store.candidates(0, store.n_requests, ("slot", "propensity", "price_micros", "click", "ad"))
    request = np.repeat(np.arange(store.n_requests), np.diff(store.first))
    shown = np.flatnonzero(found["slot"] >= 0)
    shown = shown[np.lexsort((found["slot"][shown], request[shown]))]
    log = read_table(made.folder, "slates")
    for ours, theirs in (("propensity", "propensity"), ("price_micros", "cpc_micros"), ("click", "click")):
        np.testing.assert_array_equal(found[ours][shown], log[theirs])
    assert [int(store.name("ads", ad)) for ad in found["ad"][shown]] == log["ad"].tolist()


def test_no_changed_bit_of_an_exported_table_is_imported(exported, tmp_path):
    import random
    import shutil

    folder = shutil.copytree(exported.folder, tmp_path / "log")
    rng = random.Random(1)
    for number in range(50):
        file = rng.choice(sorted(folder.glob("*.parquet")))
        data = file.read_bytes()
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        file.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        with refused(file.name, "damaged"):
            import_market(folder / "mapping.yaml", tmp_path / f"market-{number}")
        file.write_bytes(data)
    assert import_market(folder / "mapping.yaml", tmp_path / "market").store.n_requests == 500


def test_pages_of_exported_tables_have_checksums_of_their_own(exported, tmp_path):
    import pyarrow as pa

    data = bytearray((exported.folder / "candidates.parquet").read_bytes())
    place = pq.read_metadata(exported.folder / "candidates.parquet").row_group(0).column(3)
    data[place.data_page_offset + place.total_compressed_size // 2] ^= 4
    (tmp_path / "candidates.parquet").write_bytes(data)
    file = pq.ParquetFile(tmp_path / "candidates.parquet", page_checksum_verification=True)
    with file, pytest.raises((OSError, pa.ArrowException), match="CRC checksum"):
        file.read()
