"""A log comes in row by row, in the order of (request, ad), with its units and zone; every table may be any
file.
"""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from answers.told import tells
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.importing.market import import_market, summary
from cascade_sim.logs.store import open_store
from cascade_sim.storage.folder import read_manifest
from worlds.small_log import small_log


def imported(log, folder):
    return import_market(log.write(folder / "log"), folder / "market").store


def content(store):
    """All of a store by names, whatever the codes are."""
    columns = store.candidates(0, store.n_requests, sorted(store.about.columns["candidates"]))
    request = np.repeat(np.arange(store.n_requests), np.diff(store.first))
    rows = {
        (store.name("requests", request[i]), store.name("ads", columns["ad"][i])): tuple(
            (name, values[i].item()) for name, values in columns.items() if name not in ("ad", "source")
        )
        for i in range(len(request))
    }
    who = {
        store.name("requests", r): (
            store.name("users", store.requests["user"][r]),
            store.requests["time"][r],
            store.requests["slots"][r],
        )
        for r in range(store.n_requests)
    }
    return rows, who


def test_rows_come_in_as_they_were_logged(tmp_path):
    log = small_log()
    store = imported(log, tmp_path)
    rows, who = content(store)
    shown = {(row["id"], row["creative"]): row for row in log.shown}
    assert len(rows) == len(log.bids)
    for row in log.bids:
        found = dict(rows[row["id"], row["creative"]])
        outcome = shown.get((row["id"], row["creative"]))
        assert (found["bid"], found["pctr"]) == (row["bid"], row["p_click"])
        if outcome is None:
            assert (found["slot"], found["price_micros"], found["click"], found["stage"]) == (-1, -1, -1, 1)
        else:
            assert (found["slot"], found["stage"]) == (outcome["place"] - 1, 2)
            assert (found["price_micros"], found["click"]) == (outcome["cost"], outcome["clicked"])
    assert who["r1"] == ("u1", 600.0, 2)
    assert store.about.starts == "2026-03-03T00:00:00+01:00"
    assert (store.about.level, store.about.charging, store.about.currency) == ("bids", "click", "EUR")
    owner = {
        store.name("ads", ad): store.name("advertisers", code) for ad, code in enumerate(store.advertiser)
    }
    assert owner == {row["creative"]: row["account"] for row in log.bids}


def test_a_candidate_leads_back_to_its_file_and_row(tmp_path):
    log = small_log()
    store = imported(log, tmp_path)
    columns = store.candidates(0, store.n_requests, ("ad", "source"))
    for ad, source in zip(columns["ad"], columns["source"], strict=True):
        file, row = store.source(int(source))
        assert file == "bids.csv"
        assert log.bids[row - 2]["creative"] == store.name("ads", ad)


def test_requests_are_in_the_order_of_time_and_candidates_in_that_of_ads(tmp_path):
    log = small_log()
    log.requests.reverse()
    log.bids.sort(key=lambda row: row["creative"])
    store = imported(log, tmp_path)
    assert store.names("requests") == [f"r{r}" for r in range(1, 9)]
    assert np.all(np.diff(store.requests["time"]) > 0)
    ads = store.candidates(0, store.n_requests, ("ad",))["ad"]
    for low, high in zip(store.first, store.first[1:], strict=False):
        assert np.all(np.diff(ads[low:high]) > 0)
    validation = json.loads((tmp_path / "market" / "validation.json").read_text())
    assert [entry["kind"] for entry in validation["corrected"]] == ["out_of_order"]


def test_ids_that_are_whole_numbers_are_in_their_own_order(tmp_path):
    log = small_log()
    for rows in (log.bids, log.shown):
        for row in rows:
            row["creative"] = int(row["creative"][2:])
    store = imported(log, tmp_path)
    names = [int(name) for name in store.names("ads")]
    assert names == sorted(names)  # ties go to the smaller ad, so 9 must come before 10


def as_parquet(folder, name):
    table = pa.csv.read_csv(folder / f"{name}.csv")
    pq.write_table(table.slice(0, 7), folder / f"{name}-0.parquet")
    pq.write_table(table.slice(7), folder / f"{name}-1.parquet")
    return f"{name}-*.parquet"


def as_gzip(folder, name):
    with gzip.open(folder / f"{name}.csv.gz", "wb") as file:
        file.write((folder / f"{name}.csv").read_bytes())
    return f"{name}.csv.gz"


def as_feather(folder, name):
    pa.feather.write_feather(pa.csv.read_csv(folder / f"{name}.csv"), folder / f"{name}.feather")
    return f"{name}.feather"


@pytest.mark.parametrize("convert", [as_parquet, as_gzip, as_feather])
def test_the_kind_of_file_makes_no_difference(tmp_path, convert):
    log = small_log()
    plain = imported(log, tmp_path)
    other = tmp_path / "other"
    log.write(other)
    for name in log.tables():
        log.mapping = log.mapping.replace(f"{name}.csv", convert(other, name))
    (other / "mapping.yaml").write_text(log.mapping)
    assert content(import_market(other / "mapping.yaml", tmp_path / "again").store) == content(plain)


def test_one_wide_table_may_hold_all(tmp_path):
    log = small_log()
    plain = imported(log, tmp_path)
    requests = {row["id"]: row for row in log.requests}
    shown = {(row["id"], row["creative"]): row for row in log.shown}
    empty = {"place": "", "cost": "", "clicked": ""}
    log.bids = [
        {**row, **requests[row["id"]], **empty, **shown.get((row["id"], row["creative"]), {})}
        for row in log.bids
    ]
    log.mapping = log.mapping.replace("  files: requests.csv\n", "").replace("  files: shown.csv\n", "")
    log.write(tmp_path / "wide")
    wide = import_market(tmp_path / "wide" / "mapping.yaml", tmp_path / "again").store
    assert content(wide) == content(plain)


@pytest.mark.parametrize("unit, factor", [("unit", 1), ("cents", 100), ("micros", 1_000_000), ("cpm", 1000)])
def test_money_is_in_units_whatever_it_came_in(tmp_path, unit, factor):
    log = small_log()
    for row in log.bids:
        row["bid"] = round(row["bid"] * factor, 6)
    log.mapping = log.mapping.replace("bid: bid", f"bid: {{column: bid, unit: {unit}}}")
    bid = imported(log, tmp_path).candidates(0, 1, ("bid",))["bid"]
    plain = imported(small_log(), tmp_path / "plain").candidates(0, 1, ("bid",))["bid"]
    np.testing.assert_array_equal(bid, plain)


@pytest.mark.parametrize("unit, write", [
    ("milliseconds", lambda at: at * 1000),
    ("microseconds", lambda at: at * 1_000_000),
    ("iso", lambda at: str(np.datetime64(at, "s")) + "Z"),
    ("iso", lambda at: str(np.datetime64(at + 3600, "s"))),  # without a zone: that of the mapping
    ("iso", lambda at: str(np.datetime64(at + 7200, "s")) + "+02:00"),
])  # fmt: skip
def test_times_mean_the_same_moment_however_they_are_written(tmp_path, unit, write):
    log = small_log()
    for row in log.requests:
        row["at"] = write(row["at"])
    log.mapping = log.mapping.replace("time: seconds", f"time: {unit}")
    store = imported(log, tmp_path)
    assert store.requests["time"].tolist() == [600.0 * r for r in range(1, 9)]
    assert store.about.starts == "2026-03-03T00:00:00+01:00"


def test_predictions_stay_in_the_dtype_they_came_in(tmp_path):
    log = small_log()
    log.write(tmp_path / "log")
    table = pa.csv.read_csv(tmp_path / "log" / "bids.csv")
    at = table.schema.get_field_index("p_click")
    table = table.set_column(at, "p_click", table["p_click"].cast(pa.float32()))
    pq.write_table(table, tmp_path / "log" / "bids.parquet")
    log.mapping = log.mapping.replace("bids.csv", "bids.parquet")
    (tmp_path / "log" / "mapping.yaml").write_text(log.mapping)
    store = import_market(tmp_path / "log" / "mapping.yaml", tmp_path / "market").store
    assert store.about.columns["candidates"]["pctr"] == "<f4"
    found = store.candidates(0, store.n_requests, ("pctr", "source"))
    assert found["pctr"].tolist() == [np.float32(log.bids[s - 1 & (1 << 40) - 1]["p_click"]) for s in
                                      (found["source"] & ((1 << 40) - 1)).tolist()]  # fmt: skip


def test_further_scores_and_features_come_along(tmp_path):
    log = small_log()
    for i, row in enumerate(log.bids):
        row |= {"p_new": row["p_click"] / 2, "age": i}
    for row in log.requests:
        row["hour"] = 5
    log.mapping = log.mapping.replace(
        "pctr: p_click}", "pctr: p_click}\n  scores: {new: p_new}\n  features: {age: age}"
    )
    log.mapping = log.mapping.replace("slots: places}", "slots: places}\n  features: {hour: hour}")
    store = imported(log, tmp_path)
    columns = store.candidates(0, store.n_requests, ("pctr", "score.new", "feature.age"))
    np.testing.assert_array_equal(columns["score.new"], columns["pctr"] / 2)
    assert sorted(columns["feature.age"].tolist()) == list(range(len(log.bids)))
    assert store.about.scores == ("new",)
    assert store.requests["feature.hour"].tolist() == [5.0] * 8


def test_budgets_and_propensities_have_tables_of_their_own(tmp_path):
    log = small_log()
    folder = tmp_path / "log"
    log.mapping += """\
propensities: {files: drawn.csv, columns: {request: id, ad: creative, propensity: p}}
budgets: {files: budgets.csv, columns: {advertiser: account, day: day, budget: {column: euros, unit: unit}}}
"""
    folder.mkdir()
    lines = [f"{row['id']},{row['creative']},{0.25 * row['place']}" for row in log.shown]
    (folder / "drawn.csv").write_text("id,creative,p\n" + "\n".join(lines) + "\n")
    (folder / "budgets.csv").write_text("account,day,euros\nowner 1,0,12.5\nowner 0,0,3\n")
    store = imported(log, tmp_path)
    columns = store.candidates(0, store.n_requests, ("slot", "propensity"))
    is_shown = columns["slot"] >= 0
    np.testing.assert_array_equal(columns["propensity"][is_shown], 0.25 * (columns["slot"][is_shown] + 1))
    assert np.isnan(columns["propensity"][~is_shown]).all()
    assert store.about.is_randomised
    assert store.budgets["budget_micros"].tolist() == [3_000_000, 12_500_000]
    assert [store.name("advertisers", code) for code in store.budgets["advertiser"]] == ["owner 0", "owner 1"]


def test_the_level_is_found_from_what_is_there(tmp_path):
    log = small_log()
    for i, row in enumerate(log.bids):
        row |= {"pre": 0.1, "stage": "retrieved" if i % 5 == 4 else "ranked"}
    shown = {(row["id"], row["creative"]) for row in log.shown}
    for row in log.bids:
        row["stage"] = "ranked" if (row["id"], row["creative"]) in shown else row["stage"]
    log.mapping = log.mapping.replace("pctr: p_click}", "pctr: p_click, pre_score: pre, stage: stage}")
    store = imported(log, tmp_path)
    assert (store.about.level, store.about.pre_score) == ("pre_ranking", "prediction")
    winners = small_log()
    head, _, rest = winners.mapping.partition("candidates:")
    winners.mapping = head + "outcomes:" + rest.partition("outcomes:")[2]
    store = imported(winners, tmp_path / "winners")
    assert store.about.level == "winners"
    assert store.about.counts.candidates == store.about.counts.shown == 16
    assert np.isnan(store.candidates(0, 1, ("bid",))["bid"]).all()


def test_allowed_faults_leave_their_requests_out_whole_and_are_counted(tmp_path):
    log = small_log()
    log.bids[0]["bid"] = -1
    log.mapping += "allow: {negative_bid: 0.1}\n"
    done = import_market(log.write(tmp_path / "log"), tmp_path / "market")
    assert done.store.names("requests") == [f"r{r}" for r in range(2, 9)]
    assert done.store.about.counts.candidates == len(log.bids) - 5
    assert done.validation["left_out"] == {"requests": 1, "candidates": 5}
    (fault,) = done.validation["faults"]
    assert (fault["kind"], fault["rows"], fault["allowed"]) == ("negative_bid", 1, 0.1)
    assert fault["examples"] == [{"file": "bids.csv", "row": 2, "column": "bid", "value": "'-1'"}]
    said = "\n".join(summary(done, "market"))
    assert tells(said, "1 requests", "5 candidates")
    assert "bids.csv row 2, column bid" in said


def test_many_buckets_give_the_same_store_as_one(tmp_path, monkeypatch):
    log = small_log(40)
    log.bids.sort(key=lambda row: (row["creative"], row["id"]))
    one = imported(log, tmp_path)
    monkeypatch.setattr("cascade_sim.logs.importing.importer.BUCKET_ROWS", 7)
    monkeypatch.setattr("cascade_sim.logs.importing.sources.BATCH", 11)
    many = imported(log, tmp_path / "many")
    for name in one.about.columns["candidates"]:
        np.testing.assert_array_equal(
            one.candidates(0, 40, (name,))[name], many.candidates(0, 40, (name,))[name]
        )
    assert one.names("ads") == many.names("ads")


def test_the_folder_opens_as_that_of_a_finished_run(tmp_path):
    imported(small_log(), tmp_path)
    market = tmp_path / "market"
    manifest = read_manifest(market)
    assert (manifest["kind"], manifest["status"]) == ("imported log", "complete")
    assert set(manifest["seals"]) == {"mapping.yaml", "validation.json", "scenario.yaml", "store/log.json"}
    there = {"manifest.json", "mapping.yaml", "scenario.yaml", "store", "validation.json"}
    assert {path.name for path in market.iterdir()} == there
    open_store(market).check()


def test_a_market_that_is_there_is_not_written_over(tmp_path):
    imported(small_log(), tmp_path)
    before = (tmp_path / "market" / "manifest.json").read_bytes()
    with pytest.raises(UserError, match="exists already"):
        import_market(tmp_path / "log" / "mapping.yaml", tmp_path / "market")
    assert (tmp_path / "market" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("place", ["spill.Spill.add", "importer.StoreWriter.finish"])
def test_what_stops_an_import_leaves_nothing_behind(tmp_path, monkeypatch, error, place):
    def fail(*_):
        raise error

    monkeypatch.setattr(f"cascade_sim.logs.importing.{place}", fail)
    mapping = small_log().write(tmp_path / "log")
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else UserError):
        import_market(mapping, tmp_path / "market")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize(
    ("reserve", "declared", "found"),
    [
        (0.2, "", 0.2),  # bids begin at 0.2: many are right above it, none below
        (0.2, "bids_logged_above: 0", 0.0),  # whoever logged them knows better
        (0.3, "", None),  # some are below
        (0.01, "", None),  # none is below, and none near: it kept nobody out
    ],
)
@pytest.mark.parametrize("is_declared", [True, False], ids=["by the rule", "by request"])
@pytest.mark.few(3)
def test_a_log_that_breaks_off_at_the_reserve_lacks_lower_bids(
    tmp_path, reserve, declared, found, is_declared
):
    log = small_log(n=400)
    if is_declared:
        log.mapping = log.mapping.replace("squashing: 1", f"squashing: 1, reserve_cpc: {reserve}")
    else:
        log.mapping = log.mapping.replace("slots: places", "slots: places, reserve: floor")
        log.requests = [{**row, "floor": reserve} for row in log.requests]
    log.mapping += declared
    done = import_market(log.write(tmp_path / "log"), tmp_path / "market")
    assert done.store.about.bids_logged_above == found
    noticed = "are less than a tenth above it: lower bids were not logged" in " ".join(done.notes)
    assert noticed == (found == 0.2)


def test_where_reserves_differ_the_highest_says_which_bids_are_missing(tmp_path):
    log = small_log(n=400)
    log.mapping = log.mapping.replace("slots: places", "slots: places, reserve: floor")
    floor = {row["id"]: 0.2 if i % 2 else 0.3 for i, row in enumerate(log.requests)}
    log.requests = [{**row, "floor": floor[row["id"]]} for row in log.requests]
    shown = {(row["id"], row["creative"]) for row in log.shown}
    log.bids = [
        row for row in log.bids if row["bid"] >= floor[row["id"]] or (row["id"], row["creative"]) in shown
    ]
    is_hidden = {row["id"] for row in log.bids if row["bid"] < floor[row["id"]]}  # shown below their reserve
    log.requests = [row for row in log.requests if row["id"] not in is_hidden]
    log.bids = [row for row in log.bids if row["id"] not in is_hidden]
    log.shown = [row for row in log.shown if row["id"] not in is_hidden]
    assert imported(log, tmp_path).about.bids_logged_above == 0.3
