"""A small log of auctions as a platform could have it: three tables of CSV, drawn with keys, priced by
GSP.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.foundation import random as draws

START = 1_772_492_400  # 2026-03-03T00:00:00+01:00
SLOTS, ADS, OWNERS = 2, 12, 4

MAPPING = """\
name: tuesday
zone: Europe/Berlin
currency: EUR
charging: click
time: seconds
rule: {pricing: gsp, squashing: 1}
requests:
  files: requests.csv
  columns: {request: id, time: at, user: uid, placement: where, slots: places}
candidates:
  files: bids.csv
  columns: {request: id, ad: creative, advertiser: account, bid: bid, pctr: p_click}
outcomes:
  files: shown.csv
  columns:
    request: id
    ad: creative
    slot: {column: place, base: 1}
    price: {column: cost, unit: micros}
    click: clicked
"""

Row = dict[str, Any]


@dataclass
class SmallLog:
    """Rows of the three tables, to be changed before they are written."""

    requests: list[Row] = field(default_factory=list)
    bids: list[Row] = field(default_factory=list)
    shown: list[Row] = field(default_factory=list)
    mapping: str = MAPPING

    def tables(self) -> dict[str, list[Row]]:
        return {"requests": self.requests, "bids": self.bids, "shown": self.shown}

    def write(self, folder: Path) -> Path:
        """The tables and the mapping; its path."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in self.tables().items():
            (folder / f"{name}.csv").write_text(csv_text(rows), encoding="utf-8", newline="")
        (folder / "mapping.yaml").write_text(self.mapping)
        return folder / "mapping.yaml"


def small_log(n: int = 8, per_request: int = 5) -> SmallLog:
    """Requests r1, r2, … every ten minutes; the two best of bid * pCTR are shown and pay by GSP."""
    log = SmallLog()
    for r in range(1, n + 1):
        log.requests.append(
            {"id": f"r{r}", "at": START + 600 * r, "uid": f"u{r % 3}", "where": "top", "places": SLOTS}
        )
        ads = np.argsort(draws.uniform(1, "ads", r, np.arange(ADS)))[:per_request]
        bid = np.round(0.2 + draws.uniform(2, "bid", r, ads), 3)
        pctr = np.round(0.02 + 0.2 * draws.uniform(3, "pctr", r, ads), 4)
        order = np.argsort(-bid * pctr)
        log.bids += [
            {
                "id": f"r{r}",
                "creative": f"ad{ad:02}",
                "account": f"owner {ad % OWNERS}",
                "bid": float(b),
                "p_click": float(p),
            }
            for ad, b, p in zip(ads, bid, pctr, strict=True)
        ]
        for place in range(SLOTS):
            mine, next_one = order[place], order[place + 1]
            price = float(bid[next_one] * pctr[next_one] / pctr[mine])
            is_clicked = bool(draws.uniform(4, "click", r, ads[mine]) < 0.3)
            log.shown.append(
                {
                    "id": f"r{r}",
                    "creative": f"ad{ads[mine]:02}",
                    "place": place + 1,
                    "cost": round(price * 1e6),
                    "clicked": int(is_clicked),
                }
            )
    return log


def csv_text(rows: list[Row]) -> str:
    """As CSV with a header."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
