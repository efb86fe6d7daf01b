"""Single requests: which of them a knob changes, their pages before and after, why an ad is not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cascade_sim.cascade.serve import Arm
from cascade_sim.errors import UserError
from cascade_sim.live.figures import name_of, page_changed
from cascade_sim.live.session import Served, Session
from cascade_sim.phases.traffic import Arrivals
from cascade_sim.questions.reopen import PHASE
from cascade_sim.questions.trace import Request, ad_number, explain_ad, page_rows, true_best, whole_number

A_PAGE = 12
SORTS = ("request", "gain", "loss", "revenue")


@dataclass(frozen=True)
class Filter:
    """Which requests are looked for; None: any."""

    user: str | None = None
    ad: str | None = None
    advertiser: str | None = None
    least: float | None = None  # expected revenue, then
    most: float | None = None
    changed: bool = False
    sort: str = "request"


def find_requests(
    session: Session, arm: Arm, base: Arm, blocks: Sequence[int], wanted: Filter, offset: int = 0
) -> dict[str, Any]:
    """Requests that fit, a page of them from `offset` on, with what they bring before and after."""
    if wanted.sort not in SORTS:
        raise UserError(f"sort: expected one of {', '.join(SORTS)}, found {wanted.sort!r}")
    user = _code(session, "users", wanted.user, "user")
    ad = None if wanted.ad is None else ad_number(session.sim, wanted.ad)
    owner = _code(session, "advertisers", wanted.advertiser, "advertiser")
    parts = []
    for index in sorted(blocks):
        then, today, block = session.pages(arm)[index], session.pages(base)[index], session.block(index)
        changed = page_changed(then, today)
        fits = changed if wanted.changed else np.ones(len(changed), bool)
        if user is not None:
            fits = fits & (block.users == user)
        if ad is not None:
            fits = fits & _shows(then, today, lambda ads, ad=ad: ads == ad)
        if owner is not None:
            of = session.sim.world.advertiser
            fits = fits & _shows(
                then, today, lambda ads, of=of: (ads >= 0) & (of[np.maximum(ads, 0)] == owner)
            )
        revenue, before = then.columns["expected_revenue"], today.columns["expected_revenue"]
        if wanted.least is not None:
            fits = fits & (revenue >= wanted.least)
        if wanted.most is not None:
            fits = fits & (revenue <= wanted.most)
        rows = np.flatnonzero(fits)
        number = index * session.block_size + rows
        parts.append(
            np.stack([number, block.users[rows], before[rows], revenue[rows], changed[rows]]).astype(
                np.float64
            )
        )
    found = np.concatenate(parts, axis=1) if parts else np.zeros((5, 0))
    gain = found[3] - found[2]
    keys = {"request": found[0], "gain": -gain, "loss": gain, "revenue": -found[3]}
    order = np.argsort(keys[wanted.sort], kind="stable")[offset : offset + A_PAGE]
    return {
        "total": found.shape[1],
        "looked_at": sum(len(session.pages(arm)[index].ads) for index in blocks),
        "offset": offset,
        "rows": [
            {
                "request": int(number),
                "name": name_of(session, "requests", int(number)) if session.sim.replay else None,
                "user": name_of(session, "users", int(who)),
                "today": before,
                "then": then,
                "changed": bool(other),
            }
            for number, who, before, then, other in found[:, order].T.tolist()
        ],
    }


def _shows(then: Served, today: Served, is_wanted: Any) -> np.ndarray:
    shows: np.ndarray = is_wanted(then.ads).any(axis=1) | is_wanted(today.ads).any(axis=1)
    return shows


def _code(session: Session, kind: str, given: str | None, option: str) -> int | None:
    if given is None:
        return None
    replay = session.sim.replay
    if replay is not None:
        return replay.store.code(kind, given)
    n = session.sim.world.n_users if kind == "users" else session.sim.world.n_advertisers
    number = whole_number(given, option)
    if not 0 <= number < n:
        raise UserError(f"{option}: no {option} {given}; there are 0 to {n - 1}")
    return number


def request_of(session: Session, arms: Sequence[Arm], number: int) -> Request:
    """A request to be looked at: by itself where models say the same of it alone, else in its block."""
    index, row = session.place(number)
    block, local = session.block(index), index * session.block_size + row
    if row >= len(block):
        raise UserError(f"no request {number}")
    if all(_is_by_pair(arm) for arm in arms):
        return Request(block.take(np.array([row])), 0, local)
    return Request(block, row, local)


def _is_by_pair(arm: Arm) -> bool:
    """Whether what every stage says of a request does not depend, to the last bit, on those beside it."""
    return arm.size_rule is None and all(
        getattr(stage.scorer, "by_pair", False) and (stage.rates is None or stage.rates.by_pair)
        for stage in (arm.pre_ranking, arm.ranking)
    )


def look_at(session: Session, arm: Arm, base: Arm, number: int, ad: str | None) -> dict[str, Any]:
    """A request's page before and after and, with `ad`, that ad's way through the cascade then."""
    sim = session.sim
    request = request_of(session, (arm, base), number)
    decisions = {"today": sim.serve(request.block, base), "then": sim.serve(request.block, arm)}
    named = replace(arm, name="then")
    found: dict[str, Any] = {
        "request": request.index,
        "id": Arrivals.first_request(PHASE) + request.index,
        "name": name_of(session, "requests", request.index) if sim.replay else None,
        "user": name_of(session, "users", int(request.block.users[request.row])),
        "pages": {
            side: [_named(session, place) for place in page_rows(sim, request, decision)]
            for side, decision in decisions.items()
        },
        "is_truth_known": sim.replay is None,
    }
    if sim.replay is None:
        found["best"] = true_best(sim, request, named, decisions["then"])
    if ad is not None:
        code = ad_number(sim, ad)
        if sim.replay is not None:
            ids = sim.replay.candidates(request.alone.requests)[0]
            if code not in ids:
                raise UserError(f"ad {ad} is not among the logged candidates of this request")
        explained = explain_ad(sim, request, named, decisions["then"], code)
        found["ad"] = _named(session, explained)
    return found


def _named(session: Session, place: dict[str, Any]) -> dict[str, Any]:
    """With what ad and advertiser are called."""
    return {
        **place,
        "ad": name_of(session, "ads", place["ad"]),
        "advertiser": name_of(session, "advertisers", place["advertiser"]),
    }
