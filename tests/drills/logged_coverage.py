"""Do intervals of reserve what-ifs on exported logs cover the truth?

    python tests/drills/logged_coverage.py [--worlds 20] [--logs 50] [--requests 1500] [--level bids]

In each of several small worlds an arm with a reserve serves one stretch of requests after the other, and
each stretch is exported as a log of its own, with a ranker whose predictions are noisy and off. Each log is
asked what other reserves would have brought. The truth is the difference of true expected revenue per
request over all stretches of the world. A reserve below which no bids were logged must be refused, which is
counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

RESERVE, HIGHER, LOWER = 0.6, (0.75, 0.9, 1.1), 0.4
SMALL = (
    *("models={}", "cascade.ranking.model=truth", "cascade.pre_ranking.model=random"),
    *("cascade.pre_ranking.bid=none", "phases.cold_start=0", "phases.log=0", "phases.shadow=0"),
    *("world.users=20000", "world.ads=400", "world.advertisers=40", "world.base_logit=-2.5"),
    *("cascade.retrieval.size=40", "cascade.pre_ranking.size=12", "traffic.block=512"),
    *(f"auction.reserve_cpc={RESERVE}", "arms={base: {}}", "report={baseline: base, resamples: 400}"),
)


class NoisyRanker:
    """The truth's logit with an error of each user and ad, and off in level and slope."""

    name, link, by_pair = "truth", "sigmoid", True

    def __init__(self, truth, seed: int):
        self._truth, self._seed = truth, seed

    def predict(self, block, ids):
        from scipy.special import expit, logit

        from cascade_sim.foundation import random as draws

        true = np.clip(self._truth.ctr(block, ids), 1e-9, 1 - 1e-9)
        noise = draws.normal(self._seed, "noisy ranker", block.users[:, None], ids)
        return np.where(ids >= 0, expit(0.85 * logit(true) - 0.2 + 0.35 * noise), 0.0).astype(np.float32)


def the_world(seed: int, requests: int, logs: int):
    """A simulation whose evaluation holds all stretches."""
    from cascade_sim.scenario.file import load_scenario
    from cascade_sim.study.simulation import Simulation

    sets = [*SMALL, f"phases.evaluate={requests * logs}"]
    scenario = load_scenario(ROOT / "scenarios" / "quick.yaml", sets, seed)
    sim = Simulation(scenario, seed)
    sim.scorers["truth"] = NoisyRanker(sim.environment._truth, seed)
    return sim


def true_differences(sim, total: int) -> dict[float, float]:
    """True expected revenue per request at each reserve, less that of the deployed one."""
    from dataclasses import replace

    from cascade_sim.cascade.outcome import outcome
    from cascade_sim.diagnostics.reopen import evaluation_blocks
    from cascade_sim.scenario.schema import resolved_arms

    arm = sim.arm("base", resolved_arms(sim.scenario)["base"])
    sums = dict.fromkeys((RESERVE, *HIGHER), 0.0)
    for block, n in evaluation_blocks(sim, total):
        for reserve in sums:
            decision = sim.serve(block, replace(arm, reserve_cpc=reserve))
            result = outcome(block, decision, sim.environment._truth, sim.world.slot_effects, sim.seed)
            sums[reserve] += float((result.expected_clicks * decision.cpc_micros / 1e6)[:n].sum())
    return {reserve: (sums[reserve] - sums[RESERVE]) / total for reserve in HIGHER}


def stretches(requests, candidates, n: int):
    """The columns of all requests cut into logs of n requests each."""
    first = requests["first"]
    for start in range(0, len(first) - 1, n):
        low, high = first[start], first[start + n]
        own = {name: values[start : start + n] for name, values in requests.items() if name != "first"}
        own["first"] = first[start : start + n + 1] - low
        own["time"] = own["time"] - own["time"].min()
        yield own, {name: values[low:high] for name, values in candidates.items()}


def ask(folder: Path, value: str):
    """The what-if of this reserve, or None where it is refused."""
    from cascade_sim.counterfactual.whatif import what_if_study
    from cascade_sim.scenario.overrides import Refused

    words = [f"auction.reserve_cpc={value}"]
    try:
        return what_if_study(folder, words)
    except Refused:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--logs", type=int, default=50)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--level", choices=["bids", "pre_ranking"], default="bids")
    parser.add_argument("--first-seed", type=int, default=1)
    given = parser.parse_args()
    from cascade_sim.scenario.schema import resolved_arms
    from worlds.logged_market import about_arm, logged_columns, made_market

    covered: dict[float, list[bool]] = {reserve: [] for reserve in HIGHER}
    errors: dict[float, list[float]] = {reserve: [] for reserve in HIGHER}
    refused = asked_below = 0
    for seed in range(given.first_seed, given.first_seed + given.worlds):
        sim = the_world(seed, given.requests, given.logs)
        total = given.requests * given.logs
        truth = true_differences(sim, total)
        arm = sim.arm("base", resolved_arms(sim.scenario)["base"])
        requests, candidates = logged_columns(sim, arm, total, given.level)
        kept = candidates["bid"] >= RESERVE  # lower bids were never logged
        row = np.repeat(np.arange(total), np.diff(requests["first"]))
        candidates = {name: values[kept] for name, values in candidates.items()}
        requests["first"] = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=total))])
        about = about_arm(sim, arm, given.level, bids_logged_above=RESERVE)
        with tempfile.TemporaryDirectory() as temp:
            for i, (some, own) in enumerate(stretches(requests, candidates, given.requests)):
                folder = Path(temp) / f"log-{i}"
                made_market(folder, some, own, about, advertiser=sim.world.advertiser)
                answer = ask(folder, ",".join(map(str, HIGHER)))
                assert answer is not None
                for point in answer["points"]:
                    reserve = point["settings"]["auction.reserve_cpc"]
                    gap = point["metrics"]["expected_revenue_per_request"]["difference"]
                    covered[reserve].append(gap["low"] <= truth[reserve] <= gap["high"])
                    errors[reserve].append(
                        (gap["value"] - truth[reserve]) / max(gap["high"] - gap["low"], 1e-12)
                    )
                if i == 0:
                    asked_below += 1
                    refused += ask(folder, str(LOWER)) is None
        told = {
            "worlds": seed - given.first_seed + 1,
            "logs": len(covered[HIGHER[0]]),
            "coverage": {reserve: round(float(np.mean(hits)), 4) for reserve, hits in covered.items()},
            "mean_error_in_widths": {r: round(float(np.mean(e)), 3) for r, e in errors.items()},
            "refused_below": f"{refused} of {asked_below}",
            "resampled": answer["replay"]["resampled"]["by"],
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
