"""Open Bandit slates: timestamp, item_id, position, click, propensity_score (or action_prob).

github.com/st-tech/zr-obp, obd/README.md. Each row is an impression of one item in one of three places of a
page, with the probability that the policy put it there. Rows of one page are not tied together in the data,
so each is a request of its own, with three slots of which one is known. There are neither bids nor prices:
the log can answer off-policy questions about clicks, and nothing about money.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cascade_sim.logs.importing.formats.adapter import Adapter, columns_of, names_in
from cascade_sim.logs.importing.sources import Damaged

PROPENSITIES = ("propensity_score", "action_prob")  # as the data and as its description call it
COLUMNS = ("timestamp", "item_id", "position", "click")
FEATURES = ("user_feature_0", "user_feature_1", "user_feature_2", "user_feature_3")
SLOTS = 3


def mapping(files: Sequence[Path]) -> dict[str, Any]:
    """For files such as random/all/all.csv."""
    ids: dict[str, Any] = {"request": {"row": True}, "ad": "item_id"}
    return {
        "name": "open-bandit",
        "format": "open-bandit",
        "charging": "impression",
        "zone": "Asia/Tokyo",
        "requests": {"columns": {"request": {"row": True}, "time": "timestamp", "segment": "segment",
                                 "slots": {"constant": SLOTS}}},
        "outcomes": {
            "files": [str(file.resolve()) for file in files],
            "columns": {**ids, "slot": {"column": "position", "base": 1}, "click": "click",
                        "propensity": "propensity"},
        },
    }  # fmt: skip


def read(path: Path, wanted: Sequence[str]) -> Iterator[tuple[Mapping[str, pa.Array], NDArray[np.int64]]]:
    """The columns of the data, with the propensity under either name, and the user's features as a
    segment.
    """
    names = names_in(path)
    propensity = next((name for name in PROPENSITIES if name in names), None)
    if propensity is None:
        raise Damaged(f"{path.name} has no column {' or '.join(PROPENSITIES)}; it has {', '.join(names)}")
    features = [name for name in FEATURES if name in names]
    for columns, rows in columns_of(path, [*COLUMNS, propensity, *features]):
        found = {
            **columns,
            "propensity": columns[propensity],
            "segment": _segment(columns, features, len(rows)),
        }
        yield {name: found[name] for name in wanted}, rows


def _segment(columns: Mapping[str, pa.Array], features: Sequence[str], n: int) -> pa.Array:
    """What the policy could see of the user, hashed as the data have it."""
    import pyarrow.compute as pc

    if not features:
        return pa.nulls(n, pa.string())
    texts = [columns[name].cast(pa.string()).fill_null("") for name in features]
    return pc.binary_join_element_wise(*texts, " ") if len(texts) > 1 else texts[0]


ADAPTER = Adapter("open-bandit", mapping, dict.fromkeys(("requests", "outcomes"), read))
