"""Ten logs whose rule rounds, squashes and has a reserve: what-ifs compared with the truth.

    python tests/drills/log_rules.py [--requests 6000] [--logs 10]

Per question: how often the 95 % interval holds the true lift, the mean error (bias) and its root mean square,
in percentage points. "declared": the whole rule is declared; "unrounded": the same without its rounding and
increment, accepted though it does not reproduce the prices; "undeclared": without any rule, where questions
must be refused, and what they would have said. "adopted": the rule that `audit-logs --adopt` found.
Exits with 1 if a question without a rule is answered, a declared log is not wholly reproduced, or fewer than
the expected intervals of declared logs hold the truth.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

CHANCE = 0.01  # of ending with 1 where every interval is right
REVENUE = "expected_revenue_per_request"


def questions(rule: Any) -> dict[str, tuple[str, float, dict[str, Any]]]:
    """By name: the parameter, its value, and the change of the generator's rule."""
    flatter, steeper = round(rule.squashing - 0.2, 2), round(rule.squashing + 0.2, 2)
    low, high = round(rule.reserve / 2, 4), round(rule.reserve * 1.5, 4)
    return {
        "reserve down": ("auction.reserve_cpc", low, {"reserve": low}),
        "reserve up": ("auction.reserve_cpc", high, {"reserve": high}),
        "squashing down": ("auction.squashing", flatter, {"squashing": flatter}),
        "squashing up": ("auction.squashing", steeper, {"squashing": steeper}),
        "two slots": ("cascade.slots", 2, {"slots": 2}),
    }


def lifts(folder: Path, log: Any) -> dict[str, Mapping[str, float]]:
    """The answers of a market, by question."""
    from cascade_sim.api import whatif

    asked: dict[str, list[tuple[str, float]]] = {}
    for name, (path, value, _) in questions(log.rule).items():
        asked.setdefault(path, []).append((name, value))
    found = {}
    for path, named in asked.items():
        answer = whatif(folder, {path: [value for _, value in named]}).answer
        for (name, _), point in zip(named, answer["points"], strict=True):
            found[name] = point["metrics"][REVENUE]["lift"]
    return found


def print_table(errors: Mapping[tuple[str, str], list[tuple[float, bool]]]) -> None:
    """Coverage, bias and RMSE in points, by question and rule."""
    print(f"{'question':<16}{'rule':<12}{'covered':>10}{'bias':>9}{'RMSE':>9}")
    for (name, kind), told in sorted(errors.items(), key=lambda item: item[0]):
        off = [error for error, _ in told]
        held, rmse = sum(is_held for _, is_held in told), math.sqrt(sum(x * x for x in off) / len(off))
        print(f"{name:<16}{kind:<12}{held:>6} / {len(told):<2}{sum(off) / len(off):>8.2f}{rmse:>9.2f}")


def main(argv: list[str] | None = None) -> int:
    from cascade_sim.api import accepting_mismatch, audit_logs
    from cascade_sim.foundation.errors import Notice, UserError
    from oracles.ruled_logs import SEEDS, RuledLog

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=int, default=6_000)
    parser.add_argument("--logs", type=int, default=len(SEEDS))
    given = parser.parse_args(argv)
    warnings.simplefilter("ignore", Notice)
    errors: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    faults, refused, adopted = [], 0, 0

    def note(kind: str, answers: Mapping[str, Mapping[str, float]], log: Any) -> None:
        for name, lift in answers.items():
            truth = log.lift(**questions(log.rule)[name][2])
            is_held = lift["low"] <= truth <= lift["high"]
            errors.setdefault((name, kind), []).append((100 * (lift["value"] - truth), is_held))

    with tempfile.TemporaryDirectory() as place:
        for seed in SEEDS[: given.logs]:
            log = RuledLog(seed, given.requests)
            declared = log.market(Path(place) / f"declared-{seed}")
            tally = audit_logs(declared).answer["tally"]
            if tally["pages_matched"] != tally["requests"]:
                faults.append(f"log {seed}: {tally['pages_matched']} of {tally['requests']} pages")
            note("declared", lifts(declared, log), log)
            own = log.declared()
            plain = replace(own, rounding=None, rounding_how=None, increment=None)
            unrounded = log.market(Path(place) / f"unrounded-{seed}", rule=plain)
            bare = log.market(Path(place) / f"bare-{seed}", rule=None)
            try:
                lifts(bare, log)
                faults.append(f"log {seed}: answered without a rule")
            except UserError:
                refused += 1
            with accepting_mismatch():
                note("unrounded", lifts(unrounded, log), log)
                note("undeclared", lifts(bare, log), log)
            try:
                audit_logs(bare, adopt=True)
                adopted += 1
                note("adopted", lifts(bare, log), log)
            except UserError as error:
                print(f"log {seed}: {error}")
    told_of = f"without a rule {refused} refused, {adopted} adopted"
    print(f"{given.logs} logs of {given.requests:,} requests; {told_of}")
    print_table(errors)
    held = [is_held for (_, kind), told in errors.items() if kind == "declared" for _, is_held in told]
    from scipy.stats import binom

    least = int(binom.ppf(CHANCE, len(held), 0.95))
    if sum(held) < least:
        faults.append(f"{sum(held)} of {len(held)} intervals hold the truth, expected {least} or more")
    print(f"declared: {sum(held)} of {len(held)} intervals hold the truth")
    for fault in faults:
        print(f"FAILED {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
