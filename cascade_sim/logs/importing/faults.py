"""What was found wrong with a log, by kind: how often, how much of its table, and where with what value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.foundation.errors import UserError, shortened
from cascade_sim.logs.store.format import ROW_BITS

EXAMPLES = 5  # of a kind that are kept

# What each kind means. A request that a faulty row belongs to is left out whole: an auction with a hole in it
# cannot be replayed.
KINDS: dict[str, str] = {
    "wrong_type": "a value that is not of its column's type",
    "missing_value": "an empty cell in a column that needs a value",
    "not_a_number": "NaN or infinite",
    "negative_bid": "a bid below 0",
    "negative_price": "a price below 0",
    "outside_0_1": "a probability outside 0 … 1",
    "not_0_or_1": "a click, conversion, display or exposure that is neither 0 nor 1",
    "unknown_value": "a value that the mapping's `values` does not list",
    "price_above_bid": "a price above the bid, beyond rounding",
    "click_without_display": "a click, conversion or exposure of an ad not shown, or an unexposed click",
    "conversion_without_click": "a conversion without a click",
    "shown_twice": "an ad shown twice in a request",
    "two_ads_in_one_slot": "two ads in one slot of a request",
    "slot_outside_page": "a slot that the page does not have",
    "duplicate_ad": "an ad twice among the candidates of a request",
    "duplicate_request": "a request id twice",
    "request_disagrees": "rows of one request that differ in what is the request's",
    "request_without_candidates": "a request without candidates",
    "unknown_request": "a row of a request that is not in `requests`",
    "outcome_without_candidate": "an outcome of an ad that is not among the request's candidates",
    "stage_disagrees": "a stage that does not fit what was shown",
    "two_advertisers": "an ad with two advertisers",
    "time_outside": "a time outside what can be",
    "no_such_time": "a time that the zone does not have (clocks were put forward)",
    "broken_row": "a row with more or fewer cells than the header",
    "negative_delay": "a conversion before its click",
    "negative_budget": "a budget below 0",
}
# What is put right, or taken to be right, and told.
CORRECTED: dict[str, str] = {
    "id_as_float": "an id written as 12.0, read as 12",
    "id_with_spaces": "an id with spaces around it, read without",
    "out_of_order": "requests that did not come in the order of time, sorted",
    "ambiguous_time": "a time that the zone has twice (clocks were put back), taken as the earlier",
    "slots_taken_from_shown": "the number of slots is not logged: the largest slot shown is taken",
    "byte_order_mark": "a byte order mark before the header, passed over",
    "empty_file": "a file without rows",
    "equal_row": "a row of a budget that was there already, passed over",
}


@dataclass
class Kind:
    """One kind of fault in one table."""

    rows: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


class Faults:
    """Counts by (table, kind), with the first few places."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.rows: dict[str, int] = {}  # read, by table
        self.found: dict[tuple[str, str], Kind] = {}
        self.corrected: dict[tuple[str, str], Kind] = {}
        self.refusals: list[str] = []  # what no share allows: damaged files, units that cannot be
        self.notes: list[str] = []

    def add(
        self,
        table: str,
        kind: str,
        sources: NDArray[np.int64],
        column: str,
        values: Sequence[Any] | None = None,
    ) -> None:
        """Rows with a fault, by their sources; `values` of the first few at least."""
        into = self.corrected if kind in CORRECTED else self.found
        assert kind in CORRECTED or kind in KINDS, kind
        entry = into.setdefault((table, kind), Kind())
        entry.rows += len(sources)
        for i in range(min(len(sources), EXAMPLES - len(entry.examples))):
            entry.examples.append(
                {
                    **self.place(int(sources[i])),
                    "column": column,
                    "value": "" if values is None else shortened(_text(values[i])),
                }
            )

    def place(self, source: int) -> dict[str, Any]:
        """File and row of a source."""
        number = source >> ROW_BITS
        file = self.files[number] if number < len(self.files) else ""
        return {"file": file, "row": source & ((1 << ROW_BITS) - 1)}

    def share(self, table: str, kind: str) -> float:
        """Of the rows of its table."""
        return self.found[table, kind].rows / max(self.rows.get(table, 0), 1)

    def above(self, allow: Mapping[str, float]) -> list[tuple[str, str]]:
        """The kinds whose share is above what is allowed."""
        return [key for key in self.found if self.share(*key) > allow.get(key[1], allow.get("all", 0.0))]

    def check(self, allow: Mapping[str, float], where: str) -> None:
        """UserError that lists all kinds if one of them is above its share, or a file is damaged."""
        above = self.above(allow)
        if not above and not self.refusals:
            return
        lines = [f"{where} is refused; nothing was written"]
        lines += self.refusals[:20]
        if len(self.refusals) > 20:
            lines.append(f"… and {len(self.refusals) - 20:,} more")
        for table, kind in self.found:
            share, allowed = self.share(table, kind), allow.get(kind, allow.get("all", 0.0))
            verdict = (
                f"allowed {allowed:.3g}" if (table, kind) in above else f"within the allowed {allowed:.3g}"
            )
            lines += self._lines(table, kind, self.found[table, kind], f"{share:.3g} of its rows, {verdict}")
        for (table, kind), entry in self.corrected.items():
            lines += self._lines(table, kind, entry, "corrected")
        if above:
            lines.append(
                "fix the rows, or leave their requests out with `allow: {KIND: share}` in the mapping"
            )
        raise UserError("\n".join(lines))

    def told(self) -> list[str]:
        """What was left out and corrected, for the summary."""
        lines: list[str] = []
        for (table, kind), entry in self.found.items():
            lines += self._lines(table, kind, entry, f"{self.share(table, kind):.3g} of its rows, left out")
        for (table, kind), entry in self.corrected.items():
            lines += self._lines(table, kind, entry, "corrected")
        return [*lines, *self.notes]

    def _lines(self, table: str, kind: str, entry: Kind, words: str) -> list[str]:
        meaning = {**KINDS, **CORRECTED}[kind]
        head = f"{table}: {kind}: {meaning}: {entry.rows:,} ({words})"
        return [head, *(f"  {example_text(example)}" for example in entry.examples[:3])]

    def as_json(self, allow: Mapping[str, float]) -> dict[str, Any]:
        """For validation.json."""

        def listed(found: Mapping[tuple[str, str], Kind]) -> list[dict[str, Any]]:
            return [
                {
                    "table": table,
                    "kind": kind,
                    "meaning": {**KINDS, **CORRECTED}[kind],
                    "rows": entry.rows,
                    "share": entry.rows / max(self.rows.get(table, 0), 1),
                    "allowed": allow.get(kind, allow.get("all", 0.0)) if kind in KINDS else None,
                    "examples": entry.examples,
                }
                for (table, kind), entry in found.items()
            ]

        return {
            "rows": dict(self.rows),
            "faults": listed(self.found),
            "corrected": listed(self.corrected),
            "notes": list(self.notes),
        }


def example_text(example: Mapping[str, Any]) -> str:
    """`log.csv row 17, column price: '-3'`."""
    value = f": {example['value']}" if example["value"] != "" else ""
    return f"{example['file']} row {example['row']:,}, column {example['column']}{value}"


def _text(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{float(value):.12g}"
    return repr(value) if isinstance(value, str) else str(value)
