"""How long the import of a large log takes, and how much memory.

    python tests/drills/import_scale.py [--rows 10000000] [--parts 4]

Writes Parquet parts with that many candidate rows, fifty a request, outcomes beside them, then imports them
in a process of its own, and prints CPU-seconds and the peak of resident memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from drills.large_log import CANDIDATES, auctions  # noqa: E402

MAPPING = """
name: large
time: seconds
rule: {pricing: gsp, squashing: 1}
requests:
  files: requests.parquet
  columns: {request: request, time: time, slots: {constant: 4}}
candidates:
  files: part-*.parquet
  columns: {request: request, ad: ad, bid: bid, pctr: pctr}
outcomes:
  columns: {request: request, ad: ad, slot: slot, price: price, click: click}
"""

IMPORT = """
import resource, sys
from cascade_sim.cli import main
code = main(["import-logs", sys.argv[1], "--out", sys.argv[2], "--quiet"])
used = resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss: in a new process that begins with what its parent had.
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
print(f"{used.ru_utime + used.ru_stime:.1f} CPU-seconds, {peak:.0f} MB at the peak")
sys.exit(code)
"""


def write_log(folder: Path, rows: int, parts: int) -> Path:
    """The requests and the parts of their candidates; the path of the mapping."""
    n = rows // CANDIDATES
    requests = {"request": np.arange(n), "time": np.arange(n) + 1_772_492_400}
    pq.write_table(pa.table(requests), folder / "requests.parquet")
    for part, request in enumerate(np.array_split(np.arange(n), parts)):
        drawn = {name: values.ravel() for name, values in auctions(request).items()}
        columns = {"request": np.repeat(request, CANDIDATES), "ad": drawn["ad"].astype(np.int64)}
        shown = {
            "slot": drawn["slot"].astype(np.float64),
            "price": drawn["price_micros"] / 1_000_000,
            "click": drawn["click"].astype(np.float64),
        }
        table = {name: pa.array(values) for name, values in columns.items()}
        table |= {name: pa.array(drawn[name]) for name in ("bid", "pctr")}
        table |= {name: pa.array(values, mask=drawn["slot"] < 0) for name, values in shown.items()}
        pq.write_table(pa.table(table), folder / f"part-{part}.parquet")
    (folder / "mapping.yaml").write_text(MAPPING)
    return folder / "mapping.yaml"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--parts", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temp:
        mapping = write_log(Path(temp), given.rows, given.parts)
        words = [sys.executable, "-c", IMPORT, str(mapping), str(Path(temp) / "market")]
        return subprocess.run(words, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
