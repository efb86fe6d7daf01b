"""Single requests: which of them a parameter changes, their pages before and after, why an ad is not
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cascade_sim.cascade.scorers import ModelScorer, Scorer
from cascade_sim.cascade.serve import Arm, Block, Stage
from cascade_sim.diagnostics.reopen import PHASE
from cascade_sim.diagnostics.trace import Request, ad_number, explain_ad, page_rows, true_best
from cascade_sim.environments.arrivals import FIRST_REQUEST
from cascade_sim.foundation.errors import UserError
from cascade_sim.live.figures import name_of, page_changed
from cascade_sim.live.session import Pages, Served, Session

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
    session: Session, arm: Pages, base: Pages, blocks: Sequence[int], wanted: Filter, offset: int = 0
) -> dict[str, Any]:
    """Requests that fit, a page of them from `offset` on, with what they bring before and after."""
    if wanted.sort not in SORTS:
        raise UserError(f"sort: expected one of {', '.join(SORTS)}, found {wanted.sort!r}")
    user = _code(session, "users", wanted.user, "user")
    ad = None if wanted.ad is None else ad_number(session.sim, wanted.ad)
    owner = _code(session, "advertisers", wanted.advertiser, "advertiser")
    parts = []
    for index in sorted(blocks):
        variant, current, block = arm[index], base[index], session.block(index)
        changed = page_changed(variant, current)
        fits = changed if wanted.changed else np.ones(len(changed), bool)
        if user is not None:
            fits = fits & (block.users == user)
        if ad is not None:
            fits = fits & _shows(variant, current, lambda ads, ad=ad: ads == ad)
        if owner is not None:
            of = session.sim.world.advertiser
            fits = fits & _shows(
                variant, current, lambda ads, of=of: (ads >= 0) & (of[np.maximum(ads, 0)] == owner)
            )
        revenue, before = variant.columns["expected_revenue"], current.columns["expected_revenue"]
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
    gain, is_named = found[3] - found[2], session.sim.environment.names.are_given
    keys = {"request": found[0], "gain": -gain, "loss": gain, "revenue": -found[3]}
    order = np.argsort(keys[wanted.sort], kind="stable")[offset : offset + A_PAGE]
    return {
        "total": found.shape[1],
        "looked_at": sum(len(arm[index].ads) for index in blocks),
        "offset": offset,
        "rows": [
            {
                "request": int(number),
                "name": name_of(session, "requests", int(number)) if is_named else None,
                "user": name_of(session, "users", int(who)),
                "current": before,
                "variant": variant,
                "changed": bool(other),
            }
            for number, who, before, variant, other in found[:, order].T.tolist()
        ],
    }


def _shows(variant: Served, current: Served, is_wanted: Any) -> np.ndarray:
    shows: np.ndarray = is_wanted(variant.ads).any(axis=1) | is_wanted(current.ads).any(axis=1)
    return shows


def _code(session: Session, kind: str, given: str | None, option: str) -> int | None:
    if given is None:
        return None
    n = session.sim.world.n_users if kind == "users" else session.sim.world.n_advertisers
    return session.sim.environment.names.code(kind, given, option, n)


class Pinned:
    """A model that is asked about one request of a block as if the whole block were there.

    A net may say something else, in the last bit, of a request alone. So whatever is asked, the whole block
    is put to it, with candidates in this row only, and what it said of an ad is kept.
    """

    by_pair = True

    def __init__(self, scorer: Scorer, block: Block, row: int) -> None:
        self.name, self.link = scorer.name, scorer.link
        self._scorer, self._block, self._row = scorer, block, row
        self._known: dict[int, Any] = {}

    def predict(self, block: Block, ids: np.ndarray) -> np.ndarray:
        new = sorted({ad for ad in ids.ravel().tolist() if ad not in self._known})
        if new:
            table = np.full((len(self._block), len(new)), -1, np.int32)
            table[self._row] = new
            said = self._scorer.predict(self._block, table)[self._row]
            self._known.update(zip(new, said, strict=True))
        return np.array([[self._known[ad] for ad in row] for row in ids.tolist()])


def by_itself(session: Session, arms: Sequence[Arm], number: int) -> tuple[Request, list[Arm]]:
    """A request to be looked at, and the arms to serve it: alone, with its models pinned to its block.

    In its block, which takes longer, where a model says of a pair what depends on the pairs beside it.
    """
    index, row = session.place(number)
    block, local = session.block(index), index * session.block_size + row
    if not all(_is_by_pair(arm) for arm in arms):
        return Request(block, row, local), list(arms)
    pins: dict[Scorer, Pinned] = {}

    def pinned(stage: Stage) -> Scorer:
        if not isinstance(stage.scorer, ModelScorer):
            return stage.scorer  # no net is asked
        return pins.setdefault(stage.scorer, Pinned(stage.scorer, block, row))

    alone = [arm.with_scorers(pinned) for arm in arms]
    return Request(block.take(np.array([row])), 0, local), alone


def _is_by_pair(arm: Arm) -> bool:
    """Whether what its stages say of a request and an ad depends on these two alone."""
    return not arm.has_size_rule and all(
        getattr(stage.scorer, "by_pair", False) and stage.rates is None for stage in arm.stages
    )


def look_at(session: Session, arm: Arm, base: Arm, number: int, ad: str | None) -> dict[str, Any]:
    """A request's page before and after and, with `ad`, that ad's way through the cascade then."""
    sim, environment = session.sim, session.sim.environment
    request, (arm, base) = by_itself(session, (arm, base), number)
    decisions = {"current": sim.serve(request.block, base), "variant": sim.serve(request.block, arm)}
    named = replace(arm, name="variant")
    found: dict[str, Any] = {
        "request": request.index,
        "id": FIRST_REQUEST[PHASE] + request.index,
        "name": name_of(session, "requests", request.index) if environment.names.are_given else None,
        "user": name_of(session, "users", int(request.block.users[request.row])),
        "pages": {
            side: [_named(session, place) for place in page_rows(sim, request, decision)]
            for side, decision in decisions.items()
        },
        "is_truth_known": environment.has("truth"),
    }
    if environment.has("truth"):
        found["best"] = true_best(sim, request, named, decisions["variant"])
    if ad is not None:
        code = ad_number(sim, ad)
        there = environment.corpus(request.alone)
        if code not in there:
            raise UserError(environment.absent(code, request.index, len(there)))
        explained = explain_ad(sim, request, named, decisions["variant"], code)
        found["ad"] = _named(session, explained)
    return found


def _named(session: Session, place: dict[str, Any]) -> dict[str, Any]:
    """With what ad and advertiser are called."""
    return {
        **place,
        "ad": name_of(session, "ads", place["ad"]),
        "advertiser": name_of(session, "advertisers", place["advertiser"]),
    }
