"""Mistakes in a mapping are told with file, line and column, and with what may be meant."""

import pytest

from answers.told import refused, tells
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.importing.mapping import load_mapping
from cascade_sim.logs.importing.market import import_market
from places import ROOT
from worlds.small_log import MAPPING, small_log


@pytest.fixture
def folder(tmp_path):
    small_log().write(tmp_path)
    return tmp_path


def problems(folder, text):
    (folder / "mapping.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        load_mapping(folder / "mapping.yaml")
    return str(caught.value)


def test_a_mapping_says_which_column_is_what(folder):
    mapping = load_mapping(folder / "mapping.yaml")
    assert (mapping.name, mapping.zone, mapping.charging, mapping.money) == (
        "tuesday",
        "Europe/Berlin",
        "click",
        "unit",
    )
    price = mapping.tables["outcomes"].columns["price"]
    assert (price.theirs, mapping.unit(price)) == (("cost",), 1e-6)
    assert mapping.tables["outcomes"].columns["slot"].base == 1
    assert mapping.rule.pricing == "gsp"
    assert [file.name for file in mapping.tables["candidates"].files] == ["bids.csv"]


@pytest.mark.parametrize(
    "before, after, words",
    [
        (
            "charging: click",
            "charging: klick",
            ":4:1 charging: impression, slot, 'klick' 'click'",
        ),
        (
            "charging: click",
            "chargign: click",
            "mapping.yaml:4:1 chargign: 'charging'?",
        ),
        (
            "bid: bid",
            "bit: bid",
            ":12:61 candidates.columns.bit: 'bit' 'bid'?",
        ),
        (
            "zone: Europe/Berlin",
            "zone: Europe/Berlim",
            "mapping.yaml:2:1 zone: 'Europe/Berlim' 'Europe/Berlin'?",
        ),
        (
            "files: bids.csv",
            "files: bid.csv",
            "mapping.yaml:11:3 candidates.files: bid.csv 'bids.csv'?",
        ),
        ("files: bids.csv", "files: part-*.csv", "candidates.files: part-*.csv"),
        ("files: bids.csv", "files: [bids.csv, bids.csv]", "bids.csv twice"),
        ("files: bids.csv", "files: .", "folder ./*.parquet"),
        (
            "unit: micros",
            "unit: micro",
            "price.unit: cents, cpm, 'micro' 'micros'?",
        ),
        ("request: id, time: at", "request: id", "requests.columns: 'time' missing"),
        ("time: seconds", "time: second", "'seconds'?"),
        ("squashing: 1", "squashing: one", "rule.squashing: 'one'"),
        ("squashing: 1", "squashing: 5", "rule.squashing: 5 0 2"),
        ("pricing: gsp", "pricing: gspx", "rule.pricing: 'gspx' 'gsp'?"),
        ("pricing: gsp", "pricing: first_price, increment: 0.01", "rule.increment: first"),
        (
            "pricing: gsp",
            "pricing: vcg, slot_effects: [0.5, 0.7, 0]",
            "rule.slot_effects: 0.5, 0.7, 0 1",
        ),
        ("squashing: 1", "rounding: 0.0000004", "rule.rounding: 4e-07"),
        ("squashing: 1", "squashing: -1", "rule.squashing 0"),
        ("squashing: 1", "squash: 1", "'squashing'?"),
        ("user: uid", "user: {column: uid, unit: micros}", "user unit"),
        ("user: uid", "user: {}", "user column"),
        ("user: uid", "user: {row: true}", "user `request`"),
        ("slots: places", "slots: [a, b]", "slots ids columns"),
        (
            "slots: places",
            "slots: {column: places, constant: 2}",
            "column, columns, constant, row",
        ),
        ("slots: places", "slots: {column: places, base: 1}", "slots belongs slot"),
        (
            "name: tuesday",
            "name: tuesday\nallow: {negative_bit: 0.1}",
            "allow.negative_bit: 'negative_bit' 'negative_bid'?",
        ),
        ("name: tuesday", "name: tuesday\nallow: {negative_bid: 10}", "allow.negative_bid 0 1, 10"),
        ("name: tuesday", "name: tuesday\nbetween: [2026-03-04, 2026-03-03]", "between ends"),
        ("name: tuesday", "name: tuesday\nbetween: [yesterday, today]", "between.0: 'yesterday'"),
        ("name: tuesday", "name: tuesday\ncsv: {delimiter: tab}", "csv.delimiter: sign"),
        ("name: tuesday", "name: [tuesday", "mapping.yaml:2:5 close"),
        ("name: tuesday", "name: tuesday\nname: monday", "mapping.yaml:2:1 name: duplicate"),
        ("name: tuesday", "name: !!python/object:os.system x", "read"),
    ],
)
def test_a_mistake_is_named_by_line_and_column(folder, before, after, words):

    changed = MAPPING.replace(before, after, 1)
    assert changed != MAPPING
    found = problems(folder, changed)
    assert tells(found, *words.split()), found


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "mapping"),
        ("[1, 2]", "mapping"),
        ("name: x", "neither `candidates` nor `outcomes`"),
        (
            "name: x\ncandidates: {files: bids.csv, columns: {request: id, ad: creative}}",
            "`requests`",
        ),
        ("candidates: 7", "must be `key: value` pairs"),
    ],
)
def test_what_is_no_mapping_is_refused(folder, text, words):
    assert tells(problems(folder, text), *words.split())


def test_the_shipped_example_imports_the_small_log(folder):
    (folder / "mapping.yaml").write_text((ROOT / "scenarios" / "data" / "mapping.yaml").read_text())
    store = import_market(folder / "mapping.yaml", folder / "market").store
    assert (store.about.name, store.about.level, store.about.charging) == ("tuesday", "bids", "click")


def test_all_mistakes_are_told_at_once(folder):
    text = MAPPING.replace("charging: click", "charging: klick").replace("zone: Europe", "zone: Eurpe")
    assert len(problems(folder, text).splitlines()) == 2


def test_a_missing_mapping_is_named(tmp_path):
    with refused(tmp_path / "none.yaml", "No such file"):
        load_mapping(tmp_path / "none.yaml")


def test_digests_in_a_mapping_are_what_its_files_must_have(folder, tmp_path):
    import hashlib

    bids = folder / "bids.csv"
    text = MAPPING + f"sha256: {{bids.csv: {hashlib.sha256(bids.read_bytes()).hexdigest()}}}\n"
    (folder / "mapping.yaml").write_text(text)
    assert import_market(folder / "mapping.yaml", tmp_path / "one").store.n_requests == 8
    bids.write_bytes(bids.read_bytes().replace(b"0.5", b"0.6", 1))
    with refused("bids.csv:", "damaged", "sha256"):
        import_market(folder / "mapping.yaml", tmp_path / "two")
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize("value, words", [
    ("{bid.csv: 00}", "bid.csv"),
    ("{bids.csv: 12}", "64 12"),
    ("yes", "must be `key: value` pairs"),
])  # fmt: skip
def test_a_digest_that_checks_nothing_is_a_mistake(folder, value, words):
    assert tells(problems(folder, MAPPING + f"sha256: {value}\n"), *words.split())
