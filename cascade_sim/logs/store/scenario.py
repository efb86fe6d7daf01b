"""The scenario of an imported log: what replays its log, as `scenario.yaml` in its folder says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cascade_sim.logs.store.format import OTHER_NAMES, RANKED, About

if TYPE_CHECKING:
    from cascade_sim.logs.store.store import LogStore

# The declared rule's names, and what the auction calls them.
FUSION = "declared"  # the name of a score that has a pCVR in it

AT_ONCE = 1 << 18  # candidates of the requests that are served together
MAX_AT_ONCE = 4_096  # requests


def logged_scenario(about: About, store: LogStore | None = None) -> dict[str, Any]:
    """The data of a scenario whose arm `logged` serves the log's requests as they were.

    Beside it an arm per further model, with that in the ranking stage.
    `store`: looked at for what `about` does not say: how many ads were ranked, and whether reserves differ by
    request. Without it all candidates are taken as ranked, and the reserve is the declared one.
    """
    largest = max(about.largest_request, 2)
    ranking = {"model": "logged" if about.has("pctr") else "constant", "bid": "opt"}
    fusions: dict[str, Any] = {}
    if about.rule is not None and about.rule.pcvr:
        ranking["fusion"] = FUSION
        fusions = {"fusions": {FUSION: {"pctr": 1.0, "pcvr": about.rule.pcvr, "bid": 1.0}}}
    return {
        "name": _name(about.name),
        "description": f"Replay of {about.name}: {about.counts.requests:,} logged requests from "
        f"{about.starts}.",
        "world": {"replay": {"log": ".", **_slot_effects(about)}},
        "traffic": {"block": _block(largest)},
        "cascade": {
            "retrieval": {"size": largest},
            "pre_ranking": _pre_ranking(about, store, largest),
            "ranking": ranking,
            "slots": max(about.slots, 1),
        },
        "auction": _auction(about, store),
        **fusions,
        "bidding": {"rule": "none"},
        "phases": {"cold_start": 0, "log": 0, "shadow": 0, "evaluate": max(about.counts.requests, 1)},
        "arms": {"logged": {}, **_further(about)},
    }


def _block(largest: int) -> int:
    """Requests served together: a power of two, with no more than AT_ONCE candidates where it can be."""
    return 2 ** int(min(max(AT_ONCE // largest, 1), MAX_AT_ONCE).bit_length() - 1)


def _name(name: str) -> str:
    """The name of a log as that of a study: small letters, digits, - and _."""
    made = "".join(
        sign if sign.isascii() and (sign.isalnum() or sign in "_-") else "-" for sign in name.lower()
    )
    return made[:100] or "market"


def _further(about: About) -> dict[str, Any]:
    """An arm for each further model of the user's: its scores in the ranking stage."""
    if about.level == "winners" or about.charging != "click":
        return {}  # nothing to put in another order by them
    return {f"score-{name}"[:100]: {"ranking": {"model": f"logged-{name}"}} for name in about.scores}


def _pre_ranking(about: About, store: LogStore | None, largest: int) -> dict[str, Any]:
    everyone = {"model": "constant", "bid": "none", "size": largest}
    if about.level != "pre_ranking" or not about.has("pre_score"):
        return everyone
    size = largest if store is None else max(int(ranked_counts(store).max(initial=2)), 2)
    bid = "none" if about.pre_score == "score" else "init" if about.has("init_bid") else "opt"
    return {"model": "logged_pre", "bid": bid, "size": size}


def ranked_counts(store: LogStore) -> Any:
    """How many candidates of each request were ranked.  [R] int64"""
    import numpy as np

    counts = np.zeros(store.n_requests, np.int64)
    for start, stop, columns in store.blocks(("stage",)):
        ends = store.first[start : stop + 1] - store.first[start]
        total = np.concatenate([[0], np.cumsum(columns["stage"] >= RANKED)])
        counts[start:stop] = total[ends[1:]] - total[ends[:-1]]
    return counts


def _slot_effects(about: About) -> dict[str, Any]:
    """The declared slot effects, which prices by vcg rest on; where there are fewer, the last goes on."""
    rule, slots = about.rule, max(about.slots, 1)
    if rule is None or rule.pricing != "vcg" or not rule.slot_effects:
        return {}
    given = list(rule.slot_effects[:slots])
    return {"slot_effects": given + [given[-1]] * (slots - len(given))}


def _auction(about: About, store: LogStore | None) -> dict[str, Any]:
    rule = about.rule
    declared: dict[str, Any] = {}
    if rule is not None:
        pricing = None if rule.pricing is None else OTHER_NAMES.get(rule.pricing, rule.pricing)
        declared = {
            "pricing": pricing,
            "squashing": rule.squashing,
            "reserve_cpc": rule.reserve_cpc,
            "score_floor": rule.score_floor,
            "rounding": rule.rounding,
            "rounding_how": rule.rounding_how if rule.rounding else None,
            "increment": rule.increment,
            "soft_floor": rule.soft_floor if pricing == "soft_floor" else None,
        }
    auction = {key: value for key, value in declared.items() if value is not None}
    if about.charging != "click":
        auction["charging"] = about.charging
    return {**auction, **reserve_section(about, store, auction.get("reserve_cpc"))}


def reserve_section(about: About, store: LogStore | None, declared: float | None) -> dict[str, Any]:
    """One reserve for all requests, or that each has its own."""
    import numpy as np

    least = about.bids_logged_above or 0.0
    if store is None:
        return {"reserve_cpc": max(declared or 0.0, least)} if declared or least else {}
    known = np.nan_to_num(store.requests["reserve"], nan=-1.0)
    if not (known >= 0).any():
        return {"reserve_cpc": max(declared or 0.0, least)} if declared or least else {}
    filled = np.where(known >= 0, known, declared or 0.0)
    if filled.min() == filled.max():
        return {"reserve_cpc": max(float(filled[0]), least)}
    return {"reserve_cpc": max(declared or 0.0, least), "logged_reserves": True}
