"""A second auction in plain Python, one request at a time, from the definitions and not from the engine.

Order is by the float product bid * quality, as the engine defines it; prices are exact fractions.
"""

from fractions import Fraction


def reference_auction(bids, qualities, *, slots, pricing, reserve_cpc, score_floor, effects, ids):
    """One request: ([winning column or None per slot], [CPC as a Fraction or None per slot])."""
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
            if pricing == "gsp":
                threshold = scores[place + 1] if place + 1 < len(scores) else Fraction(0)
            else:
                threshold = harm_to_others(place, scores, slots, effects) / Fraction(effects[place])
            price = max(threshold / rates[place], Fraction(reserve_cpc), Fraction(score_floor) / rates[place])
            prices.append(min(price, values[place]))
    empty = [None] * (slots - len(prices))
    return contenders[:slots] + empty, prices + empty


def harm_to_others(place, scores, slots, effects):
    """VCG from its definition: the others' best total without this ad, less their total beside it."""

    def total(values):
        return sum(Fraction(x) * value for x, value in zip(effects[:slots], values, strict=False))

    others = scores[:place] + scores[place + 1 :]
    beside = total(scores) - Fraction(effects[place]) * scores[place]
    return total(others) - beside
