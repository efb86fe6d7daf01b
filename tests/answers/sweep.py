"""Four combinations of a sweep, with invented numbers."""

X, Y = "expected_ctr", "expected_revenue_per_request"


def entry(value, lift=None, half=0.1):
    if value is None:
        return {"value": None, "low": None, "high": None, "lift": {"value": None, "low": None, "high": None}}
    made = {"value": value, "low": value - half * value, "high": value + half * value}
    return (
        made if lift is None else {**made, "lift": {"value": lift, "low": lift - 0.02, "high": lift + 0.02}}
    )


def findings(points, x=X, y=Y):
    """Cells slots=1, 2, …; points are (x, y), lifts relative to the first."""
    cells = []
    for i, (a, b) in enumerate(points):
        measures = {
            name: entry(value, None if i == 0 or None in (value, points[0][k]) else value / points[0][k] - 1)
            for k, (name, value) in enumerate(((x, a), (y, b)))
        }
        cells.append(
            {"name": f"slots={i + 1}", "settings": {"cascade.slots": str(i + 1)}, "measures": measures}
        )
    values = [cell["settings"]["cascade.slots"] for cell in cells]
    return {
        "name": "quick", "arm": "ltr", "seeds": [1, 2, 3], "requests": 2048, "cells": cells,
        "axes": [{"path": "cascade.slots", "values": values}],
    }  # fmt: skip


FOUR = [(0.10, 1.0), (0.08, 1.2), (0.07, 1.1), (0.10, 0.9)]
