"""How often the interval of a quick answer of the live page covers the exact value.

    python tests/drills/live_coverage.py [--seed 1] [--settings 300]

In a small world of that seed 300 random settings of one to three parameters are answered from 2,048 of 10,240
requests, and from all, which is the value of `whatif`. Every setting has its own random sample of blocks: of
one sample, errors of like settings would be alike. Prints the share of covered values by measure.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

MEASURES = ("expected_revenue_per_request", "revenue_per_request", "expected_ctr", "cpc", "rcs")
REQUESTS, BLOCKS = 10_240, 16


def setting(generator: np.random.Generator) -> tuple[str, ...]:
    """A random setting of one to three parameters."""
    parameters = {
        "auction.reserve_cpc": f"{generator.uniform(0.2, 1.2):.3f}",
        "auction.squashing": f"{generator.uniform(0.4, 1.4):.2f}",
        "cascade.slots": str(generator.integers(1, 4)),
        "cascade.pre_ranking.size": str(generator.integers(5, 50)),
        "cascade.pre_ranking.model": str(generator.choice(["ltr", "distill-pre"])),
        "cascade.pre_ranking.bid": "opt",
        "auction.pricing": "first",
    }
    chosen = generator.choice(list(parameters), size=generator.integers(1, 4), replace=False)
    return tuple(f"{path}={parameters[path]}" for path in chosen)


def coverage(folder: Path, seed: int | None, n_settings: int) -> dict[str, list[bool]]:
    """Whether each interval covers, by measure; a measure that does not feel a setting is left out of it."""
    from cascade_sim.live import figures
    from cascade_sim.live.session import Session, Variant
    from worlds.tiny_market import run_phases, tiny_scenario
    from worlds.whatif_runs import measured_run

    scenario = tiny_scenario(f"phases.evaluate={REQUESTS}", seed=seed)
    session = Session(measured_run(run_phases(scenario, folder / "study", folder / "cache"), folder / "run"))
    generator, base = np.random.default_rng(scenario.seed), session.arm(Variant(session.baseline))
    blocks, hits = list(session.blocks(True)), {name: [] for name in MEASURES}
    list(session.measured(base, blocks))
    for _ in range(n_settings):
        arm = session.arm(Variant(session.baseline, setting(generator)))
        list(session.measured(arm, blocks))
        sample = generator.choice(session.n_blocks, BLOCKS, replace=False).tolist()
        quick, whole = (
            figures.measures(
                session, *([session.pages(side)[i] for i in some] for side in (arm, base)), some, MEASURES
            )
            for some in (sample, blocks)
        )
        for name in MEASURES:
            interval, value = quick[name]["lift"], whole[name]["lift"]["value"]
            if interval["high"] > interval["low"]:
                hits[name].append(interval["low"] <= value <= interval["high"])
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settings", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hits = coverage(Path(folder), given.seed, given.settings)
    everything = {**hits, "all": [hit for own in hits.values() for hit in own]}
    for name, found in everything.items():
        print(f"{name:<30} {sum(found):5} of {len(found):5} covered, {100 * np.mean(found):.1f} %")


if __name__ == "__main__":
    main()
