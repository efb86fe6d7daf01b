"""Pricing rules: cost per click of a slot. To add one, write its function and name it in RULES.

A rule is a plain function of one slot of a ranked list, which `kernels` compiles; the auction then applies
the reserves and the bid. A rule with parameters declares them: they become keywords of the auction and keys
of a scenario. The contract is `cascade_sim.protocols.Pricing`.
"""

from collections.abc import Collection, Iterator

from cascade_sim.protocols import Parameter, Pricing, Slot


def gsp(slot: Slot) -> float:
    """Generalised second price: the minimum bid that keeps the slot.

    Args:
        slot: bid, critical bid and externality of a filled slot, per click.

    Returns:
        Cost per click before reserves and bid are applied.

    >>> gsp(Slot(bid=2.0, critical_bid=1.5, externality=1.2))
    1.5
    """
    return slot.critical_bid


def vcg(slot: Slot) -> float:
    """Vickrey-Clarke-Groves: the externality, so that truthful bidding is optimal.

    Args:
        slot: bid, critical bid and externality of a filled slot, per click.

    Returns:
        Cost per click before reserves and bid are applied.

    >>> vcg(Slot(bid=2.0, critical_bid=1.5, externality=1.2))
    1.2
    """
    return slot.externality


def first(slot: Slot) -> float:
    """First price: the ad's own bid.

    Args:
        slot: bid, critical bid and externality of a filled slot, per click.

    Returns:
        Cost per click before reserves and bid are applied.

    >>> first(Slot(bid=2.0, critical_bid=1.5, externality=1.2))
    2.0
    """
    return slot.bid


def soft_floor(slot: Slot, floor: float) -> float:
    """Second price with a soft floor: first price below it, at least the floor above it.

    Args:
        slot: bid, critical bid and externality of a filled slot, per click.
        floor: soft floor, a cost per click.

    Returns:
        Cost per click before reserves and bid are applied.

    >>> soft_floor(Slot(bid=2.0, critical_bid=1.5, externality=1.2), floor=1.8)
    1.8
    """
    return slot.bid if slot.bid < floor else max(slot.critical_bid, floor)


RULES = {
    "gsp": Pricing(gsp),
    "vcg": Pricing(vcg, needs_squashing_1=True),
    "first": Pricing(first),
    "soft_floor": Pricing(
        soft_floor, parameters={"soft_floor": Parameter("CPC; a lower bid is paid in full")}
    ),
}
PRICINGS = tuple(RULES)
WAYS = ("nearest", "up", "down")  # of rounding prices; halves go up
NO_INCREMENT = ("first", "vcg")  # rules that do not look at the next score alone
PARAMETERS = {name: one for rule in RULES.values() for name, one in rule.parameters.items()}
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
    for name, parameter in RULES[pricing].parameters.items():
        if name not in given:
            yield name, f"pricing {pricing} needs {name} ({parameter.meaning})"
