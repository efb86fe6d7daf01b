"""In how many worlds an order holds: of arms by a metric, pair by pair and as a whole.

>>> found = order_between_worlds({"a": [1.0, 1.0, 4.0], "b": [2.0, 3.0, 3.0]}, is_relative=False)
>>> found["order"], found["whole"], found["pairs"][0]["kept"]
(['b', 'a'], 2, 2)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

from cascade_sim.analysis.statistics.bootstrap import seed_spread
from cascade_sim.analysis.statistics.estimates import finite


def order_between_worlds(
    values: Mapping[str, Sequence[float | None]], *, is_relative: bool
) -> dict[str, Any] | None:
    """The order of names by their mean over worlds, best (highest) first, and how firm it is.

    values: {name: [its value in each world]}, those without a value in some world are left out; those that
    are alike in every world have no order and are one, as "a = b". `pairs` has every pair in that order:
    in how many worlds the first is strictly ahead (`kept`), and the spread between worlds of the paired
    difference (`seed_spread`), relative to the second if `is_relative`. `whole`: worlds
    in which all neighbours are in order. None with fewer than two names or worlds.
    """
    defined = {name: [v for v in map(finite, row) if v is not None] for name, row in values.items()}
    alike: dict[tuple[float, ...], list[str]] = {}
    for name, row in defined.items():
        if len(row) == len(values[name]):
            alike.setdefault(tuple(row), []).append(name)
    known = {" = ".join(names): row for row, names in alike.items()}
    n = max((len(row) for row in known.values()), default=0)
    if len(known) < 2 or n < 2:
        return None
    order = sorted(known, key=lambda name: -math.fsum(known[name]))  # stable: ties in the file's order

    def ahead(first: str, second: str) -> list[bool]:
        return [a > b for a, b in zip(known[first], known[second], strict=True)]

    def gaps(first: str, second: str) -> list[float | None]:
        pairs = zip(known[first], known[second], strict=True)
        return [(a / b - 1 if b else None) if is_relative else a - b for a, b in pairs]

    neighbours = [ahead(*pair) for pair in pairwise(order)]
    return {
        "worlds": n,
        "order": order,
        "whole": sum(all(kept) for kept in zip(*neighbours, strict=True)),
        "is_relative": is_relative,
        "pairs": [
            {
                "first": first,
                "second": second,
                "kept": sum(ahead(first, second)),
                "difference": seed_spread(gaps(first, second)),
            }
            for first, second in combinations(order, 2)
        ],
    }
