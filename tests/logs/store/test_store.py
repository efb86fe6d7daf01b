"""A store gives back what was put in, by ranges; changes are noticed, and nothing half-written stays."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.importing.market import import_market
from cascade_sim.logs.store import About, StoreWriter, open_store, write_store
from cascade_sim.logs.store.answers import supported_queries
from cascade_sim.logs.store.format import LEVELS, about_from
from cascade_sim.logs.store.store import new_folder
from worlds.small_log import small_log

ABOUT = About(name="tuesday", starts="2026-03-03T00:00:00+01:00", zone="Europe/Berlin", level="bids")
FIRST = np.array([0, 3, 3, 5])


def tables():
    requests = {"time": [10.0, 20.0, 30.0], "slots": [2, 2, 1], "first": FIRST, "segment": [0, -1, 0]}
    candidates = {
        "ad": [0, 2, 5, 2, 4],
        "bid": [1.5, 2.0, 0.5, 2.5, 1.0],
        "pctr": np.array([0.1, 0.2, 0.3, 0.1, 0.1], np.float32),
        "slot": [1, 0, -1, 0, -1],
        "price_micros": [500_000, 1_000_000, -1, 400_000, -1],
        "click": [0, 1, -1, 0, -1],
        "score.new": [0.1, 0.1, 0.1, 0.2, 0.2],
    }
    return requests, candidates


@pytest.fixture
def store(tmp_path):
    names = {"ads": list("abcdef"), "segments": ["news"], "requests": ["r1", "r2", "r3"]}
    return write_store(
        tmp_path / "market", ABOUT, *tables(), names, advertiser=[0, 0, 1, 1, 1, 0], budgets=None
    )


def test_columns_come_back_as_they_were_written(store):
    _, candidates = tables()
    found = store.candidates(0, 3, tuple(candidates))
    for name, values in candidates.items():
        np.testing.assert_array_equal(found[name], values)
    assert found["pctr"].dtype == np.float32
    assert found["ad"].dtype == np.int32
    assert store.requests["time"].tolist() == [10, 20, 30]
    assert np.isnan(store.requests["reserve"]).all()
    assert store.advertiser.tolist() == [0, 0, 1, 1, 1, 0]
    assert store.budgets is None


def test_what_is_known_about_it_is_counted(store):
    counts = store.about.counts
    assert (counts.requests, counts.candidates, counts.shown, counts.clicks) == (3, 5, 3, 1)
    assert (counts.ads, counts.advertisers, counts.segments) == (6, 2, 1)
    assert (store.about.slots, store.about.largest_request, store.about.scores) == (2, 3, ("new",))
    assert store.has("pctr", "score.new") and not store.has("pcvr")


def test_a_range_of_requests_has_their_candidates_alone(store):
    assert store.candidates(1, 3, ("ad",))["ad"].tolist() == [2, 4]
    assert store.candidates(1, 2, ("ad",))["ad"].tolist() == []
    assert [(a, b, c["ad"].tolist()) for a, b, c in store.blocks(("ad",), rows=3)] == [
        (0, 2, [0, 2, 5]),
        (2, 3, [2, 4]),
    ]


def test_any_requests_in_any_order_are_padded(store, monkeypatch):
    for near in (0, 4096):  # read in several pieces, and in one
        monkeypatch.setattr("cascade_sim.logs.store.store.NEAR", near)
        found = store.padded([2, 0, 1, 2], ("ad", "bid", "slot"))
        assert found["ad"].tolist() == [[2, 4, -1], [0, 2, 5], [-1, -1, -1], [2, 4, -1]]
        assert found["bid"].tolist() == [[2.5, 1, 0], [1.5, 2, 0.5], [0, 0, 0], [2.5, 1, 0]]
        assert found["slot"].tolist()[0] == [0, -1, -1]
    assert store.padded([1], ("ad",), width=4)["ad"].tolist() == [[-1] * 4]
    assert store.padded([], ("ad",))["ad"].shape == (0, 0)
    with pytest.raises(ValueError, match="outside"):
        store.padded([3], ("ad",))


def test_names_lead_to_codes_and_back(store):
    assert [store.name("ads", code) for code in (0, 5, -1)] == ["a", "f", ""]
    assert store.code("requests", "r3") == 2
    assert store.name("users", -1) == ""
    with pytest.raises(UserError, match="unknown request 'r4'; known: r1, r2, r3"):
        store.code("requests", "r4")


def test_of_many_names_only_what_is_near_is_told(tmp_path):
    log = small_log(n=30)
    store = import_market(log.write(tmp_path / "log"), tmp_path / "market").store
    with refused("'r99'", "'r9'?"):
        store.code("requests", "r99")
    with refused("'something else'", "'r1'"):
        store.code("requests", "something else")


def test_a_column_that_is_not_there_is_named_with_those_that_are(store):
    with refused("candidates.pcvr", "ad, bid, click"):
        store.candidates(0, 1, ("pcvr",))


def test_another_process_opens_it_again(store):
    again = pickle.loads(pickle.dumps(store))
    assert again.about == store.about


@pytest.mark.parametrize("file", ["candidates/bid.npy", "names/ads.parquet"])
def test_a_changed_byte_is_noticed_when_it_is_read(store, file):
    path = store.path / file
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="changed or damaged"):
        open_store(store.path).check()
    read = {
        "candidates/bid.npy": lambda s: s.candidates(0, 1, ("bid",)),
        "names/ads.parquet": lambda s: s.names("ads"),
    }
    with pytest.raises(UserError, match="changed or damaged"):
        read[file](open_store(store.path.parent))


@pytest.mark.parametrize("break_it, words", [
    (lambda folder: (folder / "log.json").unlink(), "import-logs"),
    (lambda folder: (folder / "log.json").rename(folder / "market.json"), "older version"),
    (lambda folder: (folder / "candidates/ad.npy").unlink(), "missing"),
    (lambda folder: (folder / "candidates/ad.npy").write_bytes(b""), "bytes"),
    (lambda folder: edit(folder, level="everything"), "level winners, bids, pre_ranking"),
    (lambda folder: edit(folder, zone="UTC"), "changed or damaged"),
    (lambda folder: edit(folder, format=99), "has format 99"),
    (lambda folder: (folder / "log.json").write_text("[]"), "does not describe"),
    (lambda folder: (folder / "log.json").write_text("{"), "cannot read"),
])  # fmt: skip
def test_what_is_no_store_is_refused_in_words(store, break_it, words):
    break_it(store.path)
    with refused(*words.split()):
        open_store(store.path.parent)


def edit(folder, **values):
    file = folder / "log.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_no_file_outside_the_market_is_named(store):
    from cascade_sim.storage.checksums import with_checksum

    file = store.path / "log.json"
    data = json.loads(file.read_text())
    data["files"]["../../secret"] = {"bytes": 0, "sha256": ""}
    file.write_text(json.dumps(with_checksum(data)))
    with refused("no file"):
        open_store(store.path)


def test_rows_may_come_in_pieces(tmp_path, store):
    requests, candidates = tables()
    with StoreWriter(tmp_path / "pieces") as writer:
        for low, high in ((0, 1), (1, 1), (1, 5)):
            piece = {name: np.asarray(values)[low:high] for name, values in candidates.items()}
            stage = np.where(piece["slot"] >= 0, 2, 1)
            unknown = {"conversion": np.full(high - low, -1), "source": np.arange(low, high)}
            writer.append("candidates", {**piece, **unknown, "stage": stage})
        writer.append("requests", {**requests, "user": [-1] * 3, "placement": [-1] * 3, "reserve": [0.0] * 3})
        writer.append("ads", {"advertiser": store.advertiser})
        for kind, size in (("requests", 3), ("ads", 6), ("advertisers", 2), ("segments", 1)):
            writer.names(kind, [str(code) for code in range(size)])
        writer.finish(ABOUT)
    again = open_store(tmp_path / "pieces")
    assert again.candidates(0, 3, ("bid",))["bid"].tolist() == candidates["bid"]
    np.testing.assert_array_equal(np.load(tmp_path / "pieces/candidates/bid.npy"), candidates["bid"])


@pytest.mark.parametrize("change, words", [
    ({"first": [0, 3, 4, 4]}, "`first`"),
    ({"first": [0, 5]}, "`first`"),
    ({"slots": [2, 2]}, "rows"),
])  # fmt: skip
def test_tables_that_do_not_fit_together_are_not_written(tmp_path, change, words):
    requests, candidates = tables()
    with pytest.raises(ValueError, match=words):
        write_store(tmp_path / "market", ABOUT, {**requests, **change}, candidates, {})
    assert list((tmp_path / "market").iterdir()) == []


def test_an_unknown_column_is_not_written(tmp_path):
    requests, candidates = tables()
    with refused("'bid'?", kind=ValueError):
        write_store(tmp_path / "market", ABOUT, requests, {**candidates, "bidd": candidates["bid"]}, {})


def test_an_interrupt_leaves_nothing_behind(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "market") as temp:
        (temp / "half").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from cascade_sim.logs.store.store import new_folder
with new_folder(sys.argv[1]) as temp:
    (temp / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    for name in ("market", "market.2"):
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name)], check=False)
    assert len(list(tmp_path.iterdir())) == 2
    with new_folder(tmp_path / "market"):
        left = [path.name for path in tmp_path.iterdir() if f".{os.getpid()}." not in path.name]
    assert len(left) == 1 and left[0].startswith(".market.2.")
    assert (tmp_path / "market").is_dir()


def test_what_somebody_is_writing_or_wrote_otherwise_is_left_alone(tmp_path):
    others = [".market.notes.tmp", ".market.00000000.1.0123456789abcdef.tmp", ".market.tmp"]
    for name in others:
        (tmp_path / name).mkdir()
    place = tmp_path / "market"
    with pytest.raises(UserError, match="exists already"), new_folder(place) as first, new_folder(place):
        assert first.is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {*others, "market"}


def test_a_lock_keeps_what_looks_dead(tmp_path, monkeypatch):
    monkeypatch.setattr("cascade_sim.logs.store.store._is_alive", lambda pid: False)
    with new_folder(tmp_path / "market") as first:
        with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "market"):
            raise KeyboardInterrupt
        assert first.is_dir()


def test_a_folder_that_is_there_is_not_written_over(store):
    with pytest.raises(UserError, match="exists already"):
        write_store(store.path.parent, ABOUT, *tables(), {})


def test_what_is_known_of_a_log_comes_back_from_its_file():
    assert about_from(ABOUT.as_json(), "here") == ABOUT


@pytest.mark.parametrize("level", LEVELS)
def test_lower_reserves_than_bids_were_logged_of_are_no_answer(level, tmp_path):
    about = ABOUT.changed(level=level, bids_logged_above=0.3)
    lines = supported_queries(write_store(tmp_path / "log", about, *tables(), {}))
    assert any(line.startswith("does not support: ") and tells(line, 0.3) for line in lines)


@pytest.mark.parametrize(
    ("level", "can"),
    [("winners", "bounds on"), ("bids", "pricing rules"), ("pre_ranking", "stage sizes")],
)
def test_the_completeness_of_a_log_is_told_in_words(level, can, tmp_path, monkeypatch):
    monkeypatch.setattr("cascade_sim.logs.store.answers.MIN_CLICKS", 1)  # the log has one
    lines = supported_queries(write_store(tmp_path / "log", ABOUT.changed(level=level), *tables(), {}))
    supports = [line for line in lines if line.startswith("supports: ")]
    cannot = [line for line in lines if line.startswith("does not support: ")]
    assert LEVELS[level].holds in lines[0] and LEVELS[level].to_log in lines[-1]
    assert any(can in line for line in supports)
    assert any(LEVELS[level].not_allowed in line for line in cannot)
    assert any("propensities" in line for line in cannot)


def test_drawn_pages_support_off_policy_estimates(tmp_path):
    about = ABOUT.changed(is_randomised=True)
    lines = supported_queries(write_store(tmp_path / "log", about, *tables(), {}))
    (told,) = [line for line in lines if "off-policy" in line]
    assert told.startswith("supports: ") and "were drawn" in told
