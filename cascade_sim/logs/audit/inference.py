"""Which rule a log follows, where none is declared: fitted on half of the requests, judged on the other half.

Every pricing rule is given the parameters with which it explains the most winners and prices: the exponent,
the reserve and so on are each where the most logged prices agree (`agreement`), and parts of a rule are taken
up one by one, as long as they explain more. On the other half the rules are compared with each other. Two
rules that give the same pages there are indistinguishable by this log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cascade_sim.auction import MICROS, PRICINGS, floor_micros
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.kernels import take_columns
from cascade_sim.logs.audit.agreement import Agreement
from cascade_sim.logs.audit.changes import (
    LEAST,
    Change,
    effects_of,
    filters,
    increments,
    reserves,
    roundings,
    score_floors,
    soft_floors,
    squashing_by_order,
    squashing_of,
    unit_of,
)
from cascade_sim.logs.audit.reasons import MAX_CELLS, Context, digits_of, is_list_priced, possible
from cascade_sim.logs.audit.replay import (
    Auctions,
    blocks,
    chosen_rows,
    listed,
    load,
    match_pages,
    priced,
    replay,
)
from cascade_sim.logs.audit.rule import WAYS, Rounding, Rule, default_squashing

if TYPE_CHECKING:
    from cascade_sim.logs.store.store import LogStore

MAX_FITTED = 6_000  # requests that parameters are fitted to
ROUNDS = 5
MIN_GAIN = 0.001  # of the places: what a further part of a rule has to explain
SURE = 0.05


@dataclass(frozen=True)
class Fitted:
    """A rule with the parameters of the fit, and what the log says of each."""

    rule: Rule
    details: dict[str, Any] = field(default_factory=dict)  # {parameter: {value, low, high, places, by}}
    gained: int = 0  # winners and prices explained, of those fitted to


@dataclass
class Fit:
    """A rule on the requests that did not choose it."""

    fitted: Fitted
    is_declared: bool = False  # not fitted, but what the log says of itself
    winners: int = 0
    prices: int = 0
    priced: int = 0  # prices that it can be held to
    pages: int = 0
    differs: int = 0  # places where its ad or price is not the best rule's
    only_this_rule: int = 0  # of those, where it alone is right
    only_best_rule: int = 0


@dataclass(frozen=True)
class Inference:
    """All rules, the one that explains most first, and what the log cannot tell."""

    fits: tuple[Fit, ...]
    requests: int  # held out
    winners: int
    prices: int
    fitted_to: int
    notes: tuple[str, ...]
    is_identified: bool

    @property
    def best(self) -> Fitted:
        return self.fits[0].fitted


def infer(store: LogStore, context: Context, declared: Rule | None = None) -> Inference:
    """The rule of a log; a declared one is compared with it."""
    rows = np.arange(store.n_requests)
    is_chooser = draws.uniform(0, "audit half", rows) < 0.5
    if is_chooser.all() or not is_chooser.any():  # a log of a few requests
        is_chooser = rows % 2 == 0
    width = max(1, store.about.largest_request)
    most = int(np.clip(MAX_CELLS // width, 100, MAX_FITTED))
    choosers = chosen_rows(rows[is_chooser], most)
    auctions = load(store, choosers)
    fitted = [made for pricing in PRICINGS if (made := fit(auctions, pricing, context)) is not None]
    # A soft floor is gsp with one thing more, which has to explain as much as any other part of a rule.
    of_gsp = max(made.gained for made in fitted if made.rule.pricing == "gsp")
    more = max(LEAST, MIN_GAIN * 2 * int((auctions.shown >= 0).sum()))
    fitted = [
        made for made in fitted if made.rule.pricing != "soft_floor" or not 0 < made.gained - of_gsp < more
    ]
    fitted.sort(key=lambda made: (-made.gained, PRICINGS.index(made.rule.pricing)))
    fits = [Fit(made) for made in fitted]
    if declared is not None:
        fits.append(Fit(Fitted(declared), is_declared=True))
    return judge(store, fits, rows[~is_chooser], len(choosers), auctions)


def fit(auctions: Auctions, pricing: str, context: Context) -> Fitted | None:
    """The parameters with which a pricing rule explains the most; None for one of which nothing is seen."""
    squashing = 0.0 if auctions.pctr is None else default_squashing(context.charging)
    rule = Rule(pricing, squashing, auctions.pcvr_exponent)
    known = priced(auctions, rule)
    unit = unit_of(auctions.price[known], take_columns(auctions.bid, auctions.shown, 0.0)[known])
    rule = rule.changed(rounding=Rounding(unit))
    rule, _ = _own_parameters(auctions, rule, is_loose=True)
    if pricing == "soft_floor" and not rule.soft_floor:
        return None
    gained = explained_places(auctions, rule)
    for how in WAYS:
        other = rule.changed(rounding=Rounding(unit, how))
        more = explained_places(auctions, other)
        if more > gained:
            rule, gained = other, more
    rule, gained = _if_better(auctions, rule, gained)
    rule, gained = _with_step_of_a_unit(auctions, rule, gained)
    told: dict[str, Any] = {}
    total = 2 * int((auctions.shown >= 0).sum())
    for _ in range(ROUNDS):
        best: tuple[int, Change] | None = None
        for change in _parts(auctions, rule, context):
            more = explained_places(auctions, change.on(rule))
            if best is None or more > best[0]:
                best = (more, change)
        if best is None or best[0] - gained < max(LEAST, MIN_GAIN * total):
            break
        rule, gained = best[1].on(rule), best[0]
        told[best[1].reason] = dict(best[1].details)
        rule, gained = _if_better(auctions, rule, gained)
    plain = rule.changed(rounding=Rounding())
    if explained_places(auctions, plain) >= gained:  # the prices come in such units without being rounded
        rule = plain
        told.pop("rounding", None)
    if pricing == "soft_floor" and rule.soft_floor <= float(auctions.reserves(rule).min()):
        return None  # at or below a reserve it does nothing
    _, own = _own_parameters(auctions, rule)
    plain = _of_rounded_predictions(auctions, rule, squashing)
    if plain != rule:  # the interval is of prices by the rounded predictions
        rule, own = plain, {**own, "squashing": {"value": plain.squashing}}
    return Fitted(rule, {**told, **own, **_bounds(auctions, rule, told)}, gained)


def _of_rounded_predictions(auctions: Auctions, rule: Rule, usual: float) -> Rule:
    """The rule with an exponent that the digits of logged pCTRs leave open: of those the plainest.

    Prices by rounded pCTRs meet at an exponent that is off; it has to make more pages possible than the usual
    one, or one of fewer digits, does.
    """
    digits = digits_of(auctions.pctr)
    if digits is None or rule.pricing == "vcg" or explained_places(auctions, rule) >= _all_places(auctions):
        return rule
    tried = [usual, *(round(rule.squashing, places) for places in (1, 2, 3)), rule.squashing]
    found = [
        (possible(auctions, rule.changed(squashing=exponent), digits, True).sum(), -i)
        for i, exponent in enumerate(tried)
    ]
    most, at = max(found)
    least = most - max(LEAST, MIN_GAIN * len(auctions))
    at = next(-i for n, i in found if n >= least) if most else len(tried) - 1
    return rule if tried[at] == rule.squashing else rule.changed(squashing=tried[at])


def _all_places(auctions: Auctions) -> int:
    return int((auctions.shown >= 0).sum() + (auctions.price >= 0).sum())


def _with_step_of_a_unit(auctions: Auctions, rule: Rule, gained: int) -> tuple[Rule, int]:
    """The rule with a unit on top of the runner-up's price, if that explains more.

    Looked for with the way of rounding and the exponent at once: a step that is rounded passes for another
    way and another exponent.
    """
    unit = rule.rounding.unit
    if rule.pricing not in ("gsp", "soft_floor") or unit == 1 or gained >= 1.9 * (auctions.shown >= 0).sum():
        return rule, gained
    stepped = rule.changed(increment=unit / MICROS)
    for how in WAYS:
        other, _ = _own_parameters(auctions, stepped.changed(rounding=Rounding(unit, how)))
        more = explained_places(auctions, other)
        if more > gained:
            rule, gained = other, more
    return rule, gained


def explained_places(auctions: Auctions, rule: Rule) -> int:
    """Winners and prices that match the log."""
    held = match_pages(auctions, replay(auctions, rule), rule)
    shown = auctions.shown >= 0
    return int((held.is_same_ad & shown).sum() + (held.is_same_price & held.is_priced).sum())


def _if_better(auctions: Auctions, rule: Rule, gained: int) -> tuple[Rule, int]:
    """The rule with its own parameters fitted again, if that explains more."""
    again, _ = _own_parameters(auctions, rule)
    more = explained_places(auctions, again)
    return (again, more) if more > gained else (rule, gained)


def _own_parameters(auctions: Auctions, rule: Rule, is_loose: bool = False) -> tuple[Rule, dict[str, Any]]:
    """The rule with its exponent, its slot effects, its soft floor as the log has them; and what it says."""
    told: dict[str, Any] = {}
    if rule.pricing == "vcg":
        effects = effects_of(auctions, rule)
        return rule.changed(slot_effects=effects), {"slot_effects": {"value": list(effects)}}
    loose = rule.changed(rounding=Rounding(rule.rounding.unit, "either")) if is_loose else rule
    if rule.pricing == "soft_floor":
        met = squashing_by_order(auctions, rule)
        if met is not None:
            rule = _snapped(rule, met)
        floors = soft_floors(auctions, rule) + ([rule.soft_floor] if rule.soft_floor else [])
        if floors:
            found = [
                (explained_places(auctions, rule.changed(soft_floor=x)), -i, x) for i, x in enumerate(floors)
            ]
            rule = rule.changed(soft_floor=max(found)[2])
            told["soft_floor"] = {"value": rule.soft_floor}
        by_price = squashing_of(auctions, loose.changed(soft_floor=rule.soft_floor))
        met = by_price if by_price is not None else met
    else:
        met = squashing_of(auctions, loose)
    if met is None:
        return rule, told
    fitted = _snapped(rule, met)
    # Prices of drawn lists are no auction's: an exponent that meets some of them by chance is not theirs.
    if is_list_priced(auctions, fitted).sum() < is_list_priced(auctions, rule).sum():
        return rule, told
    told["squashing"] = {"value": met.value, "low": met.low, "high": met.high, "places": met.count}
    return fitted, told


def _snapped(rule: Rule, met: Agreement) -> Rule:
    """An exponent that the rule has already stays, where the log has nothing against it."""
    return rule if met.low <= rule.squashing <= met.high else rule.changed(squashing=met.value)


def _parts(auctions: Auctions, rule: Rule, context: Context) -> Iterator[Change]:
    """What a rule may have beside its pricing, as far as pages that it does not explain speak for it."""
    held = match_pages(auctions, replay(auctions, rule), rule)
    left = auctions.take(~held.is_page)
    if len(left) == 0:
        return
    yield from roundings(auctions, rule)
    yield from reserves(left, rule, context.n_placements)
    yield from score_floors(left, rule)
    for change in filters(left, rule, context.n_placements):
        if change.reason == "hidden_reserve":
            yield change
    for change in increments(left, rule):
        if change.reason == "increment":
            yield change
    if np.any(auctions.reserve > 0) and not rule.ignores_logged_reserve:
        yield Change("logged_reserve", {"ignores_logged_reserve": True}, {"value": "not used"})


def _bounds(auctions: Auctions, rule: Rule, told: dict[str, Any]) -> dict[str, Any]:
    """Where no price shows a reserve: it is above the bids that were kept out, at most the least price."""
    if "hidden_reserve" in told or np.any(auctions.reserve > 0):
        return {}
    shown = auctions.shown >= 0
    prices = auctions.price[shown & (auctions.price >= 0)]
    bids = np.where(shown, listed(auctions, rule).bid, np.inf)
    paid = prices.min() / MICROS if len(prices) else np.inf
    most = min(float(bids.min(initial=np.inf)), float(paid))
    if not np.isfinite(most):
        return {}
    is_kept_out = auctions.bid > 0
    r, k = np.nonzero(shown)
    is_kept_out[r, auctions.shown[r, k]] = False
    is_kept_out &= (auctions.n_shown < auctions.slots)[:, None]
    least = float(auctions.bid[is_kept_out].max(initial=0.0))
    if is_kept_out.sum() < LEAST or least > most:
        least = 0.0
    return {"reserve": {"value": None, "low": least, "high": most}}


def judge(store: LogStore, fits: list[Fit], rows: np.ndarray, fitted_to: int, sample: Auctions) -> Inference:
    """The rules on requests that did not choose them, in one pass over the log; the first is the best."""
    n_winners = n_prices = 0
    for auctions in blocks(store, rows):
        shown = auctions.shown >= 0
        n_winners += int(shown.sum())
        n_prices += int((shown & (auctions.price >= 0)).sum())
        best = None
        for entry in fits:
            rule = entry.fitted.rule
            played = replay(auctions, rule)
            held = match_pages(auctions, played, rule)
            entry.winners += int((held.is_same_ad & shown).sum())
            entry.prices += int((held.is_same_price & held.is_priced).sum())
            entry.priced += int(held.is_priced.sum())
            entry.pages += int(held.is_page.sum())
            is_right = held.is_same_ad & (held.is_same_price | ~held.is_priced)
            if best is None:
                best = (played, held, is_right)
                continue
            first, first_held, first_right = best
            is_open = first_held.is_priced & held.is_priced
            differs = (played.column != first.column) | ((played.micros != first.micros) & is_open)
            entry.differs += int(differs.sum())
            entry.only_this_rule += int((differs & is_right & ~first_right).sum())
            entry.only_best_rule += int((differs & ~is_right & first_right).sum())
    notes, is_identified = _identified(fits, sample, n_prices, len(rows))
    return Inference(tuple(fits), len(rows), n_winners, n_prices, fitted_to, tuple(notes), is_identified)


def _identified(fits: list[Fit], sample: Auctions, n_prices: int, n_requests: int) -> tuple[list[str], bool]:
    """What the log cannot tell, in sentences; and whether it tells the pricing rule."""
    from scipy.stats import binomtest

    notes, is_identified = [], True
    best = fits[0].fitted.rule
    for entry in fits[1:]:
        if entry.is_declared:
            continue
        rule, only = entry.fitted.rule, (entry.only_best_rule, entry.only_this_rule)
        both = f"{best.pricing} and {rule.pricing}"
        if entry.differs == 0:
            why = _why_alike(sample, best, rule)
            notes.append(
                f"{both} are indistinguishable by this log: they give the same ads and prices on all "
                f"{n_requests:,} held-out requests{why}"
            )
            is_identified = False
        elif (n := sum(only)) == 0 or binomtest(only[0], n).pvalue > SURE:
            notes.append(
                f"{both} cannot be distinguished with confidence: of {entry.differs:,} places where they "
                "differ, "
                f"{best.pricing} alone is right in {only[0]:,}, {rule.pricing} in {only[1]:,}"
            )
            is_identified = False
    if n_prices == 0:
        notes.append("no prices were logged: pricing, rounding and reserve cannot be known")
        is_identified = False
    told = fits[0].fitted.details
    if sample.pctr is None:
        notes.append("no pCTRs were logged: the squashing exponent cannot be known")
    elif is_list_priced(sample, best).any() and "squashing" not in told:
        notes.append("the squashing exponent is the usual one: prices of drawn lists bear it out")
    elif best.pricing != "vcg" and "squashing" not in told:
        notes.append("no two candidates of a request differ in pCTR: the squashing exponent cannot be known")
    if sample.is_winners_only:
        notes.append(
            "only winners were logged: the price of the last slot of a full page is set by an unknown ad"
        )
    if "reserve" in told and told["reserve"]["high"] > 0:
        bound = told["reserve"]
        notes.append(
            "no price shows a reserve; if there is one, it lies between "
            f"{bound['low']:g} and {bound['high']:g}"
        )
    return notes, is_identified


def _why_alike(sample: Auctions, best: Rule, other: Rule) -> str:
    if int(sample.slots.max(initial=1)) == 1 and {best.pricing, other.pricing} == {"gsp", "vcg"}:
        return " (every page has one slot)"
    bid = sample.bid
    if sample.is_winners_only and "vcg" in (best.pricing, other.pricing):
        return " (only winners were logged, and every price of vcg depends on the runner-up)"
    if sample.is_winners_only and int(sample.n_shown.max(initial=0)) <= 1:
        return " (no runner-up was logged)"
    if int((bid > 0).sum(axis=1).max(initial=0)) <= 1:
        return " (no request has more than one bidder)"
    own = listed(sample, best)
    known = priced(sample, best)
    if bool(np.all(sample.price[known] == floor_micros(own.bid)[known])):
        return " (every price is the bid)"
    return ""
