"""An OpenRTB 2.x bid stream as JSON lines: bid requests, bid responses and win notices, in any order.

    {"ts": 1772540000123, "id": "r1", "imp": [{"id": "1", "bidfloor": 0.5, "tagid": "top"}]}
    {"id": "r1", "seatbid": [{"seat": "512", "bid": [{"id": "b1", "impid": "1", "price": 2.1, "crid": "9"}]}]}
    {"id": "r1", "impid": "1", "bidid": "b1", "price": 1.35, "click": 0}

A line with `imp` is a BidRequest, one with `seatbid` a BidResponse, any other a win notice: what the macros
${AUCTION_ID}, ${AUCTION_IMP_ID}, ${AUCTION_BID_ID} or ${AUCTION_AD_ID} and ${AUCTION_PRICE} were filled
with, and `click` where it is known. Requests have no time of their own: `ts`, in milliseconds, is the
extract's.

Each imp is an auction of one slot. Prices and floors are CPM; the ad is the creative (crid, adid, else the
bid's id) of its seat, and the advertiser the seat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cascade_sim.logs.importing.formats.adapter import Adapter
from cascade_sim.logs.importing.sources import BATCH, Damaged, bytes_stream

Row = dict[str, Any]


def mapping(files: Sequence[Path]) -> dict[str, Any]:
    """For .jsonl or .jsonl.gz files."""
    where = [str(file.resolve()) for file in files]
    ids = {"request": "request", "ad": "ad"}
    return {
        "name": "open-rtb",
        "format": "open-rtb",
        "charging": "impression",
        "money": "cpm",
        "time": "milliseconds",
        "requests": {
            "files": where,
            "columns": {"request": "request", "time": "ts", "user": "user", "placement": "placement",
                        "slots": {"constant": 1}, "reserve": "floor"},
        },
        "candidates": {"files": where, "columns": {**ids, "advertiser": "seat", "bid": "price"}},
        "outcomes": {
            "files": where,
            "columns": {**ids, "slot": {"constant": 0}, "price": "price", "click": "click"},
        },
    }  # fmt: skip


def _requests(line: Row) -> Iterator[Row]:
    site = line.get("site") or line.get("app") or {}
    for imp in line.get("imp") or ():
        yield {
            "request": f"{line.get('id')}/{imp.get('id')}",
            "ts": line.get("ts"),
            "user": (line.get("user") or {}).get("id"),
            "placement": imp.get("tagid") or site.get("id"),
            "floor": imp.get("bidfloor", 0.0),
        }


def _candidates(line: Row) -> Iterator[Row]:
    for seat in line.get("seatbid") or ():
        for bid in seat.get("bid") or ():
            yield {
                "request": f"{line.get('id')}/{bid.get('impid')}",
                "ad": _ad(seat.get("seat"), bid),
                "seat": str(seat.get("seat") or ""),
                "price": bid.get("price"),
                "bidid": bid.get("id"),
            }


def _ad(seat: Any, bid: Row) -> str:
    return f"{seat or ''}:{bid.get('crid') or bid.get('adid') or bid.get('id')}"


def read_requests(path: Path, wanted: Sequence[str]) -> Iterator[Any]:
    """Auctions: a row per imp."""
    yield from _batches(path, wanted, lambda line: _requests(line) if "imp" in line else iter(()))


def read_candidates(path: Path, wanted: Sequence[str]) -> Iterator[Any]:
    """Bids."""
    yield from _batches(path, wanted, lambda line: _candidates(line) if "seatbid" in line else iter(()))


def read_outcomes(path: Path, wanted: Sequence[str]) -> Iterator[Any]:
    """Wins. A notice names the bid's id, which leads to its ad: those of all bids stay in memory."""
    ads: dict[tuple[str, str], str] = {}
    for _, line in _lines(path):
        if "seatbid" in line:
            for bid in _candidates(line):
                ads[bid["request"], str(bid["bidid"])] = bid["ad"]

    def wins(line: Row) -> Iterator[Row]:
        if "imp" in line or "seatbid" in line:
            return
        request = f"{line.get('id')}/{line.get('impid')}"
        bid = line.get("bidid")
        ad = ads.get((request, str(bid))) if bid is not None else _ad(line.get("seat"), line)
        yield {
            "request": request,
            "ad": ad if ad is not None else f"bid {bid}",
            "price": line.get("price"),
            "click": line.get("click"),
        }

    yield from _batches(path, wanted, wins)


def _lines(path: Path) -> Iterator[tuple[int, Row]]:
    with bytes_stream(path) as stream:
        for number, text in enumerate(_split(stream), start=1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise Damaged(f"{path.name} row {number:,}: not JSON: {error}") from None
            if not isinstance(line, dict):
                raise Damaged(f"{path.name} row {number:,}: not an object {{…}}")
            yield number, line


def _split(stream: Any) -> Iterator[bytes]:
    rest = b""
    while data := stream.read(1 << 20):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _batches(path: Path, wanted: Sequence[str], rows_of: Callable[[Row], Iterator[Row]]) -> Iterator[Any]:
    held: list[Row] = []
    at: list[int] = []
    for number, line in _lines(path):
        try:
            for row in rows_of(line):
                held.append(row)
                at.append(number)
        except AttributeError:
            raise Damaged(f"{path.name} row {number:,}: imp, seatbid and bid are lists of objects") from None
        if len(held) >= BATCH:
            yield _arrays(held, wanted), np.array(at, np.int64)
            held, at = [], []
    if held:
        yield _arrays(held, wanted), np.array(at, np.int64)


def _arrays(rows: Sequence[Row], wanted: Sequence[str]) -> Mapping[str, pa.Array]:
    return {name: _array([row[name] for row in rows]) for name in wanted}


def _array(values: Sequence[Any]) -> pa.Array:
    """Numbers as numbers; anything else as text, where what is no number will be named."""
    if all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values
    ):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


Rows = NDArray[np.int64]
ADAPTER = Adapter(
    "open-rtb",
    mapping,
    {"requests": read_requests, "candidates": read_candidates, "outcomes": read_outcomes},
)
