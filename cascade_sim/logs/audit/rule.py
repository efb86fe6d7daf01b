"""The rule of an auction as an audit tries it: what a log declares, and what the log may turn out to follow.

Beside what a scenario can say there are habits of real auctions that no log declares: prices rounded
to a unit, a step above the runner-up, a reserve of one placement, a boost of one advertiser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cascade_sim.auction import MICROS, WAYS, round_prices, to_micros
from cascade_sim.auction import Rounding as AuctionRounding
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.logs.store.format import OTHER_NAMES, RULE_NUMBERS, default_squashing, rule_faults

UNITS = (
    1,
    10,
    100,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    MICROS,
)  # micro-units that prices come in


@dataclass(frozen=True)
class Rounding:
    """To which multiples of money prices are rounded."""

    unit: int = 1  # micro-units
    how: str = "nearest"  # WAYS

    def micros(self, cpc: np.ndarray, bid: np.ndarray) -> np.ndarray:
        """Prices as whole micro-units, never above the bid.

        >>> Rounding(10_000, "up").micros(np.array([0.1234, 0.12]), np.array([1.0, 1.0])).tolist()
        [130000, 120000]
        """
        if self == Rounding():
            return to_micros(cpc, bid)
        return to_micros(round_prices(cpc, AuctionRounding(self.unit / MICROS, self.how)), bid)

    @property
    def margin(self) -> tuple[float, float]:
        """How far below and above a rounded price the price before it can lie, in money."""
        unit = self.unit / MICROS
        return {
            "nearest": (unit / 2, unit / 2),
            "up": (unit, 0.0),
            "down": (0.0, unit),
            "either": (unit, unit),  # while the way is not known
        }[self.how]

    def text(self) -> str:
        unit = f"{self.unit / MICROS:g}" if self.unit >= 1000 else f"{self.unit} micro-units"
        unit = "the micro-unit" if self.unit == 1 else unit
        return f"rounded to the nearest {unit}" if self.how == "nearest" else f"rounded {self.how} to {unit}"


@dataclass(frozen=True, eq=False)
class Rule:
    """Everything that decides a page beside bids and predictions."""

    pricing: str = "gsp"
    squashing: float = 1.0
    pcvr: float = 0.0  # exponent of the pCVR, as declared; the auctions are loaded with it
    reserve_cpc: float = 0.0  # where a request has none of its own
    ignores_logged_reserve: bool = False
    score_floor: float = 0.0
    rounding: Rounding = Rounding()
    soft_floor: float = 0.0
    slot_effects: tuple[float, ...] = ()  # for vcg; empty: all slots alike
    least: np.ndarray | None = None  # [placements + 1] a further reserve of each; the last: of no placement
    boosts: np.ndarray | None = None  # [ads] what scores are multiplied by
    min_pctr: float = 0.0  # ads below it are not shown
    increment: float = 0.0  # above the runner-up
    factor: float = 1.0  # of every price

    @property
    def parameters(self) -> dict[str, Any]:
        return {"soft_floor": self.soft_floor} if self.pricing == "soft_floor" else {}

    def effects(self, slots: int) -> np.ndarray:
        given = np.asarray(self.slot_effects[:slots], np.float64)
        last = given[-1] if len(given) else 1.0
        return np.concatenate([given, np.full(slots - len(given), last)])

    def changed(self, **values: Any) -> Rule:
        return replace(self, **values)

    def as_json(self) -> dict[str, Any]:
        """Plain data, of what differs from nothing special."""
        data: dict[str, Any] = {"pricing": self.pricing, "squashing": self.squashing}
        if self.pcvr:
            data["pcvr"] = self.pcvr
        data["reserve_cpc"] = self.reserve_cpc
        if self.ignores_logged_reserve:
            data["ignores_logged_reserve"] = True
        data["score_floor"] = self.score_floor
        data["rounding"] = {"unit": self.rounding.unit / MICROS, "how": self.rounding.how}
        data |= self.parameters
        if self.pricing == "vcg":
            data["slot_effects"] = list(self.slot_effects)
        if self.least is not None:
            data["reserve_by_placement"] = [float(value) for value in self.least]
        for name, without in (("min_pctr", 0.0), ("increment", 0.0), ("factor", 1.0)):
            if getattr(self, name) != without:
                data[name] = getattr(self, name)
        return data

    def text(self) -> str:
        """In words: `gsp, squashing 0.5, reserve 0.3, rounded up to 0.01`."""
        words = [self.pricing, f"squashing {self.squashing:.6g}"]
        words += [f"pCVR to the power of {self.pcvr:.6g}"] if self.pcvr else []
        if self.pricing == "soft_floor":
            words[0] += f" {self.soft_floor:.6g}"
        if self.pricing == "vcg" and self.slot_effects:
            words.append("slot effects " + " / ".join(f"{x:.4g}" for x in self.slot_effects))
        if self.least is not None and len(set(self.least.tolist())) == 1:
            words.append(f"reserve {self.least[0]:.6g}")
        elif self.least is not None:
            words.append("reserves by placement")
        elif self.reserve_cpc:
            words.append(f"reserve {self.reserve_cpc:.6g}")
        words += [f"score floor {self.score_floor:.6g}"] if self.score_floor else []
        words += [f"pCTR from {self.min_pctr:.6g}"] if self.min_pctr else []
        words += [f"{self.increment:.6g} above the runner-up"] if self.increment else []
        words += [f"prices times {self.factor:.6g}"] if self.factor != 1 else []
        words += [] if self.rounding == Rounding() else [self.rounding.text()]
        return ", ".join(words)


@dataclass(frozen=True)
class Declared:
    """A rule as a log declares it, and which parts of it are left for the log to tell."""

    rule: Rule
    unknown: tuple[str, ...] = ()  # of "rounding", "soft_floor", "slot_effects"
    defaults: tuple[str, ...] = field(default=())  # taken because nothing was said


def declared_rule(given: Any, charging: str) -> Declared | None:
    """The rule of `About.rule`; None where no pricing is declared. UserError for a rule that is none.

    What is not said is taken as usual: squashing 1 (bids per click) or 0 (per impression), no reserve but the
    requests' own, no floor, prices to the nearest micro-unit.
    """
    said = given if isinstance(given, Mapping) else {} if given is None else dict(vars(given))
    said = {key: value for key, value in said.items() if value not in (None, ())}
    if "pricing" not in said:
        return None
    numbers = {key: _amount(said[key], key) for key in RULE_NUMBERS if key in said}
    for _, fault in rule_faults({**said, **numbers}, charging):
        raise UserError(f"rule: {fault}")
    pricing = OTHER_NAMES.get(str(said["pricing"]), str(said["pricing"]))
    unknown, defaults = [], []
    squashing = numbers.get("squashing")
    if squashing is None:
        squashing = default_squashing(charging)
        defaults.append(f"squashing {squashing:g}")
    rounding = Rounding()
    if unit := round(numbers.get("rounding", 0.0) * MICROS):
        how = said.get("rounding_how")
        if how is not None and how not in WAYS:
            raise UserError(f"rule: {unknown_name('way of rounding', str(how), WAYS)}")
        rounding = Rounding(unit, how or "nearest")
        if how is None and unit > 1:
            unknown.append("rounding")
    if pricing == "soft_floor" and "soft_floor" not in said:
        unknown.append("soft_floor")
    if pricing == "vcg" and "slot_effects" not in said:
        unknown.append("slot_effects")
    rule = Rule(
        pricing=pricing,
        squashing=squashing,
        pcvr=numbers.get("pcvr", 0.0),
        reserve_cpc=numbers.get("reserve_cpc", 0.0),
        score_floor=numbers.get("score_floor", 0.0),
        rounding=rounding,
        increment=numbers.get("increment", 0.0),
        soft_floor=numbers.get("soft_floor", 0.0),
        slot_effects=tuple(float(x) for x in said.get("slot_effects", ())),
    )
    return Declared(rule, tuple(unknown), tuple(defaults))


def _amount(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise UserError(f"rule: {name} is {value!r}; expected a number, 0 or more")
    return float(value)
