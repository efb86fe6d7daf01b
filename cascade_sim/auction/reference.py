"""The auction a second time, in plain Python, one request at a time: the definition that others are held to.

Written from the rules and not from the engine: no arrays, no compiled loops, no code in common. Slow where
slow is plain. `check-auctions` and the tests compare `cascade_sim.auction.rules` and the logs with it.

    score     bid * quality, quality = pCTR ** squashing; the product as a double, since it decides ties
    eligible  bid > 0, quality > 0, bid >= reserve_cpc, score >= score_floor, and no padding (id >= 0)
    order     by score, ties to the smaller id
    gsp       the next one's score over one's own quality
    vcg       what the others lose by one's presence, per expected click; one's reserve bids for every slot
    first     one's own bid
    soft_floor  one's own bid if that is below the soft floor, else the gsp price, raised to the soft floor
    bounds    no price is below the reserves, none above the bid
    increment added to what the next one's score asks for, where there is a next one
    rounding  last: to a multiple of the unit, up, down or to the nearest (halves up), not above the bid

Prices are exact fractions of the doubles that go in.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, sqrt
from sys import float_info

MICROS = 10**6


def reference_auction(
    bids: Sequence[float],
    qualities: Sequence[float],
    *,
    slots: int,
    pricing: str,
    reserve_cpc: float,
    score_floor: float,
    effects: Sequence[float],
    ids: Sequence[int],
    soft_floor: float | None = None,
    unit_micros: int = 0,
    how: str = "nearest",
    increment: float = 0.0,
) -> tuple[list[int | None], list[Fraction | None]]:
    """One request: (winning column per slot, CPC per slot), both None where a slot stays empty.

    effects: at least `slots` of them, non-increasing. ids: negative for padding. soft_floor: for the
    rule of that name.
    """
    contenders = [
        column
        for column, (bid, quality, ad) in enumerate(zip(bids, qualities, ids, strict=True))
        if ad >= 0 and bid > 0 and quality > 0 and bid >= reserve_cpc and bid * quality >= score_floor
    ]
    contenders.sort(key=lambda column: (-(bids[column] * qualities[column]), ids[column]))
    contenders = contenders[: slots + 1]
    values = [Fraction(bids[column]) for column in contenders]
    if pricing == "first":
        prices = values[:slots]
    else:
        rates = [Fraction(qualities[column]) for column in contenders]
        scores = [value * rate for value, rate in zip(values, rates, strict=True)]
        prices = []
        for place in range(min(slots, len(contenders))):
            if pricing in ("gsp", "soft_floor"):
                needed = scores[place + 1] if place + 1 < len(scores) else Fraction(0)
                if place + 1 < len(scores):
                    needed += Fraction(increment) * rates[place]
            elif pricing == "vcg":
                least = max(Fraction(reserve_cpc) * rates[place], Fraction(score_floor))
                needed = harm_to_others(place, scores, slots, effects, least) / Fraction(effects[place])
            else:
                raise ValueError(f"the reference has no pricing {pricing!r}")
            price = max(needed / rates[place], Fraction(reserve_cpc), Fraction(score_floor) / rates[place])
            if soft_floor is not None:
                floor = Fraction(soft_floor)
                price = values[place] if values[place] < floor else max(price, floor)
            prices.append(min(price, values[place]))
    if unit_micros:
        prices = [
            min(to_unit(price, unit_micros, how), value) for price, value in zip(prices, values, strict=False)
        ]
    empty = [None] * (slots - len(prices))
    return [*contenders[:slots], *empty], [*prices, *empty]


def harm_to_others(
    place: int, scores: list[Fraction], slots: int, effects: Sequence[float], least: Fraction
) -> Fraction:
    """VCG from its definition: the others' best total without this ad, less their total beside it.

    Among the others is the seller, who would rather keep a slot than let this ad have it below its reserves:
    a bidder of the score `least` for every slot.
    """

    def best_total(free: Sequence[float], bidders: list[Fraction]) -> Fraction:
        page = zip(free, sorted(bidders, reverse=True), strict=False)
        return sum((Fraction(effect) * value for effect, value in page), Fraction(0))

    others = [*scores[:place], *scores[place + 1 :], *[least] * slots]
    free = [*effects[:place], *effects[place + 1 : slots]]
    return best_total(effects[:slots], others) - best_total(free, others)


def to_unit(price: Fraction, unit_micros: int, how: str) -> Fraction:
    """A price as a multiple of the unit; a billionth beside a multiple, or the middle of two, is on it."""
    units = price * MICROS / unit_micros
    slack = min(max(units, Fraction(1)) / 10**9, Fraction(1, 1000))
    half = Fraction(1, 2)
    turned = {"nearest": floor(units + slack + half), "up": ceil(units - slack), "down": floor(units + slack)}
    whole = turned[how]
    return Fraction(whole * unit_micros, MICROS)


def squashed(pctr: float, squashing: float) -> float:
    """pCTR ** squashing; an ad without any clicks has quality 0 even for squashing 0."""
    if pctr == 0:
        return 0.0
    return sqrt(pctr) if squashing == 0.5 else pctr**squashing


def charge_micros(price: float, bid: float) -> int:
    """What a click costs in whole micro-units: the price to the nearest, halves up, but not above the bid.

    A bid that two roundings of a double would lift to an integer counts as that number: 0.000019 * 10^6
    is a hair below 19, and is 19.
    """
    money = price * MICROS
    whole = floor(money)
    nearest = whole + 1 if money - whole >= 0.5 else whole
    most = round(bid * MICROS)
    if most > bid * MICROS * (1 + 4 * float_info.epsilon):
        most -= 1
    return min(nearest, most)
