"""Whether two checkouts give the same results: every shipped scenario, small, in both, compared byte by byte.

    python -m tests.drills.same_results --before DIR --after DIR [--scenarios quick,latency] [--renamed FILE]

Each side runs its own scenario files with its own code in one process (both at once), with the same
reductions: fewer requests, one pass of training, at most two days of market. An override is written with the
old name of a key where a side's schema has that, with the new one otherwise. What differs in its bytes is
compared by value, after names are mapped to the new ones: JSON and metrics.csv by key, a Parquet table column
by column, models by their weights. Additions are new files or entries, and sentences in other words; they are
counted, and no difference. Renamed are the rows `| where | old | new |` of the newer CHANGELOG.md, or of
--renamed. Exit code 1 if a result differs.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from ruamel.yaml import YAML
from safetensors.numpy import load_file

# Of the record of a run, not of its results: versions, times, sources, digests and sizes of files.
RECORDS = ("manifest.json", "_parts.json", "run.json", "scenario.yaml", "progress.json", "report.html")
PHASES = {"bootstrap": 1500, "log": 2000, "shadow": 300, "evaluate": 512}
VARIANTS = "consistency_"  # files of variants are overrides of a shipped scenario, and no scenario themselves
DAYS, REQUESTS = 2.0, 3000  # of a market at most
ROW = re.compile(r"^\s*\|[^|]*\|([^|]*)\|([^|]*)\|\s*$", re.MULTILINE)
NAME = re.compile(r"`([\w.=-]+)`")
VERDICTS = ("bytes", "values", "additions", "differs")
ADDITIONS = (" is new", " has other words")

RUN = """
import json, sys
from cascade_sim.cli import main
for name, words in json.load(sys.stdin).items():
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code
    print(json.dumps([name, code or 0]), flush=True)
"""


def renamed_keys(text: str) -> dict[str, str]:
    """Old name -> new name, of the tables `| where | old | new |` in a page.

    >>> renamed_keys("| where | old | new |\\n|---|---|---|\\n| a.json | `knob`, `a` | `parameter`, `b` |\\n")
    {'knob': 'parameter', 'a': 'b'}
    """
    found: dict[str, str] = {}
    for table in text.split("| where | old | new |")[1:]:
        rows = table.lstrip().split("\n\n")[0]
        for cells in ROW.findall(rows):
            found |= dict(zip(*map(NAME.findall, cells), strict=False))
    return found


def mapped(value: Any, renamed: Mapping[str, str]) -> Any:
    """JSON with its keys, and texts that are a key, by their new names."""
    if isinstance(value, dict):
        names = {key: renamed.get(key, key) for key in value}
        kept = [key for key in value if key != "scenario_hash"]  # of the names of keys
        return {key if names[key] in value else names[key]: mapped(value[key], renamed) for key in kept}
    if isinstance(value, list):
        return [mapped(inner, renamed) for inner in value]
    return renamed.get(value, value) if isinstance(value, str) else value


def differences(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Where two values differ, a line each.

    >>> list(differences({"n": 1, "said": "luck of 3 draws"}, {"n": 2, "said": "noise of 3 draws", "m": 1}))
    ['n: 1 -> 2', 'said has other words', 'm is new']
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            here = f"{at}.{key}".lstrip(".")
            if key not in before or key not in after:
                yield f"{here} is {'new' if key in after else 'gone'}"
            else:
                yield from differences(before[key], after[key], here)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{at}[{i}]")
    elif repr(before) != repr(after):  # repr: NaN is NaN, 1 is not 1.0
        are_sentences = all(isinstance(one, str) and " " in one for one in (before, after))
        same_figures = re.findall(r"\d+", str(before)) == re.findall(r"\d+", str(after))
        worded = are_sentences and same_figures
        yield f"{at} has other words" if worded else f"{at}: {str(before)[:60]} -> {str(after)[:60]}"


@dataclass
class Side:
    """A checkout, and where its runs go."""

    folder: Path
    out: Path
    renamed: Mapping[str, str]
    sets: Sequence[str] = ()  # KEY=VALUE, keys by their old names
    python: str = sys.executable
    schema: Any = field(default=None)

    @property
    def scenarios(self) -> dict[str, Path]:
        """The shipped scenarios by name."""
        files = sorted((self.folder / "scenarios").glob("*.yaml"))
        return {file.stem: file for file in files if not file.stem.startswith(VARIANTS)}

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}

    def read_schema(self) -> None:
        """What its scenarios may have."""
        words = [self.python, "-m", "cascade_sim", "schema"]
        told = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        self.schema = json.loads(told.stdout)

    def spelled(self, path: str) -> str:
        """A key by the name that this side has for it."""
        steps, node = [], self.schema
        for step in path.split("."):
            known = self._properties(node)
            name = step if not known or step in known else self.renamed.get(step, step)
            steps.append(name)
            node = known.get(name, {})
        return ".".join(steps)

    def _properties(self, node: Mapping[str, Any]) -> dict[str, Any]:
        for option in (node, *node.get("anyOf", ())):
            if "$ref" in option:
                option = self.schema["$defs"][option["$ref"].rsplit("/", 1)[1]]
            if "properties" in option:
                return dict(option["properties"])
        return {}

    def arms(self, name: str) -> set[str]:
        """The arms that a scenario of this side names."""
        return set(YAML(typ="safe").load(self.scenarios[name].read_text()).get("arms") or {})

    def words(self, name: str) -> list[str]:
        """The command that runs a scenario of this side, small."""
        data = YAML(typ="safe").load(self.scenarios[name].read_text())
        given = [one.split("=", 1) for one in self.sets]
        sets = [f"{self.spelled(key)}={value}" for key, value in (*reductions(data, self.renamed), *given)]
        options = [word for one in sets for word in ("--set", one)]
        where = ["--out", str(self.out / name), "--workers", "1", "--device", "cpu", "--quiet"]
        return ["run", f"scenarios/{name}.yaml", *where, *options]

    def start(self, names: Sequence[str]) -> subprocess.Popen[str]:
        """A process that runs these scenarios, one after the other."""
        with open(self.out / "stderr", "w") as errors, open(self.out / "stdout", "w") as told:
            process = subprocess.Popen(
                [self.python, "-c", RUN], cwd=self.folder, env=self.environment, text=True, stderr=errors,
                stdin=subprocess.PIPE, stdout=told,
            )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(json.dumps({name: self.words(name) for name in names}))
        process.stdin.close()
        return process

    def failed(self, names: Sequence[str]) -> list[str]:
        """The scenarios that did not run."""
        lines = (self.out / "stdout").read_text().splitlines()
        codes = dict(json.loads(line) for line in lines if line.startswith('["'))
        return [name for name in names if codes.get(name) != 0]


def reductions(data: Mapping[str, Any], renamed: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """What makes a scenario small, by the old names of keys: nothing is made larger than it is."""
    new = {key: renamed.get(key, key) for key in ("phases", "market", "models", *PHASES)}

    def given(section: Mapping[str, Any], key: str) -> Any:
        return section.get(key, section.get(new.get(key, key)))

    for key, most in PHASES.items():
        value = given(given(data, "phases") or {}, key)
        yield f"phases.{key}", most if value is None else min(value, most)
    traffic = data.get("traffic") or {}
    if "requests_per_second" in traffic:  # windows of clicks and conversions stay as long
        logged = [given(given(data, "phases") or {}, key) or PHASES[key] for key in ("bootstrap", "log")]
        share = min(1.0, (PHASES["bootstrap"] + PHASES["log"]) / sum(logged))
        yield "traffic.requests_per_second", round(traffic["requests_per_second"] * share, 6)
    for name, model in (given(data, "models") or {}).items():
        if "epochs" in model:
            yield f"models.{name}.epochs", 1
    yield "report.resamples", 20
    yield "report.detail_requests", 32
    market = given(data, "market")
    if market:
        days = min(market.get("days", 1), DAYS)
        rate = min(market.get("requests_per_second", 1), REQUESTS / (days * 86_400))
        if {"settle", "burn_in"} & set(market.get("training") or ()):  # deployments that are left out
            yield "market.training.settle", 1
        yield "market.days", days
        yield "market.requests_per_second", round(rate, 6)
    if "off_policy" in data:
        yield "off_policy.requests", 1024
        if "slates" in data["off_policy"]:
            yield "off_policy.slates.requests", 1024


def compare_file(before: Path, after: Path, renamed: Mapping[str, str]) -> tuple[str, list[str]]:
    """How two files agree (one of VERDICTS), and where they differ."""
    if before.read_bytes() == after.read_bytes():
        return "bytes", []
    read = {".json": _json, ".csv": _rows, ".parquet": _columns, ".safetensors": _weights}[before.suffix]
    found = list(differences(*(mapped(read(file), renamed) for file in (before, after))))
    lost = [line for line in found if not line.endswith(ADDITIONS)]
    return ("differs" if lost else "additions" if found else "values"), lost


def _json(file: Path) -> Any:
    return json.loads(file.read_text())


def _rows(file: Path) -> dict[str, Any]:
    """metrics.csv by arm, then by metric."""
    found: dict[str, Any] = {}
    with open(file, newline="") as lines:
        for row in csv.DictReader(lines):
            found.setdefault(row.pop("arm"), {})[row.pop("metric")] = row
    return found


def _columns(file: Path) -> dict[str, str]:
    """The columns of a table by name, each as a digest of its values."""
    table = pq.read_table(file)
    columns = zip(table.column_names, table.columns, strict=True)
    return {name: sha256(repr(column.to_pylist()).encode()).hexdigest() for name, column in columns}


def _weights(file: Path) -> dict[str, Any]:
    """The tensors of a file by name, without what is noted about them."""
    return {name: [str(one.dtype), one.shape, one.tobytes().hex()] for name, one in load_file(file).items()}


def results_of(folder: Path) -> set[str]:
    """The files of results in a run's folder, by their paths in it."""
    kept = {".json", ".csv", ".parquet", ".safetensors"}
    found = (file for file in folder.rglob("*") if file.is_file() and file.suffix in kept)
    return {str(file.relative_to(folder)) for file in found if file.name not in RECORDS}


def compare_run(name: str, before: Side, after: Side, renamed: Mapping[str, str]) -> dict[str, int]:
    """Prints where a scenario's results differ; how many files agree in which way."""
    counts = dict.fromkeys(VERDICTS, 0)
    old_arms, new_arms = (side.arms(name) for side in (before, after))
    for old, now in zip(sorted(old_arms - new_arms), sorted(new_arms - old_arms), strict=True):
        renamed = {**renamed, renamed.get(old, old): now, old: now}  # the arm's old name may be a key's, too
    new = results_of(after.out / name)
    for file in sorted(results_of(before.out / name)):
        words = re.split(r"([/-])", file)  # logs/bootstrap-requests
        now = file if file in new else "".join(renamed.get(word, word) for word in words)
        if now in new:
            verdict, found = compare_file(before.out / name / file, after.out / name / now, renamed)
        else:
            verdict, found = "differs", ["only before"]
        new.discard(now)
        counts[verdict] += 1
        for line in found[:5]:
            print(f"  {name}/{file}: {line}")
        if len(found) > 5:
            print(f"  {name}/{file}: and {len(found) - 5} more")
    counts["additions"] += len(new)
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="a checkout")
    parser.add_argument("--after", type=Path, required=True, help="another, newer one")
    parser.add_argument("--scenarios", default="", help="names with commas between them; all when absent")
    parser.add_argument("--renamed", type=Path, help="a page with tables | where | old | new |")
    parser.add_argument("--keep", type=Path, help="where the runs go; what lies there already is compared")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="of both, by old names"
    )
    given = parser.parse_args(arguments)
    renamed = renamed_keys((given.renamed or given.after / "CHANGELOG.md").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        root = (given.keep or Path(scratch)).resolve()
        sides = []
        for name in ("before", "after"):
            (root / name).mkdir(parents=True, exist_ok=True)
            sides.append(Side(getattr(given, name).resolve(), root / name, renamed, given.set))
        return _run_and_compare(*sides, given.scenarios, renamed)


def _run_and_compare(before: Side, after: Side, chosen: str, renamed: Mapping[str, str]) -> int:
    names = chosen.split(",") if chosen else [name for name in before.scenarios if name in after.scenarios]
    processes = []
    for side in (before, after):
        side.read_schema()
        missing = [name for name in names if not (side.out / name / "metrics.json").exists()]
        processes.append((side, missing, side.start(missing)))
    failed: dict[str, None] = {}
    for side, missing, process in processes:
        process.wait()
        failed |= dict.fromkeys(side.failed(missing))
    total = dict.fromkeys(VERDICTS, 0)
    for name in names:
        if name in failed:
            print(f"{name}: did not run")
            continue
        counts = compare_run(name, before, after, renamed)
        total = {verdict: total[verdict] + n for verdict, n in counts.items()}
        print(f"{name}: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")
    for side in (before, after):
        if failed:
            print((side.out / "stderr").read_text()[-3000:], file=sys.stderr)
    words = ", ".join(f"{n} {verdict}" for verdict, n in total.items())
    print(f"{len(names) - len(failed)} of {len(names)} scenarios, files: {words}")
    return 1 if failed or total["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
