"""How long the first answer on a log of ten million candidates takes, and how much memory.

    python tests/drills/logged_scale.py [--rows 10000000] [--folder FOLDER] [--points 13]

Writes a log of that many candidate rows (once: a folder that is there is taken as it is), then asks what
thirteen reserves would have brought, in a process of its own, and prints CPU-seconds and the peak of
resident memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from cascade_sim.foundation import random as draws  # noqa: E402
from cascade_sim.logs.store.format import About, Rule  # noqa: E402
from cascade_sim.logs.store.store import StoreWriter, new_folder, open_store  # noqa: E402
from drills.large_log import ADS, CANDIDATES, SLOTS, auctions  # noqa: E402
from worlds.logged_market import write_market  # noqa: E402

ADVERTISERS, RESERVE = 2_000, 0.05
AT_ONCE = 20_000

ASK = """
import json, sys, time
from pathlib import Path
from cascade_sim.counterfactual.whatif import what_if_study
words = ["auction.reserve_cpc=" + ",".join(f"{0.05 + 0.05 * i:g}" for i in range(int(sys.argv[2])))]
started, cpu = time.perf_counter(), time.process_time()
answer = what_if_study(Path(sys.argv[1]), words)
# Not ru_maxrss: in a new process that begins with what its parent had.
peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
told = {
    "cpu_seconds": round(time.process_time() - cpu, 2),
    "wall_seconds": round(time.perf_counter() - started, 2),
    "peak_mb": round(peak),
    "requests": answer["requests"],
    "resampled": answer["replay"]["resampled"],
    "points": len(answer["points"]),
    "lift": [point["metrics"]["expected_revenue_per_request"]["lift"] for point in answer["points"]][:3],
}
print(json.dumps(told))
"""


def write_log(folder: Path, rows: int) -> None:
    """A log of that many candidates, written in parts."""
    n = rows // CANDIDATES
    rule = Rule("gsp", 1.0, RESERVE, 0.0)
    about = About("large", "2026-11-02T00:00:00+00:00", level="bids", rule=rule, currency="EUR")
    with new_folder(folder / "store") as temp, StoreWriter(temp) as writer:
        for start in range(0, n, AT_ONCE):
            request = np.arange(start, min(start + AT_ONCE, n), dtype=np.int64)
            writer.append("requests", {
                "time": request * (7 * 86_400.0 / n),
                "user": (draws.uniform(1, "user", request) * 50_000).astype(np.int32),
                "segment": (draws.uniform(1, "segment", request) * 4).astype(np.int32),
                "placement": np.full(len(request), -1, np.int32),
                "slots": np.full(len(request), SLOTS, np.int16),
                "reserve": np.full(len(request), RESERVE),
                "first": request * CANDIDATES,
            })  # fmt: skip
            candidates = {name: values.ravel() for name, values in auctions(request, RESERVE).items()}
            n_here = len(candidates["ad"])
            writer.append("candidates", {
                **candidates,
                "stage": np.where(candidates["slot"] >= 0, 2, 1).astype(np.int8),
                "conversion": np.full(n_here, -1, np.int8),
                "source": np.arange(n_here, dtype=np.int64) + start * CANDIDATES + 1,
            })  # fmt: skip
        writer.append("requests", {"first": np.array([n * CANDIDATES])} | {
            name: np.empty(0) for name in ("time", "user", "segment", "placement", "slots", "reserve")
        })  # fmt: skip
        writer.append("ads", {"advertiser": np.arange(ADS, dtype=np.int32) % ADVERTISERS})
        for kind, size in (("ads", ADS), ("advertisers", ADVERTISERS), ("users", 50_000), ("segments", 4)):
            writer.names(kind, [f"{kind[:-1]} {i}" for i in range(size)])
        writer.finish(about)
    write_market(folder, open_store(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--points", type=int, default=13)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temp:
        folder = given.folder or Path(temp) / "market"
        if not folder.exists():
            write_log(folder, given.rows)
        done = subprocess.run(
            [sys.executable, "-c", ASK, str(folder), str(given.points)],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        print(done.stdout or done.stderr)
        print(json.dumps({"rows": given.rows}))


if __name__ == "__main__":
    main()
