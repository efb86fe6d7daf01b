"""What the page shows of two ways to serve: measures with intervals, the funnel, who pays, the day.

Quick intervals need no resampling: a ratio of sums is linear in its requests but for terms of a smaller
order, so the spread of what each request adds to it gives the spread of the whole, and of lifts and
differences on the same requests likewise. An answer from some of the requests says where the figure of all of
them will be, so its interval has the factor for a finite population, sqrt(1 - n / N).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cascade_sim.analysis.report.readings import what_if_measures
from cascade_sim.analysis.statistics.estimates import finite
from cascade_sim.live.session import Pages, Served, Session

NORMAL = 1.959963984540054  # 97.5 % quantile
TIERS = ((0.01, "top 1 %"), (0.1, "next 9 %"), (0.5, "next 40 %"), (1.0, "the rest"))
MOVERS = 5
UNITS = {"hour": 3_600.0, "minute": 60.0, "second": 1.0}
STEPS = (3_600.0, 600.0, 60.0, 10.0, 1.0)  # of a curve over time; the longest that shows a course
MIN_STEPS, MAX_STEPS = 6, 24 * 14
Columns = dict[str, np.ndarray]


def answer(session: Session, arm: Pages, base: Pages, blocks: Sequence[int]) -> dict[str, Any]:
    """Everything about the two ways on blocks that both have served."""
    variant, current = ([pages[index] for index in blocks] for pages in (arm, base))
    n = sum(len(served.ads) for served in variant)
    return {
        "requests": n,
        "of": session.n_requests,
        "measures": measures(session, variant, current, blocks),
        "funnel": {"current": funnel(session, current), "variant": funnel(session, variant)},
        "payers": payers(session, variant, current),
        "pages_changed": changed_share(variant, current),
        "day": day(session, variant, current, blocks),
    }


def measures(
    session: Session,
    variant: list[Served],
    current: list[Served],
    blocks: Sequence[int],
    only: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """{measure: {"current", "variant", "lift", "difference"}}, each with value, low and high."""
    sides, share, unit = _sides(session, variant, current, blocks)
    known = session.metrics([name for name in sides[0] if name in sides[1]])
    named = {name: known[name] for name in what_if_measures(known) if not only or name in only}
    spread = _Spread(unit, share)
    found = {}
    for name, metric in named.items():
        (after, by_after), (before, by_before) = (
            _ratio(side[metric.parts[0]], side[metric.parts[1]]) for side in sides
        )
        lift, by_lift = math.nan, by_after
        if before:
            lift = after / before - 1.0
            by_lift = (by_after - by_before * (after / before)) / before  # all 0 where nothing moves
        found[name] = {
            "current": spread.interval(before, by_before),
            "variant": spread.interval(after, by_after),
            "lift": spread.interval(lift, by_lift),
            "difference": spread.interval(after - before, by_after - by_before),
        }
    return found


def _sides(
    session: Session, variant: list[Served], current: list[Served], blocks: Sequence[int]
) -> tuple[tuple[Columns, Columns], float, np.ndarray | None]:
    """The columns of both ways, the share of the requests that they are of, and the unit of each row.

    Of all requests they include the uncertainty of an imputation model, or of a fitted click model; of a
    whole log the rows are units already.
    """
    made = tuple(
        {name: np.concatenate([part.columns[name] for part in side]) for name in side[0].columns}
        for side in (variant, current)
    )
    n, units = len(made[0]["requests"]), session.evaluation.clusters
    unit = None
    if units is not None:
        rows = [
            session.block_size * index + np.arange(len(p.ads))
            for index, p in zip(blocks, variant, strict=True)
        ]
        unit = units.of_request[np.concatenate(rows)]
    if n < session.n_requests:
        return (made[0], made[1]), n / session.n_requests, unit
    tables = dict(zip(("variant", "current"), made, strict=True))
    if units is not None and unit is not None:
        tables = {
            key: {name: np.bincount(unit, column, units.n) for name, column in side.items()}
            for key, side in tables.items()
        }
    sums = {
        key: np.sum([part.uncertain for part in side if part.uncertain is not None], axis=0)
        for key, side in (("variant", variant), ("current", current))
        if side[0].uncertain is not None
    }
    tables = session.evaluation.uncertainty.widened(tables, sums, units, "current")
    return (tables["variant"], tables["current"]), 1.0, None


def _ratio(top: np.ndarray, bottom: np.ndarray) -> tuple[float, np.ndarray]:
    """A ratio of sums, and what each row adds to it."""
    total = float(bottom.sum())
    if not total:
        return math.nan, np.zeros(len(top))
    value = float(top.sum()) / total
    return value, (top - value * bottom) / total


class _Spread:
    """Intervals from what each row adds to a figure."""

    def __init__(self, unit: np.ndarray | None, share: float) -> None:
        self._unit, self._scale = unit, NORMAL * math.sqrt(max(1.0 - share, 0.0)) if share < 1 else NORMAL

    def interval(self, value: float, added: np.ndarray) -> dict[str, float | None]:
        """{"value", "low", "high"}; None where it is undefined."""
        if self._unit is not None:
            sums = np.bincount(self._unit, added)
            added = sums[np.bincount(self._unit) > 0]
        n = len(added)
        half = self._scale * math.sqrt(float(added @ added) * n / (n - 1)) if n > 1 else math.nan
        return {"value": finite(value), "low": finite(value - half), "high": finite(value + half)}


def funnel(session: Session, side: list[Served]) -> dict[str, Any]:
    """Ads by stage and request, and where the best of them went, as shares."""
    n = sum(len(part.ads) for part in side)
    sizes = np.sum([part.sizes for part in side], axis=0) / n
    found: dict[str, Any] = {
        "corpus": session.sim.world.n_ads,
        **dict(zip(session.evaluation.baseline.set_names, sizes.tolist(), strict=True)),
    }
    fates = [part.fates for part in side if part.fates is not None]
    if fates:
        lost = np.sum(fates, axis=0)
        shares = (lost / max(lost.sum(), 1)).tolist()
        found["best"] = dict(
            zip((*session.evaluation.baseline.stage_names[1:], "shown"), shares, strict=True)
        )
    return found


def payers(session: Session, variant: list[Served], current: list[Served]) -> dict[str, Any]:
    """What advertisers pay on either side, by tiers of what they pay now, and who moves most.

    Of a thousand requests, so that some and all can be compared with each other.
    """
    world, n = session.sim.world, sum(len(part.ads) for part in variant)
    per = 1000.0 / n

    def totals(side: list[Served], what: str) -> np.ndarray:
        total = np.zeros(world.n_advertisers)
        for part in side:
            shown = part.ads >= 0
            owner = world.advertiser[part.ads[shown]]
            values = part.paid if what == "paid" else part.clicks
            total += np.bincount(owner, values[shown], world.n_advertisers)
        return total * per

    paid = {"current": totals(current, "paid"), "variant": totals(variant, "paid")}
    clicks = {"current": totals(current, "clicks"), "variant": totals(variant, "clicks")}
    order = np.argsort(-paid["current"], kind="stable")
    paying = int((paid["current"] > 0).sum())
    groups, start = [], 0
    for share, name in TIERS:
        stop = max(math.ceil(share * paying), start)
        groups.append((name, order[start:stop]))
        start = stop
    groups.append(("pay nothing so far", order[start:]))
    moved = paid["variant"] - paid["current"]
    rows = [
        {
            "tier": name,
            "advertisers": len(members),
            **{f"paid_{side}": float(paid[side][members].sum()) for side in paid},
            **{f"clicks_{side}": float(clicks[side][members].sum()) for side in clicks},
            "pay_more": int((moved[members] > 1e-12).sum()),
            "pay_less": int((moved[members] < -1e-12).sum()),
        }
        for name, members in groups
        if len(members)
    ]
    ranked = np.argsort(moved, kind="stable")
    most = [*ranked[::-1][:MOVERS].tolist(), *ranked[:MOVERS].tolist()]
    movers: list[dict[str, Any]] = [
        {
            "advertiser": name_of(session, "advertisers", who),
            "paid_current": float(paid["current"][who]),
            "paid_variant": float(paid["variant"][who]),
            "clicks_current": float(clicks["current"][who]),
            "clicks_variant": float(clicks["variant"][who]),
        }
        for who in dict.fromkeys(most)
        if abs(moved[who]) > 1e-12
    ]
    movers.sort(key=lambda row: row["paid_current"] - row["paid_variant"])
    return {"tiers": rows, "movers": movers}


def name_of(session: Session, kind: str, code: int) -> str:
    """The name of an advertiser: by a number or, of an imported log, as the log has it."""
    return session.sim.environment.names.name(kind, code)


def changed_share(variant: list[Served], current: list[Served]) -> float:
    """Share of the requests whose page is another: other ads, other slots, or other prices."""
    changed = [page_changed(a, b) for a, b in zip(variant, current, strict=True)]
    return float(np.concatenate(changed).mean())


def page_changed(variant: Served, current: Served) -> np.ndarray:
    """[R] bool"""
    if variant.ads.shape != current.ads.shape:
        k = max(variant.ads.shape[1], current.ads.shape[1])
        sides = [(_wide(s.ads, k, -1), _wide(s.price_micros, k, 0)) for s in (variant, current)]
    else:
        sides = [(s.ads, s.price_micros) for s in (variant, current)]
    (ads, price), (old_ads, old_price) = sides
    changed: np.ndarray = ((ads != old_ads) | ((ads >= 0) & (price != old_price))).any(axis=1)
    return changed


def _wide(values: np.ndarray, k: int, empty: int) -> np.ndarray:
    wide = np.full((len(values), k), empty, values.dtype)
    wide[:, : values.shape[1]] = values
    return wide


def day(
    session: Session, variant: list[Served], current: list[Served], blocks: Sequence[int]
) -> dict[str, Any] | None:
    """Revenue and clicks of a thousand requests by hour; None where it does not matter when one comes.

    By minutes or seconds where a log is too short for hours.
    """
    if not session.sim.environment.is_timed:
        return None
    times = np.concatenate([session.block(index).times for index in blocks])
    lasts = float(times.max() - times.min())
    step = next((step for step in STEPS if lasts >= MIN_STEPS * step), STEPS[-1])
    start = math.floor(float(times.min()) / step)
    at = np.minimum(times // step - start, MAX_STEPS - 1).astype(np.int64)
    n = int(at.max()) + 1
    requests = np.bincount(at, minlength=n)
    unit, length = next((name, length) for name, length in UNITS.items() if step >= length)
    curves: dict[str, Any] = {
        "unit": unit,
        "start": start * step / length,
        "step": step / length,
        "requests": requests.tolist(),
    }
    for key, side in (("variant", variant), ("current", current)):
        for name, column in (("revenue", "expected_revenue"), ("clicks", "expected_clicks")):
            if any(column not in part.columns for part in side):
                continue
            sums = np.bincount(at, np.concatenate([part.columns[column] for part in side]), n)
            with np.errstate(divide="ignore", invalid="ignore"):
                curves[f"{name}_{key}"] = [finite(float(x)) for x in 1000.0 * sums / requests]
    return curves
