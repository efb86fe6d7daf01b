"""Changes of a rule that a log speaks for: each is read off the prices and pages that the rule does not give.

An estimator looks at logged auctions and a rule, and proposes changes of it. Whether a change explains
anything is then tried by holding the auctions again with it: what counts is a page that comes out exactly as
logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cascade_sim.auction import MICROS, PRICINGS, floor_micros
from cascade_sim.foundation.kernels import take_columns
from cascade_sim.logs.audit.agreement import Agreement, agreement, commonest, roundest
from cascade_sim.logs.audit.replay import Auctions, listed, priced, replay, runner_up
from cascade_sim.logs.audit.rule import UNITS, WAYS, Rounding, Rule, default_squashing

COMMON = 0.1  # of the prices: one that is as common was not formed by rounding
LEAST = 5  # places that have to speak for a change
NEARLY = 0.7  # of the prices are multiples of their unit; by chance one in ten is of ten times a unit
SINGLE = 1e-6  # relative error of prices that were computed in single precision, with room
MAX_SQUASHING = 4.0
MAX_BOOSTED = 50
STEPS = 4  # rounds in which the exponent and the runner-ups are fitted to each other


@dataclass(frozen=True)
class Change:
    """What is changed in a rule, under the name of its reason, and what the log says of it."""

    reason: str  # a key of reasons.REASONS
    values: Mapping[str, Any]  # of fields of a Rule
    details: Mapping[str, Any] = field(default_factory=dict)  # value, interval, … for people

    def on(self, rule: Rule) -> Rule:
        return rule.changed(**self.values)


def unit_of(price: np.ndarray, bid: np.ndarray) -> int:
    """The largest unit that nearly all prices are multiples of, in micro-units.

    A price that is the bid says nothing: it may have been rounded to something above.
    """
    told = price[(price > 0) & (price != floor_micros(bid))]
    values, counts = np.unique(told, return_counts=True)
    is_one_of_many = counts <= max(LEAST, COMMON * len(told))  # else a reserve: one price, however often
    values, counts = values[is_one_of_many], counts[is_one_of_many]
    if len(values) < LEAST:
        return 1
    shares = {unit: np.average(values % unit == 0, weights=counts) for unit in UNITS}
    return max(unit for unit in UNITS if unit == 1 or shares[unit] >= NEARLY)


def roundings(auctions: Auctions, rule: Rule) -> Iterator[Change]:
    """Every way of rounding to the largest unit of the logged prices, and to units of single ones."""
    known = priced(auctions, rule)
    own = listed(auctions, rule)
    differs = known & (own.micros != auctions.price)
    units = {unit_of(auctions.price[part], own.bid[part]) for part in (known, differs)} | {1}
    for unit in sorted(units, reverse=True):
        for how in WAYS:
            if Rounding(unit, how) != rule.rounding:
                yield Change(
                    "rounding",
                    {"rounding": Rounding(unit, how)},
                    {"unit": unit / MICROS, "how": how, "value": Rounding(unit, how).text()},
                )


def reserves(auctions: Auctions, rule: Rule, n_placements: int) -> Iterator[Change]:
    """A price above what the runner-up explains, the same on many pages; by placement if it differs."""
    own = listed(auctions, rule)
    above = priced(auctions, rule) & (auctions.price > own.micros) & (auctions.price <= floor_micros(own.bid))
    above &= np.abs(auctions.price - floor_micros(own.bid)) > 0
    if above.sum() < LEAST:
        return
    placement = np.broadcast_to(auctions.placement[:, None], above.shape)[above]
    low, high = rule.rounding.margin
    pairs, counted = np.unique(np.stack([placement, auctions.price[above]]), axis=1, return_counts=True)
    found: dict[int, tuple[float, int]] = {}
    for at in np.argsort(-counted, kind="stable").tolist():
        code, value = pairs[:, at].tolist()
        if counted[at] >= LEAST and code not in found:
            found[code] = (value / MICROS, int(counted[at]))
    total, n = commonest(auctions.price[above])
    if n < LEAST:
        return
    least = np.zeros(n_placements + 1)
    counts = {code: count for code, (_, count) in found.items()}
    for code, (value, _) in found.items():
        least[code] = value
    if len({value for value, _ in found.values()}) > 1:
        yield Change(
            "hidden_reserve",
            {"least": least},
            {"by_placement": {code: value for code, (value, _) in found.items()}, "places": counts},
        )
    everywhere = np.full(n_placements + 1, total / MICROS)
    value = total / MICROS
    yield Change(
        "hidden_reserve",
        {"least": everywhere},
        {"value": value, "low": value - low, "high": value + high, "places": n},
    )
    if len(found) == 1 and n_placements > 1:  # the reserve of one placement alone
        yield Change(
            "hidden_reserve",
            {"least": least},
            {"by_placement": {code: value for code, (value, _) in found.items()}, "places": counts},
        )


def score_floors(auctions: Auctions, rule: Rule) -> Iterator[Change]:
    """A price above what the runner-up explains that is the same once multiplied by the ad's quality."""
    own = listed(auctions, rule)
    above = priced(auctions, rule) & (auctions.price > own.micros) & (auctions.price < floor_micros(own.bid))
    low, high = _price_range(auctions, rule)
    met = agreement((low * own.quality)[above], (high * own.quality)[above])
    if met.count >= LEAST and met.value > 0:
        yield Change("hidden_floor", {"score_floor": met.value}, _told(met))


def increments(auctions: Auctions, rule: Rule) -> Iterator[Change]:
    """A constant step above the runner-up; a constant factor of all prices."""
    own = listed(auctions, rule)
    differs = priced(auctions, rule) & (auctions.price != own.micros) & (own.cpc > 0)
    differs &= auctions.price < floor_micros(own.bid)
    low, high = _price_range(auctions, rule)
    step = agreement((low - own.cpc)[differs], (high - own.cpc)[differs], (1e-7, np.inf))
    if step.count >= LEAST and rule.pricing in ("gsp", "soft_floor"):  # the others know no runner-up
        yield Change("increment", {"increment": step.value}, _told(step))
    cpc = np.where(differs, own.cpc, 1.0)
    times = agreement((low / cpc)[differs], (high / cpc)[differs], (1e-3, 1e3))
    if times.count >= LEAST and not times.low <= 1 <= times.high:
        yield Change("price_factor", {"factor": times.value}, _told(times))


def filters(auctions: Auctions, rule: Rule, n_placements: int) -> Iterator[Change]:
    """A least pCTR, or a least bid: every ad that was passed over lies below it, every shown one above."""
    played = replay(auctions, rule)
    missed_r, missed_k = np.nonzero((played.column >= 0) & ~_is_in(played.column, auctions.shown))
    missed = played.column[missed_r, missed_k]
    is_shown = auctions.shown >= 0
    for values in (auctions.pctr, auctions.bid):
        if values is None or len(missed) < LEAST or not is_shown.any():
            continue
        table = np.ascontiguousarray(values, np.float64)
        passed_over = table[missed_r, missed]
        shown = take_columns(table, auctions.shown, np.nan)[is_shown]
        low = np.concatenate([np.nextafter(passed_over, np.inf), np.zeros(len(shown))])
        high = np.concatenate([np.full(len(passed_over), np.inf), shown])
        met = agreement(low, high, (0.0, np.inf), chance=0.5)
        n_over = int((passed_over < met.value).sum())
        if n_over < LEAST or met.share < 0.9:
            continue
        told = {"value": met.value, "low": met.low, "high": met.high, "places": n_over}
        if values is auctions.pctr:
            yield Change("hidden_filter", {"min_pctr": met.value}, told)
        else:
            yield Change("hidden_reserve", {"least": np.full(n_placements + 1, met.value)}, told)


def boosts(auctions: Auctions, rule: Rule, advertiser: np.ndarray) -> Iterator[Change]:
    """Factors of single advertisers, or ads, by which their scores must have been multiplied."""
    made = _price_boosts(auctions, rule, advertiser)
    if made is None:
        made = _order_boosts(auctions, rule, advertiser)
    if made is not None:
        yield made


def _price_boosts(auctions: Auctions, rule: Rule, advertiser: np.ndarray) -> Change | None:
    """p_k q_k / s_(k+1) is the boost of the runner-up over the payer's: constant for a boosted ad."""
    if rule.pricing == "first":
        return None
    below, score = runner_up(auctions, rule)
    own = listed(auctions, rule)
    told = priced(auctions, rule) & (below >= 0) & (score > 0) & (own.quality > 0)
    told &= (auctions.price < floor_micros(own.bid)) & (auctions.price > 0)
    if rule.pricing == "vcg":  # the price of the last slot alone is set by one score
        told &= np.arange(auctions.n_places) == auctions.slots[:, None] - 1
    off = (auctions.price != own.micros)[told]
    if off.sum() < LEAST:
        return None
    low, high = _price_range(auctions, rule)
    base = np.where(told, score / np.where(own.quality > 0, own.quality, 1.0), 1.0)
    ratio_low, ratio_high = (low / base)[told], (high / base)[told]
    payer, runner = auctions.ads[told], take_columns(auctions.ad, below, -1)[told]
    with np.errstate(divide="ignore"):
        ads = np.concatenate([payer, runner])
        lows = np.concatenate([1 / ratio_high, ratio_low])
        highs = np.concatenate([1 / np.maximum(ratio_low, 1e-12), ratio_high])
    place = np.tile(np.arange(len(payer)), 2)
    return _boost_change(ads, lows, highs, place, advertiser, rule, "prices", np.tile(off, 2))


def _order_boosts(auctions: Auctions, rule: Rule, advertiser: np.ndarray) -> Change | None:
    """Who is above an ad of a higher score must have been multiplied; every pair bounds the factor."""
    below, score_below = runner_up(auctions, rule)
    quality = auctions.quality(rule.squashing)
    score = take_columns(auctions.bid, auctions.shown, 0.0) * take_columns(quality, auctions.shown, 0)
    pair = (below >= 0) & (score_below > 0) & (score > 0)
    ratio = np.where(pair, score_below / np.where(score > 0, score, 1.0), 1.0)
    if (ratio[pair] > 1 + 1e-9).sum() < LEAST:
        return None
    upper, lower = auctions.ads[pair], take_columns(auctions.ad, below, -1)[pair]
    bound = ratio[pair]
    ads = np.concatenate([upper, lower])
    lows = np.concatenate([bound, np.zeros(len(bound))])
    highs = np.concatenate([np.full(len(bound), np.inf), 1 / bound])
    is_wrong = np.tile(bound > 1 + 1e-9, 2)
    place = np.tile(np.arange(len(bound)), 2)
    return _boost_change(ads, lows, highs, place, advertiser, rule, "orders", is_wrong)


def _boost_change(
    ads: np.ndarray,
    lows: np.ndarray,
    highs: np.ndarray,
    place: np.ndarray,
    advertiser: np.ndarray,
    rule: Rule,
    source: str,
    wrong: np.ndarray,
) -> Change | None:
    """Who has the most evidence first: its factor explains pairs, which then speak for no other.

    An advertiser is named if none of its ads is better off without the factor, else the ad.
    """
    factors = np.ones(len(advertiser)) if rule.boosts is None else rule.boosts.copy()
    told: list[dict[str, Any]] = []
    is_open = np.ones(len(ads), bool)
    skipped: set[tuple[str, int]] = set()
    chance = 0.5 if source == "orders" else 0.01
    while len(told) < MAX_BOOSTED:
        best: tuple[int, str, int, Agreement] | None = None
        for kind, owner in (("advertiser", advertiser[ads]), ("ad", ads)):
            counts = np.bincount(owner[is_open & wrong], minlength=1)
            for code in np.argsort(-counts, kind="stable")[:MAX_BOOSTED].tolist():
                if counts[code] < LEAST or (kind, code) in skipped:
                    continue
                if best is not None and counts[code] <= best[0]:
                    break
                own = is_open & (owner == code)
                speaking = own & wrong if source == "prices" else own
                met = agreement(lows[speaking], highs[speaking], (1e-3, 1e3), chance)
                fits = (lows <= met.value) & (met.value <= highs)
                n, share = int((own & wrong & fits).sum()), np.mean(fits[own & wrong])
                is_one = met.low <= 1 <= met.high
                gain = np.bincount(ads[own], fits[own] * 1.0 - ((lows <= 1) & (highs >= 1))[own])
                if n < LEAST or is_one or share < 0.5 or gain.min() < 0:
                    skipped.add((kind, code))
                elif best is None or n > best[0]:
                    best = (n, kind, code, met)
        if best is None:
            break
        n, kind, code, met = best
        owner = advertiser[ads] if kind == "advertiser" else ads
        explained = is_open & wrong & (owner == code) & (lows <= met.value) & (met.value <= highs)
        is_open &= ~np.isin(place, place[explained])
        factors[advertiser == code if kind == "advertiser" else np.arange(len(factors)) == code] *= met.value
        skipped.add((kind, code))
        told.append({"kind": kind, "code": code, **_told(met), "places": n, "source": source})
    return Change("boost", {"boosts": factors}, {"boosted": told}) if told else None


def other_rules(auctions: Auctions, rule: Rule, charging: str) -> Iterator[Change]:
    """The other pricing rules, and another exponent, fitted to these auctions."""
    met = squashing_of(auctions, rule)
    if met is not None and not met.low <= rule.squashing <= met.high and rule.pricing != "vcg":
        yield Change("other_rule", {"squashing": met.value}, _told(met))
    for pricing in PRICINGS:
        if pricing == rule.pricing:
            continue
        values: dict[str, Any] = {"pricing": pricing}
        if pricing == "vcg":
            values["squashing"] = default_squashing(charging)
        other = rule.changed(**values)
        if pricing == "soft_floor":
            for floor in soft_floors(auctions, other):
                yield Change("other_rule", {**values, "soft_floor": floor}, {"value": floor})
        elif pricing == "vcg":
            effects = effects_of(auctions, other)
            yield Change("other_rule", {**values, "slot_effects": effects}, {})
        else:
            yield Change("other_rule", values, {})
        if met is not None and pricing in ("gsp", "first"):
            yield Change("other_rule", {**values, "squashing": met.value}, _told(met))


def soft_floors(auctions: Auctions, rule: Rule) -> list[float]:
    """Floors worth trying: the commonest price that is neither the bid nor the runner-up's, and the edge of
    the bids that were paid in full.
    """
    gsp = listed(auctions, rule.changed(pricing="gsp"))
    known = priced(auctions, rule)
    is_bid = known & (np.abs(auctions.price - floor_micros(gsp.bid)) <= rule.rounding.unit)
    between = known & ~is_bid & (auctions.price > gsp.micros)
    found = []
    value, count = commonest(auctions.price[between])
    if count >= LEAST:
        found.append(value / MICROS)
    paid_full = gsp.bid[is_bid & (auctions.price > gsp.micros)]
    in_part = gsp.bid[known & ~is_bid]
    if len(paid_full) >= LEAST and len(in_part):
        low = np.concatenate([np.nextafter(paid_full, np.inf), np.zeros(len(in_part))])
        high = np.concatenate([np.full(len(paid_full), np.inf), in_part])
        edge = agreement(low, high, (0.0, np.inf), chance=0.5)
        if edge.share > 0.9:
            found.append(edge.value)
    return list(dict.fromkeys(found))


def effects_of(auctions: Auctions, rule: Rule) -> tuple[float, ...]:
    """Slot effects with which vcg explains the most prices, from the last slot up.

    T_k = p_k q_k is (1 - x) s_(k+1) + x T_(k+1) with x the effect of the slot below over the own, so each
    page gives x; without evidence it is 1.
    """
    _, below = runner_up(auctions, rule)
    own = listed(auctions, rule)
    known = (auctions.shown >= 0) & (auctions.price >= 0)
    low, high = _price_range(auctions, rule)
    total_low, total_high = low * own.quality, high * own.quality
    effects = [1.0]
    for k in range(auctions.n_places - 1):
        pages = known[:, k] & known[:, k + 1] & (auctions.slots > k + 1)
        gap_low = below[:, k] - total_high[:, k]
        gap_high = below[:, k] - total_low[:, k]
        span_low = below[:, k] - total_high[:, k + 1]
        span_high = below[:, k] - total_low[:, k + 1]
        pages &= span_low > 1e-9 * below[:, k]
        with np.errstate(divide="ignore", invalid="ignore"):
            met = agreement((gap_low / span_high)[pages], (gap_high / span_low)[pages], (0.02, 1.0))
        if met.count >= LEAST:
            effects.append(min(effects[-1], roundest(effects[-1] * met.low, effects[-1] * met.high)))
        else:
            effects.append(effects[-1])
    return tuple(effects)


def squashing_of(auctions: Auctions, rule: Rule) -> Agreement | None:
    """The exponent that explains the most prices, or the most orders where prices say nothing of it.

    None where the log cannot tell: no predictions, or no two that differ.
    """
    if auctions.pctr is None:
        return None
    by_order = squashing_by_order(auctions, rule)
    if rule.pricing in ("first", "vcg"):
        return by_order
    starts = [rule.squashing, 1.0, 0.5, 0.0]
    if by_order is not None:
        starts.insert(0, by_order.value)
    best: Agreement | None = None
    for start in dict.fromkeys(starts):
        a = start
        for _ in range(STEPS):
            met = _squashing_by_price(auctions, rule.changed(squashing=a))
            if met is None or met.value == a:
                break
            a = met.value
        if met is not None and (best is None or met.count > best.count):
            best = met
    # A few prices meet anywhere; what prices say must be more than chance.
    if best is not None and best.count >= max(LEAST, 0.02 * best.of):
        return best
    return by_order


def squashing_by_order(auctions: Auctions, rule: Rule) -> Agreement | None:
    """The exponents with which the most neighbours are in the logged order."""
    if auctions.pctr is None:
        return None
    with np.errstate(divide="ignore"):
        log_bid = np.log(auctions.bid * auctions.weight)
        log_pctr = np.log(auctions.pctr.astype(np.float64))
    shown, n_shown = auctions.shown, auctions.n_shown
    rows = np.arange(len(auctions))
    last = shown[rows, np.maximum(n_shown - 1, 0)]
    is_shown = np.zeros(auctions.ad.shape, bool)
    r, k = np.nonzero(shown >= 0)
    is_shown[r, shown[r, k]] = True
    # Who was not shown although there was room was kept out by something else than the order.
    is_full = (n_shown >= auctions.slots) & (last >= 0)
    loser = ~is_shown & (auctions.bid > 0) & (auctions.bid >= auctions.reserves(rule)[:, None])
    loser &= is_full[:, None] & np.isfinite(log_pctr)
    lr, lc = np.nonzero(loser)
    pair = (shown[:, :-1] >= 0) & (shown[:, 1:] >= 0)
    pr, pk = np.nonzero(pair)
    upper = np.concatenate([last[lr], shown[pr, pk]])
    lower = np.concatenate([lc, shown[pr, pk + 1]])
    row = np.concatenate([lr, pr])
    slope = log_pctr[row, upper] - log_pctr[row, lower]
    gap = log_bid[row, lower] - log_bid[row, upper]
    is_told = np.isfinite(slope) & np.isfinite(gap) & (np.abs(slope) > 1e-9)
    if not is_told.any():
        return None
    slope, gap = slope[is_told], gap[is_told]
    at = gap / slope
    low, high = np.where(slope > 0, at, -np.inf), np.where(slope > 0, np.inf, at)
    met = agreement(low - SINGLE, high + SINGLE, (0.0, MAX_SQUASHING), chance=0.5)
    return met if met.count else None


def _squashing_by_price(auctions: Auctions, rule: Rule) -> Agreement | None:
    """log p_k = log b_(k+1) + a (log q_(k+1) - log q_k): every price of two known ads gives an a.

    With a pCVR in the scores b_(k+1) is times its share of that of ad k.
    """
    assert auctions.pctr is not None
    below, _ = runner_up(auctions, rule)
    known = priced(auctions, rule) & (below >= 0) & (auctions.price > 0)
    own_bid = take_columns(auctions.bid, auctions.shown, 0.0)
    known &= np.abs(auctions.price - floor_micros(own_bid)) > rule.rounding.unit  # capped: says nothing
    pctr = auctions.pctr.astype(np.float64)
    q, q_below = take_columns(pctr, auctions.shown, 1.0), take_columns(pctr, below, 1.0)
    weight = take_columns(auctions.weight, auctions.shown, 1.0)
    known &= weight > 0
    b_below = take_columns(auctions.bid * auctions.weight, below, 1.0) / np.where(weight > 0, weight, 1.0)
    known &= (q > 0) & (q_below > 0) & (b_below > 0)
    if not known.any():
        return None
    slope = np.log(q_below[known] / q[known])
    low, high = (end / rule.factor - rule.increment for end in _price_range(auctions, rule))
    with np.errstate(divide="ignore"):
        gap_low = np.log(np.maximum(low[known], 1e-12) / b_below[known])
        gap_high = np.log(np.maximum(high[known], 1e-12) / b_below[known])
    is_told = np.abs(slope) > 1e-6
    slope, gap_low, gap_high = slope[is_told], gap_low[is_told], gap_high[is_told]
    if len(slope) == 0:
        return None
    ends = np.sort(np.stack([gap_low / slope, gap_high / slope]), axis=0)
    met = agreement(ends[0], ends[1], (0.0, MAX_SQUASHING))
    return met if met.count else None


def _price_range(auctions: Auctions, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest price before rounding that could have been logged so, in money.  [R, k]"""
    price = np.maximum(auctions.price, 0) / MICROS
    low, high = rule.rounding.margin
    room = SINGLE * 0.2 * price + 1e-12
    return price - low - room, price + high + room


def _told(met: Agreement) -> dict[str, Any]:
    return {"value": met.value, "low": met.low, "high": met.high, "places": met.count}


def _is_in(columns: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Whether each column is among the others of its row.  [R, k], [R, m] -> [R, k]"""
    return (columns[:, :, None] == others[:, None, :]).any(axis=2)


def all_changes(
    auctions: Auctions, rule: Rule, advertiser: np.ndarray, n_placements: int, charging: str
) -> Iterator[Change]:
    """Everything that these auctions speak for."""
    yield from roundings(auctions, rule)
    yield from reserves(auctions, rule, n_placements)
    yield from score_floors(auctions, rule)
    yield from increments(auctions, rule)
    yield from filters(auctions, rule, n_placements)
    yield from boosts(auctions, rule, advertiser)
    yield from other_rules(auctions, rule, charging)


def apply(rule: Rule, changes: Sequence[Change]) -> Rule:
    for change in changes:
        rule = change.on(rule)
    return rule
