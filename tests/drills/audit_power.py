"""How often an audit names the rule that a log follows, by rule and by size of the log.

    python tests/drills/audit_power.py --logs 20

Logs are drawn, paged by a known rule, and some of their prices spoilt. Prints, of so many logs of each kind,
the share in which the pricing rule is named and decided; in which it is left open; in which a wrong one is
decided; in which the interval of the exponent holds it; and in which reserve, rounding or floor come out
right.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cascade_sim.logs.audit.study import audit  # noqa: E402
from worlds.logged_auctions import EFFECTS, Log, cents, drawn, paged, stored  # noqa: E402

SHOWN = ("right", "open", "wrong", "exponent", "others")


@dataclass(frozen=True)
class Kind:
    """A rule as logs are paged by it, and what an audit should then say."""

    made: dict[str, Any]
    pricing: str
    squashing: float | None  # None: the rule has none of its own
    others: dict[str, Any]
    slots: int = 3


KINDS = {
    "gsp": Kind({}, "gsp", 1.0, {}),
    "gsp, squashing 0.5, reserve 0.6": Kind(
        {"squashing": 0.5, "reserve_cpc": 0.6}, "gsp", 0.5, {"reserve_by_placement": 0.6}
    ),
    "gsp, squashing 0.62, cents up": Kind(
        {"squashing": 0.62, "rounded": cents("up")}, "gsp", 0.62, {"rounding": {"unit": 0.01, "how": "up"}}
    ),
    "gsp, cents down, reserve 0.7": Kind(
        {"rounded": cents("down"), "reserve_cpc": 0.7},
        "gsp", 1.0, {"rounding": {"unit": 0.01, "how": "down"}, "reserve_by_placement": 0.7},
    ),
    "gsp, score floor 0.018": Kind({"score_floor": 0.018}, "gsp", 1.0, {"score_floor": 0.018}),
    "gsp, step 0.01": Kind({"step": 0.01}, "gsp", 1.0, {"increment": 0.01}),
    "gsp, one slot": Kind({}, "gsp", 1.0, {}, slots=1),
    "first": Kind({"pricing": "first"}, "first", 1.0, {}),
    "first, squashing 0.8": Kind({"pricing": "first", "squashing": 0.8}, "first", 0.8, {}),
    "vcg": Kind({"pricing": "vcg"}, "vcg", None, {"slot_effects": list(EFFECTS[:3])}),
    "vcg, reserve 0.7": Kind(
        {"pricing": "vcg", "reserve_cpc": 0.7}, "vcg", None, {"reserve_by_placement": 0.7}
    ),
    "soft floor 0.9": Kind(
        {"pricing": "soft_floor", "soft_floor": 0.9}, "soft_floor", 1.0, {"soft_floor": 0.9}
    ),
}  # fmt: skip


def spoilt(log: Log, share: float, seed: int) -> Log:
    """A share of the prices replaced by lower ones."""
    rng = np.random.default_rng([seed, 7])
    hit = (log.slot >= 0) & (rng.random(log.slot.shape) < share)
    price = np.where(hit, (log.price * rng.uniform(0.4, 1, log.price.shape)).astype(np.int64), log.price)
    return replace(log, price=price)


def named(kind: Kind, requests: int, share: float, seed: int) -> dict[str, bool]:
    """What the audit of one log says, by the names in SHOWN."""
    log = spoilt(paged(drawn(seed, requests=requests, slots=kind.slots), **kind.made), share, seed)
    with tempfile.TemporaryDirectory() as folder:
        found = audit(stored(Path(folder) / "market", log)).answer["inference"]
    best = found["rules"][0]
    is_right = best["values"]["pricing"] == kind.pricing
    told = best["told"].get("squashing")
    holds = kind.squashing is None or (told is not None and told["low"] <= kind.squashing <= told["high"])

    def is_same(key: str, value: Any) -> bool:
        own = best["values"].get(key)
        if key == "reserve_by_placement":
            own = own[0] if own else None
        return own is not None and (
            own == value if isinstance(value, dict) else np.allclose(own, value, 1e-4)
        )

    return {
        "right": is_right and found["is_identified"],
        "open": not found["is_identified"],
        "wrong": not is_right and found["is_identified"],
        "exponent": holds,
        "others": all(is_same(key, value) for key, value in kind.others.items()),
    }


def rates(kind: str, requests: int, share: float, logs: int, seed: int = 1) -> dict[str, float]:
    """Shares of so many logs of a kind."""
    said = [named(KINDS[kind], requests, share, seed * 100_000 + i) for i in range(logs)]
    return {name: float(np.mean([entry[name] for entry in said])) for name in SHOWN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=20, help="of each kind and size")
    parser.add_argument("--requests", type=int, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--spoilt", type=float, nargs="+", default=[0.0, 0.1], help="share of the prices")
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    print(f"{'percent of logs':34}{'requests':>9}{'spoilt':>8}" + "".join(f"{name:>10}" for name in SHOWN))
    sums = dict.fromkeys(SHOWN, 0.0)
    cells = 0
    for kind in KINDS:
        for requests in told.requests:
            for share in told.spoilt:
                found = rates(kind, requests, share, told.logs, told.seed)
                row = "".join(f"{100 * found[name]:10.0f}" for name in SHOWN)
                print(f"{kind:34}{requests:9}{share:8.0%}{row}", flush=True)
                sums = {name: sums[name] + found[name] for name in SHOWN}
                cells += 1
    row = "".join(f"{100 * sums[name] / cells:10.1f}" for name in SHOWN)
    print(f"{'all':34}{'':9}{'':8}{row}   ({cells * told.logs} logs)")


if __name__ == "__main__":
    main()
