"""Mistakes in a mapping are told with file, line and column, and with what may be meant."""

import pytest

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
            r":4:1 charging: must be one of click, impression, slot, found 'klick'; did you mean 'click'",
        ),
        (
            "charging: click",
            "chargign: click",
            r"mapping.yaml:4:1 chargign: unknown key 'chargign'; did you mean 'charging'",
        ),
        (
            "bid: bid",
            "bit: bid",
            r":12:61 candidates.columns.bit: unknown column of candidates 'bit'; did you mean 'bid",
        ),
        (
            "zone: Europe/Berlin",
            "zone: Europe/Berlim",
            r"mapping.yaml:2:1 zone: there is no time zone 'Europe/Berlim'; did you mean 'Europe/Berlin'",
        ),
        (
            "files: bids.csv",
            "files: bid.csv",
            r"mapping.yaml:11:3 candidates.files: there is no file bid.csv in .*did you mean 'bids.csv'",
        ),
        ("files: bids.csv", "files: part-*.csv", r"no file is called part-\*.csv"),
        ("files: bids.csv", "files: [bids.csv, bids.csv]", r"named twice"),
        ("files: bids.csv", "files: .", r"is a folder; write ./\*.parquet"),
        (
            "unit: micros",
            "unit: micro",
            r"price.unit: must be one of unit, cents, micros, cpm, found 'micro'; did you mean 'micros",
        ),
        ("request: id, time: at", "request: id", r"requests.columns: 'time' is missing: requests needs it"),
        ("time: seconds", "time: second", r"did you mean 'seconds'"),
        ("squashing: 1", "squashing: one", r"rule.squashing: must be a number, found 'one'"),
        ("squashing: 1", "squashing: 5", r"rule.squashing: squashing is 5; expected a number from 0 to 2"),
        ("pricing: gsp", "pricing: gspx", r"rule.pricing: unknown pricing 'gspx'; did you mean 'gsp'"),
        ("pricing: gsp", "pricing: first_price, increment: 0.01", r"rule.increment: pricing first does not"),
        (
            "pricing: gsp",
            "pricing: vcg, slot_effects: [0.5, 0.7, 0]",
            r"rule.slot_effects: slot_effects are 0.5, 0.7, 0; expected numbers above 0 up to 1",
        ),
        ("squashing: 1", "rounding: 0.0000004", r"rule.rounding: rounding 4e-07 is less than a micro-unit"),
        ("squashing: 1", "squashing: -1", r"must be at least 0"),
        ("squashing: 1", "squash: 1", r"did you mean 'squashing'"),
        ("user: uid", "user: {column: uid, unit: micros}", r"user has no unit"),
        ("user: uid", "user: {}", r"must be the name of a column"),
        ("user: uid", "user: {row: true}", r"only `request` can be the row itself"),
        ("slots: places", "slots: [a, b]", r"only ids .* can be made of several columns"),
        (
            "slots: places",
            "slots: {column: places, constant: 2}",
            r"must have one of: column, columns, constant, row",
        ),
        ("slots: places", "slots: {column: places, base: 1}", r"belongs to slot"),
        (
            "name: tuesday",
            "name: tuesday\nallow: {negative_bit: 0.1}",
            r"allow.negative_bit: unknown kind of fault 'negative_bit'; did you mean 'negative_bid'",
        ),
        ("name: tuesday", "name: tuesday\nallow: {negative_bid: 10}", r"is a share of rows, 0 … 1, found 10"),
        ("name: tuesday", "name: tuesday\nbetween: [2026-03-04, 2026-03-03]", r"must begin before it ends"),
        ("name: tuesday", "name: tuesday\nbetween: [yesterday, today]", r"must be a time such as"),
        ("name: tuesday", "name: tuesday\ncsv: {delimiter: tab}", r"csv.delimiter: must be one sign"),
        ("name: tuesday", "name: [tuesday", r"mapping.yaml:2:5 .*close it"),
        ("name: tuesday", "name: tuesday\nname: monday", r"mapping.yaml:2:1 name: duplicate key"),
        ("name: tuesday", "name: !!python/object:os.system x", r"cannot read"),
    ],
)
def test_a_mistake_is_named_by_line_and_column(folder, before, after, words):
    import re

    assert before in MAPPING
    found = problems(folder, MAPPING.replace(before, after, 1))
    assert re.search(words, found), found


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "a mapping begins with"),
        ("[1, 2]", "a mapping begins with"),
        ("name: x", "neither `candidates` nor `outcomes`"),
        (
            "name: x\ncandidates: {files: bids.csv, columns: {request: id, ad: creative}}",
            "there is no `requests`",
        ),
        ("candidates: 7", "must be `key: value` pairs"),
    ],
)
def test_what_is_no_mapping_is_refused(folder, text, words):
    assert words in problems(folder, text)


def test_the_shipped_example_imports_the_small_log(folder):
    (folder / "mapping.yaml").write_text((ROOT / "scenarios" / "data" / "mapping.yaml").read_text())
    store = import_market(folder / "mapping.yaml", folder / "market").store
    assert (store.about.name, store.about.level, store.about.charging) == ("tuesday", "bids", "click")


def test_all_mistakes_are_told_at_once(folder):
    text = MAPPING.replace("charging: click", "charging: klick").replace("zone: Europe", "zone: Eurpe")
    assert len(problems(folder, text).splitlines()) == 2


def test_a_missing_mapping_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*none\.yaml: No such file"):
        load_mapping(tmp_path / "none.yaml")


def test_digests_in_a_mapping_are_what_its_files_must_have(folder, tmp_path):
    import hashlib

    bids = folder / "bids.csv"
    text = MAPPING + f"sha256: {{bids.csv: {hashlib.sha256(bids.read_bytes()).hexdigest()}}}\n"
    (folder / "mapping.yaml").write_text(text)
    assert import_market(folder / "mapping.yaml", tmp_path / "one").store.n_requests == 8
    bids.write_bytes(bids.read_bytes().replace(b"0.5", b"0.6", 1))
    with pytest.raises(UserError, match="bids.csv: was changed or damaged since it was written: its sha256"):
        import_market(folder / "mapping.yaml", tmp_path / "two")
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize("value, words", [
    ("{bid.csv: 00}", "no table is of the file bid.csv"),
    ("{bids.csv: 12}", "must be 64 hexadecimal digits, found 12"),
    ("yes", "must be `key: value` pairs"),
])  # fmt: skip
def test_a_digest_that_checks_nothing_is_a_mistake(folder, value, words):
    assert words in problems(folder, MAPPING + f"sha256: {value}\n")
