"""A world fitted to a log from a market of another family: what it gets right, and what it gets wrong.

    python tests/drills/fitted_world.py [--seeds 5,6] [--jobs 2] [--folder FOLDER]

The log has Pareto bids, segments, slots whose effects nobody wrote down, and a hidden intent. A world is
fitted to its first half and compared with its second; another, fitted to all of it, is asked what-ifs whose
answers the market's truth knows: for the log's own requests, with the interval over requests, and for twelve
times as many of other people, for whom the world's interval is to hold. Several seeds are several markets:
what is asked stays the same.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REQUESTS, EVALUATED = 16_000, 64_000
# Near what was served: the response is known there.
RIGHT: dict[str, dict[str, Any]] = {
    "auction.reserve_cpc=0.3": {"reserve_cpc": 0.3},
    "auction.squashing=0.8": {"squashing": 0.8},
    "cascade.slots=2": {"slots": 2},
}
# Far from it: ads win that were never shown, and the platform's predictions of them are what the fit goes by.
FAR: dict[str, dict[str, Any]] = {"auction.squashing=0.0": {"squashing": 0.0}}
# Beyond what was logged: a ranker that knows all would know what each request is after; the world does not.
WRONG: dict[str, dict[str, Any]] = {"ranking.model=truth": {"model": "ctr"}}
ASKED = {**RIGHT, **FAR, **WRONG}
NEAR = 0.02  # of AUC
REVENUE = "expected_revenue_per_request"


def drill(folder: Path, seed: int = 5) -> dict[str, Any]:
    """Everything that is shown, as plain data."""
    from cascade_sim.cli import main
    from cascade_sim.logs.fit.fitted import sampled_store
    from cascade_sim.logs.fit.realism import realism, split_of
    from cascade_sim.scenario.file import load_scenario
    from cascade_sim.study.simulation import Simulation
    from worlds.other_family import OtherFamily

    market = OtherFamily(requests=REQUESTS, seed=seed)
    log = market.store(folder / "market")
    first, whole = folder / "half.yaml", folder / "whole.yaml"
    half = ["--fit-share", "0.5", "--replicates", "0"]
    assert main(["fit-world", str(folder / "market"), *half, "--out", str(first)]) == 0
    sim = Simulation(load_scenario(first), 1, home=folder)
    world = sampled_store(sim, folder / "world", REQUESTS // 2)
    found = realism(log, world, part=(split_of(log), log.n_requests))
    assert main(["fit-world", str(folder / "market"), "--out", str(whole)]) == 0
    run = folder / "run"
    many = ["--set", f"phases.evaluate={EVALUATED}", "--quiet"]
    assert main(["run", str(whole), *many, "--out", str(run)]) == 0
    answers, others = {}, market.lifts_before_others(ASKED)
    for words, rule in ASKED.items():
        out = folder / words.replace("=", "-")
        assert main(["whatif", str(run), "--set", words, "--quiet", "--out", str(out)]) == 0
        answer = json.loads((out / "whatif.json").read_text())
        truth, lift = market.lift(**rule), answer["points"][0]["metrics"][REVENUE]["lift"]
        answers[words] = {
            "truth": truth, "world": {key: lift[key] for key in ("value", "low", "high")},
            "is_inside": truth["low"] <= lift["value"] <= truth["high"],
            "counted": truth["low"] <= market.counted_lift(**rule) <= truth["high"],
            "others": others[words], "is_held": lift["low"] <= others[words] <= lift["high"],
        }  # fmt: skip
    return {
        "two_sample": {
            what: {
                "auc": found["two_sample"][what]["auc"],
                "within_log": found["two_sample"][what]["within_log"]["auc"],
            }
            for what in ("requests", "shown")
        },
        "verdict": found["verdict"],
        "gaps": found["gaps"],
        "whatifs": answers,
    }


def shown(found: dict[str, Any]) -> str:
    """A line per figure."""
    lines = [f"verdict: {found['verdict']}"]
    for what, test in found["two_sample"].items():
        own, yard = test["auc"], test["within_log"]
        lines.append(
            f"{what}: AUC {own['value']:.3f} [{own['low']:.3f}, {own['high']:.3f}], between periods "
            f"{yard['value']:.3f} [{yard['low']:.3f}, {yard['high']:.3f}]"
        )
    for words, answer in found["whatifs"].items():
        sides = [
            f"{name} {100 * a['value']:+.2f} % [{100 * a['low']:+.2f}, {100 * a['high']:+.2f}]"
            for name, a in (("truth", answer["truth"]), ("world", answer["world"]))
        ]
        lines.append(
            f"{words}: {'; '.join(sides)}; {'inside' if answer['is_inside'] else 'OUTSIDE'}; others "
            f"{100 * answer['others']:+.2f} % {'held' if answer['is_held'] else 'NOT HELD'}"
        )
    return "\n".join([*lines, *found["gaps"]])


def tally(found: list[dict[str, Any]]) -> str:
    """Of how many markets each holds."""
    lines = []
    for what in ("requests", "shown"):
        gaps = [abs(f["two_sample"][what]["auc"]["value"] - f["two_sample"][what]["within_log"]["value"])
                for f in found]  # fmt: skip
        near = sum(gap <= NEAR for gap in gaps)
        lines.append(
            f"{what}: within {NEAR} of that within the log in {near} of {len(found)}, largest {max(gaps):.3f}"
        )
    for words in found[0]["whatifs"]:
        answers = [f["whatifs"][words] for f in found]
        inside, best = (sum(answer[key] for answer in answers) for key in ("is_inside", "counted"))
        covers = sum(a["world"]["low"] <= a["truth"]["value"] <= a["world"]["high"] for a in answers)
        held = sum(answer["is_held"] for answer in answers)
        off = 100 * max(abs(a["world"]["value"] - a["truth"]["value"]) for a in answers)
        lines.append(
            f"{words}: inside the truth's interval in {inside} of {len(found)} (with every CTR known, and "
            f"slots by their clicks: {best}), the world's interval holds the truth of the log's requests in "
            f"{covers} and of others' in {held}, farthest off {off:.2f} points"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[5])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="markets at a time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temp, ProcessPoolExecutor(given.jobs) as pool:
        folders = [(given.folder or Path(temp)) / str(seed) for seed in given.seeds]
        found = []
        for seed, one in zip(given.seeds, pool.map(drill, folders, given.seeds), strict=True):
            print(f"market {seed}\n{shown(one)}\n", flush=True)
            found.append(one)
    print(tally(found))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    main()
