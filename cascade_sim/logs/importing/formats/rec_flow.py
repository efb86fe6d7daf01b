"""RecFlow's all_stage tables: every video of a request with the stage that it reached.

github.com/RecFlow-ICLR/RecFlow, README.md. Labels per video: realshow (exposed), rerank_pos, rerank_neg,
rank_pos, rank_neg (were in the rank stage), coarse_neg, prerank_neg (left out before it). Videos are the
ads, authors the advertisers; an effective view is read as the click.

- Exposed videos are in the order of rerank_index, and fill the page from its top.
- There are no bids: the log tells which videos went how far, and nothing about money.
- Timestamps are milliseconds where they are large, else seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cascade_sim.logs.importing.formats.adapter import Adapter, columns_of

RANKED = ("rerank_pos", "rerank_neg", "rank_pos", "rank_neg")
RETRIEVED = ("coarse_neg", "prerank_neg")
COLUMNS = (
    *("request_id", "request_timestamp", "user_id", "video_id", "author_id", "duration", "realshow"),
    *(*RANKED, *RETRIEVED, "rerank_index", "effective_view"),
)
MILLISECONDS = 1e11  # of such size seconds would be in the year 5138


def mapping(files: Sequence[Path]) -> dict[str, Any]:
    """For files such as all_stage/2024-01-13.feather."""
    ids = {"request": "request_id", "ad": "video_id"}
    return {
        "name": "rec-flow",
        "format": "rec-flow",
        "charging": "impression",
        "zone": "Asia/Shanghai",
        "time": "seconds",
        "requests": {"columns": {"request": "request_id", "time": "time", "user": "user_id"}},
        "candidates": {
            "files": [str(file.resolve()) for file in files],
            "columns": {**ids, "advertiser": "author_id", "stage": "stage"},
            "features": {"duration": "duration"},
        },
        "outcomes": {
            "columns": {
                **ids,
                "slot": {"column": "place", "packed": True},
                "shown": "realshow",
                "click": "view",
            }
        },
    }


def read(path: Path, wanted: Sequence[str]) -> Iterator[tuple[Mapping[str, pa.Array], NDArray[np.int64]]]:
    """The columns, and stage, place and time worked out of them; whole requests where they lie together."""
    for columns, rows in columns_of(path, COLUMNS):
        flag = {name: _numbers(columns[name]) == 1 for name in (*RANKED, *RETRIEVED, "realshow")}
        ranked = np.logical_or.reduce([flag[name] for name in RANKED])
        retrieved = np.logical_or.reduce([flag[name] for name in RETRIEVED])
        stage = np.where(flag["realshow"], "shown", np.where(ranked, "ranked", "retrieved"))
        is_labelled = flag["realshow"] | ranked | retrieved
        time = _numbers(columns["request_timestamp"])
        view = np.where(flag["realshow"], _numbers(columns["effective_view"]), np.nan)
        made = {
            "time": pa.array(np.where(time > MILLISECONDS, time / 1e3, time), from_pandas=True),
            "stage": pa.array(np.where(is_labelled, stage, "unlabelled")),
            "place": pa.array(
                np.where(flag["realshow"], _numbers(columns["rerank_index"]), np.nan), from_pandas=True
            ),
            "view": pa.array(view, from_pandas=True),
        }
        found = {**columns, **made}
        yield {name: found[name] for name in wanted}, rows


def _numbers(cells: pa.Array) -> NDArray[np.float64]:
    return np.asarray(cells.cast(pa.float64()).fill_null(np.nan))


ADAPTER = Adapter("rec-flow", mapping, dict.fromkeys(("requests", "candidates"), read))
