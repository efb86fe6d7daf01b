"""A store whose digests fit is refused all the same where it holds what no log can; what is read is what was
checked.
"""

import pickle
import shutil

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.importing.market import import_market
from cascade_sim.logs.store.format import COLUMNS, column
from cascade_sim.logs.store.store import open_store
from drills.hostile.sealing import changed_column, changed_json, reseal
from worlds.small_log import small_log


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imported")
    import_market(small_log().write(folder / "log"), folder / "market")
    return folder / "market"


@pytest.fixture
def market(imported, tmp_path):
    return shutil.copytree(imported, tmp_path / "market")


def test_a_market_that_was_resealed_as_it_is_opens(market):
    reseal(market)
    assert open_store(market).n_requests == 8


def put(value, rows=slice(0, 3)):
    def change(values):
        values[rows] = value

    return change


@pytest.mark.parametrize("file, change, words", [
    ("candidates/ad", put(10**6), "ad.npy: 0 1000000, 11"),
    ("candidates/ad", put(-1), r"row 0 has -1"),
    ("candidates/ad", lambda a: a[::-1].copy(), "expected more than"),
    ("candidates/bid", put(np.inf), "0 inf, 1000000000000"),
    ("candidates/bid", put(-1.0), "row 0 has -1.0"),
    ("candidates/pctr", put(np.nan), "0 nan, 1"),
    ("candidates/slot", put(9_999), "0 9999, -1 1"),
    ("candidates/slot", put(0, slice(None)), "in one slot"),
    ("candidates/stage", put(1, slice(None)), "1, 2 where"),
    ("candidates/click", put(7), "0 7, -1 1"),
    ("candidates/price_micros", put(2**62), "expected -1 to"),
    ("candidates/source", put(2**60), "source.npy"),
    ("candidates/bid", lambda a: a[:-1].copy(), "bytes, expected"),
    ("candidates/bid", lambda a: a.astype(np.int64), "40 <f8"),
    ("candidates/bid", lambda a: a.reshape(-1, 1), "40 <f8"),
    ("requests/time", put(np.nan), "row 0 has nan"),
    ("requests/time", lambda a: a[::-1].copy(), "expected no less"),
    ("requests/user", put(10**6), "0 1000000, -1 2"),
    ("requests/slots", put(32_000), "expected 1 to 10000"),
    ("requests/slots", put(1, slice(None)), "1 slots"),
    ("requests/first", put(3, 0), "rows lead from 3"),
    ("requests/first", put(-7, 3), "row 3 has -7"),
    ("requests/first", put(1, 3), "row 3 has 1 after 10"),
    ("ads/advertiser", put(99), "0 99, 3"),
])  # fmt: skip
def test_what_no_log_can_hold_is_refused_though_its_digest_fits(market, file, change, words):
    changed_column(market / "store" / f"{file}.npy", change)
    reseal(market)
    with refused(*words.split()):
        open_store(market)


@pytest.mark.parametrize("change, words", [
    (lambda data: data["counts"].update(ads="many"), "counts.ads: integer"),
    (lambda data: data["counts"].update(ads=-1), "cannot be -1 ads"),
    (lambda data: data["counts"].update(candidates=10), "bytes, expected"),
    (lambda data: data["counts"].update(clicks=10**6), "its columns"),
    (lambda data: data.update(slots=10**9), "slots"),
    (lambda data: data.pop("level"), "'level'"),
    (lambda data: data.update(largest_request=10**9), "largest request"),
    (lambda data: data.update(zone="Europe/../passwd"), "zone"),
    (lambda data: data.update(starts="yesterday"), "starts"),
    (lambda data: data["rule"].update(squashing=-1), "rule"),
    (lambda data: data["columns"]["candidates"].update({"feature.../../x": "<f4"}), "table"),
    (lambda data: data["columns"]["candidates"].update({"ad": "<f8"}), "is of '<f8'"),
    (lambda data: data["columns"]["candidates"].pop("ad"), "no candidates.ad"),
    (lambda data: data.update(files=[]), "list files"),
    (lambda data: data.update(scores=["new"]), "scores new"),
])  # fmt: skip
def test_what_is_said_of_a_log_must_be_possible(market, change, words):
    def changed(data):
        change(data)
        return data

    changed_json(market / "store" / "log.json", changed)
    reseal(market)
    with refused(*words.split()):
        open_store(market)


def test_a_column_that_changes_between_two_reads_is_not_used(market):
    store = open_store(market)
    elsewhere = pickle.loads(pickle.dumps(store))
    before = store.candidates(0, 8, ("bid",))["bid"]
    changed_column(market / "store" / "candidates" / "bid.npy", put(0.25))
    reseal(market)
    for again in (store, elsewhere):
        with refused("bid.npy", "changed"):
            again.candidates(0, 1, ("bid",))
    assert before[0] != 0.25


def test_a_change_beyond_what_is_read_is_no_matter(market, monkeypatch):
    monkeypatch.setattr("cascade_sim.storage.columns.ROWS", 5)
    store = open_store(market)
    bids = store.candidates(0, 8, ("bid",))["bid"]
    changed_column(market / "store" / "candidates" / "bid.npy", put(0.25, slice(20, 21)))
    assert store.candidates(0, 4, ("bid",))["bid"].tolist() == bids[:20].tolist()
    assert store.candidates(5, 8, ("bid",))["bid"].tolist() == bids[25:].tolist()
    with pytest.raises(UserError, match="was changed"):
        store.candidates(3, 5, ("bid",))


@pytest.mark.parametrize("rows", [1, 3, 7, 100])
def test_chunks_of_any_size_find_the_same(market, monkeypatch, rows):
    monkeypatch.setattr("cascade_sim.storage.columns.ROWS", rows)
    store = open_store(market)
    assert len(store.candidates(2, 5, ("ad",))["ad"]) == 15
    changed_column(market / "store" / "candidates" / "ad.npy", lambda a: a[::-1].copy())
    reseal(market)
    with pytest.raises(UserError, match="expected more than"):
        open_store(market)


def test_names_are_as_many_as_there_are(market):
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = market / "store" / "names" / "ads.parquet"
    pq.write_table(pa.table({"name": pa.array(["x"], pa.large_string())}), file)
    reseal(market)
    with pytest.raises(UserError, match="has 1 names .* expected 12"):
        open_store(market).names("ads")


def test_every_column_of_the_format_declares_its_range():
    unbounded = {("candidates", "pre_score")}  # any finite number
    for table, names in COLUMNS.items():
        for name, entry in names.items():
            if (table, name) not in unbounded:
                assert entry.low > -2 and (isinstance(entry.high, str) or entry.high < 1e19), (table, name)
    with pytest.raises(KeyError):
        column("candidates", "feature.../x")
