"""Suspicions of an import: each is planted once, and a log without it is silent."""

import copy

import pytest

from answers.told import refused, tells
from cascade_sim.logs.importing.market import import_market
from worlds.small_log import csv_text, small_log

N = 400
WHOLE = small_log(N)


@pytest.fixture
def log():
    return copy.deepcopy(WHOLE)


def notes(log, folder, parts=()):
    """What an import says beside its counts; tables of `parts` are written as two files, even and odd."""
    for name in parts:
        log.mapping = log.mapping.replace(f"files: {name}.csv", f"files: {name}-*.csv")
    mapping = log.write(folder / "log")
    for name in parts:
        rows = log.tables()[name]
        for half in range(2):
            own = [row for row in rows if int(row["id"][1:]) % 2 == half]
            (folder / "log" / f"{name}-{half}.csv").write_text(csv_text(own))
    return import_market(mapping, folder / "market").validation["notes"]


def request(row):
    return int(row["id"][1:])


@pytest.mark.parametrize("parts", [(), ("shown",), ("bids",), ("bids", "shown")])
def test_a_sound_log_is_not_suspected(parts, log, tmp_path):
    assert notes(log, tmp_path, parts) == []


def clicks_lost(log):
    for row in log.shown:
        row["clicked"] = 0 if 100 <= request(row) < 300 else row["clicked"]


def outcomes_lost(log):
    log.shown = [row for row in log.shown if request(row) <= 250]


def clicked_alone(log):
    log.shown = [row for row in log.shown if row["clicked"]]


def rows_lost(log):
    log.shown = [row for row in log.shown if row["place"] == 2 or request(row) % 3]


def from_one(log):
    log.mapping = log.mapping.replace("slot: {column: place, base: 1}", "slot: place").replace(
        ", slots: places", ""
    )


def cents_as_units(log):
    for row in log.bids:
        row["bid"] = round(100 * row["bid"], 3)


def prices_by_cents(log):
    for row in log.shown:
        row["cost"] = row["cost"] / 1e4
    log.mapping = log.mapping.replace("unit: micros", "unit: cents")


def other_currency_later(log):
    for row in log.bids:
        row["bid"] = round(row["bid"] * (7.8 if request(row) > 280 else 1), 3)
    for row in log.shown:
        row["cost"] = round(row["cost"] * (7.8 if request(row) > 280 else 1))


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (clicks_lost, ["none of the 4", "was clicked, of the others", "did clicks get lost", "between:"]),
        (outcomes_lost, ["nothing is shown on requests 250 to 399 by time (150, 38% of the"]),
        (clicked_alone, ["all 2", "were clicked (100 %)", "log every shown ad, with click 0"]),
        (rows_lost, ["have an ad below an empty slot", "packed: true"]),
        (from_one, ["no ad is in slot 0: the first slot of 800 shown ads is 1", "{column: place, base: 1}"]),
        (cents_as_units, ["are about 1/1", "if bid is in cents, write bid: {column: bid, unit: cents}"]),
        (other_currency_later, ["same ads are about 8.", "from 70% to 100% of the requests", "currency"]),
    ],
)  # fmt: skip
def test_what_is_planted_is_said_with_its_number_and_what_to_write(plant, words, log, tmp_path):
    plant(log)
    told = " ".join(notes(log, tmp_path))
    for part in words:
        assert part in told


def test_prices_a_hundred_times_too_small_are_said(log, tmp_path):
    prices_by_cents(log)
    for row in log.shown:
        row["cost"] = round(row["cost"] / 100, 6)
    told = " ".join(notes(log, tmp_path))
    assert "about 1/1" in told and tells(told, "{column: cost, unit: unit}")


def test_a_unit_that_cannot_be_is_refused_with_what_to_write(log, tmp_path):
    log.mapping = log.mapping.replace("{column: cost, unit: micros}", "cost")
    with refused("cost", "{column: cost, unit: micros}"):
        notes(log, tmp_path)


def test_slots_from_1_beyond_the_page_are_refused_with_what_to_write(log, tmp_path):
    log.mapping = log.mapping.replace("slot: {column: place, base: 1}", "slot: place")
    with refused("slot 0", "slot: {column: place, base: 1}"):
        notes(log, tmp_path)


def test_a_file_without_clicks_and_one_of_clicked_ads_alone_are_named(log, tmp_path):
    odd = copy.deepcopy(log)
    for row in log.shown:
        row["clicked"] = row["clicked"] if request(row) % 2 else 0
    told = " ".join(notes(log, tmp_path / "lost", ("shown",)))
    assert tells(told, "shown-0.csv:", "400 shown ads")
    odd.shown = [row for row in odd.shown if row["clicked"] or request(row) % 2 == 0]
    told = " ".join(notes(odd, tmp_path / "alone", ("shown",)))
    assert "shown-1.csv: all its" in told and "clicked ads only" in told


def test_a_part_in_another_currency_is_named(log, tmp_path):
    whole = copy.deepcopy(log)
    for row in log.bids:
        row["bid"] = round(row["bid"] * (4.3 if request(row) % 2 else 1), 3)
    for row in log.shown:
        row["cost"] = round(row["cost"] * (4.3 if request(row) % 2 else 1))
    told = " ".join(notes(log, tmp_path / "bids", ("bids", "shown")))
    assert tells(told, "its bids", "another currency")
    for row in whole.shown:
        row["cost"] = round(row["cost"] / (5 if request(row) % 2 else 1))
    told = " ".join(notes(whole, tmp_path / "prices", ("shown",)))
    assert tells(told, "its prices", 0.73, 0.15, "another currency")


@pytest.mark.parametrize("cut", [1, 2])
def test_a_csv_that_is_cut_inside_its_last_cell_is_refused(cut, log, tmp_path):
    log.shown[-1]["clicked"], log.shown[-1]["cost"] = 1, 123_456
    log.shown = [{**row, "z": row.pop("cost")} for row in log.shown]  # the last column
    log.mapping = log.mapping.replace("column: cost", "column: z")
    mapping = log.write(tmp_path)
    table = tmp_path / "shown.csv"
    table.write_bytes(table.read_bytes()[:-cut])
    with refused("shown.csv:", 801):
        import_market(mapping, tmp_path / "market")
    if cut == 1:
        mapping.write_text(log.mapping + "csv: {last_row: whole}\n")
        assert import_market(mapping, tmp_path / "market").store.n_requests == N
        mapping.write_text(log.mapping + "csv: {last_row: wohle}\n")
        with refused("'whole'?"):
            import_market(mapping, tmp_path / "again")
