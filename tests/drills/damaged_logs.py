"""Logs as they come when something went wrong on the way: each with what must be said about it."""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from worlds.small_log import START, SmallLog, small_log

Change = Callable[[SmallLog], None]
Break = Callable[[Path], None]

REFUSED, MENDED = "refused", "mended"


@dataclass(frozen=True)
class Damage:
    """A damaged log, and the verdict that it must get, in words that name the place."""

    name: str
    words: str  # a regular expression
    change: Change = lambda log: None  # of the rows or the mapping, before they are written
    spoil: Break = lambda folder: None  # of the files
    verdict: str = REFUSED


def cell(table: str, row: int, column: str, value: Any) -> Change:
    """One cell; rows as a person counts them, the header being row 1."""

    def change(log: SmallLog) -> None:
        log.tables()[table][row - 2][column] = value

    return change


def every(table: str, column: str, write: Callable[[Any], Any]) -> Change:
    """All cells of a column."""

    def change(log: SmallLog) -> None:
        for row in log.tables()[table]:
            row[column] = write(row[column])

    return change


def mapped(before: str, after: str) -> Change:
    """The mapping says something else."""

    def change(log: SmallLog) -> None:
        assert before in log.mapping
        log.mapping = log.mapping.replace(before, after)

    return change


def both(*changes: Change) -> Change:
    def change(log: SmallLog) -> None:
        for one in changes:
            one(log)

    return change


def swap(table: str, first: str, second: str) -> Change:
    """Two columns under each other's name."""

    def change(log: SmallLog) -> None:
        for row in log.tables()[table]:
            row[first], row[second] = row[second], row[first]

    return change


def again(table: str, row: int, **values: Any) -> Change:
    """A row once more at the end, with some cells changed."""

    def change(log: SmallLog) -> None:
        rows = log.tables()[table]
        rows.append({**rows[row - 2], **values})

    return change


def without(table: str, row: int) -> Change:
    def change(log: SmallLog) -> None:
        del log.tables()[table][row - 2]

    return change


def recoded(table: str, write: Callable[[bytes], bytes]) -> Break:
    def spoil(folder: Path) -> None:
        path = folder / f"{table}.csv"
        path.write_bytes(write(path.read_bytes()))

    return spoil


def line(table: str, row: int, write: Callable[[bytes], bytes]) -> Break:
    """One line of a file."""

    def spoil(folder: Path) -> None:
        path = folder / f"{table}.csv"
        lines = path.read_bytes().split(b"\n")
        lines[row - 1] = write(lines[row - 1])
        path.write_bytes(b"\n".join(lines))

    return spoil


def zipped(cut: int) -> Break:
    def spoil(folder: Path) -> None:
        data = gzip.compress((folder / "bids.csv").read_bytes(), mtime=0)
        (folder / "bids.csv.gz").write_bytes(data[: len(data) - cut])

    return spoil


def spoiled_gzip(folder: Path) -> None:
    data = bytearray(gzip.compress((folder / "bids.csv").read_bytes(), mtime=0))
    data[60:90] = bytes(30)
    (folder / "bids.csv.gz").write_bytes(data)


def parquet(
    write: Callable[[bytes], bytes] = bytes, change: Callable[[pa.Table], pa.Table] = lambda t: t
) -> Break:
    """Bids as Parquet, its table or its bytes changed."""

    def spoil(folder: Path) -> None:
        path = folder / "bids.parquet"
        pq.write_table(change(pa.csv.read_csv(folder / "bids.csv")), path)
        path.write_bytes(write(path.read_bytes()))

    return spoil


def column(name: str, write: Callable[[pa.ChunkedArray], Any]) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.schema.get_field_index(name), name, write(table[name]))


def parts(write: Callable[[list[bytes]], bytes]) -> Break:
    """The bids in two files, the second of which is changed."""

    def spoil(folder: Path) -> None:
        lines = (folder / "bids.csv").read_bytes().split(b"\n")
        (folder / "part-1.csv").write_bytes(b"\n".join(lines[:21]) + b"\n")
        (folder / "part-2.csv").write_bytes(write([lines[0], *lines[21:]]))

    return spoil


def scaled(lines: list[bytes]) -> bytes:
    head, *rows = (text.split(b",") for text in lines if text)
    for row in rows:
        row[3] = str(round(float(row[3]) * 1e6)).encode()
    return b"\n".join(b",".join(row) for row in [head, *rows]) + b"\n"


GZ, PARQUET, PARTS = (
    mapped("files: bids.csv", f"files: {name}") for name in ("bids.csv.gz", "bids.parquet", "part-*.csv")
)
NAN = float("nan")


def at_hour(text: str) -> Change:
    """The first request at a time of the clock, the others after it on the same day."""
    return both(
        mapped("time: seconds", "time: iso"),
        every(
            "requests",
            "at",
            lambda at: f"{text[:10]}T{12 + (at - START) // 3600:02}:{(at - START) % 3600 // 60:02}:00",
        ),
        cell("requests", 2, "at", text),
    )


DAMAGED: tuple[Damage, ...] = (
    # types
    Damage(
        "a word for a bid",
        r"wrong_type.*\n +bids.csv row 3, column bid: 'dear'",
        cell("bids", 3, "bid", "dear"),
    ),
    Damage(
        "a word for a time",
        r"wrong_type.*\n +requests.csv row 4, column at: 'noon'",
        cell("requests", 4, "at", "noon"),
    ),
    Damage(
        "a decimal comma", r"wrong_type.*\n +bids.csv row 2, column bid: '0,5'", cell("bids", 2, "bid", "0,5")
    ),
    Damage(
        "a currency sign",
        r"wrong_type.*\n +bids.csv row 2, column bid: '€1.2'",
        cell("bids", 2, "bid", "€1.2"),
    ),
    Damage(
        "a slot and a half",
        r"wrong_type.*\n +shown.csv row 2, column place: '1.5'",
        cell("shown", 2, "place", 1.5),
    ),
    Damage(
        "a click of 2",
        r"not_0_or_1.*\n +shown.csv row 5, column clicked: '2'",
        cell("shown", 5, "clicked", 2),
    ),
    Damage(
        "a click of maybe",
        r"not_0_or_1.*\n +shown.csv row 5, column clicked: 'maybe'",
        cell("shown", 5, "clicked", "maybe"),
    ),
    Damage(
        "clicks as true and false",
        "",
        every("shown", "clicked", lambda c: "True" if c else "false"),
        verdict=MENDED,
    ),
    Damage("clicks as 1.0", "", every("shown", "clicked", lambda c: f"{c}.0"), verdict=MENDED),
    Damage(
        "ids cut by a spreadsheet",
        r"wrong_type.*\n +bids.csv row 2, column id: '1.77249E\+12'",
        cell("bids", 2, "id", "1.77249E+12"),
    ),
    # NaN in each column
    Damage("a NaN bid", r"not_a_number.*\n +bids.csv row 7, column bid: 'nan'", cell("bids", 7, "bid", NAN)),
    Damage(
        "an infinite bid",
        r"not_a_number.*\n +bids.csv row 7, column bid: 'inf'",
        cell("bids", 7, "bid", float("inf")),
    ),
    Damage(
        "a NaN pCTR",
        r"not_a_number.*\n +bids.csv row 7, column p_click: 'NaN'",
        cell("bids", 7, "p_click", "NaN"),
    ),
    Damage(
        "a NaN price", r"not_a_number.*\n +shown.csv row 3, column cost: 'nan'", cell("shown", 3, "cost", NAN)
    ),
    Damage(
        "a NaN click",
        r"not_a_number.*\n +shown.csv row 3, column clicked: 'nan'",
        cell("shown", 3, "clicked", NAN),
    ),
    Damage(
        "a NaN slot",
        r"not_a_number.*\n +shown.csv row 3, column place: 'nan'",
        cell("shown", 3, "place", NAN),
    ),
    Damage(
        "a NaN time",
        r"not_a_number.*\n +requests.csv row 3, column at: 'nan'",
        cell("requests", 3, "at", NAN),
    ),
    Damage(
        "a NaN in Parquet",
        r"not_a_number.*\n +bids.parquet row 1, column bid: nan",
        PARQUET,
        parquet(change=column("bid", lambda c: pa.array([NAN, *c.to_pylist()[1:]]))),
    ),
    # holes
    Damage("an empty bid", r"missing_value.*\n +bids.csv row 9, column bid", cell("bids", 9, "bid", "")),
    Damage(
        "NULL for a pCTR",
        r"missing_value.*\n +bids.csv row 9, column p_click",
        cell("bids", 9, "p_click", "NULL"),
    ),
    Damage("an empty request id", r"missing_value.*\n +bids.csv row 9, column id", cell("bids", 9, "id", "")),
    Damage(
        "an empty ad", r"missing_value.*\n +bids.csv row 9, column creative", cell("bids", 9, "creative", "")
    ),
    Damage(
        "an ad of spaces",
        r"missing_value.*\n +bids.csv row 9, column creative: '  '",
        cell("bids", 9, "creative", "  "),
    ),
    Damage(
        "an empty advertiser",
        r"missing_value.*\n +bids.csv row 9, column account",
        cell("bids", 9, "account", ""),
    ),
    Damage(
        "an empty time", r"missing_value.*\n +requests.csv row 9, column at", cell("requests", 9, "at", "")
    ),
    Damage(
        "nulls in Parquet",
        r"missing_value.*\n +bids.parquet row 2, column bid: None",
        PARQUET,
        parquet(change=column("bid", lambda c: pa.array([1.0, None, *c.to_pylist()[2:]]))),
    ),
    # ranges
    Damage(
        "a negative bid",
        r"negative_bid.*\n +bids.csv row 4, column bid: '-0.1'",
        cell("bids", 4, "bid", -0.1),
    ),
    Damage(
        "a negative price",
        r"negative_price.*\n +shown.csv row 4, column cost: '-5'",
        cell("shown", 4, "cost", -5),
    ),
    Damage(
        "pCTR in percent",
        r"outside_0_1.*: 40 .*\n +bids.csv row 2, column p_click",
        every("bids", "p_click", lambda p: 1 + p * 100),
    ),
    Damage(
        "a negative pCTR",
        r"outside_0_1.*\n +bids.csv row 2, column p_click: '-0.1'",
        cell("bids", 2, "p_click", -0.1),
    ),
    Damage(
        "slot 0 where they count from 1",
        r"slot_outside_page.*\n +shown.csv row 2, column place: '0'",
        cell("shown", 2, "place", 0),
    ),
    Damage(
        "a slot beyond the page",
        r"slot_outside_page.*\n +shown.csv row 3, column place: 2",
        cell("shown", 3, "place", 3),
    ),
    Damage(
        "a page without places",
        r"slot_outside_page.*\n +requests.csv row 2, column places: '0'",
        cell("requests", 2, "places", 0),
    ),
    # units
    Damage(
        "prices said to be in units",
        r"prices are about .* times the bids",
        mapped("cost, unit: micros", "cost, unit: unit"),
    ),
    Damage(
        "bids said to be in micros",
        r"prices are about .* times the bids",
        mapped("bid: bid", "bid: {column: bid, unit: micros}"),
    ),
    Damage(
        "prices said to be in CPM of micros",
        r"prices are about .* times the bids",
        mapped("cost, unit: micros", "cost, unit: cpm"),
    ),
    Damage(
        "bids in micros with prices in units",
        r"prices are about 1/[\d,]+ of the bids",
        both(every("bids", "bid", lambda b: round(b * 1e6))),
    ),
    Damage(
        "one part in micros",
        r"part-2.csv: its bids are about [\d,]+ times those of part-1.csv",
        PARTS,
        parts(scaled),
    ),
    Damage(
        "milliseconds said to be seconds",
        r"time_outside.*\n +requests.csv row 2, column at",
        every("requests", "at", lambda at: at * 1000),
    ),
    Damage(
        "seconds said to be milliseconds",
        r"time_outside.*\n +requests.csv row 2, column at",
        mapped("time: seconds", "time: milliseconds"),
    ),
    Damage(
        "a day that was not asked for",
        r"time_outside.*\n +requests.csv row 2",
        mapped("name: tuesday", "name: x\nbetween: [2026-03-04, 2026-03-05]"),
    ),
    # duplicates
    Damage(
        "an ad twice in a request", r"duplicate_ad.*\n +bids.csv row 42, column creative", again("bids", 2)
    ),
    Damage(
        "a request twice",
        r"duplicate_request.*\n +requests.csv row 10, column id: 'r1'",
        again("requests", 2),
    ),
    Damage(
        "an ad shown twice", r"shown_twice.*\n +shown.csv row 18, column creative", again("shown", 2, place=2)
    ),
    Damage(
        "two ads in one slot",
        r"two_ads_in_one_slot.*\n +shown.csv row \d+, column place",
        cell("shown", 3, "place", 1),
    ),
    Damage(
        "a file named twice",
        r"bids.csv is named twice",
        mapped("files: bids.csv", "files: [bids.csv, bids.csv]"),
    ),
    Damage(
        "parts that overlap",
        r"duplicate_ad.*\n +part-2.csv row 3",
        PARTS,
        parts(lambda lines: lines[0] + b"\n" + lines[1] + b"\n" + b"\n".join(lines[1:])),
    ),
    # tables that do not fit together
    Damage(
        "bids of an unknown request",
        r"unknown_request.*\n +bids.csv row 2, column id: 'r99'",
        cell("bids", 2, "id", "r99"),
    ),
    Damage(
        "outcomes of an unknown request",
        r"unknown_request.*\n +shown.csv row 2, column id: 'r99'",
        cell("shown", 2, "id", "r99"),
    ),
    Damage(
        "an outcome of an ad that did not bid",
        r"outcome_without_candidate.*\n +shown.csv row 2, column creative: 'ad99'",
        cell("shown", 2, "creative", "ad99"),
    ),
    Damage(
        "a request without candidates",
        r"request_without_candidates.*\n +requests.csv row 10, column id",
        again("requests", 2, id="r99"),
    ),
    Damage(
        "a winner that is missing among the bids",
        r"outcome_without_candidate.*\n +shown.csv row 2",
        lambda log: log.bids.remove(
            next(b for b in log.bids if b["id"] == "r1" and b["creative"] == log.shown[0]["creative"])
        ),
    ),
    Damage(
        "an ad of two advertisers",
        r"two_advertisers.*\n +bids.csv row \d+, column account: 'nobody'",
        lambda log: log.bids[-1].update(creative=log.bids[0]["creative"], account="nobody"),
    ),
    Damage(
        "a price above the bid",
        r"price_above_bid.*\n +shown.csv row 2, column cost: 9",
        cell("shown", 2, "cost", 9_000_000),
    ),
    Damage(
        "a conversion without a click",
        r"conversion_without_click.*\n +shown.csv row \d+, column bought",
        lambda log: (
            (
                [row.update(bought=1, clicked=0) for row in log.shown],
                mapped("click: clicked", "click: clicked\n    conversion: bought")(log),
            )[0]
            and None
        ),
    ),
    Damage(
        "a stage that does not fit",
        r"stage_disagrees.*\n +bids.csv row \d+, column stage",
        both(
            lambda log: [row.update(stage="retrieved") for row in log.bids] and None,
            mapped("pctr: p_click", "pctr: p_click, stage: stage"),
        ),
    ),
    Damage(
        "a stage nobody knows",
        r"unknown_value.*\n +bids.csv row 2, column stage: 'finals'",
        both(
            lambda log: [row.update(stage="finals") for row in log.bids] and None,
            mapped("pctr: p_click", "pctr: p_click, stage: stage"),
        ),
    ),
    # order and zones
    Damage("requests in another order", r"out_of_order", lambda log: log.requests.reverse(), verdict=MENDED),
    Damage(
        "bids in another order",
        "",
        lambda log: log.bids.sort(key=lambda row: (row["creative"], row["id"])),
        verdict=MENDED,
    ),
    Damage(
        "times of another zone",
        "",
        both(
            mapped("time: seconds", "time: iso"),
            every("requests", "at", lambda at: str(np.datetime64(at - 5 * 3600, "s")) + "-05:00"),
        ),
        verdict=MENDED,
    ),
    Damage(
        "zones here and there",
        "",
        both(
            mapped("time: seconds", "time: iso"),
            every(
                "requests",
                "at",
                lambda at: str(np.datetime64(at + 3600, "s")) + ("+01:00" if at % 1200 else ""),
            ),
        ),
        verdict=MENDED,
    ),
    Damage(
        "an hour that clocks skip",
        r"no_such_time.*\n +requests.csv row 2, column at: '2026-03-29T02:30:00'",
        at_hour("2026-03-29T02:30:00"),
    ),
    Damage(
        "an hour that clocks have twice", r"ambiguous_time", at_hour("2026-10-25T02:30:00"), verdict=MENDED
    ),
    # ids
    Damage(
        "ids as floats",
        r"id_as_float",
        both(
            every("requests", "id", lambda i: f"{i[1:]}.0"),
            every("bids", "id", lambda i: i[1:]),
            every("shown", "id", lambda i: i[1:]),
        ),
        verdict=MENDED,
    ),
    Damage(
        "ids with spaces", r"id_with_spaces", every("shown", "creative", lambda ad: f" {ad} "), verdict=MENDED
    ),
    Damage(
        "ids as broken floats in Parquet",
        r"wrong_type.*\n +bids.parquet row 1, column creative: 0.5",
        PARQUET,
        parquet(change=column("creative", lambda c: pa.array(np.arange(len(c)) + 0.5))),
    ),
    # columns
    Damage(
        "a missing column",
        r"mapping.yaml:10:1 bids.csv has no column 'p_clik'; did you mean 'p_click'",
        mapped("p_click", "p_clik"),
    ),
    Damage(
        "a column that one part lacks",
        r"part-2.csv has no column 'bid'",
        PARTS,
        parts(lambda lines: b"\n".join([lines[0].replace(b"bid", b"gebot"), *lines[1:]])),
    ),
    Damage(
        "swapped bid and pCTR",
        r"outside_0_1.*\n +bids.csv row 6, column p_click: '1.163'",
        swap("bids", "bid", "p_click"),
    ),
    Damage(
        "swapped request and ad",
        r"unknown_request.*: 40 .*\n +bids.csv row 2, column id: 'ad\d\d'",
        swap("bids", "id", "creative"),
    ),
    Damage(
        "swapped slot and price",
        r"slot_outside_page.*\n +shown.csv row 2, column place",
        swap("shown", "place", "cost"),
    ),
    Damage(
        "two columns of one name",
        r"bids.csv row 1: two columns are called 'bid'",
        spoil=line("bids", 1, lambda t: t.replace(b"account", b"bid")),
    ),
    # text
    Damage(
        "a byte order mark",
        r"byte_order_mark",
        spoil=recoded("bids", lambda b: b"\xef\xbb\xbf" + b),
        verdict=MENDED,
    ),
    Damage(
        "UTF-16",
        r"byte_order_mark",
        spoil=recoded("bids", lambda b: b.decode().encode("utf-16")),
        verdict=MENDED,
    ),
    Damage("CRLF", "", spoil=recoded("bids", lambda b: b.replace(b"\n", b"\r\n")), verdict=MENDED),
    Damage(
        "quoted commas",
        "",
        spoil=recoded("bids", lambda b: b.replace(b"owner 1", b'"owner, the ""1st"""')),
        verdict=MENDED,
    ),
    Damage(
        "a line break in quotes",
        "",
        spoil=recoded("bids", lambda b: b.replace(b"owner 1", b'"owner\n1"')),
        verdict=MENDED,
    ),
    Damage(
        "Latin-1",
        r"bids.csv row 3: byte 0xfc is not utf-8; set csv: \{encoding: latin-1\}",
        spoil=line("bids", 3, lambda t: t.replace(b"owner", b"K\xfcche")),
    ),
    Damage(
        "semicolons",
        r"bids.csv row 1: the header is one column; it looks parted by ';'",
        spoil=recoded("bids", lambda b: b.replace(b",", b";")),
    ),
    Damage(
        "a row too short",
        r"broken_row.*\n +bids.csv row 6, column all: '4 cells, the header has 5'",
        spoil=line("bids", 6, lambda t: t.rsplit(b",", 1)[0]),
    ),
    Damage(
        "a row too long",
        r"broken_row.*\n +bids.csv row 6, column all: '6 cells, the header has 5'",
        spoil=line("bids", 6, lambda t: t + b",7"),
    ),
    Damage(
        "the last row cut off", r"broken_row.*\n +bids.csv row 41", spoil=recoded("bids", lambda b: b[:-14])
    ),
    Damage(
        "no header", r"bids.csv has no column", spoil=line("bids", 1, lambda t: b"r0,ad00,owner 0,0.5,0.1")
    ),
    Damage("an empty file", r"bids.csv is empty", spoil=recoded("bids", lambda b: b"")),
    Damage(
        "a header alone",
        r"request_without_candidates.*: 8 ",
        spoil=recoded("bids", lambda b: b.split(b"\n")[0] + b"\n"),
    ),
    Damage(
        "zeros in the middle",
        r"wrong_type|missing_value|broken_row|not UTF|byte",
        spoil=line("bids", 5, lambda t: b"\0" * len(t)),
    ),
    # files
    Damage("gzip cut off", r"bids.csv.gz: damaged or cut off", GZ, zipped(cut=30)),
    Damage("gzip cut off at its end", r"bids.csv.gz: damaged or cut off", GZ, zipped(cut=5)),
    Damage("gzip with wrong bytes", r"bids.csv.gz: damaged or cut off", GZ, spoiled_gzip),
    Damage(
        "no gzip at all",
        r"bids.csv.gz: damaged or cut off",
        GZ,
        lambda folder: (folder / "bids.csv.gz").write_bytes((folder / "bids.csv").read_bytes()) and None,
    ),
    Damage(
        "Parquet cut off", r"bids.parquet: damaged or cut off", PARQUET, parquet(lambda b: b[: len(b) // 2])
    ),
    Damage(
        "Parquet with a flipped byte",
        r"bids.parquet",
        PARQUET,
        parquet(lambda b: b[:40] + bytes(x ^ 255 for x in b[40:400]) + b[400:]),
    ),
    Damage(
        "CSV called Parquet",
        r"bids.parquet: damaged or cut off",
        PARQUET,
        lambda folder: (folder / "bids.parquet").write_bytes((folder / "bids.csv").read_bytes()) and None,
    ),
    Damage(
        "a part that is missing",
        r"there is no file part-2.csv",
        mapped("files: bids.csv", "files: [bids.csv, part-2.csv]"),
    ),
    Damage(
        "a file of an unknown kind",
        r"bids.xlsx: what kind of file is it",
        mapped("files: bids.csv", "files: bids.xlsx"),
        lambda folder: (folder / "bids.xlsx").write_bytes(b"PK") and None,
    ),
    Damage("an empty part", r"empty_file", PARTS, parts(lambda lines: lines[0] + b"\n"), verdict=REFUSED),
)


def judge(damage: Damage, folder: Path) -> tuple[str, str]:
    """Import a damaged log: (refused or mended, what was said). Files are in `folder`; AssertionError if
    some stay.
    """
    from cascade_sim.foundation.errors import UserError
    from cascade_sim.logs.importing.market import import_market

    log = small_log()
    damage.change(log)
    mapping = log.write(folder / "log")
    damage.spoil(folder / "log")
    before = sorted(path.name for path in folder.rglob("*"))
    try:
        done = import_market(mapping, folder / "market")
    except UserError as error:
        left = sorted(path.name for path in folder.rglob("*"))
        assert left == before, f"{damage.name}: left behind {set(left) - set(before)}"
        return REFUSED, str(error)
    return MENDED, "\n".join(done.notes)


def tally(folder: Path) -> tuple[str, list[str]]:
    """One line about all of them, and those that got another verdict than they should."""
    verdicts: dict[str, int] = {REFUSED: 0, MENDED: 0}
    wrong: list[str] = []
    for i, damage in enumerate(DAMAGED):
        verdict, said = judge(damage, folder / str(i))
        verdicts[verdict] += 1
        if verdict != damage.verdict or not re.search(damage.words, said):
            wrong.append(f"{damage.name}: {verdict}: {said}")
    counted = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items())
    return f"{len(DAMAGED)} damaged logs: {counted}, {len(wrong)} judged wrongly, nothing half-written", wrong


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        sentence, failures = tally(Path(place))
    print(sentence, *failures, sep="\n")
    sys.exit(bool(failures))
