"""Pricing rules: what a click in a slot costs. To add one, write its function and name it in RULES.

A rule looks at one slot of a ranked list and says what it asks for; the auction then sees to it that no price
is below the reserves and none above the bid. Rules are plain functions of numbers, which `kernels` compiles.
A rule with parameters of its own declares them: they become keywords of the auction and keys of a scenario.

>>> from cascade_sim.auction.pricing import Slot, gsp
>>> gsp(Slot(bid=2.0, to_keep=1.5, harm=1.2))
1.5
"""

from collections.abc import Collection, Iterator

from cascade_sim.protocols import Pricing, Slot


def gsp(slot: Slot) -> float:
    """Generalised second price: the least bid that keeps the slot."""
    return slot.to_keep


def vcg(slot: Slot) -> float:
    """Vickrey, Clarke and Groves: what the others lose by the ad. To bid the value is best."""
    return slot.harm


def first(slot: Slot) -> float:
    """First price: the ad's own bid."""
    return slot.bid


def soft_floor(slot: Slot, floor: float) -> float:
    """Second price with a soft floor: below it first price, from it on no less than the floor."""
    return slot.bid if slot.bid < floor else max(slot.to_keep, floor)


RULES = {
    "gsp": Pricing(gsp),
    "vcg": Pricing(vcg, needs_squashing_1=True),
    "first": Pricing(first),
    "soft_floor": Pricing(soft_floor, parameters={"soft_floor": "CPC; a lower bid is paid in full"}),
}
PRICINGS = tuple(RULES)
PARAMETERS = {name: meaning for rule in RULES.values() for name, meaning in rule.parameters.items()}
NEED_SQUASHING_1 = tuple(name for name, rule in RULES.items() if rule.needs_squashing_1)


def needless(pricing: str, given: Collection[str]) -> Iterator[tuple[str, str]]:
    """Parameters that a rule does not look at, each with what is to be said of it."""
    for name in given:
        if name not in RULES[pricing].parameters:
            takers = ", ".join(other for other, rule in RULES.items() if name in rule.parameters)
            yield name, f"has no meaning with pricing {pricing} (only with {takers}); remove it"


def missing(pricing: str, given: Collection[str]) -> Iterator[tuple[str, str]]:
    """Parameters that a rule cannot do without, each with what is to be said of it.

    None has a default: one that changes nothing would let a forgotten parameter pass for another rule.
    """
    for name, meaning in RULES[pricing].parameters.items():
        if name not in given:
            yield name, f"pricing {pricing} needs {name} ({meaning})"
