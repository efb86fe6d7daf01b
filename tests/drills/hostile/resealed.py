"""Resealed: a run, a market or a fitted world is damaged, all its digests and seals are made anew, and a
question is asked.

Digests fit, so nothing but what files may hold can be noticed. *detected*: a refusal. *harmless*: the same
answer, or another from data that could be. *silent*: an answer although a declared rule of the format is
broken.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from drills.hostile.commands import OPTIONS, Answer, here
from drills.hostile.flips import timeless
from drills.hostile.mutants import OTHERS
from drills.hostile.outcome import CRASH, DETECTED, HARMLESS, SILENT, WRONG, Outcome
from drills.hostile.prepared import PLAIN, Prepared
from drills.hostile.sealing import reseal

SCENARIO = (
    PLAIN.replace("name: plain", "name: resealed").replace("evaluate: 64", "evaluate: 600")
    + """\
auction: {reserve_cpc: 0.05}
off_policy:
  requests: 64
  randomise: {reserve_cpc: 0.3}
  slates: {requests: 64, depth: 4}
"""
)
OUT = "answer"
RESERVE, SLATES = ("--set", "auction.reserve_cpc=0.1"), ("--set", "slates.temperature=0.7", "--no-truth")
QUIET = ("--out", OUT, "--quiet")
# Subject -> question -> words. A subject is a folder of its own, with all that its questions need.
QUESTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "run": {
        "trace": ("trace", "run", "--request", "3", "--ad", "5", "--json"),
        "landscape": (
            "landscape",
            "run",
            "--ad",
            "3",
            "--points",
            "2",
            "--requests",
            "64",
            "--json",
            "--quiet",
        ),
        "critical-bids": ("critical-bids", "run", "--arm", "now", "--impressions", "20", *QUIET),
        "whatif": ("whatif", "run", *RESERVE, *QUIET),
        "off-policy": ("off-policy", "run", *RESERVE, "--no-truth", "--quiet"),
        "off-policy slates": ("off-policy", "run", *SLATES, "--quiet"),
        "compare": ("compare", "run", "run"),
        "export-logs": ("export-logs", "run", *QUIET),
    },
    "market": {
        "trace": ("trace", "market", "--request", "3", "--json"),
        "landscape": ("landscape", "market", "--ad", "5", "--points", "2", "--json", "--quiet"),
        "critical-bids": ("critical-bids", "market", "--impressions", "20", *QUIET),
        "whatif": ("whatif", "market", *RESERVE, *QUIET),
        "audit-logs": ("audit-logs", "market", "--json"),
        "validate": ("validate", "market/scenario.yaml"),
    },
    "drawn": {
        "off-policy": ("off-policy", "drawn", *SLATES, "--quiet"),
        "audit-logs": ("audit-logs", "drawn", "--infer", "--json"),
        "validate": ("validate", "drawn/scenario.yaml"),
    },
    "fitted": {
        "validate": ("validate", "world.yaml"),
        "run": ("run", "world.yaml", *QUIET, *OPTIONS[:4], "--set", "phases.evaluate=64"),
    },
}
SHARES = {"run": 4, "market": 8, "drawn": 2, "fitted": 4}  # of the cases
FILES = {
    "run": ("run/logs/*/*.parquet", "run/logs/*/_parts.json", "run/manifest.json"),
    "market": ("market/store/*",),
    "drawn": ("drawn/store/*",),
    "fitted": ("world-click-model/*", "world-click-model/*", "market/store/*"),
}


@dataclass(frozen=True)
class Damage:
    """What was done, and whether a rule of the format is broken by it."""

    what: str
    is_illegal: bool


def prepare(prepared: Prepared) -> None:
    """The subjects, and what is answered about them undisturbed."""
    if "resealed" in prepared.kept:
        return
    from worlds.other_family import OtherFamily

    base = prepared.place("resealed")
    (base / "scenario.yaml").write_text(SCENARIO)
    before = Path.cwd()
    os.environ["CASCADE_SIM_CACHE"] = str(prepared.cache)
    for subject in QUESTIONS:
        (base / subject).mkdir()
    try:
        os.chdir(base)
        done("run", "scenario.yaml", "--out", "run/run", *OPTIONS)
        for subject, phase in (("market", "evaluate"), ("drawn", "slates")):
            done("export-logs", "run/run", "--out", subject + "-log", "--phase", phase, "--quiet")
            done("import-logs", f"{subject}-log/mapping.yaml", "--out", f"{subject}/{subject}", "--quiet")
        OtherFamily(requests=500, days=1.5).store(base / "fitted" / "market")
        done("fit-world", "fitted/market", "--out", "fitted/world.yaml", "--replicates", "8", "--quiet")
        kept: dict[str, Any] = {}
        for subject, questions in QUESTIONS.items():
            os.chdir(base / subject)
            for name, words in questions.items():
                kept[f"{subject} {name}"] = _asked(words)
                answer = kept[f"{subject} {name}"][0]
                assert answer.code in (0, 1) and not answer.is_crash, f"{subject} {name}: {answer}"
        prepared.kept["resealed"] = kept
    finally:
        os.chdir(before)


def done(*words: str) -> None:
    answer = here(words)
    assert answer.code == 0, f"{words}: {answer.err}"


def case(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    subject = rng.choices(list(SHARES), list(SHARES.values()))[0]
    name = rng.choice(list(QUESTIONS[subject]))
    shutil.copytree(prepared.folder / "resealed" / subject, place / "own")
    os.chdir(place / "own")
    pattern = rng.choice(FILES[subject])
    files = sorted(file for file in Path(".").rglob("*") if file.is_file() and fnmatch(str(file), pattern))
    file = rng.choice(files)
    damage = damaged(file, rng)
    reseal(Path("."))
    answer, wrote = _asked(QUESTIONS[subject][name])
    return _judged(
        f"{file}: {damage.what}; {name}",
        damage,
        answer,
        wrote,
        prepared.kept["resealed"][f"{subject} {name}"],
    )


def _judged(
    what: str,
    damage: Damage,
    answer: Answer,
    wrote: dict[str, bytes],
    undisturbed: tuple[Answer, dict[str, bytes]],
) -> Outcome:
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    if answer.code == 2:
        is_told = "error: " in answer.err
        return Outcome(DETECTED if is_told else WRONG, what, answer.last_words)
    before = undisturbed[0]
    is_same = (answer.code, wrote) == (before.code, undisturbed[1])
    if is_same and timeless(answer.out) == timeless(before.out):
        return Outcome(HARMLESS, what)
    return Outcome(SILENT if damage.is_illegal else HARMLESS, what, answer.last_words)


def _asked(words: tuple[str, ...]) -> tuple[Answer, dict[str, bytes]]:
    answer = here(words)
    out = Path(OUT)
    wrote = {} if words[0] == "run" else {
        str(path): path.read_bytes() for path in (out, *sorted(out.rglob("*"))) if path.is_file()
    }  # fmt: skip
    shutil.rmtree(out, ignore_errors=True)
    out.unlink(missing_ok=True)
    return answer, wrote


def damaged(file: Path, rng: Random) -> Damage:
    """Damage a file in place by what it is."""
    if file.suffix == ".npy":
        return _column(file, rng)
    if file.suffix == ".parquet":
        return _table(file, rng)
    if file.suffix == ".json":
        return _json(file, rng)
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return Damage("a bit", False)


WHOLE = (
    -(2**63),
    2**63 - 1,
    -(2**31),
    2**31 - 1,
    10**6,
    -2,
    -1,
    0,
    1,
    2,
    3,
    40,
    127,
    32_000,
    1 << 41,
    1 << 60,
)
REAL = (np.nan, np.inf, -np.inf, -1.0, -1e-9, 1e300, 1e13, 1e-300, 0.0, 0.5, 1.0, 1.5, 2.0, 1e9)
DTYPES = (
    "<i8",
    "<i4",
    "<i2",
    "<i1",
    "<f8",
    "<f4",
    "<u8",
    "<f2",
    "<c16",
    "<U3",
    "|b1",
    "<M8[s]",
    ">i4",
    ">f8",
)


def other_values(values: np.ndarray, rng: Random) -> tuple[str, np.ndarray]:
    """The same shape and dtype with other values in some rows."""
    values = values.copy()
    n = len(values)
    rows = rng.sample(range(n), min(n, rng.choice((1, 3, 20, n)))) if n else []
    if rng.random() < 0.15:
        values[sorted(rows)] = values[rows]
        return f"{len(rows)} rows in another order", values
    if values.dtype.kind == "f":
        value: Any = rng.choice(REAL)
    elif values.dtype.kind == "b":
        value = rng.random() < 0.5
    else:
        ends = np.iinfo(values.dtype)
        value = min(max(rng.choice(WHOLE), int(ends.min)), int(ends.max))
    with np.errstate(over="ignore"):
        values[rows] = value
    return f"{value} in {len(rows)} of {n} rows", values


def _column(file: Path, rng: Random) -> Damage:
    values, draw = np.load(file), rng.random()
    if draw < 0.7:
        what, made = other_values(values, rng)
        np.save(file, made)
        return Damage(what, _breaks_a_rule(file, made))
    if draw < 0.85:
        shapes: dict[str, Callable[[], np.ndarray]] = {
            "one row less": lambda: values[:-1],
            "no rows": lambda: values[:0],
            "twice as long": lambda: np.concatenate([values, values]),
            "two axes": lambda: values.reshape(-1, 1) if values.ndim == 1 else values.reshape(-1),
            "a single number": lambda: np.array(values.flat[0] if values.size else 0),
            "by columns": lambda: np.asfortranarray(np.stack([values, values])),
        }
        what = rng.choice(list(shapes))
        np.save(file, shapes[what]())
        return Damage(what, True)
    if draw < 0.95:
        dtype = rng.choice([one for one in DTYPES if np.dtype(one) != values.dtype])
        with np.errstate(all="ignore"):
            np.save(file, values.astype(dtype))
        return Damage(f"as {dtype}", True)
    data = bytearray(file.read_bytes())
    data[rng.randrange(min(len(data), 128))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return Damage("a bit of the header", True)


def _breaks_a_rule(file: Path, values: np.ndarray) -> bool:
    """Whether the range that the format declares of this column excludes some values."""
    from cascade_sim.logs.replay.fitted import COLUMNS
    from cascade_sim.logs.store.format import about_from, column, sizes_of

    if file.parent.name == "world-click-model":
        return COLUMNS[file.stem].outside(values, {}) is not None
    store = file.parent.parent
    sizes = sizes_of(about_from(json.loads((store / "log.json").read_bytes()), store))
    entry = column(file.parent.name, file.stem)
    return entry.outside(values, sizes) is not None


def _table(file: Path, rng: Random) -> Damage:
    """A part of a log, or names of a store."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from cascade_sim.storage.log_columns import LOG_COLUMNS, LONGEST

    table = pq.ParquetFile(file).read()
    name = rng.choice(table.schema.names)
    at, column, draw = table.schema.names.index(name), table.column(name), rng.random()
    if draw < 0.6 and not pa.types.is_large_string(column.type):
        what, made = other_values(column.to_numpy(zero_copy_only=False), rng)
        pq.write_table(table.set_column(at, name, pa.array(made)), file)
        rule = LOG_COLUMNS.get(name)
        return Damage(f"{name}: {what}", rule is not None and rule.outside(made, LONGEST) is not None)
    others: dict[str, Callable[[], Any]] = {
        "as text": lambda: table.set_column(at, name, column.cast(pa.large_string())),
        "half empty": lambda: table.set_column(
            at, name, pa.array(column.to_pylist(), column.type, mask=np.arange(len(column)) % 2 == 0)
        ),
        "gone": lambda: table.drop_columns([name]),
        "twice": lambda: table.append_column(name, column),
        "one row less": lambda: table.slice(0, max(len(table) - 1, 0)),
        "no rows": lambda: table.slice(0, 0),
        "backwards": lambda: table.take(pa.array(np.arange(len(table))[::-1])),
        "in lists": lambda: table.set_column(at, name, pa.array([[x] for x in column.to_pylist()])),
    }
    what = rng.choice(list(others))
    pq.write_table(others[what](), file)
    return Damage(f"{name}: {what}", what in ("as text", "half empty", "gone", "in lists"))


def _json(file: Path, rng: Random) -> Damage:
    """One value, wherever it is, is another, or gone; digests are no case of their own."""
    data = json.loads(file.read_bytes())
    places = [place for place in _places(data, ()) if not {"seal", "sha256", "seals"} & set(place)]
    if not places:
        return Damage("nothing to change", False)
    place = rng.choice(places)
    owner = data
    for key in place[:-1]:
        owner = owner[key]
    before = owner[place[-1]]
    if rng.random() < 0.15:
        del owner[place[-1]]
        # A log without a declared rule is one, too: every answer on it says so.
        what, kind = "gone", place != ("rule",)
    else:
        value = rng.choice((*OTHERS, before * 2 if isinstance(before, int | float) else f"{before}x"))
        owner[place[-1]] = value
        what, kind = f"{value!r:.40}", type(value) is not type(before)
    file.write_text(json.dumps(data))
    return Damage(f"{'.'.join(map(str, place))}: {what}", kind)


def _places(data: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    found = [] if not path else [path]
    for key, value in items:
        found += _places(value, (*path, key))
    return found
